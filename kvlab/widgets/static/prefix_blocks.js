// The view "prefix blocks": each prompt's blocks as a chain of identities, what was reused of them, where
// the match ends, and how far K and V of equal tokens differ.

const PREFIX_CSS = `
.kvx{container-type:inline-size;font-size:.97em;--R:#009e73;--E:#e69f00;--edge:color-mix(in srgb,var(--ink) 42%,var(--paper))}
.kvx-scroll{overflow-x:auto;scroll-padding:0 1em 0 9em;overflow-y:hidden;scrollbar-width:thin;height:calc(var(--room)*(var(--high) + .5em) + 1em);border-radius:6px;--high:5.7em}
.kvx-rows{display:grid;grid-template-columns:max-content max-content repeat(var(--most),max-content);gap:.5em 0;width:max-content;padding:3px}
.kvx-row{display:contents}
.kvx-who{position:sticky;left:0;z-index:3;display:grid;grid-template-columns:auto auto;gap:0 .5em;align-content:center;min-width:7.9em;max-width:11em;height:var(--high);padding:0 .6em 0 .1em;background:var(--paper);line-height:1.35}
.kvx-chip{grid-row:span 3;align-self:center;width:1.7em;height:1.7em;border-radius:5px;text-align:center;line-height:1.7;font-weight:700;background:var(--chip);color:#000}
.kvx-who b{font-weight:650}.kvx-who span{font-size:.88em;color:var(--soft);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.kvx-who .kvx-chip{color:#000;font-size:1em}
.kvx-card{position:relative;height:var(--high);margin-left:1.4em;padding:.1em .5em .15em;border:1px solid var(--edge);border-radius:7px;background:var(--paper);display:grid;align-content:space-between;line-height:1.42;cursor:default}
.kvx-card::before{content:"→";position:absolute;right:100%;top:1.7em;width:1.4em;text-align:center;font-size:1em;color:var(--soft);line-height:1.45}
.kvx-root{margin-left:0;align-content:center;border-style:double;border-width:3px}.kvx-root::before{content:none}
.kvx-id{display:flex;align-items:center;gap:.45em;white-space:nowrap}
.kvx-id b{font-weight:650}.kvx-id span{color:var(--soft)}.kvx-id code{font:.92em ui-monospace,Menlo,Consolas,monospace;background:none;color:inherit;padding:0 .15em;border-bottom:2px solid transparent}
.kvx [data-changed] code{border-bottom-color:var(--focus);font-weight:700}
.kvx-sign{flex:none;margin-left:auto;min-width:1.45em;height:1.45em;padding:0 .2em;border:1px solid var(--edge);border-radius:4px;text-align:center;line-height:1.35;font-size:.84em;font-weight:700;font-style:normal}
.kvx-text{white-space:pre;font-size:1.04em}
.kvx-t{padding:0;border:solid color-mix(in srgb,var(--ink) 26%,transparent);border-width:0 0 1.5px;margin-right:2px;unicode-bidi:isolate}
.kvx-t[data-mark]{font-style:italic;color:var(--soft)}
.kvx-t[data-difference]{border:2px solid var(--bad);border-radius:4px;font-weight:700;padding:0 .12em}
.kvx-note{font-size:.86em;line-height:1.3;min-height:2.6em;color:var(--soft);white-space:nowrap}.kvx-note span{display:block}.kvx-note b{color:var(--ink);font-weight:600}
[data-kind=reused]:is(.kvx-card,.kvx-sign){background:color-mix(in srgb,var(--R) 24%,var(--paper));border-color:var(--R)}
[data-kind="other identity"]:is(.kvx-card,.kvx-sign){background:repeating-linear-gradient(135deg,color-mix(in srgb,var(--E) 30%,var(--paper)) 0 4px,color-mix(in srgb,var(--E) 9%,var(--paper)) 4px 9px);border-color:var(--E)}
[data-kind=last]:is(.kvx-card,.kvx-sign){background:radial-gradient(color-mix(in srgb,var(--R) 45%,var(--paper)) 1px,transparent 1.4px) 0 0/8px 8px,var(--paper);border-color:var(--R)}
[data-kind="partly filled"]:is(.kvx-card,.kvx-sign){border-style:dashed;background:none}
.kvx-card[data-chain]{box-shadow:0 0 0 2px var(--focus)}.kvx-card[data-chain]::before{color:var(--focus);font-weight:700}
.kvx-card[data-twin]{box-shadow:0 0 0 2px var(--paper),0 0 0 4px var(--ink)}
.kvx-legend{display:flex;flex-wrap:wrap;gap:.1em 1.1em;margin-top:.25em;min-height:1.6em;font-size:.88em;color:var(--soft)}
.kvx-legend>span{display:flex;align-items:center;gap:.4em;white-space:nowrap}.kvx-legend .kvx-sign{margin:0;color:var(--ink)}.kvx-legend .kvx-t{color:var(--ink)}
.kvx-none{grid-column:1/-1;height:var(--high);display:grid;align-items:center;padding-left:.4em;color:var(--soft)}
.kv .kv[data-view=prefix_blocks]>.kv-say{margin:.35em 0 .1em;padding:.4em .8em}
.kv .kv[data-view=prefix_blocks]>.kv-say{container-type:inline-size}.kv .kv[data-view=prefix_blocks]>.kv-say .kv-say-text{height:5.8em;overflow-y:auto}
@container (min-width:72em){.kv .kv[data-view=prefix_blocks]>.kv-say .kv-say-text{height:4.4em}}
@container (max-width:54em){.kv .kv[data-view=prefix_blocks]>.kv-say .kv-say-text{height:8.7em}}
.kv[data-view=editor]:has(.kvx) .kve-controls{display:grid;grid-template-columns:repeat(12,minmax(0,1fr));gap:.3em 1.2em}
.kv[data-view=editor]:has(.kvx) .kve-field{max-width:none;gap:0 .7em;grid-column:span 3;grid-template-columns:4.6em minmax(0,1fr);align-items:center}
.kv[data-view=editor]:has(.kvx) .kve-field:is([data-control^=prompt],[data-control=presets]){grid-column:span 9}
.kv[data-view=editor]:has(.kvx) .kve-field[data-control^=salt]{grid-template-columns:2.2em minmax(0,1fr)}
.kv[data-view=editor]:has(.kvx) .kve-field[data-control=block_size]{grid-template-columns:6.9em minmax(0,1fr)}
.kv[data-view=editor]:has(.kvx) .kve-lines{min-height:0;grid-template-columns:repeat(3,max-content auto);gap:0 .7em;margin-bottom:.4em}
@container (max-width:80em){.kvx-scroll{font-size:.94em}.kvx-card{margin-left:1.1em;padding:.1em .35em .15em}.kvx-card::before{width:1.1em}.kvx-root{margin-left:0}.kvx-root .kvx-id{display:block;line-height:1.5}.kvx-root .kvx-id code{display:block;padding:0}.kvx-root .kvx-note{display:none}.kvx-who{padding-right:.4em}}
@container (max-width:62em){.kvx-scroll{font-size:.88em}.kvx-who{width:6.6em;min-width:0}.kvx-who b{white-space:nowrap}.kvx-who b+span{white-space:normal;line-height:1.15}}
.kv-large .kvx{font-size:.74em}.kv-large .kvx-scroll{--high:5em}.kv-large .kvx-note{min-height:0}.kv-large .kvx-note span{display:inline}.kv-large [data-kind="partly filled"] .kvx-note span+span::before{content:"· "}.kv-large .kvx-legend{display:none}.kv-large:has(.kvx) :is(.kve-lines,textarea),.kv-large[data-view=prefix_blocks]>.kv-say{font-size:.8em}
`;

const PREFIX_SIGNS = [
  ["reused", "R", "reused"], ["computed", "C", "computed"],
  ["other identity", "≠", "same tokens, other identity"],
  ["last", "L", "cached, yet computed"], ["partly filled", "P", "partly filled"],
];
const PREFIX_CHIPS = ["#e69f00", "#56b4e9", "#cc79a7"];
const prefixBefore = new WeakMap(); // by place: identities drawn last, and how far it was scrolled

function prefixSign(kind) {
  const [, letter, words] = PREFIX_SIGNS.find(([name]) => name === kind);
  return h("i", { class: "kvx-sign", "data-kind": kind, title: words, "aria-hidden": "true" }, letter);
}

/** One token; signs that cannot be seen get one that can, and special tokens stand in italics. */
function prefixToken(text, position, difference) {
  const mark = /^<\|(.+)\|>$/.exec(text);
  const seen = /^\s+$/.test(text) ? text.replace(/ /g, "␣") : text;
  const shown = mark ? mark[1] : seen.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  const token = h("span", { class: "kvx-t", "data-position": position, "data-mark": mark ? "" : null, title: `position ${position}` }, shown);
  token.toggleAttribute("data-difference", position === difference);
  return token;
}

/** What stands below the tokens: the physical block, and the block with the same tokens. */
function prefixNote({ kind, block_id: id, like, differences, tokens }, size) {
  const where = h("span", {}, `physical ${id}`), note = h("div", { class: "kvx-note" }, where);
  if (kind === "partly filled") {
    where.append(" ");
    note.append(h("span", {}, `${tokens.length} of ${size} slots`));
  }
  if (!like) return note;
  where.append(` · ${kind === "other identity" ? "≠" : "="} ${like[0]} h${like[1]}: `);
  note.append(h("span", {}, "ΔK ", h("b", {}, differences[0]), " ΔV ", h("b", {}, differences[1])));
  return note;
}

function prefixCard(row, block, size) {
  const first = (block.number - 1) * size;
  const identity = block.identity ? [h("b", {}, `h${block.number}`), h("code", {}, block.identity)] : [h("span", {}, "no identity")];
  const tokens = block.tokens.map((text, i) => prefixToken(text, first + i, row.difference));
  const data = { "data-kind": block.kind, "data-number": block.number, "data-block": block.block_id, "data-identity": block.identity ?? "" };
  return h("div", { class: "kvx-card", role: "listitem", tabindex: "-1", "aria-label": block.say, ...data },
    h("div", { class: "kvx-id" }, ...identity, prefixSign(block.kind)), h("div", { class: "kvx-text" }, ...tokens), prefixNote(block, size));
}

const prefixTokens = (row) => (row.tokens === 1 ? "token" : "tokens");

/** A long text's first and last signs: two that differ at the end do not look alike. */
function prefixEnds(text) {
  const signs = [...text];
  return signs.length <= 11 ? text : [...signs.slice(0, 5), "…", ...signs.slice(-5)].join("");
}

function prefixWho(row, index) {
  const chip = h("span", { class: "kvx-chip" }, row.name);
  chip.style.setProperty("--chip", PREFIX_CHIPS[index % PREFIX_CHIPS.length]);
  const who = h("div", { class: "kvx-who" }, chip, h("b", { "data-cached": row.cached }, `${row.cached} of ${row.tokens}`), h("span", {}, `${prefixTokens(row)} reused`));
  if (row.salt) who.append(h("span", { title: row.salt, "data-salt": row.salt }, `salt: ${prefixEnds(row.salt)}`));
  return who;
}

/** A prompt's row: name, root, chain. */
function prefixRow(payload, row, index) {
  const root = h("div", { class: "kvx-card kvx-root", role: "listitem", tabindex: "-1", "aria-label": payload.root_say, "data-root": payload.root },
    h("div", { class: "kvx-id" }, h("b", {}, "h0"), h("code", {}, payload.root)), h("div", { class: "kvx-note" }, "the configuration"));
  const cards = row.blocks.map((block) => prefixCard(row, block, payload.block_size));
  const element = h("div", { class: "kvx-row", role: "list", "aria-label": `Prompt ${row.name}: ${row.cached} of ${row.tokens} ${prefixTokens(row)} reused`, "data-row": row.name }, prefixWho(row, index), root, ...cards);
  [...element.children].forEach((cell, i) => { cell.style.gridArea = `${index + 1} / ${i + 1}`; });
  return { element, cells: [root, ...cards] };
}

function prefixLegend() {
  const signs = PREFIX_SIGNS.map(([kind, , words]) => h("span", {}, prefixSign(kind), words));
  const differs = h("span", {}, h("span", { class: "kvx-t", "data-difference": "" }, "word"), "first difference");
  const changed = h("span", { class: "kvx-id", "data-changed": "" }, h("code", {}, "4b7e"), "new since the last edit");
  return h("div", { class: "kvx-legend" }, ...signs, differs, changed);
}

/** Marks identities that were others before the last edit, and stays where the reader had scrolled to. */
function prefixCompare(place, rows, scroll) {
  const before = prefixBefore.get(place);
  const seen = new Map();
  for (const { element, cells } of rows) {
    for (const card of cells.filter((c) => c.dataset.identity)) {
      const key = `${element.dataset.row} ${card.dataset.number}`;
      seen.set(key, card.dataset.identity);
      card.toggleAttribute("data-changed", Boolean(before) && before.seen.get(key) !== card.dataset.identity);
    }
  }
  const now = { seen, left: before?.left ?? 0 };
  prefixBefore.set(place, now);
  scroll.scrollLeft = now.left;
  scroll.addEventListener("scroll", () => { now.left = scroll.scrollLeft; });
}

/** Pointer, focus and keys: one cell at a time is told, its chain and its twin are marked. Cell 0 is the root. */
function prefixReader(payload, rows, say, toggleLarge) {
  const all = rows.flatMap(({ cells }) => cells);
  let focused = null;
  function tell(at) {
    for (const cell of all) for (const name of ["data-chain", "data-twin"]) cell.removeAttribute(name);
    if (!at) {
      say.textContent = payload.sentence;
      return;
    }
    const [r, i] = at, block = payload.rows[r].blocks[i - 1];
    say.textContent = block?.say ?? payload.root_say;
    const chain = block && !block.identity ? [] : rows[r].cells.slice(0, i + 1);
    for (const cell of chain) cell.toggleAttribute("data-chain", true);
    if (!block?.like) return;
    const [name, number] = block.like;
    rows[payload.rows.findIndex((row) => row.name === name)].cells[number].toggleAttribute("data-twin", true);
  }
  function focusOn(r, i) {
    const { cells } = rows[Math.min(Math.max(r, 0), rows.length - 1)];
    cells[Math.min(Math.max(i, 0), cells.length - 1)].focus();
  }
  rows.forEach(({ cells }, r) => cells.forEach((cell, i) => {
    cell.addEventListener("pointerenter", () => tell([r, i]));
    cell.addEventListener("pointerleave", () => tell(focused));
    cell.addEventListener("focus", () => {
      for (const other of all) other.tabIndex = other === cell ? 0 : -1;
      focused = [r, i];
      tell(focused);
    });
    cell.addEventListener("blur", () => { focused = null; tell(null); });
  }));
  all[0].tabIndex = 0;
  return (event) => {
    if (isCommand(event) || !focused) return;
    const [r, i] = focused;
    const moves = {
      ArrowRight: () => focusOn(r, i + 1), ArrowLeft: () => focusOn(r, i - 1), ArrowDown: () => focusOn(r + 1, i), ArrowUp: () => focusOn(r - 1, i),
      Home: () => focusOn(r, 0), End: () => focusOn(r, Infinity), p: toggleLarge, P: toggleLarge,
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    moves[event.key]();
  };
}

VIEWS.prefix_blocks = (element, payload) => {
  const frame = createFrame(element, { view: "prefix_blocks", title: payload.title, css: PREFIX_CSS });
  const rows = payload.rows.map((row, index) => prefixRow(payload, row, index));
  const grid = h("div", { class: "kvx-rows" }, ...rows.map((row) => row.element));
  if (rows.length < payload.room) {
    const none = h("div", { class: "kvx-none" }, "The empty prompt is left out.");
    none.style.gridRow = String(rows.length + 1);
    grid.append(none);
  }
  grid.style.setProperty("--most", String(Math.max(...payload.rows.map((row) => row.blocks.length))));
  const scroll = h("div", { class: "kvx-scroll" }, grid);
  scroll.style.setProperty("--room", String(payload.room));
  frame.body.append(h("div", { class: "kvx" }, scroll, prefixLegend()));
  const say = h("div", { class: "kv-say-text", tabindex: "0", role: "status", "aria-live": "polite", "data-say": "" }, payload.sentence);
  frame.root.append(h("div", { class: "kv-say" }, say));
  frame.root.setAttribute("aria-description", "Arrow keys walk over the blocks, P switches to large type.");
  const presenter = presenterSwitch(frame.root, frame.heading);
  grid.addEventListener("keydown", prefixReader(payload, rows, say, presenter.toggle));
  prefixCompare(element, rows, scroll);
  presenter.start();
  return { destroy: presenter.destroy };
};
