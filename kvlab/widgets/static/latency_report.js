// The view "latency report": who waited how long, the mean beside the percentiles, targets, filters (section 21.2).

const LATENCY_CSS = `${PLOT_CSS}
.kvq{display:grid;gap:.5em}
.kvq-cards{display:grid;grid-template-columns:minmax(0,1.1fr) repeat(4,minmax(0,1fr)) minmax(0,1.5fr);gap:.5em}
.kvq-card{min-width:0;height:3.95em;padding:.2em .6em .3em;border:1px solid var(--line);border-left:5px solid var(--line);border-radius:6px;white-space:nowrap;overflow:hidden}
.kvq-card small{display:block;color:var(--soft);font-size:.86em;overflow:hidden;text-overflow:ellipsis}.kvq-card b{font-size:1.75em;line-height:1.15;font-weight:700}
.kvq-card i{font-style:normal;font-weight:700;font-size:1.2em}.kvq-card[data-kept="1"] i{color:var(--good)}.kvq-card[data-kept="0"]{background:color-mix(in srgb,#d55e00 14%,var(--paper))}.kvq-card[data-kept="0"] i{color:var(--bad)}
.kvq-card[data-k=mean]{border-left-color:#009e73}.kvq-card[data-k=p99]{border-left-color:#d55e00}.kvq-card[data-k=metric]{border-color:transparent;padding-left:0}
.kvq-cols{display:grid;grid-template-columns:minmax(0,1.5fr) minmax(0,1fr);gap:.3em 1.1em}
.kvq-side{display:grid;align-content:start;gap:.9em;height:17.5em;min-width:0}.kvq .kvq-plot{height:17.5em}
.kvq-filters{display:flex;gap:.6em;min-width:0}.kvq-filters label{flex:1;min-width:0;color:var(--soft);font-size:.86em;white-space:nowrap}
.kv .kvq select{display:block;width:100%;min-width:0;height:1.95em;padding:0 .3em;font:inherit;font-size:1.1em;border:1px solid var(--line);border-radius:6px;background:var(--paper);color:var(--ink)}
.kv .kvq table{width:100%;table-layout:fixed;border-collapse:collapse;margin:0;border:0;font:inherit;font-size:.92em;color:inherit}
.kv .kvq :is(th,td){padding:.12em .25em;border:0;background:none;text-align:right;font-weight:400;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv .kvq tr{background:none}.kv .kvq thead th{color:var(--soft)}.kv .kvq :is(th,thead th):first-child{text-align:left;width:25%}
.kv .kvq tbody tr{border-top:1px solid var(--line)}.kv .kvq tr[aria-current]{background:color-mix(in srgb,var(--focus) 16%,var(--paper))}
.kv .kvq tbody th button{display:inline-flex;justify-content:flex-start;gap:.3em;align-items:center;width:100%;height:1.9em;padding:0 .4em;font-weight:600;overflow:hidden;white-space:nowrap}
.kv .kvq th button span{color:var(--soft);font-weight:400}.kv .kvq td[data-kept="0"]{color:var(--bad);font-weight:700}
.kvq-conditions{display:grid;max-height:8.4em;overflow-y:auto;font-size:.86em;line-height:1.4}
.kvq-conditions>*{grid-area:1/1;min-width:0}.kvq-conditions>[aria-hidden]{visibility:hidden}
.kvq-facts{margin:0;padding:0;list-style:none}
.kvq-facts li{display:inline;overflow-wrap:anywhere}.kvq-facts li+li::before{content:" · ";color:var(--soft)}.kvq-facts b{font-weight:600}.kvq-facts [data-missing]{color:var(--bad)}
.kv[data-view=latency_report] .kv-say{margin-bottom:0}
.kv-large .kvq{font-size:.86em;gap:.35em}.kv-large :is(.kvq .kvq-plot,.kvq-side){height:16.5em}.kv-large .kvq-cols{grid-template-columns:minmax(0,1.35fr) minmax(0,1fr)}
.kv-large[data-view=latency_report] .kv-say-text{font-size:.94em}.kv-large[data-view=latency_report] .kv-hint{font-size:.8em;line-height:1.15;white-space:normal}.kv-large .kvq-card{height:4.2em}.kv-large .kvq-card b{font-size:1.95em}
@media(max-width:760px){.kvq-cols{grid-template-columns:minmax(0,1fr)}.kvq-cards{grid-template-columns:repeat(3,minmax(0,1fr))}}
`;
const LATENCY_NAMES = { ttft: "time to first token", tpot: "time per output token", itl: "gaps between outputs", e2el: "end to end" };

function latencyRecords({ records }) {
  return records.map(([id, came, prompt, outputs, cached, error, estimated, labels, length, values, keeps]) => ({ id, came, prompt, outputs, cached, error, estimated, labels, length, values, keeps }));
}

/** One request in a sentence or two. */
function latencySentence(record, payload) {
  const { id, came, prompt, outputs, cached, error, estimated, labels, values, keeps } = record;
  const kinds = labels.map((i) => payload.labels[i]).join(", ");
  const sizes = [
    prompt === null ? "prompt length not recorded" : `prompt of ${counted(prompt, "token")}`,
    ...(cached === null ? [] : [prompt === null ? `${counted(cached, "prompt token")} cached` : `${thousands(cached)} of them cached`]),
    `${counted(outputs, "output token")}${estimated ? " (estimated)" : ""}`,
  ];
  const start = `Request ${id}${kinds ? ` (${kinds})` : ""}, came at ${latencyNumber(came)} ${payload.came}: ${sizes.join(", ")}.`;
  if (error !== null) return `${start} Failed: ${error}. It is counted, and in no figure.`;
  const figures = payload.metrics.map(({ name, short, unit, target }, m) => {
    if (values[m] === null) return `${name === "itl" ? "no gap" : `${short} undefined`}`;
    const judged = target === null ? "" : keeps[m] ? " ✓" : ` ✗ (target ${latencyNumber(target)} ${unit})`;
    return `${name === "itl" ? "longest gap" : short} ${latencyNumber(values[m])} ${unit}${judged}`;
  });
  return `${start} ${figures.join(", ")}.`;
}

/** The chosen metric in figures that a hall can read: ✓ keeps the target, ✗ does not. */
function latencyCards(payload, m, subset) {
  const metric = payload.metrics[m], { name, unit, target } = metric, figures = subset.metrics[name];
  const card = (key, title, value, kept = null) => {
    const sign = kept === null ? [] : [" ", h("i", {}, kept ? "✓" : "✗")];
    return h("div", { class: "kvq-card", "data-k": key, "data-kept": kept === null ? null : Number(kept), title: `${title}: ${value}` }, h("small", {}, title), h("b", {}, value), ...sign);
  };
  const cards = ["mean", "p50", "p90", "p99"].map((key) => {
    const kept = target === null || figures[key] === null ? null : figures.kept.includes(key);
    return card(key, `${key}, ${unit}`, latencyNumber(figures[key]), kept);
  });
  const late = target === null ? card("misses", "no target stated", "–") : card("misses", `miss the ${latencyNumber(target)} ${unit} target`, `${thousands(figures.misses)} of ${thousands(figures.requests)}`, figures.misses ? false : null);
  return [card("metric", LATENCY_NAMES[name], metric.short), ...cards, late];
}

/** All metrics in one table; a metric's name chooses it for the picture. */
function latencyTable(payload, m, subset, choose) {
  const keys = ["mean", "p50", "p90", "p99", "max"];
  const head = h("tr", {}, h("th", { scope: "col" }, "metric"), ...keys.map((key) => h("th", { scope: "col" }, key)));
  const body = h("tbody");
  payload.metrics.forEach(({ name, short, unit, target }, i) => {
    const figures = subset.metrics[name];
    const button = h("button", { type: "button", "data-metric": name, "aria-pressed": String(i === m), title: `Show ${LATENCY_NAMES[name]} (${i + 1})` }, short, h("span", {}, unit));
    button.addEventListener("click", () => choose(i));
    const cells = keys.map((key) => h("td", { "data-kept": target === null || figures[key] === null ? null : Number(figures.kept.includes(key)) }, latencyNumber(figures[key])));
    body.append(h("tr", { "data-row": name, "aria-current": i === m ? "true" : null }, h("th", { scope: "row" }, button), ...cells));
  });
  return h("table", {}, h("thead", {}, head), body);
}

function latencyCounts({ done, failed, estimated, good }) {
  const counts = [`${thousands(done)} completed`, `${thousands(failed)} failed`];
  if (estimated) counts.push(`${thousands(estimated)} with estimated output tokens`);
  if (good !== null) counts.push(`${thousands(good)} kept every target`);
  return counts.join(", ");
}

const latencyWordiest = ({ subsets }) => subsets.flat().reduce((a, b) => (latencyCounts(b).length > latencyCounts(a).length ? b : a));

function latencyFacts(payload, subset) {
  const list = h("ul", { class: "kvq-facts" });
  const add = (name, text, missing) => list.append(h("li", { "data-missing": missing ? "" : null }, h("b", {}, `${missing ? "! " : ""}${name}: `), text));
  add("requests", latencyCounts(subset));
  const missing = payload.conditions.filter(([name]) => name === "not stated");
  for (const [name, text] of [...missing, ...payload.conditions.filter((pair) => !missing.includes(pair))]) add(name, text, name === "not stated");
  return list;
}

function latencySelect(name, label, options, change) {
  const select = h("select", { "data-filter": name, "aria-label": label }, ...options.map((text, i) => h("option", { value: i }, text)));
  if (options.length < 2) select.disabled = true;
  select.addEventListener("change", () => change(Number(select.value)));
  return h("label", {}, label, select);
}

VIEWS.latency_report = (element, payload) => {
  const records = latencyRecords(payload), state = { m: 0, label: 0, length: 0, at: null, kept: null }; // kept: chosen by a press or a key
  const frame = createFrame(element, { view: "latency_report", title: payload.title, hint: `timed at the ${payload.boundary}, ${payload.starts} · one dot a request${payload.metrics.some(({ target }) => target !== null) ? " · ◆ misses the target" : ""}`, css: LATENCY_CSS });
  const { root } = frame, cards = h("div", { class: "kvq-cards" }), plot = h("div", { class: "kvq-plot" });
  const side = h("div", { class: "kvq-side" }), table = h("div"), conditions = h("div", { class: "kvq-conditions", tabindex: "0", role: "group", "aria-label": "conditions and counts" });
  const filters = h("div", { class: "kvq-filters" },
    latencySelect("label", "requests", payload.labels, (i) => filter("label", i)),
    latencySelect("length", "prompt length", payload.lengths, (i) => filter("length", i)));
  side.append(filters, table);
  const ghost = latencyFacts(payload, latencyWordiest(payload)); // holds the height of the longest
  ghost.setAttribute("aria-hidden", "true");
  frame.body.append(h("div", { class: "kvq" }, cards, h("div", { class: "kvq-cols" }, plot, side), conditions));
  const text = h("div", { class: "kv-say-text", role: "status", "aria-live": "polite", "data-say": "" });
  const longest = [...payload.subsets.flat().flatMap((s) => Object.values(s.metrics).map((one) => one.said)), ...records.map((r) => latencySentence(r, payload))].reduce((a, b) => (b.length > a.length ? b : a));
  root.append(h("div", { class: "kv-say" }, text, h("div", { class: "kv-ghost", "aria-hidden": "true" }, longest)));
  root.tabIndex = 0;
  root.setAttribute("aria-description", "Left and right arrows go from request to request by arrival, up and down by value, Home and End to the first and the last, Escape back to the figures. 1 to 4 choose the metric, P switches to large type.");

  const fits = (record) => (!state.label || record.labels.includes(state.label)) && (!state.length || record.length === state.length);
  const subset = () => payload.subsets[state.label][state.length];
  let drawn = null;
  function picture() {
    if (!plot.clientWidth) return;
    drawn = latencyDraw(plot, { records, m: state.m, metric: payload.metrics[state.m], came: payload.came, subset: subset(), fits });
    drawn.show(state.at);
  }
  function show(record, keep = true) {
    state.at = record;
    if (keep) state.kept = record;
    root.dataset.request = record ? records.indexOf(record) : "";
    text.textContent = record ? latencySentence(record, payload) : subset().metrics[payload.metrics[state.m].name].said + (payload.metrics[state.m].name === "itl" ? " Lines: all gaps; a dot: a request's longest." : "");
    drawn?.show(record);
  }
  function refresh() {
    const held = root.ownerDocument.activeElement?.closest("[data-metric]") !== null && root.contains(root.ownerDocument.activeElement);
    cards.replaceChildren(...latencyCards(payload, state.m, subset()));
    table.replaceChildren(latencyTable(payload, state.m, subset(), choose));
    conditions.replaceChildren(latencyFacts(payload, subset()), ghost);
    if (held) table.querySelector("[aria-pressed=true]").focus();
    picture();
    show(state.at && fits(state.at) ? state.at : null);
  }
  function choose(m) {
    state.m = m;
    root.dataset.metric = payload.metrics[m].name;
    refresh();
  }
  function filter(name, i) {
    state[name] = i;
    refresh();
  }
  const presenter = latencyKeys(frame, { records, state, fits, show, choose });
  latencyPointer(plot, { records, state, fits, show, drawn: () => drawn });
  const observer = new ResizeObserver(picture);
  observer.observe(plot);
  choose(payload.metrics.findIndex(({ name }) => name === payload.opens));
  presenter.start();
  return { show: (i) => show(records[i] ?? null), choose, filter, root, destroy: () => { observer.disconnect(); presenter.destroy(); } };
};

/** From request to request: by arrival, or to the next one with a higher or lower value. */
function latencyStep(records, { at, m }, fits, key) {
  const all = records.filter(fits), valued = all.filter((r) => r.values[m] !== null).sort((a, b) => a.values[m] - b.values[m]);
  const byValue = key === "ArrowUp" || key === "ArrowDown", list = byValue ? valued : all, i = list.indexOf(at), last = list.length - 1;
  if (key === "Home" || last < 0) return list[0] ?? null;
  if (key === "End") return list[last];
  if (i < 0) return list[byValue || key === "ArrowLeft" ? last : 0]; // from the figures up or down: the longest first
  return list[Math.min(Math.max(i + (["ArrowRight", "ArrowUp"].includes(key) ? 1 : -1), 0), last)];
}

function latencyKeys({ root, heading }, { records, state, fits, show, choose }) {
  const presenter = presenterSwitch(root, heading);
  root.addEventListener("keydown", (event) => {
    const { key } = event, free = !event.target.closest("select");
    if (isCommand(event)) return;
    const done = free && (key.startsWith("Arrow") || ["Home", "End"].includes(key)) ? () => show(latencyStep(records, state, fits, key))
      : key === "Escape" ? () => show(null)
      : free && ["1", "2", "3", "4"].includes(key) ? () => choose(Number(key) - 1)
      : free && ["p", "P"].includes(key) ? presenter.toggle : null;
    if (done) {
      event.preventDefault();
      done();
    }
    keepFromPage(event);
  });
  return presenter;
}

/** The request under the pointer, if one is near; a press keeps it until the next one. */
function latencyPointer(plot, { records, state, fits, show, drawn }) {
  const nearest = (event) => {
    const box = plot.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, now = drawn();
    let found = null, least = (now.em * 1.3) ** 2;
    for (const record of records) {
      if (!fits(record)) continue;
      const [a, b] = now.place(record), distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least) [found, least] = [record, distance];
    }
    return found;
  };
  plot.addEventListener("pointermove", (event) => drawn() && show(nearest(event) ?? state.kept, false));
  plot.addEventListener("pointerdown", (event) => drawn() && show(nearest(event)));
  plot.addEventListener("pointerleave", () => show(state.kept, false));
}
