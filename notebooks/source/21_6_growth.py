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
# # 21.6 Processed positions, selected outputs, and cache growth
#
# **A prompt of five tokens has just produced its first output. How many positions are in the cache?**
#
# 30 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about five
# seconds, and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need, in one paragraph. A model reads a text as **tokens**, numbered by **position** from 0.
# In each of its layers, every position gets a **key** and a **value**, two short vectors. Later positions
# compare their own **query** with their own key and all earlier ones, and mix the values by how well they
# match: that is attention. A layer does this several times side by side, in **heads**; those that store keys and values
# are its **KV heads**. Keys and values of a position never change once computed, so they are kept: the **KV cache**.
# A **pass** is one run of the model over new tokens. The first pass reads the whole prompt; each later one
# reads a single token. A paged cache keeps its positions in **blocks**, here of four **slots** each, taken from one
# **pool**: memory for all requests, allocated once.
#
# After this section you can
#
# - tell a *selected* token from a *processed* position, and say which of the two grows the cache;
# - compute the bytes of a cache at any moment, and check the number against real tensors;
# - say what a cache saves, what it does not save, and what the payload leaves out.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import inspect
import statistics
import time
from itertools import pairwise

import torch

from kvlab import (
    LLM,
    BlockPool,
    ContiguousCache,
    Decoder,
    KVCacheManager,
    LLMEngine,
    ModelConfig,
    PagedCache,
    SamplingParams,
    Scheduler,
    tiny,
)
from kvlab.core.formats import FORMATS
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.tensors.checkpoint_save import config_to_hf
from kvlab.tensors.kv_cache import contiguous_forward
from kvlab.tensors.ops import NoCache
from kvlab.tensors.runner import ModelRunner
from kvlab.tensors.sampling import probabilities
from kvlab.widgets import cache_growth, growth_editor

_ = torch.set_num_threads(1)  # one thread: times are steadier, and the model is small

# %% [markdown]
# ## A real model fills a real cache
#
# kvlab ships a trained model of 0.9 million parameters. It reads notes and answers one question
# about them. The next cell serves one request and records every event on the way.

# %%
llm = LLM("tiny", block_size=4, num_blocks=32, enable_prefix_caching=False)
prompt = tiny.prompt("Ada likes soup. The key is red.", "What does Ada like?", rules="")

llm.start_trace(attention_layers=[0])  # also keep the attention weights of the first layer
(answer,) = llm.generate(prompt, SamplingParams(max_tokens=8))
trace = llm.stop_trace()

print("prompt tokens:", len(answer.prompt_token_ids))
print("output tokens:", len(answer.outputs[0].token_ids))
print("answer:       ", answer.outputs[0].text.strip())

# %% [markdown]
# Step through the run. Use the buttons, drag the slider, or click the view and press
# <kbd>←</kbd> <kbd>→</kbd> <kbd>Home</kbd> <kbd>End</kbd>; <kbd>Space</kbd> plays.
#
# Each column is a position, each row the keys (K) or values (V) of one layer. A token that has been
# selected stands in a dashed column: the text has it, the cache does not. Words in italics are the
# model's own marks: *endoftext* begins a prompt, *system*, *user*, *assistant* begin a turn, *end*
# closes it.

# %%
cache_growth(trace)

# %% [markdown]
# Two kinds of stop alternate. A **pass** processes a token and fills one more column in every layer.
# Then its logits **select** the next token, and no column changes.
#
# That answers the question at the top: **five**. The first output is selected from the prompt's own pass.
# Its keys and values do not exist until a later pass reads it.
#
# ## The same in numbers small enough to check by hand
#
# The bytes of keys and values are a product. This is the **payload**:
#
# $$\mathrm{bytes} = 2 \cdot L \cdot B \cdot H_{kv} \cdot T \cdot d_h \cdot s \tag{21.2}$$
#
# 2 for keys and values, $L$ layers, $B$ requests, $H_{kv}$ KV heads, $T$ processed positions, $d_h$ the
# head's width: how many numbers one key has; $s$ the bytes of each number: 2 in half precision (fp16), 4 in single
# precision (fp32).
#
# Take 2 layers, 4 KV heads, head width 8, one request, 2 bytes a stored value, and a prompt of five
# tokens. The model below has exactly this shape. Its weights are random, since only sizes matter here. kvlab's
# memory calculator ([section 21.1](21_1_reuse.ipynb)) comes to the same figure from the model's configuration alone.

# %% tags=["claim-21.6-a"]
config = ModelConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_query_heads=4,
    num_kv_heads=4,
    head_dim=8,
)
model = Decoder.random(config, seed=0)
cache = ContiguousCache(config, batch=1, dtype=torch.float16)
prompt_ids = torch.tensor([[11, 7, 29, 3, 18]])
logits = contiguous_forward(model, prompt_ids, cache)

key = cache.keys[0]
print("one key tensor, [B, H_kv, T, d_h]:", list(key.shape))
print("values in it:", key.numel(), "  bytes:", key.nbytes)
print("payload, keys and values of both layers:", cache.nbytes, "bytes")
calculator = Storage(KVCacheSpec.from_config(config_to_hf(config, torch.float16)), FORMATS["fp16"])
print("the memory calculator:", *map(str, calculator.terms(5)), sep="\n  ")
assert (
    (key.numel(), key.nbytes, cache.nbytes) == (160, 320, 1280) == (160, 320, calculator.nbytes(5))
)

# %% [markdown]
# ## Predict, then run
#
# Three more passes follow. Each reads one token, an input of shape `[1, 1]`: one request, one token. Write
# your answers in place of `None`, run the cell, and then the next one: it holds them against the run. Nothing
# breaks if you leave them.

# %%
predict({"21.6-p1": None, "21.6-p2": None, "21.6-p3": None})

# %% tags=["claim-21.6-b"]
cache = ContiguousCache(config, batch=1, dtype=torch.float16)
logits = contiguous_forward(model, prompt_ids, cache)
totals, shapes = [cache.nbytes], [list(cache.keys[0].shape)]
selected = [logits[:, -1].argmax(-1, keepdim=True)]  # from the prompt's last logits
for _pass in range(3):
    token = selected[-1]
    assert token.shape == (1, 1)
    logits = contiguous_forward(model, token, cache)  # processing: the cache grows here
    totals.append(cache.nbytes)
    shapes.append(list(cache.keys[0].shape))
    selected.append(logits[:, -1].argmax(-1, keepdim=True))  # selecting: it does not

# The engine serves the same request over blocks and counts for itself.
engine_llm = LLM(model, cache_dtype=torch.float16, block_size=4, num_blocks=8)
engine_llm.start_trace()
(served,) = engine_llm.generate(prompt_ids[0].tolist(), SamplingParams(max_tokens=4))
small_trace = engine_llm.stop_trace()
held = [e.data["nbytes"] for e in small_trace.events if e.kind == "computed"]
last = list(small_trace.frames())[-1].state["requests"][served.request_id]

print("pass   one key tensor   values   total bytes   same in the engine's blocks")
for n, (shape, total, engine_total) in enumerate(zip(shapes, totals, held, strict=True)):
    name = "prompt" if n == 0 else f"{n:>6}"
    print(f"{name}   {shape!s:>14} {torch.Size(shape).numel():>8} {total:>13} {engine_total:>15}")
(added,) = {b - a for a, b in pairwise(totals)}
processed = last["num_computed_tokens"] - last["num_prompt_tokens"]
print(
    f"each pass adds {added} bytes; outputs selected {len(selected)}, of them processed {processed}"
)

assert totals == held == [1280, 1536, 1792, 2048] and added == 256
assert totals == [calculator.nbytes(length) for length in (5, 6, 7, 8)]
assert list(served.outputs[0].token_ids) == torch.cat(selected, 1)[0].tolist()
assert (len(served.outputs[0].token_ids), processed) == (4, 3)

reveal({"21.6-p1": totals[1:], "21.6-p2": len(selected), "21.6-p3": processed})

# %% [markdown]
# Four outputs exist, and the cache has grown three times. The fourth was selected last, and nobody has
# asked what comes after it. So its keys and values were never computed.
#
# The picture of this example, drawn from the engine's own trace:

# %% tags=["claim-21.6-d"]
rows = cache_growth(small_trace)
final = rows.payload["trace"]["events"][-1]
layers = small_trace.meta["num_layers"]
columns = last["num_computed_tokens"]
print(
    f"{layers} layers x (K, V) = {2 * layers} rows, {columns} filled columns, blocks {engine_llm.cache.block_size} wide"
)
assert (layers, columns) == (2, 8)
assert all(len(k) == 1 and k.shape[2] == columns for k in cache.keys)  # the real tensors agree
rows

# %% [markdown]
# ## The mechanism
#
# With $t$ counting the passes after the prompt, every layer does
#
# $$\mathrm{cache}_t = \operatorname{append}(\mathrm{cache}_{t-1}, K_t, V_t) \tag{21.6}$$
#
# $K_t$ and $V_t$ belong to the token that pass $t$ **consumes**, not to the one selected from its logits.
# In the package this is the whole of it. First for a contiguous cache, which keeps all positions of a request side
# by side in one tensor, then for a paged one:

# %%
print(inspect.getsource(ContiguousCache.append))
print(inspect.getsource(PagedCache.write))

# %% [markdown]
# `slot_mapping` says for each new position which slot of the pool is its own. The **scheduler** decides, step by
# step, which requests run and with how many tokens. It keeps the two moments apart: after a pass it first records
# what was processed, and then what was selected. Look for two lines only, `r.num_computed_tokens = row.end` and
# `request.append_output(...)`; the rest serves later sections.

# %%
print(inspect.getsource(Scheduler._record_processed))
print(inspect.getsource(Scheduler._record_selected))

# %% [markdown]
# Whose keys and values does a pass store: those of the token it reads, or of the token it selects? The next cell
# serves a request over blocks that are taken in the order 7, 2, 9, 5. The request's **block table** lists them: entry
# 0 is the block of positions 0 to 3, and so on. After every pass the cell reads the stored keys back through the block
# table and holds them against two candidates of a full recomputation: one with the token consumed at the newest
# position, and one with the token selected there.

# %% tags=["claim-21.6-c"]
paged = PagedCache(config, num_blocks=10, block_size=4)
manager = KVCacheManager(BlockPool([7, 2, 9, 5]), block_size=4)
engine = LLMEngine(Scheduler(manager), ModelRunner(model, paged))
(request,) = engine.add_request(
    prompt_ids[0].tolist(), SamplingParams(max_tokens=6), request_id="A"
)


def recomputed(token_ids):
    """K of all layers and positions, computed afresh: [layers, heads, positions, width]."""
    fresh = ContiguousCache(config)
    contiguous_forward(model, torch.tensor([token_ids]), fresh)
    return torch.cat(fresh.keys)


engine.step()  # the prompt
print("pass  consumes  selects  table         newest column is that of")
while not request.is_finished:
    consumed = request.all_token_ids[-1]
    engine.step()
    n = request.num_computed_tokens
    if request.is_finished:
        break  # its blocks are free again
    stored, _values = paged.read(manager.block_table("A"), n)
    known = request.all_token_ids
    from_consumed = (stored - recomputed(known[:n])).abs().max()
    from_selected = (
        (stored[:, :, -1] - recomputed([*known[: n - 1], known[n]])[:, :, -1]).abs().max()
    )
    verdict = "the token consumed" if from_consumed < 1e-5 < from_selected else "something else"
    print(f"{n - 5:>4}  {consumed:>8}  {known[-1]:>7}  {manager.block_table('A')!s:<12}  {verdict}")
    assert verdict == "the token consumed"
assert manager.pool.num_free_blocks == 4

# %% [markdown]
# With the first candidate the whole stored tensor was compared, with the second its newest column. Positions
# 0 to 3 lie in block 7,
# 4 to 7 in block 2, 8 and on in block 9. Position $t$ is in entry $\lfloor t/4 \rfloor$ of the table, slot
# $t \bmod 4$: position 6 is in block 2, slot 2. Read through the table, the positions stand in order.
#
# ## What the cache saves, and what it does not
#
# Without a cache, every pass gets the whole sequence again and recomputes all earlier positions. The
# next two cells time one more token both ways, and count its floating-point operations.

# %% tags=["nbval-ignore-output"]
from kvlab.measure.costs import count_flops

costs = []
for length in (64, 128, 256, 512):
    sequence = (torch.arange(length) % 600 + 300).tolist()
    ids, positions = torch.tensor(sequence), torch.arange(length)

    @torch.no_grad()
    def without_cache(ids=ids, positions=positions):
        return llm.model.compute_logits(llm.model(ids, positions, NoCache())[-1:])

    timed = LLM(llm.model, block_size=16, num_blocks=64, enable_prefix_caching=False)
    timed.engine.add_request(sequence[:-1], SamplingParams(max_tokens=40, ignore_eos=True))
    timed.engine.step()
    flops = count_flops(without_cache), count_flops(timed.engine.step)
    measured = {"without": [], "with": []}
    for _repeat in range(15):
        for name, run in (("without", without_cache), ("with", timed.engine.step)):
            start = time.perf_counter()
            run()
            measured[name].append(1e3 * (time.perf_counter() - start))
    costs.append((length, *flops, *(statistics.median(measured[k]) for k in ("without", "with"))))

print("positions   without a cache      with a cache")
for length, _flops_without, _flops_with, ms_without, ms_with in costs:
    print(f"{length:>9}   {ms_without:9.2f} ms          {ms_with:8.2f} ms")

# %% tags=["claim-21.6-e"]
first, final_row = costs[0], costs[-1]
for_each_key = (final_row[2] - first[2]) // (final_row[0] - first[0])
print("operations for one more token, and the share of the cached step that is attention")
print("positions   without a cache      with a cache   ratio   attention's share")
for length, flops_without, flops_with, *_times in costs:
    ratio, attention = flops_without / flops_with, for_each_key * length / flops_with
    print(
        f"{length:>9}   {flops_without:>15,}   {flops_with:>15,}   {ratio:>5.0f}   {attention:>17.0%}"
    )
assert all(row[1] > 30 * row[2] for row in costs), "the cached step does a small part of the work"
assert costs[-1][3] > costs[-1][4], "at 512 positions the cached step is the faster one"

reads = [len(e.data["attention"]["0"][0]) for e in trace.events if e.kind == "computed"]
print("keys that the newest query read, pass after pass:", reads)
lengths = [e.data["end"] for e in trace.events if e.kind == "computed"]
assert reads == lengths  # every pass still reads all of them

# %% [markdown]
# Without a cache the work of a token grows with the whole sequence. With one, the projections and the
# feed-forward parts are done for the new position alone. The new query's own attention is not saved: it
# reads every key, one more in each pass. (The times differ less than the operations: a step of so small
# a model has fixed costs that both ways pay.) The last column is attention's share of the cached step: small for
# a short text, and growing with it.
#
# ## From logits to a selected token
#
# A pass ends in logits: one score for each of the $V$ tokens of the vocabulary, shape `[1, V]`. They are
# not probabilities. The rules of selection turn them into some:
#
# - **greedy** takes the largest score;
# - **temperature** divides the scores first: above 1 evens them out, below 1 sharpens them;
# - **top-k** keeps the k likeliest tokens; **top-p** keeps the likeliest ones until their probabilities
#   reach p. The others get 0, and the rest is scaled up to a sum of 1 again.

# %% tags=["claim-21.6-f"]
caught = {}
llm.runner.on_logits = caught.update
story = tiny.prompt("", "Tell me a story about Ada and a red kite.", rules="")
(told,) = llm.generate(story, SamplingParams(max_tokens=1))
llm.runner.on_logits = None
row = caught[told.request_id].clone()  # outputs.logits[:, -1, :] of a transformers call, one row

print("shape:", [1, row.numel()], "  sum:", f"{row.sum():.0f}", "  smallest:", f"{row.min():.1f}")
rules = {
    "greedy": SamplingParams(),
    "temperature 1": SamplingParams(temperature=1.0),
    "temperature 2": SamplingParams(temperature=2.0),
    "top-k 2": SamplingParams(temperature=1.0, top_k=2),
    "top-p 0.9": SamplingParams(temperature=1.0, top_p=0.9),
}
likeliest = row.topk(4).indices.tolist()
names = [llm.tokenizer.token_text(t) for t in likeliest]
print(f"{'':>14} " + " ".join(f"{name!r:>9}" for name in names) + "   others  kept  sum")
for rule, params in rules.items():
    p = probabilities(row, params)
    cells = " ".join(f"{p[t]:>9.3f}" for t in likeliest)
    rest = p.sum() - p[likeliest].sum()
    print(f"{rule:>14} {cells} {abs(rest):>8.3f} {int((p > 0).sum()):>5}  {p.sum():.3f}")
    assert abs(p.sum() - 1) < 1e-12
assert row.numel() == llm.model.config.vocab_size and row.min() < 0 and abs(row.sum() - 1) > 1
assert int((probabilities(row, rules["top-k 2"]) > 0).sum()) == 2

# %% [markdown]
# Each row sums to 1 after renormalising. Whichever rule selects the token, the cache is the same
# before and after: only the pass that consumes the token will change it.
#
# ## What the payload leaves out
#
# The payload counts keys and values of processed positions. A running engine holds more:
#
# - **parameters**, the model's weights, and **temporaries**, the tensors that a pass makes and drops;
# - **gather buffers**, where attention copies the blocks it reads;
# - **block tails**, slots of taken blocks that no position fills yet;
# - **retained** blocks of requests that have ended, kept because a later prompt may begin the same way;
# - **free** blocks of the pool, which was allocated as a whole at the start.
#
# The next cell stops an engine in the middle of a request and measures each on the real tensors.

# %% tags=["nbval-ignore-output"]
from kvlab.measure.costs import peak_temporaries
from kvlab.measure.ledger import byte_ledger

halfway = LLM("tiny", block_size=16, num_blocks=64)
_ = halfway.generate(
    tiny.prompt("Tom plays chess.", "What does Tom play?"), SamplingParams(max_tokens=8)
)
_ = halfway.engine.add_request(
    answer.prompt_token_ids, SamplingParams(max_tokens=8, ignore_eos=True)
)
prompt_step = peak_temporaries(halfway.engine.step)
decode_step = peak_temporaries(halfway.engine.step)
ledger = byte_ledger(halfway)
print(f"{'temporaries, prompt':>20} {prompt_step:>12,} bytes at most")
print(f"{'temporaries, decode':>20} {decode_step:>12,} bytes at most")
print(f"{'gather buffers':>20} {ledger.gather_buffers:>12,} bytes")

# %% tags=["claim-21.6-g"]
live = next(iter(halfway.engine.requests.values()))
per_position = halfway.cache.bytes_per_position
for name, value in ledger.rows():
    if name != "gather buffers":
        print(f"{name:>12} {value:>12,} bytes")
print(f"payload = {live.num_computed_tokens} positions x {per_position:,} bytes")
assert ledger.payload == live.num_computed_tokens * per_position
stored = Storage(KVCacheSpec.from_config(tiny.FOLDER), FORMATS["fp32"])
assert ledger.payload == stored.nbytes(live.num_computed_tokens)  # the memory calculator's figure
assert ledger.payload + ledger.block_tails + ledger.retained + ledger.free == ledger.pool
assert ledger.block_tails > 0 and ledger.retained > 0 and ledger.parameters > ledger.payload
assert prompt_step > decode_step > 0 and ledger.gather_buffers > 0

# %% [markdown]
# The payload is a small part of what this process holds. What the operating system counts is more again,
# since the allocator keeps memory that no tensor uses.
#
# ## Break it
#
# Suppose someone reasons: *the output has been selected, so it is in the cache*, and skips the write
# when a pass reads a single token. The pool below is filled with NaN ("not a number") first, so that an
# unwritten slot shows: whatever is computed from it is NaN too.


# %%
class ForgetfulCache(PagedCache):
    """Writes prompts, and forgets every token that is processed alone."""

    def write(self, layer, key, value, slot_mapping):
        if len(slot_mapping) > 1:
            super().write(layer, key, value, slot_mapping)


def outputs_with(cache_class, prompt=(11, 7, 29, 3, 18)):
    cache = cache_class(config, num_blocks=10, block_size=4)
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    manager = KVCacheManager(BlockPool(10), block_size=4)
    engine = LLMEngine(Scheduler(manager), ModelRunner(model, cache))
    (request,) = engine.add_request(prompt, SamplingParams(max_tokens=4))
    bad_logits = []
    engine.runner.on_logits = lambda rows: bad_logits.append(
        any(r.isnan().any() for r in rows.values())
    )
    engine.run()
    return request.output_token_ids, bad_logits


for cache_class in (PagedCache, ForgetfulCache):
    tokens, not_numbers = outputs_with(cache_class)
    print(f"{cache_class.__name__:>14}: outputs {tokens}, logits NaN: {not_numbers}")
wanted = torch.cat(selected, 1)[0].tolist()
assert outputs_with(PagedCache)[0] == wanted != outputs_with(ForgetfulCache)[0]

# %% [markdown]
# The first output is right even with the fault: the prompt's pass reads several tokens, so its keys and
# values are written, and its logits select that output. Pass 1 reads its own slot, which nobody wrote, and
# from there on every logit is NaN; the largest of those comes out as token 0. With a prompt of a single token
# the first output fails as well; try `outputs_with(ForgetfulCache, [11])` in a cell of your own.
#
# ## Your own text
#
# Change the notes or the question. The engine runs again and the view below shows that run. The editor puts
# one rule, "Answer in one short sentence.", before your notes. The model knows about 700 words and these
# forms of facts and questions; the editor says so when you leave them.

# %%
for fact, question in tiny.examples():
    print(f"{fact:<28} {question}")

# %%
editor = growth_editor(llm)
editor

# %%
editor.check()  # raises what went wrong in the editor, if anything did

# %% [markdown]
# ## How others name it
#
# | here | vLLM (V1) | transformers |
# |---|---|---|
# | `num_computed_tokens` | `Request.num_computed_tokens` | `Cache.get_seq_length()` |
# | `num_tokens` (selected ones included) | `Request.num_tokens` | width of `input_ids` in `generate` |
# | `ContiguousCache.append` | | `DynamicLayer.update` |
# | `PagedCache.write` with `slot_mapping` | `reshape_and_cache` kernels with `slot_mapping` | |
# | `probabilities` | sampler over `SamplingParams` | logits processors in `generate` |
#
# ## Summary
#
# - Selecting an output changes the text. Processing it, in a later pass, changes the cache.
# - After $n$ outputs, $n-1$ of them are processed, as long as the last has not been consumed.
# - A pass adds $2 \cdot L \cdot H_{kv} \cdot d_h \cdot s$ bytes for each position it processes: 256 in the
#   small example, 2,048 in the shipped model.
# - The cache saves recomputing earlier positions. It does not save reading their keys and values.
# - The payload is not the memory: parameters, temporaries, gather buffers, block tails, retained and free
#   blocks come on top.
#
# **Check yourself.** (1) A prompt of 9 tokens, three outputs selected, and the request goes on: how many positions are
# cached? (2) 3 layers, 2 KV heads of width 16, 4 bytes a number, one request: how many bytes does each later pass add?
# (3) A request samples with temperature 2 instead of taking the largest score. What does that change in the cache at
# the moment of selection? (4) Blocks of 4, block table 3, 8, 5: in which block and slot is position 9? (5) With a cache
# each token still takes a little longer than the one before. Why?
#
# <details><summary>Answers</summary>
# (1) 9 + 2 = 11: nobody has read the third output yet. (2) 2 x 3 x 2 x 16 x 4 = 768. (3) Nothing. The pass that reads
# the token stores keys and values of that token, whichever it is. (4) Entry 2 of the table: block 5, slot 1. (5) Its
# query reads the keys and values of all positions before it, and there is one more each time.
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.6-1")` gives the first of three
# hints, `hint("21.6-1", 2)` the second, each in a cell of its own; `solution("21.6-1")` shows a worked solution. What
# is right is computed by the engine when you ask.

# %%
check({"21.6-1": None, "21.6-2": None, "21.6-7": None})


# %%
def cache_lengths(prompt_length, num_outputs):
    """[positions in the cache after the first pass, after the second, ...]"""
    ...


check("21.6-3", cache_lengths)


# %%
def slot(t, block_table, block_size):
    """The slot of the pool where position t lies."""
    ...


check("21.6-4", slot)


# %%
def append(keys, values, k, v):
    """(keys, values) of one layer after a pass: [B, H_kv, T + n, d_h] each."""
    ...


check("21.6-5", append)


# %%
def append_is_right(append):
    """True if nothing that was cached changes, and all that is new stands behind it."""
    ...


check("21.6-6", append_is_right)

# %%
for request_id in list(halfway.engine.requests):  # the one that was stopped halfway
    halfway.abort(request_id)
for engine_of in (llm, engine_llm, halfway):
    pool = engine_of.engine.scheduler.manager.pool
    assert engine_of.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
print("nothing leaked: no request is left, every block is free")

# %% [markdown]
# Next: [21.1 Reuse: what the cache keeps, and heads that share it](21_1_reuse.ipynb), or back to the
# [map of the chapter](21_0_start.ipynb#Where-to-go).
