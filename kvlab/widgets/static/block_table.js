// The view "block table": requests -> logical blocks -> physical blocks, step by step (sections 21.4, 21.5).

const TABLE_CSS = `
.kvb{position:relative}
.kvb-halves{display:grid;grid-template-columns:fit-content(44%) minmax(0,1fr);gap:1.6em}
.kvb-half{min-width:0}
.kvb-half>.kvb-scroll{max-height:var(--room)}
.kvb{--room:20em}.kvb[data-cards=dense]{--room:24.5em}.kv-large .kvb{--room:15.4em!important}
.kv-large .kvb-cap{font-size:max(.84em,12.9px)}
.kv-framed[data-view=block_table] .kvb{--room:none!important;display:flex;flex-direction:column;height:100%}
.kv-framed[data-view=block_table] .kvb>.kvb-halves{flex:1;min-height:0}.kv-framed[data-view=block_table] .kvb>.kvb-path{flex:none}
.kv-framed[data-view=block_table] .kvb-half{display:flex;flex-direction:column;min-height:0}.kv-framed[data-view=block_table] .kvb-half>*{flex:none}
.kv-framed[data-view=block_table] .kvb-half>.kvb-scroll{flex:0 1 auto;min-height:0}
.kvb[data-narrow] .kvb-halves{grid-template-columns:minmax(0,1fr);gap:.4em}.kvb[data-narrow]{--room:12em!important}
.kvb-path{display:flex;flex-wrap:wrap;align-items:center;gap:0 .45em;height:1.7em;overflow:hidden;white-space:nowrap;margin-top:.3em;padding-left:4px;color:var(--soft);font-size:.95em}
.kvb[data-slim] .kvb-path{height:3.4em;align-content:flex-start}.kvb[data-narrow] .kvb-path{height:5em}
.kvb-path[data-on]{color:var(--ink)}.kvb-path[data-on] b{font-weight:650}.kvb-path u{text-decoration:none;color:var(--focus)}
.kvb-path .kvb-token{max-width:9em;overflow:hidden;text-overflow:ellipsis;white-space:pre}
.kvb-arrow{position:absolute;inset:0;width:100%;height:100%;pointer-events:none;overflow:visible;z-index:5}
.kvb-arrow path{fill:none;stroke:var(--focus);stroke-width:2.2}.kvb-arrow path+path{fill:var(--focus);stroke:none}
.kvb[data-slim] .kvb-cap{column-gap:.8em}.kvb[data-slim] .kvb-key{gap:.3em}
.kv:not(.kv-framed) .kvb[data-slim]:not([data-narrow],[data-stacked]) .kvb-long{display:none}
.kv:not(.kv-framed) .kvb[data-stacked]{--room:22.8em}.kvb[data-stacked] .kvb-halves{grid-template:auto minmax(0,1fr)/minmax(0,1fr);gap:.4em}
.kvb[data-stacked] .kvb-card{padding-inline:.35em}
.kv-framed .kvb[data-stacked] .kvb-card{padding-block:0}.kv-framed .kvb[data-stacked] .kvb-cards{gap:.3em}
.kv-framed .kvb[data-stacked] .kvb-id{margin:0}.kv-framed .kvb[data-stacked] .kvb-free{margin-top:.1em}
.kvb[data-narrow] .kvb-away{display:none}
`;
const MOST_ABOVE = 6; // requests that stand above the memory, where both are wider than half of the view
const BLOCKS_HINT = "Point at a token, or press ↓ and ↑, to follow its read from the request to the slot.";
const BLOCKS_TICKS = "Coloured ticks are passes of a request, short ones selections; dark ones are arrivals, ends, shares, copies.";

/** What each stop shows, read off the trace; one record a stop. */
function blocksRecords(payload) {
  const { trace, requests, stops } = payload;
  const order = requests.map(([id]) => id), told = new Map(stops.map((stop) => [stop[0], stop]));
  const records = [];
  let held = new Map(), copies = new Map(); // block -> [who, logical block]; block -> its source
  for (const { index, event, state } of framesOf(trace)) {
    const owners = new Map(), now = new Map();
    order.forEach((id, who) => (blocksOwn(state.requests, id)?.block_table ?? []).forEach((block, logical) => {
      if (block === null) return; // given back, behind the window
      owners.set(block, [...(owners.get(block) ?? []), who]);
      if (!now.has(block)) now.set(block, [who, logical]);
    }));
    for (const [block, last] of held) if (!now.has(block) && blocksOwn(state.blocks, block)?.identity) now.set(block, last);
    held = now;
    copies = new Map([...copies].filter(([block]) => blocksOwn(state.blocks, block)?.ref_cnt));
    if (event?.kind === "copied") copies.set(event.data.dst, event.data.src);
    if (!told.has(index)) continue;
    const [, what, request, sentence, blocks, span] = told.get(index);
    const who = request === null ? null : order.indexOf(request);
    const kind = what === "computed" ? `r${who % BLOCKS_COLOURS.length}` : what === "selected" ? `r${who % BLOCKS_COLOURS.length} S` : "end";
    records.push({ sentence, kind, what, who, blocks: new Set(blocks), span, state, owners, held, copies });
  }
  return records;
}

/** Where a position of a request lies: the chapter's rule, through the request's own table. */
function blocksPath(payload, s, who, position) {
  const size = payload.trace.meta.block_size, r = blocksRequestState(s, payload.requests[who][0]);
  const logical = Math.floor(position / size), slot = position % size;
  const state = position < r.stored ? "stored" : position < r.tokens.length ? "known" : "none";
  return { who, position, logical, slot, block: r.table[logical], state, token: r.tokens[position] };
}

function blocksToken(vocab, id) {
  const text = blocksOwn(vocab, id);
  if (text === undefined) return `token ${id}`;
  const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
  return byte ? `byte ${byte[1]}` : `'${text.replace(/\n/g, "\\n")}'`;
}

/** The read in words, part by part. */
function blocksPathWords(payload, s, p) {
  const [id, letter] = payload.requests[p.who], size = payload.trace.meta.block_size;
  if (p.state === "none") return [h("span", {}, `${letter} has no token at position ${p.position} at this stop.`)];
  const token = h("span", { class: "kvb-token" }, blocksToken(payload.trace.meta.vocab, p.token));
  const parts = [h("span", { title: id }, h("b", {}, `${letter}, position ${p.position} `)), token];
  const step = (...words) => parts.push(h("u", { "aria-hidden": "true" }, "▸"), h("span", {}, ...words));
  step("logical block ", h("b", {}, String(p.logical)), ` = ⌊${p.position}/${size}⌋`);
  step("slot ", h("b", {}, String(p.slot)), ` = ${p.position} mod ${size}`);
  if (p.block === undefined) step("no block yet: known, not stored");
  else if (p.block === null) step("given back: no query reaches it any more");
  else {
    step(`entry ${p.logical} of ${letter}'s table is `, h("b", {}, `block ${p.block}`));
    const others = (s.owners.get(p.block) ?? []).filter((who) => who !== p.who).map((who) => payload.requests[who][1]);
    const also = others.length ? `, as ${others.length > 2 ? `${others.length} others` : blocksAnd(others)} ${others.length === 1 ? "does" : "do"}` : "";
    step(p.state === "stored" ? `reads block ${p.block}, slot ${p.slot}${also}` : `block ${p.block}, slot ${p.slot} is still empty`);
  }
  return parts;
}

/** What a slot of a block that nobody holds has. */
function blocksKeptWords(payload, s, block, slot) {
  const { identity, who, logical } = blocksCardState(s, block), size = payload.trace.meta.block_size;
  const [, letter] = payload.requests[who];
  return `Block ${block}, slot ${slot}: position ${logical * size + slot}, written by ${letter}, which no longer holds it. Kept under identity ${identity} until it is taken.`;
}

/** A curve from the request's side to the block, at its slot's height; both ends stay inside their boxes. */
function blocksArrow(root, svg, from, to, boxes) {
  const base = root.getBoundingClientRect(), a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
  const edge = to.closest(".kvb-card").getBoundingClientRect().left;
  const inside = (y, box) => Math.min(Math.max(y, box.top + 4), box.bottom - 4);
  const [left, right] = boxes.map((box) => box.getBoundingClientRect());
  const x1 = Math.min(a.right, left.right) - base.left + 2, y1 = inside((a.top + a.bottom) / 2, left) - base.top;
  const x2 = edge - base.left - 2, y2 = inside((b.top + b.bottom) / 2, right) - base.top;
  const bend = Math.max(Math.abs(x2 - x1) / 2, 20);
  const [line, head] = svg.children;
  line.setAttribute("d", `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}`);
  head.setAttribute("d", `M${x2} ${y2}l-9 -5v10z`);
}

/** Scroll a box no further than needed to show an element; the page stays where it is. */
function blocksShow(scroll, element) {
  const box = scroll.getBoundingClientRect(), e = element.getBoundingClientRect();
  const over = (low, high, min, max) => (low < min ? low - min : high > max ? Math.min(high - max, low - min) : 0);
  scroll.scrollTop += over(e.top, e.bottom, box.top + 24, box.top + scroll.clientHeight - 6);
  scroll.scrollLeft += over(e.left, e.right, box.left + 36, box.left + scroll.clientWidth - 6);
}

/** The token under the pointer or the focus: marks, arrow, words. */
function blocksFollower(payload, { body, rows, memory, record }) {
  const words = h("div", { class: "kvb-path", role: "status", "aria-live": "polite", "data-path-words": "" });
  // the parser gives the drawing its namespace
  const drawing = `<svg class="kvb-arrow" aria-hidden="true"><path></path><path></path></svg>`;
  const svg = document.createRange().createContextualFragment(drawing).firstChild;
  let cursor = null, pointer = null, shown = []; // [who, position] by keys; what the mouse is on; marked parts
  const clear = () => {
    for (const part of shown) part.point(null);
    shown = [];
    svg.style.display = "none";
  };
  function mark(p, scrolls) {
    const row = rows.byWho.get(p.who), card = p.state === "stored" ? memory.byId.get(p.block) : undefined;
    const from = row?.point(p.logical, p.slot), to = card?.point(p.slot);
    shown = [row, card].filter(Boolean);
    if (scrolls && row?.at(p.logical)) blocksShow(rows.scroll, row.at(p.logical));
    if (scrolls && to) blocksShow(memory.scroll, to);
    if (!from || !to) return;
    svg.style.display = "";
    blocksArrow(body, svg, from, to, [rows.scroll, memory.scroll]);
  }
  function draw(scrolls = false) {
    clear();
    const s = record(), at = pointer ?? cursor;
    words.toggleAttribute("data-on", at !== null);
    if (at === null) return words.replaceChildren(BLOCKS_HINT);
    if (at.block !== undefined) {
      memory.byId.get(at.block).point(at.slot);
      shown = [memory.byId.get(at.block)];
      return words.replaceChildren(blocksKeptWords(payload, s, at.block, at.slot));
    }
    const p = blocksPath(payload, s, at.who, at.position);
    words.replaceChildren(...blocksPathWords(payload, s, p));
    return mark(p, scrolls);
  }
  const tokens = () => payload.shown.flatMap((id) => {
    const who = payload.requests.findIndex(([name]) => name === id);
    return Array.from({ length: blocksRequestState(record(), id).stored }, (_, position) => ({ who, position }));
  });
  /** To the next stored token, or to the next request's first one. */
  function move(by, whole) {
    const all = tokens(), s = record();
    if (!all.length) return words.replaceChildren("No token is stored at this stop.");
    const same = (t, u) => u && t.who === u.who && t.position === u.position;
    const old = all.findIndex((t) => same(t, cursor));
    let next = old + by;
    if (old < 0) next = Math.max(all.findIndex((t) => s.span && s.what === "computed" && t.who === s.who && t.position === s.span[1] - 1), 0);
    else if (whole) {
      const others = all.map((t, i) => [t, i]).filter(([t]) => (t.who - cursor.who) * by > 0 && t.position === 0);
      next = others.length ? others.at(by > 0 ? 0 : -1)[1] : old;
    }
    pointer = null;
    cursor = all[Math.min(Math.max(next, 0), all.length - 1)];
    return draw(true);
  }
  const point = (at) => { if (JSON.stringify(at) !== JSON.stringify(pointer)) { pointer = at; draw(); } };
  const drop = () => { cursor = pointer = null; draw(); };
  return { words, svg, draw, move, point, drop, started: () => cursor !== null };
}

/** The token that an element of either half stands for, or null. */
function blocksUnder(payload, s, event) {
  const size = payload.trace.meta.block_size, { target } = event;
  const cell = target.closest(".kvb-s"), request = target.closest("[data-request]"), card = target.closest(".kvb-card");
  const row = target.closest(".kvb-row,.kvb-e"), entry = target.closest(".kvb-e,.kvb-bar");
  const box = entry?.getBoundingClientRect();
  const slot = cell ? Number(cell.dataset.slot) : entry ? Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * size), 0), size - 1) : null;
  if (slot === null) return null;
  if (request && row) {
    const who = payload.requests.findIndex(([, letter]) => letter === request.dataset.request);
    const r = blocksRequestState(s, payload.requests[who][0]), position = Number(row.dataset.logical) * size + slot;
    return position < Math.max(r.tokens.length, r.stored) ? { who, position } : null;
  }
  if (!card) return null;
  const block = Number(card.dataset.block), c = blocksCardState(s, block);
  if (slot >= c.filled || !s.held.has(block)) return null;
  return c.owners.length ? { who: c.who, position: c.logical * size + slot } : { block, slot };
}

VIEWS.block_table = (element, payload, options) => {
  const frame = createFrame(element, {
    view: "block_table", title: payload.title, css: CARDS_CSS + ROWS_CSS + TABLE_CSS,
    hint: "Requests on the left in their own order, memory on the right in its own.",
  });
  const stops = blocksRecords(payload);
  const rows = blocksRows(payload, stops, options.fits), memory = blocksMemory(payload);
  const body = h("div", { class: "kvb", "data-cards": memory.density, "data-rows": rows.few ? "slots" : "numbers" });
  let current = 0;
  const record = () => stops[current];
  const follower = blocksFollower(payload, { body, rows, memory, record });
  body.append(h("div", { class: "kvb-halves" }, rows.element, memory.element), follower.words, follower.svg);
  frame.body.append(body);

  /** Scroll both halves to what the stop is about. */
  function reveal() {
    const s = record(), size = payload.trace.meta.block_size;
    const row = rows.byWho.get(s.who), logical = s.span ? Math.floor((s.span[1] - 1) / size) : 0;
    if (row) blocksShow(rows.scroll, row.at(logical) ?? row.element);
    const ringed = [...s.blocks].reverse();
    for (const block of ringed) if (memory.byId.has(block)) blocksShow(memory.scroll, memory.byId.get(block).card);
    if (current === 0) for (const half of [rows, memory]) half.scroll.scrollTo(0, 0);
  }
  function draw(i) {
    current = i;
    rows.draw(record());
    memory.draw(record());
    reveal();
    follower.draw();
  }
  const player = createPlayer(frame, { stops, draw, ticks: BLOCKS_TICKS, at: options.at?.(stops) ?? payload.at ?? 0, onChange: options.onChange });
  const keys = "Arrow down and up follow a token's read, with Shift they go from request to request, Escape ends it.";
  frame.root.setAttribute("aria-description", `${frame.root.getAttribute("aria-description")} ${keys}`);
  frame.root.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (isCommand(event) || (by === undefined && event.key !== "Escape")) return;
    if (by === undefined) return follower.drop();
    event.preventDefault();
    return follower.move(by, event.shiftKey);
  });
  rows.scroll.addEventListener("focus", () => { if (rows.scroll.matches(":focus-visible") && !follower.started()) follower.move(1, false); });
  for (const { scroll } of [rows, memory]) {
    scroll.addEventListener("pointermove", (event) => follower.point(blocksUnder(payload, record(), event)));
    scroll.addEventListener("pointerleave", () => follower.point(null));
    scroll.addEventListener("scroll", () => follower.draw());
  }
  const isLow = memory.density === "medium" && !rows.few && rows.byWho.size <= MOST_ABOVE && !element.closest(".kv");
  let arranged = ""; // for which width and type
  function arrange() {
    const em = parseFloat(getComputedStyle(frame.root).fontSize), wide = frame.body.clientWidth;
    if (arranged === (arranged = `${wide} ${em}`)) return;
    for (const [name, width] of [["narrow", 46], ["slim", 68]]) body.toggleAttribute(`data-${name}`, wide < width * em);
    body.toggleAttribute("data-stacked", isLow && (wide < 68 * em || frame.root.classList.contains("kv-framed")));
    reveal(); // what was in sight may be out of it now; at first the view had no size
  }
  const observer = new ResizeObserver(() => {
    arrange();
    const hides = [rows, memory].some(({ scroll }) => scroll.scrollHeight > scroll.clientHeight + 1);
    body.dataset.crowded = hides && frame.root.classList.contains("kv-framed") ? "more" : "no"; // smaller type shows more blocks
    follower.draw();
  });
  observer.observe(frame.root);
  return { ...player, destroy: () => { observer.disconnect(); player.destroy(); } };
};
