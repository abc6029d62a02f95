// The view "cache shape": one layer's K and V as lanes, one lane a request and KV head; its length
// is the positions, its thickness the head width. Further layers lie behind as sheets.

const SHAPE_CSS = `
.kvc{--K:#56b4e9;--V:#cc79a7;display:grid;gap:.35em;padding:0 2.6em 0 .2em}
.kvc-sheet{display:grid;grid-template-columns:1fr 1fr;gap:0 1.4em;margin-top:2.1em;padding:.4em .8em .35em;border:1px solid var(--line);border-radius:6px;background:var(--paper)}
.kvc-name{display:flex;gap:.6em;align-items:baseline;white-space:nowrap;overflow:hidden;height:1.6em}
.kvc-letter{flex:none;width:1.6em;border-radius:4px;text-align:center;font-weight:650;background:var(--K);color:#000}
[data-kv=V] .kvc-letter{background:var(--V)}
.kvc-shape{font:600 .95em ui-monospace,Menlo,Consolas,monospace}.kvc-soft{color:var(--soft);font-size:.9em}
.kvc-lanes{height:9.2em;padding-top:.25em;display:flex;flex-direction:column;gap:.3em}
.kvc-request{flex:0 1 auto;display:flex;flex-direction:column;min-height:0;border-left:3px solid color-mix(in srgb,var(--ink) 35%,var(--paper));padding-left:.5em}
.kvc-lane{flex:0 1 1.9em;display:flex;align-items:center;gap:.45em;min-height:1.2em;font-size:.86em;line-height:1;color:var(--soft);white-space:nowrap}
.kvc-more{flex-basis:1.3em}
.kvc-who{flex:none;width:9.7em;overflow:hidden;text-overflow:ellipsis}
.kvc-run{flex:1;min-width:0;height:100%;display:flex;align-items:center;gap:.4em}
.kvc-bar{flex:none;border-radius:2px;background:var(--K)}[data-kv=V] .kvc-bar{background:var(--V)}
.kvc-bar[data-cells]{background:repeating-linear-gradient(90deg,var(--K) 0 calc(100%/var(--n) - 2px),transparent 0 calc(100%/var(--n)))}
[data-kv=V] .kvc-bar[data-cells]{background:repeating-linear-gradient(90deg,var(--V) 0 calc(100%/var(--n) - 2px),transparent 0 calc(100%/var(--n)))}
.kvc-axes{grid-column:1/-1;display:flex;flex-wrap:wrap;gap:0 1.3em;font-size:.86em;color:var(--soft)}
.kvc-axes b{color:var(--ink);font-weight:600}.kvc-limit{border-left:2px dashed var(--bad);padding-left:.4em}
.kvc-ruler{position:relative;height:3.1em;margin:.1em 0 0;font-size:.86em;color:var(--soft)}
.kvc-ruler::before{content:"";position:absolute;left:0;right:0;top:1.55em;height:2px;background:var(--line)}
.kvc-fill{position:absolute;left:0;top:1.3em;height:.5em;background:var(--C);border-radius:2px 0 0 2px}
.kvc-mark{position:absolute;top:1.95em;transform:translateX(-50%);white-space:nowrap}.kvc-mark:first-of-type{transform:none}
.kvc-mark::before{content:"";position:absolute;left:50%;top:-.75em;height:.7em;border-left:1px solid var(--soft)}.kvc-mark:first-of-type::before{left:0}
.kvc-now{position:absolute;top:0;transform:translateX(calc(-1*var(--shift)));color:var(--ink);font-weight:650;white-space:nowrap}
.kvc-stop{position:absolute;top:1.05em;height:1em;border-left:2px dashed var(--bad)}
.kv-large .kvc-lanes{height:7.6em}.kv-large .kvc-axes{display:none}.kv-large .kvc-sheet{margin-top:1.6em}
`;

const SHAPE_ROOM = 6; // lanes that fit one above the other
const SHAPE_CELLS = 32; // up to here each position is a cell of its own

/** How many requests, and heads of each, are drawn. */
function shapeDrawn(batch, heads) {
  const requests = batch <= 3 ? batch : 2; // never a line for a single one left out
  const room = Math.floor((SHAPE_ROOM - (batch > requests ? 1 : 0)) / requests);
  return { requests, heads: heads <= room ? heads : room - 1 };
}

/** Grows with the number and never outgrows its room; small numbers keep some length. */
const shapeShare = (n, most) => (Math.log2(n + 1) / Math.log2(most + 1)) ** 0.6;

function shapeLane(payload, words) {
  const [, , positions, width] = payload.shape;
  const bar = h("span", { class: "kvc-bar" });
  bar.style.width = `${(86 * shapeShare(positions, payload.longest)).toFixed(2)}%`;
  bar.style.height = `${(84 * shapeShare(width, payload.widest) ** 2).toFixed(2)}%`;
  if (positions > 0 && positions <= SHAPE_CELLS) {
    bar.dataset.cells = "";
    bar.style.setProperty("--n", String(positions));
  }
  const run = h("span", { class: "kvc-run" }, bar, thousands(positions));
  return h("div", { class: "kvc-lane" }, h("span", { class: "kvc-who" }, words), run);
}

/** A line in place of lanes or groups that are not drawn. */
const shapeMore = (n, what) => h("div", { class: "kvc-lane kvc-more" }, `… and ${counted(n, `more ${what}`)} like ${n === 1 ? "it" : "these"}`);

function shapePanel(payload, kv) {
  const [batch, heads] = payload.shape;
  const drawn = shapeDrawn(batch, heads);
  const lanes = h("div", { class: "kvc-lanes" });
  for (let request = 0; request < drawn.requests; request++) {
    const group = h("div", { class: "kvc-request" });
    for (let head = 0; head < drawn.heads; head++) group.append(shapeLane(payload, `request ${request}, head ${head}`));
    if (heads > drawn.heads) group.append(shapeMore(heads - drawn.heads, "head"));
    lanes.append(group);
  }
  if (batch > drawn.requests) lanes.append(shapeMore(batch - drawn.requests, "request"));
  const name = h("div", { class: "kvc-name" }, h("span", { class: "kvc-letter" }, kv), h("span", { class: "kvc-shape" }, `[${payload.shape.join(", ")}]`),
    h("span", { class: "kvc-soft" }, `${kv === "K" ? "keys" : "values"}, ${payload.each}`));
  return h("div", { class: "kvc-panel", "data-kv": kv }, name, lanes);
}

/** Further layers: sheets that look out behind the first, up to seven of them. */
function shapeSheet(payload) {
  const [batch, heads, positions, width] = payload.shape;
  const axes = [["L", "layers: sheets", payload.layers], ["B", "requests: groups", batch], ["H_kv", "heads: lanes", heads], ["T", "positions: length", positions], ["d_h", "width: thickness", width]];
  const words = axes.map(([letter, what, n]) => h("span", {}, h("b", {}, `${letter} = ${thousands(n)}`), ` ${what}`));
  const limit = h("span", { class: "kvc-limit" }, `limit: ${payload.limit[1]} at once`);
  const row = h("div", { class: "kvc-axes", title: "A longer or thicker lane is more, not to scale." }, ...words, limit);
  const sheet = h("div", { class: "kvc-sheet", "data-layers": payload.layers }, shapePanel(payload, "K"), shapePanel(payload, "V"), row);
  const behind = Math.min(payload.layers - 1, 7);
  const shadows = Array.from({ length: behind }, (_, i) => {
    const at = `${4 * (i + 1)}px ${-4 * (i + 1)}px 0`;
    return `${at} -1px var(--paper),${at} 0 var(--soft)`;
  });
  sheet.style.boxShadow = shadows.join(",") || "none";
  return sheet;
}

/** Where the payload stands between 1 byte and 1 PiB; the dashed mark is what is allocated at most. */
function shapeRuler(payload) {
  const end = payload.ruler.at(-1)[1];
  const place = (bytes) => (bytes > 0 ? (100 * Math.log2(bytes)) / end : 0);
  const marks = payload.ruler.map(([name, power]) => {
    const mark = h("span", { class: "kvc-mark" }, name);
    mark.style.left = `${(100 * power) / end}%`;
    return mark;
  });
  const fill = h("span", { class: "kvc-fill" }), limit = h("span", { class: "kvc-stop", title: "above this nothing is allocated" });
  const now = h("span", { class: "kvc-now", "data-total": "" }, payload.total);
  const at = place(payload.nbytes);
  fill.style.width = `${at}%`;
  now.style.left = `${at}%`;
  now.style.setProperty("--shift", at < 5 ? "0%" : "50%");
  limit.style.left = `${place(payload.limit[0])}%`;
  return h("div", { class: "kvc-ruler", role: "img", "aria-label": `${payload.total}, on a logarithmic scale from 1 byte to 1 PiB` }, ...marks, fill, limit, now);
}

VIEWS.cache_shape = (element, payload) => {
  const frame = createFrame(element, { view: "cache_shape", title: payload.title, css: SHAPE_CSS });
  frame.body.append(h("div", { class: "kvc" }, shapeSheet(payload), shapeRuler(payload)));
  frame.root.append(h("div", { class: "kv-say" }, h("div", { class: "kv-say-text", "data-say": "" }, payload.sentence)));
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenter.start();
  return { destroy: presenter.destroy };
};
