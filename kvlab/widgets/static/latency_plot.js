// The latency report's picture: a dot a request over its arrival, the mean and the percentiles as lines,
// the target with the side that misses it, and two lanes for requests without a value and for failed ones.

const LATENCY_MARKS = [["p50", "p50"], ["mean", "mean"], ["p90", "p90"], ["p99", "p99"]];
const PLOT_CSS = `
.kvq-plot{position:relative;min-width:0;height:20em;cursor:crosshair}
.kvq-plot svg{position:absolute;inset:0;display:block;overflow:hidden}
.kvq-plot path{fill:none;stroke-linecap:round}
.kvq-d[data-k=ok]{stroke:var(--focus);opacity:.62}
.kvq-plot .kvq-d[data-k=miss]{fill:#d55e00;stroke:var(--paper);stroke-width:1}
.kvq-d[data-k=none]{stroke:var(--soft);stroke-width:1.5}
.kvq-d[data-k=bad]{stroke:var(--bad);stroke-width:2}
.kvq-d[data-k=away]{stroke:var(--soft);opacity:.16}
.kvq-axis{stroke:var(--soft);stroke-width:1}.kvq-grid{stroke:var(--line);stroke-width:1}
.kvq-m{stroke-width:2;stroke:var(--ink)}.kvq-m[data-k=p50]{stroke-dasharray:2 5}.kvq-m[data-k=p90]{stroke-dasharray:8 5}
.kvq-m[data-k=mean]{stroke:#009e73;stroke-width:3.5}.kvq-m[data-k=p99]{stroke:#d55e00;stroke-width:3.5}
.kvq-plot .kvq-over{fill:color-mix(in srgb,#d55e00 9%,transparent)}.kvq-target{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:1 4}
.kvq-lead{stroke:var(--soft);stroke-width:1}
.kvq-plot text{fill:var(--soft);dominant-baseline:central;font:inherit;font-size:var(--s)}
.kvq-plot text.kvq-tag{fill:var(--ink);font-weight:650}
.kvq-plot text.kvq-in{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.kvq-ring{stroke:var(--ink);stroke-width:2.5}.kvq-drop{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3}
`;
const LATENCY_NS = icon("").firstElementChild.namespaceURI;

function latencySvg(tag, attributes, text) {
  const element = document.createElementNS(LATENCY_NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Thousands of the whole part alone: 5,240.5. */
const latencyNumber = (value) => (value === null ? "–" : String(value).replace(/^\d+/, (whole) => thousands(whole)));

/** Round marks from 0 to `to`, about `wanted` of them. */
function latencyTicks(to, wanted) {
  if (!(to > 0)) return [0];
  const rough = to / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough * (1 - 1e-9)) * power;
  return Array.from({ length: Math.floor(to / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(9)));
}

/** How high the axis goes: over every dot of the run, and over a target that is not far above them. */
function latencyTop(records, m, target) {
  const most = Math.max(...records.map(({ values }) => values[m] ?? 0));
  const high = target !== null && target <= 2.5 * most ? Math.max(most, target) : most;
  return high * 1.06 || target * 1.25 || 1;
}

/** Labels beside lines, moved apart where they would meet: [{ y, at }], in rising y. */
function latencySpread(wanted, least, low, high) {
  const tags = wanted.map((tag) => ({ ...tag, at: tag.y })).sort((a, b) => a.y - b.y);
  tags.forEach((tag, i) => { tag.at = Math.max(tag.at, i ? tags[i - 1].at + least : low); });
  for (let i = tags.length - 1; i >= 0; i--) tags[i].at = Math.min(tags[i].at, i === tags.length - 1 ? high : tags[i + 1].at - least);
  return tags;
}

/** Where everything is, in pixels. The lanes of the requests without a place on the axis are below it. */
function latencyScale({ width, height, em }, records, m, { target }) {
  const left = em * 6.2, right = width - em * 4, lane = em * 1.25, bottom = height - em * 1.8 - 2 * lane;
  const most = latencyTop(records, m, target), top = em * (target === null ? 0.6 : 2.1), last = Math.max(...records.map((r) => r.came)) || 1;
  return {
    left, right, top, bottom, width, height, em, most, last, lanes: [bottom + lane * 0.95, bottom + lane * 1.95],
    x: (came) => left + em * 0.6 + (came / last) * (right - left - em * 1.2),
    y: (value) => bottom - (value / most) * (bottom - top),
  };
}

/** Where a request's mark is: [x, y, kind]. */
function latencyPlace(record, m, s) {
  const value = record.values[m];
  if (record.error !== null) return [s.x(record.came), s.lanes[1], "bad"];
  if (value === null) return [s.x(record.came), s.lanes[0], "none"];
  return [s.x(record.came), s.y(value), record.keeps[m] === 0 ? "miss" : "ok"];
}

function latencyMark(kind, x, y, em) {
  const r = em * (kind === "miss" ? 0.42 : 0.27), at = (a, b) => `${a.toFixed(1)} ${b.toFixed(1)}`;
  if (kind === "miss") return `M${at(x, y - r)}L${at(x + r, y)}L${at(x, y + r)}L${at(x - r, y)}Z`;
  if (kind === "bad") return `M${at(x - r, y - r)}L${at(x + r, y + r)}M${at(x - r, y + r)}L${at(x + r, y - r)}`;
  if (kind === "none") return `M${at(x + r, y)}A${at(r, r)} 0 1 1 ${at(x + r, y - 0.1)}`;
  return `M${at(x, y)}h0`;
}

/** Axes, lanes with their counts, and the side of the target that misses it. */
function latencyAxes(svg, s, metric, came, subset) {
  const { left, right, top, bottom, em } = s, size = { "font-size": em };
  const text = (x, y, anchor, words, css = "") => svg.append(latencySvg("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, class: css, ...size }, words));
  for (const value of latencyTicks(s.most, 5)) {
    svg.append(latencySvg("path", { class: "kvq-grid", d: `M${left} ${s.y(value).toFixed(1)}H${right}` }));
    text(left - em * 0.5, s.y(value), "end", `${latencyNumber(value)} ${metric.unit === "steps" ? "" : metric.unit}`.trim());
  }
  for (const at of latencyTicks(s.last, (right - left) / (em * 7))) text(s.x(at), s.height - em * 0.65, "middle", latencyNumber(at));
  text(left - em * 0.5, s.height - em * 0.65, "end", `came, ${came}`);
  const { undefined: missing } = subset.metrics[metric.name];
  text(left - em * 0.5, s.lanes[0], "end", "○ no value");
  text(left - em * 0.5, s.lanes[1], "end", "✗ failed");
  [missing, subset.failed].forEach((number, i) => text(right + em * 0.9, s.lanes[i], "start", thousands(number), "kvq-tag"));
  svg.append(latencySvg("path", { class: "kvq-axis", d: `M${left} ${top}V${bottom}H${right}` }));
  if (metric.target === null) return;
  const y = s.y(metric.target), words = `target ${latencyNumber(metric.target)} ${metric.unit}`;
  const above = (note) => text(s.width - em * 0.4, top - em * 1.2, "end", note, "kvq-in"); // over the plot, where no dot is
  if (y < top) return above(`${words}: far above, all keep it`);
  above(`shaded: over the ${words}, missed`);
  svg.append(latencySvg("path", { class: "kvq-over", d: `M${left} ${top}H${right}V${y.toFixed(1)}H${left}Z`, stroke: "none" }));
  svg.append(latencySvg("path", { class: "kvq-target", d: `M${left} ${y.toFixed(1)}H${right}` }));
}

/** The whole picture of one metric under one filter; the ring stays apart. */
function latencyDraw(box, { records, m, metric, came, subset, fits }) {
  const em = parseFloat(getComputedStyle(box).fontSize) * 0.86;
  const s = latencyScale({ width: box.clientWidth, height: box.clientHeight, em }, records, m, metric);
  const svg = latencySvg("svg", { width: s.width, height: s.height, "aria-hidden": "true", style: `--s:${em.toFixed(1)}px` });
  latencyAxes(svg, s, metric, came, subset);
  const paths = { away: "", none: "", ok: "", bad: "", miss: "" };
  for (const record of records) {
    const [x, y, kind] = latencyPlace(record, m, s), inside = fits(record);
    if (inside || kind === "ok" || kind === "miss") paths[inside ? kind : "away"] += latencyMark(inside ? kind : "ok", x, y, em);
  }
  const thick = (em * (records.length > 300 ? 0.5 : 0.7)).toFixed(1), figures = subset.metrics[metric.name];
  for (const [kind, d] of Object.entries(paths)) svg.append(latencySvg("path", { class: "kvq-d", "data-k": kind, d, ...(["ok", "away"].includes(kind) ? { "stroke-width": thick } : {}) }));
  const lines = LATENCY_MARKS.filter(([key]) => figures[key] !== null).map(([key, name]) => ({ key, name, y: s.y(figures[key]) }));
  for (const { key, name, y, at } of latencySpread(lines, em * 1.15, s.top, s.bottom - em * 0.2)) {
    svg.append(latencySvg("path", { class: "kvq-m", "data-k": key, d: `M${s.left} ${y.toFixed(1)}H${s.right}` }));
    svg.append(latencySvg("path", { class: "kvq-lead", d: `M${s.right} ${y.toFixed(1)}L${(s.right + em * 0.7).toFixed(1)} ${at.toFixed(1)}` }));
    svg.append(latencySvg("text", { class: "kvq-tag", x: (s.right + em * 0.9).toFixed(1), y: at.toFixed(1) }, name));
  }
  const ring = latencySvg("path", { class: "kvq-ring", d: "" }), drop = latencySvg("path", { class: "kvq-drop", d: "" });
  svg.append(drop, ring);
  box.replaceChildren(svg);
  const show = (record) => {
    const [x, y] = record ? latencyPlace(record, m, s) : [0, 0], r = em * 0.62;
    ring.setAttribute("d", record ? `M${x + r} ${y}A${r} ${r} 0 1 1 ${x + r} ${y - 0.1}` : "");
    drop.setAttribute("d", record ? `M${s.left} ${y}H${x - r}M${x} ${y + r}V${s.height - em * 1.4}` : "");
  };
  return { show, place: (record) => latencyPlace(record, m, s), em };
}
