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
# # 21.5 Paging: blocks, tables and slots
#
# **Twelve requests run at once. Each grows by one position a step, and nobody knows where any of them will end.
# Where do the keys and values of the next position go?**
#
# 60 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about half a minute,
# and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. In each of its layers
# every position gets a **key** (K) and a **value** (V), two short vectors, that are kept for later positions to
# read: the **KV cache**. A token is **selected** from the logits (scores of all tokens) of the position before
# it; a later **pass** of the model **processes** it, and only then do its keys and values exist. An **engine**
# serves many requests together; a **step** is one pass over whatever is due. Its **pool** is the memory for keys
# and values, allocated once and cut into **blocks** of a few **slots**, one slot a position. A full block gets an
# **identity**, a fingerprint of its tokens and of all tokens before them: by it a later request that begins the
# same way finds the block and can share it ([section 21.4](21_4_prefix.ipynb)).
#
# After this section you can
#
# - find the slot of any position through a **block table**, and say what is read when attention reads;
# - play the allocator: which block is taken, shared, copied, freed, and when;
# - say what blocks waste, what they save, and what a smaller block costs;
# - find three bugs of such an allocator by the damage they do.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import inspect
import io
import random
import time
from contextlib import contextmanager
from itertools import pairwise
from statistics import median

import matplotlib.pyplot as plt
import torch
from IPython.display import Image, display

from kvlab import (
    LLM,
    BlockPool,
    ContiguousCache,
    KVCacheManager,
    LLMEngine,
    PagedCache,
    PrefixCachePolicy,
    Request,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    tiny,
)
from kvlab.core.kv_cache_manager import BlockCopy
from kvlab.core.request import FinishReason, RequestStatus
from kvlab.core.scheduler_output import ScheduledRequest, SchedulerOutput
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.measure.block_sizes import serve_in_blocks
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import contiguous_forward
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.runner import ModelRunner
from kvlab.tiny.corpus import cases
from kvlab.widgets import allocator_playground, block_table

_ = torch.set_num_threads(1)  # one thread: times are steadier, and the model is small

llm = LLM("tiny", block_size=4, num_blocks=64)
model, config = llm.model, llm.model.config
word = llm.tokenizer.token_text
print(llm)

# %% [markdown]
# ## Why blocks
#
# The plain way is to reserve: each request gets one region, large enough for its prompt and the longest output
# that it may ask for. The next cell serves twelve requests, eight short questions and four stories, from a pool
# of 512 slots. Once the pool is cut into regions of 128 slots, since a request may grow to that; once into blocks
# of 4, of which a request takes one more whenever it needs it. To the engine a region is nothing else than one
# large block.

# %%
told = (("Ada", "red kite"), ("Tom", "golden ring"), ("Ella", "green ring"), ("Carl", "red kite"))
stories = [tiny.prompt("", f"Tell me a story about {n} and a {t}.", rules="") for n, t in told]
questions = [c.prompt for c in cases(8, 3, seed=3, num_sentences=0, num_rules=(0, 1))]
mixed = [p for i in range(4) for p in (questions[2 * i], stories[i], questions[2 * i + 1])]
workload = [llm.encode(prompt) for prompt in mixed]
longest = SamplingParams(max_tokens=128 - max(map(len, workload)))

print("slots in one piece   pieces   at once   steps   of the slots taken, empty")
served = {}
for size in (128, 4):
    use = served[size] = serve_in_blocks(model, workload, longest, block_size=size, num_slots=512)
    print(
        f"{size:>18} {use.num_blocks:>8} {use.most_running:>9} {use.steps:>7} {use.empty_share:>26.0%}"
    )

# A request's last token is selected and never processed: it has no position in the cache.
lengths = [len(p) + len(out) - 1 for p, out in zip(workload, served[4].token_ids, strict=True)]
print(f"\npositions at each request's end: {lengths}")

watched = LLM(model, tokenizer="tiny", block_size=4, num_blocks=128, enable_prefix_caching=False)
pool, in_use = watched.engine.scheduler.manager.pool, []  # slots of taken blocks, step by step
watched.runner.on_logits = lambda _: in_use.append(4 * (128 - pool.num_free_blocks))
for ids in workload:
    watched.engine.add_request(ids, longest)
watched.engine.run()
print(f"together {sum(lengths)}; most slots in use at one time: {max(in_use)} of 512")
assert len(in_use) == served[4].steps and max(in_use) < 512 < sum(lengths)
assert served[128].token_ids == served[4].token_ids
assert served[128].most_running == 4 and served[4].most_running == 12
assert served[128].empty_share > 0.5 and served[4].empty_share < 0.05

# %% [markdown]
# The outputs are the same. The reservation has room for four requests at a time, and more than half of what it
# took stays empty (both shares are over all steps of a run): most requests end long before 128. Blocks serve all
# twelve at once in the same memory. Together they end with more positions than the pool has slots, but not at one
# time: short requests have ended and given their blocks back before the long ones have grown.
#
# ## Where a position lies
#
# A position $t$ is a **logical** address: it says where a token stands in its own request. Blocks are
# **physical**: they lie wherever the pool had one free. With four slots a block,
#
# $$\text{logical block} = \lfloor t/4 \rfloor, \qquad \text{slot in it} = t \bmod 4,$$
#
# and the request's **block table** says which physical block each logical block is.
#
# The example of this section has blocks 2, 5, 7 and 9, free in the order 7, 2, 9, 5. Request A is " Ada likes
# soup. The key", six tokens; B is " Tom plays chess.", four. The engine below is the real one, with the shipped
# model. Its pool is filled with NaN ("not a number") first, so that a slot which nobody has written shows.


# %% tags=["claim-21.5-b"]
TEXTS = {"A": "Ada likes soup. The key", "B": "Tom plays chess.", "C": "Ada likes soup."}
EIGHT = SamplingParams(max_tokens=8, ignore_eos=True)
NAMES = {str(token): word(token) for token in range(config.vocab_size)}


def empty_engine(retain_freed=False, pool=BlockPool, cache_class=PagedCache):
    """An engine over blocks 7, 2, 9, 5. It writes a trace from the start."""
    cache = cache_class(config, num_blocks=10, block_size=4)  # ids up to 9; four of them are used
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    # kept_logits: for two prompts that end with a full block, what selects the token after them
    policy = PrefixCachePolicy(retain_freed=retain_freed, kept_logits=2)
    manager = KVCacheManager(pool([7, 2, 9, 5]), block_size=4, policy=policy)
    engine = LLMEngine(Scheduler(manager), ModelRunner(model, cache))
    engine.start_trace(meta={"vocab": NAMES})
    return engine


def with_a_and_b(**options):
    """One step: the prompts of A and B are processed, and the first output of each selected."""
    engine = empty_engine(**options)
    for name in "AB":
        engine.add_request(llm.encode(TEXTS[name]), EIGHT, request_id=name)
    engine.step()
    return engine


def table(engine, name):
    return engine.scheduler.manager.block_table(name)


def written(engine):
    """Slots of the pool that hold numbers in every layer, keys and values: read off the tensors."""
    cache = engine.runner.cache
    both = torch.cat((cache.key_cache, cache.value_cache), dim=-1)
    return set(both.isfinite().all(-1).all(-1).all(0).flatten().nonzero().flatten().tolist())


engine = with_a_and_b()
print("Table 21.1")
print("request   logical block   positions   physical block   filled slots")
for name in "AB":
    length = engine.requests[name].num_computed_tokens
    for logical, block in enumerate(table(engine, name)):
        filled = len(written(engine) & set(range(4 * block, 4 * block + 4)))
        last = min(length, 4 * logical + 4) - 1
        where = f"{4 * logical} to {last}"
        print(f"{name:>7} {logical:>15} {where:>11} {block:>16} {filled:>10} of 4")
free = engine.scheduler.manager.pool.free_block_ids
print(f"still free: {free};  A's token 5 is in block {table(engine, 'A')[5 // 4]}, slot {5 % 4}")
assert (table(engine, "A"), table(engine, "B"), free) == ([7, 2], [9], [5])
assert written(engine) == {28, 29, 30, 31, 8, 9, 36, 37, 38, 39}  # 4 * block + slot

# %% [markdown]
# Table 21.1 is read off the allocator and the tensors. Six positions need $\lceil 6/4 \rceil = 2$ blocks; the
# second is half empty, and that unused part of a taken block is its **tail**. Blocks 7 and 2 do not
# lie side by side, and need not.
#
# ### One read, by hand and in the engine
#
# The token at position 5 attends to positions 0 to 5. Its query has to find six keys and six values. Let the
# engine's attention do it in layer 3, and do it again by hand: the table, the quotient, the remainder, and the formula of
# attention. The query is that of query head 3. Keys and values are stored for fewer **KV heads**, each of which
# several query heads read ([section 21.1](21_1_reuse.ipynb)); `kv_head` is the one that this query head reads.


# %% tags=["claim-21.5-a"]
class Watched:
    """Hands each call on to the real attention and keeps one layer's query and result."""

    def __init__(self, attention, layer):
        self.attention, self.layer = attention, layer

    def __call__(self, layer, query, key, value, **reach):  # reach: a window, where a layer has one
        mixed = self.attention(layer, query, key, value, **reach)
        if layer == self.layer:
            self.query, self.mixed = query, mixed
        return mixed


engine = with_a_and_b()
cache, ids, table_a = engine.runner.cache, llm.encode(TEXTS["A"]), table(engine, "A")
whole = build_input_batch((ScheduledRequest("A", 0, ids, table_a, ()),), 4, model.device)
newest = build_input_batch((ScheduledRequest("A", 5, ids[5:], table_a, ()),), 4, model.device)

LAYER, HEAD = 3, 3
attention = Watched(engine.runner.attention, LAYER)  # the pass over position 5, once more
engine.runner.attention.begin(newest)
with torch.inference_mode():
    model(newest.input_ids, newest.positions, attention)

kv_head = HEAD // (config.num_query_heads // config.num_kv_heads)
places = [(table_a[t // 4], t % 4) for t in range(6)]  # the table, the quotient, the remainder
keys = torch.stack([cache.key_cache[LAYER, block, slot, kv_head] for block, slot in places])
values = torch.stack([cache.value_cache[LAYER, block, slot, kv_head] for block, slot in places])
weights = torch.softmax(keys @ attention.query[0, HEAD] / config.head_dim**0.5, dim=0)

print("t   token    t // 4   t % 4   block   slot of the pool   slot_mapping   weight")
for t, (block, slot) in enumerate(places):
    mapped = int(whole.slot_mapping[t])
    print(
        f"{t}   {word(ids[t]).strip():<8} {t // 4:>5} {t % 4:>7} {block:>7} {4 * block + slot:>18} "
        f"{mapped:>14} {weights[t]:>8.2f}"
    )
by_hand, by_engine = weights @ values, attention.mixed[0, HEAD]
read_keys, read_values = cache.read(table_a, 6)
assert whole.slot_mapping.tolist() == [4 * block + slot for block, slot in places]
assert places[5] == (2, 1) and newest.slot_mapping.tolist() == [9]
assert torch.equal(read_keys[LAYER, kv_head], keys)
assert torch.equal(read_values[LAYER, kv_head], values)
assert by_engine.isfinite().all() and torch.allclose(by_hand, by_engine, atol=1e-5)
print("\nthe mixture by hand equals the engine's; nothing that it read was NaN")

# %% [markdown]
# A layer's memory is one row of slots, and slot number `4 * block + slot` is the whole address. `slot_mapping` is
# that number for each position that a pass is about to write. Reading goes through the table of the request:
# block after block, cut off at its length. So keys come out in logical order, and the two empty slots of block 2,
# which hold NaN, were not touched.
#
# ## The mechanism
#
# Four short functions are most of it. Three are the pool's: blocks are taken at the head of a queue, each block counts the
# tables that hold it, and a block goes back when the count is 0. The fourth, `build_input_batch`, turns positions into slots. (It pads
# shorter tables with 0 to a rectangle. That is no use of block 0: nobody reads beyond a request's own length.) In
# each layer the attention first writes this pass's keys and values to `slot_mapping`, then reads through the table.
#
# Look at the end of `free_blocks`. A block without an identity goes to the *head* of the queue: nobody can find it
# again, so nothing is lost if it is taken next. One with an identity can still be found, and goes to the *end*, to
# be taken as late as possible. A table is given back deepest block first: an identity is found by way of those
# before it, so the end of a chain must be taken before its beginning.

# %%
for function in (BlockPool.get_new_blocks, BlockPool.touch, BlockPool.free_blocks):
    print(inspect.getsource(function))
print(inspect.getsource(build_input_batch))

# %%
print("In Table 21.1 block 5 is free. A, with blocks 7 and 2, ends. Free then, next first:")
for retain_freed, what in ((False, "identities go, too"), (True, "identities stay")):
    engine = with_a_and_b(retain_freed=retain_freed)
    engine.finish("A", FinishReason.STOP)
    print(f"{what:>20}: {engine.scheduler.manager.pool.free_block_ids}")
    assert engine.scheduler.manager.pool.free_block_ids == (
        [2, 5, 7] if retain_freed else [2, 7, 5]
    )

# %% [markdown]
# Block 2, half full, never had an identity. Block 7 has one; if it keeps it, it waits at the end of the queue.
#
# ## Predict, then run
#
# Now five things happen: A processes positions 6, 7 and 8; a request C arrives, whose four tokens are A's first
# four; A ends; C ends; B ends. B stands still meanwhile. Freed blocks lose what they held at once (**immediate
# release**).
#
# C's prompt fills one block, and all of it is cached. Keys and values give no logits, so elsewhere a prompt's last
# position is computed again in any case, and since only whole blocks are found, C would find nothing. This engine
# is told to keep logits (`kept_logits`, for up to two such blocks): those of A's position 3 select C's first output
# without a pass.
#
# Write your answers in place of `None` before you scroll on; nothing breaks if you leave them.

# %%
predict({"21.5-p1": None, "21.5-p2": None, "21.5-p3": None, "21.5-p4": None})


# %% tags=["claim-21.5-c"]
@contextmanager
def only(engine, name):
    """Steps in which every other running request stands still."""
    scheduler = engine.scheduler
    still = [r for r in scheduler.running if r.request_id != name]
    scheduler.running = [r for r in scheduler.running if r.request_id == name]
    try:
        yield
    finally:
        scheduler.running = still + scheduler.running


def five_steps(retain_freed):
    """Plays the steps. Returns what was seen after each of them, and the trace."""
    engine, seen = with_a_and_b(retain_freed=retain_freed), []
    pool = engine.scheduler.manager.pool

    def note(what, place=None):
        tables = {name: table(engine, name) for name in "ABC"}
        counts = {i: b.ref_cnt for i, b in pool.blocks.items() if b.ref_cnt}
        kept = {i for i in pool.free_block_ids if pool.blocks[i].block_hash is not None}
        seen.append((what, place, tables, counts, pool.free_block_ids, kept))
        engine.scheduler.check_invariants()

    note("A and B stand as above")
    for position in (6, 7, 8):
        before, known = written(engine), engine.requests["A"].num_tokens
        with only(engine, "A"):
            engine.step()
        (slot,) = written(engine) - before
        note(f"A of {known} tokens, position {position}", divmod(slot, 4))
    (c,) = engine.add_request(llm.encode(TEXTS["C"]), EIGHT, request_id="C")
    with only(engine, "C"):
        engine.step()
    note(f"C comes, {c.num_cached_tokens} of {c.num_prompt_tokens} cached")
    for name in "ACB":
        engine.finish(name, FinishReason.STOP)
        note(f"{name} finishes")
    return seen, engine.stop_trace()


def ids_of(blocks):
    return "{" + ", ".join(map(str, sorted(blocks))) + "}"


seen, trace = five_steps(retain_freed=False)
retained, _ = five_steps(retain_freed=True)
print(f"{'':<25} block, slot  table of A of C  counts            free, next first")
for what, place, tables, counts, free, _ in seen:
    where = "" if place is None else "{:>5}, {}".format(*place)
    counted = " ".join(f"{block}:{n}" for block, n in sorted(counts.items()))
    print(f"{what:<25} {where:<12} {tables['A']!s:<10} {tables['C']!s:<5} {counted:<17} {free}")
print("\nthe same with retention   free, next first   of these evictable")
for what, _, _, _, free, kept in retained[-3:]:
    print(f"{what:<25} {free!s:<18} {ids_of(kept)}")

places = [place for _, place, *_ in seen[1:4]]
assert places == [(2, 2), (2, 3), (5, 0)] and seen[3][2]["A"] == [7, 2, 5]
assert seen[4][2]["C"] == [7] and seen[4][3] == {7: 2, 2: 1, 5: 1, 9: 1}
assert [(free, set(counts)) for _, _, _, counts, free, _ in seen[5:]] == [
    ([5, 2], {7, 9}), ([7, 5, 2], {9}), ([9, 7, 5, 2], set())
]  # fmt: skip
assert not any(kept for *_, kept in seen)
assert [kept for *_, kept in retained[-3:]] == [{2}, {2, 7}, {2, 7, 9}]
assert [free for *_, free, _ in retained[-3:]] == [[5, 2], [5, 2, 7], [5, 2, 7, 9]]

answers = {"21.5-p1": list(places[0]), "21.5-p2": list(places[2])}
answers |= {"21.5-p3": len(seen[3][4]) - len(seen[4][4]), "21.5-p4": seen[5][4]}
reveal(answers)

# %% [markdown]
# Selecting takes no slot: when A's token for position 6 was selected, block 2 stayed as it was. Position 8 is the
# first that needs a third block, and the pool gives the last one, 5. C takes no block at all: its table names
# block 7, whose **reference count** is now 2. So A's end frees 2 and 5, and 7 only when C ends too. B's block is
# B's alone.
#
# With **retention** the same steps leave the *full* blocks **evictable**: nobody holds them, and they keep their
# identity, so a later request may find and share them until somebody takes them for something else. (Also called
# *cached and free*, as in the package's source, or a *kept* prefix.) Block 5 was filled in one slot of four; nobody
# could use it, and it stands at the head of the queue.
#
# The same steps as a picture. It opens where C shares block 7, which has the colour of the first that holds it and
# the letters of both. Step through it with the buttons, the slider, or <kbd>←</kbd> <kbd>→</kbd>; point at a token
# or move the focus to it, and its read is drawn.

# %%
block_table(trace, at="C is admitted")

# %% [markdown]
# A quiz. Somebody writes: *a block must be appended when the length of the text is a multiple of the block size.*
# True or false?
#
# <details><summary>Answer</summary>
# False. The length of the text is the number of its known tokens, and the lines above show it: with 8 known tokens, a multiple of 4, nothing was
# taken; with 9, block 5 was. The token that a pass is about to process counts in the text already and has no slot
# yet. Counted in processed positions the sentence was true here: 8 were processed when block 5 was taken. It fails where the
# table is ahead of them (Exercise 3). What holds whenever the model runs: for n positions, those of the pass
# included, the table has &lceil;n / 4&rceil; entries or more.
# </details>
#
# ## Play the allocator
#
# Now you are the one who decides. The pool, the manager and the tensors below are the real ones; every button is
# one call, and the lines above the picture say what it did and whether the counts still add up. It starts with the
# blocks of Table 21.1. Its model, of random weights, and its tokens are its own, so the identities differ from those
# in the picture above. Some things to find out:
#
# - Finish A, then let C share A's first four tokens. Which block does C have to take? And if A's full blocks stay
#   evictable? ("Pool …", then "When a request ends": "keep full blocks, evictable".)
# - Share all six tokens of A. How many blocks are shared, and why not two?
# - Fill the pool and append once more.
# - Fork A, and append to both. Which of them gets the copy, and can you make it the other one?
#
# <details><summary>What happens</summary>
# Finished, then shared: block 2, not the 7 that held these very tokens. Released at once, A's blocks went to the head of the queue, the
# deepest first, so the queue is [2, 7, 5], and what they held cannot be found any more: C computes its four positions
# again. Kept evictable, block 7 is found, and C takes no block.
# Six tokens shared: one block. A's second one is half full, so it has no identity to be found by. In a full pool the
# append is refused and changes nothing; a scheduler would preempt somebody there. After a fork whoever is appended to
# first gets the copy, and the other writes in place.
# </details>
#
# "Undo" takes the last action back. "Script …" shows the actions as lines, and they are yours to edit:
# `admit NAME TOKENS`, `append NAME [TOKENS]`, `share NAME FROM TOKENS [OWN]` (OWN more tokens follow, of its own), `fork NAME FROM` (NAME gets a table with the
# blocks of FROM), `finish NAME`. The
# same lines work from a cell, as in `playground.do("append A 2")`; `playground.undo()` takes the last one back.

# %%
playground = allocator_playground()
playground

# %%
playground.check()  # raises what went wrong in the playground, if anything did

# %% [markdown]
# ## What holds after every step
#
# Three sorts of blocks make up the pool, whatever happens:
#
# $$\text{in use} + \text{evictable} + \text{free} = \text{all}, \qquad
# \sum_{\text{blocks}} \mathrm{ref\_cnt} = \sum_{\text{tables}} \text{entries}$$
#
# and what is computed over blocks is what would be computed without any cache. The next cell lets nine requests
# come and go at random: they share prefixes, one asks for two continuations, one is aborted, and the pool of 20
# blocks is too small for all, so that now and then a request is **preempted**: its blocks are taken from it, it
# waits, and what it had is computed again. After every step it counts. At the end it recomputes every row of logits from the
# whole text.

# %%
busy = LLM(model, tokenizer="tiny", block_size=4, num_blocks=20)
for tensor in (busy.cache.key_cache, busy.cache.value_cache):
    tensor.fill_(float("nan"))
manager, rng = busy.engine.scheduler.manager, random.Random(5)
facts = "Ada likes soup. The key is red. Tom plays chess."
asked = ["What does Ada like?", "What colour is the key?", "What does Tom play?"]
todo = [tiny.prompt(facts, question, rules="") for question in asked * 2] + stories[:3]
rows, everyone, counted = {}, [], []


def keep(by_request):
    for request_id, row in by_request.items():
        rows.setdefault(request_id, []).append(row.clone())


busy.runner.on_logits = keep
for step in range(200):
    if todo and rng.random() < 0.8:
        params = SamplingParams(max_tokens=30, n=2 if len(todo) == 4 else 1)
        everyone += busy.engine.add_request(busy.encode(todo.pop(0)), params)
    if step == 6:
        busy.abort(everyone[3].request_id)
    busy.engine.step()
    blocks = manager.pool.blocks.values()
    used = sum(b.ref_cnt > 0 for b in blocks)
    evictable = sum(b.ref_cnt == 0 and b.block_hash is not None for b in blocks)
    free = sum(b.ref_cnt == 0 and b.block_hash is None for b in blocks)
    held = sum(b.ref_cnt for b in blocks)
    entries = sum(len(manager.block_table(r.request_id)) for r in everyone)
    counted.append((step, used, evictable, free, held, entries))
    assert used + evictable + free == 20 and held == entries
    if not todo and not busy.engine.has_unfinished_requests():
        break
busy.runner.on_logits = None

print("step   in use + evictable + free = all     references = entries")
for step, used, evictable, free, held, entries in counted[:: max(1, len(counted) // 8)]:
    total = used + evictable + free
    print(f"{step:>4} {used:>8} {evictable:>11} {free:>6} {total:>5} {held:>14} {entries:>9}")

worst, compared = 0.0, 0
for request in everyone:
    fresh = contiguous_forward(
        model, torch.tensor([request.all_token_ids]), ContiguousCache(config)
    )
    for i, row in enumerate(rows[request.request_id]):
        wanted = fresh[0, request.num_prompt_tokens - 1 + i]
        worst, compared = max(worst, float((row - wanted).abs().max())), compared + 1
hits = sum(r.num_cached_tokens for r in everyone)
sent_back = sum(r.num_preemptions for r in everyone)
print(f"\n{hits} positions were found in the cache; {sent_back} times a request was preempted;")
print(f"{compared} rows of logits recomputed without a cache: all within 0.001: {worst < 1e-3}")
assert worst < 1e-3 and hits > 0 and sent_back > 0

# %% [markdown]
# ## One prompt, two continuations
#
# A user asks for two continuations of one prompt of 15 tokens. Its keys and values are needed twice and are
# stored once: the second continuation is a **fork**, a table with the same blocks. Three blocks are full. The
# fourth holds three positions, and both continuations want to write its last slot.

# %%
predict("21.5-p5", None)

# %% tags=["claim-21.5-d"]
forked = LLM(model, tokenizer="tiny", block_size=4, num_blocks=10)
pool, cache = forked.engine.scheduler.manager.pool, forked.cache
for tensor in (cache.key_cache, cache.value_cache):
    tensor.fill_(float("nan"))


def stored(block):
    """The bytes of one block, keys and values of all layers."""
    both = torch.cat((cache.key_cache[:, block], cache.value_cache[:, block]))
    return both.numpy().tobytes()


forked.start_trace()
both = forked.engine.add_request(
    forked.encode(stories[0]), SamplingParams(max_tokens=9, temperature=1.0, seed=7, n=2)
)
first, second = (r.request_id for r in both)
full = {}  # bytes of each full block, from the step that filled it
for step in range(8):
    forked.engine.step()
    tables = [table(forked.engine, name) for name in (first, second)]
    length = both[0].num_computed_tokens
    for block in {b for t in tables for b in t[: length // 4]}:
        full.setdefault(block, stored(block))
        assert stored(block) == full[block], "a full block was written to"
    if step < 2:
        counts = {b: pool.blocks[b].ref_cnt for t in tables for b in t}
        print(f"{length} positions: tables {tables[0]} and {tables[1]},")
        print(f"  counts {counts}")
    if step == 1:
        (keys_1, _), (keys_2, _) = (cache.read(t, 16) for t in tables)
        print(
            f"  positions 0 to 14 equal, bit for bit: {torch.equal(keys_1[:, :, :15], keys_2[:, :, :15])}"
        )
        print(f"  position 15 equal: {torch.equal(keys_1[:, :, 15], keys_2[:, :, 15])}")
        assert torch.equal(keys_1[:, :, :15], keys_2[:, :, :15])
        assert not torch.equal(keys_1[:, :, 15], keys_2[:, :, 15])

print(f"{length} positions: tables {tables[0]} and {tables[1]}; {len(full)} full blocks unchanged")
for request, entries in zip(both, tables, strict=True):
    fresh = ContiguousCache(config)
    contiguous_forward(model, torch.tensor([request.all_token_ids[:length]]), fresh)
    keys, values = cache.read(entries, length)
    apart = max(float((keys - torch.cat(fresh.keys)).abs().max()),
                float((values - torch.cat(fresh.values)).abs().max()))  # fmt: skip
    print(f"{request.request_id:>5}: {forked.tokenizer.decode(request.output_token_ids)!r}")
    print(f"       its keys and values are those of its own text alone: {apart < 1e-3}")
    assert apart < 1e-3
forked.engine.run()
fork_trace = forked.stop_trace()
copies = [dict(e.data) for e in fork_trace.events if e.kind == "copied"]
print("copied:", ", ".join(f"block {c['src']} to block {c['dst']}" for c in copies))
assert len(copies) == 1 and tables[0][:3] == tables[1][:3] and tables[0][3] != tables[1][3]
reveal("21.5-p5", len(copies))

# %% [markdown]
# This is **copy-on-write**: nothing is copied at the fork. The first of the two that writes into the shared, partly
# filled block gets a private copy of it first; the other is then its only owner and writes in place. Full blocks
# are never written again, so they stay shared to the end.
#
# Here r1.1 came first, though r1 stands first in the list: among requests that go on, the engine serves the one
# whose last step is longest ago. r1 had processed the prompt in the step before; r1.1 had had no step at all.
#
# The rule and the copy, and below them the run as a picture, which opens at the copy. In it r1 is A, r1.1 is B:

# %%
print(inspect.getsource(KVCacheManager._tail_is_shared))
print(inspect.getsource(KVCacheManager._copy_tail))
print(inspect.getsource(copy_blocks))

# %%
block_table(fork_trace, at="Copy-on-write")

# %% [markdown]
# The playground above has this under "Start from" as "fork and copy-on-write".
#
# ## How large should a block be?
#
# The workload from the top again, once for each size. Empty slots are counted in every step, and so are the table
# entries through which the step's queries are led: that is the lookup work of reading.

# %% tags=["claim-21.5-e"]
uses = [
    serve_in_blocks(model, workload, longest, block_size=size, num_slots=12 * 128)
    for size in (1, 2, 4, 8, 16, 32, 64, 128)
]
print("block size  of the slots taken, empty  empty slots per request  entries read  per step")
for use in uses:
    each = use.entries / use.steps
    print(
        f"{use.block_size:>10} {use.empty_share:>26.1%} {use.tail:>24.1f} {use.entries:>13,} {each:>9.0f}"
    )

GREY = "#7a7a7a"  # legible on a light page and on a dark one
coloured = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams.update(dict.fromkeys(coloured, GREY))
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), dpi=80)
sizes = [str(use.block_size) for use in uses]
left.bar(sizes, [100 * use.empty_share for use in uses], color="#e69f00")
left.set(xlabel="block size", ylabel="% of slots taken", title="empty tails")
right.bar(sizes, [use.entries / use.steps for use in uses], color="#0072b2", hatch="//")
right.set(xlabel="block size", ylabel="entries a step", title="table entries read")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
png = io.BytesIO()
figure.savefig(png, transparent=True)
plt.close(figure)  # shown as an image: the notebook would put white behind a transparent figure
words = "empty tails grow with the block size, table entries shrink"
display(Image(png.getvalue(), metadata={"alt": words}))

assert len({use.token_ids for use in uses}) == 1  # the size changes no output
for smaller, larger in pairwise(uses):
    assert smaller.empty_share < larger.empty_share and smaller.entries > larger.entries
assert uses[0].empty_share == 0 and uses[0].entries == uses[0].positions
assert all(use.steps == uses[0].steps for use in uses)

# %% [markdown]
# With one slot a block nothing is ever empty, and the table is as long as the text. Each doubling about halves
# the table, until a block is as long as a text. The empty slots per request, its tail, are about half a block on average, more where a block is as long
# as the texts. What does the longer table cost in time? The next cell finds a cached prompt of 16,384 tokens
# again (one identity for each block has to be computed and looked up; [section 21.4](21_4_prefix.ipynb)), and
# lets one query read as many positions through the table. Blocks lie scattered.

# %% tags=["nbval-ignore-output"]
LONG = 16_384
long_prompt = [token % 900 for token in range(LONG + 1)]


def find_and_read(size):
    """Two functions: find the whole prompt again; read it in one layer."""
    count = LONG // size + 1
    order = random.Random(size).sample(range(count), count)
    scattered = KVCacheManager(BlockPool(order), size)
    _ = scattered.allocate_slots(Request("holder", long_prompt), LONG + 1)

    paged = PagedCache(config, num_blocks=count, block_size=size)
    row = ScheduledRequest("holder", LONG, long_prompt[LONG:], scattered.block_table("holder"), ())
    attention = PagedAttention(paged, torch.float32)
    attention.begin(build_input_batch((row,), size, model.device))
    query, new = (
        torch.ones(1, n, config.head_dim) for n in (config.num_query_heads, config.num_kv_heads)
    )
    return (
        lambda: scattered.get_computed_blocks(Request("new", long_prompt)),
        lambda: attention(0, query, new, new),
    )


jobs = {size: find_and_read(size) for size in (1, 4, 16, 64, 256)}
times = {size: ([], []) for size in jobs}  # milliseconds
for _ in range(9):  # all sizes in turn, so that a busy moment of the machine falls on each
    for size, pair in jobs.items():
        for job, found in zip(pair, times[size], strict=True):
            start = time.perf_counter()
            job()
            found.append(1e3 * (time.perf_counter() - start))

print("milliseconds: median (quickest to slowest of 9)")
print("block size   entries    find the prompt             read in one layer")
for size, pair in times.items():
    shown = (f"{median(ms):>8.2f} ({min(ms):.2f} to {max(ms):.2f})" for ms in pair)
    print("{:>10} {:>9,}   {:<27} {}".format(size, LONG // size + 1, *shown))
assert median(times[1][0]) > 4 * median(times[256][0])

# %% [markdown]
# Finding a prompt costs much less with blocks of 256 than with blocks of 1: fewer identities have to be computed and
# looked up. Of reading, this run claims nothing: the same keys and values have to be moved in any case, and where
# the ranges in brackets overlap, a difference between two medians may be noise. A larger block has one more price.
# Only full blocks are found again, so with blocks of 256 a common beginning of 255 tokens is no hit. Engines choose
# from 1 to 256, and not all alike; the tables of *What production engines offer* have their choices.
#
# ## The formula stays
#
# Paging changes where keys lie and how they are found. It does not make attention cheaper: the new query still
# reads each earlier position. Here are 23 positions of a real text in one rectangle and in scattered blocks of
# three sizes. The operations are counted by torch while attention runs; each key takes two multiplications and
# two additions per query head and number.

# %% tags=["claim-21.5-f"]
from kvlab.measure.costs import count_flops
from kvlab.measure.scattered import rectangle_read, scattered_read

rectangle = ContiguousCache(config)
contiguous_forward(model, torch.tensor([llm.encode(questions[0])[:23]]), rectangle)
shape, generator = (config.num_query_heads, config.head_dim), torch.Generator().manual_seed(0)
query = torch.randn(shape, generator=generator)
for_one_key = 2 * 2 * config.num_query_heads * config.head_dim
in_rectangle = rectangle_read(rectangle, query)

layers = range(config.num_layers)
layouts = {"one rectangle": ("", in_rectangle)}
for size in (1, 4, 16):
    layouts[f"blocks of {size}"] = scattered_read(rectangle, query, size, num_blocks=40, seed=3)
print("layout          block table               keys read   agrees with the rectangle")
for name, (blocks, read) in layouts.items():
    keys_read = [count_flops(lambda n=n, read=read: read(n)) // for_one_key for n in layers]
    apart = max(float((read(n) - in_rectangle(n)).abs().max()) for n in layers)
    shown = blocks if len(blocks) < 8 else f"{len(blocks)} entries"
    print(f"{name:<15} {shown!s:<27} {keys_read[0]:>7}   to 0.0001, all layers: {apart < 1e-4}")
    assert keys_read == [23] * config.num_layers and apart < 1e-4

# %% [markdown]
# The rest of each pool is NaN: a single number read from there would have shown.
#
# ### Watch the kernel
#
# On a GPU this reading is the work of a **kernel**: one function that many **programs** run side by side. The
# package has one, written in Triton; where there is no GPU, Triton's **interpreter** runs its lines one program
# after another, and one can watch. Each program has three ids of its own: its request, its KV head, and its
# **split**, a part of the request's positions. It takes them a **tile** of 16 at a time: in one **turn** of its loop
# it looks up the tile's blocks, reads their slots, and scores what it read. Places of a tile beyond the request's
# end are **masked**: nothing is read for them.
#
# It never holds all scores at once. For each of its query heads it keeps the largest so far, the **running max**,
# and a **running sum** of $2^{\text{score} - \text{max}}$. When a larger score comes, what was summed before is scaled
# down to the new maximum, so a sum can shrink; the tile's own terms are added after that. (In base 2: the scores are
# multiplied by $\log_2 e$ first, and $2^x$ is what the hardware has.) A second kernel puts the splits together. Each
# counts by its sum brought to one maximum for all, $\text{sum} \times 2^{\text{max}}$.
#
# Below, two continuations of one prompt of 26 tokens are in the middle of their work, each with 34 positions
# processed, in a pool that hands out its blocks of four in no order. What no one has written is NaN. The engine makes
# one more step; what its attention gets in layer 1 goes to the kernel too. Before you step through it: how many slots
# will programs of *different* requests both read? And in the last tile, positions 32 to 47, how many places must be
# masked?

# %%
from kvlab.measure.kernel_example import ABOUT, FACTS, LAYER, POSITIONS, STORY, continued
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.watch_engine import watch_request
from kvlab.tensors.watch_kernel import can_watch, recorded_log
from kvlab.widgets import kernel_view

if can_watch():
    begun = llm.encode(tiny.prompt(FACTS, STORY, rules=""))
    assert len(begun) == 26
    pair = continued(model, begun, POSITIONS)
    log, mixed, query = watch_request(pair, ["A", "A.1"], LAYER, about=ABOUT)
else:  # no Triton here, or one that compiles: the same step, recorded on another machine
    log, mixed = recorded_log(), None
kernel_view(log, at="the earlier sum is scaled")

# %% [markdown]
# The view opens at stop 7, where a larger score has come and an earlier sum is scaled down; Home goes to the start.
# Arrow keys left and right go from stop to stop, up and down from program to program. In the grid of programs, 1/2
# says that one turn of two is done. A number in a slot of the pool is the *position* that lies there; the slot's own
# number is in the line below. The code is the kernel's own file, and the marked lines are those that ran.
#
# <details><summary>Answers</summary>
# 24 slots: those of the six full blocks of their common prompt, 7, 2, 9, 5, 17 and 0. Positions 24 and 25 belong to
# the prompt as well, but their block was partly filled, so one request went on in a copy of it: they are in block 14
# for A and in block 3 for A.1. With the new position there are 35, so of places 32 to 47 three are read and 13 are
# masked. One of these is a slot of a block that the request holds; NaN lies there.
# </details>
#
# What was read is noted from the addresses, not from what the kernel means to do. Here it is against the tables:

# %%
read = {}
for request, name in enumerate(log.names):
    blocks, length = log.block_table[request], log.seq_lens[request]
    by_table = [4 * blocks[t // 4] + t % 4 for t in range(length)]
    heads = range(log.num_kv_heads)
    keys, values = (
        [log.slots_read(request, h, what) for h in heads] for what in ("keys", "values")
    )
    read[name], right = set(keys[0]), keys == values == [by_table] * len(heads)
    print(f"{name:<4} {length} positions, blocks {list(blocks)}")
    print(f"     {len(keys[0])} slots read for each KV head, in the table's order: {right}")
    assert right
both, either = read["A"] & read["A.1"], read["A"] | read["A.1"]
print(f"read for both requests: {len(both)} of {len(either)} slots")
assert len(both) == 24
if mixed is not None:
    cache = pair.runner.cache
    caches = (cache.key_cache[LAYER], cache.value_cache[LAYER])
    tables, rows = [list(blocks) for blocks in log.block_table], [1, 1]
    wanted = paged_attention_spec(query, *caches, tables, rows, list(log.seq_lens))
    apart = float((mixed - wanted).abs().max())
    print(f"the formula, in twice the precision, gives the same to 0.0001: {apart < 1e-4}")
    assert apart < 1e-4 and mixed.isfinite().all()

# %% [markdown]
# ## Caution: a block table is not a way to a second memory
#
# **Offloading** moves keys and values to another **tier**, for example from a GPU's memory to the host's, and
# back before they are read. It needs copies, and time for them ([section 21.3](21_3_scheduling.ipynb)). A block
# table alone does nothing of the kind: its entries number blocks of one pool, in one tier. Mistaking one for the
# other means to count on memory that is not there. In a trace the tier on which the model computes is called
# `device`, whatever it is; torch names the hardware, `cpu` on a machine without a GPU.

# %% tags=["claim-21.5-g"]
engine = with_a_and_b()
cache, runner = engine.runner.cache, engine.runner
start, end = cache.key_cache.data_ptr(), cache.key_cache.data_ptr() + cache.key_cache.nbytes
print("request   block   keys of layer 0 begin at        tier in the trace")
state = engine.stop_trace().last_state()
for name in "AB":
    for block in table(engine, name):
        here = cache.key_cache[0, block]
        tier = state["blocks"][str(block)]["tier"]
        offset = here.data_ptr() - start
        print(f"{name:>7} {block:>7}   pool + {offset:>6,} bytes on {here.device.type:<6}   {tier}")
        assert start <= here.data_ptr() < end and here.device == cache.key_cache.device

messages, execute = [], runner.execute
runner.execute = lambda output: messages.append(output) or execute(output)
engine.finish("B", FinishReason.STOP)
engine.run()
runner.execute = execute
transfers = sum(len(m.blocks_to_load) + len(m.blocks_to_store) for m in messages)
print(f"{len(messages)} more steps of A: {transfers} blocks loaded from or stored to another tier")
tiers = {
    b["tier"] for t in (trace, fork_trace) for f in t.frames() for b in f.state["blocks"].values()
}
print("tiers in the two traces above:", *tiers)
assert len(messages) == 7 and transfers == 0 and tiers == {"device"}

try:
    runner.execute(SchedulerOutput(99, (), blocks_to_load=(BlockCopy(0, 7),)))
except RuntimeError as error:
    print(f"asked to load a block from elsewhere:\n  {error}")
else:
    raise AssertionError("a block was loaded from a tier that is not there")

# %% [markdown]
# ## Kernels and number formats change the scores
#
# Paging leaves the formula as it is. Two things beside it do change scores. Each kernel adds the same products in
# an order of its own, and each sum is rounded. And a cache may keep keys and values in fewer bits than the model
# computes with:
#
# - fp16, 16 bits, 10 of them for digits; **bf16**, as many bits, but 7 for digits and more for the exponent;
#   **fp8**, 8 bits, 3 for digits;
# - **int8**, whole numbers up to 127. Each vector (a key or a value of one head at one position) has a **scale** of
#   4 bytes, by which they are multiplied;
# - **q4_0** (llama.cpp's), 4 bits, with a scale of 2 bytes for every 32 numbers.
#
# An engine takes the format by name, as in `LLM("tiny", cache_dtype="int8")`; whatever is written
# is rounded to it, and attention computes with what it stands for. A position of this model is 512 numbers: in each of
# 4 layers and for each of 2 KV heads, a key and a value of 32.
#
# The next cell lets a real engine begin a story, twelve outputs, once for each format. The **reference** computes
# everything in float64, attention by its formula alone. An error is a logit's distance from the reference's. *rms
# error* is the root of their mean square, over all outputs and the whole vocabulary; the table gives bounds on it and on
# the *largest* error. All runs are led along the reference's text, so that they compare the same positions. Where
# another token would have been selected, the run is repeated and goes its own way (*changed*; outputs count from 0).

# %%
predict("21.5-p6", None)

# %% tags=["claim-21.5-h"]
from kvlab.measure.score_errors import changed_outputs, score_errors

tale = llm.encode(tiny.prompt("", "Tell me a story about Ivan and a green saddle.", rules=""))
scored = score_errors(model, tale, outputs=12)
print(scored.table(word))

FORMATS = ("fp32", "fp16", "bf16", "int8", "fp8", "q4_0")
stored_as = {name: scored["torch", name] for name in FORMATS}
changed = [n for n in FORMATS if stored_as[n].token_ids != scored.token_ids]
at = stored_as["q4_0"].changed_at(scored.token_ids)
print(f"\nreference: {llm.tokenizer.decode(scored.token_ids)}")
print(f"in 4 bits: {llm.tokenizer.decode(stored_as['q4_0'].token_ids)}")
print(f"The reference's token leads by {scored.leads[at]:.1f} at output {at}, by", end=" ")
print(f"{scored.leads[at + 1]:.0f} at the next.")

for finer, coarser in pairwise(FORMATS):
    assert stored_as[coarser].rms_error > 2 * stored_as[finer].rms_error
assert [way.bytes_per_position for way in stored_as.values()] == [2048, 1024, 1024, 576, 512, 288]
assert stored_as["fp32"].max_error < 1e-4 and changed == ["q4_0"] and at == 9
if not scored.notice:  # Triton is here
    assert scored["kernel", "fp32"].max_error < 1e-4
    assert scored["kernel", "fp32"].token_ids == scored.token_ids
reveal("21.5-p6", len(changed))

# %% [markdown]
# In fp32 the kernel and torch differ from the reference in float32's last bits alone. Beyond that, every format that saves
# bytes costs accuracy. At equal bytes fp16 errs less than bf16: it has three more bits of digits. int8 is nearer than
# fp8 for an eighth more bytes: its scale fits each vector, so all its bits are digits. One changed token changes the
# text after it, too.
#
# An error alone does not say whether a token changes: it has to overturn the lead of the token that would have won,
# and 0.1 is little. So here is a count of prompts whose outputs are not those over fp32: of some whose answer stands in
# their notes, and of beginnings of stories, where many a word would do.

# %% tags=["nbval-ignore-output"]
from kvlab.tiny import word_lists

draw, tell = random.Random(1), "Tell me a story about {} and a {} {}."
lists = word_lists.NAMES, word_lists.COLOURS, word_lists.THINGS
tales = [tell.format(*(draw.choice(words) for words in lists)) for _ in range(40)]
several = {
    "answers from notes": [case.prompt for case in cases(12, 8, seed=11)],
    "beginnings of stories": [tiny.prompt("", tale, rules="") for tale in tales],
}
print(f"{'changed by the format':<28}" + "".join(f"{name:>7}" for name in FORMATS[1:]))
counts = {}
for what, prompts in several.items():
    counts[what] = changed_outputs(model, [llm.encode(p) for p in prompts], outputs=12)
    line = "".join(f"{len(counts[what][name]):>7}" for name in FORMATS[1:])
    print(f"{what:<22} of {len(prompts)} {line}")
assert not any(counts["answers from notes"].values())
stories_changed = counts["beginnings of stories"]
assert len(stories_changed["q4_0"]) > len(stories_changed["bf16"])

# %% [markdown]
# No format changed an answer that the notes decide: there the right token leads by several logits. Which of a
# story's words nearly tie is this model's affair, so the second line is no order of the formats: a format with smaller
# errors may change more stories than one with larger. A model that is to be served has to be tested with its own work.
#
# **Caution: codes without their scales are no numbers.** The scales are a part of the state. A copy of a block, to
# another block or tier, has to take them along, and a block written in one format must not be found by an engine
# with another (the format is part of a block's identity). Below, the scales stay behind after the prompt: each
# becomes the same number.

# %%
eight = LLM(model, tokenizer="tiny", cache_dtype="int8", block_size=4, num_blocks=64)
print(f"key_cache {list(eight.cache.key_cache.shape)} {eight.cache.key_cache.dtype},", end=" ")
print(f"key_scale {list(eight.cache.key_scale.shape)} {eight.cache.key_scale.dtype}")
told_by = {}
for what in ("with its scales", "codes alone"):
    ids = eight.encode(tiny.prompt(facts, asked[0], rules=""))
    (request,) = eight.engine.add_request(ids, SamplingParams(max_tokens=8))
    eight.step()  # the prompt
    if what == "codes alone":
        for scale in (eight.cache.key_scale, eight.cache.value_scale):
            scale.fill_(1 / 127)
    eight.engine.run()
    told_by[what] = eight.tokenizer.decode(request.output_token_ids).strip()
    print(f"{what:>16}: {told_by[what]!r}")
assert told_by["with its scales"] == "Ada likes soup." != told_by["codes alone"]

# %% [markdown]
# ## Break it
#
# Three bugs that such an allocator can have, put in for real. Each leaves the counts in order: the two sums of
# "What holds after every step" do not see it.
#
# **The pool frees front to back.** A table's blocks are given back in logical order, not deepest first. They are
# evicted in that order too, and a chain of identities is followed from its beginning.
#
# **A shared, partly filled block is written without a copy.** Two requests ask different questions over the same
# notes, as a fork in the middle of a block.
#
# **The slot is one too far.** What is written for position $t$ goes to the next slot; reading goes by the table.


# %%
class FrontToBack(BlockPool):
    def free_blocks(self, ordered_blocks):
        return super().free_blocks(reversed(list(ordered_blocks)))


class NoCopy(KVCacheManager):
    def _tail_is_shared(self, request):
        return False


class NextSlot(PagedCache):
    def write(self, layer, key, value, slot_mapping):
        slots = self.num_blocks * self.block_size
        super().write(layer, key, value, (slot_mapping + 1) % slots)


def hits_of_the_second(pool):
    """A, then a stranger that needs two blocks, then A again: positions found."""
    engine = empty_engine(retain_freed=True, pool=pool)
    for text in (facts, "Mia is sad. Mia is sad.", facts):
        (request,) = engine.add_request(llm.encode(text), SamplingParams(max_tokens=1))
        engine.run()
        engine.scheduler.check_invariants()
    return f"{request.num_cached_tokens} of {request.num_prompt_tokens} positions found again"


def two_questions(manager_class=KVCacheManager, cache_class=PagedCache):
    """The second request is a fork of the first, made where their texts part."""
    ids = [llm.encode(tiny.prompt(facts, question, rules="")) for question in asked[:2]]
    common = next(i for i, (a, b) in enumerate(zip(*ids, strict=False)) if a != b)
    cache = cache_class(config, num_blocks=32, block_size=4)
    manager = manager_class(BlockPool(32), block_size=4)
    scheduler = Scheduler(manager, SchedulerConfig(max_num_batched_tokens=common))
    engine = LLMEngine(scheduler, ModelRunner(model, cache), eos_token_ids=config.eos_token_ids)
    (first,) = engine.add_request(ids[0], SamplingParams(max_tokens=8), request_id="first")
    engine.step()  # the common part alone: the step's budget ends there
    scheduler.config = SchedulerConfig()
    ends = config.eos_token_ids
    second = Request("second", ids[1], SamplingParams(max_tokens=8), eos_token_ids=ends)
    manager.fork(first, second)
    second.status = RequestStatus.RUNNING
    scheduler.running.append(second)
    engine.requests["second"] = second
    engine.run()
    scheduler.check_invariants()
    return [llm.tokenizer.decode(r.output_token_ids).strip() for r in (first, second)]


for pool in (BlockPool, FrontToBack):
    print(f"{pool.__name__:>16}: {hits_of_the_second(pool)}")
print()
for manager_class, cache_class in (
    (KVCacheManager, PagedCache),
    (NoCopy, PagedCache),
    (KVCacheManager, NextSlot),
):
    name = f"{manager_class.__name__}, {cache_class.__name__}"
    print(f"{name:>26}: {two_questions(manager_class, cache_class)}")
right = two_questions()
assert right == ["Ada likes soup.", "The key is red."]
assert two_questions(NoCopy) != right != two_questions(cache_class=NextSlot)
assert hits_of_the_second(BlockPool) != hits_of_the_second(FrontToBack)

# %% [markdown]
# The first bug gives right answers and wastes memory: two blocks still held what was looked for, and the block
# before them was gone. The second changes the answer of the request *beside* it. The third spoils everything. So
# a test of this part has to look at hits, at answers beside each other, and at numbers, not at counts alone. Two
# of these bugs come back below, where you write the check that finds them.
#
# ## What production engines offer
#
# The mechanism is the same everywhere: a pool in units, tables, and a way to find a prefix again. Names, options
# and defaults are each engine's own, and change from version to version. The historical example is vLLM 0.10.2,
# which documents `--enable-prefix-caching`; in its V1 engine that is on already, and `--no-enable-prefix-caching`
# turns it off. Each line was read in the version that it names, where the list below its table says. A cell
# is the engine's own word, the option (where there is one), and in brackets its default. Of several options the
# defaults stand in the same order.

# %%
from IPython.display import Markdown

from kvlab.measure import engine_options


def options_for(*mechanisms):
    """A table of some mechanisms, and where its lines were looked up, engine after engine."""
    places = {}
    for row in engine_options.ROWS:
        if row.mechanism in mechanisms:
            places.setdefault(f"{row.engine} ({row.version})", {})[f"`{row.source}`"] = None
    found = "; ".join(f"{engine}: {', '.join(files)}" for engine, files in places.items())
    return Markdown(f"{engine_options.markdown(mechanisms)}\n\nLooked up in: {found}.")


options_for(engine_options.UNIT, engine_options.POOL)

# %%
options_for(engine_options.PREFIX, engine_options.FORMAT)

# %%
options_for(engine_options.TIER, engine_options.TOLD)

# %% [markdown]
# (With units of 1 token a table has an entry for each position. llama.cpp has no blocks. A **slot** of its server is
# a place for one request at a time; a new prompt goes to one whose last prompt begins alike, and only what differs
# is computed.)
#
# ### The same workload on several of them
#
# Twelve requests share notes of 400 tokens, and each asks for another story. The first arrives alone, the other
# eleven together when it is done. The next cell gives them to kvlab and, with the same weights, to transformers:
# to `generate`, and to its continuous batching with pages of 16. (Its default, pages of 256, would find 256 of the
# 400.)
#
# Do you have a server with OpenAI's API, from any of these engines? Put its address in place of `None`, or start
# JupyterLab with `KVLAB_ENGINE_URL` set to it. It gets the same texts, and has its own model. Some that start one:
# `kvlab serve`, `transformers serve MODEL --continuous-batching`, `vllm serve MODEL`, `python -m
# sglang.launch_server --model-path MODEL --enable-cache-report`, `trtllm-serve MODEL`, `llama-server -m FILE`.

# %% tags=["nbval-ignore-output"]
from kvlab.measure.production import production_rows, production_table

ENGINE_URL = None  # such as "http://127.0.0.1:8000"
measured = production_rows(ENGINE_URL)
print(production_table(measured))

# %% [markdown]
# *found*: prompt tokens that were in the engine's cache. *processed*: positions that went through its model, counted
# by a hook at its embedding; a server is asked over HTTP, and there nobody counts. *as kvlab*: requests whose
# outputs are the same tokens. Both engines with a pool
# find the notes eleven times. `generate` keeps nothing between calls, so it computes everything. What the saved work
# is worth in time depends on the model: this one is so small that a step's fixed costs are a large part of it.

# %% tags=["claim-21.5-i"]
historical = {row.mechanism: row for row in engine_options.rows("vLLM", "0.10.2")}
switch = historical[engine_options.PREFIX]
print(f"vLLM {switch.version}: {switch.option} ({switch.default})")
assert switch.option.startswith("--enable-prefix-caching")
assert switch.source == "vllm/engine/arg_utils.py"

defaults = inspect.signature(LLM).parameters
for row in engine_options.rows("kvlab"):
    if row.default in ("16", "True"):
        print(f"kvlab: {row.option} is {defaults[row.option].default}, as in the table")
        assert str(defaults[row.option].default) == row.default

here, *others = measured[:3]  # a fourth is the reader's server
prompts = here.ran.num_prompt_tokens
found_again, computed = here.ran.num_found, here.ran.num_processed
decoded = here.ran.num_output_tokens - 12  # each one's last output is never processed
print(f"\nkvlab found {found_again} of {prompts} prompt tokens: 11 requests x 25 blocks x 16")
print(f"through its model went {computed}: the rest of the prompts, and {decoded} outputs")
assert found_again == 11 * 25 * 16 and computed == prompts - found_again + decoded
for row in others:
    if row.ran is None:
        print(f"{row.engine}: {row.note}")
        continue
    print(
        f"{row.engine}: {row.ran.num_found} found, {row.equal} of 12 answers equal, token by token"
    )
    assert row.equal == 12
    assert row.ran.num_found == (0 if row.engine.endswith("generate") else found_again)

# %% [markdown]
# ## How others name it
#
# What four engines call these things, beside the sizes and switches above. The first row says where and in which
# version this was looked up; it is not always the version above. A **radix tree** holds token sequences as paths from
# its root; those that begin alike share the beginning of their path. A **digest** is what a hash function makes of a
# block: a fingerprint of fixed length.
#
# | | here | vLLM | SGLang | TensorRT-LLM | transformers |
# |---|---|---|---|---|---|
# | looked at | this package | behaviour: 0.33.0, recorded | source: commit 006b0e3; options: commit 004813e | documentation: 1.4.0rc4 | source: 5.24.0 |
# | from logical to physical | block table | block table; `slot_mapping` for writes | `req_to_token`: a slot for each token | block lists of one pool per kind of layer | block table per kind of attention |
# | what is found again | full blocks, by a chain of hashes; contents are compared | full blocks, by a chain of hashes; the hash decides | longest common prefix in a radix tree of tokens, in whole pages | filled blocks in a radix tree, by digest | full blocks, by a chain of hashes; equal blocks are merged afterwards |
# | what is given up first | without an identity first, then least recently freed, deepest of a chain first | without an identity first, then least recently freed, deepest of a chain first | leaves that nobody holds, least recently used (`--radix-eviction-policy`) | leaves of lowest priority, then least recently used | all unreferenced ones, when memory is short |
# | a partly filled block | shared by a fork, copied at the first write | not found by others | no such thing with pages of 1 | may be reused, copied first (`copy_on_partial_reuse`) | copied at the fork |
#
# Sources. vLLM: recorded steps that kvlab's manager answers alike (`tests/replay_oracle.py`), and
# `docs/design/prefix_caching.md` of vllm-project/vllm. SGLang: `mem_cache/radix_cache.py` and
# `docs/advanced_features/server_arguments.md` of sgl-project/sglang. TensorRT-LLM: "KV Cache System" and
# `KvCacheConfig`. transformers: `ContinuousBatchingConfig` and `generation/continuous_batching`; its `generate`
# keeps one contiguous cache instead. The rule of copy-on-write is in Kwon et al. 2023 (arXiv 2309.06180), section 4.4.
#
# ## Summary
#
# - A request's positions are logical; a block table leads to physical blocks. Position $t$ is in entry $\lfloor
#   t/s \rfloor$, slot $t \bmod s$, for blocks of $s$ slots.
# - A block is taken when a position is about to be processed that needs it, not when a token is selected.
# - A reference count says how many tables hold a block. At 0 it is free at once, or evictable: findable until it is
#   taken.
# - Full blocks are shared and never written again. A shared, partly filled one is copied before the first write.
# - Small blocks waste less and need longer tables. Neither changes what attention computes, nor how many keys it
#   reads.
# - A block table spans one tier. Moving blocks to another is a different mechanism.
# - Another kernel changes the last bits of a score, a cache in fewer bits more of them; a token changes where its lead
#   was small enough.
#
# **Check yourself.** (1) Blocks of four, table [7, 2, 5]: where is position 10? (2) A request of 8 positions
# ends; its first block has count 2. How many of its two blocks become free? (3) Three continuations of a prompt
# of 8 tokens, blocks of four: how many blocks are copied when each goes on? (4) Blocks of 8, a request of 21
# positions: how many slots are its tail? (5) All counts add up. Is the allocator right?
#
# <details><summary>Answers</summary>
# (1) Entry 2 is block 5, slot 2. (2) One; the other is still held by somebody. (3) None: both blocks are full,
# and each continuation takes a block of its own. (4) 3 blocks are 24 slots; 3. (5) Not for sure: none of the
# three bugs above changes a count.
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.5-1")` gives the first of three hints,
# `hint("21.5-1", 2)` the second; `solution("21.5-1")` shows a worked solution. What is right is computed by the
# allocator when you ask.

# %%
check({"21.5-1": None, "21.5-2": None, "21.5-7": None})


# %%
def append(table, num_computed, free, block_size):
    """(block, slot) of the next position; None, with nothing changed, if a block is missing.

    table: the request's blocks. num_computed: positions processed so far.
    free: blocks that can be taken, the next one first. Change table and free in place.
    """
    ...


check("21.5-3", append)


# %%
def append_shared(table, num_computed, free, ref_cnt, block_size):
    """(block, slot, source), always three: source is the block to copy from first, or None.

    ref_cnt[block_id]: how many tables hold the block. Refused: None, with nothing changed.
    """
    ...


check("21.5-4", append_shared)

# %% [markdown]
# **Find the bug.** Write the check that tells a right allocator from a wrong one. It gets a class and may do with
# it what the lines below do; it returns True for the real allocator and False for every wrong one. All wrong ones
# are named, and one of each exercise is printed. Its slots hold token ids in place of keys and values.
#
# `hits(tokens)` is how many positions of a prompt a lookup finds. This allocator keeps no logits, so the last position
# of a prompt is left to be computed: of two cached blocks a prompt of exactly their 8 tokens finds one, and a prompt
# that is one token longer finds both.

# %%
from kvlab.exercises import errors_21_5
from kvlab.exercises.allocator import Allocator

a = Allocator([7, 2, 9, 5], block_size=4)
a.admit("A", range(6))
a.append("A", 60)
a.fork("A", "B")
a.finish("A")
print("table", a.table("B"), "  free", a.free, "  hits", a.hits(range(6)), "  reads", a.read("B"))
a.admit("C", range(8))
print("hits of 8 cached tokens:", a.hits(range(8)), "  of these and one more:", a.hits(range(9)))
assert (a.hits(range(8)), a.hits(range(9))) == (4, 8)
for number, kinds in ((5, errors_21_5.EVICTING), (6, errors_21_5.FORKING)):
    print(f"\nExercise {number}, wrong:")
    print("\n".join(f"  {kind.__name__:<18} {kind.__doc__}" for kind in kinds[1:]))
print()
print(inspect.getsource(errors_21_5.FrontToBack))
print(inspect.getsource(errors_21_5.NoCopy))


# %%
def eviction_is_right(Allocator):
    """True if no cached block can lose the block before it."""
    ...


check("21.5-5", eviction_is_right)


# %%
def fork_is_right(Allocator):
    """True if two requests that share a partly filled block never see each other's tokens."""
    ...


check("21.5-6", fork_is_right)

# %%
for engine_of in (llm, busy, forked):
    pool = engine_of.engine.scheduler.manager.pool
    assert engine_of.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
assert engine.scheduler.manager.pool.num_free_blocks == 4 and engine.requests == {}
print("nothing leaked: no request is left, every block is free")
