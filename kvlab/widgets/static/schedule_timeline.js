// The view "schedule timeline": requests down, steps or time across, one axis and one cursor for all runs (section 21.3).

const SCHEDULE_NOTE = "Blue ticks are steps with work on prompts, orange ones decode only.";

/** Where to stop: each step number, or in real time each moment at which a step begins; [[axis, [step of each run]]]. */
function scheduleStops(runs, clock) {
  const all = runs.flatMap((run) => run.numbers.map(run.begin));
  const moments = [...new Set(all)].sort((a, b) => a - b);
  const at = runs.map(() => -1);
  const stops = [[null, runs.map(() => null)]];
  for (const moment of moments) {
    runs.forEach((run, r) => { while (at[r] + 1 < run.numbers.length && run.begin(run.numbers[at[r] + 1]) <= moment) at[r] += 1; });
    const steps = runs.map((run, r) => {
      const number = run.numbers[at[r]];
      if (at[r] < 0) return "early";
      return run.end(number) > moment || (clock === "time" && at[r] + 1 < run.numbers.length) ? number : at[r] + 1 < run.numbers.length ? "idle" : "over";
    });
    stops.push([moment, steps]);
  }
  return stops;
}

function scheduleSentence(run, step, alone) {
  const who = alone ? "" : `${run.title}, `, begins = alone ? "Before " : `${run.title}, before `;
  if (step === null) return `${begins}step ${run.numbers[0]}: ${run.before}`;
  if (step === "early") return `${run.title}: nothing has begun.`;
  if (step === "over") return `${run.title}: all is over since step ${run.numbers.at(-1)}.`;
  if (step === "idle") return `${run.title}: nothing to do, the next request is still to come.`;
  return `${who}${alone ? "Step" : "step"} ${step}: ${run.said[run.index.get(step)]}`;
}

/** What a stop's tick shows: work on prompts in any run, else decodes, else neither. */
function scheduleTickKind(runs, steps) {
  const there = ([, first, count], step) => first <= step && step < first + count;
  const does = (kind) => runs.some(({ requests }, r) => requests.some(({ spans }) => spans.some((span) => span[0] === kind && there(span, steps[r]))));
  return does("P") ? "P" : does("D") ? "O" : "S";
}

/** Where the view opens: where somebody has lost its blocks or is delayed, at best where the runs differ; else at the first step. */
function scheduleTelling(runs, places) {
  const within = (letters, step) => ([letter, first, count]) => letters.includes(letter) && first <= step && step < first + count;
  const some = (letters) => ([, steps]) => runs.some(({ requests }, r) => requests.some(({ spans }) => spans.some(within(letters, steps[r]))));
  const said = (run, step) => run.said[run.index.get(step)] ?? step;
  const differ = ([, steps]) => runs.some((run, r) => said(run, steps[r]) !== said(runs[0], steps[0]));
  const lost = some("xO!"), delayed = some("wi");
  const tells = [(place) => lost(place) && differ(place), (place) => delayed(place) && differ(place), lost, delayed];
  return tells.map((fits) => places.findIndex(fits)).find((i) => i > 0) ?? 1;
}

/** An editor asks for the reader's stop; where there was no reader at one, the view chooses. */
function scheduleStart(runs, places, { at, before }) {
  const asked = at?.(places), nested = before !== undefined;
  return asked === undefined || (nested && before?.stop !== asked) ? scheduleTelling(runs, places) : asked;
}

/** A small box as it is drawn, and what it means. */
function scheduleKey(letter, name, gives = false) {
  const svg = scheduleSvg("svg", { viewBox: "0 0 18 15", "aria-hidden": "true" });
  svg.append(scheduleSvg("path", { class: "kvs-c", "data-k": letter, d: "M1 1h16v13h-16z" }));
  if (letter in SCHEDULE_HATCH) svg.append(scheduleSvg("path", { class: "kvs-h", "data-k": letter, d: scheduleHatch(SCHEDULE_HATCH[letter], 1, 1, 16, 13) }));
  if (gives) svg.append(scheduleFirst(17, 1, 8));
  else svg.append(scheduleSvg("text", { class: "kvs-t kvs-c", "data-k": letter, x: 9, y: 8, "font-size": 11 }, letter));
  return h("span", { class: "kvs-key", title: name }, svg, name);
}

/** Kinds that occur, each with its colour, hatch and letter. */
function scheduleLegend(runs) {
  const used = new Set(runs.flatMap((run) => run.requests.flatMap(({ spans }) => spans.map(([letter]) => letter))));
  const legend = h("span", { class: "kvs-legend" });
  for (const [letter, name] of Object.entries(SCHEDULE_KINDS)) {
    if (!used.has(letter)) continue;
    legend.append(scheduleKey(letter, name));
  }
  if (used.has("P")) legend.append(scheduleKey("P", "first output", true));
  return legend;
}

VIEWS.schedule = (element, payload, options) => {
  let view = scheduleTimeline(element, payload, options, again);
  function again(clock) {
    view.destroy();
    view = scheduleTimeline(element, { ...payload, clock }, options, again);
    view.root.focus();
  }
  return { show: (i) => view.show(i), stop: () => view.stop(), destroy: () => view.destroy() };
};

/** What of the axis is seen: all of it, or a half, a quarter ... around the cursor. */
function scheduleCamera(from, to, count) {
  const most = Math.max(Math.floor(Math.log2(count / 12)), 0);
  const camera = { zoom: 0, most, view: [from, to], follow, set };
  /** Returns whether the view has to move so that `at` is well inside. */
  function follow(at) {
    const length = (to - from) / 2 ** camera.zoom, [left, right] = camera.view;
    const alike = Math.abs(right - left - length) < 1e-9 * length;
    if (alike && (!camera.zoom || (at >= left + length * 0.05 && at <= right - length * 0.15))) return false;
    const start = Math.min(Math.max(at - length * 0.4, from), to - length);
    const same = alike && Math.abs(start - left) < 1e-9 * length;
    camera.view = [start, start + length];
    return !same;
  }
  function set(zoom, at) {
    camera.zoom = Math.min(Math.max(zoom, 0), most);
    return follow(at);
  }
  return camera;
}

/** Axis on top, panels below, the cursor over all of them. */
function scheduleBody(frame, payload, runs) {
  const nested = frame.root.parentElement.closest(".kv") !== null, timed = payload.clock === "time";
  const most = { waiting: Math.max(...runs.flatMap((run) => run.waiting)), free: Math.max(...runs.map((run) => run.blocks)) };
  const legend = scheduleLegend(runs);
  if (nested) frame.body.append(legend); // there its heading is not shown
  else frame.heading.querySelector(".kv-hint").replaceWith(legend);
  const panels = runs.map((run) => schedulePanel(run, { payload, most }));
  const scale = h("div", { class: "kvs-scale" });
  const heads = ["wait", "TTFT", "gap", "end"].map((name) => h("span", {}, name));
  const four = h("div", { class: "kvs-four", title: `delays in ${timed ? payload.unit : "steps"}: before the first part in a step, until the first output, the longest between two outputs, until the end` }, ...heads);
  const axis = h("div", { class: "kvs-axis" }, h("div", { class: "kvs-line" }, h("span", {}, timed ? `time, ${payload.unit}` : "step"), scale, four));
  const cursor = h("div", { class: "kvs-cursor" });
  const body = h("div", { class: "kvs" }, axis, ...panels.map((panel) => panel.element), cursor);
  frame.body.append(body);
  return { body, panels, scale, cursor };
}

function scheduleTimeline(element, payload, options, again) {
  const frame = createFrame(element, { view: "schedule", title: payload.title, css: CELLS_CSS + SCHEDULE_CSS });
  const { clock } = payload, timed = clock === "time", runs = payload.runs.map((run) => scheduleRun(run, clock));
  const { body, panels, scale, cursor } = scheduleBody(frame, payload, runs);
  const places = scheduleStops(runs, clock), alone = runs.length === 1;
  const stops = places.map(([, steps]) => ({
    kind: scheduleTickKind(runs, steps),
    sentence: runs.map((run, r) => scheduleSentence(run, steps[r], alone)).join("\n"),
  }));
  const from = Math.min(...runs.map((run) => run.from)), to = Math.max(...runs.map((run) => run.to));
  const camera = scheduleCamera(from, to, places.length - 1);
  const step = h("span", { class: "kvs-here" });
  let current = 0, size = null, zooms = null, marks = [];

  const here = () => places[current][0] ?? from;
  const tell = (i) => (i === 0 ? "before the start" : timed ? `at ${places[i][0]} ${payload.unit}` : `step ${thousands(places[i][0])} of ${thousands(to - 1)}`);
  const x = (at) => ((at - camera.view[0]) * size.inner) / (camera.view[1] - camera.view[0]);
  function redraw() {
    const measured = scheduleSize(frame, runs, camera.zoom), steps = (places.length - 1) / 2 ** camera.zoom;
    const inner = timed ? measured.width : Math.min(measured.width, steps * measured.full * 6);
    size = { ...measured, inner, x, view: camera.view, cell: inner / steps };
    for (const panel of panels) panel.draw(size);
    marks = scheduleTicks(camera.view, inner, size.full * (timed ? 5 : 2.2), !timed).map((at) => {
      const label = h("span", {}, timed ? String(at) : thousands(at)), left = x(at) + (timed ? 0 : size.cell / 2);
      label.style.left = `${left}px`;
      return { label, left };
    });
    scale.replaceChildren(...marks.map(({ label }) => label), step);
    body.dataset.zoom = camera.zoom;
    zooms?.update();
    place();
  }
  function place() {
    const [at, steps] = places[current];
    const end = timed ? Math.min(...runs.map((run, r) => (typeof steps[r] === "number" ? run.end(steps[r]) : Infinity)).filter((e) => e > at), to) : at + 1;
    cursor.hidden = at === null;
    cursor.style.width = `${Math.max(x(end) - x(at), 3)}px`;
    cursor.style.transform = `translateX(${(size.left + x(at)).toFixed(1)}px)`;
    placeStep(at);
    runs.forEach((_, r) => panels[r].show(steps[r]));
  }
  /** The cursor's own number, whether or not the axis has it; numbers that it would cover make way. */
  function placeStep(at) {
    step.hidden = timed || at === null;
    const left = x(at) + size.cell / 2, digit = 0.52 * size.full, text = step.hidden ? "" : thousands(at);
    step.textContent = text;
    step.style.left = `${left}px`;
    step.style.background = size.cell > digit * text.length + 8 ? "none" : ""; // else it lies on the cursor's edges
    for (const mark of marks) {
      const covered = !step.hidden && Math.abs(mark.left - left) < (digit * (text.length + mark.label.textContent.length)) / 2 + 4;
      mark.label.style.visibility = covered ? "hidden" : "";
    }
  }
  function draw(i) {
    current = i;
    scheduleCount(frame.root, tell(i));
    if (size === null) return;
    if (camera.follow(here())) redraw();
    else place();
  }
  const zoomBy = (by) => { if (camera.set(camera.zoom + by, here())) redraw(); };
  const player = createPlayer(frame, { stops, draw, ticks: SCHEDULE_NOTE, at: scheduleStart(runs, places, options), onChange: options.onChange });
  zooms = scheduleButtons(frame.root, payload, camera, { again, zoomBy });
  scheduleCountRoom(frame.root, places.map((_, i) => tell(i)));
  scheduleGhost(frame, runs, alone);
  scheduleDrag(body, (pixels) => {
    const at = camera.view[0] + ((pixels - size.left) * (camera.view[1] - camera.view[0])) / size.inner;
    player.show(Math.max(places.findLastIndex(([moment]) => moment === null || moment <= at), 1));
  });
  let last = "";
  const layout = () => {
    const key = [body.clientWidth, frame.root.clientHeight, getComputedStyle(frame.root).fontSize, frame.root.className].join();
    if (key === last || !body.clientWidth) return; // as before, or not on a page yet
    last = key;
    redraw();
  };
  const observer = new ResizeObserver(layout);
  observer.observe(frame.root);
  layout();
  return { ...player, root: frame.root, destroy: () => { observer.disconnect(); player.destroy(); } };
}

/** The player counts stops; a reader counts steps. */
function scheduleCount(root, text) {
  root.querySelector(".kv-count").textContent = text;
  root.querySelector(".kv-track").setAttribute("aria-valuetext", text);
}

/** Unseen lines below the count keep the room of the widest one: the bar stands still. All digits are of one width. */
function scheduleCountRoom(root, texts) {
  root.querySelector(".kv-count").dataset.room = [...new Set(texts.map((text) => text.replace(/\d/g, "0")))].join("\n");
}

/** Beside the slider: steps or time, and the zoom with its keys. */
function scheduleButtons(root, payload, camera, { again, zoomBy }) {
  const button = (name, label, text, action) => {
    const made = h("button", { type: "button", class: "kvs-b", "data-do": name, "aria-label": label, title: label }, text);
    made.addEventListener("click", action);
    return made;
  };
  const out = button("zoom-out", "Zoom out (−)", "−", () => zoomBy(-1)), into = button("zoom-in", "Zoom in around the cursor (+)", "+", () => zoomBy(1));
  const other = payload.clock === "time" ? "steps" : "time";
  const swap = button("clock", other === "time" ? "Show measured times instead of steps" : "Show steps instead of times", other, () => again(other));
  root.querySelector(".kv-count").before(...(payload.unit ? [swap] : []), ...(camera.most ? [out, into] : []));
  root.setAttribute("aria-description", `${root.getAttribute("aria-description")} Plus and minus zoom.`);
  root.addEventListener("keydown", (event) => {
    const by = { "+": 1, "=": 1, "-": -1 }[event.key];
    if (by === undefined || isCommand(event)) return;
    event.preventDefault();
    zoomBy(by);
  });
  const update = () => {
    for (const [made, off] of [[into, camera.zoom === camera.most], [out, camera.zoom === 0]]) made.setAttribute("aria-disabled", String(off));
  };
  update();
  return { update };
}

/** Room for the longest sentence of each run together, so that nothing moves while scrubbing. */
function scheduleGhost(frame, runs, alone) {
  const longest = runs.map((run) => run.numbers.map((number) => scheduleSentence(run, number, alone)).reduce((a, b) => (b.length > a.length ? b : a)));
  frame.root.querySelector(".kv-say").append(h("div", { class: "kv-ghost", "aria-hidden": "true" }, longest.join("\n")));
}
