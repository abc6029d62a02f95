// The view "block table", its left half: each request's logical blocks in the order of its text.

const ROWS_CSS = `
.kvb-req{display:grid;grid-template-columns:2.2em minmax(0,1fr);margin-bottom:.7em}
.kvb-req>.kvb-chip{align-self:start;justify-self:start;margin-top:.25em}
.kvb-req[data-here=no]>.kvb-chip,.kvb-line[data-here=no] .kvb-chip{background:none;border:1px dashed var(--soft);color:var(--soft)}
.kvb-req[data-ring]>.kvb-chip,.kvb-line[data-ring] .kvb-chip{outline:2.5px solid var(--ink);outline-offset:1.5px}
.kvb-row{position:relative;display:flex;align-items:center;gap:.7em;height:2.15em;white-space:nowrap}
.kvb-row>span{width:4.4em;color:var(--soft);font-size:.9em}
.kvb-row>.kvb-to{width:auto;color:var(--ink);font:.9em ui-monospace,Menlo,Consolas,monospace}
.kv-large .kvb-row{height:2em}.kv-large .kvb-req{margin-bottom:.45em}
.kvb-row[data-to=""]>.kvb-to{color:var(--soft)}
.kvb-row[data-ring]>.kvb-to{font-weight:700;text-decoration:underline 2px;text-underline-offset:3px}
.kvb-row[data-path]>.kvb-to{color:var(--focus);font-weight:700}
.kvb-to::after{content:var(--longest);display:block;height:0;overflow:hidden;visibility:hidden}
.kvb-row[data-off]>*{visibility:hidden}.kvb-row[data-off]>.kvb-to[data-says]>span{position:absolute;left:0;top:50%;transform:translateY(-50%);visibility:visible;font:.93em system-ui,sans-serif}
.kvb-scroll[data-half=rows]{--slot:2.1em;--high:1.75em}
.kvb-lines{display:grid;width:max-content;min-width:100%;gap:2px 0}
.kvb-line{display:grid;grid-template-columns:2.3em repeat(var(--entries),2.6em);align-items:center}
.kvb-line .kvb-chip{justify-self:start}.kvb-line>.kvb-who{position:sticky;left:-4px;z-index:3;height:100%;display:grid;align-items:center;background:var(--paper);padding-left:2px}
.kvb-line>.kvb-status{grid-area:1/2/2/-1;padding-left:.4em;color:var(--soft);font-size:.88em;white-space:nowrap}
.kvb-line>:is(.kvb-who,.kvb-e){grid-row:1}.kvb-line[data-status=finished] .kvb-chip,.kvb-req[data-status=finished]>.kvb-chip{opacity:.6}
.kvb-line[data-head]{position:sticky;top:-4px;z-index:4;background:var(--paper);color:var(--soft);font-size:.85em;text-align:center;grid-template-columns:calc(2.3em/.85) repeat(var(--entries),calc(2.6em/.85))}
.kvb-line[data-head]>.kvb-who{text-align:left}
.kvb-e{position:relative;height:1.6em;margin:0 1px;border-radius:4px;border:1px solid transparent;text-align:center;font-size:.9em;line-height:1.3;overflow:hidden}
.kvb-e[data-on=taken]{border-color:color-mix(in srgb,var(--ink) 35%,var(--paper))}
.kvb-e[data-on=known]{border:1px dashed color-mix(in srgb,var(--ink) 45%,var(--paper))}
.kvb-e i{position:absolute;left:0;bottom:0;height:3.5px;background:var(--r)}
.kvb-e[data-ring]{border:2.5px solid var(--ink);font-weight:700;line-height:1.15}
.kvb-e[data-path]{box-shadow:inset 0 0 0 2.5px var(--focus)}
`;
const MOST_ROWS_DRAWN = 11; // logical blocks in rows of slots; of more, the halves are a table of numbers

/** A request at a stop: its tokens, how many are stored, its table. */
function blocksRequestState(s, id) {
  const request = blocksOwn(s.state.requests, id);
  if (!request) return { here: "no", status: "", table: [], tokens: [], stored: 0 };
  const { status, block_table: table, token_ids: tokens, num_computed_tokens: computed } = request;
  return { here: "yes", status, table, tokens: status === "finished" ? [] : tokens, stored: table.length ? computed : 0 };
}

/** What stands where a request holds no block. */
const blocksStatus = (r) => ({
  waiting: "waits, holds no block", preempted: "waits again, holds no block", finished: "ended, holds no block", running: "holds no block",
}[r.status] ?? "");

/** Logical blocks that each drawn request has at most, of its table or of its known tokens. */
function blocksMost(payload, stops) {
  const size = payload.trace.meta.block_size;
  return payload.shown.map((id) => Math.max(1, ...stops.map((s) => {
    const r = blocksRequestState(s, id);
    return Math.max(r.table.length, Math.ceil(r.tokens.length / size));
  })));
}

/** The left half as rows of slots where few are needed, else as a table of block numbers.
 *  fits(rows, requests): whether so many rows of slots are few.
 */
function blocksRows(payload, stops, fits = (rows) => rows <= MOST_ROWS_DRAWN) {
  const size = payload.trace.meta.block_size, most = blocksMost(payload, stops);
  const few = fits(most.reduce((a, b) => a + b, 0), most.length) && size <= 8;
  const parts = payload.shown.map((id, i) => {
    const who = payload.requests.findIndex(([name]) => name === id);
    const about = { id, who, letter: payload.requests[who][1], size, most: most[i] };
    return few ? blocksRowsOf(about) : blocksLineOf(about);
  });
  const list = h("div", { role: "list", "aria-label": "Requests and their block tables", class: few ? "" : "kvb-lines" });
  if (!few) {
    const entries = Math.max(...most);
    list.style.setProperty("--entries", String(entries));
    const numbers = Array.from({ length: entries }, (_, i) => h("span", {}, String(i)));
    list.append(h("div", { class: "kvb-line", "data-head": "", "aria-hidden": "true" }, h("span", { class: "kvb-who" }), ...numbers));
  }
  list.append(...parts.map((p) => p.element));
  const isGiven = stops.some((s) => payload.shown.some((id) => blocksRequestState(s, id).table.includes(null)));
  list.style.setProperty("--longest", isGiven ? '"→ given back"' : '"→ none yet"'); // its room is kept: the halves stay where they are
  const scroll = scroller({ class: "kvb-scroll", "data-half": "rows", "aria-label": "Requests. Arrow down and up follow a token's read." }, list);
  const caption = h("div", { class: "kvb-cap" }, h("b", {}, "Requests: logical blocks"), few ? "" : "a number is the physical block");
  const element = h("section", { class: "kvb-half", "aria-label": "Requests" }, caption, scroll);
  const byWho = new Map(parts.map((p) => [p.who, p]));
  return { element, scroll, byWho, few, draw: (s) => parts.forEach((p) => p.draw(s)) };
}

function blocksRequestWords(id, letter, r) {
  const name = id === letter ? letter : `${letter} (request ${id})`;
  if (r.here === "no") return `${name} has not arrived yet`;
  if (!r.table.length) return `${name} ${blocksStatus(r)}`;
  return `${name}: block table ${r.table.map((block) => block ?? "given back").join(", ")}; ${counted(r.stored, "position")} stored`;
}

/** What both forms of a request have: heading data, redrawn only where it has changed. */
function blocksRequestPart(about, element, chip, change) {
  let drawn = "";
  return (s) => {
    const r = blocksRequestState(s, about.id);
    const ringed = s.who === about.who && s.what !== "step_failed" && !["computed", "selected"].includes(s.what);
    const mine = s.who === about.who ? [s.what, s.span, [...s.blocks]] : null;
    const seen = JSON.stringify([r, ringed, mine]);
    if (seen === drawn) return;
    drawn = seen;
    element.dataset.here = r.here;
    element.dataset.status = r.status;
    element.dataset.table = r.table.join(" ");
    element.dataset.stored = String(r.stored);
    element.toggleAttribute("data-ring", ringed);
    const words = blocksRequestWords(about.id, about.letter, r);
    chip.title = words;
    element.setAttribute("aria-label", words);
    change(s, r);
  };
}

/** Rows of slots: logical 0 [0 1 2 3] → 7. */
function blocksRowsOf(about) {
  const { id, who, letter, size, most } = about;
  const chip = blocksChip(letter, who, id), box = h("div");
  const rows = Array.from({ length: most }, (_, logical) => {
    const slots = blocksSlots(size, size), text = h("span"), to = h("span", { class: "kvb-to" }, text);
    const row = h("div", { class: "kvb-row", "data-logical": String(logical) }, h("span", {}, `logical ${logical}`), slots.element, to);
    box.append(row);
    return { row, slots, to, text };
  });
  const element = h("div", { class: "kvb-req", role: "listitem", "data-request": letter }, chip, box);
  blocksPaint(element, who);
  const draw = blocksRequestPart(about, element, chip, (s, r) => rows.forEach(({ row, slots, to, text }, logical) => {
    const block = r.table[logical], first = logical * size;
    const known = Math.max(Math.min(r.tokens.length - first, size), 0), stored = block === null ? 0 : Math.max(Math.min(r.stored - first, size), 0);
    const on = Array.from({ length: Math.max(known, stored) }, (_, slot) => (slot < stored ? "stored" : "known"));
    slots.draw(on, first);
    const selected = s.what === "selected" && s.who === who && Math.floor(s.span[0] / size) === logical ? [s.span[0] - first, s.span[1] - first] : null;
    slots.ring(selected ?? (block === undefined ? null : blocksWritten(s, size, who, logical)));
    row.dataset.to = block === undefined ? "" : String(block);
    row.toggleAttribute("data-off", block === undefined && !known);
    row.toggleAttribute("data-ring", s.who === who && block !== undefined && s.blocks.has(block));
    const says = logical === 0 && !r.table.length ? (known ? "→ none yet" : blocksStatus(r)) : "";
    text.textContent = block === undefined ? says || "→ none yet" : block === null ? "→ given back" : `→ ${block}`;
    to.toggleAttribute("data-says", Boolean(says));
  }));
  function point(logical, slot) {
    rows.forEach(({ row, slots }, i) => {
      row.toggleAttribute("data-path", i === logical);
      slots.cells.forEach((cell, k) => cell.toggleAttribute("data-path", i === logical && k === slot));
    });
    return rows[logical]?.to;
  }
  return { who, element, draw, point, at: (logical) => rows[logical]?.row };
}

/** One line of block numbers, each with its fill. */
function blocksLineOf(about) {
  const { id, who, letter, size, most } = about;
  const chip = blocksChip(letter, who, id);
  const entries = Array.from({ length: most }, (_, logical) => {
    const number = h("span"), fill = h("i"), entry = h("div", { class: "kvb-e", "data-logical": String(logical) }, number, fill);
    entry.style.gridColumn = String(logical + 2);
    return { number, fill, entry };
  });
  const status = h("span", { class: "kvb-status" });
  const element = h("div", { class: "kvb-line", role: "listitem", "data-request": letter }, h("div", { class: "kvb-who" }, chip), ...entries.map((e) => e.entry), status);
  blocksPaint(element, who);
  const draw = blocksRequestPart(about, element, chip, (s, r) => entries.forEach(({ entry, number, fill }, logical) => {
    status.textContent = r.here === "yes" && !r.table.length ? blocksStatus(r) : "";
    const block = r.table[logical], first = logical * size;
    const stored = block === null ? 0 : Math.max(Math.min(r.stored - first, size), 0);
    entry.dataset.on = block !== undefined ? "taken" : r.table.length && r.tokens.length > first ? "known" : "";
    entry.dataset.to = block === undefined ? "" : String(block);
    number.textContent = block === undefined ? "" : block === null ? "–" : String(block);
    fill.style.width = `${(100 * stored) / size}%`;
    const selected = s.what === "selected" && s.who === who && Math.floor(s.span[0] / size) === logical;
    entry.toggleAttribute("data-ring", selected || (s.who === who && block !== undefined && s.blocks.has(block)));
  }));
  function point(logical) {
    entries.forEach(({ entry }, i) => entry.toggleAttribute("data-path", i === logical));
    return entries[logical]?.entry;
  }
  return { who, element, draw, point, at: (logical) => entries[logical]?.entry };
}
