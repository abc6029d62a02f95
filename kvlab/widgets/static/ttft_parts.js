// The view "TTFT taken apart": one bar a boundary on a common axis, and below it what each of them adds up (section 21.2).

const TTFT_CSS = `
.kvt{display:grid;grid-template-columns:minmax(0,1fr);gap:.9em;container:kvt/inline-size}.kvt-scroll{overflow-x:auto;overflow-y:hidden;scrollbar-width:thin}
.kvt-T{--c:#56b4e9;--t:#000}.kvt-I{--c:#cc79a7;--t:#000}.kvt-Q{--c:#f0e442;--t:#000}.kvt-P{--c:#0072b2;--t:#fff}
.kvt-S{--c:#e69f00;--t:#000}.kvt-D{--c:#009e73;--t:#000}.kvt-B{--c:#56b4e9;--t:#000}
.kvt-bars{position:relative;display:grid;grid-template-columns:5em minmax(0,1fr) 7.6em;gap:.4em .9em;align-items:center}
.kvt-name{font-weight:600}.kvt-total{text-align:right;font-size:1.3em;font-weight:700;white-space:nowrap;grid-column:3}
.kvt-total small{font-size:.7em;font-weight:500}
.kvt-scale{position:relative;height:1.3em;color:var(--soft);font-size:.9em;grid-column:2}
.kvt-scale span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.kvt-row{position:relative;height:2.5em;background:repeating-linear-gradient(90deg,var(--line) 0 2px,transparent 2px 8px) 0 50%/100% 1px no-repeat}
.kvt-bar{position:absolute;inset:0 auto 0 0;border-inline:3px solid var(--ink);box-sizing:content-box;margin-left:-3px;background:var(--paper)}
.kvt-piece{position:absolute;top:0;bottom:0;min-width:2px;background-color:var(--c);color:var(--t);display:grid;place-items:center;overflow:hidden;
 white-space:nowrap;font-weight:650;box-shadow:inset -1px 0 0 var(--paper);container-type:inline-size}
@container (max-width:8em){.kvt-piece i{display:none}}@container (max-width:12em){.kvt-piece i[data-long]{display:none}}.kvt-piece i{font-style:normal}
@container (max-width:1.35em){.kvt-piece>span{display:none}}@container (max-width:2.6em){.kvt-piece>[data-letters="2"]{display:none}}
@container (max-width:3.9em){.kvt-piece>:is([data-letters="3"],[data-letters="4"]){display:none}}
.kvt-rest{background-image:repeating-linear-gradient(135deg,rgb(0 0 0/.3) 0 2px,transparent 2px 7px)}
.kvt-rest span{background:var(--c);padding:0 .2em;border-radius:3px}
.kvt .kvt-row[data-far] .kvt-piece,.kvt .kvt-piece[data-far]{background-color:var(--pale);color:var(--ink)}.kvt [data-far] .kvt-bar{border-color:var(--soft)}
.kvt-row[data-far] .kvt-rest span,.kvt-rest[data-far] span{background:var(--pale)}.kvt-piece{--pale:color-mix(in srgb,var(--c) 32%,var(--paper))}
.kvt :is(.kvt-name,.kvt-total)[data-far]{color:var(--soft);font-weight:400}
.kvt-piece[data-near]{outline:3px solid var(--ink);outline-offset:-1px;z-index:2}
.kv .kvt table{width:100%;table-layout:fixed;border-collapse:collapse;margin:0;border:0;font:inherit;color:inherit}
.kv .kvt :is(th,td){padding:.22em .35em;border:0;background:none;text-align:right;font-weight:400;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}
.kv .kvt tr{background:none;border:0}.kv .kvt tbody tr{border-top:1px solid var(--line)}
.kv .kvt tbody th,.kv .kvt thead th:first-child{text-align:left;font-weight:600}.kv .kvt thead th{color:var(--soft);font-size:.9em}
.kv .kvt td:last-child{font-weight:700}.kv .kvt .kvt-sum{border-left:1px solid var(--line)}
.kv .kvt tbody tr.kvt-equation{border-top:2px solid var(--ink)}
.kv .kvt [data-near]:is(th,td){background:color-mix(in srgb,var(--focus) 16%,var(--paper));color:var(--ink)}
.kv .kvt .kvt-over :is(th,td){padding-block:0}.kv .kvt thead .kvt-over th{text-align:center;color:var(--ink);border-bottom:2px solid var(--ink)}
.kvt-chip{display:inline-block;min-width:1.5em;padding:0 .3em;border-radius:3px;background-color:var(--c);color:var(--t);text-align:center;font-weight:650;line-height:1.35}
.kvt-chip+span{display:block;overflow:hidden;text-overflow:ellipsis}
.kv-large .kvt{font-size:.88em}
@container kvt (max-width:80em){.kv .kvt table{width:max-content;min-width:100%;table-layout:auto}}
@container kvt (max-width:46em){
 .kvt-bars{grid-template-columns:3.6em minmax(0,1fr) 5.4em}
 .kv .kvt table{font-size:.88em}
 .kv .kvt tr>:first-child:not([colspan]){position:sticky;left:0;z-index:1}.kv .kvt tr>:first-child:not([colspan],[data-near]){background:var(--paper)}
}
@container kvt (max-width:34em){ /* a boundary's name and total over its bar, fewer marks on the axis */
 .kvt-bars{grid-template-columns:minmax(0,1fr) auto;grid-auto-flow:dense;row-gap:.1em}
 .kvt-total:has(small){grid-area:1/1/auto/-1}.kvt-scale{grid-area:2/1/auto/-1}.kvt-row{grid-column:1/-1;margin:0 3px .5em}
 .kvt-total{grid-column:2}.kvt-name{grid-column:1}.kvt-scale{margin:0 3px}
 .kvt-scale span:nth-child(even){display:none}.kvt-scale span:first-child{transform:none}.kvt-scale [data-end]{transform:translateX(-100%)}
}
`;

/** A part's colour: that of its first term, else of its first letter; hatched where equation 21.4 has no term for it. */
function ttftClass({ letter, term }) {
  const shown = [..."QPSD"].find((one) => letter.includes(one)) ?? letter[0];
  return `kvt-${shown}${term ? "" : " kvt-rest"}`;
}

/** Round marks, about six of them. */
function ttftTicks(length) {
  const rough = length / 6 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  return Array.from({ length: Math.floor(length / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(9)));
}

/** A part's name, with its letter where that is not the name's first one. */
const ttftName = ({ name, letter }) => (name.includes("+") || letter.toLowerCase() === name[0] ? name : `${name} (${letter})`);

function ttftBars({ parts, rows, unit, length }) {
  const bars = h("div", { class: "kvt-bars", "aria-hidden": "true" }), found = [];
  const percent = (at) => `${(100 * at) / (length || 1)}%`;
  const scale = h("div", { class: "kvt-scale" });
  for (const at of ttftTicks(length)) {
    const label = h("span", {}, `${String(at).replace(/^\d+/, (whole) => thousands(whole))} ${at === 1 && unit === "steps" ? "step" : unit}`);
    label.style.left = percent(at);
    label.toggleAttribute("data-end", at > 0.92 * length);
    scale.append(label);
  }
  bars.append(scale, h("span", { class: "kvt-total" }, h("small", {}, `TTFT, ${unit}`)));
  for (const { boundary, first, last, text } of rows) {
    const from = parts[first].begin, to = parts[last].end;
    const bar = h("div", { class: "kvt-bar" }), pieces = [];
    bar.style.left = percent(from);
    bar.style.width = percent(to - from);
    for (let i = first; i <= last; i++) {
      const { begin, end, letter, name, text: duration } = parts[i], share = (end - begin) / (length || 1);
      const whole = share > 0.16 ? [h("i", { "data-long": name.length > 11 ? "" : null }, ` ${name}`)] : [];
      const piece = h("div", { class: `kvt-piece ${ttftClass(parts[i])}`, "data-part": i, title: `${name}: ${duration} ${unit}` }, h("span", { "data-letters": letter.length }, letter, ...whole));
      piece.style.left = `${(100 * (begin - from)) / (to - from || 1)}%`;
      piece.style.width = `${(100 * (end - begin)) / (to - from || 1)}%`;
      bar.append(piece);
      pieces.push([i, piece]);
    }
    const name = h("span", { class: "kvt-name" }, boundary), row = h("div", { class: "kvt-row", "data-boundary": boundary }, bar);
    const total = h("span", { class: "kvt-total", "data-total": boundary }, text);
    bars.append(name, row, total);
    found.push({ all: [name, row, total], pieces });
  }
  return { bars, found };
}

/** The same as numbers: a column a part, a row a boundary; an empty cell is outside. */
function ttftTable({ parts, rows, unit, equation }) {
  const terms = parts.filter(({ term }) => term).length, before = parts.findIndex(({ term }) => term);
  const over = h("tr", { class: "kvt-over" }, h("td", { colspan: 1 + before }), h("th", { colspan: terms, scope: "colgroup" }, "equation 21.4"), h("td", { colspan: parts.length - before - terms }), h("td", { class: "kvt-sum", colspan: 2 }));
  if (before + terms === parts.length) over.cells[2].remove();
  const head = h("tr", {}, h("th", { scope: "col" }, unit));
  for (const part of parts) {
    head.append(h("th", { scope: "col", title: part.name }, h("span", { class: `kvt-chip ${ttftClass(part)}` }, part.letter), h("span", {}, ttftName(part))));
  }
  head.append(h("th", { scope: "col", class: "kvt-sum", title: "what equation 21.4 has no term for (hatched)" }, "remainder"), h("th", { scope: "col" }, "TTFT"));
  const body = h("tbody");
  const cellsOf = ({ first, last }) => parts.map((part, i) => h("td", { "data-part": i }, first <= i && i <= last ? part.text : "–"));
  for (const row of rows) {
    const { boundary, text, remainder } = row, cells = cellsOf(row);
    body.append(h("tr", { "data-boundary": boundary }, h("th", { scope: "row" }, boundary), ...cells, h("td", { class: "kvt-sum" }, remainder), h("td", {}, text)));
  }
  if (equation) body.append(h("tr", { class: "kvt-equation", title: "the sum of equation 21.4's terms, until delivery" }, h("th", { scope: "row" }, "eq 21.4"), ...cellsOf(equation), h("td", { class: "kvt-sum" }, "–"), h("td", {}, equation.text)));
  return h("table", {}, h("thead", {}, over, head), body);
}

VIEWS.ttft_parts = (element, payload, options) => {
  const { parts, rows, said } = payload;
  const hint = [payload.about, "hatched: no term of equation 21.4"].filter(Boolean).join(" · ");
  const frame = createFrame(element, { view: "ttft_parts", title: payload.title, hint, css: TTFT_CSS });
  const { bars, found } = ttftBars(payload), table = ttftTable(payload);
  frame.body.append(h("div", { class: "kvt" }, bars, scroller({ class: "kvt-scroll", "aria-label": "The same in numbers." }, table)));
  const lines = [...table.tBodies[0].rows], heads = [...table.tHead.rows[1].cells];
  const mark = (node, name, on) => node.toggleAttribute(name, on);

  /** Stop 0 shows all, then one stop a boundary, then one a part. */
  function draw(stop) {
    const boundary = stop >= 1 && stop <= rows.length ? stop - 1 : null, part = stop > rows.length ? stop - 1 - rows.length : null;
    found.forEach(({ all, pieces }, r) => {
      for (const node of all) mark(node, "data-far", boundary !== null && boundary !== r);
      for (const [i, piece] of pieces) {
        mark(piece, "data-near", i === part);
        mark(piece, "data-far", part !== null && i !== part);
      }
      for (const cell of lines[r].cells) mark(cell, "data-near", boundary === r || (part !== null && cell.cellIndex === part + 1));
    });
    for (const cell of table.querySelectorAll(".kvt-equation td")) mark(cell, "data-near", part !== null && cell.cellIndex === part + 1);
    heads.forEach((head, i) => mark(head, "data-near", part !== null && i === part + 1));
  }
  const kinds = said.map((_, i) => (i === 0 ? "C" : i <= rows.length ? "P" : "S"));
  const stops = said.map((sentence, i) => ({ kind: kinds[i], sentence }));
  const ticks = "Green: all together; blue: one boundary; grey: one part.";
  const player = createPlayer(frame, { stops, draw, ticks, at: options.at?.(stops) ?? 0, onChange: options.onChange });
  bars.addEventListener("click", (event) => {
    const piece = event.target.closest("[data-part]");
    if (piece) player.show(1 + rows.length + Number(piece.dataset.part));
  });
  return player;
};
