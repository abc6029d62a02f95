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
# # The KV cache, running
#
# **What does a language model keep between two tokens, and what does that cost?**
#
# A language model writes one token after another. For each token it has read, every layer computes a **key**
# and a **value**, which later tokens look back at. They stay the same from then on, so a server keeps them:
# the **KV cache**. It saves computing them again, and it costs memory that grows with every token.
#
# These pages show it by running. A small inference engine with a paged cache, in torch, serves real
# requests on your machine. Every output, table and picture is a view of what it just did, and nothing is
# loaded from a network. Words in doubt: [Glossary](#Glossary).
#
# 15 minutes, of them 9 for three exercises · any laptop, no GPU. Run the page cell by cell with
# <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom; **Run ▸ Run All Cells** runs everything at once.
#
# After the chapter you can
#
# - say what a cache holds at any moment of a request, in positions and in bytes;
# - say why it may be reused, within a request and between requests, and when it may not;
# - follow a request through blocks, tables and steps of a scheduler, and find a fault in them;
# - read a measured latency, and tell which part of the work it comes from.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import textwrap

from kvlab import LLM, SamplingParams, doctor, tiny
from kvlab.exercises import check, hint, solution
from kvlab.widgets import overview

# %% [markdown]
# ## One request, from text to text
#
# The model that comes with kvlab is small enough for any laptop. It was trained to answer from the
# notes in its prompt, so a lost or wrong piece of cache shows in its answer.

# %%
llm = LLM("tiny", block_size=16, num_blocks=64)
notes = "Ada likes soup. Tom plays chess. The key is in the garden."
prompt = tiny.prompt(notes, "Where is the key?")
(output,) = llm.generate(prompt, SamplingParams(max_tokens=12))

print(output.outputs[0].text.strip())
outputs = output.outputs[0].token_ids
assert outputs[-1] in llm.model.config.eos_token_ids
print(
    len(output.prompt_token_ids), "prompt tokens,", len(outputs), "outputs, the last the end mark"
)
print(f"{llm.cache.bytes_per_position:,} bytes of keys and values for each processed position")

# %% [markdown]
# Ask the same again, and the engine finds blocks of the first request still in its cache. Reuse is by whole
# blocks, here of 16 positions. The next token is chosen from the last position's logits, its scores of all tokens,
# which this cache does not keep. So that position is computed again, and with it its whole block.

# %%
(again,) = llm.generate(prompt, SamplingParams(max_tokens=12))
print(
    again.num_cached_tokens,
    "of",
    len(again.prompt_token_ids),
    "prompt positions came from the cache",
)
assert again.outputs[0].text == output.outputs[0].text

# %% [markdown]
# The model knows about 700 words and some forms of questions. If you leave them, the output says so:

# %%
for question in ("What does Ada like?", "What does Ada eat?", "Which soups does Ada like?"):
    (asked,) = llm.generate(tiny.prompt(notes, question), SamplingParams(max_tokens=12))
    print(question, "->", asked.outputs[0].text.strip())
    if asked.notice:
        print(textwrap.indent(textwrap.fill(f"note: {asked.notice}", 85), "   "))

# %% [markdown]
# ## The map of the chapter
#
# Now three requests, which arrive one after the other while the engine works. It takes at most 16 tokens a
# step and has blocks of 4 positions. What it did is recorded, and the map below is drawn from that record.
# Each panel leads to its section.

# %% tags=["claim-21.0-a"]
served = LLM("tiny", block_size=4, num_blocks=24, max_num_batched_tokens=16)
arrivals = {
    0: tiny.prompt("Ada likes soup.", "What does Ada like?", rules=""),
    2: tiny.prompt("The key is red.", "What colour is the key?", rules=""),
    3: tiny.prompt("Tom plays chess.", "What does Tom play?", rules=""),
}
served.start_trace()
names = iter("ABC")
step = 0
while served.engine.has_unfinished_requests() or step <= max(arrivals):
    if step in arrivals:
        ids = served.encode(arrivals[step])
        served.engine.add_request(ids, SamplingParams(max_tokens=8), request_id=next(names))
    served.engine.step()
    step += 1
trace = served.stop_trace()

answers = {}
for name, request in trace.last_state()["requests"].items():
    outputs = request["token_ids"][request["num_prompt_tokens"] :]
    answers[name] = served.tokenizer.decode(outputs).strip()
    print(f"{name}: {request['num_prompt_tokens']} prompt tokens ->", answers[name])
assert answers == {"A": "Ada likes soup.", "B": "The key is red.", "C": "Tom plays chess."}
overview(trace)

# %% [markdown]
# ## What this machine can do
#
# The same findings are printed by `kvlab doctor` in a terminal.

# %% tags=["nbval-ignore-output"]
print(doctor.render(doctor.findings()))

# %% [markdown]
# ## Three exercises
#
# Each section has some of each kind: something to write, something to break, and a measured number to explain. Put your
# answer in place of `...` or `None` and run the cell. `hint("21.0-1")` gives the first of three hints, `hint("21.0-1", 2)`
# the second, each in a cell of its own; `solution("21.0-1")` shows a worked solution. What is right is read off a real run
# when you ask.


# %%
def position_bytes(layers, query_heads, kv_heads, head_dim, bytes_per_value):
    """Bytes of keys and values for one position, in all layers."""
    ...


check("21.0-1", position_bytes)

# %% [markdown]
# The second breaks a cache. It is given the first request of this page, stopped when its prompt has been processed and
# the answer's first token selected. `stopped.answer()` lets the engine go on and gives the whole answer.


# %%
def spoil(stopped):
    """Change the cache so that the answer is another one, and return it."""
    ...


check("21.0-2", spoil)

# %%
check("21.0-3", None)

# %% [markdown]
# ## Where to go
#
# | you have | read | and you will have |
# |---|---|---|
# | 20 minutes | [21.6 Processed positions, selected outputs, and cache growth](21_6_growth.ipynb) as far as [The mechanism](21_6_growth.ipynb#The-mechanism), then [Your own text](21_6_growth.ipynb#Your-own-text) | stepped through a cache as it fills, and typed your own text |
# | an hour | [21.1 Reuse: what the cache keeps, and heads that share it](21_1_reuse.ipynb) | seen why it works, computed its bytes, broken it, and solved the exercises |
# | an evening | `kvlab/core`, `kvlab/engine.py`, `kvlab/llm.py`, `kvlab/tensors` | read a whole engine: block pool, scheduler, model, sampler |
#
# Then [21.2](21_2_latency.ipynb) measures, [21.3](21_3_scheduling.ipynb) schedules, [21.4](21_4_prefix.ipynb) shares what
# prompts have in common, [21.5](21_5_paging.ipynb) pages, and [21.7](21_7_checkpoint.ipynb) asks you about all of it.
# [21.5b](21_5b_kernel.ipynb) is for those who want to write a kernel.
#
# ## Glossary
#
# | word | here |
# |---|---|
# | token, position | a piece of text, and its number in the request, from 0 |
# | key, value, query | vectors of a position in a layer: what it offers to be found by, what it gives, what it looks for |
# | head, KV head, query head | attention runs several times side by side; a KV head stores keys and values, a query head reads them |
# | causal | a position reads itself and earlier ones, never later ones |
# | logits | a score for each token of the vocabulary; greedy selection takes the largest |
# | pass, step | a run of the model over new tokens; what the engine does once round its loop, one pass for all requests in it |
# | prefill, decode | passes that read the prompt; passes that read one output each |
# | selected, processed | the text has the token; its keys and values exist |
# | payload | bytes of keys and values of processed positions, and nothing else |
# | pool | the memory of all blocks, allocated once |
# | paged | kept in blocks of fixed size, anywhere in the pool |
# | block, slot | a piece of the pool for some positions; the place of one position, counted in its block or through the whole pool |
# | block table | which block holds which positions of a request |
# | prefix hit | blocks of an earlier request, found and reused because the prompts begin alike |
# | preempted | a running request that lost its blocks to others and will be computed again |
#
# Some words mean other things elsewhere:
#
# | word | here | elsewhere |
# |---|---|---|
# | `block_size` | tokens in a cache block, as in vLLM | in some training code the context length |
# | block | what the pool hands out | also a layer of the model; some engines say *page* for ours |
# | context length | positions that a sequence may have, `max_model_len` | also the positions it has right now (`context_len`) |
# | KV heads | heads that store keys and values, `num_kv_heads` | `n_kv_groups` may count these heads, or the query heads for each of them |
# | TPOT, ITL | TPOT: a request's mean time for each output after its first. ITL: every single gap | often used for one another |
# | GB, GiB | $10^9$ and $2^{30}$ bytes | GB is often printed for $2^{30}$ |

# %%
for engine_of in (llm, served):
    pool = engine_of.engine.scheduler.manager.pool
    assert engine_of.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
print("nothing leaked: no request is left, every block is free")
