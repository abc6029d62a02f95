// The timer "prefill against decode": fields, Run and Stop, a bar of progress, and the view of the passes (section 21.2).

const PHASE_TIMER_CSS = `
.kv[data-view=phase_timer]{padding:.7em 1.15em .6em}.kv[data-view=phase_timer]>.kv-head{margin-bottom:.3em}
.kv[data-view=phase_timer] .kve-controls{display:grid;grid-template-columns:repeat(2,fit-content(15em)) minmax(0,1.4fr) minmax(0,1.05fr) minmax(0,.8fr) minmax(0,.85fr);align-items:end;gap:.3em .9em;margin-bottom:.45em}
.kv[data-view=phase_timer] .kve-field.kve-field{max-width:none;gap:.1em;font-size:1em}
.kv[data-view=phase_timer] select{padding-inline:.3em .1em}.kv[data-view=phase_timer]:not(.kv-large) select{font-size:.95em}
.kv[data-view=phase_timer] :is(select,input[type=text]){height:2em}.kv[data-view=phase_timer] input[type=range]{height:2em}
.kvm{display:flex;align-items:center;gap:.6em;margin-bottom:.4em}
.kv .kvm button{width:auto;padding:0 1em;display:inline-flex;align-items:center;gap:.4em;font-weight:600}
.kv .kvm [data-do=run]:not(:disabled){background:var(--focus);border-color:var(--focus);color:var(--paper)}
.kv .kvm button:disabled{opacity:.45;cursor:default}
.kvm-bar{flex:1 1 30%;height:.75em;border-radius:.4em;background:var(--line);overflow:hidden}
.kvm-bar i{display:block;height:100%;width:0;background:var(--focus);transition:width .2s}
.kvm-now{flex:2 1 40%;min-width:0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv-large .kvm-now{font-weight:500}
.kv[data-view=phase_timer] .kvf{height:20.5em}.kv[data-view=phase_timer].kv-large .kvf{height:17.2em}
.kv .kv[data-view=phases]>.kv-say .kv-say-text{min-height:4.35em}.kv .kv.kv-large[data-view=phases]>.kv-say{margin:.2em 0 .3em;padding:.3em .8em;font-size:.84em}
@media(min-width:1600px){.kv .kv:not(.kv-large)[data-view=phases]>.kv-say .kv-say-text{min-height:2.9em}}
.kv-large[data-view=phase_timer] .kve-field input{font-size:.82em}.kv[data-view=phase_timer].kv-large>.kv-head,.kv-large .kvm{margin-bottom:.2em}
.kv[data-view=phase_timer] .kve-error{margin-bottom:.3em;padding:.2em .8em}
@media(min-width:1600px) and (min-height:900px){.kv[data-view=phase_timer]:not(.kv-large) .kvf{height:27em}}
@media(max-width:760px){.kv[data-view=phase_timer] .kve-controls{grid-template-columns:repeat(2,minmax(0,1fr))}.kv[data-view=phase_timer] .kvf{height:auto}}
@media(prefers-reduced-motion:reduce){.kvm-bar i{transition:none}}
`;
const STOP_ICON = "M4.5 4.5h11v11h-11z";

/** Run, Stop, the bar, and what is measured now. */
function phaseTimerRow(act) {
  const button = (name, label, path) => {
    const made = h("button", { type: "button", "data-do": name }, icon(path), label);
    made.addEventListener("click", () => act(name));
    return made;
  };
  const run = button("run", "Run", ICONS.play), stop = button("stop", "Stop", STOP_ICON);
  const fill = h("i"), now = h("span", { class: "kvm-now", role: "status" });
  const bar = h("div", { class: "kvm-bar", role: "progressbar", "aria-label": "measured", "aria-valuemin": "0", "aria-valuemax": "100" }, fill);
  const element = h("div", { class: "kvm" }, run, stop, bar, now);
  const show = ({ running, part, now: text, runs }, model) => {
    const percent = Math.round(100 * part);
    fill.style.width = `${running ? Math.max(percent, 2) : percent}%`;
    bar.setAttribute("aria-valuenow", String(percent));
    bar.setAttribute("aria-valuetext", running ? `${percent} %: ${text}` : text || "not running");
    const idle = runs ? "" : "Ready. Leave the machine alone while it measures.";
    now.textContent = now.title = text || (model ? idle : "With a running kernel these passes can be timed.");
    const focused = [run, stop].includes(document.activeElement);
    run.disabled = !model || running;
    stop.disabled = !model || !running;
    if (focused) (running ? stop : run).focus({ preventScroll: true });
  };
  return { element, show };
}

VIEWS.phase_timer = (element, payload, { model }) => {
  const frame = createFrame(element, { view: "phase_timer", title: payload.title, css: EDITOR_CSS + PHASE_TIMER_CSS });
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenterKey(frame.root, presenter.toggle);
  const about = frame.heading.querySelector(".kv-hint");
  const fields = new Map(), controls = h("div", { class: "kve-controls" });
  for (const control of payload.controls) {
    const field = createField(control, () => {}, () => {});
    fields.set(control.name, field);
    controls.append(field.element);
  }
  const read = () => Object.fromEntries([...fields].map(([name, field]) => [name, field.get()]));
  const send = { run: () => ({ kind: "run", inputs: read() }), stop: () => ({ kind: "stop" }) };
  const row = phaseTimerRow((name) => {
    if (name === "run") row.show({ running: true, part: 0, now: "Starting. A busy kernel starts once its cell is done.", runs: 1 }, model);
    model.send(send[name]());
  });
  const trouble = h("div"), slot = h("div");
  frame.body.append(controls, row.element, trouble, slot);
  let nested = null, drawn = "", inputs = "";

  function drawView(view) {
    const text = JSON.stringify(view);
    if (text === drawn) return;
    drawn = text;
    const at = nested?.touched ? nested.stop() : null; // the reader's own stop, else the newest point
    nested?.destroy();
    slot.style.minHeight = `${slot.offsetHeight}px`; // the page keeps its place while it is empty
    slot.replaceChildren();
    const newest = view.newest === null ? 0 : view.newest + 1;
    nested = VIEWS.phases(slot, view, { at: (stops) => Math.min(at ?? newest, stops.length - 1) });
    nested.touched = at !== null;
    slot.style.minHeight = "";
  }
  for (const name of ["pointerdown", "keydown"]) slot.addEventListener(name, () => { nested.touched = true; }, { capture: true });

  function adopt(values) {
    const text = JSON.stringify(values);
    if (text === inputs) return; // what the reader types meanwhile stays
    inputs = text;
    for (const [name, field] of fields) field.set(values[name]);
  }
  function show(state) {
    if (state.running && frame.root.dataset.running === undefined && nested) nested.touched = false; // a new run shows its points
    frame.root.toggleAttribute("data-running", state.running);
    frame.root.dataset.runs = String(state.runs);
    for (const field of fields.values()) field.input.disabled = !model || state.running;
    row.show(state, model);
    trouble.replaceChildren();
    if (state.error) trouble.append(h("div", { class: "kve-error", role: "alert" }, h("b", {}, "✗ "), state.error));
    drawView(state.view);
    about.textContent = about.title = state.view.about;
    const empty = slot.querySelector("[data-empty]");
    if (empty) empty.textContent = state.running ? "measuring …" : "press Run";
  }
  const changed = () => {
    const state = model.get("state");
    adopt(state.inputs);
    show(state);
  };
  frame.root.addEventListener("keydown", (event) => {
    const asks = event.key === "Enter" && !isCommand(event) && event.target.matches("input[type=text]");
    if (asks) row.element.querySelector("[data-do=run]").click(); // no click while it is disabled
    keepFromPage(event);
  });

  const state = model ? model.get("state") : payload.state;
  adopt(state.inputs);
  show(state);
  presenter.start();
  model?.on("change:state", changed);
  const destroy = () => {
    model?.off("change:state", changed);
    nested?.destroy();
    presenter.destroy();
  };
  return { destroy };
};
