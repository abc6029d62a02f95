// The view "cache growth": rows are layers and K/V, columns positions, filled as passes process them.

const GROWTH_CSS = `
.kvg{display:flex;flex-wrap:wrap;gap:.5em 2.2em;align-items:flex-start}
.kvg-grid{flex:0 1 auto;min-width:0;max-width:100%}
.kvg-more{display:flex;justify-content:space-between;height:1.9em;padding-left:calc(5.7em + 4px)}
.kv .kvg-more button{width:auto;height:1.7em;padding:0 .6em;font-size:.86em;white-space:nowrap;border-radius:5px}.kvg-more [data-do=right]{margin-left:auto}
.kvg-scroll{position:relative;overflow-x:auto;overflow-y:hidden;padding:3px 0 4px;scrollbar-width:thin}
.kvg-inner{position:relative;display:flex;width:max-content}
.kvg-labels{position:sticky;left:0;z-index:2;flex:none;width:5.7em;margin-right:4px;background:var(--paper);color:var(--soft)}
.kvg-labels::after{content:"";position:absolute;z-index:-1;inset:-3px auto -3px 100%;width:var(--cover,0);background:var(--paper)}
.kvg-n,.kvg-t{height:1.45em;line-height:1.45em;font-size:.82em;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;text-align:center}
.kvg-labels .kvg-n,.kvg-labels .kvg-t{text-align:left}
.kvg-row,.kvg-c{height:1.5em;margin-top:.14em}.kvg-row[data-kv=K],.kvg-c[data-kv=K]{margin-top:.5em}
.kvg-row{display:flex;align-items:center}.kvg-row b{flex:1;font-weight:400;font-size:.93em}
.kvg-row i{width:1.4em;font:500 .9em ui-monospace,Menlo,Consolas,monospace}
.kvg-same{height:1.5em}.kvg-same span{display:block;padding-top:.35em;font-size:.86em;font-style:italic;white-space:nowrap}
.kvg-block{flex:none;margin-right:.55em}.kvg-cols{display:flex;gap:3px}
.kvg-col{flex:none;width:var(--col,2.9em)}
.kvg-n{color:var(--soft)}.kvg-t{padding:0 1px}.kvg-byte{font-family:ui-monospace,Menlo,Consolas,monospace}.kvg-special{font-style:italic;color:var(--soft)}
.kvg-c{border-radius:4px;display:grid;place-items:center;border:1px dashed transparent}
.kvg-c::after{font-weight:600;font-size:.8em;line-height:1}
[data-kind=future]>.kvg-c{border-color:color-mix(in srgb,var(--line) 55%,transparent)}
[data-kind=slot]>.kvg-c{border-color:var(--line)}[data-kind=known]>.kvg-c{border-color:color-mix(in srgb,var(--P) 65%,var(--ink))}
[data-kind=selected]>.kvg-c{border:2px dashed var(--ink)}[data-kind=selected]>.kvg-t{font-weight:650;color:var(--ink)}
[data-kind=P]>.kvg-c{background:var(--P);color:#fff}[data-kind=O]>.kvg-c{background:var(--O);color:#000}
[data-kind=C]>.kvg-c{background:var(--C);color:#000}
[data-kind=P]>.kvg-c::after{content:"P"}[data-kind=O]>.kvg-c::after{content:"O"}[data-kind=C]>.kvg-c::after{content:"C"}
.kv-large [data-only=small],.kv:not(.kv-large) [data-only=large]{display:none}
[data-kind=future]>.kvg-n{color:color-mix(in srgb,var(--ink) 68%,var(--paper))}
[data-kind=gone]>.kvg-c{border:1px solid var(--line);background:repeating-linear-gradient(135deg,transparent 0 3px,color-mix(in srgb,var(--ink) 16%,transparent) 3px 6px)}
.kvg-bl{margin-top:.35em;height:1.75em;font-size:.82em;line-height:1.9em;color:var(--soft);border-top:2px solid transparent;white-space:nowrap}
.kvg-bl[data-block]{border-top-color:color-mix(in srgb,var(--ink) 45%,var(--paper))}
.kvg-bl span{position:sticky;left:calc(6.96em + 4px + var(--cover,0px))}.kvg-bl[data-changed] span{outline:2px solid var(--ink);outline-offset:1px;border-radius:3px;color:var(--ink);font-weight:600}
.kvg-bl[data-back]{border-top-style:dashed}
.kvg-ring{position:absolute;z-index:1;border:2.5px solid var(--ink);border-radius:7px;pointer-events:none}
.kvg-ledger{display:grid;gap:.15em 2.2em;align-content:start;min-width:0}
.kvg[data-layout=below]>.kvg-ledger{grid-template-columns:minmax(0,auto) minmax(0,auto);width:100%;justify-content:start}
.kvg[data-narrow]>.kvg-ledger{grid-template-columns:minmax(0,1fr)!important}
.kvg[data-layout=beside]>.kvg-ledger{padding-top:1.5em;max-width:27em;flex:1 0 19em}
.kvg[data-layout=beside] .kvg-legend{margin-bottom:.6em}.kvg[data-layout=below] .kvg-legend{order:2;align-self:center}
.kvg[data-layout=below][data-wide] .kvg-legend{display:grid;grid-auto-flow:column;grid-template-rows:repeat(var(--rows),auto);gap:.25em 2em}
.kvg-bytes{font-size:1.5em;font-weight:600;line-height:1.3}
.kvg-formula{font:.88em/1.55 ui-monospace,Menlo,Consolas,monospace}.kvg-numbers{min-width:0}.kvg-two{display:grid}.kvg-two>*{grid-area:1/1}.kvg-two>[data-off]{visibility:hidden}.kvg-formula span{white-space:nowrap}.kvg-formula .now{font-weight:700}
.kvg-mark,.kvg-room{color:var(--soft);font-size:.9em;white-space:nowrap}.kvg-mark[data-agree=true]{color:var(--good)}.kvg-mark[data-agree=false]{color:var(--bad);font-weight:700}
.kvg-legend{display:flex;flex-direction:column;gap:.1em;margin:0;padding:0;list-style:none;font-size:.93em;color:var(--soft)}
.kvg-legend li{display:flex;align-items:center;gap:.55em;margin:0}.kvg-legend b{color:var(--ink);min-width:1.6em;text-align:right;font-weight:600}
.kvg-legend .kvg-c{width:1.55em;height:1.35em;margin:0;flex:none}
.kv-large .kvg-ticks{display:none}.kv-large .kvg-legend{line-height:1.25;gap:0}.kv-large .kvg-legend .kvg-c{height:1.1em}.kv-large .kvg-more{height:1.75em}.kv-large .kvg:not([data-narrow]) .kvg-more{margin-top:-.5em}
.kv-large .kvg[data-narrow] .kvg-grid{font-size:max(.8em,14px)}.kv-large .kvg[data-narrow] .kvg-same span{font-size:.78em}
.kv-large .kvg[data-narrow] :is(.kvg-mark,.kvg-room){white-space:normal;height:2.9em}
.kvg-ticks>i{flex:none;display:flex;justify-content:center;align-items:center;gap:4px;width:1.55em;height:1.35em}
.kvg-ticks>i::before,.kvg-ticks>i::after{content:"";width:4px;height:1.25em;border-radius:2px;background:var(--P)}.kvg-ticks>i::after{height:.65em;background:var(--soft)}
`;

const KINDS = {
  P: "prompt, processed", O: "output, processed", C: "reused from the prefix cache", gone: "given back to the pool",
  selected: "selected, not yet processed", known: "prompt, not yet processed", slot: "empty slot of a taken block", future: "not there yet",
};
const TICKS = "Long ticks of the slider are passes, short ones selections.";
const NEVER = { selected: "selected, never processed", known: "prompt, never processed", future: "never used" }; // once the request has ended
const wordsOf = (kind, ended) => (ended && NEVER[kind]) || KINDS[kind];

/** What a stop shows, read off the trace: one record a stop. */
function growthStops(payload) {
  const { trace, request, stops } = payload;
  const sentences = new Map(stops);
  const records = [];
  let measured = null; // bytes of the real tensors, told by the last pass
  for (const { index, event, state } of framesOf(trace)) {
    const mine = state.requests[request];
    if (!mine) continue;
    const own = event && event.request === request;
    const touched = event && event.patch.requests && event.patch.requests[request];
    if (own && ["freed", "preempted", "step_failed", "admitted"].includes(event.kind)) measured = null;
    if (event && event.kind === "computed" && touched) measured = event.data.nbytes ?? null;
    if (!sentences.has(index)) continue;
    const held = mine.block_table.length ? mine.num_computed_tokens : 0;
    records.push({
      sentence: sentences.get(index), what: event ? event.kind : "start", data: event ? event.data : {},
      tokens: mine.token_ids, prompt: mine.num_prompt_tokens, cached: mine.num_cached_tokens,
      computed: mine.num_computed_tokens, held, table: mine.block_table, measured, ended: mine.status === "finished",
    });
  }
  records.forEach((record, i) => { record.kind = tickKind(record); record.before = i ? records[i - 1] : null; });
  return records;
}

function tickKind({ what, data, prompt }) {
  return what === "computed" ? (data.start < prompt ? "P" : "O") : { selected: "S", admitted: "C" }[what] ?? "end";
}

function kindAt(p, s, blockSize) {
  if (p < s.held) return p < s.cached ? "C" : p < s.prompt ? "P" : "O";
  if (s.ended && p < s.computed) return "gone";
  if (p < s.tokens.length) return p < s.prompt ? "known" : "selected";
  return p < s.table.length * blockSize ? "slot" : "future";
}

/** The positions that the ring encloses, in the text or in the cache; none where blocks are given back. */
function changeOf(s) {
  if (s.what === "computed") return { zone: "cells", from: s.data.start, to: s.data.end };
  if (s.what === "selected") return { zone: "text", from: s.data.position, to: s.data.position + 1 };
  if (s.what === "admitted" || s.what === "forked") return { zone: "cells", from: 0, to: s.held };
  return { zone: "none", from: 0, to: 0 };
}

/** In the narrow header tags such as <|end|> lose their signs, and bytes (<0xC3>) are two digits. */
function tokenLabel(text, id) {
  if (text === undefined) return { seen: `id ${id}`, full: `token ${id}` };
  const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
  if (byte) return { seen: byte[1], full: `byte ${byte[1]}`, look: "kvg-byte" };
  const tag = /^<\|(.+)\|>$/.exec(text);
  const seen = (tag ? tag[1] : text.trim()) || text.replace(/\n/g, "↵").replace(/ /g, "␣");
  return { seen, full: `'${text}'`, look: tag ? "kvg-special" : undefined };
}

function growthGrid(payload, stops) {
  const { meta } = payload.trace;
  const size = meta.block_size;
  const longest = Math.max(...stops.map((s) => Math.max(s.tokens.length, s.table.length * size)));
  const ids = stops.reduce((best, s) => (s.tokens.length > best.length ? s.tokens : best), []);
  const headings = ["position", "token"].map((word, i) => h("div", { class: i ? "kvg-t" : "kvg-n" }, word));
  const labels = h("div", { class: "kvg-labels", "aria-hidden": "true" }, ...headings);
  const inner = h("div", { class: "kvg-inner", role: "list", "aria-label": "Positions" }, labels);
  const rows = growthRows(payload.layers, meta.num_layers);
  for (const row of rows) {
    const words = row.same ? [h("span", {}, row.same)] : [h("b", {}, row.kv === "K" ? `layer ${row.layer}` : ""), h("i", {}, row.kv)];
    labels.append(h("div", { class: row.same ? "kvg-same" : "kvg-row", "data-kv": row.kv, "data-only": row.only }, ...words));
  }
  const columns = [], blocks = [];
  for (let p = 0; p < longest; p++) {
    if (p % size === 0) {
      const cols = h("div", { class: "kvg-cols" });
      const label = h("div", { class: "kvg-bl" }, h("span"));
      inner.append(h("div", { class: "kvg-block" }, cols, label));
      blocks.push({ cols, label });
    }
    const token = h("div", { class: "kvg-t" });
    const column = h("div", { class: "kvg-col", role: "listitem", "data-pos": String(p) }, h("div", { class: "kvg-n" }, String(p)), token);
    for (const row of rows) {
      const about = { class: row.same ? "kvg-same" : "kvg-c", "data-layer": row.layer, "data-kv": row.kv, "data-only": row.only };
      column.append(h("div", about));
    }
    blocks.at(-1).cols.append(column);
    columns.push({ column, token, ...tokenLabel(p < ids.length ? meta.vocab?.[ids[p]] : "", ids[p]) });
  }
  const ring = h("div", { class: "kvg-ring", "aria-hidden": "true" });
  inner.append(ring);
  const scroll = scroller({ class: "kvg-scroll", "aria-label": "Positions in the cache." }, inner);
  const more = growthMore(scroll, labels, columns, [ring], blocks);
  return { element: h("div", { class: "kvg-grid" }, more.element, scroll), scroll, inner, labels, columns, blocks, ring, more };
}

/** Two buttons over the grid that say how many columns are out of sight on each side, and scroll there.
 *  A column that would be seen in part is out of sight, and so is a block's name at the left; the end of a
 *  ring goes with its column. `align` puts the scroll, and the end of it, at the start of a column.
 */
function growthMore(scroll, labels, columns, rings, blocks = []) {
  const element = h("div", { class: "kvg-more" });
  const side = () => labels.offsetWidth + 4;
  const start = ({ column }) => column.offsetLeft - side(); // of the scroll that puts it first
  const end = ({ column }) => column.offsetLeft + column.offsetWidth - scroll.clientWidth; // and last
  const hidden = { left: () => columns.filter((c) => start(c) < scroll.scrollLeft - 4), right: () => columns.filter((c) => end(c) > scroll.scrollLeft + 4) };
  const buttons = Object.keys(hidden).map((where) => {
    const button = h("button", { type: "button", "data-do": where });
    button.addEventListener("click", () => {
      const next = where === "right" ? hidden.right()[0] : columns.find((c) => start(c) >= end(hidden.left().at(-1)));
      if (!next) return;
      const behavior = matchMedia("(prefers-reduced-motion:reduce)").matches ? "auto" : "smooth";
      scroll.scrollTo({ left: Math.max(start(next), 0), behavior });
    });
    element.append(button);
    return [where, button];
  });
  function trim() {
    const first = hidden.right()[0], last = hidden.left().at(-1), edge = scroll.scrollLeft + labels.offsetWidth;
    const end = first ? scroll.scrollLeft + scroll.clientWidth - first.column.offsetLeft : -4;
    scroll.style.clipPath = `inset(-4px ${Math.max(end, -4)}px -4px -4px)`;
    const cover = last ? Math.max(last.column.offsetLeft + last.column.offsetWidth - edge, 0) : 0;
    scroll.style.setProperty("--cover", `${cover}px`);
    for (const ring of rings) {
      const isPast = last && ring.offsetLeft + ring.offsetWidth <= edge + cover + 3;
      ring.style.visibility = isPast || (first && ring.offsetLeft >= first.column.offsetLeft - 3) ? "hidden" : "";
    }
    for (const { label } of blocks) {
      const room = label.offsetLeft + label.offsetWidth - scroll.scrollLeft - side() - cover;
      label.firstChild.style.visibility = room < label.firstChild.offsetWidth - 4 ? "hidden" : "";
    }
  }
  function update() {
    trim();
    element.hidden = scroll.scrollWidth <= scroll.clientWidth + 1; // else its room stays, and nothing moves
    for (const [where, button] of buttons) {
      const n = hidden[where]().length;
      const focused = document.activeElement === button;
      button.hidden = n === 0;
      button.textContent = where === "left" ? `◂ ${n} more` : `${n} more ▸`;
      button.title = `${counted(n, "position")} further ${where}: scroll there`;
      button.setAttribute("aria-label", button.title);
      if (focused && button.hidden) element.closest(".kv").focus({ preventScroll: true });
    }
  }
  function align() {
    const inner = labels.parentElement;
    inner.style.paddingRight = "";
    const most = inner.offsetWidth - scroll.clientWidth, from = (x) => columns.find((c) => start(c) >= x - 4);
    if (most > 0 && from(most)) inner.style.paddingRight = `${Math.max(start(from(most)) - most, 0)}px`;
    if (from(scroll.scrollLeft)) scroll.scrollLeft = start(from(scroll.scrollLeft));
  }
  scroll.addEventListener("scroll", update);
  return { element, update, align, hidden };
}

/** Rows to draw; a gap between drawn layers is one line of words. Large type has room for two layers. */
function growthRows(layers, numLayers) {
  const rows = [];
  let next = 0;
  const gap = (from, to, only) => {
    if (from > to) return;
    const which = from === to ? `layer ${from} has` : `layers ${from} to ${to} have`;
    rows.push({ same: `${which} the same shape (not drawn)`, only });
  };
  layers.forEach((layer, i) => {
    const only = i > 1 ? "small" : undefined;
    gap(next, layer - 1, only);
    rows.push({ layer, kv: "K", only }, { layer, kv: "V", only });
    next = layer + 1;
  });
  gap(next, numLayers - 1, layers.length > 2 ? "small" : undefined);
  if (layers.length > 2) gap(layers[1] + 1, numLayers - 1, "large");
  return rows;
}

function growthLedger(payload, stops) {
  const { meta } = payload.trace;
  const [bytes, room] = [h("div", { class: "kvg-bytes", "data-bytes": "" }), h("div", { class: "kvg-room" })];
  const formula = h("div", { class: "kvg-formula", "data-formula": "" });
  const ghost = h("div", { class: "kvg-formula kv-ghost", "aria-hidden": "true" }); // keeps its room
  const mark = h("div", { class: "kvg-mark", "data-agree": "none" });
  const legend = h("ul", { class: "kvg-legend" });
  const rows = ["P", "known", "O", "selected"];
  if (stops.some((s) => s.cached && s.held)) rows.splice(2, 0, "C");
  const end = stops.find((s) => s.ended);
  if (end) rows.push("gone");
  legend.style.setProperty("--rows", String(Math.ceil((rows.length + 1) / 2)));
  const counts = {}, words = {};
  for (const kind of rows) {
    counts[kind] = h("b");
    const atEnd = kind === "gone" ? `given back${sharesOf(end)}` : NEVER[kind];
    words[kind] = [h("span", {}, kind === "gone" ? "given back" : KINDS[kind]), ...(end && atEnd ? [h("span", {}, atEnd)] : [])];
    const both = h("span", { class: "kvg-two" }, ...words[kind]); // the room of the longer one, at every stop
    legend.append(h("li", { "data-kind": kind }, h("span", { class: "kvg-c", "aria-hidden": "true" }), counts[kind], both));
  }
  legend.append(h("li", { class: "kvg-ticks", title: TICKS }, h("i", { "aria-hidden": "true" }), h("b"), "long: pass, short: selection"));
  function writeFormula(element, held) {
    const each = [2, meta.num_layers, 1, meta.num_kv_heads, held, meta.head_dim, meta.bytes_per_value];
    const names = ["", "layer", "request", "KV head", "position", " width", " B"];
    element.replaceChildren("= ");
    each.forEach((n, i) => {
      const words = names[i].trim() === names[i] && names[i] ? counted(n, names[i]) : thousands(n) + names[i];
      element.append(i ? " · " : "", h("span", i === 4 ? { class: "now" } : {}, words));
    });
    return each.reduce((a, b) => a * b, 1);
  }
  writeFormula(ghost, Math.max(...stops.map((s) => s.held)));
  const draw = (s, kinds) => {
    for (const kind of rows) {
      counts[kind].textContent = String(kinds.filter((k) => k === kind).length);
      words[kind].forEach((span, i) => {
        const off = words[kind].length > 1 && Boolean(i) !== s.ended;
        span.toggleAttribute("data-off", off);
        span.ariaHidden = String(off);
      });
    }
    const product = writeFormula(formula, s.held);
    bytes.textContent = counted(s.measured ?? product, "byte");
    const agree = s.measured === null ? "none" : String(s.measured === product);
    mark.dataset.agree = agree;
    mark.textContent = {
      true: "✓ equals nbytes of the stored tensors",
      false: `✗ stored tensors ${thousands(s.measured ?? 0)}, formula ${thousands(product)}`,
      none: s.held ? "the next pass measures the tensors" : "the request holds no keys and no values",
    }[agree];
    const slots = s.table.length * meta.block_size;
    room.textContent = !slots ? "and no block" : `in ${counted(s.table.length, "block")} of ${counted(meta.block_size, "slot")}: ${slots - s.held} of ${slots} slots empty`;
  };
  const numbers = h("div", { class: "kvg-numbers" }, bytes, h("div", { class: "kvg-two" }, ghost, formula), mark, room);
  return { element: h("div", { class: "kvg-ledger" }, legend, numbers), draw };
}

/** What the cells that a request gave back had shown, letter by letter: ": 20 P, 4 O". */
function sharesOf(s) {
  const prompt = Math.min(s.computed, s.prompt);
  const shares = { C: s.cached, P: prompt - s.cached, O: s.computed - prompt };
  const told = Object.entries(shares).filter(([, n]) => n > 0).map(([letter, n]) => `${thousands(n)} ${letter}`);
  return told.length ? `: ${told.join(", ")}` : "";
}

VIEWS.cache_growth = (element, payload, options) => {
  const frame = createFrame(element, {
    view: "cache_growth", title: payload.title, css: GROWTH_CSS,
    hint: "Selecting an output changes the text; processing it changes the cache.",
  });
  const stops = growthStops(payload);
  const size = payload.trace.meta.block_size;
  const grid = growthGrid(payload, stops);
  const ledger = growthLedger(payload, stops);
  const body = h("div", { class: "kvg", "data-layout": "below" }, grid.element, ledger.element);
  frame.body.append(body);
  function drawColumns(s) {
    const kinds = grid.columns.map((_, p) => kindAt(p, s, size));
    grid.columns.forEach((c, p) => {
      const there = p < s.tokens.length, block = s.table[Math.floor(p / size)];
      const seen = `${kinds[p]} ${there} ${block} ${s.ended}`;
      if (c.drawn === seen) return;
      c.drawn = seen;
      c.column.dataset.kind = kinds[p];
      c.token.textContent = there ? c.seen : "";
      if (c.look) c.token.classList.add(c.look);
      const where = block === undefined ? "" : `, block ${block}`;
      const words = `position ${p}${there ? `: ${c.full}` : ""}, ${wordsOf(kinds[p], s.ended)}${where}`;
      c.column.title = words;
      c.column.setAttribute("aria-label", words);
    });
    return kinds;
  }
  function drawBlocks(s) {
    const old = s.table.length ? s.table : s.before?.table ?? [];
    const narrow = grid.columns[0].column.offsetWidth * size < 60; // room for the number alone
    grid.blocks.forEach(({ label }, i) => {
      const id = s.ended ? old[i] : s.table[i];
      label.toggleAttribute("data-back", s.ended);
      label.toggleAttribute("data-changed", s.what === "copied" && id === s.data.dst);
      if (id === undefined) label.removeAttribute("data-block");
      else label.dataset.block = String(id);
      label.firstChild.textContent = id === undefined ? "" : `${narrow ? "" : "block "}${id}${s.ended && !narrow && size > 1 ? " given back" : ""}`;
      label.title = id === undefined ? "" : `logical block ${i} is physical block ${id}`;
    });
  }
  function drawRing(s) {
    const { zone, from, to } = changeOf(s);
    grid.ring.hidden = zone === "none" || to <= from;
    const end = s.ended && grid.columns[s.tokens.length - 1]?.column; // the output that is never processed
    if (end) keepInSight(end.offsetLeft - 3, end.offsetLeft + end.offsetWidth + 3);
    if (grid.ring.hidden) return;
    const left = grid.columns[from].column, right = grid.columns[to - 1].column;
    const cells = [...left.querySelectorAll(".kvg-c")].filter((cell) => cell.offsetParent); // drawn ones
    const token = left.querySelector(".kvg-t");
    const [top, bottom] = zone === "cells" ? [cells[0], cells.at(-1)] : [token, token];
    const x = left.offsetLeft - 3, y = top.offsetTop - 3;
    const width = right.offsetLeft + right.offsetWidth + 2 - x, height = bottom.offsetTop + bottom.offsetHeight + 3 - y;
    Object.assign(grid.ring.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    grid.ring.dataset.zone = zone;
    keepInSight(x, x + width);
  }
  /** Scroll no further than needed, and to the start of a column. */
  function keepInSight(left, right) {
    const { scroll, labels, columns } = grid;
    const side = labels.offsetWidth + 4;
    if (right + 12 > scroll.scrollLeft + scroll.clientWidth) {
      const wanted = right + 12 - scroll.clientWidth;
      const start = columns.find(({ column }) => column.offsetLeft - side >= wanted);
      scroll.scrollLeft = start ? start.column.offsetLeft - side : wanted;
    } else if (left + 3 < scroll.scrollLeft + side && right - left < scroll.clientWidth - side) {
      scroll.scrollLeft = left + 3 - side; // a ring begins 3 pixels before its column
    }
  }
  function draw(i) {
    const s = stops[i];
    ledger.draw(s, drawColumns(s));
    drawBlocks(s);
    drawRing(s);
    if (i === 0) grid.scroll.scrollLeft = 0;
    grid.more.update();
  }

  /** Wide columns where there is room, the ledger beside the grid where both fit. */
  function fit() {
    const emOf = (part) => parseFloat(getComputedStyle(part).fontSize);
    const em = emOf(frame.root), width = frame.body.clientWidth, count = grid.columns.length;
    const gaps = 3 * count + grid.blocks.length * 0.55 * em + grid.labels.offsetWidth + 12;
    const beside = gaps + count * 3.1 * em + 24 * em <= width;
    const free = (beside ? width - 24 * em : width) - gaps;
    body.toggleAttribute("data-wide", width > 72 * em);
    body.toggleAttribute("data-narrow", width < 40 * em);
    body.dataset.layout = beside ? "beside" : "below";
    grid.inner.style.setProperty("--col", `${Math.min(Math.max(Math.floor(free / count), 2.9 * emOf(grid.scroll)), 4.6 * em)}px`);
    grid.more.align();
    drawBlocks(stops[player.stop()]);
    drawRing(stops[player.stop()]);
    grid.more.update();
  }
  const player = createPlayer(frame, { stops, draw, ticks: TICKS, at: options.at?.(stops) ?? 0, onChange: options.onChange });
  const observer = new ResizeObserver(fit);
  observer.observe(frame.root);
  return { ...player, destroy: () => { observer.disconnect(); player.destroy(); } };
};
