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
# # 21.7 Checkpoint: four questions
#
# **Four questions about the whole chapter, and twelve beliefs that many people hold. You answer first; then the engine does.**
#
# 45 minutes, of them 22 for the exercises · any laptop, no GPU, no network
#
# This page goes the other way round. What answers a question is folded away until you run its cell. Go down with
# <kbd>Shift</kbd>+<kbd>Enter</kbd>. A cell with `predict` asks its questions when it is run as it is; write your answers in place of
# `None`, and run it again. The next cells run the engine and hold your answers against what it does. Their code checks its own results,
# so do not read ahead. Nothing breaks if you leave a question out, or choose **Run ▸ Run All Cells**, which takes about ten seconds.
# (If you see answers all the same, choose **Edit ▸ Clear Outputs of All Cells**, and run each cell with `predict` or `check` once as it
# is: it asks again.)
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. In each layer every position gets a
# **key** and a **value**, which later positions read; they are kept in the **KV cache**. To read, a position makes a **query**,
# **scores** it against the keys, and mixes the values by the scores. The cache lies in **blocks** of a few positions each, taken from one
# **pool**; a request's **block table** names its blocks in the order of its text. A **pass** is one run of the model over new
# tokens: the first over the prompt, each later one over the token selected last. It ends in **logits**, scores of all tokens, from
# which the next token is **selected**: it is an **output**. An **engine** serves many requests in **steps**, each of which is one pass for all that take part.
#
# Where the run gives another answer than you, the box says why; what the tables show is folded away under each run. These sections say more:
# [21.1](21_1_reuse.ipynb) keys, values and heads, [21.2](21_2_latency.ipynb) latencies, [21.3](21_3_scheduling.ipynb) scheduling,
# [21.4](21_4_prefix.ipynb) prefixes, [21.5](21_5_paging.ipynb) blocks, [21.6](21_6_growth.ipynb) growth.
#
# After this section you can
#
# - answer the chapter's four questions, and show a run for each answer;
# - name the belief behind a wrong answer, and what the engine does in its place.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import copy
import statistics

import torch

from kvlab import LLM, Decoder, KVCacheManager, PrefixCachePolicy, Request, SamplingParams, tiny
from kvlab.core.request import FinishReason
from kvlab.core.simulator import VirtualClock
from kvlab.exercises import check, hint, predict, reveal, score, solution
from kvlab.exercises.shapes import config_of
from kvlab.measure.costs import count_flops
from kvlab.tensors.identity import configuration_of
from kvlab.widgets import block_table

_ = torch.set_num_threads(1)  # one thread: the model is small

shipped = LLM("tiny", block_size=4, num_blocks=16)  # 0.9 million parameters, with its tokenizer
model, encode, word = shipped.model, shipped.encode, shipped.tokenizer.token_text
pools = []  # of this page; the last cell looks whether a block is missing


def new_engine(**settings):
    """An engine of its own over the shipped model: 64 blocks of four positions."""
    llm = LLM(model, **{"tokenizer": "tiny", "block_size": 4, "num_blocks": 64, **settings})
    pools.append(llm.engine.scheduler.manager.pool)
    return llm


def exactly(count, **more):
    """`count` outputs, whatever they are; each the token of the largest score."""
    return SamplingParams(max_tokens=count, ignore_eos=True, **more)


# %% [markdown]
# ## The chapter's four questions
#
# Three words more. **TPOT**, the time per output token, is taken from the outputs of one request: the time from its first to its last
# one, divided by the number of intervals between them. A block has an **identity** by which a later prompt can find it and **reuse**
# its keys and values.

# %%
predict({"21.7-p1": None, "21.7-p2": None, "21.7-p3": None, "21.7-p4": None})

# %% [markdown]
# ### Five tokens and one output
#
# The cache below is filled with NaN ("not a number") first. So whatever has been stored shows: it is a number.

# %% tags=["claim-21.7-a"]
five = encode("Ada likes soup. The")
one = new_engine(enable_prefix_caching=False)
for tensor in (one.cache.key_cache, one.cache.value_cache):  # [layers, blocks, slots, heads, width]
    tensor.fill_(float("nan"))
(request,) = one.engine.add_request(five, exactly(3), request_id="five")


def positions_stored():
    """Positions whose keys and values are numbers in every layer and head."""
    both = torch.cat((one.cache.key_cache, one.cache.value_cache), dim=-1)
    return int(both.isfinite().all(-1).all(-1).all(0).sum())


print("passes   tokens of the text   positions in the cache")
rows = []
while not request.is_finished:
    one.engine.step()
    rows.append((request.num_tokens, positions_stored()))
    print(f"{len(rows):>6} {rows[-1][0]:>20} {rows[-1][1]:>24}")
tokens, cached = rows[0]
assert len(five) == cached == 5 and tokens == 6
assert rows == [(6, 5), (7, 6), (8, 7)]
reveal("21.7-p1", cached)

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# The first line is the moment that was asked for. The output has been selected and stands in the text; its keys and values come with the
# second pass, which reads it. The text stays one token ahead to the end.
#
# </details>
#
# ### Forty tokens in 200 ms
#
# The shipped model computes every step here. Only the clock is ours: it moves on by what we say a step lasts, so that the numbers are
# the same on every machine.


# %% tags=["claim-21.7-b"]
def served_on_a_clock(num_requests, outputs, step_ms):
    """The times of requests that are all there at 0."""
    clock = VirtualClock()
    llm = new_engine(clock=clock)
    llm.runner.on_logits = lambda rows: clock.advance(step_ms / 1000)
    prompts = [encode(f"{name} likes soup.") for name in ("Ada", "Tom", "Mia", "Carl")]
    found = llm.generate(prompts[:num_requests], exactly(outputs))
    return [out.outputs[0].times for out in found]


print("requests   outputs each   a step   rate of the batch   TPOT of each request")
tpots, rates = [], []
for num_requests, outputs, step_ms in ((4, 10, 20), (2, 20, 10), (1, 40, 5)):
    times = served_on_a_clock(num_requests, outputs, step_ms)
    lasted = max(t.finished for t in times) - min(t.arrival for t in times)
    rates.append(round(sum(t.num_output_tokens for t in times) / lasted, 6))
    (tpot,) = {round(1000 * t.tpot, 6) for t in times}
    tpots.append(tpot)
    shown = f"{step_ms} ms", f"{rates[-1]:.0f} tokens/s", f"{tpot:.0f} ms"
    print("{:>8} {:>14} {:>8} {:>19} {:>22}".format(num_requests, outputs, *shown))
assert rates == [200, 200, 200] and tpots == [20, 10, 5]
reveal("21.7-p2", all(tpot == 5 for tpot in tpots))

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# Three workloads, each of 40 tokens in 200 ms: one rate, three TPOTs. The rate says how much the engine gives, and nothing about how long
# one reader waits for the next token.
#
# </details>
#
# ### Another third block
#
# Three sentences of four tokens each fill three blocks, positions 0 to 3, 4 to 7 and 8 to 11; one token more begins a fourth. The first
# table says where each text differs first, and which blocks of the original it finds. Its last line is yours: change `MINE` and run the
# cell again. The second table takes the third edit, and changes something else besides: the model; the **adapter**, a small change of the
# weights for one group of requests; the positions; or the **settings**, here the format in which keys and values are stored.

# %% tags=["claim-21.7-c"]
FIRST = "Ada likes soup. Tom plays chess. Mia likes plums. The"
MINE = "Ada likes soup. Tom plays chess. Mia likes plums. Tom likes soup."
EDITS = {
    "block 3": "Ada likes soup. Tom plays chess. Mia plays chess. The",
    "block 2": "Ada likes soup. Tom likes plums. Mia likes plums. The",
    "block 1": "Tom likes soup. Tom plays chess. Mia likes plums. The",
    "mine": MINE,
}
if not encode(MINE):
    raise ValueError(f"MINE is {MINE!r}, which has no tokens; write a sentence")


def first_other(known, ids):
    """The first position whose token differs; None where none does."""
    pairs = enumerate(zip(known, ids, strict=False))
    return next((position for position, (one, other) in pairs if one != other), None)


print("changed in   first other position   blocks reused")
reusable = {}
for name, text in EDITS.items():
    ids, fresh = encode(text), new_engine()
    first, edited = (fresh.generate(t, exactly(4))[0] for t in (encode(FIRST), ids))
    known = [*encode(FIRST), *first.outputs[0].token_ids[:-1]]  # what the first one left
    at, most = first_other(known, ids), min(len(known), len(ids) - 1)  # one is always computed
    reusable[name] = edited.num_cached_tokens // 4
    shown = "none" if at is None else at
    print(f"{name:<12} {shown:>20}   {list(range(1, reusable[name] + 1))}")
    (alone,) = new_engine(enable_prefix_caching=False).generate(ids, exactly(4))
    assert edited.outputs[0].token_ids == alone.outputs[0].token_ids  # reuse changes no answer
    assert reusable[name] == (most if at is None else at) // 4

# The same third edit, looked up where something else than a token is not the same.
filled = new_engine()
_ = filled.generate(encode(FIRST), exactly(1))
pool, ids = filled.engine.scheduler.manager.pool, encode(EDITS["block 3"])
as_it_is = configuration_of(model, filled.cache)
other_model = copy.deepcopy(model)
with torch.no_grad():
    next(other_model.parameters())[0, 0] += 0.001  # one weight of all
fp16 = new_engine(cache_dtype="fp16")


def found(configuration=as_it_is, token_ids=ids, **extras):
    """Blocks of the first prompt that this prompt finds under this configuration."""
    manager = KVCacheManager(pool, 4, configuration=configuration)
    return manager.get_computed_blocks(Request("lookup", token_ids, **extras))[1] // 4


under = {
    "everything": found(),
    "all but the model": found(configuration_of(other_model, filled.cache)),
    "all but the adapter": found(adapter="another one"),
    "all but the positions": found(token_ids=[encode(" The")[0], *ids]),
    "all but the settings": found(configuration_of(model, fp16.cache)),
}
print("\nwhat is the same       blocks found, with block 3 changed")
for name, blocks in under.items():
    print(f"{name:<22} {blocks}")
assert list(under.values()) == [2, 0, 0, 0, 0] and reusable["block 3"] == 2
reveal("21.7-p3", reusable["block 3"])

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# Blocks 1 and 2 stay valid where model, adapter, positions and settings are the same. The settings that were changed here: keys and
# values stored in half precision. The positions: one token in front moves every other. A change in block 1 or 2 makes that block and
# all later ones useless, since those were computed from it. (Where nothing differs, the first position that does is "none"; the last
# position of a prompt is computed all the same.)
#
# </details>
#
# ### The end of a request
#
# A and B begin alike and share one block. The cell ends A, then B, and lets another prompt take the whole pool; each time it looks at
# the shared block. Each table that names a block is a **reference** to it. Whether the identity of a free block is kept is a policy:
# **retain** it, or **release** it at once.


# %% tags=["claim-21.7-d"]
def life_of_a_shared_block(retain_freed):
    """[(what has happened, tables that name the block, free?, findable?)], and the trace"""
    llm = new_engine(num_blocks=6, prefix_cache_policy=PrefixCachePolicy(retain_freed=retain_freed))
    engine, manager = llm.engine, llm.engine.scheduler.manager
    llm.start_trace()
    for name, text in (("A", "Ada likes soup. The"), ("B", "Ada likes soup. Tom")):
        engine.add_request(encode(text), exactly(8), request_id=name)
        engine.step()
    (shared,) = {manager.block_table("A")[0], manager.block_table("B")[0]}
    block, seen = manager.pool.blocks[shared], []
    identity = block.block_hash

    def look(event):
        is_free = shared in manager.pool.free_block_ids
        findable = manager.pool.get_cached_block(identity) is block
        seen.append((event, block.ref_cnt, is_free, findable))

    look("A and B are running")
    for name in "AB":
        engine.finish(name, FinishReason.STOP)
        look(f"{name} has ended")
    engine.add_request(encode("Mia is in the garden. " * 4)[:23], exactly(2), request_id="C")
    engine.step()
    look("C has taken the pool")
    trace = llm.stop_trace()
    engine.finish("C", FinishReason.STOP)
    return seen, trace


print("policy    event                  in tables   state of the block")
lives = {}
for retain_freed, policy in ((True, "retain"), (False, "release")):
    lives[policy], shared_trace = life_of_a_shared_block(retain_freed)
    for event, ref_cnt, is_free, findable in lives[policy]:
        left = "free, retained as evictable" if findable else "free"
        state = left if is_free else "in use" if event[0] != "C" else "in use by C"
        gone = "" if findable else ", its identity is gone"
        print(f"{policy:<9} {event:<22} {ref_cnt:>9}   {state}{gone}")
assert [row[1:] for row in lives["retain"]][:3] == [(2, 0, 1), (1, 0, 1), (0, 1, 1)]
assert [row[1:] for row in lives["release"]][:3] == [(2, 0, 1), (1, 0, 1), (0, 1, 0)]
assert not lives["retain"][3][3]  # taken, so nobody finds it any more
after_a, after_b = lives["retain"][1], lives["retain"][2]
reveal("21.7-p4", "a" if after_a[2] else "b" if after_b[2] else "c")

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# After the last reference nothing stands in the way. With *retain* the block waits at the end of the queue of free blocks and is found if the
# same beginning comes again; whoever needs a block may take it all the same. With *release* its identity goes at once.
#
# </details>
#
# The same run under *release*, step by step, in the engine's own record. Use the buttons or the arrow keys. The view counts a request's
# blocks, its **logical** blocks, from 0, as the engine does: what was called block 1 above is logical block 0.

# %%
block_table(shared_trace)

# %% [markdown]
# ## Twelve beliefs
#
# They come in pairs. Again: answer, run, and see.
#
# ### What a decode pass computes
#
# A pass that reads one token selected before is a **decode** pass. A model may have fewer heads that store keys and values (**KV heads**) than
# **query heads**: several query heads then read the same keys and values. That is **GQA**, grouped-query attention.

# %%
predict({"21.7-p5": None, "21.7-p6": None})


# %%
def decode_step(decoder, length):
    """(bytes that a position takes, operations of one decode step after `length` positions)"""
    llm = LLM(decoder, block_size=16, num_blocks=32)
    pools.append(llm.engine.scheduler.manager.pool)
    llm.engine.add_request([1 + t % 7 for t in range(length)], exactly(2))
    llm.engine.step()
    return llm.cache.bytes_per_position, count_flops(llm.engine.step)


decoders = {  # the second and the third have random weights: only their shape matters
    "shipped, 2 of 4": model,
    "random, 8 of 8": Decoder.random(config_of(layers=2, query_heads=8, kv_heads=8, head_dim=4)),
    "random, 2 of 8": Decoder.random(config_of(layers=2, query_heads=8, kv_heads=2, head_dim=4)),
}
print("model: KV heads   bytes of a  operations of a pass  more, for each    attention to one")
print("of query heads      position  64 cached 320 cached  of 256 positions  by the formula")
nbytes, each, formula = {}, {}, {}
for name, decoder in decoders.items():
    (nbytes[name], short), (_, long) = (decode_step(decoder, length) for length in (64, 320))
    each[name], c = (long - short) / (320 - 64), decoder.config
    # scores and mixing: a multiplication and an addition each, for every query head and its width
    formula[name] = c.num_layers * c.num_query_heads * c.head_dim * 2 * 2
    row = name, nbytes[name], short, long, each[name], formula[name]
    print("{:<17} {:>10,} {:>10,} {:>10,} {:>17,.0f} {:>17,}".format(*row))
    if decoder is model:
        grows = "b" if long == short else "c" if each[name] == formula[name] else "a"
assert each == formula and nbytes["random, 2 of 8"] * 4 == nbytes["random, 8 of 8"]
share = {1 / 4: "a", 1 / 2: "b", 1: "c"}[each["random, 2 of 8"] / each["random, 8 of 8"]]
reveal({"21.7-p5": grows, "21.7-p6": share})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# An operation is a multiplication or an addition. The multiplications by the weights (projections, feed-forward parts) work on the one new
# position, whatever the length. What grows is attention: each position in the cache is
# scored and its value mixed, by every query head. (In the two small models that is most of the work, so their totals grow much; in a large one
# it is little until a text is long.) The formula of the last column says what one position costs: layers &times; query heads &times; head width
# &times; 4, since scores and mixing take a multiplication and an addition each. KV heads are not in it: with GQA the stored bytes fall to a
# quarter, and this arithmetic stays. The third model's passes have 1,536 operations fewer than the second's, since the new position gets
# fewer keys and values, and as many fewer at every length.
#
# </details>
#
# ### Blocks and answers
#
# A block size is a choice of the engine's. What does it change?

# %%
predict({"21.7-p7": None, "21.7-p8": None})

# %%
question = tiny.prompt("Ada likes soup. The key is red.", "What does Ada like?")
answers = {}
for block_size in (1, 4, 16):
    llm = new_engine(block_size=block_size, num_blocks=256 // block_size)
    answers[block_size] = llm.generate(question, SamplingParams(max_tokens=8))[0].outputs[0]
    print(f"blocks of {block_size:>2}: {answers[block_size].text.strip()}")
depends = len({answer.token_ids for answer in answers.values()}) > 1
assert not depends

llm = new_engine()
(request,) = llm.engine.add_request(encode("Ada likes soup."), exactly(3))
print("\ntokens of the text   positions in the cache   blocks held")
held = []
for _step in range(2):
    llm.engine.step()
    held.append(len(llm.engine.scheduler.manager.block_table(request.request_id)))
    print(f"{request.num_tokens:>18} {request.num_computed_tokens:>24} {held[-1]:>13}")
llm.engine.run()
assert held == [1, 2]
reveal({"21.7-p7": depends, "21.7-p8": held[0]})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# The answers are the same. And the second block comes with the pass that reads the fifth token.
#
# </details>
#
# ### Finding what was there
#
# A prompt comes again. How much of it does the cache save? (A beginning that prompts have in common is a **prefix**.)

# %%
predict({"21.7-p9": None, "21.7-p10": None})

# %%
print("tokens of the prompt   positions from the cache, blocks of 16")
hits = {}
for length in (64, 65, 63, 16):
    llm = new_engine(block_size=16, num_blocks=16, max_model_len=128)
    prompt = [300 + t for t in range(length)]
    _, again = (llm.generate(prompt, exactly(1))[0] for _time in range(2))
    hits[length] = again.num_cached_tokens
    print(f"{length:>20} {hits[length]:>26}")
assert hits == {64: 48, 65: 64, 63: 48, 16: 0}

plain = encode("Ada likes soup. Tom plays chess.")
byte_of = {word(t): t for t in tiny.BYTES}  # a token for each single sign
spelled = [byte_of[sign] for sign in "Ada"] + plain[1:]
llm = new_engine()
_, other = (llm.generate(p, exactly(1))[0] for p in (plain, spelled))
same_text = "".join(map(word, plain)).strip() == "".join(map(word, spelled)).strip()
print(f"\n{len(plain)} tokens, then {len(spelled)}; the same text: {same_text}")
print("positions from the cache:", other.num_cached_tokens)
assert same_text and other.num_cached_tokens == 0
reveal({"21.7-p9": hits[64], "21.7-p10": other.num_cached_tokens > 0})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# With 64 tokens all four blocks are there, and one is computed again: keys and values give no logits, so the last position must be. With 65 the
# last position lies in a fifth block, and all four are used. With 63 the fourth block is not full, so nobody finds it; with 16 the only block
# is the last one. The second text begins with "Ada" as three tokens, a letter each: other token
# ids from the first block on.
#
# </details>
#
# ### When room runs out
#
# A request that loses its blocks because others need them is **preempted**. A **cached** block is full and has an identity; one that is
# taken for another text is **evicted**.

# %%
predict({"21.7-p11": None, "21.7-p12": None})

# %%
a_prompt, b_prompt = encode("Ada likes soup. Tom plays chess."), encode("Mia is in the garden.")
narrow = new_engine(num_blocks=7, enable_prefix_caching=False)
out = narrow.engine.add_request(a_prompt, exactly(12), request_id="A")
out += narrow.engine.add_request(b_prompt, exactly(12), request_id="B")
had, lost = {}, []
while narrow.engine.has_unfinished_requests():
    before = {r.request_id: list(r.output_token_ids) for r in out}
    narrow.engine.step()
    for r in out:
        if r.num_preemptions and r.request_id not in had:
            had[r.request_id] = before[r.request_id]
wide = [new_engine().generate(p, exactly(12))[0].outputs[0] for p in (a_prompt, b_prompt)]
print("requests that were preempted, and what they had:")
for r in out:
    if r.request_id in had:
        print(f"{r.request_id} had {len(had[r.request_id])} outputs, and was preempted", end="; ")
        print(f"in the end it has {len(r.output_token_ids)}")
texts = {r.request_id: tuple(r.output_token_ids) for r in out}
undisturbed = dict(zip("AB", (w.token_ids for w in wide), strict=True))
kept_them = all(list(texts[name][: len(some)]) == some for name, some in had.items())
print("the same outputs as in a pool with room for both:", texts == undisturbed)
assert had and kept_them and all(had.values())
reader_gets = "a" if texts == undisturbed else "b" if kept_them else "c"

llm = new_engine(num_blocks=16)
pool, evicted = llm.engine.scheduler.manager.pool, []
(reader,) = llm.engine.add_request(a_prompt, exactly(20), request_id="reader")
llm.engine.step()


def note(block):
    read_by_somebody = block.block_id in llm.engine.scheduler.manager.block_table("reader")
    evicted.append((block.ref_cnt, read_by_somebody))


pool.before_evict = note
for turn in range(8):  # short requests come and go beside it, and leave cached blocks behind
    llm.engine.add_request([300 + 20 * turn + t for t in range(12)], exactly(1))
    llm.engine.step()
llm.engine.run()
(alone,) = new_engine().generate(a_prompt, exactly(20))
in_use = [read for _count, read in evicted if read]
print(f"\nblocks evicted while a request was running: {len(evicted)}; of its own: {len(in_use)}")
assert len(evicted) > 5 and tuple(reader.output_token_ids) == alone.outputs[0].token_ids
reveal({"21.7-p11": reader_gets, "21.7-p12": len(in_use) > 0})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# Preemption costs time: everything is computed again. The request's tokens do not lie in the blocks, so the answer goes on where it was.
# And what is evicted was in no table.
#
# </details>
#
# ### Copies and formats
#
# Where requests share a block and one of them has to write into it, it takes a copy first: **copy-on-write**. **fp8** stores a number in one
# byte; single precision (fp32) takes four.

# %%
predict({"21.7-p13": None, "21.7-p14": None})

# %%
print("tokens of the prompt   blocks before the continuations write   blocks copied")
copied = {}
for length in (8, 6):
    llm = new_engine()
    llm.start_trace()
    prompt = encode("Ada likes soup. Tom plays chess.")[:length]
    llm.engine.add_request(prompt, exactly(2, n=3))
    llm.engine.step()
    pool = llm.engine.scheduler.manager.pool
    taken = pool.num_blocks - pool.num_free_blocks
    llm.engine.run()
    copied[length] = sum(event.kind == "copied" for event in llm.stop_trace().events)
    print(f"{length:>20} {taken:>39} {copied[length]:>15}")
assert copied == {8: 0, 6: 2}

print("\ncache    bytes of the cache   bytes of the weights")
sizes = {}
for name in ("fp32", "fp8"):
    llm = new_engine(cache_dtype=name)
    weights = sum(p.nbytes for p in llm.model.parameters())
    sizes[name] = llm.cache.nbytes, weights
    print(f"{name:<7} {sizes[name][0]:>19,} {weights:>22,}")
cache_shrinks, weights_shrink = (new < old for old, new in zip(*sizes.values(), strict=True))
fewer = {(True, True): "a", (True, False): "b", (False, True): "c"}
reveal({"21.7-p13": copied[8], "21.7-p14": fewer[cache_shrinks, weights_shrink]})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# Eight tokens fill two blocks: each continuation goes on in a block of its own, and nothing is copied. Six leave the second block half full, and
# two of the three take a copy; the third goes on in the original. The format of the cache leaves the weights alone.
#
# </details>
#
# ### Limits and means
#
# `max_num_batched_tokens` is a setting of the scheduler. An **inter-token latency** (ITL) is the gap between one output of a request and the next.

# %%
predict({"21.7-p15": None, "21.7-p16": None})

# %%
prompt = [300 + t for t in range(40)]
wide, narrow = new_engine(), new_engine(max_num_batched_tokens=16)
narrow.start_trace()
try:
    (in_parts,) = narrow.generate(prompt, exactly(4))
except ValueError:
    in_parts = None
chunks = [
    (e.data["start"], e.data["end"]) for e in narrow.stop_trace().events if e.kind == "computed"
]
(whole,) = wide.generate(prompt, exactly(4))
steps_in_words = ", ".join(f"{start} to {end - 1}" for start, end in chunks[:3])
print("positions that the first steps read:")
print(steps_in_words)
same = in_parts is not None and in_parts.outputs[0].token_ids == whole.outputs[0].token_ids
print("the same outputs as with all 40 in one step:", same)
assert chunks[:3] == [(0, 16), (16, 32), (32, 40)]
what_happens = "a" if in_parts is None else "c" if chunks[0][0] == 0 and same else "b"

gaps, tpots = [], []
print("\noutputs   gaps       TPOT")
for outputs, step_ms in ((2, 100), (101, 10)):
    (times,) = served_on_a_clock(1, outputs, step_ms)
    tpots.append(1000 * times.tpot)
    gaps += [1000 * gap for gap in times.itl]
    print(f"{outputs:>7} {len(times.itl):>6} {tpots[-1]:>5.0f} ms")
mean_tpot, mean_itl = statistics.mean(tpots), statistics.mean(gaps)
print(f"mean of the TPOTs {mean_tpot:.1f} ms; mean of all gaps {mean_itl:.1f} ms")
assert round(mean_tpot, 6) == 55
nearest = min({"a": 55, "b": 11, "c": 100}.items(), key=lambda option: abs(option[1] - mean_itl))
reveal({"21.7-p15": what_happens, "21.7-p16": nearest[0]})

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# The limit is one of a step. And the two means answer two questions: how a request fared, and how long a gap was: (100 + 100 &middot; 10) / 101
# ms. A report has to say which one it gives.
#
# </details>
#
# ## Your score
#
# What counts is the answer that you had given when the run showed its own. If you had given none, your first one counts when its cell is run
# again; nobody checks what you have seen. The score is worked out here, in your kernel, from the cells above. It goes nowhere. To keep it,
# name a file: `score("21.7", save="my_checkpoint.json")` writes it into the folder of this page and says how to delete it.
#
# Where to read on: [21.1](21_1_reuse.ipynb) for heads and what a pass computes (p5, p6), [21.2](21_2_latency.ipynb) for latencies (p2, p16),
# [21.3](21_3_scheduling.ipynb) for steps and preemption (p11, p15), [21.4](21_4_prefix.ipynb) for finding blocks (p3, p9, p10, p12),
# [21.5](21_5_paging.ipynb) for blocks, copies and formats (p4, p7, p13, p14), [21.6](21_6_growth.ipynb) for what is stored when (p1, p8).

# %%
score("21.7")

# %% [markdown]
# ## Summary
#
# - The cache holds the positions that were processed, and not the token selected last. It saves computing them again, not reading them.
# - A rate is everybody's, a TPOT one request's, an ITL one gap's.
# - A block is found by token ids, by all that precedes it, and by the configuration. At least one position of a prompt is computed.
# - A block is free when its last reference has gone. Evicted are free blocks alone; a preempted request is computed again, and loses no text.
# - Full blocks are never written to, and never copied. Block size, cache format and steps are choices about memory and time.
#
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.7-1")` gives the first of three
# hints, `hint("21.7-1", 2)` the second; `solution("21.7-1")` shows a worked solution. What is right is computed by the engine when you ask.

# %%
check({"21.7-1": None, "21.7-2": None})


# %%
def released(tables, order):
    """[the blocks that no table names any more after the first end, after the second, ...]"""
    ...


check("21.7-3", released)


# %%
def waits_for_the_last(Allocator):
    """Whether a block that two requests share is free when both have ended, and not before."""
    ...


check("21.7-4", waits_for_the_last)

# %%
for pool in pools:
    assert pool.num_free_blocks == pool.num_blocks
    pool.check_invariants()
print("nothing leaked: every block of every pool is free")
