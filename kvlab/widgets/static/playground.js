// The view "playground": the actions of a script in a row, what must hold after each, the block table.

const PLAYGROUND_CSS = `
.kvp-strip{display:flex;align-items:stretch;gap:.4em;margin-bottom:.35em}
.kvp-chips{display:flex;flex:1;min-width:0;gap:3px;overflow-x:auto;scrollbar-width:thin;padding:3px}
.kv .kvp-chip{display:inline-flex;align-items:baseline;gap:.4em;width:auto;height:auto;max-width:17em;padding:.2em .6em;white-space:nowrap;font-size:.92em;line-height:1.4}
.kvp-chip span{overflow:hidden;text-overflow:ellipsis}.kvp-chip i{font-style:normal;color:var(--soft);font-size:.85em}
.kv .kvp-chip[aria-current]{border:2px solid var(--focus);font-weight:650;padding:calc(.2em - 1px) calc(.6em - 1px)}
.kv .kvp-chip[data-later]{color:var(--soft);border-style:dashed}
.kv .kvp-save{align-self:center;width:auto;padding:0 .7em;white-space:nowrap}
.kvp-audit{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,max(31em,40%)),1fr));gap:0 1.4em;padding:0 4px .3em;font-size:.95em;line-height:1.5}
.kvp-audit>div{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.kvp-audit b{font-weight:650}.kvp-audit u{text-decoration:none;font-weight:700;color:var(--good);margin-right:.35em}
.kvp-audit [data-state=bad],.kvp-audit [data-state=bad] u{color:var(--bad);font-weight:650}
.kvp .kvb{--room:16.5em}.kvp .kvb-row{height:1.95em}.kvp .kvb-req{margin-bottom:.45em}.kvp .kvb[data-cards=dense]{--room:20em}
.kv-large .kvp-audit{font-size:max(.84em,13.3px)}.kv-large .kvp-strip{margin-bottom:.15em}
`;

/** The stop to open with: after a new action or an undo the newest, else where the reader was. */
function playgroundStart(payload, before) {
  const now = payload.actions, was = before?.view?.actions;
  if (!was) return payload.fullest;
  let same = 0;
  while (same < now.length && same < was.length && now[same].text === was[same].text) same += 1;
  if (same === now.length && same === was.length) return now[playgroundAt(was, before.stop)].stop;
  const ends = payload.offers.requests.every(({ running }) => !running);
  const isPreset = same < Math.min(now.length, was.length) || (now.length - was.length > 1 && ends);
  return isPreset ? payload.fullest : now.at(-1).stop;
}

/** Rows of slots that stand in the left half without scrolling; of more, it shows block numbers. */
const playgroundFits = (rows, requests) => rows * 1.95 + requests * 0.45 <= 15.8;

/** The action that a stop belongs to; 0 is the start. */
const playgroundAt = (actions, stop) => Math.max(actions.findIndex((action) => action.stop >= stop), 0);

/** Hand the reader a file; nothing leaves this machine. */
function playgroundSave(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** What the audit after an action found, each rule with its sign. */
function playgroundAudit({ text, note, audit }, number) {
  const head = h("div", { "data-rule": "note", title: note }, number ? "after " : "", h("b", {}, number ? `${number} · ${text}` : text), `: ${note}`);
  const rules = audit.map(([rule, finding, state]) =>
    h("div", { "data-rule": rule, "data-state": state, title: finding }, h("u", {}, state === "ok" ? "✓" : "✗"), finding));
  return [head, ...rules];
}

VIEWS.playground = (element, payload, options) => {
  const { actions, table } = payload;
  const style = h("style");
  style.textContent = PLAYGROUND_CSS;
  const chips = actions.map(({ text, note, stop }, number) => {
    const chip = h("button", { type: "button", class: "kvp-chip", "data-action": String(number), title: `${text}: ${note}` });
    if (number) chip.append(h("i", {}, String(number)));
    chip.append(h("span", {}, text));
    chip.addEventListener("click", () => view.show(stop));
    return chip;
  });
  const row = h("div", { class: "kvp-chips", role: "group", "aria-label": "Actions; each goes to its last stop" }, ...chips);
  const save = h("button", { type: "button", class: "kvp-save", "data-do": "save", title: "Save the trace as a JSON file; kvlab.Trace.load reads it" }, "Save trace");
  save.addEventListener("click", () => playgroundSave("playground-trace.json", JSON.stringify(table.trace)));
  const audit = h("div", { class: "kvp-audit", role: "status", "aria-label": "Checked after each action" });
  const slot = h("div");
  element.replaceChildren(style, h("div", { class: "kvp" }, h("div", { class: "kvp-strip" }, row, save), audit, slot));

  let shown = -1;
  function follow(stop) {
    const at = playgroundAt(actions, stop);
    const done = actions[at].stop === stop ? at : at - 1; // within an action: what held before it
    chips.forEach((chip, number) => {
      if (number === at) chip.setAttribute("aria-current", "step");
      else chip.removeAttribute("aria-current");
      chip.toggleAttribute("data-later", number > at);
    });
    const chip = chips[at];
    row.scrollLeft = Math.min(Math.max(row.scrollLeft, chip.offsetLeft + chip.offsetWidth - row.clientWidth - row.offsetLeft + 12), Math.max(chip.offsetLeft - row.offsetLeft - 12, 0));
    if (done === shown) return;
    shown = done;
    audit.dataset.after = String(done);
    audit.replaceChildren(...playgroundAudit(actions[done], done));
  }
  const view = VIEWS.block_table(slot, table, { at: () => playgroundStart(payload, options.before), fits: playgroundFits, onChange: follow });
  return view;
};
