// The view "memory budget": one GPU's bytes as a bar of parts, the cache's bytes over the context as a
// curve with the room that is left for it, and every figure with what it stands on.

const BUDGET_CSS = `
.kvy{--W:#0072b2;--K:#e69f00;--T:#cc79a7;--S:#009e73;--O:#56b4e9;display:grid;gap:.5em;--dim:rgb(0 0 0/.22)}
.kvy-fill[data-part=W]{background:var(--W);color:#fff}
.kvy-fill[data-part=K]{background:repeating-linear-gradient(135deg,var(--dim) 0 2px,transparent 2px 7px) var(--K)}
.kvy-fill[data-part=T]{background:radial-gradient(var(--dim) 1.3px,transparent 1.8px) 0 0/6px 6px var(--T)}
.kvy-fill[data-part=S]{background:repeating-linear-gradient(0deg,var(--dim) 0 2px,transparent 2px 6px) var(--S)}
.kvy-fill[data-part=O]{background:repeating-linear-gradient(90deg,var(--dim) 0 1px,transparent 1px 6px) var(--O)}
.kvy-fill[data-part=F]{background:var(--paper);color:var(--ink);box-shadow:inset 0 0 0 1px color-mix(in srgb,var(--ink) 45%,var(--paper))}
.kvy-bar{position:relative;display:flex;height:1.9em;border-radius:4px;overflow:hidden}
.kvy-fill{flex:none;display:flex;align-items:center;justify-content:center;overflow:hidden;color:#000;font-weight:650;line-height:1}
.kvy-end{position:absolute;top:0;bottom:0;border-left:3px solid var(--bad);background:repeating-linear-gradient(45deg,var(--bad) 0 2px,transparent 2px 8px);right:0}
.kvy-parts{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:0 .6em;font-size:.88em;line-height:1.4}
.kvy-part{display:grid;grid-template-columns:1.6em minmax(0,1fr);gap:0 .4em;align-items:center}.kvy-part b{grid-column:1/-1}
.kvy-part>*{min-width:0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kvy-chip{height:1.3em;border-radius:3px;font-size:.92em}
.kvy-letter{position:relative;z-index:1}.kvy-bar[data-missing] .kvy-letter{padding:.1em .35em;border-radius:3px;background:var(--paper);color:var(--ink)}
.kvy-soft{color:var(--soft)}.kvy-part b{font-weight:650}.kvy-part[data-part="!"] b{color:var(--bad)}
.kvy-part[data-part="!"] .kvy-chip{background:var(--bad);color:var(--paper)}
.kvy-cols{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:0 1.4em;height:12.2em}
.kvy-plot{display:grid;grid-template-rows:auto 1fr;min-height:0}
.kvy-caption{display:flex;gap:1em;justify-content:space-between;font-size:.9em;color:var(--soft);white-space:nowrap;overflow:hidden}
.kvy-caption b{color:var(--ink);font-weight:600}
.kvy-box{position:relative;margin:.45em 2em 1.5em 5.1em;border:solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-width:0 0 1px 1px}
.kvy-box svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.kvy-box svg *{vector-effect:non-scaling-stroke;fill:none;stroke-width:2.5px;stroke:var(--K)}
.kvy-box .kvy-area{fill:color-mix(in srgb,var(--K) 24%,transparent);stroke:none}
.kvy-box .kvy-line{stroke:color-mix(in srgb,var(--K) 80%,var(--ink))}
.kvy-box .kvy-over{stroke:var(--bad);stroke-dasharray:3 4}
.kvy-box .kvy-grid{stroke:var(--line);stroke-width:1px}
.kvy-box .kvy-room{stroke:var(--focus);stroke-width:2px;stroke-dasharray:8 4}
.kvy-box .kvy-bend{stroke:var(--soft);stroke-width:1.5px;stroke-dasharray:2 3}
.kvy-box .kvy-full{stroke:var(--bad);stroke-width:2px}
.kvy-box .kvy-here{stroke:var(--ink);stroke-width:1.5px}
.kvy-tag{position:absolute;font-size:.86em;line-height:1.35;white-space:nowrap;color:var(--soft)}
.kvy-tag[data-axis=y]{right:calc(100% + .4em);transform:translateY(50%)}
.kvy-tag[data-axis=x]{top:calc(100% + .15em);transform:translateX(-50%)}
.kvy-tag[data-mark]{padding:0 .3em;border-radius:3px;background:color-mix(in srgb,var(--paper) 82%,transparent)}
.kvy-tag[data-mark=context]{color:var(--ink);font-weight:650}.kvy-tag[data-mark=limit]{color:var(--bad);font-weight:650}
.kvy-tag[data-mark=room]{color:var(--focus);font-weight:600}
.kvy-dot{position:absolute;width:.8em;height:.8em;border-radius:50%;transform:translate(-50%,50%);background:var(--paper);border:3px solid var(--ink)}
.kvy-figures{overflow:auto;min-height:0}
.kv .kvy table{width:100%;table-layout:fixed;border-collapse:collapse;margin:0;border:0;font:inherit;font-size:.86em;line-height:1.42;color:inherit}
.kv .kvy :is(th,td){padding:0 .5em 0 0;border:0;background:none;text-align:left;font-weight:400;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv .kvy tr{background:none}.kv .kvy th{width:19.5%;color:var(--soft)}.kv .kvy td{font-weight:650;width:32.5%}.kv .kvy td+td{width:auto;font-weight:400;color:var(--soft)}
.kvy-list{height:4.1em;margin:0;padding:0;overflow:auto;list-style:none;font-size:.86em;line-height:1.36}
.kvy-list li::before{content:"= ";color:var(--soft);font-weight:650}.kvy-list [data-note]::before{content:"! ";color:var(--bad)}
.kvy-list [data-note]{display:inline;margin-right:1em;color:var(--soft)}
.kv[data-view=editor]:has(.kvy) .kve-controls{display:grid;grid-template-columns:repeat(12,minmax(0,1fr));align-items:end}
.kv[data-view=editor]:has(.kvy) .kve-field{max-width:none;grid-column:span 2}.kv[data-view=editor]:has(.kvy) .kve-field[data-control=model]{grid-column:span 3}.kv[data-view=editor]:has(.kvy) .kve-field[data-kind=text]{grid-template-columns:minmax(0,1fr);gap:.15em;grid-column:span 3}.kv-large:has(.kvy) textarea{font-size:.82em}
.kv .kv[data-view=memory_budget]>.kv-say{margin:.4em 0 .3em;padding:.35em .8em}.kv .kv[data-view=memory_budget]>.kv-say .kv-say-text{min-height:4.35em}
@media(min-width:1600px){.kv .kv[data-view=memory_budget]>.kv-say .kv-say-text{min-height:2.9em}}
.kv-large .kvy{font-size:.86em;gap:.3em}.kv-large .kvy-cols{height:12em}.kv-large .kv[data-view=memory_budget]>.kv-say{font-size:.8em}
@media(max-width:760px){.kvy-parts{grid-template-columns:repeat(3,minmax(0,1fr))}.kv[data-view=editor]:has(.kvy) .kve-field.kve-field{grid-column:span 6}.kvy-cols{grid-template-columns:minmax(0,1fr);height:auto}.kvy-plot{height:13.2em}}
`;

/** The stacked bar. Where the parts need more than the GPU has, its end is marked and the rest hatched. */
function budgetBar({ total, used, missing, missing_text: lacking, parts }) {
  const whole = Math.max(total, used);
  const spoken = parts.map(([, name, , text]) => `${name} ${text}`);
  if (missing) spoken.push(`missing ${lacking}`);
  const bar = h("div", { class: "kvy-bar", role: "img", "aria-label": spoken.join("; "), "data-total": total });
  for (const [letter, name, bytes, text] of parts) {
    const part = h("span", { class: "kvy-fill", "data-part": letter, "data-bytes": bytes, title: `${name}: ${text}` });
    part.style.width = `${(100 * bytes) / whole}%`;
    if (bytes / whole > 0.018) part.append(h("span", { class: "kvy-letter" }, letter));
    bar.append(part);
  }
  if (missing) {
    bar.dataset.missing = missing;
    const end = h("span", { class: "kvy-end", title: `more than the GPU has: ${lacking}` });
    end.style.left = `${(100 * total) / whole}%`;
    bar.append(end);
  }
  return bar;
}

/** Each part's letter, name and bytes; what is missing takes the place of what is free. */
function budgetParts({ missing, missing_text: lacking, parts }) {
  const list = h("div", { class: "kvy-parts" });
  for (const [letter, name, , text] of parts) {
    const lacks = letter === "F" && missing;
    const [sign, said, size] = lacks ? ["!", "✗ missing", lacking] : [letter, name, text];
    const chip = h("span", { class: "kvy-chip kvy-fill", "data-part": sign }, sign);
    list.append(h("div", { class: "kvy-part", "data-part": sign, title: `${said}: ${size}` }, chip, h("span", {}, said), h("b", { "data-size": "" }, size)));
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
  const tag = h("span", { class: "kvy-tag", ...attributes }, words);
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
  for (const [bytes] of curve.ticks) across("kvy-grid", y(bytes));
  const limit = curve.limit ?? Infinity;
  const fits = curve.points.filter(([length]) => length <= limit);
  const over = curve.points.filter(([length]) => length >= limit);
  box.append(budgetDrawing("path", { class: "kvy-area", d: `${path(curve.points)}V100H0Z` }));
  for (const bend of curve.bends) up("kvy-bend", x(bend));
  if (curve.room <= curve.top) across("kvy-room", y(curve.room));
  if (limit < curve.longest) up("kvy-full", x(limit));
  up("kvy-here", x(curve.context), y(curve.nbytes));
  if (fits.length > 1) box.append(budgetDrawing("path", { class: "kvy-line", d: path(fits) }));
  if (over.length > 1) box.append(budgetDrawing("path", { class: "kvy-over", d: path(over) }));
  return box;
}

function budgetCurve(curve) {
  const x = (length) => (100 * length) / curve.longest;
  const y = (bytes) => (86 * bytes) / curve.top; // the rest is for words
  const box = h("div", { class: "kvy-box", role: "img", "aria-label": `${curve.caption}: ${thousands(curve.context)} positions take ${curve.text}; ${curve.end}` });
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
  const dot = h("span", { class: "kvy-dot", "data-length": curve.context, "data-bytes": curve.nbytes });
  dot.style.left = `${x(curve.context)}%`;
  dot.style.bottom = `${y(curve.nbytes)}%`;
  const here = budgetTag(`${thousands(curve.context)}: ${curve.text}`, { "data-mark": "context" }, { x: x(curve.context) });
  const left = x(curve.context) > 55;
  here.style.top = `clamp(0px,calc(${100 - y(curve.nbytes)}% - ${left ? "1.9em" : "-.3em"}),calc(100% - 1.5em))`;
  here.style.transform = left ? "translateX(calc(-100% - .2em))" : "translateX(.7em)";
  box.append(dot, here);
  const caption = h("div", { class: "kvy-caption" }, h("span", {}, curve.caption), h("b", { "data-end": "" }, curve.end));
  return h("div", { class: "kvy-plot" }, caption, box);
}

function budgetFigures(rows) {
  const body = h("tbody");
  for (const [name, value, reason] of rows) {
    const cells = [h("td", { title: value }, value), h("td", { title: reason }, reason)];
    body.append(h("tr", { "data-figure": name }, h("th", { scope: "row" }, name), ...cells));
  }
  return h("div", { class: "kvy-figures", tabindex: "0", role: "region", "aria-label": "Figures" }, h("table", {}, body));
}

/** The sum written out, then what a reader should beware of. */
function budgetList({ formula, notices }) {
  const list = h("ul", { class: "kvy-list", tabindex: "0", "aria-label": "The sum and notes" });
  for (const term of formula) list.append(h("li", { "data-term": "" }, term));
  for (const note of notices) list.append(h("li", { "data-note": "" }, note));
  return list;
}

VIEWS.memory_budget = (element, payload) => {
  const frame = createFrame(element, { view: "memory_budget", title: payload.title, css: BUDGET_CSS });
  const columns = h("div", { class: "kvy-cols" }, budgetCurve(payload.curve), budgetFigures(payload.figures));
  frame.body.append(h("div", { class: "kvy" }, budgetBar(payload.bar), budgetParts(payload.bar), columns, budgetList(payload)));
  frame.root.append(h("div", { class: "kv-say" }, h("div", { class: "kv-say-text", role: "status", "aria-live": "polite", "data-say": "" }, payload.sentence)));
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenter.start();
  return { destroy: presenter.destroy };
};
