// What one query reads, in words: the same sentences as in attention_words.py, where a browser test
// holds the two against each other. Weights are whole ten-thousandths, null where they are NaN.

const visibleText = (text) => text.replace(/\n/g, "\\n").replace(/\r/g, "\\r").replace(/\t/g, "\\t");
const total = (weights) => (weights.includes(null) ? null : weights.reduce((a, b) => a + b, 0));
const NAN_WORDS = "NaN, not a number: where one score is NaN, the softmax makes every weight NaN";
const paddedColumns = (columns, own) => columns.flatMap(([position], p) => (position === null && p <= own ? [p] : []));
const keysRead = (columns, s) => s.own + 1 - (s.open ? 0 : paddedColumns(columns, s.own).length);
const leakOf = (columns, s, weights) => total(paddedColumns(columns, s.own).map((p) => weights[p]));

/** The columns of the two largest weights; of equal ones the left. */
function topTwo(weights) {
  let first = 0, second;
  for (let p = 1; p < weights.length; p++) {
    if (weights[p] > weights[first]) [first, second] = [p, first];
    else if (second === undefined || weights[p] > weights[second]) second = p;
  }
  return [first, second];
}

function decimal(weight) {
  if (weight === null) return "NaN";
  const hundredths = Math.floor((weight + 50) / 100);
  return `${Math.floor(hundredths / 100)}.${String(hundredths % 100).padStart(2, "0")}`;
}

function between(weights) {
  const numbers = weights.filter((weight) => weight !== null);
  if (!numbers.length) return "NaN";
  const [low, high] = [decimal(Math.min(...numbers)), decimal(Math.max(...numbers))];
  return (low === high ? low : `${low} to ${high}`) + (numbers.length === weights.length ? "" : ", or NaN");
}

function wordOf([position, id, text]) {
  const byte = text === null ? null : /^<0x([0-9A-F]{2})>$/.exec(text);
  const name = text === null ? `token ${id}` : byte ? `byte ${byte[1]}` : `'${visibleText(text)}'`;
  return position === null ? name : `${name} at position ${position}`;
}

function goal(columns, own, p) {
  return columns[p][0] === null ? `padding in slot ${p}` : `${p === own ? "its own key, " : ""}${wordOf(columns[p])}`;
}

function partnersOf([query, kv], head) {
  const group = query / kv, mine = Math.floor(head / group);
  if (group === 1) return `reads KV head ${mine} alone`;
  if (group === 2) return `reads KV head ${mine} together with query head ${head ^ 1}`;
  return `reads KV head ${mine} together with ${group - 1} other query heads`;
}

const attentionName = ([query, kv]) => `${query === kv ? "multi-head" : kv === 1 ? "multi-query" : "grouped-query"} attention`;

function sharingOf([query, kv]) {
  const verb = query === 1 ? "has a KV head" : query === kv ? "have a KV head each" : `share ${counted(kv, "KV head")}`;
  return `${counted(query, "query head")} ${verb} (${attentionName([query, kv])})`;
}

function oneHead({ heads, columns }, s, layer, head) {
  const weights = s.weights[layer][head];
  const told = weights.includes(null) ? `its weights are ${NAN_WORDS}` : goalsOf(columns, s, weights);
  const sum = `The weights of its ${counted(keysRead(columns, s), "key")} sum to ${decimal(total(weights))}.`;
  return `Layer ${layer}, query head ${head} (${partnersOf(heads, head)}): ${told}. ${sum}`;
}

function goalsOf(columns, s, weights) {
  const [first, next] = topTwo(weights);
  const second = next !== undefined && weights[next] >= 50 ? next : undefined; // else it would read 0.00
  let told = `${weights[first] >= 5000 ? "most of its weight" : "the largest weight"}, ${decimal(weights[first])}, goes to ${goal(columns, s.own, first)}`;
  if (second !== undefined) told += `, then ${decimal(weights[second])} to ${goal(columns, s.own, second)}`;
  if (s.own !== first && s.own !== second) told += `; its own key gets ${decimal(weights[s.own])}`;
  const pads = paddedColumns(columns, s.own);
  if (pads.length) told += `; ${counted(pads.length, "padded slot")} together ${decimal(leakOf(columns, s, weights))}`;
  return told;
}

function extremes(columns, own, rows) {
  const tops = rows.map((weights) => topTwo(weights)[0]);
  const peaks = rows.map((weights, h) => weights[tops[h]]);
  const sharp = peaks.indexOf(Math.max(...peaks)), flat = peaks.indexOf(Math.min(...peaks));
  const [most, least] = [sharp, flat].map((head) => [decimal(peaks[head]), goal(columns, own, tops[head])]);
  if (flat !== sharp) return `Sharpest is head ${sharp}: ${most[0]} to ${most[1]}; most spread is head ${flat}: at most ${least[0]}, to ${least[1]}`;
  return `Head ${sharp} gives at most ${most[0]}, to ${most[1]}${rows.length > 1 ? "; the largest weights of all heads are equal" : ""}`;
}

function nanHeads(nan, heads) {
  if (nan.length === heads) return `The weights of every head are ${NAN_WORDS}`;
  return `The weights of ${nan.length === 1 ? "head" : "heads"} ${nan.join(", ")} are ${NAN_WORDS}`;
}

function allHeads({ heads, columns }, s, layer) {
  const rows = s.weights[layer];
  const nan = rows.flatMap((weights, head) => (weights.includes(null) ? [head] : []));
  let told = nan.length ? nanHeads(nan, rows.length) : extremes(columns, s.own, rows);
  if (paddedColumns(columns, s.own).length) told += `; padding gets ${between(rows.map((w) => leakOf(columns, s, w)))} of a head's weight`;
  return `In layer ${layer}, ${sharingOf(heads)}. ${told}. The weights of each head sum to ${between(rows.map(total))}.`;
}

function readSentence(payload, s, { layer, head }) {
  const middle = head === null ? allHeads(payload, s, layer) : oneHead(payload, s, layer, head);
  return [s.intro, middle, s.outro].filter(Boolean).join(" ");
}
