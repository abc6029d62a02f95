// The live editors: controls on top, then lines of text and a view, all computed by Python.

const EDITOR_CSS = `
.kve-controls{display:flex;flex-wrap:wrap;gap:.7em 1.6em;align-items:flex-end;margin-bottom:.8em}
.kve-field{display:grid;gap:.2em;flex:1 1 17em;min-width:0}.kve-field[data-kind=slider],.kve-field[data-kind=choice]{flex:0 1 15em}
.kve-field label{color:var(--soft);font-size:.9em}.kve-field output{color:var(--ink);font-weight:600;margin-left:.4em}
.kve-field textarea,.kve-field select{width:100%;margin:0;padding:.4em .6em;font:inherit;color:var(--ink);background:var(--paper);
 border:1px solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-radius:6px;resize:none}
.kve-field input[type=range]{width:100%;height:1.6em;margin:0;accent-color:var(--focus)}
.kve-error{margin-bottom:.6em;padding:.45em .8em;border:1.5px solid var(--bad);border-left-width:5px;border-radius:6px;color:var(--ink);overflow-wrap:anywhere}
.kve-error b{color:var(--bad)}
.kve-lines{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15em .9em;align-content:start;align-items:baseline;
 min-height:4.6em;margin:0 0 .6em}
.kve-name{color:var(--soft)}.kve-text{overflow-wrap:anywhere;white-space:pre-wrap}
.kve-text[data-kind=answer]{font-size:1.15em;font-weight:600;line-height:1.3}
.kve-text[data-kind=notice]::before{content:"! ";color:var(--bad);font-weight:700}
.kv .kv{margin:0;padding:.9em 0 0;border:0;border-top:1px solid var(--line);border-radius:0}
.kv .kv>.kv-head{display:none}
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

/** One labelled control. Returns { element, get, set }. */
function createField(control, onInput, onRelease) {
  const id = `kve-${++fieldCount}-${Math.random().toString(36).slice(2, 8)}`;
  const label = h("label", { for: id }, control.label);
  const element = h("div", { class: "kve-field", "data-kind": control.kind, "data-control": control.name }, label);
  let input;
  const output = h("output", { for: id });
  if (control.kind === "slider") {
    input = h("input", { id, type: "range", min: control.minimum, max: control.maximum, step: "1" });
    label.append(output);
  } else if (control.kind === "choice") {
    input = h("select", { id }, ...control.options.map((word) => h("option", { value: word }, word)));
  } else {
    input = h("textarea", { id, rows: control.rows, spellcheck: "false" });
  }
  const show = () => { output.textContent = input.value; };
  input.addEventListener("input", () => { show(); onInput(); });
  input.addEventListener("change", onRelease);
  element.append(input);
  return {
    element, input,
    get: () => (control.kind === "slider" ? Number(input.value) : input.value),
    set: (value) => { input.value = value; show(); },
  };
}

VIEWS.editor = (element, payload, { model }) => {
  const frame = createFrame(element, { view: "editor", title: payload.title, css: EDITOR_CSS });
  const presenter = presenterSwitch(frame.root, frame.heading);
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
  for (const control of payload.controls) {
    const field = createField(control, () => channel.push(read()), () => channel.release());
    field.input.disabled = !model;
    fields.set(control.name, field);
    controls.append(field.element);
  }
  const state = frame.heading.querySelector(".kv-hint");
  state.setAttribute("role", "status");
  const trouble = h("div");
  const lines = h("div", { class: "kve-lines" });
  const slot = h("div");
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
    const old = nested && nested.touched ? nested.stop() : null;
    nested?.destroy();
    slot.replaceChildren();
    nested = null;
    if (!view) return;
    // The fullest picture first; afterwards the stop at which the reader was.
    const at = (stops) => old ?? Math.max(stops.length - 2, 0);
    nested = VIEWS[view.view](slot, view, { at });
    nested.touched = old !== null;
    const touch = () => { if (nested) nested.touched = true; };
    for (const name of ["pointerdown", "keydown"]) slot.addEventListener(name, touch, { once: true, capture: true });
  }
  function show(result) {
    lines.replaceChildren();
    for (const [label, text, kind] of result.lines) lines.append(h("span", { class: "kve-name" }, label), h("span", { class: "kve-text", "data-kind": kind }, text));
    drawState(result.error);
    drawView(result.view);
    frame.root.dataset.updates = String(result.updates);
  }
  function answered() {
    const result = model.get("result");
    const [who, which] = result.answers ?? [];
    const own = who === mine && which === number;
    if (own) setBusy(false);
    show(result);
    if (own) channel.done();
    else if (who !== mine) adopt(result.inputs); // changed from a cell or another view
  }
  function adopt(inputs) {
    for (const [name, field] of fields) field.set(inputs[name]);
  }
  frame.root.addEventListener("keydown", keepFromPage);

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
