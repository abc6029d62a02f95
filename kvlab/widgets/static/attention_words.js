// What one query reads, in words: the same sentences as in attention_words.py, where a browser test
// holds the two against each other. Weights are whole ten-thousandths.

const visibleText = (text) => text.replace(/\n/g, "\\n").replace(/\r/g, "\\r").replace(/\t/g, "\\t");
const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
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
  const hundredths = Math.floor((weight + 50) / 100);
  return `${Math.floor(hundredths / 100)}.${String(hundredths % 100).padStart(2, "0")}`;
}

function between(weights) {
  const [low, high] = [decimal(Math.min(...weights)), decimal(Math.max(...weights))];
  return low === high ? low : `${low} to ${high}`;
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
  const verb = query === 1 ? "has a K/V row" : query === kv ? "have a K/V row each" : `share ${counted(kv, "K/V row")}`;
  return `${counted(query, "query head")} ${verb} (${attentionName([query, kv])})`;
}

function oneHead({ heads, columns }, s, layer, head) {
  const weights = s.weights[layer][head];
  const [first, second] = topTwo(weights);
  let told = `${weights[first] >= 5000 ? "most of its weight" : "the largest weight"}, ${decimal(weights[first])}, goes to ${goal(columns, s.own, first)}`;
  if (second !== undefined) told += `, then ${decimal(weights[second])} to ${goal(columns, s.own, second)}`;
  if (s.own !== first && s.own !== second) told += `; its own key gets ${decimal(weights[s.own])}`;
  const pads = paddedColumns(columns, s.own);
  if (pads.length) told += `; ${counted(pads.length, "padded slot")} together ${decimal(leakOf(columns, s, weights))}`;
  const sum = `The weights of its ${counted(keysRead(columns, s), "key")} sum to ${decimal(total(weights))}.`;
  return `Layer ${layer}, query head ${head} (${partnersOf(heads, head)}): ${told}. ${sum}`;
}

function allHeads({ heads, columns }, s, layer) {
  const rows = s.weights[layer];
  const tops = rows.map((weights) => topTwo(weights)[0]);
  const peaks = rows.map((weights, h) => weights[tops[h]]);
  const sharp = peaks.indexOf(Math.max(...peaks)), flat = peaks.indexOf(Math.min(...peaks));
  let told = `Head ${sharp} gives ${decimal(peaks[sharp])} to ${goal(columns, s.own, tops[sharp])}`;
  if (flat !== sharp) told += `, head ${flat} at most ${decimal(peaks[flat])}, to ${goal(columns, s.own, tops[flat])}`;
  if (paddedColumns(columns, s.own).length) told += `; padding gets ${between(rows.map((w) => leakOf(columns, s, w)))} of a head's weight`;
  return `In layer ${layer}, ${sharingOf(heads)}. ${told}. The weights of each head sum to ${between(rows.map(total))}.`;
}

function readSentence(payload, s, { layer, head }) {
  const middle = head === null ? allHeads(payload, s, layer) : oneHead(payload, s, layer, head);
  return [s.intro, middle, s.outro].filter(Boolean).join(" ");
}
