// The view "memory budget": one GPU's bytes as a bar of parts, the cache's bytes over the context as a
// curve with the room that is left for it, and every figure with what it stands on.

const BUDGET_CSS = `
.kvb{--W:#0072b2;--K:#e69f00;--T:#cc79a7;--S:#009e73;--O:#56b4e9;display:grid;gap:.5em;--dim:rgb(0 0 0/.22)}
.kvb-fill[data-part=W]{background:var(--W);color:#fff}
.kvb-fill[data-part=K]{background:repeating-linear-gradient(135deg,var(--dim) 0 2px,transparent 2px 7px) var(--K)}
.kvb-fill[data-part=T]{background:radial-gradient(var(--dim) 1.3px,transparent 1.8px) 0 0/6px 6px var(--T)}
.kvb-fill[data-part=S]{background:repeating-linear-gradient(0deg,var(--dim) 0 2px,transparent 2px 6px) var(--S)}
.kvb-fill[data-part=O]{background:repeating-linear-gradient(90deg,var(--dim) 0 1px,transparent 1px 6px) var(--O)}
.kvb-fill[data-part=F]{background:var(--paper);color:var(--ink);box-shadow:inset 0 0 0 1px color-mix(in srgb,var(--ink) 45%,var(--paper))}
.kvb-bar{position:relative;display:flex;height:1.9em;border-radius:4px;overflow:hidden}
.kvb-fill{flex:none;display:flex;align-items:center;justify-content:center;overflow:hidden;color:#000;font-weight:650;line-height:1}
.kvb-end{position:absolute;top:0;bottom:0;border-left:3px solid var(--bad);background:repeating-linear-gradient(45deg,var(--bad) 0 2px,transparent 2px 8px);right:0}
.kvb-parts{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:0 .6em;font-size:.88em;line-height:1.4}
.kvb-part{display:grid;grid-template-columns:1.6em minmax(0,1fr);gap:0 .4em;align-items:center}.kvb-part b{grid-column:1/-1}
.kvb-part>*{min-width:0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kvb-chip{height:1.3em;border-radius:3px;font-size:.92em}
.kvb-letter{position:relative;z-index:1}.kvb-bar[data-missing] .kvb-letter{padding:.1em .35em;border-radius:3px;background:var(--paper);color:var(--ink)}
.kvb-soft{color:var(--soft)}.kvb-part b{font-weight:650}.kvb-part[data-part="!"] b{color:var(--bad)}
.kvb-part[data-part="!"] .kvb-chip{background:var(--bad);color:var(--paper)}
.kvb-cols{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:0 1.4em;height:12.2em}
.kvb-plot{display:grid;grid-template-rows:auto 1fr;min-height:0}
.kvb-caption{display:flex;gap:1em;justify-content:space-between;font-size:.9em;color:var(--soft);white-space:nowrap;overflow:hidden}
.kvb-caption b{color:var(--ink);font-weight:600}
.kvb-box{position:relative;margin:.45em 2em 1.5em 5.1em;border:solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-width:0 0 1px 1px}
.kvb-box svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.kvb-box svg *{vector-effect:non-scaling-stroke;fill:none;stroke-width:2.5px;stroke:var(--K)}
.kvb-box .kvb-area{fill:color-mix(in srgb,var(--K) 24%,transparent);stroke:none}
.kvb-box .kvb-line{stroke:color-mix(in srgb,var(--K) 80%,var(--ink))}
.kvb-box .kvb-over{stroke:var(--bad);stroke-dasharray:3 4}
.kvb-box .kvb-grid{stroke:var(--line);stroke-width:1px}
.kvb-box .kvb-room{stroke:var(--focus);stroke-width:2px;stroke-dasharray:8 4}
.kvb-box .kvb-bend{stroke:var(--soft);stroke-width:1.5px;stroke-dasharray:2 3}
.kvb-box .kvb-full{stroke:var(--bad);stroke-width:2px}
.kvb-box .kvb-here{stroke:var(--ink);stroke-width:1.5px}
.kvb-tag{position:absolute;font-size:.86em;line-height:1.35;white-space:nowrap;color:var(--soft)}
.kvb-tag[data-axis=y]{right:calc(100% + .4em);transform:translateY(50%)}
.kvb-tag[data-axis=x]{top:calc(100% + .15em);transform:translateX(-50%)}
.kvb-tag[data-mark]{padding:0 .3em;border-radius:3px;background:color-mix(in srgb,var(--paper) 82%,transparent)}
.kvb-tag[data-mark=context]{color:var(--ink);font-weight:650}.kvb-tag[data-mark=limit]{color:var(--bad);font-weight:650}
.kvb-tag[data-mark=room]{color:var(--focus);font-weight:600}
.kvb-dot{position:absolute;width:.8em;height:.8em;border-radius:50%;transform:translate(-50%,50%);background:var(--paper);border:3px solid var(--ink)}
.kvb-figures{overflow:auto;min-height:0}
.kv .kvb table{width:100%;table-layout:fixed;border-collapse:collapse;margin:0;border:0;font:inherit;font-size:.86em;line-height:1.42;color:inherit}
.kv .kvb :is(th,td){padding:0 .5em 0 0;border:0;background:none;text-align:left;font-weight:400;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv .kvb tr{background:none}.kv .kvb th{width:19.5%;color:var(--soft)}.kv .kvb td{font-weight:650;width:32.5%}.kv .kvb td+td{width:auto;font-weight:400;color:var(--soft)}
.kvb-list{height:4.1em;margin:0;padding:0;overflow:auto;list-style:none;font-size:.86em;line-height:1.36}
.kvb-list li::before{content:"= ";color:var(--soft);font-weight:650}.kvb-list [data-note]::before{content:"! ";color:var(--bad)}
.kvb-list [data-note]{display:inline;margin-right:1em;color:var(--soft)}
.kv[data-view=editor]:has(.kvb) .kve-controls{display:grid;grid-template-columns:repeat(12,minmax(0,1fr));align-items:end}
.kv[data-view=editor]:has(.kvb) .kve-field{max-width:none;grid-column:span 2}.kv[data-view=editor]:has(.kvb) .kve-field[data-control=model]{grid-column:span 3}.kv[data-view=editor]:has(.kvb) .kve-field[data-kind=text]{grid-template-columns:minmax(0,1fr);gap:.15em;grid-column:span 3}.kv-large:has(.kvb) textarea{font-size:.82em}
.kv .kv[data-view=memory_budget]>.kv-say{margin:.4em 0 .3em;padding:.35em .8em}.kv .kv[data-view=memory_budget]>.kv-say .kv-say-text{min-height:4.35em}
@media(min-width:1600px){.kv .kv[data-view=memory_budget]>.kv-say .kv-say-text{min-height:2.9em}}
.kv-large .kvb{font-size:.79em;gap:.3em}.kv-large .kvb-cols{height:12em}.kv-large .kv[data-view=memory_budget]>.kv-say{font-size:.8em}
@media(max-width:760px){.kvb-parts{grid-template-columns:repeat(3,minmax(0,1fr))}.kv[data-view=editor]:has(.kvb) .kve-field.kve-field{grid-column:span 6}.kvb-cols{grid-template-columns:minmax(0,1fr);height:auto}.kvb-plot{height:13.2em}}
`;

/** The stacked bar. Where the parts need more than the GPU has, its end is marked and the rest hatched. */
function budgetBar({ total, used, missing, missing_text: lacking, parts }) {
  const whole = Math.max(total, used);
  const spoken = parts.map(([, name, , text]) => `${name} ${text}`);
  if (missing) spoken.push(`missing ${lacking}`);
  const bar = h("div", { class: "kvb-bar", role: "img", "aria-label": spoken.join("; "), "data-total": total });
  for (const [letter, name, bytes, text] of parts) {
    const part = h("span", { class: "kvb-fill", "data-part": letter, "data-bytes": bytes, title: `${name}: ${text}` });
    part.style.width = `${(100 * bytes) / whole}%`;
    if (bytes / whole > 0.018) part.append(h("span", { class: "kvb-letter" }, letter));
    bar.append(part);
  }
  if (missing) {
    bar.dataset.missing = missing;
    const end = h("span", { class: "kvb-end", title: `more than the GPU has: ${lacking}` });
    end.style.left = `${(100 * total) / whole}%`;
    bar.append(end);
  }
  return bar;
}

/** Each part's letter, name and bytes; what is missing takes the place of what is free. */
function budgetParts({ missing, missing_text: lacking, parts }) {
  const list = h("div", { class: "kvb-parts" });
  for (const [letter, name, , text] of parts) {
    const lacks = letter === "F" && missing;
    const [sign, said, size] = lacks ? ["!", "✗ missing", lacking] : [letter, name, text];
    const chip = h("span", { class: "kvb-chip kvb-fill", "data-part": sign }, sign);
    list.append(h("div", { class: "kvb-part", "data-part": sign, title: `${said}: ${size}` }, chip, h("span", {}, said), h("b", { "data-size": "" }, size)));
  }
  return list;
}

function budgetDrawing(tag, attributes) {
  const element = document.createElementNS(icon("").firstElementChild.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** A text in the plot at a share of its width and height, both from 0 to 100. */
function budgetTag(words, attributes, { x, y }) {
  const tag = h("span", { class: "kvb-tag", ...attributes }, words);
  if (x !== undefined) tag.style.left = `${x}%`;
  if (y !== undefined) tag.style.bottom = `${y}%`;
  return tag;
}

/** Up to four lengths below the curve. */
function budgetLengths(longest) {
  const quarters = [0, 1, 2, 3, 4].map((n) => Math.round((longest * n) / 4));
  return [...new Set(quarters)];
}

/** The lines of the plot, in a box of 100 by 100 whose y grows downwards. */
function budgetLines(curve, x, y) {
  const box = budgetDrawing("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  const across = (kind, at) => box.append(budgetDrawing("path", { class: kind, d: `M0 ${100 - at}H100` }));
  const up = (kind, at, height = 100) => box.append(budgetDrawing("path", { class: kind, d: `M${at} 100V${100 - height}` }));
  const path = (points) => points.map(([length, bytes], i) => `${i ? "L" : "M"}${x(length)} ${100 - y(bytes)}`).join("");
  for (const [bytes] of curve.ticks) across("kvb-grid", y(bytes));
  const limit = curve.limit ?? Infinity;
  const fits = curve.points.filter(([length]) => length <= limit);
  const over = curve.points.filter(([length]) => length >= limit);
  box.append(budgetDrawing("path", { class: "kvb-area", d: `${path(curve.points)}V100H0Z` }));
  for (const bend of curve.bends) up("kvb-bend", x(bend));
  if (curve.room <= curve.top) across("kvb-room", y(curve.room));
  if (limit < curve.longest) up("kvb-full", x(limit));
  up("kvb-here", x(curve.context), y(curve.nbytes));
  if (fits.length > 1) box.append(budgetDrawing("path", { class: "kvb-line", d: path(fits) }));
  if (over.length > 1) box.append(budgetDrawing("path", { class: "kvb-over", d: path(over) }));
  return box;
}

function budgetCurve(curve) {
  const x = (length) => (100 * length) / curve.longest;
  const y = (bytes) => (86 * bytes) / curve.top; // the rest is for words
  const box = h("div", { class: "kvb-box", role: "img", "aria-label": `${curve.caption}: ${thousands(curve.context)} positions take ${curve.text}; ${curve.end}` });
  box.append(budgetLines(curve, x, y));
  for (const [bytes, text] of curve.ticks) box.append(budgetTag(text, { "data-axis": "y" }, { y: y(bytes) }));
  for (const length of budgetLengths(curve.longest)) box.append(budgetTag(thousands(length), { "data-axis": "x" }, { x: x(length) }));
  for (const bend of curve.bends) {
    const tag = budgetTag(`window full: ${thousands(bend)}`, { "data-mark": "bend" }, { x: x(bend) });
    tag.style.bottom = "0";
    if (x(bend) > 70) tag.style.transform = "translateX(-100%)";
    box.append(tag);
  }
  if (curve.room <= curve.top) {
    const tag = budgetTag(`room ${curve.room_text}`, { "data-mark": "room" }, { y: y(curve.room) });
    const early = curve.limit !== null && x(curve.limit) < 60; // then the curve is far above it at the right
    tag.style[early ? "right" : "left"] = "0";
    box.append(tag);
  }
  if (curve.limit && curve.limit < curve.longest) {
    const at = x(curve.limit), before = at > 27; // left of it and above the room nothing is drawn
    const tag = budgetTag(`✗ after ${thousands(curve.limit)}`, { "data-mark": "limit" }, { x: at, y: before ? y(curve.room) : 0 });
    if (before) tag.style.transform = "translate(-100%,-.15em)";
    if (before || Math.abs(x(curve.context) - at) > 25) box.append(tag);
  }
  const dot = h("span", { class: "kvb-dot", "data-length": curve.context, "data-bytes": curve.nbytes });
  dot.style.left = `${x(curve.context)}%`;
  dot.style.bottom = `${y(curve.nbytes)}%`;
  const here = budgetTag(`${thousands(curve.context)}: ${curve.text}`, { "data-mark": "context" }, { x: x(curve.context) });
  const left = x(curve.context) > 55;
  here.style.top = `clamp(0px,calc(${100 - y(curve.nbytes)}% - ${left ? "1.9em" : "-.3em"}),calc(100% - 1.5em))`;
  here.style.transform = left ? "translateX(calc(-100% - .2em))" : "translateX(.7em)";
  box.append(dot, here);
  const caption = h("div", { class: "kvb-caption" }, h("span", {}, curve.caption), h("b", { "data-end": "" }, curve.end));
  return h("div", { class: "kvb-plot" }, caption, box);
}

function budgetFigures(rows) {
  const body = h("tbody");
  for (const [name, value, reason] of rows) {
    const cells = [h("td", { title: value }, value), h("td", { title: reason }, reason)];
    body.append(h("tr", { "data-figure": name }, h("th", { scope: "row" }, name), ...cells));
  }
  return h("div", { class: "kvb-figures", tabindex: "0", role: "region", "aria-label": "Figures" }, h("table", {}, body));
}

/** The sum written out, then what a reader should beware of. */
function budgetList({ formula, notices }) {
  const list = h("ul", { class: "kvb-list", tabindex: "0", "aria-label": "The sum and notes" });
  for (const term of formula) list.append(h("li", { "data-term": "" }, term));
  for (const note of notices) list.append(h("li", { "data-note": "" }, note));
  return list;
}

VIEWS.memory_budget = (element, payload) => {
  const frame = createFrame(element, { view: "memory_budget", title: payload.title, css: BUDGET_CSS });
  const columns = h("div", { class: "kvb-cols" }, budgetCurve(payload.curve), budgetFigures(payload.figures));
  frame.body.append(h("div", { class: "kvb" }, budgetBar(payload.bar), budgetParts(payload.bar), columns, budgetList(payload)));
  frame.root.append(h("div", { class: "kv-say" }, h("div", { class: "kv-say-text", role: "status", "aria-live": "polite", "data-say": "" }, payload.sentence)));
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenter.start();
  return { destroy: presenter.destroy };
};
