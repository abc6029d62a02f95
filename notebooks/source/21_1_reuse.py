# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,slideshow,-all
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 21.1 Reuse: what the cache keeps, and heads that share it
#
# **A model has read a prompt of twenty tokens and selected one more. Which part of the work on the twenty has
# to be done again for the next, and what does it cost to keep it instead?**
#
# 60 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about a minute,
# most of it for one cell that trains a model, and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. It is a stack of
# **layers**; the vector of a position that goes from one layer to the next is its **hidden state**. In each
# layer every position gets a **query**, a **key** and a **value**, short vectors. The query is compared with
# the keys, and the values are mixed by how well they match: that is **attention**. It happens in several
# **heads** side by side, each with a query of its own; a head that has a key and a value of its own to be
# stored is a **KV head**, and the length of these vectors is its **width**. A **causal** mask lets a position
# read itself and earlier positions only. A **pass** is one run of the model over new tokens: first over the
# prompt, then over one selected token at a time, which is called **decoding**.
#
# The keys and values of processed positions are the **payload** of the cache. An **engine** serves requests;
# its **pool** is memory for keys and values, cut into **blocks** of a few **slots**, one slot a position.
#
# After this section you can
#
# - say why earlier keys and values may be kept, and what has to stay as it is for that;
# - follow one decode step at one layer in numbers, and say what the cache does *not* hold;
# - give the shape and the bytes of a cache, in a padded rectangle and in blocks;
# - tell MHA, GQA and MQA apart, and say what sharing heads saves, what it costs, and what it leaves as it was.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import copy
import inspect
import subprocess
import textwrap
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display

from kvlab import LLM, ContiguousCache, Decoder, ModelConfig, PagedCache, SamplingParams, tiny
from kvlab.core.memory import growth_bytes, kv_cache_bytes, kv_cache_gib
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.tensors.kv_cache import ContiguousAttention, contiguous_forward
from kvlab.tensors.ops import NoCache
from kvlab.widgets import (
    attention_read,
    cache_layouts,
    grow_a_cache,
    memory_calculator,
    wrong_cache_lab,
)

_ = torch.set_num_threads(1)  # one thread: times are steadier, and the model is small

llm = LLM("tiny", block_size=4, num_blocks=64, enable_prefix_caching=False)
model, config = llm.model, llm.model.config
prompt = tiny.prompt("Ada likes soup. The key is red.", "What does Ada like?", rules="")
prompt_ids = llm.encode(prompt)
print(f"{llm}\nthe prompt has {len(prompt_ids)} tokens")

# %% [markdown]
# ## Why anything can be kept
#
# The first check is the simplest one. Process the prompt. Process the prompt with one more token. Compare
# the keys and values of the positions that both have, layer by layer.
#
# Then take away what makes it work, one thing at a time: first the causal mask, then the promise that the
# weights stay as they were (one row of the key weights of layer 1 is changed).


# %% tags=["claim-21.1-a"]
class SeesEverything(ContiguousAttention):
    """The same attention with the causal mask taken away: every query reads every key."""

    def __init__(self, cache, width):
        super().__init__(cache, width)
        self.mask = torch.ones_like(self.mask)


def run_pass(model, cache, token_ids, attention=ContiguousAttention):
    """One pass over new tokens of one request. Returns the last hidden states, [n, D]."""
    start, n = cache.width, len(token_ids)
    cache.valid = torch.cat((cache.valid, cache.valid.new_ones(1, n)), dim=1)
    positions = torch.arange(start, start + n)
    with torch.no_grad():
        return model(torch.tensor(token_ids), positions, attention(cache, n))


def difference(one, other):
    """Largest difference at the positions that both have, for each layer, over keys and values."""
    pairs = zip(one.keys + one.values, other.keys + other.values, strict=True)
    found = [float((a - b[:, :, : a.shape[2]]).abs().max()) for a, b in pairs]
    return [max(k, v) for k, v in zip(found[: len(one.keys)], found[len(one.keys) :], strict=True)]


changed = copy.deepcopy(model)
changed.layers[1].self_attn.qkv_proj.weight[config.num_query_heads * config.head_dim] *= 3
longer = [*prompt_ids, *llm.encode(" Ada")]
rows = {}
for name, second_model, attention in (
    ("causal, same weights", model, ContiguousAttention),
    ("no causal mask", model, SeesEverything),
    ("some weights changed", changed, ContiguousAttention),
):
    short_cache, long_cache = ContiguousCache(config), ContiguousCache(config)
    run_pass(model, short_cache, prompt_ids, attention)
    run_pass(second_model, long_cache, longer, attention)
    rows[name] = difference(short_cache, long_cache)

TOLERANCE = 1e-4  # of values up to about 10; the arithmetic is fp32
print(f"{'':>22}" + "".join(f"{f'layer {i}':>16}" for i in range(config.num_layers)))
for name, found in rows.items():
    shown = ["agree" if d < TOLERANCE else f"differ by {d:.2f}" for d in found]
    print(f"{name:>22}" + "".join(f"{text:>16}" for text in shown))

causal, unmasked, reweighted = rows.values()
assert max(causal) < TOLERANCE
assert unmasked[0] < TOLERANCE < min(unmasked[1:])
assert reweighted[0] < TOLERANCE < min(reweighted[1:])

# %% [markdown]
# With the mask, a later token changes nothing before it. So nothing before it has to be computed again.
#
# Without the mask, layer 0 still agrees: its keys and values come from each token alone. But its *output*
# has now read the new token, and everything above is made from that. Changed weights spoil their own
# layer and all layers above. A position's keys and values may be kept as long as the mask, the weights and
# the tokens up to and including its own stay the same.
#
# ## Prefill: the whole prompt in one pass
#
# **Prefill** is the pass that reads the prompt. It fills the cache, and it ends in **logits**: scores for
# every token of the vocabulary (words, single bytes, marks). It can give a row of them for every position. How
# many of these rows decide the first output?
#
# Commit to an answer before you look: write it in place of `None` and run the cell. Then run the next one
# again; its last lines show your answer beside the run's.

# %%
predict("21.1-p1", None)

# %% tags=["claim-21.1-b"]
cache = ContiguousCache(config)
logits = contiguous_forward(model, torch.tensor([prompt_ids]), cache)[0]
print("positions in the cache:", cache.width, "  logits:", list(logits.shape))

engine_rows = []
llm.runner.on_logits = lambda by_request: engine_rows.extend(by_request.values())
(served,) = llm.generate(prompt_ids, SamplingParams(max_tokens=1))
llm.runner.on_logits = None
first_output = served.outputs[0].token_ids[0]

print("\nposition  reads        its row selects  the text goes on with")
word = llm.tokenizer.token_text
for position in (1, 3, 6, len(prompt_ids) - 1):
    chosen = int(logits[position].argmax())
    following = [*prompt_ids, first_output][position + 1]
    print(f"{position:>8}  {word(prompt_ids[position]):<12} {word(chosen):<16} {word(following)}")
others = int((logits[:-1].argmax(-1) != first_output).sum())
print(
    f"\nthe engine's first output: {word(first_output)!r}, from {len(engine_rows)} row of logits;"
)
print(f"{others} of the {len(prompt_ids) - 1} other rows would have selected something else")

assert cache.width == len(logits) == len(prompt_ids) and len(engine_rows) == 1
assert first_output == int(logits[-1].argmax())
assert torch.allclose(engine_rows[0], logits[-1], atol=1e-3)
reveal("21.1-p1", len(engine_rows))

# %% [markdown]
# Every position of the prompt can have a row of logits; training uses them all. For the first output the last
# row alone counts, and the engine computes only that one. It is there at the end of the prompt's own pass: no
# extra pass is needed.
#
# The next cell looks at that with hooks on the real model: functions that torch calls each time a part of it has
# run (the embedding of the tokens, a layer, the logits). They note which part, and how many positions went through
# it together.

# %% tags=["claim-21.1-d"]
calls = []


def note(part):
    return lambda module, inputs, output: calls.append((part, inputs[0], output))


parts = {"embed": model.embed_tokens, "logits": model.lm_head}
parts |= {f"layer {i}": layer for i, layer in enumerate(model.layers)}
hooks = [module.register_forward_hook(note(part)) for part, module in parts.items()]
(served,) = llm.generate(prompt_ids, SamplingParams(max_tokens=2))
for hook in hooks:
    hook.remove()

per_pass = len(parts)
passes = [calls[i : i + per_pass] for i in range(0, len(calls), per_pass)]
names = ("the prompt", "pass 1")
print(f"{'':>10}  {'part':>8}  positions together  its input is")
for number, one_pass in enumerate(passes):
    for order, (part, given, _) in enumerate(one_pass):
        made_before = order > 0 and given.data_ptr() == one_pass[order - 1][2].data_ptr()
        source = "token ids" if order == 0 else f"the output of {one_pass[order - 1][0]}"
        if part == "logits":
            source = "the last row of layer 3, after the last norm"
        elif order > 0:
            assert made_before
        print(f"{names[number]:>10}  {part:>8}  {len(given):>18}  {source}")

figure, axes = plt.subplots(figsize=(9.5, 4.2), dpi=80)
for number, one_pass in enumerate(passes):
    first = number * (per_pass + 2)
    for order, (part, given, _) in enumerate(one_pass):
        last = len(prompt_ids) - 1 + number
        here = range(last - len(given) + 1, last + 1)
        colour = "#e69f00" if part == "logits" else ("#0072b2", "#56b4e9")[number]
        axes.bar([first + order] * len(here), 0.8, 0.7, [p - 0.4 for p in here], color=colour)
        axes.text(first + order, -0.8, part.replace(" ", "\n"), ha="center", fontsize=10)
    chosen = word(served.outputs[0].token_ids[number])
    axes.text(first + order + 0.5, last, f"selects\n{chosen!r}", va="center", fontsize=10)
    axes.text(first + 2.5, -3.4, f"{names[number]}, left to right", ha="center", fontsize=11)
axes.set(ylabel="position", xticks=[], yticks=range(0, len(prompt_ids) + 1, 4))
axes.set(xlim=(-0.7, first + order + 2.2), ylim=(len(prompt_ids) + 0.6, -0.6))
axes.spines[["top", "right", "bottom"]].set_visible(False)
figure.tight_layout()
shown = "a bar of positions for each layer: all of the prompt in the first pass, one in the second"
display(figure, metadata={"image/png": {"alt": shown}})
plt.close(figure)

for one_pass in passes:  # the logits' input is the last row of what the layers gave
    above, given = one_pass[-2][2], one_pass[-1][1]
    assert torch.allclose(given, model.norm(above[-1:]), atol=1e-4)
stack = ["embed", *(f"layer {i}" for i in range(config.num_layers)), "logits"]
assert [part for part, *_ in calls] == stack * 2
assert [len(given) for _, given, _ in passes[0]] == [len(prompt_ids)] * (per_pass - 1) + [1]
assert [len(given) for _, given, _ in passes[1]] == [1] * per_pass

# %% [markdown]
# The picture is drawn from these calls. Down one bar, positions stand side by side: a layer handles all of
# them at once. From bar to bar the work goes to the right: a layer begins when the one before has ended.
# The orange cell is the one row of logits. Two passes gave two outputs; the first came from the prompt's.
#
# ## Selecting is not processing
#
# Where is the selected token now? Here is one request in the engine, stopped after each step. The pool was
# filled with NaN ("not a number") at the start, so a slot that nobody has written shows.

# %% tags=["claim-21.1-c"]
stopped = LLM(model, tokenizer="tiny", block_size=4, num_blocks=16, enable_prefix_caching=False)
for tensor in (stopped.cache.key_cache, stopped.cache.value_cache):
    tensor.fill_(float("nan"))
(request,) = stopped.engine.add_request(prompt_ids, SamplingParams(max_tokens=4))
manager = stopped.engine.scheduler.manager


def written_in_each_layer():
    """Positions with keys and values, counted in the pool's own tensors, layer by layer."""
    table = manager.block_table(request.request_id)
    keys, values = stopped.cache.read(table, 4 * len(table))
    there = ~(keys.isnan() | values.isnan())  # [layers, heads, slots, width]
    return there.all(-1).all(1).sum(-1).tolist()


print("after        text has  of it in the cache, by layer   newest token")
seen = []
while not request.is_finished:
    stopped.engine.step()
    if request.is_finished:
        break  # its blocks are free again
    seen.append((request.num_tokens, written_in_each_layer()))
    step = "the prompt" if len(seen) == 1 else f"pass {len(seen) - 1}"
    newest = word(request.all_token_ids[-1])
    print(f"{step:<12} {seen[-1][0]:>8}  {seen[-1][1]!s:<29}  {newest!r}, not in it")
for tokens, written in seen:
    assert written == [tokens - 1] * config.num_layers
assert [tokens for tokens, _ in seen] == [len(prompt_ids) + n for n in (1, 2, 3)]

# %% [markdown]
# After each step the text is one token ahead of the cache. A step computes keys and values of the token that it
# *reads*, in every layer, and then selects the next one. [Section 21.6](21_6_growth.ipynb) follows this
# through a whole request.
#
# ### The same in numbers to check by hand
#
# One request, one layer, one KV head of width 2, a prompt of 3 tokens, 2 bytes a number.

# %%
predict("21.1-p2", None)

# %% tags=["claim-21.1-l"]
small = ModelConfig(
    vocab_size=20,
    hidden_size=8,
    intermediate_size=16,
    num_layers=1,
    num_query_heads=1,
    num_kv_heads=1,
    head_dim=2,
)
small_model = Decoder.random(small, seed=0)
small_llm = LLM(small_model, cache_dtype=torch.float16, block_size=4, num_blocks=4)
small_llm.start_trace(attention_layers=[0])
_ = small_llm.generate([5, 9, 2], SamplingParams(max_tokens=2))
small_trace = small_llm.stop_trace()

small_cache = ContiguousCache(small, dtype=torch.float16)
small_logits = contiguous_forward(small_model, torch.tensor([[5, 9, 2]]), small_cache)
sizes = [(small_cache.keys[0].shape, small_cache.nbytes)]
token_four = small_logits[:, -1].argmax(-1, keepdim=True)  # selected
sizes.append((small_cache.keys[0].shape, small_cache.nbytes))
contiguous_forward(small_model, token_four, small_cache)  # processed
sizes.append((small_cache.keys[0].shape, small_cache.nbytes))
print("the cache, moment by moment:")
for when, (shape, nbytes) in zip(
    ("after prefill", "token four selected", "token four processed"), sizes, strict=True
):
    print(f"{when:<21} K and V each {list(shape)}   {nbytes} bytes")

passed = [e.data for e in small_trace.events if e.kind == "computed"]
keys_read = [len(data["attention"]["0"][0]) for data in passed]
print(f"the engine's own count: {[data['nbytes'] for data in passed]} bytes after its passes;")
print(f"the newest query read {keys_read} keys")
assert all(abs(sum(data["attention"]["0"][0]) - 1) < 0.01 for data in passed)
assert [nbytes for _, nbytes in sizes] == [24, 24, 32] and keys_read == [3, 4]
assert [data["nbytes"] for data in passed] == [24, 32]

once = LLM(small_model, cache_dtype=torch.float16, block_size=4, num_blocks=4)
once.start_trace()
_ = once.generate([5, 9, 2], SamplingParams(max_tokens=2, stop_token_ids=(int(token_four),)))
only = [e.data["nbytes"] for e in once.stop_trace().events if e.kind == "computed"]
print(f"if token four ends the request: {len(only)} pass, {only} bytes")
assert only == [24]
reveal("21.1-p2", sizes[1][1])

# %% [markdown]
# The last selected output can exist without a cache entry, and stay so: if it ends the request, the pass
# that would read it never runs.
#
# ## One decode step at one layer
#
# Decoding is attention with a single query. The next cell lets the model read its first output and keeps
# what goes into layer 2 and comes out. Then it does the attention of one query head again, in four lines
# (softmax turns scores into weights that are positive and sum to 1):
#
# $$w_t = \operatorname{softmax}_t\!\left(\frac{q \cdot k_t}{\sqrt{d_h}}\right), \qquad
# o = \sum_t w_t\, v_t$$
#
# over the cached keys and the token's own new key.


# %% tags=["claim-21.1-e"]
class Watched:
    """Hands each call on to the real attention and keeps what one layer got and gave."""

    def __init__(self, attention, layer):
        self.attention, self.layer = attention, layer

    def __call__(self, layer, query, key, value):
        mixed = self.attention(layer, query, key, value)
        if layer == self.layer:
            self.query, self.key, self.value, self.mixed = query, key, value, mixed
        return mixed


LAYER, HEAD = 2, 3
kv_head = HEAD // (config.num_query_heads // config.num_kv_heads)
cache = ContiguousCache(config)
run_pass(model, cache, prompt_ids)
cached_keys = cache.keys[LAYER].shape[2]
watched = Watched(None, LAYER)


def watching(cache, width):
    watched.attention = ContiguousAttention(cache, width)
    return watched


run_pass(model, cache, [first_output], watching)

keys, values = (t[LAYER][0, kv_head] for t in (cache.keys, cache.values))  # [T, d_h]
scores = keys @ watched.query[0, HEAD] / config.head_dim**0.5
weights = torch.softmax(scores, dim=0)
mixture = weights @ values

whole = Watched(NoCache(), LAYER)  # everything again, without a cache
sequence = [*prompt_ids, first_output]
with torch.no_grad():
    model(torch.tensor(sequence), torch.arange(len(sequence)), whole)

print(f"layer {LAYER}, query head {HEAD} (reads KV head {kv_head}): 1 query, {len(keys)} keys,")
print(f"{cached_keys} of them from the cache; the last is the token's own\n")
print("position  token       score   weight")
for position in weights.topk(4).indices.tolist():
    text = word(sequence[position])
    print(f"{position:>8}  {text:<10} {scores[position]:>6.2f}   {weights[position]:.3f}")
print(f"all {len(keys):>4}                      {weights.sum():.3f}")
assert abs(float(weights.sum()) - 1) < 1e-5 and len(keys) == cached_keys + 1
assert torch.allclose(mixture, watched.mixed[0, HEAD], atol=1e-4)
assert torch.allclose(mixture, whole.mixed[-1, HEAD], atol=1e-4)
assert torch.equal(keys[-1], watched.key[0, kv_head])
print("\nthe mixture equals the model's own, and that of a full recomputation")

# %% [markdown]
# The same for every layer and head, pass after pass. The view opens at layer 2, query head 3. Click it and press
# <kbd>→</kbd> once: that is the step computed above, with the weight 0.92. <kbd>←</kbd> <kbd>→</kbd> walk
# through the passes, <kbd>↑</kbd> <kbd>↓</kbd> choose a query head, <kbd>L</kbd> the next layer.

# %% tags=["nbval-ignore-output"]
llm.start_trace(attention_layers=range(config.num_layers))
(answer,) = llm.generate(prompt_ids, SamplingParams(max_tokens=8))
trace = llm.stop_trace()
print(answer.outputs[0].text.strip())
attention_read(trace, layer=LAYER, head=HEAD)

# %% [markdown]
# ## What the cache does not hold
#
# Old queries are not needed: a query is used once, in its own pass. Neither are old logits or hidden states.
# To be sure, save the keys and values to bytes, throw the rest away, and go on from the bytes with a model
# loaded afresh. All that is needed besides is the token that was selected last.

# %% tags=["claim-21.1-f"]
from safetensors.torch import load, save

from kvlab.tensors.checkpoint import load_model

cache = ContiguousCache(config)
run_pass(model, cache, prompt_ids)
named = {"K": cache.keys, "V": cache.values}
saved = save({f"{name} of layer {i}": t for name, ts in named.items() for i, t in enumerate(ts)})
del cache, named

restored = load(saved)
for name in sorted(restored)[: 2 * config.num_layers]:
    print(f"{name}: {list(restored[name].shape)}")
resumed = ContiguousCache(config)
resumed.keys = [restored[f"K of layer {i}"] for i in range(config.num_layers)]
resumed.values = [restored[f"V of layer {i}"] for i in range(config.num_layers)]
resumed.valid = torch.ones(1, len(prompt_ids), dtype=torch.bool)

afresh, output = load_model(tiny.FOLDER), [first_output]
while output[-1] not in config.eos_token_ids and len(output) < 12:
    logits = contiguous_forward(afresh, torch.tensor([output[-1:]]), resumed)
    output.append(int(logits[0, -1].argmax()))
print("resumed: ", llm.tokenizer.decode(output).strip())
print("the run: ", answer.outputs[0].text.strip())
assert output == list(answer.outputs[0].token_ids)

held = sum(t.numel() for t in restored.values()) // (len(prompt_ids) * config.num_layers)
queries, hidden = watched.query[0].numel(), passes[0][1][2].shape[-1]  # as seen above
print("\nnumbers for each position")
print(f"  kept: keys and values     {held} in each of {config.num_layers} layers")
print(f"  not:  queries             {queries} in each layer")
print(f"  not:  hidden states       {hidden} in each layer")
print(f"  not:  logits              {logits.shape[-1]} after the last layer")
assert held == 2 * config.num_kv_heads * config.head_dim

# %% [markdown]
# That the first three numbers are alike is peculiar to this model: two KV heads of width 32, keys and values, are as many
# numbers as four query heads of that width, or as a hidden state of 128.
#
# ## The shape of it
#
# For one layer, keys and values are two arrays of the same shape
#
# $$K, V \in \mathbb{R}^{B \times H_{kv} \times T \times d_h} \tag{21.1}$$
#
# $B$ requests, $H_{kv}$ heads that store keys and values, $T$ positions, $d_h$ numbers a head and position.
# Read off the real tensors, for a model with 8 query heads of which groups of four share a KV head:

# %% tags=["claim-21.1-g"]
shape = {"num_layers": 3, "num_query_heads": 8, "num_kv_heads": 2, "head_dim": 16}
grouped = ModelConfig(vocab_size=50, hidden_size=64, intermediate_size=96, **shape)
batch = torch.randint(50, (4, 6), generator=torch.Generator().manual_seed(0))
cache = ContiguousCache(grouped, batch=4)
_ = contiguous_forward(Decoder.random(grouped), batch, cache)
print(f"{'':>8}   [B, H_kv, T, d_h]")
for i, (k, v) in enumerate(zip(cache.keys, cache.values, strict=True)):
    print(f"layer {i}:  K {list(k.shape)}   V {list(v.shape)}")
    assert list(k.shape) == list(v.shape) == [4, 2, 6, 16]
print("PagedCache of the same model, [layers, blocks, slots, H_kv, d_h]:")
print(f"          K {list(PagedCache(grouped, num_blocks=10, block_size=4).key_cache.shape)}")

# %% [markdown]
# ## Requests of unequal length
#
# Eq 21.1 has one $T$ for all requests of a batch. If they are not equally long, the shorter ones are
# **padded**: they get slots beyond their own tokens. The other way is to give each request **blocks** of
# a few slots, as many as it needs. The same three requests, served for real in both layouts:

# %%
notes = [
    "Ada likes soup.",
    "Tom plays chess. The key is red. The ball is in the garden.",
    "Mia is sad.",
]
questions = ["What does Ada like?", "Where is the ball?", "How does Mia feel?"]
three = [tiny.prompt(n, q, rules="") for n, q in zip(notes, questions, strict=True)]
layouts = cache_layouts(llm, three, SamplingParams(max_tokens=6))
layouts

# %% [markdown]
# Walk through it to the end, and watch what each layout still holds of a request that has ended.
#
# A padded slot is not only wasted bytes. Something stands in it: keys and values of the filler token that
# made the row longer. If a query may read them, they take part in its mixture. The next cell counts the bytes of
# the first pass, and then serves twelve questions beside a longer request, with the padding masked and without
# the mask, for two fillers: the mark `<|endoftext|>`, which begins every prompt of this model, and a full stop.

# %% tags=["claim-21.1-h"]
from kvlab.tensors.reads import padded_reads
from kvlab.tiny.corpus import cases

lengths = [len(llm.encode(text)) for text in three]
after_prefill = next(state for done, kind, state in layouts.run.states() if done == 1)
print(f"prompts of {lengths} tokens after prefill")
print(
    f"  one rectangle: {after_prefill.rectangle_slots:>3} slots, {after_prefill.rectangle_nbytes:>9,} bytes"
)
print(
    f"  blocks of 4:   {after_prefill.block_slots:>3} slots, {sum(after_prefill.block_nbytes):>9,} bytes"
)
print(
    f"  processed:     {after_prefill.in_use:>3} slots, {sum(after_prefill.payload_nbytes):>9,} bytes"
)
each = llm.cache.bytes_per_position
assert after_prefill.in_use == sum(lengths)
assert after_prefill.rectangle_nbytes == each * len(lengths) * max(lengths)
assert sum(after_prefill.block_nbytes) == each * sum(-(-n // 4) * 4 for n in lengths)

print("\nwithout the mask     answers that change   logits that move by more than 0.1")
asked = cases(12, 2, seed=5, num_sentences=0, num_rules=(0, 0), in_question=0)
for filler in ("<|endoftext|>", "."):
    changed = moved = 0
    for case in asked:
        ids = llm.encode(case.prompt)
        beside, pad = [*ids, *ids[:60], *ids], llm.encode(filler)[-1]
        reads = padded_reads(model, [ids, beside], passes=5, pad_token_id=pad, token_text=word)
        pairs = [(p.masked_token, p.unmasked_token) for p in reads.passes]
        end = next(
            (i for i, (t, _) in enumerate(pairs) if t in config.eos_token_ids), len(pairs) - 1
        )
        changed += any(right != wrong for right, wrong in pairs[: end + 1])
        moved += max(p.logit_difference for p in reads.passes[: end + 1]) > 0.1
        sums = [sum(head) for p in reads.passes for rows in p.masked.values() for head in rows]
        assert all(abs(total - 1) < 0.01 for total in sums)
    print(f"filled with {filler:<14} {changed:>7} of 12 {moved:>21} of 12")
    assert moved == 12
assert changed >= 6  # filled with full stops

# %% [markdown]
# Without the mask the logits move in every case. Whether the *answer* changes depends on the filler, so a test that
# looks at answers alone can miss the fault. One such read as a picture, filled with full stops: each pass is shown twice, with the
# mask and without. Masked, the padded slots (hatched) have weight 0. Go to the last stop: without the mask the next
# token is another one.

# %% tags=["nbval-ignore-output"]
reads = padded_reads(
    model, [llm.encode(text) for text in three[:2]], passes=3, pad_token_id=pad, token_text=word
)
last = reads.passes[-1]
print(
    "masked:", repr(word(last.masked_token)), "  without the mask:", repr(word(last.unmasked_token))
)
attention_read(reads)

# %% [markdown]
# ## Heads that share
#
# The size of the cache depends on $H_{kv}$, the heads that *store*. The heads that *ask*, $H_q$, can be more:
#
# | | | |
# |---|---|---|
# | MHA, multi-head attention | $H_{kv} = H_q$ | each query head has keys and values of its own |
# | GQA, grouped-query attention | $1 < H_{kv} < H_q$ | each group of query heads shares them |
# | MQA, multi-query attention | $H_{kv} = 1$ | all query heads share them |
#
# (Shazeer 2019 for MQA, Ainslie et al. 2023 for GQA.) Query head $h$ reads KV head
# $\lfloor h / (H_q / H_{kv}) \rfloor$. What do two query heads of a group still have of their own?

# %% tags=["claim-21.1-i"]
from kvlab.tensors.attention import attention_weights, causal_mask

print("     H_q  H_kv  one position's K  reads KV head  different weights  different mixtures")
for name, kv_heads in (("MHA", 4), ("GQA", 2), ("MQA", 1)):
    shape = {"num_layers": 1, "num_query_heads": 4, "num_kv_heads": kv_heads, "head_dim": 8}
    sharing = ModelConfig(vocab_size=50, hidden_size=32, intermediate_size=64, **shape)
    cache, watched = ContiguousCache(sharing), Watched(None, layer=0)
    run_pass(Decoder.random(sharing, seed=1), cache, [3, 14, 15, 9, 26], watching)
    keys, values, query = cache.keys[0], cache.values[0], watched.query.transpose(0, 1)
    weights = attention_weights(query[None], keys, causal_mask(5, 5))[0, :, -1]  # [H_q, T]
    reads = [head // (4 // kv_heads) for head in range(4)]
    for head in range(4):
        mixture = weights[head] @ values[0, reads[head]]
        assert torch.allclose(mixture, watched.mixed[-1, head], atol=1e-5)
    scores, mixtures = (len({tuple(r) for r in t.tolist()}) for t in (weights, watched.mixed[-1]))
    stored = [1, kv_heads, 1, 8]
    print(
        f"{name:<3} {4:>4} {kv_heads:>5}  {stored!s:<16}  {reads!s:<13}  {scores:>17}  {mixtures:>18}"
    )
    assert keys.shape[1] == kv_heads and scores == mixtures == 4

try:
    ModelConfig(**{**sharing.__dict__, "num_kv_heads": 3})
except ValueError as error:
    print("\n4 query heads over 3 KV heads:", *textwrap.wrap(str(error), 86), sep="\n  ")
else:
    raise AssertionError("3 KV heads for 4 query heads were accepted")

# %% [markdown]
# Shared are the keys and values. Scores and mixtures are not: four query heads, four of each.
#
# ### Sharing heads after training
#
# Can a trained model be told to share? Its layers have weights that make keys for *two* KV heads. One way to
# make one of them is to take the mean of the two (Ainslie et al. 2023, section 2.1). The next cell does that
# to the shipped model, and asks both for answers to questions they have not been trained on. It is the slow cell of this page,
# since it goes on with the averaged model: you will see. First the model as it is averaged: does it answer as well
# as the one that it is made of?

# %%
predict("21.1-p3", None)

# %% tags=["slow", "nbval-ignore-output"]
from kvlab.tensors.head_sharing import mean_pool_kv_heads
from kvlab.tiny.evaluate import answer as answer_of
from kvlab.tiny.train import fine_tune, held_out_loss

pooled = mean_pool_kv_heads(model, num_kv_heads=1)
start = time.perf_counter()
tuned = fine_tune(
    pooled,
    num_steps=60,
    progress=lambda n, loss: n % 20 or print(f"step {n:>2}: training loss {loss:.2f}"),
)
print(f"60 steps took {time.perf_counter() - start:.0f} s")

step_times = {2: [], 1: []}
for _repeat in range(12):
    for kv_heads, kind in ((2, model), (1, tuned)):
        engine = LLM(kind, block_size=16, num_blocks=60, enable_prefix_caching=False).engine
        engine.add_request(prompt_ids * 40, SamplingParams(max_tokens=9, ignore_eos=True))
        engine.step()
        start = time.perf_counter()
        engine.run()
        step_times[kv_heads].append((time.perf_counter() - start) / 8)
two, one = (1e3 * min(step_times[kv_heads]) for kv_heads in (2, 1))  # the least disturbed
print(f"a decode step at 800 positions: {two:.2f} ms with 2 KV heads, {one:.2f} ms with 1,")
print(f"{two / one:.2f} times the speed, with half the bytes")

# %% tags=["slow", "claim-21.1-j", "nbval-ignore-output"]
found = {}
for name, kind in (("as shipped", model), ("mean of its heads", pooled), ("and trained", tuned)):
    asking = LLM(kind, tokenizer="tiny")
    near, far = (
        sum(answer_of(asking, case) == case.answer for case in cases(20, 4, seed=11, gap=gap))
        for gap in (0, 400)
    )
    found[name] = near, far, held_out_loss(kind, count=20), asking.cache.bytes_per_position

print(f"{'':>18}  bytes a position   right, of 20   400 tokens away, of 20   loss")
for name, (near, far, loss, nbytes) in found.items():
    print(f"{name:>18} {nbytes:>17,} {near:>14} {far:>24} {loss:>6.2f}")
shipped, averaged, trained = found.values()
assert shipped[3] == 2 * averaged[3] == 2 * trained[3]
assert shipped[0] >= 19 and averaged[0] <= 3 and trained[0] >= 14
assert trained[1] < shipped[1] and shipped[2] < averaged[2] > 1 > trained[2]
reveal("21.1-p3", averaged[0] >= shipped[0])

# %% [markdown]
# (The loss of the table is over answers alone; the training's counts its whole texts.)
#
# Sharing heads changes the model. Averaged, it knows nothing any more; a short training gives most of it back,
# and less of it over a long distance, which the training texts did not have. And half the bytes are not half the
# time: of a step on this machine, reading keys and values is a small part.
#
# ## The bytes
#
# Over all layers, keys and values of $T$ positions for each of $B$ requests take
#
# $$\mathrm{bytes} = 2 \cdot L \cdot B \cdot H_{kv} \cdot T \cdot d_h \cdot s \tag{21.2}$$
#
# with $L$ layers and $s$ bytes a number. One position more for *every* request of the batch adds
#
# $$\Delta\mathrm{bytes} = 2 \cdot L \cdot B \cdot H_{kv} \cdot d_h \cdot s \tag{21.3}$$
#
# and with $B = 1$ the same for one request that grows alone. In the package:

# %%
print(inspect.getsource(kv_cache_bytes))
print(inspect.getsource(growth_bytes))

# %% [markdown]
# Three caches are filled for real and measured. The last two columns are the **memory calculator's**: it gets the
# model's `config.json`, works out what each layer stores, and knows nothing of the tensors.

# %% tags=["claim-21.1-k"]
from kvlab.core.formats import FORMATS
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.tensors.checkpoint_save import config_to_hf

print(" L  B  H_kv   T  d_h  s    eq 21.2    nbytes   eq 21.3   growth   calculator   growth")
for layers, requests, kv_heads, length, width, dtype, stored in (
    (2, 1, 4, 5, 8, torch.float16, "fp16"),
    (4, 3, 2, 40, 32, torch.float32, "fp32"),
    (3, 8, 1, 17, 16, torch.bfloat16, "bf16"),
):
    shape = {
        "num_layers": layers,
        "num_query_heads": 4,
        "num_kv_heads": kv_heads,
        "head_dim": width,
    }
    sized = ModelConfig(vocab_size=50, hidden_size=32, intermediate_size=64, **shape)
    random_model, cache = Decoder.random(sized), ContiguousCache(sized, batch=requests, dtype=dtype)
    contiguous_forward(random_model, torch.zeros(requests, length, dtype=torch.long), cache)
    before = cache.nbytes
    contiguous_forward(random_model, torch.zeros(requests, 1, dtype=torch.long), cache)
    formula = kv_cache_bytes(layers, requests, kv_heads, length, width, dtype.itemsize)
    growth = growth_bytes(layers, requests, kv_heads, width, dtype.itemsize)
    spec = KVCacheSpec.from_config(config_to_hf(sized, dtype))
    calculator = Storage(spec, FORMATS[stored])
    read = calculator.nbytes(length, requests), calculator.growth(length, requests)
    print(
        f"{layers:>2} {requests:>2} {kv_heads:>5} {length:>3} {width:>4} {dtype.itemsize:>2} "
        f"{formula:>10,} {before:>9,} {growth:>9,} {cache.nbytes - before:>8,} {read[0]:>12,} {read[1]:>8,}"
    )
    assert (formula, growth) == (before, cache.nbytes - before) == read
    paged = PagedCache(sized, num_blocks=4, block_size=16, dtype=dtype)
    assert paged.bytes_per_position == growth_bytes(layers, 1, kv_heads, width, dtype.itemsize)

# %% [markdown]
# Try it. Each change allocates the arrays for real, as long as they are small enough for this machine, and
# reads their size.

# %%
grow_a_cache()

# %% [markdown]
# For a model of 32 layers, one request of 8,192 positions, width 128 and 2 bytes a number, the package's
# `kv_cache_gib` gives GiB, units of $2^{30}$ bytes. How do 8, 2 and 1 KV heads compare?

# %%
predict("21.1-p4", None)

# %% tags=["claim-21.1-m"]
from kvlab.core.presets import preset

for kv_heads in (8, 2, 1):
    sizes = {"layers": 32, "batch": 1, "seq_len": 8192, "head_dim": 128, "bytes_per_value": 2}
    print("KV heads:", kv_heads, "  GiB:", kv_cache_gib(kv_heads=kv_heads, **sizes))
eight, two, one = (kv_cache_gib(32, 1, heads, 8192, 128) for heads in (8, 2, 1))
llama = Storage(KVCacheSpec.from_config(preset("llama-3.1-8b").config), FORMATS["bf16"])
print("Llama-3.1-8B, from its config.json:")
for term in llama.terms(8192):
    print(textwrap.indent(textwrap.fill(str(term), 86), "  "))
assert llama.nbytes(8192) == eight * 2**30
assert (eight, two, one) == (1.0, 0.25, 0.125)
reveal("21.1-p4", eight / two)

# %% [markdown]
# The same for other models, and with the rest of a GPU's memory beside it. Each model's `config.json` is read, layer
# by layer; you can paste one of your own. "Windows" and "MLA" matter only for models that have them; the longest context
# is what the memory allows, whatever the model was trained for.

# %%
memory_calculator("llama-3.1-8b", requests=1)

# %% [markdown]
# ## What that ratio leaves out
#
# From 8 KV heads to 1 the *payload* shrinks to an eighth, and with it each slot of the pool. The rest of the process
# does not, and neither does the work of attention. The next two cells stop an engine halfway and measure what is
# there beside the payload:
#
# - **parameters**, the model's weights, and **temporaries**, the tensors that a pass makes and drops;
# - **block tails**, slots of taken blocks that no position fills yet, and the **free** blocks of the pool;
# - what the **allocator** adds: each tensor needs a little memory beside its numbers.
#
# Then they count the operations of a decode step.

# %% tags=["nbval-ignore-output"]
from kvlab.core.budget import whole_budget
from kvlab.measure.costs import count_flops, peak_temporaries
from kvlab.measure.ledger import byte_ledger

halfway = LLM("tiny", block_size=16, num_blocks=64)
_ = halfway.engine.add_request(prompt_ids, SamplingParams(max_tokens=8, ignore_eos=True))
temporaries = peak_temporaries(halfway.engine.step)
ledger = byte_ledger(halfway)

program = """
import psutil, torch
process = psutil.Process()
before = process.memory_info().rss
pieces = [torch.ones(250) for _ in range(20_000)]
print(sum(p.nbytes for p in pieces), process.memory_info().rss - before)
"""  # in a process of its own: this one would reuse memory that earlier cells gave up
done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
asked, grown = map(int, done.stdout.split())
print(f"temporaries of the prompt's pass, at most {temporaries:>10,} bytes")
print(f"20,000 small tensors ask for              {asked:>10,} bytes")
print(f"and their process grows by                {grown:>10,} bytes")

# %% tags=["claim-21.1-n"]
for name, value in ledger.rows():
    if name in ("parameters", "payload", "block tails", "free", "pool"):
        print(f"{name:>12} {value:>12,} bytes")
assert 0 < ledger.payload < ledger.payload + ledger.block_tails < ledger.pool < ledger.parameters
assert ledger.payload == kv_cache_bytes(4, 1, 2, len(prompt_ids), 32, 4)
assert ledger.block_tails == (2 * 16 - len(prompt_ids)) * halfway.cache.bytes_per_position
planned = whole_budget(
    Storage(KVCacheSpec.from_config(tiny.FOLDER), FORMATS["fp32"]),
    total=ledger.parameters + ledger.pool,
    weights=ledger.parameters,
    seq_len=len(prompt_ids),
    block_size=16,
)  # the calculator's plan for the same moment
assert (planned.payload, planned.tails) == (ledger.payload, ledger.block_tails)
assert planned.free == ledger.free
assert temporaries > ledger.payload  # a pass makes more than it keeps


def decode_flops(kv_heads, length):
    """Operations of one decode step of a model with 8 query heads, after `length` tokens."""
    shape = {"num_layers": 2, "num_query_heads": 8, "num_kv_heads": kv_heads, "head_dim": 16}
    sharing = ModelConfig(vocab_size=50, hidden_size=64, intermediate_size=96, **shape)
    engine = LLM(Decoder.random(sharing), block_size=16, num_blocks=64).engine
    engine.add_request([i % 50 for i in range(length)], SamplingParams(max_tokens=4))
    engine.step()
    return count_flops(engine.step)


print("\nall operations of a decode step at two lengths; what each further key adds (attention)")
print("H_kv   payload at 512   at 128 positions   at 512 positions   each key more")
for kv_heads in (8, 2, 1):
    short, long = decode_flops(kv_heads, 128), decode_flops(kv_heads, 512)
    each = (long - short) / (512 - 128)
    payload = kv_cache_bytes(2, 1, kv_heads, 512, 16, 4)
    print(f"{kv_heads:>4} {payload:>16,} {short:>18,} {long:>18,} {each:>15,.0f}")
    assert each == 2 * 2 * 2 * 8 * 16  # layers, (q.k and w.v), multiply and add, query heads, width

# %% [markdown]
# The payload falls with the KV heads. All operations fall a little, since fewer keys and values are made of the new
# token. The last column does not fall: there are eight *query* heads in each case, and each of them scores every
# key and mixes every value. A longer context is more work for every head count. What shrinks is the memory that has
# to be read for it.
#
# ## Break it
#
# What would a reader of the *answers* notice if the cache were wrong? The model that comes with kvlab reads facts
# from its context and from nowhere else. So do something to the cache after the notes have been processed and before
# the question is: take a block away, put another request's in its place, shift it by one. Then see what the model
# says. Twenty cases of each, counted. (How a position gets into the computation: each key and query is **rotated** by
# an angle that grows with its position, so that a score depends on the distance of the two; Su et al. 2021.)

# %%
from kvlab.tiny.wrong_cache import DAMAGES, count_answers

lab_llm = LLM("tiny", block_size=16, num_blocks=64)
chosen = (
    *("nothing", "fact hidden", "fact exchanged", "value's word hidden"),
    *("positions 1 late", "slots turned by one", "keys turned by one"),
)
counts = count_answers(lab_llm, names=chosen, count=20)
for name in chosen:
    row = counts[name]
    told = f"{row.num_right:>2} right, {row.num_other:>2} the other request's answer"
    print(f"{name:<20} {told}; logits move by {row.logit_change:.1f}")
    print(textwrap.indent(textwrap.fill(DAMAGES[name].done, 84), "    "))
assert counts["nothing"].num_right >= 19 and counts["fact hidden"].num_right <= 5
assert counts["fact exchanged"].num_other >= 19 and counts["keys turned by one"].num_right <= 10
for name in ("value's word hidden", "positions 1 late", "slots turned by one"):
    assert counts[name].num_right >= 18
assert counts["positions 1 late"].logit_change > 0.1
assert counts["slots turned by one"].logit_change < 0.01

# %% [markdown]
# Three of these faults leave the answers right:
#
# - **The value's word** alone is not missed: the full stop after it has read it already.
# - **The question one position late**: all its distances to the notes grow by one. The logits change, and not enough to
#   change an answer.
# - **Slots turned by one**: each key keeps its value, and where a pair lies does not matter, since its position
#   is in the key's rotation. When only the *keys* are turned, each is paired with a neighbour's value.
#
# So a right answer does not show that the cache is right. Choose a damage and a case; each change runs the engine:

# %%
wrong_cache_lab(lab_llm, table=counts)

# %% [markdown]
# ## The same state in transformers
#
# Most people meet this cache in the library transformers: a model is called with `use_cache=True` and returns
# `past_key_values`, and `generate` passes that on from call to call. Is it the same state? The next cell loads the
# weights of the shipped model there too. Both sides compute in 64-bit numbers, so that what differs is not the
# rounding. (transformers is optional here. Without it these cells say so, and nothing else needs it.)

# %%
try:
    from transformers import AutoModelForCausalLM
    from transformers import logging as transformers_logging
except ImportError:
    theirs = None
    print(
        "transformers is not installed: the next two cells have nothing to compare with.\n"
        'To see them: pip install "kvlab[models]", restart the kernel, run all cells.'
    )
else:
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    theirs = AutoModelForCausalLM.from_pretrained(
        tiny.FOLDER, dtype=torch.float64, local_files_only=True
    )
    print(f"theirs: {type(theirs).__name__}, {theirs.num_parameters():,} parameters")
    print(f"ours:   {llm}")

# %% [markdown]
# One call with the prompt, on their side and in both of our layouts. The table is read off the objects. Then the
# keys and values are compared, number by number, and `generate` is asked for the whole answer, with its cache and
# without.

# %% tags=["claim-21.1-o"]
ours = LLM("tiny", dtype=torch.float64, block_size=4, num_blocks=16, enable_prefix_caching=False)
if theirs is not None:
    input_ids = torch.tensor([prompt_ids])
    with torch.inference_mode():
        state = theirs(input_ids, use_cache=True).past_key_values
    rectangle = ContiguousCache(config, dtype=torch.float64)
    _ = contiguous_forward(ours.model, input_ids, rectangle)
    (asked_once,) = ours.engine.add_request(prompt_ids, SamplingParams(max_tokens=8))
    ours.engine.step()
    table = ours.engine.scheduler.manager.block_table(asked_once.request_id)
    in_blocks = ours.cache.read(table, asked_once.num_computed_tokens)  # [layers, H_kv, T, d_h]

    layer = state.layers[0]
    positions = state.get_seq_length(), rectangle.width, asked_once.num_computed_tokens
    objects = [type(o).__name__ for o in (state, rectangle, ours.cache)]
    shapes = [list(k.shape) for k in (layer.keys, rectangle.keys[0], ours.cache.key_cache[0])]
    names = "layers[0].keys", "keys[0]", "key_cache[0]"
    print(f"{'':<17} {'transformers':<17} {'ours, one array':<17} ours, blocks")
    for what, row in (
        ("object", objects),
        ("keys of layer 0", names),
        ("their shape", shapes),
        ("positions in it", positions),
        ("order", ("by position", "by position", f"block table {table}")),
    ):
        print(f"{what:<17} {row[0]!s:<17} {row[1]!s:<17} {row[2]}")

    print("\nlargest difference to transformers' numbers, K and V")
    for i, layer in enumerate(state.layers):
        apart = [
            max(float((k - layer.keys[0]).abs().max()), float((v - layer.values[0]).abs().max()))
            for k, v in (
                (rectangle.keys[i][0], rectangle.values[i][0]),
                (in_blocks[0][i], in_blocks[1][i]),
            )
        ]
        told = ["below 1e-5" if a < 1e-5 else f"{a:.1e}" for a in apart]
        print(f"  layer {i}: one array {told[0]}, blocks {told[1]}")
        assert max(apart) < 1e-5
    assert shapes[0] == shapes[1] == [1, config.num_kv_heads, len(prompt_ids), config.head_dim]
    assert positions == (len(prompt_ids),) * 3

    widths = {True: [], False: []}  # positions that go through their model in each pass
    greedy = {"do_sample": False, "max_new_tokens": 8, "attention_mask": torch.ones_like(input_ids)}
    for use_cache, passes_of in widths.items():
        hook = theirs.model.embed_tokens.register_forward_hook(
            lambda module, given, made, seen=passes_of: seen.append(given[0].shape[1])
        )
        whole_text = theirs.generate(input_ids, use_cache=use_cache, pad_token_id=0, **greedy)[0]
        hook.remove()
        said = whole_text[len(prompt_ids) :].tolist()
        print(f"\ngenerate, use_cache={use_cache}: {ours.tokenizer.decode(said).strip()}")
        print(f"  positions in each pass: {passes_of}")
        ours.engine.run()
        assert said == list(asked_once.output_token_ids)
    print(f"\nour engine: the same {len(said)} tokens, with its own cache")
    assert widths[True] == [len(prompt_ids)] + [1] * (len(said) - 1)
    assert widths[False] == [len(prompt_ids) + n for n in range(len(said))]

# %% [markdown]
# It is the same state under another name. Theirs and our array have the shape of equation 21.1, $[B, H_{kv}, T, d_h]$; the
# pool of blocks is [blocks, slots, $H_{kv}$, $d_h$], with room for more, and the block table puts the positions in
# order. `get_seq_length()` is the number of processed positions. `use_cache` decides how much is computed, not what:
# without it each pass reads the whole text again. (transformers 5.24 calls the state `cache`; `past_key_values` is
# the older name of the same object.)
#
# One thing is easily overlooked. A cached key is no longer what the key's weights gave: it has been rotated by the
# angle of its position. Whoever moves keys to other positions has to turn them, in either library. Here each
# cached key of layer 0 is compared with what the weights gave for the same position:

# %%
if theirs is not None:
    made = []
    hook = theirs.model.layers[0].self_attn.k_proj.register_forward_hook(
        lambda module, given, output: made.append(output)
    )
    with torch.inference_mode():
        theirs(input_ids)
    hook.remove()
    unrotated = made[0].view(-1, config.num_kv_heads, config.head_dim).transpose(0, 1)
    print("position   transformers      ours             their lengths are equal")
    for position in (0, 1, 5, 19):
        raw = unrotated[:, position]
        cached = state.layers[0].keys[0][:, position], in_blocks[0][0][:, position]
        same = [torch.allclose(raw, key, atol=1e-5) for key in cached]
        told = ["as it was" if s else "turned" for s in same]
        lengths_agree = all(torch.allclose(raw.norm(dim=-1), k.norm(dim=-1)) for k in cached)
        print(f"{position:>8}   {told[0]:<17} {told[1]:<16} {lengths_agree}")
        assert same == [position == 0] * 2 and lengths_agree

# %% [markdown]
# Position 0 is turned by no angle. All others are turned, and by a rotation no vector becomes longer or shorter.
#
# ## How others name it
#
# | here | vLLM (V1) | transformers |
# |---|---|---|
# | `num_kv_heads` | `num_kv_heads` | `num_key_value_heads` |
# | `num_query_heads` | `num_heads` | `num_attention_heads` |
# | `ContiguousCache` | | `DynamicCache`, returned as `past_key_values` (5.24: `cache`) |
# | `PagedCache` | `kv_cache` tensors of the model runner | |
# | `valid`, `causal_mask` | lengths (`seq_lens`) instead of a mask | `attention_mask` |
#
# ## Summary
#
# - Under a causal mask a later token changes no earlier key or value. As long as the mask, the weights and the
#   tokens up to its own stay the same, a position's can be kept.
# - The cache holds keys and values of processed positions. No queries, no hidden states, no logits.
# - Prefill fills it with the prompt and yields the first output from its last row of logits.
# - $K, V$ have the shape $[B, H_{kv}, T, d_h]$; the payload is their product times 2, $L$ and $s$.
# - Of the work on the twenty positions at the top, none is done again. Keeping it costs 20 x 2,048 = 40,960 bytes.
# - Padding costs bytes and must be masked. Blocks cost their unfilled tails.
# - Sharing KV heads divides the payload. It makes another model, and leaves each query head's work as it was.
#
# **Check yourself.** (1) A prompt of 12 tokens has been prefilled and one output selected: how many positions are
# cached, and how many rows of logits were needed? (2) 2 layers, 4 query heads, 2 KV heads of width 8, fp16, one
# request of 10 positions: how many bytes? (3) The same request is put into a rectangle with one of 30 positions.
# How many bytes does its row take there? And in blocks of 16? (4) Someone fine-tunes the weights while requests are
# running. What has to happen to their caches?
#
# <details><summary>Answers</summary>
# (1) 12, and one. (2) 2 x 2 x 1 x 2 x 10 x 8 x 2 = 1,280. (3) In the rectangle as many as the longest, 3,840;
# in blocks 16 slots, 2,048. (4) They no longer belong to the model: every position has to be computed again.
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.1-1")` gives the first of three
# hints, `hint("21.1-1", 2)` the second; `solution("21.1-1")` shows a worked solution. What is right is read off real tensors when you ask.

# %%
check({"21.1-1": None, "21.1-6": None})


# %%
def my_kv_cache_bytes(layers, batch, kv_heads, seq_len, head_dim, bytes_per_value):
    """Bytes of the keys and values of all layers and requests."""
    ...


check("21.1-2", my_kv_cache_bytes)


# %%
def my_kv_head(h, num_query_heads, num_kv_heads):
    """The KV head that query head h reads."""
    ...


check("21.1-3", my_kv_head)


# %%
def key_mask(lengths, new):
    """True where a new query may read: [requests, new, max(lengths) + new]."""
    ...


check("21.1-4", key_mask)


# %%
def decode_step(q, k, v, keys, values):
    """q, k, v: [d]; keys, values: [T, d]. The mixture that q reads, [d]."""
    ...


check("21.1-5", decode_step)

# %% [markdown]
# **Find the error.** Calculators in public use are wrong by factors of 0.2 to 8. Three of their mistakes, rebuilt.
# (A layer with a **window** reads and keeps the last positions only; in some models most layers are of this kind.)

# %%
check({"21.1-7": None, "21.1-8": None, "21.1-9": None})


# %%
def padding_is_safe(attend):
    """True if each request's query reads its own positions, and no padding."""
    ...


check("21.1-10", padding_is_safe)

# %%
for request_id in [*stopped.engine.requests, *halfway.engine.requests]:
    stopped.abort(request_id), halfway.abort(request_id)
for engine_of in (llm, stopped, small_llm, once, halfway, lab_llm, ours):
    pool = engine_of.engine.scheduler.manager.pool
    assert engine_of.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
print("nothing leaked: no request is left, every block is free")
