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
# # 21.3 Scheduling: who runs in the next step
#
# **Two people are reading answers as they are written. A third sends a long prompt. Who waits, for whom, and how
# long?**
#
# 60 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about twenty seconds,
# and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. For every position it
# computes **keys and values** (K/V), which later positions read; they are kept in the **KV cache**, in **blocks** of
# a few positions each, taken from one **pool**. A request's **block table** lists its blocks in the order of its
# text. A **pass** is one run of the model over new positions. It ends in **logits**, scores of all tokens, from which
# the next token is **selected** (greedy: the largest score; **sampled**: drawn at random). Passes over a prompt are
# its **prefill**; after that each pass **decodes**: it reads the token selected last and gives one more. An
# **engine** serves many requests. It works in **steps**: one step is one pass over whatever the **scheduler** has put
# into it. A request that is admitted holds a **seat** (there are at most `max_num_seqs`) and blocks; the others stand
# in a **queue**.
#
# Three delays, all counted from a request's arrival or between its outputs: **TTFT**, until its first output; a
# **gap**, from one output to the next; and the **end-to-end** time, until it has ended. Here they are counted in
# *steps* (a TTFT of 1: the first step after its arrival gave an output; a gap of 1: an output in every step) where
# the order matters, since that is the same on every machine, and in milliseconds where time does.
#
# The cells are long where they print a table or draw; their code may be skipped. What they call is in the package.
#
# After this section you can
#
# - follow a step of a scheduler, and say who is in it under four policies;
# - say what chunks of a prompt cost, whom they help, and what bounds a wait;
# - tell what happens when the pool runs out, and why nothing is lost;
# - weigh delaying, refusing, shortening, recomputing and offloading against each other.

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
import statistics
import textwrap
import time
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from IPython.display import Image, display

from kvlab import (
    LLM,
    ContiguousCache,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    SimulatedEngine,
    play,
    tiny,
)
from kvlab.core.arrivals import AtOnce, OnOff, Poisson
from kvlab.core.lengths import Uniform
from kvlab.core.policies import Turns, longest_decode_gap
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.workload import generate
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.exercises.serving_21_3 import Serving
from kvlab.measure.generation_loop import arrows, follow
from kvlab.measure.too_large import two_too_large
from kvlab.tensors.active_offload import ActiveOffload
from kvlab.tensors.kv_cache import contiguous_forward
from kvlab.widgets import schedule_knobs, schedule_steps, schedule_timeline

_ = torch.set_num_threads(1)  # one thread: times are steadier, and the model is small

tiny_llm = LLM("tiny")
model, config = tiny_llm.model, tiny_llm.model.config
encode, decode, word = tiny_llm.encode, tiny_llm.tokenizer.decode, tiny_llm.tokenizer.token_text
made = []  # the schedulers of this page; the last cell looks whether one of them leaked


def make(**settings):
    """An engine of its own over the shipped model: blocks of 4, and no prefix is shared."""
    size = {"tokenizer": "tiny", "block_size": 4, "num_blocks": 64, "enable_prefix_caching": False}
    llm = LLM(model, **{**size, **settings})
    made.append(llm.engine.scheduler)
    return llm


def exactly(count, **more):
    """`count` outputs, whatever they are."""
    return SamplingParams(max_tokens=count, ignore_eos=True, **more)


GREY = "#7a7a7a"  # legible on a light page and on a dark one
coloured = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams.update(dict.fromkeys(coloured, GREY))


def shown_as_image(figure, alt):
    """The figure without a ground of its own, so that it stands on the page's, light or dark."""
    png = io.BytesIO()
    figure.savefig(png, transparent=True)
    plt.close(figure)
    display(Image(png.getvalue(), metadata={"alt": alt}))


# %% [markdown]
# ## One request: the loop
#
# Before many requests, one. The next cell serves it and notes each call of the model, each row of logits and each
# selection where it happens. The cell after it draws one arrow for each pair of stages that followed each other, with
# how often they did. No arrow is put in by hand.

# %% tags=["claim-21.3-h"]
stages = follow(make(), tiny.prompt("Ada likes soup.", "What does Ada like?"), SamplingParams())
counted = arrows(stages)

selected = [s.token_ids[0] for s in stages if s.name == "selection"]
reads = [s.token_ids for s in stages if s.name in ("prefill", "decode")]
print("stage       tokens read, or selected")
for stage in stages[:8]:
    shown = f"{len(stage.token_ids)} tokens of the prompt" if stage.name == "prefill" else ""
    shown = shown or " ".join(word(t).strip() for t in stage.token_ids)
    print(f"{stage.name:<11} {shown}".rstrip())
print(f"... and so on: {len(selected)} selections, {len(reads)} calls of the model")
assert [s.name for s in stages[:5]] == ["prefill", "logits", "selection", "decode", "logits"]
assert counted["selection", "decode"] == len(selected) - 1 == len(reads) - 1 > 2
assert [ids for ids in reads[1:]] == [(token,) for token in selected[:-1]]  # what comes back

# %%
places = {
    "prefill": (0, 0),
    "logits": (2, 0),
    "selection": (4.4, 0),
    "end": (6.8, 0),
    "decode": (3.2, -1.6),
}
figure, axes = plt.subplots(figsize=(8.5, 2.6), dpi=110)
for (source, target), times in counted.items():
    (x, y), (u, v) = places[source], places[target]
    returns = source == "selection" and target == "decode"
    colour = "#d55e00" if returns else GREY
    axes.annotate("", (u, v), (x, y), arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.6,
                  "shrinkA": 30, "shrinkB": 30})  # fmt: skip
    side = 0.45 if returns else -0.45 if v != y else 0
    axes.text(
        (x + u) / 2 + side, (y + v) / 2 + 0.12 * (side == 0), f"{times}×", ha="center", color=colour
    )
for name, place in places.items():
    box = {"boxstyle": "round,pad=0.5", "facecolor": "#e8f1f8", "edgecolor": "#0072b2"}
    axes.text(*place, name, ha="center", va="center", bbox=box, color="black")
axes.set(xlim=(-0.8, 7.4), ylim=(-2.0, 0.6))
axes.axis("off")
shown_as_image(
    figure, "the loop: from selection back to decode, as often as there is another output"
)

# %% [markdown]
# The orange arrow goes back: what was selected is what the next call of the model reads. It is drawn once for each
# output but the last, after which the request ends. Every turn of this loop is a step, and a step is what the
# scheduler hands out.
#
# ## Many requests in one pass
#
# A **batch** is the group of requests that share a step. What do they share, and what not? Five requests, each of
# which selects or ends in its own way: at the model's end token (**EOS**), at a limit of outputs, at a **stop
# string** in the text, and two that are sampled with a **seed**, the start of their own random numbers. Each is
# served alone, and then all five together, in an engine whose steps take 16 positions at most, so that they begin in
# different steps.

# %% tags=["claim-21.3-a"]
STORY = tiny.prompt("", "Tell me a story about Ada and a red kite.", rules="")
SOUP = tiny.prompt("Ada likes soup.", "What does Ada like?", rules="")
CHESS = tiny.prompt("Tom plays chess.", "What does Tom play?", rules="")
asked = {
    "ends at EOS": (SOUP, SamplingParams(max_tokens=20)),
    "limit of 6 outputs": (STORY, SamplingParams(max_tokens=6)),
    "stop string 'chess'": (CHESS, SamplingParams(max_tokens=20, stop=("chess",))),
    "sampled, seed 5": (STORY, SamplingParams(temperature=1.0, seed=5, max_tokens=12)),
    "sampled, seed 6": (STORY, SamplingParams(temperature=1.0, seed=6, max_tokens=12)),
}
alone = {name: make().generate(*ask)[0].outputs[0] for name, ask in asked.items()}
llm = make(max_num_batched_tokens=16)
together = llm.generate([p for p, _ in asked.values()], [s for _, s in asked.values()])

print(f"{'request':<20} ended by  outputs  same alone  text in the batch")
for (name, single), answer in zip(alone.items(), together, strict=True):
    out = answer.outputs[0]
    same = out.token_ids == single.token_ids and out.finish_reason == single.finish_reason
    text = out.text.strip() if len(out.text) < 30 else out.text.strip()[:30] + " ..."
    print(f"{name:<20} {out.finish_reason:<9} {len(out.token_ids):>7}  {same!s:<10}  {text}")
    assert same
reasons = [answer.outputs[0].finish_reason for answer in together]
assert reasons[:3] == ["stop", "length", "stop"]
assert alone["sampled, seed 5"].token_ids != alone["sampled, seed 6"].token_ids

# %% [markdown]
# Two more requests in an engine like that, stopped after five steps, to look at what it keeps of each:

# %%
llm = make(max_num_batched_tokens=16)
one, two = (
    llm.engine.add_request(encode(prompt), exactly(9), request_id=name)[0]
    for name, prompt in (("question", SOUP), ("story", STORY))
)
for _ in range(5):
    llm.engine.step()
manager = llm.engine.scheduler.manager
print("after five steps   tokens so far   processed   block table")
for request in (one, two):
    table = manager.block_table(request.request_id)
    done = request.num_computed_tokens
    print(f"{request.request_id:<16} {request.num_tokens:>15} {done:>11}   {table}")
assert not set(manager.block_table(one.request_id)) & set(manager.block_table(two.request_id))
llm.engine.run()

# %% [markdown]
# The pass is shared, the rest is not. Each member of a batch has its own history of tokens, its own count of
# processed positions, its own block table, its own rule of selection and of stopping, and its own random numbers:
# they are computed from its seed and the number of the output, so nobody else's draws can move them.
#
# ## Two seats, three requests
#
# A and B hold the two seats; C waits. A gives two outputs and then ends; B gives four. Two ways to go on:
#
# - **static batching**: the group A, B stays as it is until both have ended; then comes the next group;
# - **continuous batching**: membership is looked at between any two steps.
#
# Write your prediction in place of `None`, before you scroll on: the cells after it show the answer. Nothing breaks if
# you leave it.

# %%
predict("21.3-p1", None)

# %%
C_ASKS = exactly(3, temperature=2.0, seed=7)


def two_seats(policy):
    """A, B and C with two seats: the requests, the trace, and each one's last block table.

    The pool begins as NaN ("not a number"), so that reading a slot nobody has written would show.
    """
    llm = make(policy=policy, max_num_seqs=2, num_blocks=12)
    for tensor in (llm.cache.key_cache, llm.cache.value_cache):
        tensor.fill_(float("nan"))
    a_asks = exactly(2, temperature=2.0, seed=7)  # the same seed as C's
    requests, tables = {}, {}
    for name, params in (("A", a_asks), ("B", exactly(4)), ("C", C_ASKS)):
        (requests[name],) = llm.engine.add_request(encode(STORY), params, request_id=name)
    llm.start_trace()
    while llm.engine.has_unfinished_requests():
        llm.engine.step()
        for name in "ABC":
            tables[name] = llm.engine.scheduler.manager.block_table(name) or tables.get(name)
    return requests, llm.stop_trace(), tables


def steps_of(trace):
    """{step: [(request, first position, end)]} in the order of the step's rows."""
    found = {}
    for event in trace.events:
        if event.kind == "computed":
            span = event.data["start"], event.data["end"]
            found.setdefault(event.clock, []).append((event.request_id, *span))
    return found


# %% tags=["claim-21.3-d"]
between = []
(alone_c,) = make().generate(STORY, C_ASKS)
print("policy      members of each step")
for policy in ("static", "continuous"):
    requests, seat_trace, tables = two_seats(policy)
    rows = steps_of(seat_trace)
    print(f"{policy:<11}", *("+".join(name for name, *_ in row) for row in rows.values()))
    taken_part = {n: [s for s, row in rows.items() if n in [x for x, *_ in row]] for n in "ABC"}
    between.append(taken_part["C"][0] - taken_part["A"][-1] - 1)
    c, reused = requests["C"], sorted(set(tables["A"]) & set(tables["C"]))
    print(f"{'':<11} C's outputs are those of C alone: "
          f"{tuple(c.output_token_ids) == alone_c.outputs[0].token_ids}; blocks that were A's: {len(reused)}")  # fmt: skip
    assert tuple(c.output_token_ids) == alone_c.outputs[0].token_ids
    assert c.num_cached_tokens == 0 and rows[taken_part["C"][0]][0][1] == 0  # from position 0
assert between == [2, 0] and reused
reveal("21.3-p1", between)

# %% [markdown]
# Each group of letters is a step and who was in it: `A+B` is one step with both. Under static batching B goes on
# alone for two steps, beside an empty seat, while C waits. Under continuous batching C's prompt takes the very next
# step.
#
# C takes over A's seat, and some of the very blocks that were A's. It takes over nothing that A left in them: it
# starts at position 0, and its outputs are those that it gives alone. Nor does it go on in A's random numbers: it has
# A's seed and A's prompt here, and begins at the first of them.
#
# ### Rows change, positions do not
#
# In the tensors of a step each member is a **row**. Look at B in the second run: at first A stands above it, later C
# below it.

# %% tags=["claim-21.3-c"]
print("step   row 0                 row 1")
b_rows, b_starts, beside_b = [], [], set()
for step, row in steps_of(seat_trace).items():
    shown = [
        f"{n}, positions {a} to {z - 1}" if z - a > 1 else f"{n}, position {a}" for n, a, z in row
    ]
    print(f"{step:>4}   {shown[0]:<21} {' '.join(shown[1:])}".rstrip())
    for index, (name, start, end) in enumerate(row):
        if name == "B":
            b_rows.append(index)
            beside_b |= {other for other, *_ in row}
            b_starts += range(start, end)
print(
    f"B's row: {b_rows}; B's positions: 0 to {b_starts[-1]}, each once: {b_starts == sorted(set(b_starts))}"
)
assert (
    beside_b == {"A", "B", "C"}
    and set(b_rows) == {0, 1}
    and b_starts == list(range(b_starts[-1] + 1))
)

changing = make(max_num_seqs=2)  # the same for real keys: B beside A, then beside C
for name, count in (("A", 2), ("B", 6), ("C", 4)):
    _ = changing.engine.add_request(encode(STORY), exactly(count), request_id=name)
for _ in range(5):
    changing.engine.step()
b = changing.engine.requests["B"]
keys, values = changing.cache.read(
    changing.engine.scheduler.manager.block_table("B"), b.num_computed_tokens
)
fresh = ContiguousCache(config)
_ = contiguous_forward(model, torch.tensor([b.all_token_ids[: b.num_computed_tokens]]), fresh)
apart = float((keys - torch.cat(fresh.keys)).abs().max())
print(f"B's keys are those of its own text computed afresh, at every position: {apart < 1e-4}")
assert apart < 1e-4 and b.output_token_ids and not changing.engine.requests.keys() & {"A"}
changing.engine.run()

# %% [markdown]
# The row is where a request happens to stand in one step. Its positions, and its block table, are its own. An engine
# that took the row for the identity would give C's keys to B.
#
# ## The mechanism
#
# A step has a **budget** of positions, `max_num_batched_tokens`. The policy makes a plan for it: which kind of work
# comes first (`PREFILL`: positions of prompts, `DECODE`: the one pending token of each request that decodes), whether
# both may share the step (`shared`), and whether somebody may join (`admits`). Then the scheduler hands the budget
# out, first to requests that are admitted already (`running`), then to those that wait. There are four policies:
#
# | policy | first in a step | both in one step? | who may join |
# |---|---|---|---|
# | `static` | prompts, whole or in parts | no | nobody, once the group's prompts are in |
# | `continuous` | prompts, each of them whole | no | anybody with room, in any step |
# | `alternating` | chunks of prompts and decodes in turn | no | anybody with room |
# | `mixed`, the default | decodes, then chunks | yes | anybody with room |
#
# Two guards, `max_decode_gap` and `max_prefill_gap`, bound how many steps in a row may pass a kind of work by. Both
# are 8 unless one says otherwise; what follows from them comes further down (*How long can a wait get?*). An engine of
# this page to which no policy is given runs `mixed`. The two functions below are the plan, and the half that admits;
# names that begin with an underscore are notes that the scheduler keeps for itself.

# %%
print(inspect.getsource(Turns.plan))
print(inspect.getsource(Scheduler._schedule_waiting))

# %% [markdown]
# `static` and `continuous` differ in one thing. A static group is closed (`group_closed`) from the step on in which
# its prompts are in; whoever comes later waits until all of it has ended, even beside an empty seat. The
# counters `decode_waits` and `prefill_waits` keep either kind of work from waiting for ever: `starving` says that
# prompts have had no budget for as many steps as the guard allows. `max_bypass` comes up further down.
#
# ## A queue that does not move
#
# Ten requests with three seats. Their arrivals are drawn at random from a seed, independent of each other (a
# **Poisson** process), and so are their lengths; the two runs below have exactly the same ones.

# %%
work = generate(10, arrivals=Poisson(0.5), prompt_tokens=Uniform(3, 10), output_tokens=Uniform(2, 14),
                vocab_size=config.vocab_size, seed=4)  # fmt: skip


def logged(work, **settings):
    """(log on the step clock, what each request got) of a workload in an engine of its own."""
    llm = make(**settings)
    with ScheduleLog(llm.engine.scheduler) as log:
        played = play(llm.engine, work, mode="step")
    return log, played


# %% tags=["claim-21.3-b"]
static, continuous = (logged(work, policy=p, max_num_seqs=3) for p in ("static", "continuous"))
logs = {"static": static[0], "continuous": continuous[0]}
print("         arrives              waits for its first step   ends after      (both in steps)")
print("request  for step    outputs  static   continuous        static   continuous")
for arrival in work:
    records = [log.requests[arrival.request_id] for log in logs.values()]
    (w1, e1), (w2, e2) = [(r.steps_in("waiting"), int(r.e2el)) for r in records]
    there = records[0].spans[0].first
    print(
        f"{arrival.request_id:<8} {there:>4} {arrival.max_tokens:>14} {w1:>7} {w2:>12} {e1:>13} {e2:>12}"
    )
waits, empty = {}, {}
for name, log in logs.items():
    waits[name] = sum(record.steps_in("waiting") for record in log.requests.values())
    empty[name] = sum(3 - step.running for step in log.steps if step.waiting)
    print(f"{name}: {len(log.steps)} steps; waited {waits[name]} in all; "
          f"seats that stood empty while somebody waited: {empty[name]}")  # fmt: skip
assert empty["static"] > 10 and empty["continuous"] == 0
assert waits["static"] > 1.5 * waits["continuous"]

# %%
lives = [
    (name, r.selected_steps[0], r.selected_steps[-1]) for name, r in logs["static"].requests.items()
]
groups = [[lives[0]]]
for life in lives[1:]:
    if life[1] > max(last for *_, last in groups[-1]):
        groups.append([])
    groups[-1].append(life)
print("static groups, with the steps of the first and the last output of each member:")
for number, group in enumerate(groups, 1):
    print(f"  group {number}:", ", ".join(f"{name} {a} to {z}" for name, a, z in group))
    assert len({a for _, a, _ in group}) == 1  # they begin together
assert len(groups) > 2
assert all(a.output_token_ids == b.output_token_ids
           for a, b in zip(static[1].requests, continuous[1].requests, strict=True))  # fmt: skip

# %% [markdown]
# In each static group all members begin together, and the next group begins after the last of them has ended. Whoever
# arrives meanwhile waits for the slowest of a group that it has nothing to do with. That is **head-of-line
# blocking**: earlier, longer work stands in front of later, shorter work in the same line. The outputs are the same,
# the delays are not. r1 is a group of its own: it came alone, and was closed with two seats empty.
#
# Continuous batching is not free for those who run: r1 ends later there, since a step with prompts in it has no
# decodes.
#
# The same two runs as a picture. Each row is a request, each column a step. **P** is a part of a prompt, **D** a
# decode, **w** waiting, **i** a step that a member had no part in. Step through it with the buttons, the slider, or
# <kbd>←</kbd> <kbd>→</kbd> after a click on the view.

# %%
schedule_timeline(static[0], continuous[0])

# %% [markdown]
# ## A long prompt beside two who decode
#
# Now the question at the top. A and B are decoding when C arrives with a prompt of 12 tokens: short, so that each
# step can be written down. Continuous batching as above computes the whole prompt in one step; A and B have no part
# in it. **Chunked prefill** cuts the prompt into parts (**chunks**) and lets others decode between them; the policy
# `alternating` does exactly that. Write `P4` for a step with four positions of the prompt, `D` for one in which the
# others decode. Predict before you scroll on.

# %%
predict("21.3-p2", None)

# %%
TWELVE = encode("Ada likes soup. The key is red. Mia is sad. Tom plays chess.")[:12]


def beside_two(prompt, **settings):
    """A and B decode; then C comes. The log, on the real clock, from A's output before C on."""
    llm = make(num_blocks=160, **settings)
    for name in "AB":
        _ = llm.engine.add_request(TWELVE[:3], exactly(200), request_id=name)
    llm.engine.step()
    with ScheduleLog(llm.engine.scheduler, clock=time.perf_counter) as log:
        llm.engine.step()
        (c,) = llm.engine.add_request(prompt, exactly(1), request_id="C")
        while not c.is_finished:
            llm.engine.step()
        llm.engine.step()  # one more, so that A's gap is whole
        for name in "AB":
            llm.abort(name)
    return log


def least_times(logs):
    """Milliseconds of each step after C's arrival: the least of several runs of the same steps."""
    ends = [[1e3 * step.end for step in log.steps] for log in logs]
    return [min(z - a for a, z in pairs) for pairs in zip(*map(pairwise, ends), strict=True)]


# %% tags=["claim-21.3-e"]
runs = {
    "continuous": beside_two(TWELVE, policy="continuous"),
    "alternating, chunks of 4": beside_two(TWELVE, policy="alternating", prefill_chunk=4),
    "mixed, chunks of 4": beside_two(TWELVE, policy="mixed", prefill_chunk=4),
}
orders, gaps = {}, []
print("policy                     steps to C's first output   longest gap of A, in steps")
for name, log in runs.items():
    orders[name] = schedule_steps(log)[1:-1]  # without A's step before C came, and the one after
    gaps.append(max(log.requests["A"].step_gaps))
    print(f"{name:<26} {' '.join(orders[name]):<27} {gaps[-1]}")
    assert log.requests["C"].selected_steps == [log.steps[-2].step]  # from the last chunk
assert orders["continuous"] == ["P12"] and orders["mixed, chunks of 4"] == ["D+P4"] * 3
assert orders["alternating, chunks of 4"] == ["P4", "D", "P4", "D", "P4"] and gaps == [2, 2, 1]
first = runs["alternating, chunks of 4"].requests["C"]
assert [s.start for s in first.spans if s.kind == "prefill"] == [0, 4, 8]
reveal("21.3-p2", orders["alternating, chunks of 4"])

# %% [markdown]
# The last chunk gives C's first output itself: only its last position has logits that anybody needs. Under `mixed`,
# as vLLM does it, a chunk and the decodes share a step, so that nobody misses one (`D+P4`).
#
# The order is the scheduler's. How long each step lasts is another question, and counting tokens does not answer it:

# %% tags=["nbval-ignore-output"]
lasted = {}
for policy, more in (
    ("continuous", {}),
    ("alternating", {"prefill_chunk": 4}),
    ("mixed", {"prefill_chunk": 4}),
):
    tried = [beside_two(TWELVE, policy=policy, **more) for _ in range(9)]
    lasted[policy] = least_times(tried)
    words = schedule_steps(tried[0])[1:-1]
    print(
        f"{policy:<12}",
        ",  ".join(f"{w} {ms:.2f} ms" for w, ms in zip(words, lasted[policy], strict=False)),
    )
chunks, whole = sum(lasted["alternating"][i] for i in (0, 2, 4)), lasted["continuous"][0]
print(f"three chunks of 4 together: {chunks:.2f} ms; the whole prompt at once: {whole:.2f} ms")

# %% [markdown]
# (The least of nine runs of each step.) A third of the tokens does not take a third of the time: every step has costs
# of its own, and on this small model they are most of it. Chunks are paid for. That is why their size is a choice,
# and why it has to be measured where it is used.
#
# ### A chunk is not a prompt
#
# A later chunk continues the earlier ones: its positions go on, and it reads their K/V. Here is a real prompt in
# chunks of several sizes, and once more as if each chunk of 8 were a prompt of its own.


# %%
def prefilled(token_ids, **settings):
    """Computes a prompt. Returns its K/V [2, layers, heads, positions, d], logits, steps, output."""
    llm, caught = make(**settings), {}
    llm.runner.on_logits = caught.update
    (request,) = llm.engine.add_request(token_ids, exactly(2), request_id="p")
    steps = 0
    while not request.output_token_ids:
        llm.engine.step()
        steps += 1
    pair = llm.cache.read(llm.engine.scheduler.manager.block_table("p"), len(token_ids))
    kept = torch.stack(pair), caught["p"].clone(), steps, request.output_token_ids[0]
    llm.abort("p")
    return kept


# %% tags=["claim-21.3-f"]
ids = encode(tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?", rules=""))
kv, logits, _, output = prefilled(ids)
print(f"a prompt of {len(ids)} tokens   steps   same K/V       same logits   same first output")
for size in (1, 4, 5, 8, 16):
    kv_of, logits_of, steps, output_of = prefilled(ids, prefill_chunk=size)
    same = [float((x - y).abs().max()) < 1e-4 for x, y in ((kv, kv_of), (logits, logits_of))]
    print(
        f"chunks of {size:<13} {steps:>5}   {same[0]!s:<14} {same[1]!s:<13} {output_of == output}"
    )
    assert same == [True, True] and output_of == output and steps == -(-len(ids) // size)

pieces = [prefilled(ids[i : i + 8]) for i in range(0, len(ids), 8)]
kv_pieces, (_, logits_last, _, output_last) = torch.cat([p[0] for p in pieces], dim=3), pieces[-1]
apart = [
    float((kv - kv_pieces)[:, :, :, part].abs().max()) for part in (slice(0, 8), slice(8, None))
]
wrong = float((logits - logits_last).abs().max())
only_first = apart[0] < 1e-4 < apart[1]
print(
    f"each 8 as a prompt {len(pieces):>10}   {'first 8 only' if only_first else '?':<14} {wrong < 1e-4}"
)
assert apart[0] < 1e-4 and apart[1] > 0.1 and wrong > 0.1

# %% [markdown]
# Chunks of any size give the K/V and the logits of the whole prompt ("same" means: to within 0.0001, the rounding of
# the additions). Treated as prompts of their own, only the first eight positions come out right. The others have read
# nothing of what stands before them.
#
# ### What a chunk's size trades
#
# A larger prompt of 384 tokens beside A and B, in chunks of several sizes. C wants its first output soon; A wants
# short gaps.

# %% tags=["nbval-ignore-output"]
LONG = [300 + t % 600 for t in range(384)]
SIZES = (16, 32, 64, 128, 384)
tradeoff = {}
for size in SIZES:
    tried = [beside_two(LONG, policy="alternating", prefill_chunk=size) for _ in range(5)]
    words, times = schedule_steps(tried[0])[1:], least_times(tried)
    gaps_of_a = [0.0]
    for w, ms in zip(words, times, strict=True):
        gaps_of_a[-1] += ms
        if "D" in w:  # A has its next output
            gaps_of_a.append(0.0)
    tradeoff[size] = words[:-1], sum(times[:-1]), max(gaps_of_a)
figure, axes = plt.subplots(figsize=(7, 2.8), dpi=110)
for index, (label, colour, mark) in enumerate(
    (("TTFT of C", "#0072b2", "o-"), ("longest gap of A", "#d55e00", "s--")), 1
):
    axes.plot(
        [str(s) for s in SIZES],
        [tradeoff[s][index] for s in SIZES],
        mark,
        color=colour,
        label=label,
    )
axes.set(xlabel="positions in a chunk", ylabel="milliseconds, here", ylim=(0, None))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.tight_layout()
shown_as_image(figure, "larger chunks: the TTFT of C falls, the longest gap of A grows")
print("chunk   TTFT of C   longest gap of A")
for size, (_, ttft, gap) in tradeoff.items():
    print(f"{size:>5} {ttft:>8.1f} ms {gap:>15.1f} ms")

# %% tags=["claim-21.3-g"]
print("chunk   chunks   steps to C's first output   positions of C between two outputs of A")
firsts, waits_between = [], []
for size, (order, *_) in tradeoff.items():
    most = max(int(w[1:]) for w in order if w.startswith("P"))
    firsts.append(len(order))
    waits_between.append(most)
    print(f"{size:>5} {order.count('D') + 1:>8} {len(order):>17} {most:>33}")
    assert len(order) == 2 * -(-384 // size) - 1
assert firsts == sorted(firsts, reverse=True) and waits_between == sorted(waits_between)

# %% [markdown]
# Small chunks: C gets its first output after many steps, and A never waits for more than 16 positions of C. One
# chunk: C is done in a step, and A waits for all 384 positions. Neither is right in itself; the sum of work is what
# both have to share.
#
# ## How long can a wait get?
#
# One prompt is one interruption. What if prompts keep coming, each of them long? Predict before you scroll on.

# %%
predict("21.3-p3", None)

# %% [markdown]
# The next cell lets the real scheduler answer, under a stream of long prompts, one more in every step. (`Serving` is a
# bench for such counting: the scheduler, the blocks and the engine's loop are the real ones, and only the model is left
# out.)

# %%
BUDGET = 16


def bench(kind=Serving, **settings):
    limits = {"max_num_batched_tokens": BUDGET, "max_num_seqs": 400, **settings}
    return kind(20_000, 4, **limits)


def longest_gap(serving, prompt_tokens, decoding=1, prompts=12):
    """Some requests decode while a prompt arrives in every step: their longest gap, in steps."""
    names = [f"D{i}" for i in range(decoding)]
    for name in names:
        serving.ask(name, 1, outputs=25)
    while not all(serving.outputs(name) for name in names):
        serving.step()
    for i in range(prompts):
        serving.ask(f"P{i}", prompt_tokens)
        serving.step()
    serving.run()
    return max(serving.longest_gap(name) for name in names)


# %%
beside = {length: longest_gap(bench(), length) for length in (10, 100, 1000)}
print("mixed, budget 16, twelve prompts arrive:")
for length, gap in beside.items():
    print(f"  prompts of {length:>5,} tokens: longest gap of A {gap}")
unguarded = {"policy": "continuous", "max_num_batched_tokens": 1000, "max_decode_gap": 10**6}
without = {count: longest_gap(bench(**unguarded), 1000, prompts=count) for count in (1, 4, 12)}
print("whole prompts first and no guard, prompts of 1,000 tokens:")
for count, gap in without.items():
    print(f"  {count:>2} of them arrive: longest gap of A {gap}")
assert list(without.values()) == sorted(set(without.values()))
reveal("21.3-p3", beside[1000] > beside[10])

# %% [markdown]
# Under `mixed` the gap stays where it is whatever the prompts are; a long prompt pays with its own TTFT instead. The
# lower half is the opposite: whole prompts go first and nothing limits that, so the gap grows with what arrives. In
# *Break it* below it grows with the length of a single prompt.
#
# ### The bound
#
# For `mixed` the bound can be derived. Let $B$ be the budget of a step in positions and $n$ the number of requests
# that decode.
#
# 1. In every step decodes come first, and each takes one position. If $n < B$, all of them are served in every step:
#    the longest gap is **1**, and at least one position is left for prompts.
# 2. If $n \ge B$, those who have waited longest go first. $k = \lceil n/B \rceil$ steps serve everybody once.
# 3. But then nothing is left for prompts, and they would starve. So after $g - 1$ such steps ($g$ is
#    `max_prefill_gap`, here 8) one step serves prompts first. While $k$ steps of decodes go by, that happens at most
#    $\lceil k/(g-1) \rceil$ times. With $n = 100$ and $B = 16$: $k = 7$, and $\lceil 7/7 \rceil = 1$ more makes 8.
#
# $$\text{longest gap} \le \begin{cases} 1 & n < B \\ k + \lceil k/(g-1) \rceil & n \ge B \end{cases}
# \qquad k = \lceil n/B \rceil$$
#
# The length of the prompts does not occur in it. In the package this is `longest_decode_gap`. The next cell holds it
# against the scheduler:

# %%
print("mixed, budget 16          bound   longest gap beside prompts of 10, 100 and 1,000 tokens")
for decoding in (1, 15, 16, 40, 100):
    bound = longest_decode_gap(SchedulerConfig(max_num_batched_tokens=BUDGET), decoding)
    found = [longest_gap(bench(), length, decoding) for length in (10, 100, 1000)]
    print(f"{decoding:>3} decoding {bound:>18}   {found}")
    assert max(found) <= bound

# %% [markdown]
# The four policies side by side:
#
# | policy | longest gap between two outputs, in steps | since |
# |---|---|---|
# | `static`, `continuous` | `max_decode_gap` · $k$ | after `max_decode_gap` - 1 steps of prompts in a row one of decodes must come |
# | `alternating` | $2k$ | every second step is one of decodes |
# | `mixed` | 1 as long as $n < B$, then $k + \lceil k/(g-1) \rceil$ | decodes come first, and prompts after $g - 1$ steps without any |
#
# ## How large should the group be?
#
# More seats, more requests in a step. Sixteen requests arrive at once, with a pool that has room for all. **TPOT**,
# the time per output token, is the mean gap of a request.

# %% tags=["nbval-ignore-output"]
batch = generate(16, arrivals=AtOnce(), prompt_tokens=Uniform(6, 20), output_tokens=Uniform(10, 30),
                 vocab_size=config.vocab_size, seed=2)  # fmt: skip
seats_tried = {}
print("seats   outputs a second   time between outputs (TPOT), median")
for seats in (1, 4, 16):
    llm = make(max_num_seqs=seats, num_blocks=256)
    for _round in range(3):
        with ScheduleLog(llm.engine.scheduler) as log:
            played = play(llm.engine, batch)
        if not _round or played.duration < seats_tried[seats][1].duration:
            seats_tried[seats] = log, played
    log, played = seats_tried[seats]
    rate = sum(len(r.output_token_ids) for r in played.requests) / played.duration
    tpot = 1e3 * statistics.median(played.latencies("tpot").values())
    print(f"{seats:>5} {rate:>18.0f} {tpot:>25.2f} ms")

# %% [markdown]
# (The quickest of three runs each, under `mixed`.) A fuller step gives more outputs a second as long as the machine has
# something left to give, and takes longer, so that each reader waits longer for the next word. Neither is promised.
# How far the first goes on, and what the second costs, is this machine's answer for this model, and on a machine
# with other work the figures jump.
#
# What grows in any case is the number of blocks in use, and a pool is as large as it is. Requests are admitted while
# there is room for the next part of their prompt; then all of them grow. Two predictions, before you scroll on:

# %%
predict({"21.3-p4": None, "21.3-p5": None})

# %% [markdown]
# A **preemption** is a running request that has its blocks taken away for another one. The upper half of the next
# table is the runs above; the lower half serves the same sixteen requests from a pool of 32 blocks.

# %% tags=["claim-21.3-i"]
least = sum(len(a.prompt_token_ids) + a.max_tokens - 1 for a in batch)
print("blocks    admission   seats   steps   requests   most blocks   preemptions   positions")
print("in pool                               a step     in use                      computed")
print(f"(each position computed once would be {least:,} positions)")
rows = {}
for blocks, admission, tried in (
    (256, "current", (1, 4, 16)), (32, "current", (2, 4, 8, 16)), (32, "reserved", (16,))
):  # fmt: skip
    for seats in tried:
        if blocks == 256:
            log, played = seats_tried[seats]
        else:
            log, played = logged(batch, max_num_seqs=seats, num_blocks=blocks, admission=admission)
        peak = blocks - min(s.free_blocks for s in log.steps)
        share = sum(s.work.rows for s in played.steps) / len(played.steps)
        computed = sum(s.work.tokens for s in played.steps)
        lost = sum(r.num_preemptions for r in played.requests)
        rows[blocks, admission, seats] = share, peak, lost, computed
        print(f"{blocks:>7}   {admission:<9} {seats:>7} {len(played.steps):>7} {share:>10.1f} {peak:>13} "
              f"{lost:>13} {computed:>11}")  # fmt: skip
        outputs = [request.output_token_ids for request in played.requests]
        assert outputs == [
            r.output_token_ids for r in seats_tried[1][1].requests
        ]  # nothing is lost

one_seat, few_seats, many_seats = (rows[256, "current", seats] for seats in (1, 4, 16))
assert one_seat[0] < few_seats[0] < many_seats[0] and one_seat[1] < few_seats[1] < many_seats[1]
assert all(rows[256, "current", seats][2:] == (0, least) for seats in (1, 4, 16))
assert rows[32, "current", 2][2:] == rows[32, "reserved", 16][2:] == (0, least)
assert rows[32, "current", 16][2] > 0 and rows[32, "current", 16][3] > 1.2 * least

# %% [markdown]
# First the three rows of the large pool: more seats, fuller steps, more blocks in use. Then the small one. With two
# seats every position is computed once. With more, whoever has room for a prompt is admitted, and all of them grow,
# until a block is needed and none is left. No output is lost or changes. From 8 seats to 16 the number of steps stays
# the same, and more is computed again.
#
# <details><summary>What happens when none is left</summary>
# The request that came last loses its blocks. It waits, and is computed again when there is room: prompt and outputs so
# far, as if they were one prompt. The extra positions are the price.
# </details>
#
# That is what comes of admitting by **current** occupancy. **Reserved** admission also counts what everybody who runs
# may still grow to. Nobody is preempted then, and fewer run together. Between the two lies a `watermark`: a share of
# the pool that every admission leaves free.
#
# The same on three requests that begin with two blocks each and end with four, in a pool of nine (**x** marks waiting
# after a preemption):

# %%
three = generate(
    3, arrivals=AtOnce(), prompt_tokens=7, output_tokens=10, vocab_size=config.vocab_size
)
grows, holds = (logged(three, num_blocks=9, admission=a)[0] for a in ("current", "reserved"))
assert [r.steps_in("preempted") > 0 for r in grows.requests.values()] == [False, False, True]
assert all(r.steps_in("preempted") == 0 for r in holds.requests.values())
schedule_timeline(grows, holds, titles=["admission current", "admission reserved"])

# %% [markdown]
# Four cases of a full pool. First: A has a prompt of 100 tokens and the whole pool. Somebody more urgent comes, and A
# loses its blocks.

# %%
llm = make(num_blocks=34, order="priority")
(a,) = llm.engine.add_request(LONG[:100], exactly(34), request_id="A", priority=1)
while len(a.output_token_ids) < 29:
    llm.engine.step()
with ScheduleLog(llm.engine.scheduler) as log:  # somebody more urgent needs the last block
    _ = llm.engine.add_request([1, 2, 3, 4], exactly(3), request_id="urgent", priority=0)
    llm.engine.run()
record = log.requests["A"]
again = next(span for span in record.spans if span.kind == "prefill")
given = 29 + sum(step < again.first for step in record.selected_steps)
(undisturbed,) = make().generate([LONG[:100]], exactly(34))
same = tuple(a.output_token_ids) == undisturbed.outputs[0].token_ids
print("A, whose blocks were taken away:")
print(f"A had given {given} outputs when it lost its blocks; until it goes on, it computes")
print(f"{again.tokens} positions: {99 + given} again, and the last output for the first time")
print(f"its 34 outputs are those of an undisturbed run: {same}")
assert a.num_preemptions == 1 and given == 30 and same and again.tokens == 100 + given
reveal("21.3-p5", again.tokens)

# %% [markdown]
# Second: A comes just before B, both begin, and they do not fit together.

# %%
serving = Serving(num_blocks=2047, block_size=1, max_num_batched_tokens=256, prefill_chunk=128)
with ScheduleLog(serving.engine.scheduler) as pair:
    serving.ask("A", 1600, outputs=3)
    serving.ask("B", 1200, outputs=3)
    serving.run()
lost = [name for name, record in pair.requests.items() if record.steps_in("preempted")]
print("A and B in one pool:")
print(f"in the first step: {', '.join(sorted(serving.steps[0]))}; lost its blocks: {', '.join(lost)}; "
      f"ended: {', '.join(sorted(serving.ended))}")  # fmt: skip
assert serving.ended == {"A": "length", "B": "length"} and lost == ["B"]
reveal("21.3-p4", {"A": "d", "B": "c"}[lost[0]])

# %% [markdown]
# Third, a request that can never fit; and fourth, one that fits, and grows out of the pool all alone.

# %%
small = make(num_blocks=8)
try:
    small.generate([[5] * 40], exactly(4))
except ValueError as error:
    print(textwrap.fill(f"refused when it comes: {error}", 88, subsequent_indent="    "))
else:
    raise AssertionError("a prompt larger than the pool was accepted")
((grown,),) = (answer.outputs for answer in small.generate([[5] * 30], exactly(20)))
print(f"{len(grown.token_ids)} of 20 outputs, then {grown.finish_reason!r}: {grown.stop_reason}")
assert grown.finish_reason == "capacity" and len(grown.token_ids) == 3

# %% [markdown]
# ### Who is next in the queue
#
# The rule so far was **FCFS**, first come first served: if the head of the queue does not fit, everybody behind it
# waits, even somebody small who would fit: head-of-line blocking again. Two knobs loosen that. `max_bypass` says how
# often a request that does not fit may be overtaken. `order="priority"` serves the lower number first; to keep the
# others from starving, steps of waiting count (`priority_ageing` of them weigh as much as one level).
#
# In a pool of 8 blocks R runs in 4, L needs 5, and behind L stand four small ones that need one each.

# %%
print("rule                                   first step of L   a   b   c   d")
begins = {}
for rule, settings in {
    "FCFS, nobody overtakes": {},
    "overtaken twice at most (max_bypass=2)": {"max_bypass": 2},
    "the small ones are urgent (priority)": {"order": "priority"},
}.items():
    llm = make(num_blocks=8, **settings)
    with ScheduleLog(llm.engine.scheduler) as log:
        for name, length, outputs in (("R", 13, 4), ("L", 20, 1), *((n, 3, 1) for n in "abcd")):
            rank = 1 if name == "L" else 0
            _ = llm.engine.add_request(
                LONG[:length], exactly(outputs), request_id=name, priority=rank
            )
        llm.engine.run()
    begins[rule] = {n: r.selected_steps[0] for n, r in log.requests.items()}
    print(f"{rule:<38} {begins[rule]['L']:>15} " + "".join(f"{begins[rule][n]:>4}" for n in "abcd"))
strict, bypassed, urgent = begins.values()
assert min(strict[n] for n in "abcd") >= strict["L"] > 1
assert bypassed["a"] == bypassed["b"] == 1 and bypassed["c"] >= bypassed["L"]
assert all(urgent[n] == 1 for n in "abcd")

# %% [markdown]
# ## Another place for K/V
#
# Preemption throws K/V away and computes them again. The alternative is to move them: **offloading** copies blocks to
# another **tier** of memory, the host's (CPU) if the pool is in a GPU's, and back before they are read. It changes
# where K/V lie, not what attention sees.
#
# It is made for requests that are **inactive**: nobody needs their K/V until they go on. Below A is put aside in the
# middle of its answer (`suspend`), others fill the pool with their own K/V, and A goes on (`resume`).

# %% tags=["claim-21.3-j"]
llm = make(num_blocks=16, cpu_blocks=32)
scheduler, (a,) = (
    llm.engine.scheduler,
    llm.engine.add_request(encode(STORY), exactly(20), request_id="A"),
)
for _ in range(6):
    llm.engine.step()
length, table = a.num_computed_tokens, scheduler.manager.block_table("A")
before = torch.stack(llm.cache.read(table, length))
llm.suspend("A")
_ = llm.generate([LONG[:50]], exactly(8))  # 57 positions of 64: A's blocks are overwritten
overwritten = not torch.equal(before, torch.stack(llm.cache.read(table, length)))
llm.engine.add_request(LONG[:9], exactly(20), request_id="other")
llm.engine.step()
llm.resume("A")
for _ in range(4):
    llm.engine.step()
new_table = scheduler.manager.block_table("A")
after = torch.stack(llm.cache.read(new_table, length))
llm.engine.run()
stats, block = llm.offload_stats, llm.runner.host_tier.block_nbytes
(undisturbed,) = make().generate(STORY, exactly(20))
same = tuple(a.output_token_ids) == undisturbed.outputs[0].token_ids
print(
    f"A put aside after {length} positions in blocks {table}; these were overwritten: {overwritten}"
)
print(
    f"back in blocks       {new_table[: len(table)]}; keys and values equal to the bit: {torch.equal(before, after)}"
)
print(f"stored {stats.blocks_stored} blocks, {stats.bytes_stored:,} bytes; loaded {stats.blocks_loaded}, "
      f"{stats.bytes_loaded:,} bytes; A's outputs unchanged: {same}")  # fmt: skip
assert overwritten and torch.equal(before, after) and same and new_table[: len(table)] != table
assert stats.bytes_stored == stats.bytes_loaded == len(table) * block

# %% [markdown]
# A tier may have too little room, here one block. Then it refuses, and A is computed again:

# %%
full = make(num_blocks=16, cpu_blocks=1)  # a tier with too little room: A is computed again
(a,) = full.engine.add_request(encode(STORY), exactly(20), request_id="A")
for _ in range(6):
    full.engine.step()
full.suspend("A")
full.resume("A")
full.engine.run()
same = tuple(a.output_token_ids) == undisturbed.outputs[0].token_ids
print(f"requests refused by the tier: {full.offload_stats.refused}; outputs unchanged: {same}")
assert full.offload_stats.refused == 1 and same

# %% [markdown]
# And what if the blocks of a request that keeps *running* lie on the host between its steps? Here with a prompt of 40
# positions and 6 outputs:

# %%
active = make(num_blocks=32)
active.engine.runner = moved = ActiveOffload(active.runner)
(out,) = active.generate([LONG[:40]], exactly(6))
loaded = [r.bytes_loaded for r in moved.reports]
print("bytes loaded in each step:", " ".join(f"{n:,}" for n in loaded))
print(
    f"in all {moved.stats.bytes_loaded:,} bytes to the device; the largest load of one step is "
    f"{max(loaded):,}"
)
assert out.outputs[0].token_ids == make().generate([LONG[:40]], exactly(6))[0].outputs[0].token_ids
assert loaded == [0, 10 * block, *[11 * block] * 4] and moved.stats.bytes_loaded > 4 * 11 * block

# %% [markdown]
# An inactive request pays once in each direction. Active blocks are another matter: with full attention every old
# position is read in every step, however old it is. Kept elsewhere, all of them have to be fetched for each single
# output.
#
# What does the copy cost here, against computing the same positions again?

# %% tags=["nbval-ignore-output"]
print("positions   bytes one way   store     load      compute again")
for length in (128, 512, 960):
    llm = make(num_blocks=256, cpu_blocks=256)
    prompt = [300 + t % 500 for t in range(length)]
    (a,) = llm.engine.add_request(prompt, exactly(4), request_id="A")
    start = time.perf_counter()
    llm.engine.step()
    computing = time.perf_counter() - start
    llm.suspend("A")
    llm.engine.step()
    llm.resume("A")
    llm.engine.run()
    s = llm.offload_stats
    print(f"{length:>9} {s.bytes_stored:>15,} {1e3 * s.seconds_storing:>6.2f} ms {1e3 * s.seconds_loading:>6.2f} ms "
          f"{1e3 * computing:>12.1f} ms")  # fmt: skip
print(f"pool on {llm.cache.key_cache.device}, tier on {llm.runner.host_tier.blocks.device}")

# %% [markdown]
# Without a GPU both tiers are the same memory, so this copy is as cheap as one can be; with one it goes over the bus
# between the two. The comparison is the same: bytes divided by the rate of copying, against positions divided by the
# rate of computing.
#
# ### Two requests that do not fit together
#
# A has run two steps when B arrives, and both together need more blocks than there are. Six ways to deal with
# it, each a run of the real engine, on the same two requests. A asks what Tom plays. B asks for the colour of a key,
# and has longer notes. Steps are counted from each one's own arrival. Bytes moved are those of both directions, in
# whole blocks of four positions.
#
# - **delay**: B begins when it fits beside all that A can grow to (reserved admission);
# - **reject**: B is refused where it does not fit beside all that A can grow to;
# - **shorten**: B comes without its two oldest sentences, and fits;
# - **recompute**: both begin, and who came last loses its blocks and is computed again;
# - **offload**: the same, but its blocks go to the CPU tier and come back;
# - **put A aside**: A is inactive while B runs, its K/V wait in the CPU tier.

# %% tags=["claim-21.3-k"]
A_ASKS = tiny.prompt("Tom plays chess. Mia is in the garden.", "What does Tom play?", rules="")
OLD, NEWER = "The key is red. Ada likes soup.", "Mia is in the garden. Tom plays chess."
B_ASKS, B_SHORT = (
    tiny.prompt(notes, "What colour is the key?", rules="")
    for notes in (f"{OLD} {NEWER} The lamp is blue.", NEWER)
)
ways = two_too_large(model, encode(A_ASKS), encode(B_ASKS), encode(B_SHORT), exactly(12),
                     block_size=4, num_blocks=17)  # fmt: skip
right = [make().generate(p, exactly(12))[0].outputs[0].token_ids for p in (A_ASKS, B_ASKS)]
print("             prompt positions     bytes  computed  first output   ended after  output")
print("             admitted             moved  again     after (steps)  (steps)      changed")
print("way            A       B                              A     B       A     B     A     B")
changed = {}
for name, way in ways.items():
    a, b = way.a, way.b
    changed[name] = ["no" if s.token_ids == r else "none" if not s.token_ids else "yes"
                     for s, r in zip((a, b), right, strict=True)]  # fmt: skip
    shown = ["-" if x is None else x for x in (a.ttft, b.ttft, a.end, b.end)]
    print(f"{name:<12} {a.prompt:>3} {b.prompt:>7} {way.nbytes:>13,} {a.recomputed + b.recomputed:>9} "
          "{:>6} {:>5} {:>7} {:>5}".format(*shown) + f" {changed[name][0]:>5} {changed[name][1]:>5}")  # fmt: skip
    assert way.peak <= 17
delay, reject, shorten, recompute, offload, aside = ways.values()
assert delay.b.ttft > 5 * offload.b.ttft and delay.b.end > offload.b.end  # B waits for A's end
assert reject.b.prompt == 0 and changed["reject"] == ["no", "none"]
assert shorten.b.prompt < delay.b.prompt and changed["shorten"] == ["no", "yes"]
assert recompute.b.recomputed > 0 == offload.b.recomputed and recompute.nbytes == 0 < offload.nbytes
assert aside.a.end > delay.a.end and aside.b.end < delay.b.end and aside.nbytes > 0
assert all(changed[n] == ["no", "no"] for n in ("delay", "recompute", "offload", "put A aside"))

# %% [markdown]
# ("-": it never came to that.) No row is the best one. Delay costs B its time; reject costs B its answer; shorten
# gives another answer, since the key's colour stood in what was cut; recompute costs positions, offload bytes; and
# whoever is put aside pays for the other. A report that shows one of these columns alone hides who pays. (A load
# takes a step of its own here, so in steps offload looks slower than recompute. In time it need not be: the table
# before this one has both prices.)
#
# ## A stream of arrivals
#
# Requests come in **bursts**: some together, then none for a while. The same arrivals under two policies, with a
# budget of 60 positions a step and prompts of up to 60; `mixed` takes at most 12 positions of one prompt in a step.
# Columns without anybody are steps in which nothing was to be done; the counts leave them out.
# Look for the steps that the decoding rows miss (**i**) above, and for the prompts that take more steps (**P**) below.

# %%
bursts = generate(10, arrivals=OnOff(1.0, on=6, off=8), prompt_tokens=Uniform(8, 60), output_tokens=Uniform(4, 12),
                  vocab_size=config.vocab_size, seed=11)  # fmt: skip
ROOM = {"max_num_seqs": 8, "num_blocks": 200, "max_num_batched_tokens": 60}
runs_of = {
    "continuous": logged(bursts, policy="continuous", **ROOM)[0],
    "mixed, chunks of 12": logged(bursts, policy="mixed", prefill_chunk=12, **ROOM)[0],
}
worst = []
for name, log in runs_of.items():
    worst.append(max(max(record.step_gaps, default=0) for record in log.requests.values()))
    firsts = [record.ttft for record in log.requests.values()]
    print(
        f"{name:<20} {len(log.steps)} steps, longest gap {worst[-1]}, longest TTFT {max(firsts):.0f} steps"
    )
assert worst[1] == 1 < worst[0]
schedule_timeline(*runs_of.values(), titles=list(runs_of))

# %% [markdown]
# ### What does not fit on this machine: simulated
#
# Hundreds of requests, many settings: that would take long to measure. So the engine can run without its model: the
# scheduler, the queue and the blocks are the real ones, and the clock moves on by what a **cost model** says a step
# takes:
#
#     seconds of a step = per_step + per_row * rows + per_token * positions
#                         + per_pair * pairs + per_key * keys + per_byte * bytes moved
#
# Rows are the requests in the step, positions what it computes of all of them; a pair is one query that meets one
# key; keys are those that the step reads. Everything made so is labelled as **simulated**. The six costs, `per_step` to `per_byte`,
# are fitted to a run that was measured here, and the first thing to print is how far the simulation of that very run
# (*calibrated*) is from the measurement. The second line is a workload that the fit has not seen (*held out*): other
# lengths, and in bursts.

# %% tags=["nbval-ignore-output"]
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.measure.simulator_error import compare, half_at_work, workloads

measured = LLM(model, num_blocks=512, max_num_seqs=16, max_num_batched_tokens=256)
made.append(measured.engine.scheduler)
loads = workloads(24, config.vocab_size, seed=3)
_ = half_at_work(measured, loads["calibrated"])  # the first run also warms up
comparison = compare(measured, loads, half_at_work(measured, loads["calibrated"]))
cost = comparison.calibration.cost
terms = {name: 1e6 * value for name, value in cost.to_dict().items() if name.startswith("per_")}
print("fitted, in microseconds:")
print("  " + ", ".join(f"{name} {value:.3g}" for name, value in terms.items()))
print("SIMULATED against measured, median error of a request's")
for name in loads:
    e = comparison.errors(name)
    print(
        f"  {name:<11} end-to-end time {e['e2el']:.0%}, TTFT {e['ttft']:.0%}, time between outputs {e['tpot']:.0%}"
    )

# %% [markdown]
# A cost of 0 says that the fit could not tell this term from the others in the run it was given, not that the work is
# free. A figure of a simulation is as good as its error, and as its workload. Two hundred requests under two policies:

# %% tags=["nbval-ignore-output"]
crowd = generate(200, arrivals=Poisson(1.0), prompt_tokens=Uniform(100, 800), output_tokens=Uniform(20, 80),
                 vocab_size=config.vocab_size, seed=8)  # fmt: skip


def simulate(stretch, **settings):
    """The crowd in a pool of 65,536 positions; stretch: seconds between two arrivals, on average."""
    scheduler = Scheduler(
        KVCacheManager(BlockPool(4096), 16), SchedulerConfig(max_num_seqs=32, **settings)
    )
    made.append(scheduler)
    return play(SimulatedEngine(scheduler, cost), crowd, stretch=stretch)


WHOLE, CHUNKED = {"policy": "continuous"}, {"policy": "mixed", "max_num_batched_tokens": 128}
apart = simulate(1e-6, **CHUNKED).duration / len(crowd) / 0.6  # so that it is busy 60% of the time
simulated = {}
print(
    f"SIMULATED: {len(crowd)} requests, prompts of 100 to 800 tokens   TTFT, median   longest gap"
)
for name, settings in (("continuous, whole prompts", WHOLE), ("mixed, budget 128", CHUNKED)):
    run = simulated[name] = simulate(apart, **settings)
    ttft = 1e3 * statistics.median(run.latencies("ttft").values())
    worst = 1e3 * max(max(gaps) for gaps in run.gaps().values())
    print(f"  {name:<56} {ttft:>8.0f} ms {worst:>10.1f} ms")

# %% [markdown]
# Hold the difference of the two TTFTs against the error of the TTFT above: a smaller one says nothing. What we take from the simulation is only
# what does not hang on the fitted costs:

# %%
most = {}
for name, run in simulated.items():
    count = sum(len(r.output_token_ids) for r in run.requests)
    print(f"{name:<26} simulated: {run.simulated}, {len(run.requests)} requests, {count:,} outputs")
    assert run.simulated and all(r.simulated and r.finish_reason == "length" for r in run.requests)
    most[name] = max(step.work.tokens for step in run.steps)
    print(f"{'':<26} a step of more than 128 positions, for all to wait for: {most[name] > 128}")
by_whole, by_chunks = most.values()
assert by_chunks == 128 < by_whole

# %% [markdown]
# ## Turn the knobs
#
# Each change below is a new run of the real engine on the same arrivals; the picture under it is that run. Try the
# presets first. Then find out:
#
# - "an empty seat; C waits": what does a third seat change under static, what under continuous?
# - "chat and long prompts": under which policies does the chat never miss a step? What do the long prompts pay for it?
# - "a burst in a small pool": is a larger pool always safer under current admission? Try 12, 16, 20 and 24 blocks, and
#   look who is admitted when.

# %%
knobs = schedule_knobs(make())
knobs

# %%
knobs.check()  # raises what went wrong in the editor, if anything did; knobs.set(...) keeps errors for it

# %% [markdown]
# <details><summary>Answers</summary>
# (1) With a third seat both policies run alike, in 4 steps: C needs nobody's seat, so there is no group to wait for.
# (2) Under static and mixed. Static pays most: the chat is a group of its own, and the long prompts wait 11 to 14 steps
# for its end. Under mixed their first outputs come 3 to 6 steps after their arrival, under continuous 1 to 4, and there
# the chat has a gap of 5. (3) No: 1, 0, 2 and 0 preemptions. With 20 blocks more requests are let in at once than with 16,
# and what they grow to does not fit. Reserved admission has none in any of these pools, and lets people wait longer.
# </details>
#
# ## Break it
#
# **Prompts always go first.** A few lines of the policy are exchanged: whatever budget there is goes to prompts, and
# decodes get what is left. One prompt arrives while A decodes.

# %%
from kvlab.exercises import errors_21_3

print(inspect.getsource(errors_21_3.PromptsFirst))
print("budget 16, one prompt of     16    160    960 tokens")
table = {}
for kind, name in ((Serving, "the engine's own"), (errors_21_3.PromptsFirst, "prompts first")):
    table[name] = [longest_gap(bench(kind), length, prompts=1) for length in (16, 160, 960)]
    print(
        f"{name:<22} "
        + "".join(f"{gap:>7}" for gap in table[name])
        + "   longest gap of A, in steps"
    )
assert table["the engine's own"] == [1, 1, 1]
assert table["prompts first"] == [n // BUDGET + 1 for n in (16, 160, 960)]

# %% [markdown]
# The gap grows with the prompt, step for step. Nothing crashes, and every answer is right: such a bug shows in delays
# alone.
#
# **An admission rule that dead-ends.** A rule admits whoever's first chunk fits, and whoever runs short keeps its
# blocks and waits for others to end. It sounds considerate. A pool of 2,047 blocks of one position (2,048, of which
# vLLM keeps one aside), A with a prompt of 1,600 positions and B with 1,200:

# %%
print(inspect.getsource(errors_21_3._Patient._schedule_running))
for kind, name in ((Serving, "the engine's own"), (errors_21_3.FirstChunkFits, "whoever fits now")):
    serving = kind(num_blocks=2047, block_size=1, max_num_batched_tokens=256, prefill_chunk=128)
    serving.ask("A", 1600, outputs=3)
    serving.ask("B", 1200, outputs=3)
    serving.run()
    idle = sum(not step for step in serving.steps[-2:])
    print(f"{name}: {len(serving.steps)} steps, ended {sorted(serving.ended)},")
    print(f"    still running {serving.running}, free blocks {serving.free}, "
          f"idle steps at the end {idle}")  # fmt: skip
assert serving.running == ["A", "B"] and idle == 2 and serving.ended == {}

# %% [markdown]
# 127 blocks are free, and each of the two needs 128 for its next chunk. Each holds what the other lacks, and neither
# gives anything back: a **deadlock**. Admitting on a promise that the pool cannot keep is only safe with a way back,
# and that is preemption. Below you write the checks that find such rules.
#
# ## How others name it
#
# | here | vLLM (V1) | SGLang | TensorRT-LLM | transformers, continuous batching |
# |---|---|---|---|---|
# | `max_num_batched_tokens` | same name | `--max-prefill-tokens` for prompts (16384) | `max_num_tokens` | `max_batch_tokens` |
# | `max_num_seqs` | same name | `--max-running-requests` | `max_batch_size` | `max_requests_per_batch` |
# | `prefill_chunk` | `long_prefill_token_threshold`, and what the budget leaves | `--chunked-prefill-size` | `context_chunking_policy` | what the budget leaves |
# | `policy="mixed"` | decodes first, then chunks, one step (`enable_chunked_prefill`) | | | scheduler `fifo` (decodes first) |
# | prompts first | | | | scheduler `prefill_first` |
# | `order` | `policy`: `fcfs`, `priority` | `--schedule-policy`: `fcfs`, `lpm` and others | `waiting_queue_policy` | order of arrival |
# | `admission="current"` | yes, with preemption | between the two: `--schedule-conservativeness` (1.0) | `MAX_UTILIZATION` | yes |
# | `admission="reserved"` | | | `GUARANTEED_NO_EVICT` (default) | |
# | `policy="static"` | | | `STATIC_BATCH` (legacy) | |
# | `watermark` | | | | `safety_margin` |
# | preemption | by recompute | "retract" | pause, under `MAX_UTILIZATION` | "soft reset", or `cpu_offload_space` |
#
# **lpm** is longest prefix match: first whom the prefix cache helps most ([section 21.4](21_4_prefix.ipynb)). SGLang
# has priorities as well, behind `--enable-priority-scheduling`; a lower number is the more urgent one, as here, with
# `--schedule-low-priority-values-first`. Figures in brackets are defaults, and what stands in an empty field was not
# looked up.
#
# Sources. vLLM: `vllm.config.scheduler` of the documentation of 0.13.0, "Optimization and Tuning" of 0.17.1. SGLang:
# `docs/advanced_features/server_arguments.md` of sgl-project/sglang at commit 004813e, "Hyperparameter Tuning" of the
# same documentation. TensorRT-LLM: `SchedulerConfig` of the documentation of 1.4.0rc4, "Useful Runtime Options" of
# its performance guide. transformers 5.24.0: `ContinuousBatchingConfig`,
# `generation/continuous_batching/scheduler.py` and `offloading_manager.py`.
#
# ## Summary
#
# - A step is one pass over what the scheduler puts into it. Members share the pass and nothing else: history, positions, block
#   table, random numbers and stopping are each one's own.
# - Static batching waits for the slowest of a group. Continuous batching changes the group between steps; rows move,
#   positions stay.
# - Chunks give the K/V and logits of the whole prompt, to rounding. They move waiting from those who decode to the one who
#   prefills, and cost steps.
# - In mixed steps a decode has an output in every step while fewer decode than the budget has positions, whatever
#   prompts arrive.
# - Admitting by what is free now runs the pool dry later; preemption loses no output, but computes positions again. Reserving
#   avoids that and runs fewer.
# - Offloading an inactive request moves its bytes twice. Offloading active blocks moves them at every step.
#
# **Check yourself.** (1) Chunks of 5, a prompt of 12 tokens, alternating: which steps lead to the first output? (2) A
# budget of 8, five requests decode under `mixed`, a prompt of 30 tokens arrives: how many positions of it does the
# first step compute? (3) The same with eight that decode: what is the bound of their gap, if `max_prefill_gap` is 8?
# (4) A request of 60 processed positions in blocks of 4 goes to the CPU tier and back; a block has 8,192 bytes. How
# many bytes move? (5) Somebody measures that 32 seats give more outputs a second than 8. What else should the report
# show?
#
# <details><summary>Answers</summary>
# (1) P5 D P5 D P2. (2) 8 - 5 = 3. (3) k = 1, so 1 + 1 = 2 steps. (4) 15 blocks, twice: 245,760. (5) The time between
# two outputs of one request, waits, blocks in use, and how many positions were computed again.
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.3-1")` gives the first of three hints,
# `hint("21.3-1", 2)` the second; `solution("21.3-1")` shows a worked solution. What is right is computed by the
# scheduler when you ask.

# %%
check({"21.3-1": None, "21.3-2": None, "21.3-3": None})


# %%
def schedule_waiting(waiting, budget, seats, free, block_size, chunked):
    """The positions that each of `waiting` computes in this step; 0 for those that go on waiting.

    waiting: [num_tokens, num_cached] of each, the first to be admitted first.
    """
    ...


check("21.3-4", schedule_waiting)

# %% [markdown]
# The others drive `Serving`, the bench from above:

# %%
s = Serving(num_blocks=1000, block_size=4, policy="mixed", max_num_batched_tokens=8)
s.ask("A", 2, outputs=20)  # a prompt of 2 tokens, 20 outputs
print("first step:", s.step())
s.ask("C", 12)
s.run()
print(
    "C:",
    s.order("C"),
    "  A's longest gap:",
    s.longest_gap("A"),
    "  free:",
    s.free,
    "  ended:",
    s.ended,
)


# %%
def unfair(Serving, prompts):
    """A's longest gap, in steps, with settings under which it grows with `prompts`."""
    ...


check("21.3-5", unfair)


# %%
def fair(Serving):
    """True if each request that decodes gets an output in every step."""
    ...


check("21.3-6", fair)

# %%
check({"21.3-7": None, "21.3-9": None})


# %%
def never_stands_still(Serving):
    """True if two steps in a row never compute nothing while somebody has not ended."""
    ...


check("21.3-8", never_stands_still)

# %%
for scheduler in made:
    scheduler.check_invariants()
    assert not scheduler.has_unfinished_requests() and not scheduler.suspended
    pools = [scheduler.manager.pool]
    if scheduler.offload is not None:
        pools.append(scheduler.offload.tier.pool)
    assert all(pool.num_free_blocks == pool.num_blocks for pool in pools)
print("nothing leaked: no request is left, every block of the pools and CPU tiers is free")
