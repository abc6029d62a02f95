// The live editors: controls on top, then lines of text and a view, all computed by Python.

const EDITOR_CSS = `
.kv[data-view=editor]{padding:.7em 1.15em .6em}.kv[data-view=editor]>.kv-head{margin-bottom:.3em}
.kve-controls{display:flex;flex-wrap:wrap;gap:.4em 1.2em;align-items:center;margin-bottom:.5em}
.kve-field{display:grid;gap:0 .7em;flex:1 1 8.4em;max-width:15em;min-width:0}
.kve-field[data-kind=text]{flex:4 1 17em;max-width:none;grid-template-columns:fit-content(9em) minmax(0,1fr);align-items:center}
.kve-field:is([data-kind=choice],[data-kind=line]){gap:.15em;flex-basis:12.2em}.kve-field[data-kind=choice]{flex-basis:max-content}.kve-field[data-control=presets]{flex-grow:2;max-width:28em}
@media(min-width:700px){.kve-field[data-control=value_size]{flex-grow:0;max-width:none;gap:0 .6em;grid-template-columns:max-content max-content;align-items:center}}
.kve-field label{color:var(--soft);font-size:.9em;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.kve-field output{color:var(--ink);font-weight:600;margin-left:.4em}
.kve-field :is(textarea,select,input[type=text]){width:100%;margin:0;padding:.25em .6em;font:inherit;color:var(--ink);background:var(--paper);
 border:1px solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-radius:6px;resize:none}
.kve-field input[type=range]{width:100%;height:1.6em;margin:0;accent-color:var(--focus)}
.kve-error{margin-bottom:.6em;padding:.45em .8em;border:1.5px solid var(--bad);border-left-width:5px;border-radius:6px;color:var(--ink);overflow-wrap:anywhere}
.kve-error b{color:var(--bad)}
.kve-lines:empty{display:none}.kve-lines{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15em .9em;align-content:start;align-items:baseline;
 min-height:3.1em;margin:0 0 .5em}
.kve-name{color:var(--soft)}.kve-text{overflow-wrap:anywhere;white-space:pre-wrap}
.kve-text[data-kind=answer]{font-size:1.15em;font-weight:600;line-height:1.3}
.kve-text[data-kind=notice]::before{content:"! ";color:var(--bad);font-weight:700}
.kv .kv{margin:0;padding:.5em 0 0;border:0;border-top:1px solid var(--line);border-radius:0}
.kv .kv.kv-large{padding:.4em 0 0}.kv-large .kve-field:is([data-kind=slider],[data-kind=steps]){flex-basis:7.9em}.kv-large .kve-field label{font-size:max(.82em,12.6px)}
.kv-large .kve-field[data-control=presets]~:is([data-kind=slider],[data-kind=steps]){flex-basis:9.8em}
.kv-large .kve-field select{font-size:max(.82em,14px)}.kv-large .kve-controls{gap:.3em .8em}
.kv-framed[data-view=editor]>.kv-body,.kv-framed .kve-slot{display:flex;flex-direction:column}.kv-framed .kve-slot{flex:1;min-height:0}.kv-framed :is(.kve-controls,.kve-lines,.kve-error){flex:none}
.kv .kv>.kv-head{display:none}.kv .kv>.kv-say{margin:.5em 0 .4em}
`;

/** Sends inputs one at a time and keeps only the newest while it waits.
 *
 * Where an update takes longer than `slow` ms, a drag sends its first value at once and the next
 * one on release or after `rest` ms without a change: two updates, however many steps it has.
 */
function latestWins(send, { slow = 50, rest = 300 } = {}) {
  let newest = null, busy = false, isSlow = false, released = false;
  let sentAt = 0, pushedAt = -Infinity, timer = null;
  const flush = () => {
    clearTimeout(timer);
    if (busy || newest === null) return;
    const inputs = newest;
    newest = null;
    busy = true;
    sentAt = performance.now();
    send(inputs);
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(flush, Math.max(rest - (performance.now() - pushedAt), 0));
  };
  return {
    push(inputs) {
      const inBurst = performance.now() - pushedAt < rest;
      newest = inputs;
      released = false;
      pushedAt = performance.now();
      if (busy) return;
      if (isSlow && inBurst) later();
      else flush();
    },
    release() {
      released = true;
      flush();
    },
    done() {
      busy = false;
      isSlow = performance.now() - sentAt > slow;
      if (newest !== null) isSlow && !released ? later() : flush();
    },
    destroy: () => clearTimeout(timer),
  };
}

let fieldCount = 0;

const FIELD_INPUTS = {
  slider: (id, { minimum, maximum }) => h("input", { id, type: "range", min: minimum, max: maximum, step: "1" }),
  steps: (id, { values }) => h("input", { id, type: "range", min: "0", max: values.length - 1, step: "1" }),
  choice: (id, { options }) => h("select", { id }, ...options.map((word) => h("option", { value: word }, word))),
  line: (id) => h("input", { id, type: "text", spellcheck: "false", autocomplete: "off" }),
  text: (id, { rows }) => h("textarea", { id, rows, spellcheck: "false" }),
};

/** One labelled control. Returns { element, input, get, set }, and where it needs them: update(view),
 *  told of each view that is drawn; room, an element for the other controls; accepted(value) and rejected(value), told of the answer to what
 *  was sent, with the last value that worked; keydown(event), told of each key pressed in the editor.
 */
function createField(control, onInput, onRelease) {
  if (control.kind === "script") return createScriptField(control, () => { onInput(); onRelease(); });
  const id = `kve-${++fieldCount}-${Math.random().toString(36).slice(2, 8)}`;
  const label = h("label", { for: id }, control.label);
  const element = h("div", { class: "kve-field", "data-kind": control.kind, "data-control": control.name }, label);
  const input = FIELD_INPUTS[control.kind](id, control);
  const output = h("output", { for: id });
  const isRange = input.type === "range";
  if (isRange) label.append(output);
  const { values } = control; // of steps: the input itself counts 0, 1, 2, ...
  const get = () => (values ? values[Number(input.value)] : isRange ? Number(input.value) : input.value);
  const show = () => {
    if (!isRange) return;
    output.textContent = thousands(get());
    input.setAttribute("aria-valuetext", thousands(get()));
  };
  const changes = control.kind === "line" ? "change" : "input"; // half a line means nothing yet
  input.addEventListener(changes, () => { show(); onInput(); });
  input.addEventListener("change", onRelease);
  element.append(input);
  const set = (value) => { input.value = values ? values.indexOf(value) : value; show(); };
  return { element, input, get, set };
}

/** A choice that sets several controls at once, and that names the preset they agree with. */
function createPresets({ presets, own = "your own numbers" }, fields, onChoice) {
  const options = [own, ...presets.map(({ name }) => name)];
  const control = { name: "presets", label: "Start from", kind: "choice", options };
  const agrees = ({ inputs }) => Object.entries(inputs).every(([name, value]) => fields.get(name).get() === value);
  const field = createField(control, () => {
    const chosen = presets.find(({ name }) => name === field.get());
    for (const [name, value] of Object.entries(chosen?.inputs ?? {})) fields.get(name).set(value);
    onChoice();
  }, () => {});
  const update = () => field.set(presets.find(agrees)?.name ?? own);
  return { ...field, update };
}

VIEWS.editor = (element, payload, { model }) => {
  const frame = createFrame(element, { view: "editor", title: payload.title, css: EDITOR_CSS });
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenterKey(frame.root, presenter.toggle);
  const mine = Math.random().toString(36).slice(2);
  let number = 0, nested = null, drawn = "", waiting = null;

  const channel = latestWins((inputs) => {
    number += 1;
    setBusy(true);
    model.send({ kind: "inputs", inputs, from: [mine, number] });
  });
  const fields = new Map();
  const read = () => Object.fromEntries([...fields].map(([name, field]) => [name, field.get()]));
  const controls = h("div", { class: "kve-controls" });
  let presets = null;
  for (const control of payload.controls) {
    const field = createField(control, () => { presets?.update(); channel.push(read()); }, () => channel.release());
    field.input.disabled = !model;
    fields.set(control.name, field);
  }
  const pad = [...fields.values()].find(({ room }) => room); // it has room for the other controls
  for (const field of fields.values()) (field === pad ? controls : pad?.room ?? controls).append(field.element);
  if (payload.presets) {
    presets = createPresets(payload, fields, () => { presets.update(); channel.push(read()); channel.release(); });
    presets.input.disabled = !model;
    if (pad) frame.heading.querySelector(".kv-title").after(presets.element);
    else controls.prepend(presets.element);
  }
  const state = frame.heading.querySelector(".kv-hint");
  state.setAttribute("role", "status");
  const trouble = h("div");
  const lines = h("div", { class: "kve-lines" });
  const slot = h("div", { class: "kve-slot" });
  frame.body.append(controls, trouble, lines, slot);

  function setBusy(on) {
    clearTimeout(waiting);
    frame.root.toggleAttribute("data-busy", on);
    if (!on) return;
    state.textContent = "Computing …";
    waiting = setTimeout(() => { state.textContent = "No answer from the kernel yet; is it busy or stopped?"; }, 5000);
  }
  function drawState(error) {
    frame.root.toggleAttribute("data-error", Boolean(error));
    trouble.replaceChildren();
    state.textContent = model ? "Up to date." : "With a running kernel these inputs can be changed.";
    if (!error) return;
    trouble.append(h("div", { class: "kve-error", role: "alert" }, h("b", {}, "✗ "), error));
    state.textContent = "What stands below belongs to the last inputs that worked.";
  }
  function drawView(view) {
    const text = JSON.stringify(view);
    if (text === drawn) return;
    drawn = text;
    const old = nested?.touched && nested.stop ? nested.stop() : null;
    const before = nested && { view: nested.drawn, stop: nested.stop?.() };
    nested?.destroy();
    slot.style.minHeight = `${slot.offsetHeight}px`; // the page keeps its place while it is empty
    slot.replaceChildren();
    nested = null;
    if (view) drawNested(view, old, before);
    slot.style.minHeight = "";
    presenter.settle();
  }
  function drawNested(view, old, before) {
    // The fullest picture first; afterwards the stop at which the reader was.
    const at = (stops) => old ?? Math.max(stops.length - 2, 0);
    nested = VIEWS[view.view](slot, view, { at, before });
    Object.assign(nested, { drawn: view, touched: old !== null });
    const touch = () => { if (nested) nested.touched = true; };
    for (const name of ["pointerdown", "keydown"]) slot.addEventListener(name, touch, { once: true, capture: true });
  }
  function show(result) {
    lines.replaceChildren();
    for (const [label, text, kind] of result.lines) lines.append(h("span", { class: "kve-name" }, label), h("span", { class: "kve-text", "data-kind": kind }, text));
    drawState(result.error);
    drawView(result.view);
    for (const field of fields.values()) field.update?.(result.view);
    frame.root.dataset.updates = String(result.updates);
  }
  function answered() {
    const result = model.get("result");
    const [who, which] = result.answers ?? [];
    const own = who === mine && which === number;
    if (own) setBusy(false);
    const told = result.error ? "rejected" : "accepted";
    if (own) for (const [name, field] of fields) field[told]?.(result.inputs[name]);
    show(result);
    if (own) channel.done();
    else if (who !== mine) adopt(result.inputs); // changed from a cell or another view
  }
  function adopt(inputs) {
    for (const [name, field] of fields) field.set(inputs[name]);
    presets?.update();
  }
  frame.root.addEventListener("keydown", (event) => {
    for (const field of fields.values()) field.keydown?.(event);
    keepFromPage(event);
  });

  const result = model ? model.get("result") : payload.result;
  adopt(result.inputs);
  show(result);
  presenter.start();
  model?.on("change:result", answered);
  const destroy = () => {
    model?.off("change:result", answered);
    clearTimeout(waiting);
    channel.destroy();
    nested?.destroy();
    presenter.destroy();
  };
  return { destroy };
};
