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
# loaded from a network.
#
# 5 minutes · any laptop, no GPU. Choose **Run ▸ Run All Cells** to run the page.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # elsewhere kvlab is installed already
    import subprocess

    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "kvlab"], check=True)

from kvlab import LLM, SamplingParams, doctor, tiny

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
print(len(output.prompt_token_ids), "prompt tokens,", len(output.outputs[0].token_ids), "outputs")
print(f"{llm.cache.bytes_per_position:,} bytes of keys and values for each processed position")

# %% [markdown]
# Ask the same again, and the engine finds blocks of the first request still in its cache. Reuse is by whole
# blocks, here of 16 positions, and at least one position is always computed: keys and values alone select
# no token. So the last block of this prompt is computed again.

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
        print("   note:", asked.notice)

# %% [markdown]
# ## What this machine can do
#
# The same findings are printed by `kvlab doctor` in a terminal.

# %% tags=["nbval-ignore-output"]
print(doctor.render(doctor.findings()))

# %% [markdown]
# ## Where to go
#
# | you have | read | and you will have |
# |---|---|---|
# | 10 minutes | the first half of [21.6 Processed positions, selected outputs, and cache growth](21_6_growth.ipynb) | stepped through a cache as it fills |
# | 30 minutes | all of [21.6](21_6_growth.ipynb) | computed its bytes, broken it, and typed your own text |
# | an evening | `kvlab/core`, `kvlab/engine.py`, `kvlab/llm.py`, `kvlab/tensors` | read a whole engine: block pool, scheduler, model, sampler |
#
# The other sections of the chapter (reuse and heads, latency, scheduling, prefix caching, paging, the
# checkpoint) are on their way.
#
# ## Words that mean two things elsewhere
#
# | word | here |
# |---|---|
# | `block_size` | tokens per cache block, as in vLLM; never the context length, as in some training code |
# | context length | positions a sequence may have; `max_model_len` |
# | KV heads | heads that store keys and values; query heads may be more |
# | page | we say block |
# | GB, GiB | $10^9$ and $2^{30}$ bytes |

# %%
pool = llm.engine.scheduler.manager.pool
assert llm.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
print("nothing leaked: no request is left, every block is free")
