// Plots of the view "prefill against decode": logarithmic boxes, the roof, curves over a size (section 21.2).
// Lines are drawn in a box of 100 by 100; texts and dots are elements above it, so that they keep their shape.

const PHASES_RING = 1.2; // the chosen dot's size, as a share of the others'
const PHASES_NEAR = 1.25; // a label's way to any other dot, at least, as a share of that to its own
const PHASES_TURNS = Array.from({ length: 24 }, (_, i) => ((i + 0.5) * Math.PI) / 12).map((turn) => [Math.cos(turn), Math.sin(turn)]); // around a dot
const PHASES_CSS = `
.kvf{--ring:${PHASES_RING};--P:#0072b2;--D:#e69f00;--M:#009e73;--A:#cc79a7;display:grid;grid-template-columns:minmax(0,1.08fr) minmax(0,1fr);gap:0 1.3em;height:23.5em}
.kvf-side{display:grid;grid-template-rows:auto minmax(0,1fr);min-height:0}
.kvf-curves{display:grid;grid-template:minmax(0,1fr) minmax(0,1.14fr)/repeat(2,minmax(0,1fr));min-height:0}
.kvf-caption{display:flex;flex-wrap:wrap;gap:0 1.1em;font-size:.92em;color:var(--soft);white-space:nowrap;line-height:1.5}
.kvf-caption b{color:var(--ink);font-weight:600}.kvf-caption svg{width:2.1em;height:.7em;margin-right:.35em;overflow:visible}
.kvf-plot{position:relative;min-height:0}
.kvf-box{position:absolute;inset:1.7em .7em 1.5em 3.9em;border:solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-width:0 0 1px 1px}
.kvf-plot[data-wide] .kvf-box{bottom:2.9em}
.kvf-box>svg{position:absolute;inset:0;width:100%;height:100%;overflow:hidden}
.kvf svg path{vector-effect:non-scaling-stroke;fill:none;stroke:var(--ink);stroke-width:2px}
.kvf svg .kvf-grid{stroke:var(--line);stroke-width:1px}
.kvf svg .kvf-M{stroke:var(--M);stroke-width:3px;stroke-dasharray:9 4}.kvf svg .kvf-A{stroke:var(--A);stroke-width:3px;stroke-dasharray:3 3}
.kvf-curves svg :is(.kvf-M,.kvf-A){stroke-width:2px}
.kvf svg .kvf-faint{opacity:.45}
.kvf svg .kvf-ridge{stroke:var(--soft);stroke-width:1px;stroke-dasharray:2 4}
.kvf svg .kvf-P{stroke:var(--P)}.kvf svg .kvf-D{stroke:var(--D)}
.kvf svg .kvf-spread{stroke-width:1.5px}
.kvf svg .kvf-leader{stroke:var(--ink);stroke-width:1px}.kvf svg .kvf-gap{stroke:var(--soft);stroke-width:1px}.kvf svg .kvf-gap[data-near]{stroke:var(--ink);stroke-width:2.5px}
.kvf-tag{position:absolute;font-size:.86em;line-height:1.3;white-space:nowrap;color:var(--soft)}
.kvf-tag[data-axis=y]{right:calc(100% + .35em);transform:translateY(50%)}
.kvf-tag[data-axis=x]{top:calc(100% + .12em);transform:translateX(-50%)}
.kvf-tag[data-name=y]{left:-4em;bottom:calc(100% + .25em);color:var(--ink)}
.kvf-tag[data-name=x]{right:0;top:calc(100% + 1.45em);color:var(--ink)}
.kvf-tag[data-placed]{color:var(--ink);text-shadow:0 0 2px var(--paper),0 0 3px var(--paper),0 0 5px var(--paper);pointer-events:none}
.kvf-tag[data-roof]{font-weight:600}.kvf-tag[data-roof=memory]{color:color-mix(in srgb,var(--M) 62%,var(--ink))}.kvf-tag[data-roof=arithmetic]{color:color-mix(in srgb,var(--A) 55%,var(--ink))}.kvf-tag[data-roof=ridge]{font-weight:400}
.kvf-tag[data-share]{left:.2em;top:-.2em;padding:0 .3em;background:var(--paper);color:var(--ink);font-size:.95em}.kvf-tag[data-share] b{font-size:1.25em;font-weight:750}
.kvf-dot{position:absolute;display:grid;place-items:center;width:1.45em;height:1.45em;margin:0 0 -.72em calc(-.72em + var(--shift,0em));font-size:.85em;font-weight:700;line-height:1;
 background:var(--P);color:#fff;border:1.5px solid var(--paper);z-index:1;cursor:pointer}
.kvf-dot[data-phase=decode]{background:var(--D);color:#000;border-radius:50%}
.kvf-dot[data-cached]{outline:2px dashed var(--ink);outline-offset:1px}
.kvf-curves .kvf-dot{font-size:.8em}.kvf-curves .kvf-tag{font-size:.95em}
.kvf-exact{position:absolute;width:5px;height:5px;margin:0 0 -2.5px -2.5px;border-radius:50%;background:var(--ink);box-shadow:0 0 0 1px var(--paper);z-index:2}
.kvf-dot[data-near]{z-index:3;transform:scale(var(--ring));box-shadow:0 0 0 2.5px var(--paper),0 0 0 5px var(--ink)}
.kvf-key{display:inline-grid;position:static;margin:0 .35em 0 0;font-size:.8em;vertical-align:-.2em;cursor:default}
.kvf-empty{position:absolute;inset:0;display:grid;place-items:center;color:var(--soft)}.kvf-roof .kvf-empty{font-size:1.5em;font-weight:600;color:var(--ink)}
.kv-large .kvf{font-size:.9em;height:23em}.kv-large .kvf-tag{color:var(--ink);font-size:.9em}.kv-large .kvf-curves .kvf-tag{font-size:1.04em}
.kv-large .kvf svg :is(.kvf-M,.kvf-A){stroke-width:4px}.kv-large .kvf-curves svg :is(.kvf-M,.kvf-A,.kvf-P,.kvf-D){stroke-width:3px}
@media(min-width:1600px) and (min-height:900px){.kv:not(.kv-large) .kvf{height:29em}}
@media(max-width:480px){.kv-large .kvf{font-size:.7em}.kvf .kvf-tag[data-share]{max-width:calc(100% + 1em);font-size:.86em;white-space:normal}.kvf-tag[data-share] b{white-space:nowrap}}
@media(max-width:760px){
 .kvf{grid-template-columns:minmax(0,1fr);height:auto}.kvf-side{height:23em}.kvf-curves .kvf-tag[data-name]{font-size:.8em}
 .kvf-roof.kvf-plot .kvf-box{bottom:4.1em}.kvf-roof .kvf-tag[data-name=x]{width:calc(100% + 4em);white-space:normal;text-align:right}
}
`;

function phasesDraw(tag, attributes) {
  const element = document.createElementNS(icon("").firstElementChild.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** A place from 0 to 100 on a logarithmic axis. */
const phasesScale = ([low, high]) => (value) => (100 * Math.log(value / low)) / Math.log(high / low);

/** Round numbers inside a range: powers of ten, and 2 and 5 times them where that leaves few. */
function phasesTicks([low, high]) {
  const powers = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) powers.push(e);
  const marks = (factors) => powers.flatMap((e) => factors.map((f) => Number(`${f}e${e}`))).filter((v) => v >= low && v <= high);
  return [[1], [1, 3], [1, 2, 5]].map(marks).find((found) => found.length > 2) ?? marks([1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/** A range a little wider than the values, at least a factor of `least`. */
function phasesRange(values, around = 1.35, least = 4) {
  const low = Math.min(...values), high = Math.max(...values), more = Math.max(Math.sqrt((least * low) / high), around);
  return [low / more, high * more];
}

const phasesNumber = (value) => (value >= 1 ? thousands(Number(value.toPrecision(6))) : String(Number(value.toPrecision(3))));

/** A prefix for numbers up to this: ["G", 1e9]. */
const phasesPrefix = (most) => [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => most >= size) ?? ["", 1];

/** A line through places in a box of 100 by 100, cut off at its top and its bottom. */
function phasesClip(places) {
  const moved = places.slice(1).map(([bx, by], i) => {
    const [ax, ay] = places[i], cuts = [-ay / (by - ay), (100 - ay) / (by - ay)].sort((a, b) => a - b);
    const [from, to] = by === ay ? [0, ay >= 0 && ay <= 100 ? 1 : -1] : [Math.max(0, cuts[0]), Math.min(1, cuts[1])];
    const at = (t) => `${(ax + t * (bx - ax)).toFixed(2)} ${Math.min(Math.max(ay + t * (by - ay), 0), 100).toFixed(2)}`;
    return from > to ? null : { from: at(from), to: at(to) };
  });
  return moved.map((part, i) => (part ? `${part.from === moved[i - 1]?.to ? "" : `M${part.from}`}L${part.to}` : "")).join("");
}

/** An empty plot. x, y: { name, range, ticks: [[value, text]] }. Returns its element and ways to draw in it. */
function phasesBox(x, y) {
  const svg = phasesDraw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  const box = h("div", { class: "kvf-box" }, svg), element = h("div", { class: "kvf-plot" }, box);
  const [atX, atY] = [phasesScale(x.range), phasesScale(y.range)];
  const path = (kind, points) => {
    const line = phasesDraw("path", { class: kind, d: phasesClip(points.map(([px, py]) => [atX(px), 100 - atY(py)])) });
    svg.append(line);
    return line;
  };
  const put = (node, px, py) => {
    if (px !== null) node.style.left = `${atX(px)}%`;
    if (py !== null) node.style.bottom = `${atY(py)}%`;
    box.append(node);
    return node;
  };
  const tag = (words, attributes, px = null, py = null) => put(h("span", { class: "kvf-tag", ...attributes }, words), px, py);
  for (const [value, text] of y.ticks) {
    path("kvf-grid", [[x.range[0], value], [x.range[1], value]]);
    tag(text, { "data-axis": "y" }, null, value);
  }
  for (const [value, text] of x.ticks) tag(text, { "data-axis": "x" }, value);
  tag(y.name, { "data-name": "y" });
  if (x.name) tag(x.name, { "data-name": "x" });
  element.toggleAttribute("data-wide", Boolean(x.name));
  const at = (px, py) => ({ x: (atX(px) / 100) * box.clientWidth, y: (1 - atY(py) / 100) * box.clientHeight }); // in pixels
  const around = (dot) => ({ x: dot.offsetLeft + dot.offsetWidth / 2, y: dot.offsetTop + dot.offsetHeight / 2, r: dot.offsetWidth / 2 });
  return { element, box, path, put, tag, atX, atY, at, around };
}

/** In words, how far apart the marks of an axis are. */
function phasesStep([[one] = [1], [two] = [10]]) {
  return `each step is a factor of ${two / one > 5 ? "ten" : two / one > 2.4 ? "three" : "two"}`;
}

/** How far each dot stands aside, in em, so that none covers another one's letter. wide, tall: a dot's size in the plot. */
function phasesShifts(places, wide, tall) {
  const shifts = places.map(() => 0), seen = new Set();
  const near = (a, b) => Math.abs(a[0] - b[0]) < wide && Math.abs(a[1] - b[1]) < tall;
  places.forEach((place, i) => {
    if (seen.has(i)) return;
    const group = [...places.keys()].filter((j) => !seen.has(j) && near(place, places[j])).sort((a, b) => places[a][0] - places[b][0]);
    group.forEach((j, n) => {
      seen.add(j);
      shifts[j] = 1.7 * (n - (group.length - 1) / 2);
    });
  });
  return shifts;
}

/** Dots at their places; those that would cover each other stand side by side, each beside a mark of its exact place. */
function phasesDots(plot, marks, wide, tall) {
  const shifts = phasesShifts(marks.map(([, x, y]) => [plot.atX(x), plot.atY(y)]), wide, tall);
  const dots = marks.map(([dot, x, y], i) => {
    if (shifts[i]) {
      dot.style.setProperty("--shift", `${shifts[i]}em`);
      plot.put(h("span", { class: "kvf-exact" }), x, y);
    }
    return plot.put(dot, x, y);
  });
  return { dots, shifts };
}

function phasesDot(point, index) {
  const about = `${point.phase} ${point.label}: ${point.share} of the time it took${point.cached ? "; fits into the cache" : ""}`;
  return h("span", { class: "kvf-dot", "data-phase": point.phase, "data-point": index, "data-cached": point.cached ? "" : null, title: about }, point.letter);
}

// ---- the roofline

/** Where nothing was measured: axes without numbers, and what to do. */
function phasesEmptyRoof() {
  const plot = phasesBox({ name: "FLOPs a byte", range: [1, 100], ticks: [] }, { name: "FLOP/s", range: [1, 100], ticks: [] });
  plot.element.classList.add("kvf-roof");
  plot.path("kvf-M kvf-faint", [[2, 5], [16, 64]]);
  plot.path("kvf-A kvf-faint", [[16, 64], [100, 64]]);
  plot.box.append(h("div", { class: "kvf-empty", "data-empty": "" }, "press Run"));
  return { element: plot.element, near: () => {}, settle: () => {} };
}

/** Both ceilings as one roof, each pass as a dot, a line from it up to the roof. */
function phasesRoof({ roof, points }) {
  if (!roof) return phasesEmptyRoof();
  const { bandwidth, rate, ridge } = roof;
  const xs = phasesRange([...points.map((p) => p.intensity), ridge / 8, ridge], 2.2, 60);
  const [least, most] = phasesRange([...points.map((p) => p.reached), rate], 2.3, 30), ys = [least, most * 1.6]; // room for words
  const [prefix, unit] = phasesPrefix(rate);
  const ticks = (range, size) => phasesTicks(range).map((v) => [v, phasesNumber(v / size)]);
  const [along, up] = [ticks(xs, 1), ticks(ys, unit)];
  const plot = phasesBox(
    { name: `FLOPs a byte (intensity); ${phasesStep(along)}`, range: xs, ticks: along },
    { name: `${prefix}FLOP/s; ${phasesStep(up)}`, range: ys, ticks: up },
  );
  plot.element.classList.add("kvf-roof");
  const start = Math.max(xs[0], ys[0] / bandwidth);
  plot.path("kvf-M", [[start, start * bandwidth], [ridge, rate]]);
  plot.path("kvf-A", [[ridge, rate], [xs[1], rate]]);
  plot.path("kvf-ridge", [[ridge, ys[0]], [ridge, rate]]);
  const { dots } = phasesDots(plot, points.map((p, i) => [phasesDot(p, i), p.intensity, p.reached]), 2.2, 3.5);
  const shown = points.map((point, i) => {
    const line = plot.path("kvf-gap", [[point.intensity, point.reached], [point.intensity, point.attainable]]);
    return { line, dot: dots[i] };
  });
  const [arithmetic, memory, ridgeTag] = phasesRoofTags(plot, roof, xs, ys);
  const gaps = points.map(({ intensity, reached, attainable }) => [intensity, reached, attainable]);
  const placed = [ridgeTag, arithmetic, memory, ...points.map((point, i) => phasesDotTag(plot, point, dots[i]))];
  const roofLine = (part) => (part < 0.5 ? [start * (ridge / start) ** (2 * part), start * bandwidth * (ridge / start) ** (2 * part)] : [ridge * (xs[1] / ridge) ** (2 * part - 1), rate]);
  const share = plot.tag("", { "data-share": "" });
  const near = (index) => {
    shown.forEach(({ line, dot }, i) => {
      line.toggleAttribute("data-near", i === index);
      dot.toggleAttribute("data-near", i === index);
    });
    share.hidden = index === null;
    if (index === null) return;
    const { limit, cells, share: text } = points[index], [took, bytes, flops] = cells.slice(3);
    share.replaceChildren(`at least ${limit === "memory" ? bytes : flops} of ${took}: `, h("b", {}, text));
  };
  return { element: plot.element, near, settle: () => phasesPlaceTags(plot, dots, placed, { roofLine, gaps }) };
}

// ---- words in the roofline: each where it covers no dot and no other word, and at best no part of the roof

/** Names of the two ceilings and of the point where they meet. `places` gives the boxes to try, best first. */
function phasesRoofTags(plot, { bandwidth, rate, ridge, memory, arithmetic, meets }, xs, ys) {
  const low = Math.max(xs[0], ys[0] / bandwidth), em = (size) => size.tall / 1.3;
  const tag = (name, words) => plot.tag(words, { "data-roof": name, "data-placed": "" });
  const slope = (size) => { // left of it, over its left end, right of it
    const parts = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.9].map((part) => low * (ridge / low) ** part); // how far up
    const on = parts.map((x) => plot.at(x, x * bandwidth)), start = plot.at(low, low * bandwidth), top = plot.at(ridge, rate);
    const rise = (top.y - start.y) / (top.x - start.x), over = Math.min(3 + size.wide + 0.4 * em(size), top.x);
    return [
      ...on.map((at) => [at.x - size.wide - 0.6 * em(size), at.y - 0.9 * size.tall]),
      [3, start.y + rise * (over - start.x) - size.tall - 2],
      ...on.map((at) => [at.x + 0.9 * em(size), at.y - 0.3 * size.tall]),
    ];
  };
  const flat = (size) => {
    const at = plot.at(ridge, rate), far = plot.at(xs[1], rate).x - size.wide - 2;
    return [0, 1, 1.4, 1.8, 2.2, 2.6, -2.3, -2.7, -3.3].flatMap((up) => [at.x + 0.6 * em(size), far, (at.x + far) / 2].map((x) => [x, at.y - (1.15 + up) * size.tall]));
  };
  const foot = (size) => [-0.04, 1.04, 0.5].map((part) => [plot.at(ridge, ys[0]).x - part * size.wide, plot.at(ridge, ys[0]).y - 1.1 * size.tall]);
  return [
    { element: tag("arithmetic", arithmetic), places: flat },
    { element: tag("memory", memory), places: slope },
    { element: tag("ridge", meets), places: foot },
  ];
}

/** A pass's size beside its dot, or a little off with a line to it; where nothing is free it is left out,
 *  the dot's title and the text line have it. */
function phasesDotTag(plot, { label }, dot) {
  const places = ({ wide, tall }) => {
    const { x, y, r } = plot.around(dot), far = PHASES_RING * (r + 5) + 2; // beyond the ring of the chosen dot
    return [[x + far, y - tall / 2], [x - far - wide, y - tall / 2], [x - wide / 2, y + far], [x - wide / 2, y - far - tall]];
  };
  const off = ({ wide, tall }) => { // all around, nearest first
    const { x, y } = plot.around(dot);
    return [1.9, 2.2, 2.6, 3.1, 3.7, 4.5].flatMap((far) => PHASES_TURNS.map(([across, down]) => [x + across * (far * tall + wide / 2) - wide / 2, y + down * far * tall - tall / 2]));
  };
  return { element: plot.tag(label, { "data-placed": "", "data-label": "" }), dot, line: plot.path("kvf-leader", []), places, off };
}

const phasesArea = (x, y, wide, tall) => ({ left: x, right: x + wide, top: y, low: y + tall });
const phasesMeet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.low && b.top < a.low;
/** How far a place lies from a box, in pixels. */
const phasesAway = (box, { x, y }) => Math.hypot(Math.max(box.left - x, x - box.right, 0), Math.max(box.top - y, y - box.low, 0));
/** Is this the dot that a reader would take for the label's? */
const phasesNearest = (box, own, others) => others.every((other) => phasesAway(box, other) > PHASES_NEAR * phasesAway(box, own));

/** What stands in the plot already: `taken` may not be covered, `roof` and `lines` only where there is no choice. */
function phasesStanding(plot, dots, tall, { roofLine, gaps }) {
  const square = ({ x, y }, r) => phasesArea(x - r, y - r, 2 * r, 2 * r), places = dots.map(plot.around);
  const share = phasesArea(0, -8, Math.min(plot.box.clientWidth, 15 * tall), 1.3 * tall); // the chosen pass's
  const lines = gaps.map(([x, from, to]) => [plot.at(x, from), plot.at(x, to)]).map(([low, top]) => phasesArea(top.x - 1, top.y, 2, low.y - top.y));
  return {
    places, taken: [...places.map((place) => square(place, place.r)), share],
    roof: Array.from({ length: 61 }, (_, i) => square(plot.at(...roofLine(i / 60)), 1)),
    lines: [...lines, ...places.map((place) => square(place, PHASES_RING * place.r + 3))],
  };
}

/** The line from a dot to a label that stands off, as small squares without its ends. */
function phasesLeader(box, { x, y, r }) {
  const to = { x: Math.min(Math.max(x, box.left), box.right), y: Math.min(Math.max(y, box.top), box.low) };
  const far = Math.hypot(to.x - x, to.y - y), steps = Math.max(Math.ceil(far / 3), 1);
  const parts = Array.from({ length: steps }, (_, i) => i / steps).filter((part) => part * far > r + 1);
  return { to, squares: parts.map((part) => phasesArea(x + part * (to.x - x) - 2, y + part * (to.y - y) - 2, 4, 4)) };
}

/** Runs again whenever the plot's size or its type changes. Nothing is placed before it has a size. */
function phasesPlaceTags(plot, dots, tags, drawn) {
  const { clientWidth: width, clientHeight: height } = plot.box;
  if (!width) return;
  const sizes = new Map(tags.map((tag) => [tag, { wide: tag.element.offsetWidth, tall: tag.element.offsetHeight }]));
  const { places, taken, roof, lines } = phasesStanding(plot, dots, sizes.get(tags[0]).tall, drawn);
  const covers = (box, others) => others.some((other) => phasesMeet(box, other));
  const within = ({ left, right, top, low }) => left >= 1 && right <= width + 6 && top >= -4 && low <= height;
  const boxes = (tag, find) => find(sizes.get(tag)).map(([x, y]) => phasesArea(x, y, sizes.get(tag).wide, sizes.get(tag).tall)).filter(within);
  const others = ({ dot }) => places.filter((_, i) => dots[i] !== dot);
  const own = ({ dot }) => places[dots.indexOf(dot)];
  const beside = (tag) => boxes(tag, tag.places).filter((box) => !covers(box, taken) && (!tag.dot || phasesNearest(box, own(tag), others(tag))));
  const led = (tag, uncrossed) => (tag.dot ? boxes(tag, tag.off) : []).find((box) => {
    const alone = others(tag).every((other) => phasesAway(box, other) > 2.2 * other.r);
    return alone && !covers(box, [...taken, ...roof, ...lines]) && !phasesLeader(box, own(tag)).squares.some((square) => covers(square, uncrossed));
  });
  const put = (tag) => {
    const near = beside(tag), clear = (of) => near.find((box) => !covers(box, of)), close = clear([...roof, ...lines]) ?? clear(roof);
    const away = close ? null : led(tag, [...taken, ...roof]) ?? led(tag, taken), box = close ?? away ?? near[0], leader = away && phasesLeader(away, own(tag));
    tag.element.style.visibility = box ? "" : "hidden";
    tag.line?.setAttribute("d", leader ? `M${[own(tag), leader.to].map(({ x, y }) => `${(100 * x) / width} ${(100 * y) / height}`).join("L")}` : "");
    if (!box) return;
    taken.push(box, ...(leader?.squares ?? []));
    Object.assign(tag.element.style, { left: `${box.left}px`, top: `${box.top}px` });
  };
  tags.filter(({ dot }) => !dot).forEach(put);
  const room = new Map(tags.map((tag) => [tag, beside(tag).length])); // those with the least room choose first
  tags.filter(({ dot }) => dot).sort((a, b) => room.get(a) - room.get(b)).forEach(put);
}

// ---- the curves

const PHASES_CURVES = [
  { phase: "prefill", along: "length", apart: "batch", over: "prompt length, tokens", each: "" },
  { phase: "decode", along: "batch", apart: "length", over: "batch size, requests", each: ", 1 token each" },
];

/** Values of a point in a plot: itself, and what each bound allows. */
const PHASES_VALUES = {
  time: ({ seconds, bounds, spread }) => ({ value: seconds, bounds, spread }),
  rate: ({ seconds, bounds, tokens }) => ({ value: tokens / seconds, bounds: bounds.map((s) => tokens / s), spread: null }),
};

/** One phase's time or rate over a size; unmatched sizes make lines of their own. */
function phasesCurve(points, { phase, along, apart, over: sizeName, each }, what) {
  const over = what === "rate" ? sizeName : ""; // below both plots of a phase
  const mine = [...points.entries()].filter(([, p]) => p.phase === phase);
  if (!mine.length) {
    const plot = phasesBox({ name: over, range: [1, 10], ticks: [] }, { name: what === "time" ? `ms a pass${each}` : "tokens/s", range: [1, 10], ticks: [] });
    plot.box.append(h("div", { class: "kvf-empty" }, `no ${phase} yet`));
    return { element: plot.element, near: () => {} };
  }
  const values = new Map(mine.map(([i, p]) => [i, PHASES_VALUES[what](p)]));
  const sizes = [...new Set(mine.map(([, p]) => p[along]))].sort((a, b) => a - b);
  const all = [...values.values()].flatMap(({ value, bounds }) => [value, ...bounds.map((b) => Math.min(Math.max(b, value / 99), value * 99))]);
  const xs = phasesRange(sizes, 1.25, 3), ys = phasesRange(all, 1.6, 6);
  const [unit, prefix] = what === "rate" || ys[1] > 20 ? [1, ""] : ys[1] > 0.002 ? [1e-3, "m"] : [1e-6, "µ"];
  const name = what === "rate" ? "tokens/s" : `${prefix}s a pass${each}`;
  const plot = phasesBox(
    { name: over, range: xs, ticks: phasesSizes(sizes, phasesScale(xs)) },
    { name, range: ys, ticks: phasesTicks(ys).map((v) => [v, phasesNumber(v / unit)]) },
  );
  phasesLines(plot, mine, values, along, apart);
  const { dots } = phasesDots(plot, mine.map(([i, p]) => [phasesDot(p, i), p[along], values.get(i).value]), 5, 11);
  const near = (index) => mine.forEach(([i], n) => dots[n].toggleAttribute("data-near", i === index));
  return { element: plot.element, near };
}

function phasesSizes(sizes, at) {
  let last = -Infinity;
  return sizes.filter((size) => at(size) - last > 6 + 3.7 * thousands(size).length && (last = at(size)) >= 0).map((size) => [size, thousands(size)]);
}

/** Bounds below, the measured line above; the spread of the repetitions at each dot. */
function phasesLines(plot, mine, values, along, apart) {
  const lines = new Map();
  for (const [i, p] of mine) lines.set(p[apart], [...(lines.get(p[apart]) ?? []), [i, p]]);
  for (const line of lines.values()) {
    line.sort(([, a], [, b]) => a[along] - b[along]);
    const through = (value) => line.map(([i, p]) => [p[along], value(values.get(i))]);
    plot.path("kvf-M", through(({ bounds }) => bounds[0]));
    plot.path("kvf-A", through(({ bounds }) => bounds[1]));
    plot.path(`kvf-${line[0][1].letter}`, through(({ value }) => value));
  }
  for (const [i, p] of mine) {
    const { spread } = values.get(i);
    if (spread) plot.path(`kvf-${p.letter} kvf-spread`, spread.map((s) => [p[along], s]));
  }
}
