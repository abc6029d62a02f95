// The allocator playground's buttons: each adds one line to the script; undo takes the last one off.

const PAD_CSS = `
.kvp-pad{container-type:inline-size;flex:1 1 100%;min-width:0;margin:0;padding:.45em .6em;border:1px solid var(--line);border-radius:8px;background:var(--wash);font-size:.95em}
.kvp-row{display:flex;flex-wrap:wrap;align-items:center;justify-content:space-between;gap:.35em 1.1em}.kvp-row.kvp-row+.kvp-row{justify-content:start;margin-top:.35em}
.kvp-group{display:flex;flex-wrap:wrap;align-items:center;gap:.35em .4em;min-width:0}
.kvp-row label{display:inline-flex;align-items:center;gap:.35em;min-width:0;color:var(--soft);white-space:nowrap}
.kv .kvp-row :is(select,input){height:2.15em;min-width:0;margin:0;padding:0 .4em;font:inherit;color:var(--ink);background:var(--paper);border:1px solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-radius:6px}
.kvp-row select{max-width:11em}.kvp-row input[data-name]{width:4.6em}.kvp-row input[type=number]{width:3.3em}
.kv .kvp-row button{width:auto;padding:0 .6em;font-weight:600;white-space:nowrap}
@container(max-width:30em){
 .kvp-group{flex:1 1 100%}.kv .kvp-row button{flex:1 0 auto;padding:0 .3em;font-size:.95em}.kvp-row label:has([data-name]){flex:1 0 auto}
 .kvp-row input[data-name]{flex:1;width:3em}.kvp-more{display:none}
}
@container(max-width:20em){.kv .kvp-row button{flex-basis:40%}}
.kvp-pad .kve-controls{margin:.55em 0 .1em}
.kv-head:has(>.kve-field){flex-wrap:wrap;row-gap:.3em}.kv-head>.kve-field[data-control=presets]{display:flex;flex:1 0 100%;align-items:center;gap:.6em}
@media(min-width:601px){
 .kv-head:has(>.kve-field)>.kv-title{flex:none}.kv-head:has(>.kve-field)>.kv-hint{flex:1 1 12em}
 .kv-head>.kve-field[data-control=presets]{flex:1 1 15em;max-width:26em}
}
.kvp-pad .kve-field{max-width:19em}.kv-head>.kve-field label{flex:none;overflow:visible}
.kvp-text{margin-top:.45em}.kvp-text textarea{width:100%;min-height:9.5em;margin:0 0 .35em;padding:.4em .6em;font:.95em/1.5 ui-monospace,Menlo,Consolas,monospace;color:var(--ink);background:var(--paper);border:1px solid color-mix(in srgb,var(--ink) 45%,var(--paper));border-radius:6px;resize:vertical}
.kvp-text>.kvp-row{justify-content:start;column-gap:.5em}.kvp-text .kvp-row>span{color:var(--soft);font-size:.9em}
.kv-large .kvp-pad{padding:.3em .5em;font-size:max(.84em,14px)}.kv-large .kvp-row+.kvp-row{margin-top:.25em}
.kv-large:has(.kvp-pad)>.kv-head{margin-bottom:.1em}.kv-large:has(.kvp-pad) .kvb{--room:13.2em!important}
.kv-large:has(.kvp-pad) .kvb-free{margin-top:0}.kv-large:has(.kvp-pad) .kv-say{margin:.3em 0 .35em}
`;

/** A name as a word of the script: in quotes where it has blanks or signs of its own meaning. */
const padWord = (name) => (/^[\p{L}\p{N}_.-]+$/u.test(name) ? name : `"${name.replace(/["\\]/g, "\\$&")}"`);

/** The script without its last action, and that action; comments and blank lines are none. */
function padSplit(script) {
  const lines = script.split("\n");
  while (lines.length && /^\s*(#|$)/.test(lines.at(-1))) lines.pop();
  const last = lines.pop();
  return { rest: lines.join("\n"), last };
}

/** A number that stays between two limits. */
function padNumber(label, value, minimum) {
  const input = h("input", { type: "number", min: String(minimum), max: "512", step: "1", "aria-label": label, title: label });
  input.value = String(value);
  const get = () => String(Math.min(Math.max(Math.round(Number(input.value)) || minimum, minimum), Number(input.max)));
  return { input, get };
}

function padSelect(label) {
  const input = h("select", { "aria-label": label, title: label });
  const fill = (options, wanted) => {
    const kept = options.some(({ name }) => name === wanted) ? wanted : options[0]?.name;
    input.replaceChildren(...options.map(({ name, words }) => h("option", { value: name }, words ?? name)));
    if (kept !== undefined) input.value = kept;
  };
  return { input, fill };
}

/** The parts of the pad: selects, numbers, buttons, the text. */
function padParts(control) {
  const button = (name, words) => h("button", { type: "button", "data-do": name }, words);
  const parts = {
    who: padSelect("A running request"), source: padSelect("Whose first tokens are shared"),
    name: h("input", { type: "text", "data-name": "", "aria-label": "Name of the new request", title: "Name of the new request", maxlength: "60", spellcheck: "false", autocomplete: "off" }),
    tokens: padNumber("Tokens of its prompt", 6, 1), shared: padNumber("Tokens that are shared", 4, 1), own: padNumber("Tokens of its own behind them", 0, 0),
    buttons: Object.fromEntries([
      ["append", "Append a token"], ["fork", "Fork"], ["finish", "Finish"], ["undo", "↶ Undo"], ["redo", "↷ Redo"],
      ["admit", "Admit"], ["share", "Share"], ["settings", "Pool …"], ["text", "Script …"], ["run", "Run the script"],
    ].map(([name, words]) => [name, button(name, words)])),
    area: h("textarea", { rows: "6", "aria-label": control.label, spellcheck: "false" }),
  };
  const { who, source, name, tokens, shared, own, buttons: b, area } = parts;
  const row = (...children) => h("div", { class: "kvp-row" }, ...children);
  const group = (...children) => h("div", { class: "kvp-group" }, ...children); // goes to the next line as a whole
  const forms = "admit NAME TOKENS · append NAME [TOKENS] · share NAME FROM TOKENS [OWN] · fork NAME FROM · finish NAME";
  parts.text = h("div", { class: "kvp-text", hidden: "" }, area, row(b.run, h("span", {}, `Ctrl+Enter runs it too. ${forms}`)));
  parts.room = h("div", { class: "kve-controls", hidden: "" });
  const style = h("style");
  style.textContent = PAD_CSS;
  parts.element = h("fieldset", { class: "kvp-pad", "data-kind": "script", "data-control": control.name }, style,
    row(group(h("label", {}, "Request", who.input), b.append, b.fork, b.finish), group(b.undo, b.redo, b.settings, b.text)),
    row(group(h("label", {}, h("span", {}, "New", h("span", { class: "kvp-more" }, " request")), name), h("label", {}, "with", tokens.input, "tokens"), b.admit),
      group(h("label", {}, h("span", {}, "or ", h("span", { class: "kvp-more" }, "with "), "the first"), shared.input, "of", source.input), h("label", {}, "and", own.input, "own"), b.share)),
    parts.room, parts.text);
  return parts;
}

/** The control of kind "script"; see createField. */
function createScriptField(control, onChange) {
  const parts = padParts(control), { who, source, name, tokens, shared, own, buttons, area, text } = parts;
  let script = control.value, redo = [], settled = [], offers = { next: "A", requests: [] };
  let isTyped = false, isEdited = false, newest = null; // own name; text not run yet; who was made last

  function change(next) {
    script = next;
    onChange();
  }
  function add(line) {
    redo = [];
    change([script.trimEnd(), line].filter(Boolean).join("\n"));
  }
  function make(line) {
    newest = name.value.trim() || offers.next;
    isTyped = false;
    add(line(padWord(newest)));
  }
  function unfold(part, button) {
    part.hidden = !part.hidden;
    button.setAttribute("aria-expanded", String(!part.hidden));
    return !part.hidden;
  }
  function undo() {
    const { rest, last } = padSplit(script);
    if (last === undefined) return;
    redo.push(last);
    change(rest);
  }
  const again = () => { if (redo.length) change([script.trimEnd(), redo.pop()].filter(Boolean).join("\n")); };
  function run() {
    isEdited = true;
    redo = [];
    change(area.value);
  }
  const acts = {
    append: () => add(`append ${padWord(who.input.value)}`),
    finish: () => add(`finish ${padWord(who.input.value)}`),
    fork: () => make((child) => `fork ${child} ${padWord(who.input.value)}`),
    admit: () => make((child) => `admit ${child} ${tokens.get()}`),
    share: () => make((child) => ["share", child, padWord(source.input.value), shared.get(), ...(own.get() === "0" ? [] : [own.get()])].join(" ")),
    undo, redo: again, run,
    settings: () => unfold(parts.room, buttons.settings),
    text: () => unfold(text, buttons.text) && area.focus(),
  };
  for (const [action, button] of Object.entries(buttons)) {
    button.addEventListener("click", () => button.getAttribute("aria-disabled") !== "true" && acts[action]());
  }
  const enter = (input, button) => input.addEventListener("keydown", (event) => { if (event.key === "Enter" && !isCommand(event)) { event.preventDefault(); button.click(); } });
  for (const input of [name, tokens.input]) enter(input, buttons.admit);
  for (const input of [shared.input, own.input]) enter(input, buttons.share);
  name.addEventListener("input", () => { isTyped = name.value.trim() !== ""; offer(); });
  for (const input of [who.input, source.input]) input.addEventListener("change", () => offer());

  /** What makes sense now; a button that does not says why. */
  function offer() {
    const running = offers.requests.filter((r) => r.running), child = name.value.trim() || offers.next;
    const { last } = padSplit(script), size = offers.requests.find((r) => r.name === source.input.value)?.tokens;
    if (size) shared.input.max = String(size);
    const none = running.length ? "" : "no request is running: admit one first", still = parts.element.disabled ? "this needs a running kernel" : "";
    const say = {
      append: [none, `select and process one more token of ${who.input.value}`], finish: [none, `${who.input.value} ends and gives its blocks back`],
      fork: [none, `${child} continues from ${who.input.value}`], share: [offers.requests.length ? "" : "there is no request yet: admit one first", `${child} begins with tokens of ${source.input.value}`],
      admit: ["", `a new request ${child}`], undo: [last === undefined ? "there is no action" : "", `take back: ${last} (Ctrl+Z)`],
      redo: [redo.length ? "" : "nothing was taken back", `put back: ${redo.at(-1)} (Ctrl+Shift+Z)`],
    };
    for (const [action, [reason, words]] of Object.entries(say)) {
      buttons[action].setAttribute("aria-disabled", String(Boolean(still || reason)));
      buttons[action].title = still || reason || words;
    }
    buttons.fork.textContent = `Fork as ${child.length > 8 ? `${child.slice(0, 7)}…` : child}`;
  }
  function update(view) {
    if (!view?.offers) return;
    offers = view.offers;
    const everyone = offers.requests, running = everyone.filter((r) => r.running);
    const made = running.some((r) => r.name === newest) ? newest : who.input.value;
    newest = null;
    who.fill(running.length ? running : [{ name: "", words: "none" }], made);
    const choices = everyone.map((r) => ({ name: r.name, words: `${r.name} (${r.tokens})` }));
    source.fill(choices.length ? choices : [{ name: "", words: "none" }], source.input.value);
    if (!isTyped) name.value = offers.next;
    offer();
  }
  function set(value) {
    if (value !== script) [redo, settled] = [[], []];
    script = area.value = value;
    isEdited = false;
  }
  function keydown(event) {
    const key = event.key.toLowerCase(), isCommandKey = (event.ctrlKey || event.metaKey) && !event.altKey;
    const inText = event.target.matches("textarea,input[type=text]") && !(event.target === name && !isTyped);
    const action = event.target === area && event.key === "Enter" && isCommandKey ? run : inText ? null : key === "z" ? (event.shiftKey ? again : undo) : key === "y" ? again : null;
    if (!isCommandKey || !action || parts.element.disabled) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }
  /** A refused line is taken back, and what could be put back is as before it; a refused text stays, to be corrected. */
  const rejected = (good) => { if (script !== good) redo = [...settled]; script = good; newest = null; if (!isEdited) area.value = good; offer(); };
  const accepted = (value) => { isEdited = false; if (script === value) { area.value = value; settled = [...redo]; } };
  set(control.value);
  return { element: parts.element, input: parts.element, room: parts.room, get: () => script, set, update, rejected, accepted, keydown };
}
