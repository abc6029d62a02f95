// Drawing one run of the schedule timeline: a path for each kind, letters where they fit, two step charts.

const SCHEDULE_KINDS = {
  P: "prefill (positions)", D: "decode", w: "waits", i: "misses the step", x: "preempted",
  O: "offloaded", L: "loading", s: "put aside", "!": "failed",
};
const SCHEDULE_HATCH = { w: "/", x: "x", O: "-", L: "|", s: "\\", "!": "-" }; // lines over a kind's colour
const SCHEDULE_WORDS = { w: "waiting", x: "preempted", O: "offloaded", L: "loading", s: "put aside" };

const CELLS_CSS = `
.kvs-svg{display:block;overflow:hidden}
.kvs-c{--f:transparent;--t:#000;fill:var(--f);stroke:none}
.kvs-c[data-k=P]{--f:#0072b2;--t:#fff}.kvs-c[data-k=D]{--f:#e69f00}
.kvs-c[data-k=w]{--f:color-mix(in srgb,var(--ink) 7%,var(--paper));--t:var(--ink);stroke:color-mix(in srgb,var(--ink) 40%,var(--paper));stroke-dasharray:3 3}
.kvs-c[data-k=i]{--f:var(--paper);--t:var(--soft);stroke:color-mix(in srgb,var(--ink) 30%,var(--paper))}
.kvs-c[data-k=x]{--f:#a84a00;--t:#fff}.kvs-c[data-k=O]{--f:#cc79a7}.kvs-c[data-k=L]{--f:#56b4e9}
.kvs-c[data-k=s]{--f:color-mix(in srgb,var(--ink) 22%,var(--paper));--t:var(--ink)}.kvs-c[data-k="!"]{--f:#f0e442}
.kvs-thin .kvs-c{stroke:none}.kvs-thin .kvs-c[data-k=w]{--f:color-mix(in srgb,var(--ink) 22%,var(--paper))}
.kvs-h{fill:none;stroke:rgb(0 0 0/.42);stroke-width:1.2}.kvs-h[data-k=w]{stroke:color-mix(in srgb,var(--ink) 24%,var(--paper))}.kvs-h[data-k=s]{stroke:var(--soft)}.kvs-h[data-k=x]{stroke:rgb(0 0 0/.26)}
.kvs-t.kvs-c.kvs-c{fill:var(--t);text-anchor:middle;dominant-baseline:central;font-weight:600;paint-order:stroke;stroke:var(--f);stroke-width:3px;stroke-dasharray:none;stroke-linejoin:round}
.kvs-t[data-k=w],.kvs-t[data-k=i]{font-weight:400}
.kvs-out{fill:#fff;stroke:#0072b2;stroke-width:1}
.kvs-q{fill:color-mix(in srgb,#d55e00 34%,var(--paper));stroke:#d55e00;stroke-width:1.5}
.kvs-f{fill:color-mix(in srgb,#009e73 26%,var(--paper));stroke:#009e73;stroke-width:1.5}
`;

const SCHEDULE_LEAST = 0.97; // letters, a row at least as high as this share of them has text
const SCHEDULE_SVG = icon("").firstElementChild.namespaceURI;

function scheduleSvg(tag, attributes, text) {
  const element = document.createElementNS(SCHEDULE_SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Values of [value, times] pairs, one after the other. */
const scheduleRepeated = (pairs) => pairs.flatMap(([value, times]) => Array(times).fill(value));

/** A run with quick ways in: its step numbers, and where a step lies on the axis. */
function scheduleRun(run, clock) {
  const numbers = run.steps.flatMap(([first, count]) => Array.from({ length: count }, (_, i) => first + i));
  const index = new Map(numbers.map((number, i) => [number, i]));
  const timed = clock === "time";
  const begin = (number) => (timed ? run.times[index.get(number)][0] : number);
  const end = (number) => (timed ? run.times[index.get(number)][1] : number + 1);
  const last = numbers.length - 1;
  return {
    ...run, numbers, index, begin, end, waiting: scheduleRepeated(run.waiting), free: scheduleRepeated(run.free),
    from: timed ? 0 : numbers[0], to: end(numbers[last]),
  };
}

/** Lines of a hatch inside a box, 45 degrees or straight. */
function scheduleHatch(kind, x, y, w, h) {
  const gap = 6, parts = [];
  const slanted = (up) => {
    for (let at = gap - h; at < w; at += gap) {
      const low = Math.max(at, 0), high = Math.min(at + h, w);
      if (high <= low) continue;
      const [y1, y2] = up ? [y + h - (low - at), y + h - (high - at)] : [y + (low - at), y + (high - at)];
      parts.push(`M${(x + low).toFixed(1)} ${y1.toFixed(1)}L${(x + high).toFixed(1)} ${y2.toFixed(1)}`);
    }
  };
  if (kind === "/" || kind === "x") slanted(true);
  if (kind === "\\" || kind === "x") slanted(false);
  if (kind === "|") for (let at = gap / 2; at < w; at += gap) parts.push(`M${(x + at).toFixed(1)} ${y}v${h}`);
  if (kind === "-") for (let at = Math.min(gap, h) / 2; at < h; at += gap / 1.5) parts.push(`M${x} ${(y + at).toFixed(1)}h${w}`);
  return parts.join("");
}

/** The boxes of one span, [x, width, first step, steps]: one a step where a step is wide enough. */
function scheduleBoxes(run, span, x, wide) {
  const [letter, first, count] = span, boxes = [];
  const merged = letter in SCHEDULE_WORDS || !wide;
  const length = merged ? count : 1;
  for (let step = first; step < first + count; step += length) {
    const a = x(run.begin(step)), b = x(run.end(step + length - 1));
    boxes.push([a, Math.max(b - a, 0.6), step, length]);
  }
  return boxes;
}

/** What stands in a box of this width and in which size, or nothing: [text, size]. */
function scheduleLabel([letter, , , tokens], width, length, em) {
  const fits = ([text, size]) => text.length * size * 0.66 + 2 <= width;
  const whole = letter === "P" ? `P${tokens}` : length > 1 ? (SCHEDULE_WORDS[letter] ?? letter) : letter;
  return [[whole, em], [whole, 0.8 * em], [letter, em], [letter, 0.7 * em]].find(fits);
}

/** A first output: the upper right corner of its box is white. */
function scheduleFirst(right, top, side, data = {}) {
  return scheduleSvg("path", { class: "kvs-out", ...data, d: `M${right.toFixed(1)} ${top.toFixed(1)}v${side.toFixed(1)}l${(-side).toFixed(1)} ${(-side).toFixed(1)}z` });
}

/** Rows of a run: x maps the axis to pixels, `view` is what of the axis is seen. */
function scheduleRows(run, { x, width, rowHeight, em, view, cell }) {
  const rows = run.requests.length, height = rows * rowHeight;
  const letters = rowHeight >= em * SCHEDULE_LEAST, gap = rowHeight > 8 ? 2 : rowHeight > 3 ? 0.8 : 0.3;
  const svg = scheduleSvg("svg", { class: `kvs-svg${letters ? "" : " kvs-thin"}`, width, height, "aria-hidden": "true" });
  const paths = new Map(), texts = [], marks = [];
  let count = 0;
  const add = (key, d) => paths.set(key, (paths.get(key) ?? "") + d);
  const [from, to] = view;
  run.requests.forEach((request, row) => {
    const y = row * rowHeight + gap / 2, h = rowHeight - gap;
    for (const span of request.spans) {
      const [letter, first, steps] = span;
      if (run.end(first + steps - 1) <= from || run.begin(first) >= to) continue;
      for (const [left, w, step, length] of scheduleBoxes(run, span, x, cell >= 5)) {
        if (left > width || left + w < 0) continue;
        const inner = w > 6 ? w - 1.5 : w;
        count += 1;
        add(letter, `M${left.toFixed(1)} ${y.toFixed(1)}h${inner.toFixed(1)}v${h.toFixed(1)}h${(-inner).toFixed(1)}z`);
        if (letter in SCHEDULE_HATCH && h >= 5) add(`h${letter}`, scheduleHatch(SCHEDULE_HATCH[letter], left, y, inner, h));
        const seen = [Math.max(left, 0), Math.min(left + inner, width)];
        const gives = letters && letter === "P" && request.first === step && inner > em * 0.7;
        if (gives) marks.push(scheduleFirst(left + inner, y, Math.min(em * 0.42, h / 2, inner / 2), { "data-row": row }));
        const label = letters && scheduleLabel(span, seen[1] - seen[0], length, em);
        if (label) {
          const [text, size] = label, place = { x: (seen[0] + seen[1]) / 2, y: y + h / 2, "font-size": Math.min(size, rowHeight * 0.8) };
          texts.push(scheduleSvg("text", { class: "kvs-t kvs-c", "data-k": letter, "data-row": row, "data-step": step, ...place }, text));
        }
      }
    }
  });
  for (const [key, d] of paths) svg.append(scheduleSvg("path", { class: key.length > 1 ? "kvs-h" : "kvs-c", "data-k": key.at(-1), d }));
  svg.append(...texts, ...marks);
  svg.dataset.boxes = count;
  return svg;
}

/** A count over the steps as an area with steps; `top` is its largest value. */
function scheduleChart(run, values, top, kind, { x, width, height, view }) {
  const y = (value) => height - 1 - (value / Math.max(top, 1)) * (height - 3);
  let d = "", last = null;
  run.numbers.forEach((number, i) => {
    const a = run.begin(number), next = run.numbers[i + 1], b = next === undefined ? run.end(number) : run.begin(next);
    if (b <= view[0] || a >= view[1]) return;
    d += `${d ? "L" : `M${x(a).toFixed(1)} ${height}L`}${x(a).toFixed(1)} ${y(values[i]).toFixed(1)}H${x(b).toFixed(1)}`;
    last = x(b);
  });
  const svg = scheduleSvg("svg", { class: "kvs-svg", width, height, "aria-hidden": "true" });
  if (last !== null) svg.append(scheduleSvg("path", { class: kind, d: `${d}V${height}Z` }));
  return svg;
}

/** Round distances for about one label every `room` pixels. */
function scheduleTicks([from, to], width, room, whole) {
  const rough = ((to - from) * room) / width, power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((m) => m * power >= rough) * power, step = whole ? Math.max(1, Math.round(unit)) : unit;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push(Number(at.toPrecision(9)));
  return ticks;
}
