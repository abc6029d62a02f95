// The view "attention read": which keys one query reads, with what weights. Columns are keys; under
// each KV head stand the query heads that read it. Columns, byte tokens and the "n more" buttons are
// those of cache_growth.js.

const READ_CSS = `
.kvr{--W:#cc79a7;--X:#d55e00}
.kvr-choose{display:flex;flex-wrap:wrap;gap:.35em 1.8em;align-items:center;min-height:2em}
.kvr-pick{display:flex;align-items:center;gap:.25em}.kvr-pick>span{color:var(--soft);margin-right:.3em}
.kv .kvr-pick button{width:auto;min-width:2em;height:1.85em;padding:0 .5em}
.kv .kvr-pick button[aria-pressed=true]{background:var(--focus);color:var(--paper);font-weight:650}
.kvr-pick select{font:inherit;height:1.85em;color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:6px}
.kvr-mask{min-width:9.6em;font-weight:650;white-space:nowrap;color:var(--good)}.kvr-mask[data-open=true]{color:var(--bad)}
.kvr-share{color:var(--soft);margin-left:auto}
.kvr .kvg-labels{width:var(--side);padding-right:.45em;box-shadow:0 3px 0 var(--paper)}.kvr .kvg-more{padding-left:calc(var(--side) + 4px)}
.kvr-cols{display:flex;gap:3px}
.kvr .kvg-n,.kvr .kvg-t{font-size:.86em}
.kvr-l{display:flex;align-items:center;gap:.4em;height:1.6em;margin-top:.14em;padding-left:1.05em;position:relative;white-space:nowrap}
.kvr-l[data-kv]{margin-top:.5em;padding-left:0;color:var(--ink);font-weight:600}
.kvr-l>b{flex:1;font-weight:400}.kvr-l[data-kv]>b{font-weight:600}.kvr-l>i{width:2.5em;font-style:normal;text-align:right;color:var(--ink)}
.kvr-l[data-head]::before{content:"";position:absolute;left:.35em;top:-.2em;bottom:50%;width:.5em;border:solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-width:0 0 1.5px 1.5px}
.kvr-l[data-head]:not([data-first])::before{top:-1.1em}
.kvr-heads>i[data-number=hidden]{width:4em;margin-left:-1em}.kvr[data-whole] :is([data-number=hidden],[data-entry=unseen]){display:none}.kvr-l>i[data-number=hidden]{width:2.8em;font-size:.93em;font-weight:600}
.kvr .kvr-heads{display:flex;align-items:center;gap:.4em}.kvr-heads>span{flex:1}.kvr-heads>i{width:2.9em;font-style:normal;text-align:right}
.kvr-c{height:1.6em;margin-top:.14em;border-radius:4px;display:grid;place-items:center;border:1px dashed transparent;font-size:1em;line-height:1;overflow:hidden}
.kvr-c>span{font-size:.86em}.kvr-c[data-kv]{margin-top:.5em}
.kvr-c[data-kv]>span{font-weight:600;font-size:.8em}
[data-read=P]>.kvr-c[data-kv]{background:var(--P);color:#fff}[data-read=O]>.kvr-c[data-kv]{background:var(--O);color:#000}
[data-read=later]>.kvr-c[data-kv],[data-read=future]>.kvr-c[data-kv]{border-color:color-mix(in srgb,var(--ink) 50%,var(--paper))}
[data-read=future]>.kvr-c[data-kv]{border-color:var(--line)}
[data-read=later]>.kvg-t{opacity:.8}
[data-read=slot]>.kvr-c[data-kv]{border:1px dotted color-mix(in srgb,var(--ink) 60%,var(--paper))}
[data-read^=pad]>.kvr-c[data-kv],.kvr-key[data-read=pad]{border:1px solid var(--line);background:repeating-linear-gradient(135deg,transparent 0 3px,color-mix(in srgb,var(--ink) 20%,transparent) 3px 6px)}
[data-read^=pad]>.kvr-c[data-kv]>span{padding:0 .2em;border-radius:3px;background:var(--paper)}
[data-read^=pad]>.kvg-t{font-style:italic;color:var(--soft)}
.kvr-c[data-head]{border-style:solid;border-color:transparent;color:var(--ink)}
[data-read=P]>.kvr-c[data-head],[data-read=O]>.kvr-c[data-head],[data-read^=pad]>.kvr-c[data-head]{border-color:color-mix(in srgb,var(--ink) 12%,var(--paper));background:color-mix(in srgb,var(--W) var(--w,0%),var(--paper))}
[data-read=padopen]>.kvr-c[data-head]{--W:var(--X)}
[data-read=pad]>.kvr-c[data-head]{color:var(--soft)}
.kvr-c[data-nan]{color:var(--bad);font-style:italic}.kvr-c[data-strong]{color:#000}.kvr-c[data-top]>span{font-weight:750}
/* Rows of heads that were not chosen: pale fills and plain type; their text stays legible. */
.kvr-l[data-dim],.kvr-l[data-dim]>i{color:color-mix(in srgb,var(--ink) 68%,var(--paper));font-weight:400}.kvr-l[data-dim]>b{font-weight:400}
.kvr-c[data-dim]:not([data-nan]){color:var(--soft)}.kvr-c[data-dim]>span{font-weight:400}
[data-read]>.kvr-c[data-head][data-dim]{background:color-mix(in srgb,var(--W) calc(var(--w,0%)*.35),var(--paper))}
:is([data-read=P],[data-read=O])>.kvr-c[data-kv][data-dim]{--k:var(--P);border:1px solid var(--k);background:color-mix(in srgb,var(--k) 25%,var(--paper));color:var(--ink)}
[data-read=O]>.kvr-c[data-kv][data-dim]{--k:var(--O)}[data-read=later]>.kvr-c[data-kv][data-dim]{border-color:var(--line)}
.kvr-l[data-other],.kvr-c[data-other]{height:1em}.kvr-l[data-other]{padding-left:0}.kvr-l[data-other]>b{font-size:.9em}
.kvr-c[data-fill=token]{background:color-mix(in srgb,var(--ink) 38%,var(--paper))}.kvr-c[data-fill=none]{border-color:var(--line)}
.kvr-c[data-fill=pad]{border:1px solid var(--line);background:repeating-linear-gradient(135deg,transparent 0 3px,color-mix(in srgb,var(--ink) 20%,transparent) 3px 6px)}
.kvr-own>.kvg-t{font-weight:700;color:var(--ink)}
.kvr-row{position:absolute;z-index:1;border:2px solid var(--focus);border-radius:6px;pointer-events:none}
.kvr-legend{display:flex;flex-wrap:wrap;gap:.15em 1.3em;margin:.35em 0 0;padding:0;list-style:none;font-size:.9em;color:var(--soft)}
.kvr-legend li{display:flex;align-items:center;gap:.4em;margin:0}
.kvr-key{width:2.5em;height:1.35em;line-height:1;white-space:nowrap;border-radius:3px;display:grid;place-items:center;border:1px dashed transparent;font-size:.9em;font-weight:600;flex:none}
.kvr-key[data-read=P]{background:var(--P);color:#fff}.kvr-key[data-read=O]{background:var(--O);color:#000}
.kvr-key[data-read=other]{background:color-mix(in srgb,var(--ink) 38%,var(--paper))}.kvr-key[data-read=own]{border:2.5px solid var(--ink)}.kvr-key[data-read=later]{border-color:color-mix(in srgb,var(--ink) 50%,var(--paper))}
.kvr-key[data-read=slot]{border:1px dotted color-mix(in srgb,var(--ink) 60%,var(--paper))}
.kvr-key[data-read=weight]{width:4em;background:linear-gradient(90deg,var(--paper),var(--W));border:1px solid var(--line);color:var(--ink)}
.kvr-key[data-read=leak]{background:color-mix(in srgb,var(--X) 60%,var(--paper));color:var(--ink)}
.kvr .kv-tick[data-kind=X]{background:var(--bad)}.kv-tick[data-kind=X]{background:var(--bad);height:.8em}
.kvr-page{height:1.5em;color:var(--soft);font-size:.9em}
/* On a phone: short names, explained in the legend, and no sums; the text line tells those. */
.kvr-short,.kvr[data-narrow] :is(.kvr-full,[data-number=sum]){display:none}.kvr[data-narrow] .kvr-short{display:inline}
.kvr:not([data-narrow]) [data-entry=short]{display:none}.kvr-key[data-read=short]{width:auto;color:var(--ink)}
.kvr[data-narrow] :is(.kvr-l,.kvr-heads){gap:.35em}.kvr[data-narrow] .kvr-l[data-head]{padding-left:.95em}
.kvr[data-narrow] .kvr-l>i{width:2.3em}.kvr[data-narrow] .kvr-l>i[data-number=hidden]{width:3.3em}
.kvr[data-narrow] .kvr-heads>i{width:2.7em}.kvr[data-narrow] .kvr-heads>i[data-number=hidden]{width:3.6em;margin-left:0}
.kv-large .kvr[data-narrow] .kvg-grid{font-size:max(.8em,14px)}.kv-large .kvr[data-narrow] .kvr-c>span{font-size:.8em}
.kv-large .kvr-legend{gap:0 1em;margin-top:.1em;font-size:.82em;line-height:1.25}.kv-large .kvr-c>span{font-size:.9em}
.kv-large .kvr-l,.kv-large .kvr-c{height:1.45em}.kv-large .kvr-l[data-other],.kv-large .kvr-c[data-other]{height:1em}
.kv-large .kvr[data-many] :is(.kvr-l,.kvr-c){height:1.22em;margin-top:.1em}.kv-large .kvr[data-many] [data-kv]:is(.kvr-l,.kvr-c){margin-top:.3em}
.kv-large .kvr-mask:not([hidden])~.kvr-share{display:none}
.kv-large .kvr-choose{min-height:1.9em}.kv-large .kvr .kvg-more{margin-top:0}
`;

const MOST_OTHERS = 3; // rows of other requests
const MOST_ROWS = 12; // KV heads and head rows that are drawn at once
const READ_KINDS = {
  P: "key of the prompt", O: "key of a processed output", pad: "padding, masked", padopen: "padding, read as if it were text",
  later: "not there yet: later than the query", slot: "empty slot, not read", future: "not there yet: later than the query",
};

// ---- the picture

/** What a column is at a stop. */
function readKind(payload, s, p) {
  const [position, id] = payload.columns[p];
  if (position === null && id === null) return p <= s.own && s.open ? "padopen" : "pad";
  if (p <= s.own) return p < payload.prompt ? "P" : "O";
  if (p < s.known) return "later";
  return p < s.slots ? "slot" : "future";
}

/** Groups of heads in pages of a few rows: [[{ kv, heads }]]. */
function readPages([query, kv]) {
  const group = query / kv, pages = [[]];
  let rows = 0;
  for (let k = 0; k < kv; k++) {
    for (let from = k * group; from < (k + 1) * group; from += MOST_ROWS - 2) {
      const heads = [];
      for (let h = from; h < Math.min(from + MOST_ROWS - 2, (k + 1) * group); h++) heads.push(h);
      if (rows && rows + 1 + heads.length > MOST_ROWS) { pages.push([]); rows = 0; }
      pages.at(-1).push({ kv: k, heads });
      rows += 1 + heads.length;
    }
  }
  return pages;
}

/** A name as it stands where there is room, and on a phone. */
const twoWords = (full, short) => [h("span", { class: "kvr-full" }, full), h("span", { class: "kvr-short", title: full }, short)];

function readGrid(payload) {
  const padded = payload.columns.some(([position]) => position === null);
  const numbers = { hidden: ["unseen"], ...(padded ? { pad: twoWords("to pad", "pad") } : {}), sum: ["sum"] };
  const headings = h("div", { class: "kvg-t kvr-heads" }, h("span", {}, "token"), ...Object.entries(numbers).map(([name, words]) => h("i", { "data-number": name }, ...words)));
  const labels = h("div", { class: "kvg-labels", "aria-hidden": "true" }, h("div", { class: "kvg-n" }, "position"), headings);
  const cols = h("div", { class: "kvr-cols", role: "list", "aria-label": "Keys" });
  const inner = h("div", { class: "kvg-inner" }, labels, cols);
  const columns = payload.columns.map(([position, id, text], p) => {
    const pad = position === null;
    const empty = !pad && id === null;
    const label = pad ? { seen: "pad", full: "padding" } : empty ? { seen: "", full: "" } : tokenLabel(text ?? undefined, id);
    const token = h("div", { class: `kvg-t ${label.look ?? ""}` });
    const column = h("div", { class: "kvg-col", role: "listitem", "data-pos": String(p) }, h("div", { class: "kvg-n" }, pad ? "–" : String(position)), token);
    cols.append(column);
    return { column, token, ...label, name: pad ? `slot ${p}` : `position ${position}`, cells: [] };
  });
  const ring = h("div", { class: "kvg-ring", "aria-hidden": "true" });
  const row = h("div", { class: "kvr-row", "aria-hidden": "true" });
  inner.append(ring, row);
  const scroll = scroller({ class: "kvg-scroll", "aria-label": "Keys and the weights on them." }, inner);
  const more = growthMore(scroll, labels, columns, [ring, row]);
  const element = h("div", { class: "kvg-grid" }, more.element, scroll);
  return { element, scroll, inner, labels, cols, columns, ring, row, more, padded, numbers: Object.keys(numbers), lines: [] };
}

/** The rows of one page: a label and a cell in each column. Over them, of a padded batch, its other rows. */
function buildRows(grid, page, { lengths = [], row }) {
  for (const { label } of grid.lines) label.remove();
  for (const c of grid.columns) for (const cell of c.cells.splice(0)) cell.remove();
  const others = lengths.map((length, other) => ({ other, length })).filter(({ other }) => other !== row);
  const groups = page.flatMap(({ kv, heads }) => [{ kv }, ...heads.map((head, i) => ({ head, kv, first: i === 0 }))]);
  grid.lines = [...others.slice(0, MOST_OTHERS), ...groups];
  for (const line of grid.lines) {
    const isHead = line.head !== undefined;
    line.numbers = (isHead ? grid.numbers : []).map((name) => h("i", { "data-number": name }));
    const isOther = line.other !== undefined;
    const about = isHead ? { "data-head": line.head, "data-first": line.first ? "" : null } : isOther ? { "data-other": line.other } : { "data-kv": line.kv };
    const [name, short, n] = isHead ? ["query head", "q", line.head] : isOther ? ["request", "req.", line.other] : ["KV head", "KV", line.kv];
    line.label = h("div", { class: "kvr-l", ...about }, h("b", {}, ...twoWords(`${name} ${n}`, `${short} ${n}`)), ...line.numbers);
    grid.labels.append(line.label);
    for (const c of grid.columns) {
      const cell = h("div", { class: "kvr-c", ...about }, h("span"));
      c.cells.push(cell);
      c.column.append(cell);
    }
  }
}

/** A slot in the row of another request: its tokens, then padding, then what it processed later. */
function drawOther(cell, { other, length }, payload, s, p) {
  const widest = Math.max(...payload.lengths);
  cell.dataset.fill = p > s.own && p >= widest ? "none" : p < length || p >= widest ? "token" : "pad";
  cell.title = `request ${other}, slot ${p}: ${{ none: "not there yet", token: "a token of its own", pad: "padding" }[cell.dataset.fill]}`;
}

function drawCell(cell, line, kind, weight, isTop) {
  const text = cell.firstChild;
  if (line.head === undefined) {
    text.textContent = { P: "K V", O: "K V", pad: "pad", padopen: "pad" }[kind] ?? "";
    return;
  }
  const mix = !weight ? 0 : Math.round(Math.sqrt(weight)); // 10,000 is 100 %; small ones stay in sight
  cell.style.setProperty("--w", `${mix}%`);
  cell.toggleAttribute("data-strong", mix >= 75);
  cell.toggleAttribute("data-top", isTop);
  cell.toggleAttribute("data-nan", weight === null);
  const shown = weight === null || (weight !== undefined && (isTop || weight >= 50 || kind.startsWith("pad")));
  text.textContent = !shown ? "" : kind === "pad" && weight === 0 ? "0" : decimal(weight);
}

function readLegend(payload) {
  const { stops, columns } = payload;
  const seen = new Set(stops.flatMap((s) => columns.map((_, p) => readKind(payload, s, p))));
  const rows = [["P", "K V", "prompt"]];
  if (seen.has("O")) rows.push(["O", "K V", "output, processed"]);
  rows.push(["weight", "0 … 1", "weight"], ["own", "", "the query's own token"]);
  if (seen.has("later") || seen.has("future")) rows.push(["later", "", "not there yet: later than the query"]);
  if (seen.has("slot")) rows.push(["slot", "", "empty slot, not read"]);
  if (payload.lengths) rows.push(["other", "", "another request's token"]);
  if (seen.has("pad")) rows.push(["pad", "", "padding"], ["leak", "", "weight on padding"]);
  rows.push(["unseen", "◂ ▸", "unseen: weight on keys out of sight"], ["short", "KV, q", "KV head, query head"]);
  return h("ul", { class: "kvr-legend" }, ...rows.map(([kind, text, words]) =>
    h("li", { "data-entry": kind }, h("span", { class: "kvr-key", "data-read": kind, "aria-hidden": "true" }, text), words)));
}

/** Buttons for a few choices, a list for many. Returns { element, show }. */
function readChooser(name, title, options, onPick) {
  const element = h("div", { class: "kvr-pick", role: "group", "aria-label": name, "data-pick": name, title }, h("span", {}, name));
  if (options.length > 9) {
    const select = h("select", { "aria-label": name }, ...options.map(([, word], i) => h("option", { value: String(i) }, word)));
    select.addEventListener("change", () => onPick(options[Number(select.value)][0]));
    select.addEventListener("keydown", (event) => event.key.startsWith("Arrow") && event.stopPropagation());
    element.append(select);
    return { element, show: (value) => { select.value = String(options.findIndex(([v]) => v === value)); } };
  }
  const buttons = options.map(([value, word]) => {
    const button = h("button", { type: "button", "data-value": String(value), "aria-label": `${name} ${word}` }, word);
    button.addEventListener("click", () => onPick(value));
    element.append(button);
    return [value, button];
  });
  return { element, show: (value) => { for (const [v, button] of buttons) button.setAttribute("aria-pressed", String(v === value)); } };
}

VIEWS.attention_read = (element, payload, options) => {
  const frame = createFrame(element, {
    view: "attention_read", title: payload.title, css: GROWTH_CSS + READ_CSS,
    hint: "One query, its own and all earlier keys. ↑ ↓ head, L layer.",
  });
  const choice = { layer: payload.layer, head: payload.head };
  const { stops, layers, heads, columns } = payload;
  const pages = readPages(heads);
  const pageOf = (head) => Math.max(pages.findIndex((page) => page.some((group) => group.heads.includes(head))), 0);
  const grid = readGrid(payload);
  const layerPick = readChooser("Layer", "L: next layer, Shift+L: the one before", layers.map((n) => [n, String(n)]), (layer) => pick({ layer }));
  const headOptions = [[null, "all"], ...Array.from({ length: heads[0] }, (_, i) => [i, String(i)])];
  const headPick = readChooser("Query head", "Up and down arrow", headOptions, (head) => pick({ head }));
  const note = h("div", { class: "kvr-page" });
  note.hidden = pages.length === 1;
  const mask = h("span", { class: "kvr-mask" });
  mask.hidden = !grid.padded;
  const chooser = h("div", { class: "kvr-choose" }, layerPick.element, headPick.element, mask, h("span", { class: "kvr-share" }, `${attentionName(heads)}: ${counted(heads[0], "head")}, ${counted(heads[1], "KV head")}`));
  const body = h("div", { class: "kvr" }, chooser, grid.element, note, readLegend(payload));
  frame.body.append(body);
  let page = -1;
  let player = null;

  function drawRows(s) {
    if (page !== pageOf(choice.head)) {
      page = pageOf(choice.head);
      buildRows(grid, pages[page], payload);
      const drawn = grid.lines.filter(({ head }) => head !== undefined);
      body.toggleAttribute("data-many", grid.lines.length > 9);
      note.textContent = `Query heads ${drawn[0].head} to ${drawn.at(-1).head} of ${heads[0]} are drawn; choose another to see its rows.`;
    }
    const rows = s.weights[choice.layer], group = heads[0] / heads[1];
    const mine = choice.head === null ? null : Math.floor(choice.head / group);
    const kinds = columns.map((_, p) => readKind(payload, s, p));
    grid.lines.forEach((line, r) => {
      const weights = line.head === undefined ? null : rows[line.head];
      const top = weights && !weights.includes(null) ? topTwo(weights)[0] : null;
      const dim = mine !== null && (weights ? line.head !== choice.head : line.kv !== mine && line.other === undefined);
      line.label.toggleAttribute("data-dim", dim);
      grid.columns.forEach((c, p) => {
        c.cells[r].toggleAttribute("data-dim", dim);
        if (line.other !== undefined) drawOther(c.cells[r], line, payload, s, p);
        else drawCell(c.cells[r], line, kinds[p], weights?.[p], p === top);
      });
      const tell = { hidden: () => "", sum: () => decimal(total(weights)), pad: () => decimal(leakOf(columns, s, weights)) };
      for (const number of line.numbers) number.textContent = tell[number.dataset.number]();
    });
    return kinds;
  }
  function drawColumns(s, kinds) {
    const shown = choice.head === null ? null : s.weights[choice.layer][choice.head];
    grid.columns.forEach((c, p) => {
      const known = p < s.known || kinds[p].startsWith("pad");
      c.column.dataset.read = kinds[p];
      c.column.classList.toggle("kvr-own", p === s.own);
      c.token.textContent = known ? c.seen : "";
      const weight = shown && shown[p] !== undefined ? `, weight ${shown[p] === null ? "NaN" : (shown[p] / 10000).toFixed(4)}` : "";
      const words = `${c.name}${known && c.full ? `: ${c.full}` : ""}, ${p === s.own ? "the query's own key" : READ_KINDS[kinds[p]]}${weight}`;
      c.column.title = words;
      c.column.setAttribute("aria-label", words);
    });
  }
  /** Beside each row: how much of its weight lies on columns that are scrolled out of sight. */
  function drawHidden() {
    const { hidden } = grid.more, sides = [new Set(hidden.left()), new Set(hidden.right())];
    for (const line of grid.lines.filter(({ head }) => head !== undefined)) {
      const weights = stops[player.stop()].weights[choice.layer][line.head];
      const [left, right] = sides.map((side) => total(weights.filter((_, p) => side.has(grid.columns[p]))));
      const number = line.numbers[0];
      const both = total([left, right]), isLeft = right !== null && (left === null || left >= right);
      number.textContent = both !== null && both < 50 ? "" : `${isLeft ? "◂" : ""}${decimal(both)}${isLeft ? "" : "▸"}`;
      number.title = number.textContent && "weight on keys that are scrolled out of sight";
    }
  }
  function place(box, left, top, right, bottom) {
    Object.assign(box.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
  }
  /** A ring round the query's own column, a frame round the row of the chosen head. */
  function drawRings(s) {
    const own = grid.columns[s.own].column, last = grid.columns[s.own].cells.at(-1);
    const end = last.offsetTop + last.offsetHeight, x = own.offsetLeft - 3;
    place(grid.ring, x, own.offsetTop, x + own.offsetWidth + 5, end + 2);
    const r = grid.lines.findIndex(({ head }) => head !== undefined && head === choice.head);
    grid.row.hidden = r < 0;
    if (r < 0) return;
    const cell = grid.columns[0].cells[r], far = grid.columns[s.own].column;
    place(grid.row, grid.columns[0].column.offsetLeft - 3, cell.offsetTop - 2, far.offsetLeft + far.offsetWidth + 3, cell.offsetTop + cell.offsetHeight + 2);
  }
  function keepInSight(s) {
    const { scroll, labels } = grid, { column } = grid.columns[s.own];
    if (!scroll.clientWidth) return; // not on a page yet: `fit` comes back
    const side = labels.offsetWidth + 4, right = column.offsetLeft + column.offsetWidth + 3;
    const from = scroll.scrollLeft;
    if (column.offsetLeft >= from + side && right <= from + scroll.clientWidth) return;
    // at the right edge: what it reads lies before it
    const first = grid.columns.find((c) => c.column.offsetLeft - side >= right - scroll.clientWidth);
    scroll.scrollLeft = (first?.column ?? column).offsetLeft - side;
  }
  function draw(i) {
    const s = stops[i];
    drawColumns(s, drawRows(s));
    layerPick.show(choice.layer);
    headPick.show(choice.head);
    mask.dataset.open = String(s.open);
    mask.textContent = s.open ? "✗ mask taken away" : "✓ padding masked";
    frame.root.dataset.layer = String(choice.layer);
    frame.root.dataset.head = String(choice.head);
    drawRings(s);
    keepInSight(s);
    grid.more.update();
    if (player) drawHidden();
  }
  function pick(change) {
    Object.assign(choice, change);
    draw(player.stop());
    tell();
  }
  function tell() {
    frame.root.querySelector("[data-say]").textContent = told[player.stop()].sentence;
  }
  const step = (list, now, by) => list[Math.min(Math.max(list.indexOf(now) + by, 0), list.length - 1)];
  const turn = (by) => pick({ layer: layers[(layers.indexOf(choice.layer) + by + layers.length) % layers.length] });
  const headList = headOptions.map(([value]) => value);
  const keys = {
    ArrowUp: () => pick({ head: step(headList, choice.head, -1) }), ArrowDown: () => pick({ head: step(headList, choice.head, 1) }),
    l: () => turn(1), L: () => turn(-1), "]": () => turn(1), "[": () => turn(-1),
  };
  frame.root.addEventListener("keydown", (event) => {
    if (isCommand(event) || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  // The player keeps room for the longest sentences that it is given: at first those of any choice.
  const any = layers.flatMap((layer) => headList.map((head) => ({ layer, head })));
  const longest = stops.map((s) => any.map((c) => readSentence(payload, s, c)).reduce((a, b) => (b.length > a.length ? b : a)));
  let settled = false;
  const told = stops.map((s, i) => ({ kind: s.tick, get sentence() { return settled ? readSentence(payload, s, choice) : longest[i]; } }));
  player = createPlayer(frame, { stops: told, draw, at: options.at?.(stops) ?? 0, onChange: options.onChange });
  settled = true;
  tell();
  frame.root.querySelectorAll(".kv-tick").forEach((tick, i) => { tick.title = stops[i].intro; });
  frame.root.setAttribute("aria-description", `${frame.root.getAttribute("aria-description")} Up and down choose a query head, L the next layer.`);

  const emOf = (element) => parseFloat(getComputedStyle(element).fontSize);
  /** Wide columns where there is room; else as many as fit whole, on a phone at least four. */
  function fit() {
    const n = columns.length, wide = frame.body.clientWidth, isNarrow = wide < 32 * emOf(frame.root);
    body.toggleAttribute("data-narrow", isNarrow);
    const em = emOf(grid.scroll), room = isNarrow ? [9.1, 6.6] : [13.6, 11];
    const side = room[grid.padded ? 0 : 1] + (isNarrow ? 0.65 * (String(heads[0] - 1).length - 1) : 0); // of the labels
    const isWhole = side * em + n * (2.9 * em + 3) + 16 <= wide;
    body.toggleAttribute("data-whole", isWhole);
    body.style.setProperty("--side", `${isWhole || isNarrow ? side : side + 3.2}em`);
    const free = grid.scroll.clientWidth - grid.labels.offsetWidth - 4;
    const fitting = isNarrow ? Math.max(Math.floor(free / (2.6 * em + 3)), 4) : Math.floor(free / (2.9 * em + 3));
    const col = isWhole ? Math.min((free - 8) / n - 3, 4.6 * em) : Math.max(free / fitting - 3, 2 * em);
    grid.inner.style.setProperty("--col", `${Math.floor(col)}px`);
    grid.more.align();
    drawRings(stops[player.stop()]);
    keepInSight(stops[player.stop()]);
    grid.more.update();
    drawHidden();
  }
  grid.scroll.addEventListener("scroll", drawHidden);
  const observer = new ResizeObserver(fit);
  for (const part of [frame.root, grid.labels]) observer.observe(part); // the type of a frame has steps
  return { ...player, destroy: () => { observer.disconnect(); player.destroy(); } };
};
