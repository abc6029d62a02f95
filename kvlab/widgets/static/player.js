// Shared by all views: patches, elements, theme, and the player that walks through stops.
// The files of a view are joined into one ES module: no imports, no network (kvlab/widgets/modules.py).

const VIEWS = {}; // name -> (element, payload, options) => { destroy }

// ---- the trace

/** The state after a patch; the inverse of kvlab.core.trace.patch_of. The given state is kept. */
function applyPatch(state, patch) {
  const result = Object.assign(Object.create(null), state);
  for (const [key, change] of Object.entries(patch)) {
    const before = state[key];
    const isDict = change !== null && typeof change === "object" && !Array.isArray(change);
    if (Array.isArray(before) && isDict) {
      const end = change.at + change.cut;
      result[key] = [...before.slice(0, change.at), ...change.put, ...before.slice(end)];
    } else if (isDict && before !== null && typeof before === "object") {
      result[key] = applyPatch(before, change);
    } else {
      result[key] = change;
    }
  }
  return result;
}

/** Frames of a trace document, in order: index 0 is the start and has no event. */
function* framesOf(trace) {
  let state = Object.assign(Object.create(null), trace.initial);
  yield { index: 0, event: null, state };
  for (const [i, event] of trace.events.entries()) {
    state = applyPatch(state, event.patch);
    yield { index: i + 1, event, state };
  }
}

// ---- elements: text is always a text node, never markup

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A box that scrolls in itself and takes the keyboard for it; the bare arrows stay the player's. */
function scroller(attributes, ...children) {
  const label = `${attributes["aria-label"]} Shift with the left or right arrow scrolls.`;
  const element = h("div", { tabindex: "0", role: "region", ...attributes, "aria-label": label }, ...children);
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.target !== element || !by || !event.shiftKey || isCommand(event)) return;
    event.preventDefault();
    event.stopPropagation();
    element.scrollLeft += (by * element.clientWidth) / 4;
  });
  return element;
}

/** A drawing from ICONS; the parser gives it its namespace. */
function icon(path) {
  return document.createRange().createContextualFragment(`<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${path}"/></svg>`);
}

const ICONS = {
  first: "M4 4h2.5v12H4z M16 4v12L7.5 10z",
  back: "M14 4v12L5 10z",
  play: "M6 3.5v13L16.5 10z",
  pause: "M5 4h3.5v12H5z M11.5 4H15v12h-3.5z",
  next: "M6 4v12l9-6z",
  last: "M13.5 4H16v12h-2.5z M4 4v12l8.5-6z",
  large: "M2 4h16v10h-6.8v2H14v1.5H6V16h2.8v-2H2z M3.6 5.6v6.8h12.8V5.6z",
};

const thousands = (n) => (Number.isInteger(Number(n)) ? String(n).replace(/\B(?=(\d{3})+$)/g, ",") : String(n));
const counted = (n, one) => `${thousands(n)} ${n === 1 ? one : one + "s"}`;

/** Keys that stay JupyterLab's: saving, running the cell and their like. */
function isCommand(event) {
  return event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter");
}

/** Any other key pressed in a view ends here: "a" or "d d" would change the notebook.
 *  On a slide Escape gives the keys back to the slides, which end with the next one.
 */
function keepFromPage(event) {
  if (isCommand(event) || event.key === "Tab") return;
  const slide = event.currentTarget.closest(".jp-Deck .jp-Cell");
  if (event.key === "Escape" && !slide) return;
  if (event.key === "Escape") slide.focus();
  event.stopPropagation();
}

// ---- theme: JupyterLab's variables where they exist, else light or dark as the system wishes

const DARK = "--kv-ink:#e8eaed;--kv-paper:#14171b;--focus:#56b4e9;--bad:#ff9d5c;--good:#3fcf9f;";
const PLAYER_CSS = `
.kv{--kv-ink:#1b1f24;--kv-paper:#fff;--focus:#0072b2;--bad:#a34000;--good:#00704f;
 --P:#0072b2;--O:#e69f00;--C:#009e73;--fade:76%;
 --ink:var(--jp-content-font-color0,var(--kv-ink));--paper:var(--jp-layout-color0,var(--kv-paper));
 --soft:color-mix(in srgb,var(--ink) var(--fade),var(--paper));
 --line:color-mix(in srgb,var(--ink) 22%,var(--paper));--wash:color-mix(in srgb,var(--ink) 5%,var(--paper));
 box-sizing:border-box;min-width:0;margin:4px 3px;padding:1em 1.15em .85em;border:1px solid var(--line);
 border-radius:10px;background:var(--paper);color:var(--ink);font:14px/1.45 system-ui,sans-serif;
 font-variant-numeric:tabular-nums;overflow-anchor:none}
@media(prefers-color-scheme:dark){body:not([data-jp-theme-light]) .kv{${DARK}}}
html:is(.light,.rust) .kv.kv{--kv-ink:#1b1f24;--kv-paper:#fff;--focus:#0072b2;--bad:#a34000;--good:#00704f}
html:is(.navy,.coal,.ayu) .kv,body[data-jp-theme-light=false] .kv{${DARK}}
.kv *{box-sizing:border-box}.kv [hidden]{display:none!important}
.kv:focus-visible,.kv :focus-visible{outline:2px solid var(--focus);outline-offset:2px}
.kv-head{display:flex;align-items:center;gap:.8em;margin-bottom:.7em}
.kv-title{font-weight:600;font-size:1.1em;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv-hint{flex:1;min-width:0;color:var(--soft);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kv-say{margin:.85em 0 .7em;padding:.5em .8em;background:var(--wash);border-left:3px solid var(--focus);
 border-radius:0 6px 6px 0;overflow-wrap:anywhere}
.kv-say{display:grid}.kv-say>*{grid-area:1/1;min-width:0}.kv-say-text{min-height:2.9em}.kv-ghost{visibility:hidden}
.kv-bar{display:flex;align-items:center;gap:.5em}
.kv button{flex:none;display:inline-grid;place-items:center;width:2.5em;height:2.15em;padding:0;font:inherit;
 border:1px solid var(--line);border-radius:6px;background:var(--paper);color:var(--ink);cursor:pointer}
.kv button:hover{background:var(--wash)}
.kv button[aria-pressed=true],.kv .kv-play{border-color:var(--focus);color:var(--focus)}
.kv button:is(:disabled,[aria-disabled=true]){opacity:.4;cursor:default}.kv button:is(:disabled,[aria-disabled=true]):hover{background:var(--paper)}
.kv button svg{width:1.2em;height:1.2em;fill:currentColor;fill-rule:evenodd}
.kv-track{position:relative;flex:1;height:2.3em;min-width:5em;margin:0 1em;cursor:pointer;touch-action:none;border-radius:6px}
.kv-track::before{content:"";position:absolute;left:0;right:0;top:50%;height:4px;margin-top:-2px;border-radius:2px;background:var(--line)}
.kv-tick{position:absolute;top:50%;width:var(--w,4px);height:1.35em;transform:translate(-50%,-50%);border-radius:2px;background:var(--soft)}
.kv-tick[data-kind=P]{background:var(--P)}.kv-tick[data-kind=O]{background:var(--O)}.kv-tick[data-kind=C]{background:var(--C)}
.kv-tick[data-kind=S]{height:.7em}
.kv-knob{position:absolute;top:50%;width:1.3em;height:1.3em;transform:translate(-50%,-50%);border-radius:50%;
 background:var(--paper);border:3px solid var(--focus);transition:left .12s}
.kv-dragging .kv-knob{transition:none}
.kv-count{flex:none;color:var(--soft);text-align:right}
.kv.kv-large{--fade:92%;font-size:clamp(16px,calc((100vh - 150px)/34.5),28px);padding:.8em .9em}.kv.kv-large{--kv-ink:#000;--kv-paper:#fff}
body[data-jp-theme-light=false] .kv.kv-large{--ink:#fff;--paper:#000}
.kv.kv-framed{display:flex;scroll-margin:5px;flex-direction:column;width:var(--sheet);height:calc(var(--sheet)*9/16);margin-inline:auto;overflow:hidden;
 font-size:calc(var(--letter)*var(--step))}
.kv-framed .kv.kv-large{display:flex;flex-direction:column;flex:1;min-height:0;font-size:1em;outline-offset:-2px}
.kv-framed :is(.kv-head,.kv-say,.kv-bar){flex:none}.kv.kv-framed>.kv-head{margin-bottom:0}
.kv-framed .kv-body{flex:1 1 auto;min-height:0;margin:0 -4px;padding:.5em 4px 0;overflow:hidden auto;scrollbar-width:thin}.kv.kv-framed>.kv-body{padding-top:.7em}
.kv-large .kv-say{border-left-width:6px}.kv-large .kv-say-text{font-weight:500}
.jp-CodeCell.kvlab-code-hidden .jp-Cell-inputWrapper{display:none}
@media(prefers-reduced-motion:reduce){.kv-knob{transition:none}}
`;

/** The frame of every view: title, hint, presenter switch. */
function createFrame(element, { view, title, hint = "", css = "" }) {
  const root = h("div", { class: "kv", role: "group", "data-view": view, "aria-label": title });
  const style = h("style");
  style.textContent = PLAYER_CSS + css;
  const heading = h("div", { class: "kv-head" });
  heading.append(h("span", { class: "kv-title" }, title), h("span", { class: "kv-hint", title: hint }, hint));
  const body = h("div", { class: "kv-body" });
  root.append(style, heading, body);
  element.replaceChildren(root);
  return { root, heading, body };
}

// ---- presenter: large type, high contrast, 16:9, this cell's code out of sight; all views of the page together

const PRESENTER = "kvlab-presenter";
const LEAST_SHEET = 900; // pixels: below it the type would be no larger than usual; there a view is as high as it is
const STEPS = [1, 0.94, 0.88, 0.82, 0.76, 0.7]; // of the type that a frame's width gives
const LETTER = 1 / 64.5; // the largest type in a frame, as a share of its width
const LEAST_TYPE = 14; // pixels, as without the frame

/** The frame of a view in large type: 16:9, as large as the page shows at once. Its type grows with it, and is
 *  a step smaller where the view would not fit, but never smaller than usual; what does not fit even then
 *  scrolls above the text line. A part can ask for smaller type: data-crowded is "more" where each step shows
 *  more, and "yes" where a step helps or does not; where none does, the type is as large as before.
 */
function createSheet(root) {
  const place = root.parentElement, nested = place.closest(".kv") !== null;
  const seen = new ResizeObserver(() => fit());
  let wide = 0;
  const spills = () => [...root.querySelectorAll(".kv-body")].some((body) => body.scrollHeight > body.clientHeight + 1);
  const crowded = (how = ":is([data-crowded=yes],[data-crowded=more])") => root.querySelector(how) !== null;
  let frame = null, tried = null, roomy = null; // the largest step at which nothing spills, and that it is the last word
  function settle() { // a view may draw once more when it knows its size: it is measured after that
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => { frame = requestAnimationFrame(shrink); });
  }
  const setStep = (step) => root.style.setProperty("--step", String(step));
  function shrink() {
    if (!root.classList.contains("kv-framed")) return;
    const step = Number(root.style.getPropertyValue("--step")), spilled = spills();
    if (!spilled && !crowded()) return;
    if (!spilled && roomy === step) return; // smaller type did not help
    const smaller = STEPS.find((one) => one < step && wide * LETTER * one >= LEAST_TYPE);
    if (spilled) tried = roomy = null;
    else tried ??= step;
    if (smaller) setStep(smaller);
    else if (tried !== null && !crowded("[data-crowded=more]")) setStep((roomy = tried));
    else return;
    settle();
  }
  function fit() {
    const notebook = root.closest(".jp-Deck") ? null : root.closest(".jp-WindowedPanel-outer");
    const fits = Math.min(place.clientWidth - 8, ((notebook?.clientHeight ?? innerHeight) - 12) * (16 / 9));
    if (wide === (wide = 16 * Math.floor(fits / 16))) return;
    root.classList.toggle("kv-framed", wide >= LEAST_SHEET);
    root.style.setProperty("--sheet", `${wide}px`);
    root.style.setProperty("--letter", `${wide * LETTER}px`);
    tried = roomy = null;
    setStep(1);
    settle();
  }
  function set(on) {
    window[on ? "addEventListener" : "removeEventListener"]("resize", fit);
    wide = 0;
    if (on) return seen.observe(place), fit();
    seen.disconnect();
    root.classList.remove("kv-framed");
  }
  return nested ? { set: () => {}, settle: () => {} } : { set, settle };
}

function presenterSwitch(root, heading) {
  const sheet = createSheet(root);
  const button = h("button", { type: "button", "data-do": "presenter" }, icon(ICONS.large));
  const apply = (on) => {
    root.classList.toggle("kv-large", on);
    root.closest(".jp-CodeCell")?.classList.toggle("kvlab-code-hidden", on);
    sheet.set(on);
    button.setAttribute("aria-pressed", String(on));
    const label = on ? "Back to normal size (P)" : "Presenter: large type, high contrast (P)";
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  const listen = (event) => apply(event.detail);
  const toggle = () => {
    const on = !root.classList.contains("kv-large");
    document.documentElement.toggleAttribute("data-" + PRESENTER, on);
    document.dispatchEvent(new CustomEvent(PRESENTER, { detail: on }));
    root.scrollIntoView({ block: "nearest" });
  };
  button.addEventListener("click", toggle);
  document.addEventListener(PRESENTER, listen);
  heading.append(button);
  const start = () => apply(document.documentElement.hasAttribute("data-" + PRESENTER));
  const destroy = () => {
    document.removeEventListener(PRESENTER, listen);
    sheet.set(false);
  };
  return { toggle, start, settle: sheet.settle, destroy };
}

/** P switches around a whole editor, too; a view inside it that takes the key has prevented it. */
function presenterKey(root, toggle) {
  root.addEventListener("keydown", (event) => {
    const types = event.target.closest("input:not([type=range]),select,textarea");
    if (types || event.defaultPrevented || isCommand(event) || !["p", "P"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    toggle();
  });
}

// ---- the player

/** Buttons, slider, keys, sentence. stops: [{ kind, sentence }]; draw(i) shows stop i; ticks: what they mean. */
function createPlayer(frame, { stops, draw, ticks = null, at = 0, onChange = () => {} }) {
  const { root, body } = frame;
  const last = stops.length - 1;
  let current = -1;
  let timer = null;
  root.tabIndex = 0;
  root.setAttribute("aria-description", "Arrow keys, Home and End walk through the stops, Space plays, P switches to large type.");
  root.dataset.total = String(last);

  const text = h("div", { class: "kv-say-text", role: "status", "aria-live": "polite", "data-say": "" });
  // Unseen twins of the longest sentences keep their room, so that nothing moves while scrubbing.
  const longest = stops.map((stop) => stop.sentence).sort((a, b) => b.length - a.length).slice(0, 3);
  const ghosts = longest.map((sentence) => h("div", { class: "kv-ghost", "aria-hidden": "true" }, sentence));
  const button = (name, label, action) => {
    const made = h("button", { type: "button", "data-do": name, "aria-label": label, title: label }, icon(ICONS[name]));
    made.addEventListener("click", action);
    return made;
  };
  const go = (i) => { pause(); show(i); };
  const first = button("first", "First stop (Home)", () => go(0));
  const back = button("back", "One stop back (left arrow)", () => go(current - 1));
  const play = button("play", "Play (Space)", () => (timer === null ? start() : pause()));
  const next = button("next", "One stop on (right arrow)", () => go(current + 1));
  const end = button("last", "Last stop (End)", () => go(last));
  play.classList.add("kv-play");

  const knob = h("span", { class: "kv-knob" });
  const track = h("div", {
    class: "kv-track", role: "slider", tabindex: "0", "aria-label": "Stop", "aria-valuemin": "0", "aria-valuemax": String(last), title: ticks,
  });
  const place = (i) => `${last ? (100 * i) / last : 0}%`;
  track.style.setProperty("--w", stops.length > 150 ? "1px" : stops.length > 60 ? "2px" : "4px");
  for (const [i, stop] of stops.entries()) {
    const tick = h("span", { class: "kv-tick", "data-kind": stop.kind, title: stop.sentence });
    tick.style.left = place(i);
    track.append(tick);
  }
  track.append(knob);
  const count = h("span", { class: "kv-count" });
  count.style.minWidth = `${`stop ${last} of ${last}`.length * 0.56}em`;
  body.after(
    h("div", { class: "kv-say" }, text, ...ghosts),
    h("div", { class: "kv-bar" }, first, back, play, next, end, track, count),
  );

  function show(wanted) {
    const i = Math.min(Math.max(wanted, 0), last);
    if (i === current) return;
    current = i;
    root.dataset.stop = String(i);
    text.textContent = stops[i].sentence;
    count.textContent = `stop ${i} of ${last}`;
    knob.style.left = place(i);
    track.setAttribute("aria-valuenow", String(i));
    track.setAttribute("aria-valuetext", `stop ${i} of ${last}`);
    for (const b of [first, back]) b.setAttribute("aria-disabled", String(i === 0));
    for (const b of [next, end]) b.setAttribute("aria-disabled", String(i === last));
    draw(i);
    onChange(i);
  }
  function setPlaying(on) {
    root.toggleAttribute("data-playing", on);
    play.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
    play.title = on ? "Pause (Space)" : "Play (Space)";
    play.setAttribute("aria-label", play.title);
  }
  function start() {
    if (current === last) show(0);
    timer = setInterval(() => (current < last ? show(current + 1) : pause()), root.classList.contains("kv-large") ? 1800 : 1100);
    setPlaying(true);
  }
  function pause() {
    if (timer !== null) clearInterval(timer);
    timer = null;
    setPlaying(false);
  }

  const toPointer = (event) => {
    const box = track.getBoundingClientRect();
    go(Math.round(((event.clientX - box.left) / box.width) * last));
  };
  const drag = (on) => root.classList.toggle("kv-dragging", on);
  track.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    track.setPointerCapture(event.pointerId);
    drag(true);
    toPointer(event);
  });
  track.addEventListener("pointermove", (event) => track.hasPointerCapture(event.pointerId) && toPointer(event));
  for (const name of ["pointerup", "pointercancel"]) track.addEventListener(name, () => drag(false));

  const presenter = presenterSwitch(root, frame.heading);
  const keys = {
    ArrowRight: () => go(current + 1), ArrowLeft: () => go(current - 1), Home: () => go(0), End: () => go(last),
    " ": () => play.click(), p: presenter.toggle, P: presenter.toggle,
  };
  root.addEventListener("keydown", (event) => {
    if (isCommand(event)) return;
    const pressesButton = event.target.closest("button") && [" ", "Enter"].includes(event.key);
    if (!pressesButton && Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
    keepFromPage(event);
  });

  show(at);
  setPlaying(false);
  presenter.start();
  return { show, stop: () => current, destroy: () => { pause(); presenter.destroy(); } };
}

// ---- ways in: `render` for a notebook's live widget, `mount` for a page without a kernel

export function mount(element, payload) {
  return VIEWS[payload.view](element, payload, {});
}

export default {
  render({ model, el }) {
    const payload = model.get("payload");
    const view = VIEWS[payload.view](el, payload, { model });
    return () => view.destroy();
  },
};
