// The view "prefill against decode": a roofline and curves; one stop a measured pass (section 21.2).

/** What the lines and dots mean. */
function phasesCaptions({ points }) {
  const line = (kind) => {
    const svg = phasesDraw("svg", { viewBox: "0 0 20 6", "aria-hidden": "true" });
    svg.append(phasesDraw("path", { class: kind, d: "M0 3H20" }));
    return svg;
  };
  const key = (phase, letter) => h("span", { class: "kvf-dot kvf-key", "data-phase": phase }, letter);
  const roof = h("div", { class: "kvf-caption" }, h("b", {}, "Roofline"), h("span", {}, key("prefill", "P"), "prefill"), h("span", {}, key("decode", "D"), "decode"), h("span", {}, "requests x tokens"));
  if (points.some(({ cached }) => cached)) roof.append(h("span", {}, "dashed ring: fits into the cache"));
  const curves = h("div", { class: "kvf-caption" }, h("b", {}, "Time and rate"), h("span", {}, line("kvf-M"), "bytes / bandwidth"), h("span", {}, line("kvf-A"), "FLOPs / rate"), h("span", {}, "logarithmic axes"));
  return { roof, curves };
}

VIEWS.phases = (element, payload, options) => {
  const { points, said, about } = payload;
  const frame = createFrame(element, { view: "phases", title: payload.title, hint: about, css: PHASES_CSS });
  const roof = phasesRoof(payload), captions = phasesCaptions(payload);
  const curves = ["time", "rate"].flatMap((what) => PHASES_CURVES.map((curve) => phasesCurve(points, curve, what)));
  const plots = h("div", { class: "kvf", "aria-hidden": "true" });
  plots.append(
    h("div", { class: "kvf-side" }, captions.roof, roof.element),
    h("div", { class: "kvf-side" }, captions.curves, h("div", { class: "kvf-curves" }, ...curves.map((curve) => curve.element))),
  );
  frame.body.append(plots);

  /** Stop 0 shows all, then one stop a point. */
  function draw(stop) {
    const index = stop ? stop - 1 : null;
    for (const plot of [roof, ...curves]) plot.near(index);
  }
  const kind = (i) => (i ? (points[i - 1].letter === "P" ? "P" : "O") : "C");
  const whole = (sentence) => sentence.replace(/(\d) (?=%|µ?m?s\b|[kMGT]?(B|FLOP))/g, "$1\u00a0"); // a number stays with its unit
  const stops = said.map((sentence, i) => ({ kind: kind(i), sentence: whole(sentence) }));
  const ticks = "Green: all together; blue: a prefill; orange: a decode.";
  const player = createPlayer(frame, { stops, draw, ticks, at: options.at?.(stops) ?? 0, onChange: options.onChange });
  plots.addEventListener("click", (event) => {
    const dot = event.target.closest("[data-point]");
    if (dot) player.show(1 + Number(dot.dataset.point));
  });
  const observer = new ResizeObserver(() => roof.settle());
  observer.observe(roof.element);
  return { ...player, destroy: () => { observer.disconnect(); player.destroy(); } };
};
