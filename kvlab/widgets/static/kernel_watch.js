// The view "watch a kernel": programs, what each reads and holds, and the lines that ran (section 21.5).

const KERNEL_CSS = `
.kvk{--side:11.4em;--pool:9.2em;--code:11em;display:grid;grid-template-columns:fit-content(20em) minmax(0,1fr) 15.5em;gap:.2em 1.6em}
.kvk-middle{min-width:0}
.kvk-source{grid-column:1/-1;min-width:0}
.kvk-ran i{flex:none;width:4px;height:1.1em;background:var(--focus)}
.kv .kvk-note{padding:0 .5em;border-radius:4px;background:#f0e442;color:#000;font-weight:650}
.kv-large .kvk{font-size:.9em;--pool:9em;--code:7.9em;column-gap:1em;grid-template-columns:fit-content(17em) minmax(0,1fr) 14.2em}
.kv-large .kvk-head{grid-template-columns:max-content minmax(0,1fr);column-gap:.35em}.kv-large .kvk-bar{gap:.1em}.kv-large .kvk-bar span{padding:0 .1em}
.kv-large .kvk-line{grid-template-columns:minmax(0,1fr)}.kv-large .kvk-line>b{display:none}
.kv[data-view=kernel_watch]>.kv-body{container:kernel/inline-size}
@container kernel (max-width:70em){
 .kv:not(.kv-framed) .kvk{grid-template-columns:fit-content(18em) minmax(0,1fr);column-gap:1.2em;--code:9.6em}
 .kv:not(.kv-framed) .kvk-middle{grid-area:1/2/3/3}.kv:not(.kv-framed) .kvk-sums{grid-area:2/1;min-width:15.5em;contain:inline-size}
 .kv:not(.kv-framed) .kvk-scroll{height:auto;max-height:11.4em}.kv:not(.kv-framed) .kvk-sums .kvk-scroll{height:var(--sums)}
}
@container kernel (max-width:44em){
 .kv:not(.kv-framed) .kvk{grid-template-columns:minmax(0,1fr);--pool:19em}
 .kv:not(.kv-framed) :is(.kvk-middle,.kvk-sums){grid-area:auto;min-width:0;contain:none}.kv:not(.kv-framed) .kvk-line{grid-template-columns:minmax(0,1fr)}
 .kv:not(.kv-framed) .kvk-line>b{display:none}.kv:not(.kv-framed) :is(.kvk-tile,.kvk-table){flex-wrap:wrap;align-content:flex-start;height:3.7em}
}
`;
const KERNEL_TICKS = "Green: a program starts; short: looks up, reads, stores; blue: maximum and sum; orange: the splits are put together.";
const KERNEL_KINDS = { all: "C", start: "C", lookup: "S", read: "S", sum: "P", store: "S", reduce: "O", end: "C" };

VIEWS.kernel_watch = (element, payload, options) => {
  const { stops, programs } = payload;
  const frame = createFrame(element, { view: "kernel_watch", title: payload.title, hint: payload.about, css: KERNEL_POOL_CSS + KERNEL_STATE_CSS + KERNEL_CSS });
  const grid = kernelGrid(payload), middle = kernelMiddle(payload), sums = kernelSums(payload), code = kernelCode(payload);
  const caption = h("b", {}, "");
  const part = (head, content, name) => h("section", { class: name }, h("div", { class: "kvk-cap" }, ...head), content);
  const recorded = payload.recorded ? [h("span", { class: "kvk-note" }, "recorded")] : [];
  const ran = h("span", { class: "kvk-key kvk-ran" }, h("i"), "ran in this stop");
  const body = h("div", { class: "kvk", "aria-hidden": "true" },
    part([h("b", {}, "Programs"), ...recorded], h("div", { class: "kvk-scroll" }, grid.element), "kvk-side"),
    middle.element,
    part([caption], sums.element, "kvk-side kvk-sums"),
    part([h("b", {}, "The kernel's source"), code.name, ran], code.element, "kvk-source"));
  const heads = payload.reduces.length ? payload.group * payload.kv_heads : 0; // of a request: each has a share
  body.style.setProperty("--sums", `${Math.min(Math.max(payload.group * 3.3, heads * 1.9), 11.4)}em`);
  frame.body.append(body);

  function draw(i) {
    const stop = stops[i], program = stop.program === null ? null : programs[stop.program];
    const turn = program && stop.turn !== null ? program.turns[stop.turn] : null;
    const ended = stop.kind === "all" ? 0 : program ? stop.program : programs.length;
    const turns = turn ? stop.turn + (stop.kind === "sum") : stop.kind === "store" ? program.turns.length : 0;
    grid.draw(ended, stop.program ?? -1, turns);
    middle.draw(program, turn, stop.kind);
    caption.textContent = stop.kind === "reduce" ? "Shares of the splits" : "Running max and sum";
    if (program) sums.drawProgram(program, turn, stop.kind);
    else if (stop.kind === "reduce") sums.drawShares(stop.request);
    else sums.clear();
    code.draw(stop);
  }
  const shown = stops.map(({ kind, sentence }) => ({ kind: KERNEL_KINDS[kind], sentence }));
  const player = createPlayer(frame, { stops: shown, draw, ticks: KERNEL_TICKS, at: options.at?.(stops) ?? payload.at ?? 0, onChange: options.onChange });

  /** The first stop of a program. */
  const startOf = (index) => stops.findIndex((stop) => stop.program === index);
  const walk = (by) => {
    const here = stops[player.stop()].program ?? (player.stop() ? programs.length : -1);
    const to = startOf(here + by);
    player.show(to >= 0 ? to : by < 0 ? 0 : stops.length - 1);
  };
  frame.root.setAttribute("aria-description", "Arrow keys left and right, Home and End walk through the stops, up and down from program to program, Space plays, P switches to large type.");
  frame.root.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || isCommand(event)) return;
    event.preventDefault();
    walk(by);
  });
  body.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-program]");
    if (cell && cell.dataset.program) player.show(startOf(Number(cell.dataset.program)));
  });
  return { ...player, destroy: () => { code.destroy(); player.destroy(); } };
};
