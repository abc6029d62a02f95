// The view "cache in two layouts": a padded rectangle beside blocks; a row a request, a cell a slot.

const LAYOUTS_CSS = `
.kvl{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.4em 2.2em}.kvl[data-narrow]{grid-template-columns:minmax(0,1fr)}
.kvl-panel{min-width:0;display:flex;flex-direction:column}
.kvl-head{display:flex;flex-wrap:wrap;align-items:center;gap:0 .5em;min-height:1.9em;white-space:nowrap}.kvl-head b{font-weight:600}
.kvl-sides{display:flex;gap:.4em;margin-left:auto}.kvl[data-slim] .kvl-head{column-gap:.2em}
.kvl-about{flex:1;min-width:0;display:grid;grid-template-columns:minmax(0,1fr);color:var(--soft);font-size:.9em}.kvl-about>*{grid-area:1/1;overflow:hidden;text-overflow:ellipsis}
.kvl[data-stacked] .kvl-about{order:1;flex:1 0 100%;white-space:normal}
.kv .kvl-head button{width:auto;height:1.75em;padding:0 .5em;font-size:.84em;border-radius:5px}
.kvl-view{display:flex;min-width:0}.kvl-names{flex:none;width:5.7em;padding-top:4px}
.kvl-scroll{flex:1;min-width:0;overflow-x:auto;overflow-y:hidden;padding:4px 4px 5px;scrollbar-width:thin}
.kvl-inner{position:relative;width:max-content;min-width:100%}
.kvl-numbers{display:flex;height:1.15em;font-size:.8em;line-height:1.15em;color:var(--soft)}
.kvl-numbers i{flex:none;width:calc(var(--cell) + var(--gap));text-align:center;font-style:normal;white-space:nowrap}
.kvl-row{display:flex;height:var(--pitch);padding-bottom:2px}.kvl-panel[data-layout=blocks] .kvl-row{padding-bottom:4px}
.kvl-name{height:var(--pitch);display:flex;align-items:center;gap:.35em;white-space:nowrap;color:var(--soft)}.kvl-name span{font-size:.82em}
.kvl-name b{flex:none;display:grid;place-items:center;width:1.75em;height:1.6em;font-size:.82em;border-radius:5px;background:var(--r);color:var(--on);font-weight:650}
.kvl-cells{position:relative;display:flex;gap:var(--gap);min-width:0}
.kvl-c{flex:none;width:var(--cell);border-radius:3px;display:grid;place-items:center;border:1px solid transparent;font-weight:600;font-size:1em;line-height:1}
.kvl-c::after{font-size:min(.76em,calc(var(--cell,1.4em)*.82))}.kvl[data-fine] .kvl-inner .kvl-c::after{content:none}
.kvl-c[data-kind=none]{visibility:hidden}
.kvl-c[data-kind=P]{background:var(--r);color:var(--on)}.kvl-c[data-kind=P]::after,.kvl-c[data-kind=heldP]::after{content:"P"}
.kvl-c[data-kind=O]{background:linear-gradient(to top,var(--r) 0 24%,color-mix(in srgb,var(--r) 30%,var(--paper)) 24%);border-color:var(--r)}.kvl-c[data-kind=O]::after,.kvl-c[data-kind=heldO]::after{content:"O"}
.kvl-c[data-kind=pad],.kvl-part[data-part=pad]{border-color:var(--line);background:repeating-linear-gradient(135deg,transparent 0 3px,color-mix(in srgb,var(--ink) 26%,transparent) 3px 5px)}
.kvl-c[data-kind^=held]{border:1px dotted var(--soft);background:color-mix(in srgb,var(--r,var(--ink)) 14%,var(--paper));color:var(--soft);font-weight:400}
.kvl-c[data-kind=heldO]{box-shadow:inset 0 -.3em color-mix(in srgb,var(--r) 45%,var(--paper))}
.kvl-c[data-kind=tail]{border:1px dashed color-mix(in srgb,var(--ink) 50%,var(--paper))}
.kvl-block{flex:none;margin-right:.35em;display:flex;flex-direction:column}.kvl-block[data-off]{visibility:hidden}
.kvl-id{width:0;height:1.2em;font-size:.76em;line-height:1.15em;color:var(--soft);white-space:nowrap}.kvl[data-tight] .kvl-id span{display:none}.kvl-block[data-new] .kvl-id{color:var(--ink);font-weight:650}
.kvl-box{display:flex;gap:var(--gap);flex:1;box-shadow:0 0 0 1px var(--line);border-radius:3px}
.kvl-gone{position:absolute;inset:auto auto 4px 0;width:max-content;max-width:max(var(--sight),var(--chars)*.3em);padding:0 .3em;color:var(--soft);font-size:.88em;line-height:1.15}.kvl[data-many] .kvl-gone{font-size:.8em;line-height:1.05}
.kvl-edge,.kvl-ring{position:absolute;pointer-events:none;border-radius:6px}
.kvl-edge{border:1.5px solid color-mix(in srgb,var(--ink) 45%,var(--paper))}.kvl-ring{z-index:1;border:2.5px solid var(--ink)}
.kvl-sum{display:flex;align-items:baseline;gap:0 .8em;margin-top:.15em;white-space:nowrap}.kvl-sum b{font-size:1.4em;font-weight:600}
.kvl-mark{color:var(--soft);font-size:.88em;overflow:hidden;text-overflow:ellipsis}.kvl-mark[data-agree=true]{color:var(--good)}.kvl-mark[data-agree=false]{color:var(--bad);font-weight:700}
.kvl[data-slim] .kvl-sum{flex-wrap:wrap}.kvl[data-slim] .kvl-mark{flex:1 0 100%;min-height:1.45em;white-space:normal}.kvl[data-slim] :is(.kvl-shares li,.kvl-formula span){white-space:normal}
.kvl-bar{display:flex;height:1em;margin:.1em 0 .3em;border:1px solid var(--line);border-radius:3px;overflow:hidden}
.kvl-part{flex:none;min-width:0}.kvl-part[data-part=use]{background:color-mix(in srgb,var(--ink) 62%,var(--paper))}
.kvl-part[data-part=held]{background:color-mix(in srgb,var(--ink) 20%,var(--paper));box-shadow:inset 1px 0 var(--paper)}.kvl-part[data-part=tail]{border:1px dashed color-mix(in srgb,var(--ink) 50%,var(--paper))!important}
.kvl-shares{display:flex;flex-wrap:wrap;gap:0 1.3em;margin:0;padding:0;list-style:none;font-size:.93em;color:var(--soft)}
.kvl-shares li{display:flex;align-items:center;gap:.4em;margin:0;white-space:nowrap}.kvl-shares b{min-width:var(--digits);text-align:right;color:var(--ink);font-weight:600}.kvl-shares li>span{min-width:2.4em}.kvl-shares .kvl-part{width:1.1em;height:.95em;border:1px solid var(--line);border-radius:3px}
.kvl-formula{display:grid;font:.86em/1.5 ui-monospace,Menlo,Consolas,monospace}.kvl-formula>*{grid-area:1/1}.kvl-formula span{white-space:nowrap}
.kvl-legend{display:flex;flex-wrap:wrap;gap:.1em 1.5em;margin:.45em 0 0;padding:0;list-style:none;font-size:.9em;color:var(--soft);grid-column:1/-1}
.kv-large .kvl-shares{font-size:.84em;gap:0 .8em}.kv-large .kvl-formula{font-size:.74em}
.kv-large .kvl[data-many]>.kvl-legend,.kv-large .kvl[data-many] .kvl-formula{display:none}
.kvl-legend li{display:flex;align-items:center;gap:.45em;margin:0}.kvl-legend .kvl-c{--cell:1.35em;width:1.35em;height:1.35em;--r:#8b95a1;--on:#000}
`;

// The requests' own colours (Okabe-Ito), and the ink that can be read on each.
const LAYOUTS_COLOURS = [["#e69f00", "#000"], ["#56b4e9", "#000"], ["#009e73", "#000"], ["#cc79a7", "#000"],
  ["#f0e442", "#000"], ["#0072b2", "#fff"], ["#d55e00", "#000"], ["#a5adb8", "#000"]];
const LAYOUTS_PARTS = {
  rectangle: { use: "in use", pad: "padding", held: "ended, still held" },
  blocks: { use: "in use", tail: "empty slots of taken blocks" },
};

/** What each stop shows; passes append to rows and tables, the end of a request clears its table. */
function layoutsStates({ layouts, stops }) {
  const { meta, requests, passes } = layouts;
  const none = requests.map(() => 0);
  let state = {
    rows: requests.map(() => ""), tables: requests.map(() => []), done: none, ended: none.map(() => false),
    rectangle: 0, blocks: 0, fresh: none.map(() => 0), from: 0,
  };
  return stops.map(([count, kind, sentence]) => {
    if (kind === "pass") state = layoutsAfter(state, passes[count - 1]);
    if (kind === "ended") state = layoutsGivenBack(state, passes[count - 1]);
    const width = state.rows[0].length;
    const slots = width * requests.length, taken = state.tables.flat().length * meta.block_size;
    const pad = state.rows.join("").replace(/[^-]/g, "").length, use = state.done.reduce((a, b) => a + b, 0);
    const shares = { rectangle: { use, pad, held: slots - pad - use }, blocks: { use, tail: taken - use } };
    state = { ...state, kind, sentence, width, slots, taken, shares };
    return state;
  });
}

function layoutsAfter(before, pass) {
  return {
    rows: before.rows.map((row, i) => row + pass.columns[i]), from: before.rows[0].length,
    tables: before.tables.map((table, i) => [...table, ...pass.new_block_ids[i]]),
    fresh: pass.num_computed_tokens.map((n, i) => n - before.done[i]), done: pass.num_computed_tokens,
    ended: before.ended, now: [], back: before.back, rectangle: pass.rectangle_nbytes, each: pass.block_nbytes,
    blocks: pass.block_nbytes.reduce((a, b) => a + b, 0), oldBlocks: before.tables.map((table) => table.length),
  };
}

function layoutsGivenBack(before, { ended }) {
  const keep = (values, nothing) => values.map((value, i) => (ended.includes(i) ? nothing : value));
  const each = keep(before.each, 0);
  return {
    ...before, tables: keep(before.tables, []), done: keep(before.done, 0), ended: keep(before.ended, true), now: ended,
    back: before.tables.map((table, i) => (ended.includes(i) ? table : before.back?.[i] ?? [])), each,
    blocks: each.reduce((a, b) => a + b, 0), fresh: before.fresh.map(() => 0), oldBlocks: before.tables.map((t) => t.length),
  };
}

const layoutsLongest = (words) => words.reduce((a, b) => (b.length > a.length ? b : a));

/** A token in quotes; bytes by their two digits, an unknown one by its id. */
function layoutsToken(vocab, id) {
  const text = vocab?.[id];
  const byte = text === undefined ? null : /^<0x([0-9A-F]{2})>$/.exec(text);
  return byte ? `byte ${byte[1]}` : text === undefined ? `token ${id}` : `'${text}'`;
}

/** One of the two halves: heading, rows in a scrolling box, rings. longest: of the words beside the heading. */
function layoutsPanel(title, requests, kind, longest) {
  const about = h("div"), ghost = h("div", { class: "kv-ghost", "aria-hidden": "true" }, longest);
  const sides = h("div", { class: "kvl-sides", hidden: "" }, ...["left", "right"].map((where) => h("button", { type: "button", "data-do": where })));
  const inner = h("div", { class: "kvl-inner", role: "list", "aria-label": title });
  const scroll = scroller({ class: "kvl-scroll", "aria-label": `${title}: slots.` }, inner);
  const names = h("div", { class: "kvl-names", "aria-hidden": "true" }, h("div", { class: "kvl-numbers" }));
  const rows = requests.map(({ name }, i) => {
    const cells = h("div", { class: "kvl-cells", "aria-hidden": "true" });
    const status = h("span", { "data-status": name });
    const row = h("div", { class: "kvl-row", role: "listitem", "data-request": name }, cells);
    const label = h("div", { class: "kvl-name" }, h("b", {}, name), status);
    for (const { style } of [row, label]) {
      style.setProperty("--r", LAYOUTS_COLOURS[i][0]);
      style.setProperty("--on", LAYOUTS_COLOURS[i][1]);
    }
    names.append(label);
    inner.append(row);
    return { row, cells, status };
  });
  const rings = requests.map(() => h("div", { class: "kvl-ring", "aria-hidden": "true", hidden: "" }));
  inner.append(...rings);
  const head = h("div", { class: "kvl-head" }, h("b", {}, title), h("div", { class: "kvl-about" }, ghost, about), sides);
  const element = h("section", { class: "kvl-panel", "data-layout": kind, "aria-label": title }, head, h("div", { class: "kvl-view" }, names, scroll));
  return { element, about, ghost, scroll, inner, rows, rings, more: layoutsMore(scroll, sides) };
}

/** Two buttons that scroll a half whose slots do not all fit. */
function layoutsMore(scroll, sides) {
  const buttons = [...sides.children];
  const step = () => scroll.clientWidth * 0.7;
  const update = () => {
    const most = scroll.scrollWidth - scroll.clientWidth;
    sides.hidden = most <= 1;
    for (const [i, button] of buttons.entries()) {
      const out = i ? scroll.scrollLeft >= most - 1 : scroll.scrollLeft <= 1;
      button.textContent = i ? "more ▸" : "◂ more";
      button.setAttribute("aria-disabled", String(out));
      button.setAttribute("aria-label", `Scroll ${i ? "right" : "left"}`);
    }
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => {
    const behavior = matchMedia("(prefers-reduced-motion:reduce)").matches ? "auto" : "smooth";
    scroll.scrollBy({ left: (i ? 1 : -1) * step(), behavior });
  }));
  scroll.addEventListener("scroll", update);
  return update;
}

const layoutsCell = () => h("div", { class: "kvl-c", "data-kind": "none" });

function layoutsPaint(cell, kind, title) {
  if (cell.dataset.kind === kind && cell.title === title) return;
  cell.dataset.kind = kind;
  cell.title = title;
}

/** The left half: cells [B, T]; an edge around what is allocated. */
function layoutsRectangle(payload, states) {
  const { requests, meta } = payload.layouts;
  const about = (s) => `K and V of each layer: [${requests.length}, ${meta.num_kv_heads}, ${s.width}, ${meta.head_dim}]`;
  const panel = layoutsPanel("One padded rectangle", requests, "rectangle", layoutsLongest(states.map(about)));
  const width = Math.max(...states.map((s) => s.width));
  const numbers = h("div", { class: "kvl-numbers", "aria-hidden": "true" });
  for (let t = 0; t < width; t++) numbers.append(h("i", {}, t % 5 ? "" : String(t)));
  const labels = [...numbers.children];
  panel.inner.prepend(numbers);
  const edge = h("div", { class: "kvl-edge", "aria-hidden": "true" });
  panel.inner.append(edge);
  const cells = panel.rows.map(({ cells: place }) => Array.from({ length: width }, layoutsCell).map((c) => (place.append(c), c)));
  function draw(s) {
    panel.about.textContent = about(s);
    labels.forEach((label, t) => { label.style.visibility = t < s.width ? "" : "hidden"; });
    s.rows.forEach((row, i) => {
      const ids = [...requests[i].prompt_token_ids, ...requests[i].output_token_ids];
      let position = 0;
      cells[i].forEach((cell, t) => {
        const where = `${requests[i].name}, slot ${t}: `;
        if (t >= row.length) layoutsPaint(cell, "none", "");
        else if (row[t] === "-") layoutsPaint(cell, "pad", `${where}padding, masked as a key`);
        else {
          const what = row[t] === "P" ? "prompt" : "output";
          const told = `${where}position ${position}, ${layoutsToken(meta.vocab, ids[position++])}, ${what}`;
          layoutsPaint(cell, s.ended[i] ? `held${row[t]}` : row[t], s.ended[i] ? `${told}, still held` : told);
        }
      });
      const tally = `${counted(row.replace(/[^P]/g, "").length, "prompt position")}, ${counted(row.replace(/[^O]/g, "").length, "output")}, ${row.replace(/[^-]/g, "").length} padding`;
      panel.rows[i].status.textContent = s.ended[i] ? "ended" : "";
      panel.rows[i].row.setAttribute("aria-label", `${requests[i].name}${s.ended[i] ? ", ended, still held" : ""}: ${tally}`);
    });
  }
  const spans = (s) => {
    if (s.kind === "ended") return s.now.map((i) => [cells[i][0], cells[i][s.width - 1]]);
    return s.kind === "pass" ? [[cells[0][s.from], cells.at(-1)[s.width - 1]]] : [];
  };
  const mark = (s) => {
    edge.hidden = s.width === 0;
    if (s.width) layoutsPlace(panel.inner, edge, cells[0][0], cells.at(-1)[s.width - 1], 3);
  };
  return { ...panel, draw, spans, mark };
}

/** The right half: each request's blocks in the order of its table. */
function layoutsBlocks(payload, states) {
  const { requests, meta } = payload.layouts;
  const size = meta.block_size;
  const about = (s) => (s.taken ? `${counted(s.taken / size, "block")} taken, numbered as in the pool` : "no block taken");
  const panel = layoutsPanel(`Blocks of ${counted(size, "slot")}`, requests, "blocks", layoutsLongest(states.map(about)));
  panel.inner.prepend(h("div", { class: "kvl-numbers", "aria-hidden": "true" }));
  const blocks = panel.rows.map(({ cells: place }, i) => {
    const most = Math.max(...states.map((s) => s.tables[i].length));
    const made = Array.from({ length: most }, () => {
      const id = h("div", { class: "kvl-id" }), cells = Array.from({ length: size }, layoutsCell);
      const block = h("div", { class: "kvl-block" }, id, h("div", { class: "kvl-box" }, ...cells));
      place.append(block);
      return { block, id, cells };
    });
    const gone = h("span", { class: "kvl-gone", hidden: "" });
    place.append(gone);
    return { made, gone };
  });
  function draw(s) {
    panel.about.textContent = about(s);
    s.tables.forEach((table, i) => {
      const { made, gone } = blocks[i], { name, prompt_token_ids: prompt, output_token_ids: outputs } = requests[i];
      const ids = [...prompt, ...outputs];
      made.forEach(({ block, id, cells }, k) => {
        block.toggleAttribute("data-off", k >= table.length);
        block.toggleAttribute("data-new", s.kind === "pass" && k >= s.oldBlocks[i]);
        id.replaceChildren(...(k < table.length ? [h("span", {}, "block "), String(table[k])] : []));
        cells.forEach((cell, j) => {
          const p = k * size + j, where = `${name}, block ${table[k]}, slot ${j}: `;
          if (k >= table.length) layoutsPaint(cell, "none", "");
          else if (p >= s.done[i]) layoutsPaint(cell, "tail", `${where}empty`);
          else layoutsPaint(cell, p < prompt.length ? "P" : "O", `${where}position ${p}, ${layoutsToken(meta.vocab, ids[p])}, ${p < prompt.length ? "prompt" : "output"}`);
        });
      });
      gone.hidden = !s.ended[i];
      gone.textContent = s.ended[i] ? `${counted(s.back[i].length, "block")} given back: ${s.back[i].join(", ")}` : "";
      gone.style.setProperty("--chars", String(gone.textContent.length)); // at most two lines
      const held = table.length ? `${counted(s.done[i], "position")} in blocks ${table.join(", ")}, ${table.length * size - s.done[i]} empty` : gone.textContent || "no block";
      panel.rows[i].status.textContent = s.ended[i] ? "ended" : table.length ? counted(table.length, "block") : "";
      panel.rows[i].row.setAttribute("aria-label", `${name}: ${held}`);
    });
  }
  const cellAt = (i, p) => blocks[i].made[Math.floor(p / size)].cells[p % size];
  const spans = (s) => {
    if (s.kind === "ended") return s.now.map((i) => [blocks[i].gone, blocks[i].gone]);
    return s.fresh.flatMap((n, i) => (n > 0 ? [[cellAt(i, s.done[i] - n), cellAt(i, s.done[i] - 1)]] : []));
  };
  return { ...panel, draw, spans, mark: () => {} };
}

/** Lay an element around two others and what is between them. */
function layoutsPlace(inner, ring, first, last, room) {
  const box = inner.getBoundingClientRect(), a = first.getBoundingClientRect(), b = last.getBoundingClientRect();
  const px = { left: a.left - box.left - room, top: a.top - box.top - room, width: b.right - a.left + 2 * room, height: b.bottom - a.top + 2 * room };
  for (const [name, value] of Object.entries(px)) ring.style[name] = `${value}px`;
  return px;
}

/** Under each half: bytes, what they are spent on, the formula and whether it agrees. */
function layoutsLedger(kind, states, formula) {
  const bytes = h("b", { "data-bytes": kind }), mark = h("span", { class: "kvl-mark" });
  const bar = h("div", { class: "kvl-bar", "aria-hidden": "true" }), list = h("ul", { class: "kvl-shares" });
  const parts = Object.entries(LAYOUTS_PARTS[kind]).map(([part, words]) => {
    const made = { part, piece: h("i", { class: "kvl-part", "data-part": part }), n: h("b"), share: h("span") };
    bar.append(made.piece);
    list.append(h("li", { "data-share": part }, h("i", { class: "kvl-part", "data-part": part }), made.n, words, made.share));
    return made;
  });
  const pieces = (words) => words.split(" · ").flatMap((word, i) => [i ? " · " : "= ", h("span", {}, word)]);
  const longest = layoutsLongest(states.map((s) => formula(s).words));
  const now = h("div", { "data-formula": kind }), ghost = h("div", { class: "kv-ghost", "aria-hidden": "true" }, ...pieces(longest));
  const most = Math.max(...states.map((s) => Math.max(s.rectangle, s.blocks)), 1);
  list.style.setProperty("--digits", `${thousands(Math.max(...states.map((s) => Math.max(s.slots, s.taken)))).length}ch`);
  function draw(s) {
    const measured = s[kind], slots = kind === "rectangle" ? s.slots : s.taken, { words, product } = formula(s);
    bytes.textContent = counted(measured, "byte");
    mark.dataset.agree = slots ? String(measured === product) : "none";
    mark.textContent = !slots ? "" : measured === product ? "✓ equals nbytes of the tensors" : `✗ tensors ${thousands(measured)}, formula ${thousands(product)}`;
    mark.title = mark.textContent;
    for (const { part, piece, n, share } of parts) {
      const count = s.shares[kind][part];
      piece.hidden = count === 0;
      piece.style.width = `${slots ? (100 * measured * count) / slots / most : 0}%`;
      n.textContent = thousands(count);
      share.textContent = slots ? `${Math.round((100 * count) / slots)}%` : "";
    }
    now.replaceChildren(...pieces(words));
  }
  return { elements: [h("div", { class: "kvl-sum" }, bytes, mark), bar, list, h("div", { class: "kvl-formula" }, ghost, now)], draw };
}

/** The two formulas, as in kvlab/widgets/layouts_story.py. */
function layoutsFormulas({ num_layers: layers, num_kv_heads: heads, head_dim: width, bytes_per_value: size, block_size: block }) {
  const slot = 2 * layers * heads * width * size;
  const sizes = `${width} width · ${size} B`;
  return {
    rectangle: (s) => ({
      words: `2 · ${counted(layers, "layer")} · ${counted(s.rows.length, "request")} · ${counted(heads, "KV head")} · ${counted(s.width, "slot")} · ${sizes}`,
      product: s.slots * slot,
    }),
    blocks: (s) => {
      const done = s.done.filter((n) => n > 0), each = done.map((n) => `⌈${n}/${block}⌉`).join(" + ") || "0";
      const whole = done.reduce((sum, n) => sum + Math.ceil(n / block), 0);
      return { words: `${done.length > 1 ? `(${each})` : each} · ${counted(block, "slot")} · ${thousands(slot)} B`, product: whole * block * slot };
    },
  };
}

function layoutsLegend() {
  const entries = [["P", "prompt"], ["O", "output"], ["pad", "padding, masked as a key"], ["heldP", "ended, still held"], ["tail", "empty slot of a taken block"]];
  const items = entries.map(([kind, words]) => h("li", {}, h("span", { class: "kvl-c", "data-kind": kind, "aria-hidden": "true" }), words));
  return h("ul", { class: "kvl-legend" }, ...items);
}

VIEWS.cache_layouts = (element, payload, options) => {
  const { meta, requests } = payload.layouts, layers = meta.num_layers;
  const alike = layers === 1 ? "K and V look alike." : `All ${layers} layers look like this, K and V alike.`;
  const frame = createFrame(element, {
    view: "cache_layouts", title: payload.title, css: LAYOUTS_CSS, hint: `The same tokens from both. ${alike}`,
  });
  const states = layoutsStates(payload), formulas = layoutsFormulas(meta);
  const panels = [layoutsRectangle(payload, states), layoutsBlocks(payload, states)];
  const ledgers = ["rectangle", "blocks"].map((kind) => layoutsLedger(kind, states, formulas[kind]));
  panels.forEach((panel, i) => panel.element.append(...ledgers[i].elements));
  const body = h("div", { class: "kvl" }, ...panels.map((panel) => panel.element), layoutsLegend());
  frame.body.append(body);

  function drawRings(s) {
    for (const { inner, rings, spans, mark, scroll, more } of panels) {
      mark(s);
      const found = spans(s);
      let right = 0;
      rings.forEach((ring, i) => {
        ring.hidden = !found[i];
        if (!found[i]) return;
        const { left, width } = layoutsPlace(inner, ring, ...found[i], 2);
        right = Math.max(right, left + width);
      });
      if (found.length && s.kind === "pass") scroll.scrollLeft = Math.max(right + 8 - scroll.clientWidth, 0);
      if (s.kind === "start" || (s.kind === "ended" && inner !== panels[0].inner)) scroll.scrollLeft = 0;
      more();
    }
  }
  function draw(i) {
    panels.forEach((panel, k) => { panel.draw(states[i]); ledgers[k].draw(states[i]); });
    drawRings(states[i]);
  }
  /** Cells as wide as both halves allow, one size for both; below 5 pixels they scroll instead. */
  function fit() {
    const em = parseFloat(getComputedStyle(frame.root).fontSize), large = frame.root.classList.contains("kv-large");
    body.toggleAttribute("data-narrow", frame.body.clientWidth < 50 * em);
    body.toggleAttribute("data-slim", frame.body.clientWidth < 30 * em); // a phone
    body.toggleAttribute("data-many", requests.length > 4);
    const free = panels[0].scroll.clientWidth - 14;
    const width = Math.max(...states.map((s) => s.width)), blocks = Math.max(...states.flatMap((s) => s.tables.map((t) => t.length)));
    const each = Math.min(free / width, (free / blocks - 0.35 * em) / meta.block_size); // a cell with its gap
    const gap = each < 14 ? 1 : 2, fits = each - gap >= 5;
    const cell = fits ? Math.min(each - gap, 2.1 * em) : 1.2 * em;
    body.toggleAttribute("data-fine", Math.floor(cell) < 9); // no room for letters
    body.toggleAttribute("data-tight", meta.block_size * (cell + gap) < 3.9 * em); // nor for the word "block"
    const pitch = requests.length > 4 ? (large ? 1.85 : 2.1) : 2.75;
    const sizes = { cell: Math.floor(cell), gap: fits ? gap : 2, pitch: Math.ceil(pitch * em), sight: free };
    for (const [name, value] of Object.entries(sizes)) body.style.setProperty(`--${name}`, `${value}px`);
    for (const { more } of panels) more();
    body.removeAttribute("data-stacked"); // words that do not fit beside a heading and its buttons stand below both
    body.toggleAttribute("data-stacked", panels.some(({ ghost }) => ghost.scrollWidth > ghost.clientWidth));
    drawRings(states[player.stop()]);
  }
  const stops = states.map((s) => ({ sentence: s.sentence, kind: s.kind === "ended" ? "S" : s.kind }));
  const player = createPlayer(frame, {
    stops, draw, ticks: "Long ticks are passes, short ones requests that end.", at: options.at?.(states) ?? 0, onChange: options.onChange,
  });
  const observer = new ResizeObserver(fit);
  observer.observe(frame.root);
  return { ...player, destroy: () => { observer.disconnect(); player.destroy(); } };
};
