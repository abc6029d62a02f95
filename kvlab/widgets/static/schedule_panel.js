// One run of the schedule timeline: names, rows, delays and two charts, in the size that one screen allows.

const SCHEDULE_CSS = `
.kvs{position:relative;--names:5.6em;--delays:13.2em}
.kvs-line{display:grid;grid-template-columns:var(--names) minmax(0,1fr) var(--delays);align-items:center}
.kvs-axis{height:1.25em;color:var(--soft)}.kvs-axis *{white-space:nowrap}.kvs-axis>*>*{font-size:.86em}
.kvs-scale{position:relative;height:1.45em}.kvs-scale span{position:absolute;top:0;transform:translateX(-50%)}.kvs-scale .kvs-here{z-index:4;padding:0 .2em;background:var(--paper);color:var(--ink);font-weight:650}
.kvs-four{display:grid;grid-template-columns:repeat(4,1fr);padding:0 1.1em 0 .5em;text-align:right}
.kvs-title{display:flex;gap:.9em;align-items:baseline;height:1.55em;white-space:nowrap;overflow:hidden}
.kvs-title>*{position:relative;z-index:4;background:var(--paper)}.kvs-title b{font-weight:650}.kvs-sum{color:var(--soft);overflow:hidden;text-overflow:ellipsis;min-width:0}
.kvs-legend{display:flex;gap:.2em .9em;margin-left:auto;white-space:nowrap;overflow:hidden;font-size:.9em;color:var(--soft)}
.kvs-key{display:inline-flex;gap:.35em;align-items:center}.kvs-key svg{flex:none;width:1.4em;height:1.17em}
.kvs-scroll{overflow:hidden auto;scrollbar-width:thin;border-block:1px solid var(--line)}
.kvs-scroll .kvs-line{align-items:start}
.kvs-name,.kvs-delay{display:flex;align-items:center;white-space:nowrap;overflow:hidden;font-size:.95em;line-height:1}
.kvs-name span{overflow:hidden;text-overflow:ellipsis}.kvs-name{font-weight:600;padding-right:.5em}
.kvs-delay.kvs-four{display:grid;align-content:center;overflow:hidden}
.kvs-soft{color:var(--soft);font-weight:400;font-size:.86em}
.kvs-plot{min-width:0;cursor:crosshair;touch-action:pan-y;user-select:none}
.kvs-count{font-size:.86em;line-height:1.2;color:var(--soft);white-space:nowrap;overflow:hidden}.kvs-count b{color:var(--ink);font-weight:600}
.kvs-count:last-child{padding-left:.9em}
.kvs-cursor{position:absolute;top:0;bottom:0;left:0;pointer-events:none;will-change:transform;border:2px solid var(--focus);border-radius:4px;z-index:3;
 background:color-mix(in srgb,var(--focus) 12%,transparent)}
.kv[data-view=schedule] .kv-say-text,.kv[data-view=schedule] .kv-ghost{white-space:pre-line}
.kv[data-view=schedule]>.kv-say{margin:.6em 0 .5em}
.kv-count[data-room]::after{content:attr(data-room);display:block;height:0;overflow:hidden;visibility:hidden;white-space:pre}
.kv .kvs-b{width:auto;min-width:2.3em;padding:0 .6em;white-space:nowrap}
.kv .kv .kvs-legend{min-height:1.4em;justify-content:flex-end}.kv .kv .kvs-sum{display:none}.kv .kv .kvs-title{height:1.3em}.kv .kv .kvs-count{line-height:1.1}
.kv-large:has(.kvs) .kve-lines>:nth-last-child(-n+2){display:none}
.kv[data-view=editor]:has(.kvs) .kve-controls{align-items:end;gap:.35em .6em}
.kv[data-view=editor]:has(.kvs) .kve-controls>.kve-field{max-width:none;flex:0 1 calc((100% - 1.9em)/4)}
.kv[data-view=editor]:has(.kvs) .kve-controls>.kve-field[data-kind=choice]{flex-basis:calc((100% - 3.1em)*var(--part,.241))}
.kv .kve-field[data-control=arrivals]{--part:.226}.kv .kve-field[data-control=policy]{--part:.135}.kv .kve-field[data-control=compare]{--part:.18}
.kv .kve-field[data-control=admission]{--part:.116}.kv .kve-field[data-control=order]{--part:.102}
.kv[data-view=editor]:has(.kvs) .kve-field select{padding-inline:.3em .1em}.kv:not(.kv-large)[data-view=editor]:has(.kvs) .kve-field select{font-size:.95em}
.kv[data-view=editor]:has(.kvs) .kve-lines{min-height:0;margin-bottom:.3em;gap:0 .9em;font-size:.94em}
.kv .kv[data-view=schedule]{padding-top:.35em}.kv .kv[data-view=schedule]>.kv-say{font-size:.94em;padding-block:.35em}
.kv-large .kvs{--names:5.1em;--delays:12em}.kv-large .kvs-c{stroke-width:1.5}
@media(max-width:760px){
 .kvs{--names:4.9em;--delays:10em}.kvs-four{padding:0 .3em}.kvs-count:first-child{font-size:.78em}
 .kv[data-view=editor]:has(.kvs) .kve-controls>.kve-field[data-kind=choice]{flex-basis:calc((100% - 1.3em)/3)}
}
@media(max-width:600px){.kv[data-view=editor]:has(.kvs) .kve-controls>.kve-field[data-control=arrivals]{grid-column:1/-1!important}}
`;
const SCHEDULE_FULL = 1.9; // em, a row with room

/** A row's text is never higher than the row. */
function scheduleLine(line, rowHeight) {
  line.style.height = `${rowHeight}px`;
  line.style.fontSize = `min(.95em,${(rowHeight * 0.88).toFixed(1)}px)`;
  return line;
}

/** One run: title, rows, two charts. `draw` lays it out anew, `show` tells the counts at a step. */
function schedulePanel(run, { payload, most }) {
  const title = h("div", { class: "kvs-title" }, h("b", {}, run.title), h("span", { class: "kvs-sum", title: run.summary }, run.summary));
  const scroll = h("div", { class: "kvs-scroll", "data-run": run.title });
  const lines = { waiting: h("div", { class: "kvs-line" }), free: h("div", { class: "kvs-line" }) };
  const told = { waiting: h("span", { class: "kvs-count", "data-count": "waiting" }), free: h("span", { class: "kvs-count", "data-count": "free" }) };
  const element = h("section", { class: "kvs-run", "aria-label": `${run.title}: ${run.summary}` }, title, scroll, lines.waiting, lines.free);
  let rowHeight = 0;

  function draw(size) {
    const few = size.em * SCHEDULE_FULL, rows = run.requests.length;
    const fit = Math.min(few, size.budget / rows), crowded = fit < size.em * SCHEDULE_LEAST;
    rowHeight = crowded && size.zoomed ? few : Math.max(fit, 1);
    scroll.dataset.crowded = crowded && !size.zoomed ? "yes" : "no"; // in a frame, smaller type may show the names
    scroll.style.height = `${Math.min(rows * Math.max(fit, 1), size.budget) + 2}px`;
    const named = rowHeight >= size.em * SCHEDULE_LEAST;
    const svg = scheduleRows(run, { ...size, rowHeight });
    const plot = h("div", { class: "kvs-plot" }, svg);
    scroll.replaceChildren(h("div", { class: "kvs-line" }, scheduleNames(run, rowHeight, named), plot, scheduleDelays(run, payload, rowHeight, named)));
    for (const [key, name, kind] of [["waiting", "queue", "kvs-q"], ["free", "free", "kvs-f"]]) {
      const chart = scheduleChart(run, run[key], most[key], kind, { ...size, height: size.band });
      lines[key].replaceChildren(scheduleLabelOf(name, most[key]), h("div", { class: "kvs-plot" }, chart), told[key]);
    }
  }
  function show(step) {
    const i = run.index.get(step), known = i !== undefined;
    told.waiting.replaceChildren(...(known ? [h("b", {}, thousands(run.waiting[i])), " waiting"] : [""]));
    told.free.replaceChildren(...(known ? [h("b", {}, thousands(run.free[i])), ` of ${thousands(run.blocks)}`] : [""]));
    if (known && scroll.scrollHeight > scroll.clientHeight + 1) reveal(step);
  }
  function reveal(step) {
    const works = ({ spans }) => spans.some(([letter, first, count]) => "PDL!".includes(letter) && first <= step && step < first + count);
    const row = run.requests.findIndex(works);
    if (row < 0) return;
    const top = row * rowHeight, box = scroll.clientHeight;
    if (top < scroll.scrollTop || top + rowHeight > scroll.scrollTop + box) scroll.scrollTop = Math.max(top - rowHeight, 0);
  }
  return { element, draw, show };
}

/** A strip's name and its scale: from nothing to the most, at full height. */
function scheduleLabelOf(name, top) {
  const about = `${name === "free" ? "free blocks" : "requests in the queue"}; full height: ${thousands(top)}`;
  return h("span", { class: "kvs-count", title: about }, top ? `${name}, 0–${thousands(top)}` : `${name}, 0`);
}

function scheduleNames(run, rowHeight, named) {
  const column = h("div", { class: "kvs-names" });
  if (!named) {
    column.append(h("div", { class: "kvs-soft" }, counted(run.requests.length, "request")));
    return column;
  }
  for (const { name, id, prompt, cached } of run.requests) {
    const about = `${id}: prompt of ${counted(prompt, "token")}${cached ? `, ${cached} of them cached` : ""}`;
    const line = h("div", { class: "kvs-name", title: about }, h("span", {}, name));
    column.append(scheduleLine(line, rowHeight));
  }
  return column;
}

function scheduleDelays(run, { clock, unit }, rowHeight, named) {
  const column = h("div", {});
  if (!named) {
    column.append(h("div", { class: "kvs-soft", style: "padding-left:.9em;white-space:normal" }, "Zoom in (+) for names, letters and delays."));
    return column;
  }
  for (const request of run.requests) {
    const values = clock === "time" ? request.times : request.delays;
    const cells = values.map((value) => h("span", {}, value === null ? "–" : clock === "time" ? value.toFixed(unit === "s" ? 2 : 1) : thousands(value)));
    const odd = request.ended && !["length", "stop"].includes(request.ended);
    if (odd) cells[3].prepend("✗ ");
    const line = h("div", { class: "kvs-delay kvs-four", "data-delays": request.name, title: `${request.id}: ${counted(request.outputs, "output")}, ended by ${request.ended ?? "nothing yet"}` }, ...cells);
    column.append(scheduleLine(line, rowHeight));
  }
  return column;
}

/** Pixels for the rows of one run. In a frame: what its height leaves; else what fits on one screen, in em. */
function scheduleBudget({ root, body }, runs, em, nested) {
  if (root.closest(".kv-framed")) {
    const style = getComputedStyle(body), room = body.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return Math.max((room - (nested ? 2.6 : 1.25) * em) / runs - (nested ? 3.3 : 3.9) * em - 5, 2.6 * em);
  }
  const large = root.classList.contains("kv-large"), whole = nested ? (large ? 22.2 : 27.4) : large ? 34 : 42;
  const around = (nested ? 10.2 : 13.4) + 1.45 * Math.max(runs - 2, 0) + (nested ? 3.35 : 4.1) * runs;
  const tall = large ? 0 : Math.max(innerHeight - 720, 0) / em; // large type grows with the screen by itself
  const more = Math.max(root.querySelector(".kv-say").offsetHeight / em - 3.9, 0); // a sentence of many lines
  return Math.max((whole + tall - around - more) / runs, 2.6) * em;
}

/** What everything is drawn to, in pixels. */
function scheduleSize(frame, runs, zoom) {
  const { root, body } = frame, em = parseFloat(getComputedStyle(root).fontSize);
  const nested = root.parentElement.closest(".kv") !== null;
  const budget = scheduleBudget(frame, runs.length, em, nested);
  const plot = body.querySelector(".kvs-scale").getBoundingClientRect();
  return { em: em * 0.92, full: em, budget, width: plot.width, left: plot.left - body.querySelector(".kvs").getBoundingClientRect().left, band: em * (nested ? 0.95 : 1.15), zoomed: zoom > 0 };
}

/** Press and drag anywhere in a plot: told the pixels from the view's left edge. */
function scheduleDrag(body, move) {
  const tell = (event) => move(event.clientX - body.getBoundingClientRect().left);
  body.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.target.closest(".kvs-plot,.kvs-scale")) return;
    body.setPointerCapture(event.pointerId);
    tell(event);
  });
  body.addEventListener("pointermove", (event) => body.hasPointerCapture(event.pointerId) && tell(event));
}
