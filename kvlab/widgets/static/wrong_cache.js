// The view "wrong cache": a prompt's tokens as running text, cut into blocks; changed positions carry a mark.

const WRONG_CSS = `
.kvw{min-height:11.4em;line-height:1.62;overflow-wrap:anywhere}
@media(min-width:1600px){.kvw{min-height:8.2em}}
.kvw-block{padding:.1em .25em .1em .1em;border-left:2px solid color-mix(in srgb,var(--ink) 55%,var(--paper));margin-right:.15em}
.kvw-n{margin:0 .35em 0 .3em;font-size:.78em;color:var(--soft)}
.kvw-t{padding:.06em 0 .06em .14em;border:1px solid transparent;border-width:1px 0}.kvw-t[data-edge]{padding-right:.14em}.kvw-tag{font-style:italic;color:var(--soft)}
.kvw-t[data-fact]{border-color:var(--ink);font-weight:600}.kvw-t[data-fact=first]{border-left-width:1px;border-radius:4px 0 0 4px}.kvw-t[data-fact=last]{border-right-width:1px;border-radius:0 4px 4px 0}
.kvw-framed{border:1px solid;border-radius:4px;font-weight:600}
.kvw-t[data-changed]{background:repeating-linear-gradient(135deg,color-mix(in srgb,var(--bad) 34%,var(--paper)) 0 3px,color-mix(in srgb,var(--bad) 15%,var(--paper)) 3px 6px)}
.kvw-badge{display:inline-block;min-width:1.5em;margin:0 .1em;padding:0 .35em;border-radius:4px;background:var(--bad);color:var(--paper);font-weight:700;font-size:.82em;line-height:1.5;text-align:center}
.kvw-ask{margin-left:.2em;padding:.1em .3em;border-left:3px double var(--focus)}
.kvw-legend{display:flex;flex-wrap:wrap;gap:0 1.6em;margin-top:.35em;min-height:1.6em;font-size:.9em;color:var(--soft)}
.kvw-legend .kvw-t,.kvw-legend .kvw-block{color:var(--ink);margin-right:.4em}
.kv .kv[data-view=wrong_cache]>.kv-say .kv-say-text{min-height:4.4em}
.kv-large .kvw{min-height:0;font-size:.8em}.kv-framed .kvw{font-size:.94em}.kv-large .kvw-legend{display:none}
`;

/** One token. The space after it belongs to it, so that a frame or mark over several has no gaps. */
function wrongToken(text, position, { fact, isChanged, isEdge }) {
  const tag = /^<\|(.+)\|>$/.exec(text);
  const [start, end] = fact;
  const inFact = position >= start && position < end;
  const edge = position === start ? "first" : position === end - 1 ? "last" : "inner";
  const token = h("span", { class: tag ? "kvw-t kvw-tag" : "kvw-t", "data-position": position, "data-fact": inFact ? edge : null }, tag ? tag[1] : text);
  token.toggleAttribute("data-changed", isChanged);
  token.toggleAttribute("data-edge", isEdge);
  if (!isEdge) token.append(" ");
  token.title = `position ${position}`;
  return token;
}

function wrongBadge(mark, words) {
  return h("span", { class: "kvw-badge", title: words, role: "img", "aria-label": words }, mark[0].toUpperCase());
}

/** The text itself: blocks one after another, padding and question where they come. */
function wrongText(payload) {
  const { tokens, block_size: size, context, changed, mark, padding, fact } = payload;
  const starts = new Map(changed.map(([from, to]) => [from, to]));
  const isChanged = (p) => changed.some(([from, to]) => p >= from && p < to);
  const text = h("div", { class: "kvw" });
  let block = null, part = text;
  tokens.forEach((token, p) => {
    if (p === context) {
      if (padding) text.append(h("span", { class: "kvw-block" }, wrongBadge(mark, `${padding} slots of padding`), ` ${padding} slots of padding `));
      part = h("span", { class: "kvw-ask", title: "the question" });
      text.append(part);
    }
    if (p % size === 0 || p === context) {
      block = h("span", { class: p % size === 0 ? "kvw-block" : "" });
      if (p % size === 0) block.append(h("span", { class: "kvw-n", title: `block ${p / size}` }, String(p / size)));
      part.append(block);
    }
    if (starts.has(p)) block.append(wrongBadge(mark, `${mark}: positions ${p} to ${starts.get(p) - 1}`));
    const isEdge = p === fact[1] - 1 || p === fact[0] - 1 || isChanged(p) !== isChanged(p + 1) || (p + 1) % size === 0;
    block.append(wrongToken(token, p, { fact, isChanged: isChanged(p), isEdge }));
    if (isEdge) block.append(" ");
  });
  return text;
}

function wrongLegend({ mark, changed, padding }) {
  const legend = h("div", { class: "kvw-legend" });
  const entry = (sign, words) => legend.append(h("span", {}, sign, words));
  entry(h("span", { class: "kvw-block" }, h("span", { class: "kvw-n" }, "3")), "a block begins");
  entry(h("span", { class: "kvw-t kvw-framed", "data-edge": "" }, "the fact"), "asked for");
  entry(h("span", { class: "kvw-ask" }), "the question begins");
  if (changed.length) {
    const sign = h("span", {}, wrongBadge(mark, mark), h("span", { class: "kvw-t", "data-changed": "", "data-edge": "" }, "word"));
    entry(sign, ` ${mark}`);
  } else if (padding) entry(wrongBadge(mark, mark), ` ${mark}`);
  return legend;
}

VIEWS.wrong_cache = (element, payload) => {
  const frame = createFrame(element, { view: "wrong_cache", title: payload.title, css: WRONG_CSS });
  frame.body.append(wrongText(payload), wrongLegend(payload));
  const say = h("div", { class: "kv-say-text", role: "status", "aria-live": "polite", "data-say": "" }, payload.sentence);
  frame.root.append(h("div", { class: "kv-say" }, say));
  const presenter = presenterSwitch(frame.root, frame.heading);
  presenter.start();
  return { destroy: presenter.destroy };
};
