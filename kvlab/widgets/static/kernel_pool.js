// The view "watch a kernel", its middle: the tile of positions, the entries of the block table, the pool (section 21.5).

const KERNEL_LINKS = ["#e69f00", "#56b4e9", "#009e73", "#cc79a7"]; // a looked-up block, from tile to pool; black on all of them
const KERNEL_POOL_CSS = `
.kvk-cap{display:flex;gap:.9em;align-items:center;height:1.7em;overflow:hidden;white-space:nowrap;color:var(--soft);font-size:.92em}
.kvk-cap b{font-weight:600;color:var(--ink)}
.kvk-key{display:flex;align-items:center;gap:.35em}
.kvk-key i{flex:none;width:1.3em;height:1em;border-radius:3px;border:1px solid var(--line)}
.kvk-key i[data-on=read]{background:linear-gradient(90deg,#e69f00 0 50%,#56b4e9 50%);border-color:#000}
.kvk-key i[data-on=masked],.kvk-s[data-on=masked]{background:repeating-linear-gradient(135deg,transparent 0 3px,color-mix(in srgb,var(--ink) 42%,transparent) 3px 5px)}
.kvk-key i[data-on=held],.kvk-s[data-on=held]{background:color-mix(in srgb,var(--ink) 15%,var(--paper));border-style:solid}
.kvk-line{display:grid;grid-template-columns:4.6em minmax(0,1fr);align-items:center;column-gap:.6em;margin-top:.25em}
.kvk-line>b{font-weight:500;color:var(--soft);font-size:.92em;text-align:right;line-height:1.15}
.kvk-tile,.kvk-table{display:flex;gap:.34em;height:1.75em;align-items:center;overflow:hidden;white-space:nowrap}
[data-tight].kvk-tile{gap:2px}[data-tight].kvk-table{gap:2px;font-size:.82em}
.kvk-run{display:flex;gap:2px;min-width:0}
.kvk-s{display:grid;place-items:center;width:1.72em;height:1.6em;border-radius:4px;border:1px dashed color-mix(in srgb,var(--ink) 30%,var(--paper));font-size:.86em;line-height:1;font-weight:600;overflow:hidden}
.kvk-s[data-on=tile]{border:1.5px solid var(--l);background:color-mix(in srgb,var(--l) 22%,var(--paper))}
.kvk-s[data-on=read]{border:1px solid #000;background:var(--l);color:#000}
.kvk-s[data-on=masked]{color:transparent}
.kvk-tile .kvk-s[data-on=masked]{border-style:solid;font-weight:400}
.kvk-entry{display:flex;align-items:center;gap:.2em;height:1.6em;padding:0 .34em;border-radius:5px;border:1px solid var(--line);color:var(--soft);font-size:.92em}
.kvk-entry b{font-weight:650;color:var(--ink)}
.kvk-entry[data-on]{background:var(--l);color:#000;border-color:#000}.kvk-entry[data-on] b{color:#000}
.kvk-pool{position:relative;display:flex;flex-wrap:wrap;align-content:flex-start;gap:.28em .4em;height:var(--pool);overflow:auto;scrollbar-width:thin;padding:3px}
.kvk-block{display:flex;align-items:center;gap:.3em;padding:1px 3px;border-radius:6px;border:1.5px solid transparent}
.kvk-block>b{min-width:1.5em;text-align:right;font-weight:500;font-size:.86em;color:var(--soft)}
.kvk-block[data-held]>b{color:var(--ink);font-weight:650}
.kvk-block[data-on]{border-color:var(--ink);background:color-mix(in srgb,var(--l) 26%,var(--paper))}
.kvk-slots{display:grid;grid-template-columns:repeat(var(--cols),auto);gap:2px}
.kvk-pool .kvk-s{width:1.62em;height:1.42em}
.kv-large .kvk-pool{column-gap:.2em}.kv-large .kvk-pool .kvk-s{width:1.5em}
.kvk .kvk-pool[data-dense] .kvk-s{width:.62em;height:.95em;border-radius:2px;font-size:.8em;color:transparent!important}
.kvk-pool[data-dense]{gap:.15em .35em}
`;

/** A cell for one position or slot. */
const kernelCell = (text) => h("i", { class: "kvk-s", style: "font-style:normal" }, text);

/** Logical block of a position -> the colour of its entry, counted from the tile's first one. */
function kernelLinks(turn, size) {
  const logical = [...new Set(turn.positions.map((p) => Math.floor(p / size)))];
  return new Map(logical.map((l, i) => [l, KERNEL_LINKS[i % KERNEL_LINKS.length]]));
}

/** The places of a tile, cut where a logical block ends. kind: the stop's. */
function kernelTile(element, payload, turn, kind) {
  const size = payload.block_size, links = kernelLinks(turn, size);
  const runs = [...links].map(([logical, colour]) => {
    const run = h("span", { class: "kvk-run" });
    run.style.setProperty("--l", colour);
    turn.positions.forEach((position, place) => {
      if (Math.floor(position / size) !== logical) return;
      const cell = kernelCell(String(position));
      cell.dataset.place = String(place);
      cell.dataset.on = turn.keys[place] === null ? "masked" : kind === "lookup" ? "tile" : "read";
      run.append(cell);
    });
    return run;
  });
  element.toggleAttribute("data-tight", runs.length > 6);
  element.replaceChildren(...runs);
}

/** The request's block table; the entries that the turn looks up are lit. Of a long one, those around them. */
function kernelTable(element, payload, program, turn) {
  const table = payload.tables[program.ids[0]], found = new Map(turn?.lookups ?? []);
  const links = turn ? kernelLinks(turn, payload.block_size) : new Map();
  const looked = [...found.keys()], room = 12;
  const from = table.length <= room ? 0 : Math.min(Math.max((looked[0] ?? 0) - 2, 0), table.length - room);
  const to = table.length <= room ? table.length : Math.min(Math.max(from + room, (looked.at(-1) ?? 0) + 1), table.length);
  const entries = table.slice(from, to).map((block, i) => {
    const logical = from + i, entry = h("span", { class: "kvk-entry", "data-entry": logical }, `${logical}→`, h("b", {}, block < 0 ? "freed" : String(block)));
    entry.toggleAttribute("data-on", found.has(logical));
    entry.style.setProperty("--l", links.get(logical) ?? "transparent");
    return entry;
  });
  element.toggleAttribute("data-tight", entries.length > 12);
  element.replaceChildren(...(from ? ["…"] : []), ...entries, ...(to < table.length ? ["…"] : []));
  const last = entries.findLast((entry) => entry.hasAttribute("data-on")), end = last ? last.offsetLeft + last.offsetWidth - element.offsetLeft : 0;
  element.scrollLeft = Math.max(0, end - element.clientWidth); // where there is no room for all, those that are looked up
}

/** The pool: blocks in the order of memory. draw(program, turn, kind): null for nobody. */
function kernelPool(payload) {
  const size = payload.block_size, dense = payload.blocks.length > 24 || size > 8, cols = dense ? Math.min(size, 16) : Math.min(size, 8);
  const element = h("div", { class: "kvk-pool" });
  element.toggleAttribute("data-dense", dense);
  element.style.setProperty("--cols", String(cols));
  const blocks = new Map(), cells = new Map();
  for (const id of payload.blocks) {
    const slots = h("span", { class: "kvk-slots" });
    for (let i = 0; i < size; i++) {
      const cell = kernelCell("");
      cell.dataset.slot = String(id * size + i);
      cells.set(id * size + i, cell);
      slots.append(cell);
    }
    const block = h("span", { class: "kvk-block", "data-block": id }, h("b", {}, String(id)), slots);
    blocks.set(id, block);
    element.append(block);
  }
  const light = (slot, on, text, colour) => {
    const cell = cells.get(slot);
    if (!cell) return;
    cell.dataset.on = on;
    cell.textContent = text;
    if (colour) cell.style.setProperty("--l", colour);
  };
  function hold(table, length) {
    table.forEach((id, logical) => {
      blocks.get(id)?.setAttribute("data-held", "");
      for (let i = 0; i < size && logical * size + i < length; i++) light(id * size + i, "held", "");
    });
  }
  /** Without a program: what all requests hold. */
  function draw(program, turn, kind) {
    for (const cell of cells.values()) {
      cell.textContent = "";
      delete cell.dataset.on;
    }
    for (const block of blocks.values()) for (const name of ["data-on", "data-held"]) block.removeAttribute(name);
    const mine = program ? program.ids[0] : null;
    payload.tables.forEach((table, request) => {
      if (mine === null || mine === request) hold(table, payload.lengths[request]);
    });
    if (!turn) return;
    const table = payload.tables[mine];
    const links = kernelLinks(turn, size), first = [];
    for (const [logical, id] of turn.lookups) {
      const block = blocks.get(id);
      if (!block) continue;
      block.setAttribute("data-on", "");
      block.style.setProperty("--l", links.get(logical));
      first.push(block);
    }
    turn.positions.forEach((position, place) => {
      const logical = Math.floor(position / size), colour = links.get(logical);
      if (turn.keys[place] !== null) {
        if (kind !== "lookup") light(turn.keys[place], "read", String(position), colour);
      } else if (logical < table.length) light(table[logical] * size + (position % size), "masked", "");
      if (turn.values && turn.values[place] !== null) light(turn.values[place], "read", String(position), colour);
    });
    if (!first.length || element.scrollHeight <= element.clientHeight) return;
    const top = Math.min(...first.map((b) => b.offsetTop)), bottom = Math.max(...first.map((b) => b.offsetTop + b.offsetHeight));
    element.scrollTop = bottom - top < element.clientHeight ? (top + bottom - element.clientHeight) / 2 : top - 6;
  }
  return { element, draw };
}

/** The middle of the view. */
function kernelMiddle(payload) {
  const key = (on, words) => h("span", { class: "kvk-key" }, h("i", { "data-on": on }), words);
  const tile = h("div", { class: "kvk-tile" }), table = h("div", { class: "kvk-table" }), pool = kernelPool(payload);
  const others = payload.left_out ? h("span", {}, `${counted(payload.left_out, "block")} not drawn`) : "";
  const line = (name, content) => h("div", { class: "kvk-line" }, h("b", {}, name), content);
  const element = h("section", { class: "kvk-middle" },
    h("div", { class: "kvk-cap" }, h("b", {}, "Tile → block table → pool"), key("read", "read now, by position"), key("masked", "masked"), key("held", "held"), others),
    line("positions", tile), line("table", table), line("pool", pool.element));
  function draw(program, turn, kind) {
    if (turn) kernelTile(tile, payload, turn, kind);
    else tile.replaceChildren();
    if (program) kernelTable(table, payload, program, turn);
    else table.replaceChildren();
    pool.draw(program, turn, kind);
  }
  return { element, draw };
}
