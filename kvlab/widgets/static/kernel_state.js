// The view "watch a kernel", its sides: the grid of programs; running maxima and sums; the source (section 21.5).

const KERNEL_STATE_CSS = `
.kv .kvk-grid{border-collapse:separate;border-spacing:3px;margin:0;border:0;font-size:.92em;table-layout:auto;width:auto}
.kv .kvk-grid :is(th,td){padding:0;border:0;background:none;text-align:center;font-weight:500;color:var(--soft);white-space:nowrap;line-height:1.25}
.kv .kvk-grid tr{background:none;border:0}
.kv .kvk-grid tbody th{text-align:right;padding-right:.4em;max-width:7em;overflow:hidden;text-overflow:ellipsis;color:var(--ink);font-weight:600}
.kv .kvk-grid td{width:2.2em;min-width:2.2em;height:2em;border:1px dashed color-mix(in srgb,var(--ink) 35%,var(--paper));border-radius:6px;cursor:pointer;font-size:.9em}
.kv .kvk-grid td[data-on=done]{border:1px solid color-mix(in srgb,var(--ink) 35%,var(--paper));background:color-mix(in srgb,var(--ink) 13%,var(--paper));color:var(--ink)}
.kv .kvk-grid td[data-on=now]{border:2.5px solid var(--focus);background:color-mix(in srgb,var(--focus) 18%,var(--paper));color:var(--ink);font-weight:700}
.kv .kvk-grid .kvk-gap{width:.5em;min-width:.5em;height:0;border:0;cursor:default}
.kvk-side{min-width:0;overflow:hidden}
.kvk-scroll{height:var(--side);overflow:auto;scrollbar-width:thin}.kvk-sums .kvk-scroll{overflow-x:hidden}
.kvk-head{display:grid;grid-template-columns:3.6em minmax(0,1fr);column-gap:.5em;padding:.16em 0;border-top:1px solid var(--line)}
.kvk-head>b{grid-row:1/3;align-self:center;font-weight:600;white-space:nowrap}
.kvk-bar{position:relative;display:flex;justify-content:space-between;gap:.5em;height:1.42em;line-height:1.42;white-space:nowrap}
.kvk-bar span{position:relative;z-index:1;padding:0 .3em;font-size:.95em}.kvk-bar span:first-child{color:var(--ink)}
.kvk-bar i{position:absolute;left:0;top:1px;bottom:1px;border-radius:3px;background:color-mix(in srgb,var(--c) 42%,var(--paper))}
.kvk-bar u{position:absolute;top:62%;bottom:0;width:3px;margin-left:-1px;background:var(--c);border-radius:2px}
.kvk-bar[data-what=max2]{--c:#0072b2}.kvk-bar[data-what=sum]{--c:#e69f00}
.kvk-bar[data-on] span:nth-child(2){font-weight:650}
.kvk-share{display:flex;height:1.5em;gap:2px;grid-row:1/3;align-self:center;font-size:.9em;line-height:1.5}
.kvk-share span{flex:none;overflow:hidden;text-align:center;white-space:nowrap;color:#000;background:var(--l);border-radius:3px;min-width:2px}
.kvk-code{position:relative;height:var(--code);overflow:auto;scrollbar-width:thin;border:1px solid var(--line);border-radius:6px;background:var(--wash);
 font:.88em/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.kvk-code>div{display:none;width:max-content;min-width:100%;padding:.2em 0}.kvk-code>div[data-open]{display:block}
.kvk-code code{display:block;padding:0 .8em 0 0;border:0;background:none;color:var(--soft);font:inherit;white-space:pre;border-left:4px solid transparent}
.kvk-code code::before{content:attr(data-line);display:inline-block;width:3.2em;margin-right:1em;text-align:right;color:var(--soft);opacity:.75}
.kvk-code code[data-ran]{color:var(--ink);border-left-color:var(--focus)}
.kvk-code code[data-at]{font-weight:700;background:color-mix(in srgb,var(--focus) 20%,var(--paper))}
.kvk-name{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
`;
const KERNEL_SPLITS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442"];

/** Programs: a row a request, a column a KV head and split; one shows how many of its turns are done. */
function kernelGrid(payload) {
  const { kv_heads: heads, splits, names, programs } = payload, range = (n) => [...Array(n).keys()];
  /** cell(i) for each KV head and split, with room between the KV heads. */
  const spaced = (cell) => range(heads * splits).flatMap((i) => (i && i % splits === 0 ? [h("td", { class: "kvk-gap" }), cell(i)] : [cell(i)]));
  const over = h("tr", {}, h("th", {}, "request"), ...range(heads).flatMap((head) => [...(head ? [h("td", { class: "kvk-gap" })] : []), h("th", { colspan: splits, scope: "colgroup" }, splits > 1 || heads < 4 ? `KV head ${head}` : String(head))]));
  const under = h("tr", {}, h("th", { scope: "col" }, "split"), ...spaced((i) => h("th", { scope: "col" }, String(i % splits))));
  const cells = new Map(), body = h("tbody");
  const index = new Map(programs.map(({ ids }, i) => [ids.join(), i]));
  for (const request of names.keys()) {
    const name = names[request], row = h("tr", {}, h("th", { scope: "row", title: name }, name && name.length < 5 ? `${request} (${name})` : String(request)));
    row.append(...spaced((i) => {
      const at = index.get([request, Math.floor(i / splits), i % splits].join()), cell = h("td", { "data-program": at ?? "" });
      if (at !== undefined) cells.set(at, cell);
      return cell;
    }));
    body.append(row);
  }
  const element = h("table", { class: "kvk-grid" }, h("thead", {}, over, under), body);
  /** done: programs that have ended; now: the one that runs; turns: how many of its turns are complete. */
  function draw(done, now, turns) {
    for (const [i, cell] of cells) {
      const all = programs[i].turns.length;
      cell.dataset.on = i === now ? "now" : i < done ? "done" : "";
      cell.textContent = i === now ? `${turns}/${all}` : i < done ? "✓" : "";
      cell.title = `program (${programs[i].ids.join(", ")}): ${counted(all, "turn")}`;
    }
    const cell = cells.get(now);
    const box = element.parentElement;
    if (cell && box && box.scrollHeight > box.clientHeight) box.scrollTop = cell.offsetTop - 30;
  }
  return { element, draw };
}

/** Running maximum and sum of the query heads of the program's group; the shares of the splits. */
function kernelSums(payload) {
  const element = h("div", { class: "kvk-scroll" }), { max2: [low, high], sum: most } = payload.scale;
  const percent = (value, from, to) => (value === null ? 0 : Math.min(100, Math.max(0, (100 * (value - from)) / (to - from || 1))));
  const from = low - 0.15 * (high - low || 1);
  function bar(what, words, [before, after], on) {
    const line = h("div", { class: "kvk-bar", "data-what": what }), fill = h("i"), ends = what === "max2" ? [from, high] : [0, most];
    const shown = on ? after : before;
    fill.style.width = `${percent(shown[0], ...ends)}%`;
    line.toggleAttribute("data-on", on);
    line.append(h("span", {}, words), h("span", {}, on ? `${before[1]} → ${after[1]}` : shown[1]), fill);
    if (on && before[0] !== null) {
      const mark = h("u");
      mark.style.left = `${percent(before[0], ...ends)}%`;
      line.append(mark);
    }
    return line;
  }
  const EMPTY = [[null, "−∞"], [0, "0.00"]];
  function drawProgram(program, turn, kind) {
    const first = program.ids[1] * payload.group, ended = kind === "store" ? program.turns.at(-1) : null;
    const heads = Array.from({ length: payload.group }, (_, i) => {
      const pairs = ["max2", "sums"].map((name, k) => {
        if (ended) return [ended[name][1][i], ended[name][1][i]];
        return turn ? [turn[name][0][i], turn[name][1][i]] : [EMPTY[k], EMPTY[k]];
      });
      const on = kind === "sum";
      return h("div", { class: "kvk-head", "data-head": first + i }, h("b", {}, `head ${first + i}`), bar("max2", "max", pairs[0], on), bar("sum", "sum", pairs[1], on));
    });
    element.replaceChildren(...heads);
  }
  function drawShares(request) {
    const rows = payload.reduces.filter(([r]) => r === request).map(([, head, weights]) => {
      const share = h("div", { class: "kvk-share" });
      weights.forEach((weight, split) => {
        const part = weight ?? 1 / weights.length, told = weight === null ? "NaN" : weight.toFixed(2); // null: no number
        const piece = h("span", { title: `split ${split}` }, part >= 0.18 ? `split ${split}: ${told}` : "");
        piece.style.width = `calc(${100 * part}% - 2px)`;
        piece.style.setProperty("--l", KERNEL_SPLITS[split % KERNEL_SPLITS.length]);
        share.append(piece);
      });
      return h("div", { class: "kvk-head", "data-head": head }, h("b", {}, `head ${head}`), share);
    });
    element.replaceChildren(...rows);
  }
  return { element, drawProgram, drawShares, clear: () => element.replaceChildren() };
}

/** The kernel's own lines; those that ran in the stop are marked, and those that did its work more. */
function kernelCode(payload) {
  const element = h("div", { class: "kvk-code", tabindex: "-1" }), name = h("span", { class: "kvk-name" });
  const functions = payload.sources.map(([title, first, lines]) => {
    const codes = lines.map((text, i) => h("code", { "data-line": first + i }, text || " "));
    const box = h("div", {}, ...codes);
    element.append(box);
    return { title, first, last: first + lines.length - 1, codes, box };
  });
  let open = null;
  let marked = [];
  /** The marked lines in the middle of the box, the first of them in sight. */
  function scroll() {
    if (!marked.length) return void (element.scrollTop = 0);
    const top = marked[0].offsetTop, bottom = marked.at(-1).offsetTop + marked.at(-1).offsetHeight;
    element.scrollTop = Math.max(0, Math.min((top + bottom - element.clientHeight) / 2, top - 2));
  }
  const resized = new ResizeObserver(scroll); // the presenter's switch changes the size of a line
  resized.observe(element);
  function draw(stop) {
    const aim = stop.at[0] ?? stop.lines[0], next = functions.find(({ first, last }) => first <= aim && aim <= last) ?? open ?? functions[0];
    if (!next) return;
    open = next;
    for (const one of functions) one.box.toggleAttribute("data-open", one === open);
    name.textContent = `${payload.file} · ${open.title}`;
    open.codes.forEach((code, i) => {
      code.toggleAttribute("data-ran", stop.lines.includes(open.first + i));
      code.toggleAttribute("data-at", stop.at.includes(open.first + i));
    });
    marked = open.codes.filter((code) => code.hasAttribute(stop.at.length ? "data-at" : "data-ran"));
    scroll();
  }
  return { element, name, draw, destroy: () => resized.disconnect() };
}
