// The view "block table", its right half: memory as physical blocks, each a card, and the free queue.

const BLOCKS_COLOURS = [
  ["#e69f00", "#000"], ["#56b4e9", "#000"], ["#009e73", "#000"], ["#cc79a7", "#000"],
  ["#f0e442", "#000"], ["#d55e00", "#000"], ["#0072b2", "#fff"],
];
const blocksColour = (who) => BLOCKS_COLOURS[who % BLOCKS_COLOURS.length];

const CARDS_CSS = `
.kvb-cap{display:flex;flex-wrap:wrap;gap:0 1.1em;align-items:center;height:1.75em;line-height:1.75;padding-left:4px;overflow:hidden;color:var(--soft);font-size:.92em}
.kvb-cap b{font-weight:600;color:var(--ink)}
.kv-large .kvb-cap{font-size:.84em;gap:0 .8em}
.kvb-key{display:flex;align-items:center;gap:.4em;white-space:nowrap}
.kvb-key i{flex:none;width:1.5em;height:1em;border-radius:3px}
.kvb-scroll{position:relative;overflow:auto;scrollbar-width:thin;padding:4px;overscroll-behavior:auto}
.kvb-cards{display:grid;gap:.55em;grid-template-columns:repeat(auto-fill,minmax(var(--card),1fr))}
.kvb-card{position:relative;min-width:0;padding:.3em .7em .35em;border:1px solid color-mix(in srgb,var(--ink) 40%,var(--paper));border-radius:8px;background:var(--wash)}
.kvb-card[data-kind=free],.kvb-key i[data-kind=free]{border:1px dashed color-mix(in srgb,var(--ink) 40%,var(--paper));background:none}
.kvb-card[data-kind=kept],.kvb-key i[data-kind=kept]{border:1px solid color-mix(in srgb,var(--ink) 40%,var(--paper));background:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--ink) 9%,transparent) 5px 7px)}
.kvb-key i[data-kind=used]{border:1px solid color-mix(in srgb,var(--ink) 40%,var(--paper));background:linear-gradient(90deg,#e69f00 0 50%,#56b4e9 50%)}
.kvb-card[data-ring]{outline:2.5px solid var(--ink);outline-offset:0}
.kvb-card[data-path]{box-shadow:0 0 0 2.5px var(--focus)}
.kvb-top{display:flex;justify-content:space-between;align-items:center;gap:.4em;height:1.55em;white-space:nowrap}
.kvb-top b{font-weight:650}.kvb-card[data-kind=free] :is(.kvb-top,.kvb-id){color:var(--soft)}
.kvb-refs{display:flex;align-items:center;gap:.25em;min-width:0;color:var(--soft);font-size:.88em;overflow:hidden}
.kvb-chip{display:inline-grid;place-items:center;min-width:1.5em;height:1.45em;padding:0 .25em;border-radius:4px;background:var(--r);color:var(--on);font-style:normal;font-weight:650;font-size:.92em;line-height:1}
.kvb-mid{display:flex;align-items:center;gap:.7em}
.kvb-slots{position:relative;display:grid;grid-template-columns:repeat(var(--cols),var(--slot));gap:2px}
.kvb-s{height:var(--high);border-radius:4px;border:1px dashed color-mix(in srgb,var(--ink) 26%,var(--paper));display:grid;place-items:center;font-size:.82em;line-height:1;font-weight:600;overflow:hidden;color:var(--ink)}
.kvb-s[data-on=stored]{background:var(--r);color:var(--on);border:1px solid color-mix(in srgb,var(--r) 75%,#000)}
.kvb-s[data-on=kept]{background:color-mix(in srgb,var(--r) 22%,var(--paper));border:1px solid var(--r);color:var(--ink);font-weight:500}
.kvb-s[data-on=known]{border:1.5px dashed var(--ink);color:var(--ink)}
.kvb-s[data-path]{box-shadow:0 0 0 2px var(--paper),0 0 0 4px var(--focus);z-index:2}
.kvb-ring{border:2.5px solid var(--ink);border-radius:6px;margin:-2.5px;pointer-events:none;z-index:1}
.kvb-fill{color:var(--soft);font-size:.9em;white-space:nowrap}
.kvb-id{height:1.5em;margin-top:.15em;font:.82em/1.6 ui-monospace,Menlo,Consolas,monospace;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;color:var(--soft)}
.kvb-id em{font-style:normal;color:var(--ink);font-weight:600}
.kvb-bar{position:relative;height:.55em;margin-top:1px;border-radius:3px;background:color-mix(in srgb,var(--ink) 13%,var(--paper));overflow:hidden}
.kvb-bar i{position:absolute;inset:0 auto 0 0;background:var(--r)}
.kvb-card[data-kind=kept] .kvb-bar i{background:repeating-linear-gradient(135deg,var(--r) 0 3px,transparent 3px 6px)}
.kvb-bar u{position:absolute;top:0;bottom:0;min-width:3px;background:var(--focus);box-shadow:0 0 0 1px var(--paper)}
.kvb[data-cards=medium] .kvb-cards{gap:.4em}.kvb[data-cards=medium] .kvb-card{padding:.1em .5em .15em;font-size:.9em}
.kvb[data-cards=medium] .kvb-word,.kvb[data-cards=medium] .kvb-fill{display:none}
.kvb[data-cards=dense] .kvb-cards{gap:3px}.kvb[data-cards=dense] .kvb-card{padding:0 3px 3px;border-radius:5px;font-size:.8em}
.kvb[data-cards=dense] .kvb-top{height:1.5em;gap:.15em}.kvb[data-cards=dense] .kvb-chip{min-width:1.25em;height:1.25em;padding:0 .1em}
.kvb[data-cards=dense] :is(.kvb-word,.kvb-fill,.kvb-id){display:none}
.kvb-free{display:flex;align-items:center;gap:.35em;height:2em;margin-top:.35em;padding:0 1em 0 4px;overflow:hidden;white-space:nowrap;color:var(--soft);font-size:.92em}
.kvb-ids{display:flex;flex-wrap:wrap;gap:.35em;height:1.65em;min-width:0;overflow:hidden}.kvb-ids:not(:empty){min-width:2.6em}.kvb-ids+span{flex:none}
.kvb-free b{font-weight:500;color:var(--ink);min-width:2.2em;text-align:center;padding:0 .35em;line-height:1.5;border:1px dashed color-mix(in srgb,var(--ink) 40%,var(--paper));border-radius:5px}
.kvb-free b[data-kind=kept]{border-style:solid;background:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--ink) 9%,transparent) 5px 7px)}
.kv-tick[data-kind~=S]{height:.7em}.kv-tick[data-kind~=end]{background:var(--ink)}
${BLOCKS_COLOURS.map(([colour], i) => `.kv-tick[data-kind~=r${i}]{background:${colour}}`).join("")}
`;
const MOST_CHIPS = { roomy: 4, medium: 3, dense: 2 }; // owners named on a card; of more, how many
const MOST_QUEUED = 24; // of the free queue

const blocksOwn = (dict, key) => (dict && Object.hasOwn(dict, key) ? dict[key] : undefined);
const blocksAnd = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** A request's letter on its colour. */
function blocksChip(letter, who, title) {
  const chip = h("i", { class: "kvb-chip", title }, letter);
  blocksPaint(chip, who);
  return chip;
}

function blocksPaint(element, who) {
  const [colour, on] = blocksColour(who ?? 0);
  element.style.setProperty("--r", colour);
  element.style.setProperty("--on", on);
}

/** A block at a stop: what the trace says, with who holds it and which positions its slots have. */
function blocksCardState(s, id) {
  const { ref_cnt: refs, identity, filled } = blocksOwn(s.state.blocks, id) ?? { ref_cnt: 0, identity: null, filled: 0 };
  const kind = refs ? "used" : identity ? "kept" : "free";
  const [who, logical] = s.held.get(id) ?? [0, 0];
  return { refs, identity, filled, kind, who, logical, owners: s.owners.get(id) ?? [], copy: s.copies.get(id) };
}

/** The ranges of slots that a stop has written in a block: [[first, after]]. */
function blocksWritten(s, size, who, logical) {
  if (s.what !== "computed" || s.who !== who || !s.span) return null;
  const first = Math.max(s.span[0] - logical * size, 0), after = Math.min(s.span[1] - logical * size, size);
  return first < after ? [first, after] : null;
}

/** Slots in rows of `cols`, with rings around a range; the same for both halves of the view. */
function blocksSlots(size, cols) {
  const element = h("div", { class: "kvb-slots", "aria-hidden": "true" });
  element.style.setProperty("--cols", String(cols));
  const cells = Array.from({ length: size }, (_, slot) => {
    const cell = h("div", { class: "kvb-s", "data-slot": String(slot) });
    cell.style.gridArea = `${Math.floor(slot / cols) + 1} / ${(slot % cols) + 1}`;
    return cell;
  });
  element.append(...cells);
  function ring(range) {
    for (const old of element.querySelectorAll(".kvb-ring")) old.remove();
    if (!range) return;
    for (let row = Math.floor(range[0] / cols); row * cols < range[1]; row++) {
      const piece = h("div", { class: "kvb-ring" });
      const from = Math.max(range[0] - row * cols, 0), to = Math.min(range[1] - row * cols, cols);
      piece.style.gridArea = `${row + 1} / ${from + 1} / ${row + 2} / ${to + 1}`;
      element.append(piece);
    }
  }
  /** on: "stored", "kept", "known" or "" for each slot; first: position of slot 0. */
  function draw(on, first) {
    cells.forEach((cell, slot) => {
      cell.dataset.on = on[slot] ?? "";
      cell.textContent = on[slot] ? String(first + slot) : "";
    });
  }
  return { element, cells, ring, draw };
}

/** One card. It is redrawn only where something in it has changed. */
function blocksCard(payload, id, density, cols) {
  const size = payload.trace.meta.block_size;
  const refs = h("span", { class: "kvb-refs" }), fill = h("span", { class: "kvb-fill" }), identity = h("div", { class: "kvb-id" });
  const name = h("b", {}, h("span", { class: "kvb-word" }, "block "), String(id));
  const slots = density === "dense" ? null : blocksSlots(size, cols);
  const [level, mark] = [h("i"), h("u", { hidden: "" })];
  const content = slots ? h("div", { class: "kvb-mid" }, slots.element, fill) : h("div", { class: "kvb-bar" }, level, mark);
  const card = h("div", { class: "kvb-card", role: "listitem", "data-block": String(id) }, h("div", { class: "kvb-top" }, name, refs), content, identity);
  let drawn = "";
  function draw(s) {
    const c = blocksCardState(s, id);
    const ringed = s.blocks.has(id), written = c.owners.includes(s.who) ? blocksWritten(s, size, s.who, c.logical) : null;
    const seen = JSON.stringify([c.refs, c.identity, c.filled, c.owners, c.who, c.logical, c.copy, ringed, written]);
    if (seen === drawn) return;
    drawn = seen;
    const data = { kind: c.kind, refs: c.refs, filled: c.filled, identity: c.identity ?? "", copy: c.copy ?? "" };
    for (const [key, value] of Object.entries(data)) card.dataset[key] = String(value);
    card.dataset.owners = c.owners.map((who) => payload.requests[who][1]).join(" ");
    card.toggleAttribute("data-ring", ringed);
    blocksPaint(card, c.who);
    const words = blocksCardWords(payload, id, c);
    card.title = words;
    card.setAttribute("aria-label", words);
    refs.replaceChildren(...blocksReferences(payload, c, density));
    if (!slots) level.style.width = `${(100 * c.filled) / size}%`;
    else {
      slots.draw(Array(c.filled).fill(c.kind === "kept" ? "kept" : "stored"), c.logical * size);
      slots.ring(written);
    }
    fill.textContent = `${c.filled} of ${size}`;
    const copy = c.copy === undefined ? "" : h("em", {}, `copy of ${c.copy}`);
    const kept = c.identity ? `${density === "roomy" ? "identity " : ""}${c.identity} ` : copy ? "" : c.kind === "free" ? "no identity" : "no identity yet";
    identity.replaceChildren(kept, copy);
  }
  /** Mark a slot as the one that is read; null takes the mark away. */
  function point(slot) {
    card.toggleAttribute("data-path", slot !== null);
    slots?.cells.forEach((cell, i) => cell.toggleAttribute("data-path", i === slot));
    mark.hidden = slot === null;
    if (slot !== null) Object.assign(mark.style, { left: `${(100 * slot) / size}%`, width: `${100 / size}%` });
    return slots && slot !== null ? slots.cells[slot] : card;
  }
  return { id, card, draw, point };
}

function blocksReferences(payload, c, density) {
  if (c.kind === "free") return density === "dense" ? [] : ["free"];
  if (c.kind === "kept") return density === "dense" ? [] : ["evictable"];
  const most = MOST_CHIPS[density], shown = c.owners.length > most ? c.owners.slice(0, most - 1) : c.owners;
  const chips = shown.map((who) => blocksChip(payload.requests[who][1], who, payload.requests[who][0]));
  const more = c.owners.length - shown.length;
  const count = density === "dense" ? [] : [counted(c.refs, "ref")];
  return [...count, ...chips, ...(more ? [`+${more}`] : [])];
}

function blocksCardWords(payload, id, c) {
  const size = payload.trace.meta.block_size, letters = c.owners.map((who) => payload.requests[who][1]);
  const first = c.logical * size, what = c.filled === 1 ? `position ${first}` : `positions ${first} to ${first + c.filled - 1}`;
  const holds = c.filled ? `${c.filled} of ${size} slots filled, ${what}` : `0 of ${size} slots filled`;
  const kept = "no reference, evictable";
  const who = { free: "free", kept, used: `${counted(c.refs, "reference")}${letters.length ? `, held by ${blocksAnd(letters)}` : ""}` }[c.kind];
  const copy = c.copy === undefined ? "" : `; a copy of block ${c.copy}`;
  return `block ${id}: ${who}; ${holds}; ${c.identity ? `identity ${c.identity}` : "no identity"}${copy}`;
}

/** How large the cards are drawn, and how many slots stand in a row. */
function blocksDensity(count, size) {
  const density = count > 48 || size > 32 ? "dense" : count > 9 || size > 8 ? "medium" : "roomy";
  return [density, Math.min(size, 8)];
}

/** Memory: all cards in a box that scrolls in itself, the legend, the free queue. */
function blocksMemory(payload) {
  const size = payload.trace.meta.block_size;
  const [density, cols] = blocksDensity(payload.blocks.length, size);
  const cards = payload.blocks.map((id) => blocksCard(payload, id, density, cols));
  const grid = h("div", { class: "kvb-cards", role: "list", "aria-label": "Physical blocks" }, ...cards.map((c) => c.card));
  const scroll = scroller({ class: "kvb-scroll", "data-half": "memory", "aria-label": "Memory: physical blocks." }, grid);
  const legend = { used: "in use", kept: "evictable", free: "free" };
  const meaning = { kept: "No reference, but an identity: a request with the same prefix finds it until it is taken." };
  const keys = Object.entries(legend).map(([kind, words]) => h("span", { class: "kvb-key", title: meaning[kind] }, h("i", { "data-kind": kind, "aria-hidden": "true" }), words));
  const slot = size > 8 || density === "medium" ? "1.75em" : "2.1em";
  const widths = { roomy: `calc(${cols} * (${slot} + 2px) + 6.2em)`, medium: `max(9.3em, calc(${cols} * (${slot} + 2px) + 1.2em))`, dense: "4.1em" };
  scroll.style.setProperty("--card", widths[density]);
  scroll.style.setProperty("--slot", slot);
  scroll.style.setProperty("--high", density === "medium" ? "1.5em" : "1.85em");
  const free = h("div", { class: "kvb-free" });
  let queue = "";
  function drawFree(s) {
    const ids = s.state.free, shown = ids.slice(0, MOST_QUEUED);
    const kinds = shown.map((id) => (blocksOwn(s.state.blocks, id)?.identity ? "kept" : "free"));
    if (queue === JSON.stringify([shown, kinds, ids.length])) return;
    queue = JSON.stringify([shown, kinds, ids.length]);
    const boxes = shown.map((id, i) => h("b", { "data-kind": kinds[i], "data-free": String(id) }, String(id)));
    const row = h("span", { class: "kvb-ids" }, ...boxes);
    const away = payload.left_out ? h("span", { class: "kvb-away" }, `, ${thousands(payload.left_out)} never taken: not drawn`) : "";
    free.replaceChildren(h("span", {}, `free (${thousands(ids.length)}`, away, "), next first:"), row);
    const hidden = boxes.some((box) => box.offsetTop > boxes[0].offsetTop); // no room: on a line that is cut off
    const rest = hidden || ids.length > shown.length ? "…" : ids.length ? "" : "none";
    free.append(h("span", {}, rest));
  }
  const caption = h("div", { class: "kvb-cap" }, h("b", {}, "Memory: ", h("span", { class: "kvb-long" }, "physical "), `blocks of ${counted(size, "slot")}`), ...keys);
  const byId = new Map(cards.map((c) => [c.id, c]));
  const element = h("section", { class: "kvb-half", "aria-label": "Memory" }, caption, scroll, free);
  return { element, scroll, density, byId, draw: (s) => { cards.forEach((c) => c.draw(s)); drawFree(s); } };
}
