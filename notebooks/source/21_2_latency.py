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
# # 21.2 Latency: what to time, and what sets the limit
#
# **A server says that it answers in 180 ms. Between which two events, seen by whom, with how many others at work? And
# could this machine do better at all?**
#
# 45 minutes · any laptop, no GPU, no network
#
# Run the page cell by cell with <kbd>Shift</kbd>+<kbd>Enter</kbd>, from top to bottom. Where a cell begins with
# `predict`, write your answer before you run on. **Run ▸ Run All Cells** runs everything at once, in about half a minute,
# most of it spent on timing your machine, and shows the answers. Until its cell has run, a view is a printed table of what it shows.
#
# The words you need. A model reads a text as **tokens**, numbered by **position** from 0. For each position it computes
# **keys and values** (K/V), which later positions read and the **KV cache** keeps. A **pass** is one run of the model
# over new positions. It ends in **logits**, scores of all tokens, from which the next token is **selected**. The
# passes over a prompt are its **prefill**; after that each pass **decodes**: it reads the token selected last, and gives
# one more. An **engine** serves many requests, in **steps**; one step is one pass for everybody who takes part.
#
# A **latency** is the time between two events of one request. A **boundary** is the place where a clock stands and
# sees events: inside the engine, at the server's door, or at the client who asked. Of many latencies, **p99**, the 99th
# percentile, is the value that 99 of 100 do not exceed; p50 is the median.
#
# Where the page asks for a prediction, write it in place of `None`, run that cell, and go on: a later cell, which calls
# `reveal`, shows it beside what the run gave.
#
# After this section you can
#
# - say what a time to first token includes, at each boundary, and take a real one apart;
# - compute time per output token, gaps and throughput from events, and say which of them answers which question;
# - place prefill and decode of your own machine between two limits that you measured;
# - read a latency report, and find what it hides.

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
import textwrap
import time

import torch
from IPython.display import Markdown

from kvlab import (
    LLM,
    BlockPool,
    KVCacheManager,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    SimulatedEngine,
    play,
    tiny,
)
from kvlab.core.arrivals import AtOnce, Poisson
from kvlab.core.bench_serve import markdown as compared_with_bench_serve
from kvlab.core.latency_record import records_of
from kvlab.core.latency_summary import Targets, summarize
from kvlab.core.lengths import LogNormal
from kvlab.core.metrics import RequestTimes
from kvlab.core.step_cost import CostModel
from kvlab.core.ttft import FirstTokenStamps
from kvlab.core.workload import generate
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.exercises.seven_reports import REPORTS, conditions, recorded
from kvlab.measure.ceilings import measure_ceilings
from kvlab.measure.load import LoadRequest, load
from kvlab.measure.other_engine import measure_both, recorded_both
from kvlab.measure.phases import Case, measure_phases
from kvlab.measure.random_decoder import random_50m
from kvlab.measure.roofline import bound_seconds, place
from kvlab.measure.step_parts import step_parts
from kvlab.measure.step_work import case_nbytes
from kvlab.serve import Server
from kvlab.widgets import latency_report, phase_timer, phases_view, ttft_parts

_ = torch.set_num_threads(1)  # one thread: times are steadier

llm = LLM("tiny")
engines = []  # of this page; the last cell looks whether one of them leaked
PROMPT = tiny.prompt("Ada likes soup. Tom likes plums.", "What does Tom like?")


def ms(seconds):
    return f"{1000 * seconds:.0f} ms"


# %% [markdown]
# ## One request, three clocks
#
# **TTFT**, the time to first token, runs from a declared start to the first visible output. Take the simplest start: the
# request has been read and its text prepared. Then
#
# $$\mathrm{TTFT} = \text{queue} + \text{prefill} + \text{selection and delivery} \tag{21.4}$$
#
# The queue ends when the model first works on the request. Prefill ends when the prompt's computation has given the logits of
# the first output: no further pass is needed for it. Selection turns logits into a token, delivery hands it over at the
# boundary. So equation 21.4 starts with the engine, when the text has been turned into tokens, and ends with the server. The
# chapter's numbers first: 8, 20 and 5 ms, the 5 split into 2 and 3.
#
# Then a real request. `kvlab serve` runs in this kernel, on 127.0.0.1, over the engine with the shipped model; `load` is the
# client behind `kvlab load`, and speaks to it over HTTP as to any other server. The engine takes one request at a time
# here, and another one is in front, so that there is a queue to be seen.

# %% tags=["claim-21.2-b"]
example = FirstTokenStamps.from_terms(queue=0.008, prefill=0.020, selection=0.002, delivery=0.003)
terms = [interval for interval in example.intervals("server") if interval.is_term]
total = round(1000 * sum(term.duration for term in terms), 6)
print(" + ".join(f"{term.name} {ms(term.duration)}" for term in terms), "=", f"{total:.0f} ms")
assert total == 33 == round(1000 * example.ttft("server"), 6)

one_at_a_time = LLM("tiny", max_num_seqs=1, enable_prefix_caching=False)
engines.append(one_at_a_time.engine)
with Server(one_at_a_time) as server:
    pair = [LoadRequest("in front", PROMPT, 12), LoadRequest("watched", PROMPT, 4)]
    result = load(server.url, pair, concurrency=2)
stamps = result.stamps("watched")

covered = sum(interval.duration for interval in stamps.intervals("server") if interval.is_term)
rest = stamps.remainder("server")
assert abs(covered + rest - stamps.ttft("server")) < 1e-9 and rest >= 0
parts = stamps.intervals("engine")
assert [part.name for part in parts] == ["queue", "prefill", "selection"]
assert all(part.duration > 0 for part in parts)
names = [i.name if i.is_term else f"[{i.name}]" for i in stamps.intervals("server")]
print("a real one, at the server:", " + ".join(names))
print("in brackets: the remainder, which eq 21.4 does not cover; together they are the TTFT")

# %% tags=["nbval-ignore-output"]
ttft_parts(stamps, request_id="watched")

# %% [markdown]
# Read the picture from the inside out. The engine's clock starts when it has taken the request. The server's starts earlier, when
# it has read the bytes, and includes turning the text into tokens. The client's starts when it begins to send, and ends
# when the bytes of the first text are there. One run, one request, three times to first token. (Client, server and engine share one
# Python process here and take turns, which lengthens every way; a server in a process of its own has shorter ones.)

# %% tags=["claim-21.2-a"]
inside = {name: [i.name for i in stamps.intervals(name)] for name in ("engine", "server", "client")}
for name, parts in inside.items():
    print(f"{name:<7}", ", ".join(parts))
assert set(inside["engine"]) < set(inside["server"]) < set(inside["client"])
assert stamps.ttft("engine") < stamps.ttft("server") < stamps.ttft("client")
print("TTFT: engine < server < client")

# %% [markdown]
# None of the three is wrong. A figure without its two ends is. When you compare two systems, compare them at one boundary, best at
# the client's, where somebody waits.
#
# At the client there is one more choice to declare. A load client often has a plan, "this request at 2.0 s", and sometimes cannot keep
# it: it lets only so many requests be under way at a time, and the next one waits before it is sent. For the person who asked, that wait
# counts. So kvlab's client figures run from the **intended start**, and those from sending have a name of their own (`service_ttft`).
# Above nothing had to wait before it was sent, and the two are the same.

# %% [markdown]
# ## From the last token back: time per output token
#
# A request that gives $N$ tokens has a first one at $t_1$ and a last one at $t_N$. In between lie $N - 1$ intervals, so
# that its **time per output token** is
#
# $$\mathrm{TPOT} = \frac{t_N - t_1}{N - 1} \tag{21.5}$$
#
# Where the end of the request is its last token, and the start is that of its TTFT, $t_N - t_1$ is the same as the
# **E2EL**, the end-to-end latency from that start to the last token, less the TTFT.

# %%
predict({"21.2-p1": None, "21.2-p2": None})

# %% tags=["claim-21.2-c"]
print(inspect.getsource(RequestTimes.tpot.fget))

five = RequestTimes(arrival=0.0)
for at in (0.100, 0.120, 0.140, 0.160, 0.180):
    five.note(at)
five.finished = 0.180
print(f"five tokens: TTFT {ms(five.ttft)}, end to end {ms(five.e2el)}, TPOT {ms(five.tpot)}")
assert round(1000 * five.tpot, 6) == 20 == round(1000 * (five.e2el - five.ttft) / (5 - 1), 6)

one = RequestTimes(arrival=0.0)
one.note(0.100)
one.finished = 0.100
print(f"one token:   TTFT {ms(one.ttft)}, end to end {ms(one.e2el)}, TPOT {one.tpot}")
assert one.tpot is None and one.itl == []

# the same on a real request, whose clock is the engine's
(answer,) = llm.generate(PROMPT, SamplingParams(max_tokens=24, ignore_eos=True))
real = answer.outputs[0].times
n = len(answer.outputs[0].token_ids)
assert n == len(real.token_times) == 24
assert abs(real.tpot - (real.e2el - real.ttft) / (n - 1)) < 1e-9
print(f"a real one:  {n} tokens, {len(real.itl)} gaps; both ways of computing its TPOT agree")

# %%
reveal({"21.2-p1": round(1000 * five.tpot), "21.2-p2": "undefined" if one.tpot is None else "0"})

# %% [markdown]
# A request with one token has no TPOT. To write 0 for it pulls every mean down: it is left out, and *counted*, so that
# a reader of the report sees how many there were.
#
# Two quantities are easily taken for this one. End-to-end time over **all** tokens has its own name here,
# `normalized_latency`: it holds the wait for the first token as well. And the **inter-token latency** (ITL) is not one
# number a request but a list of gaps.

# %%
print(f"five tokens: TPOT {ms(five.tpot)}, normalized {ms(five.normalized_latency)}, "
      f"gaps {[ms(gap) for gap in five.itl]}")  # fmt: skip

# %% [markdown]
# ## Gaps between what?
#
# A client sees **events**: pieces of a stream, each with some text. Nothing says that a piece is one token. A server
# that sends every fourth step saves work; text that may still turn out to be a stop string (a text at which the answer has to end) is
# held back and then comes at once. A chat's first piece may even say nothing but who speaks: its **role**. That is no output. Then the gap between two events and the time per token are two things. The next cell streams a real answer of
# 25 tokens, and hands it on in pieces of four after the first token.

# %% tags=["claim-21.2-d"]
pieces = RequestTimes(arrival=time.perf_counter())
held = 0
for delta in llm.stream(PROMPT, SamplingParams(max_tokens=25, ignore_eos=True)):
    held += len(delta.token_ids)
    if held == 4 or not pieces.events:
        pieces.note(time.perf_counter(), held)
        held = 0

assert pieces.num_output_tokens == 25 and len(pieces.events) == 7
between_events, per_token = statistics.mean(pieces.itl), pieces.tpot
print(f"{len(pieces.events)} events of {[e.num_tokens for e in pieces.events]} tokens")
print(f"{len(pieces.itl)} gaps between events, {pieces.num_output_tokens - 1} intervals of tokens")
print(f"mean event gap / TPOT = {between_events / per_token:.2f}")
assert abs(between_events / per_token - 4) < 1e-6

# %% tags=["nbval-ignore-output"]
print(f"here: mean event gap {1000 * between_events:.2f} ms, TPOT {1000 * per_token:.2f} ms")

# %% [markdown]
# A report that says "inter-token latency" must say whether its clock stamped tokens or pieces. `kvlab` keeps both:
# `itl` are gaps between events, `itl_by_token` shares each gap over the tokens that ended it. For a person who reads
# along, the event gap is what is felt.
#
# ## The same tokens, counted over everybody: throughput
#
# **Output throughput** divides the tokens of *all* requests by the time of observation. Its reciprocal has the
# dimension of a latency, and is nobody's.

# %%
predict("21.2-p3", None)

# %% tags=["claim-21.2-e"]
# The real scheduler; the steps are not computed, each has a length on a virtual clock.
engine = SimulatedEngine.like(llm.engine, CostModel(per_step=0.020))
engines.append(engine)
quartet = generate(4, arrivals=AtOnce(), prompt_tokens=8, output_tokens=10, vocab_size=900, seed=1)
run = play(engine, quartet)
summary = summarize(records_of(run))

print(f"simulated: {run.simulated}; {summary.total_output_tokens} tokens in {ms(summary.duration)}")
rate = summary.output_throughput
print(f"throughput {rate:.0f} tokens/s, its reciprocal {ms(1 / rate)}")
print(f"TPOT of each request: {[ms(r.times.tpot) for r in run.requests]}")
assert summary.total_output_tokens == 40 and round(summary.duration, 9) == 0.2
assert round(rate, 6) == 200 and round(1000 / rate, 6) == 5
assert [round(1000 * r.times.tpot, 6) for r in run.requests] == [20, 20, 20, 20]

# %%
reveal("21.2-p3", round(1000 * run.requests[0].times.tpot))

# %% [markdown]
# 200 tokens a second may also be one request with a token every 5 ms, or two hundred of which each waits a second. Whoever
# reports throughput alone says nothing about any reader's wait.
#
# ## What this machine can do
#
# How long does a pass take, and how long would it take at least? Two things bound it: every byte that it needs has to come
# from memory, and every multiplication has to be carried out. So first two **ceilings** of the machine in front of you: how
# many bytes a second its memory gives, measured by copying and by reading, of which the larger counts; and how many
# floating-point operations (FLOP) a second it reaches in large matrix products. All of it on one thread, as the passes below, and
# over buffers that together are larger than the processor's own caches.

# %% tags=["nbval-ignore-output"]
ceilings = measure_ceilings(seconds=5)
print(f"{ceilings.name}, {ceilings.dtype}, {ceilings.threads} thread")
for name in ("copy", "read", "matmul"):
    found = getattr(ceilings, name)
    low, middle, high = (value / 1e9 for value in (found.min, found.median, found.max))
    print(
        f"{name:<7} {middle:6.1f} G{found.unit}, {low:.1f} to {high:.1f}   counted: {found.counted}"
    )

# %% [markdown]
# Then real passes. The tiny model fits into a processor's cache, so for this purpose we make a model of 50 million random
# weights: its answers are nonsense, its arithmetic is that of a real one. For each pass kvlab **counts** what has to be done:
#
# - FLOPs: 2 for each weight and position (a multiply and an add). The matrices of the layers
#   work on every position, the output head only on those whose logits are wanted, one a request; looking up an embedding
#   multiplies nothing. On top comes the context's part: $4 H_q d_h$ in each layer for each query and each key it may see
#   ($H_q$ query heads of width $d_h$).
# - Bytes: every weight once a pass, whoever takes part; the K/V of each request's positions; the new K/V.
#
# Only the time is measured. FLOPs over bytes is the **intensity** of a pass.
#
# Four requests, one new token each, 512 positions in the cache: which pass takes longer, that one or one over a prompt
# of 512 tokens? And how much longer is a decode pass for four requests than one for a single request?

# %%
predict({"21.2-p4": None, "21.2-p5": None})

# %% tags=["nbval-ignore-output"]
big = random_50m()
phases = measure_phases(
    big,
    [Case("prefill", 1, n) for n in (4, 64, 256, 512)]
    + [Case("decode", b, 512) for b in (1, 4, 16)],
    repetitions=3,
    seconds=60,
)
phases_view(phases, ceilings)

# %% [markdown]
# The **roofline**, on the left of the picture, puts both ceilings together; both axes are logarithmic, so that a distance is a
# factor. To the left a pass waits for bytes: the roof rises with the intensity. To the right it waits for arithmetic. Nothing can
# stand above the roof, and the factor up to it is what could be gained. (Where the machine was busy with something else while a
# ceiling was measured, a point may seem to stand above: then measure again.) On the right: how long a pass takes, and how many
# tokens a second all its requests get together; dashed, what the bytes alone and the FLOPs alone would allow. Walk through the
# passes with the arrow keys: the sentence says what each reached.

# %% tags=["claim-21.2-f"]
c = big.config
matrices = c.num_layers * (
    2 * (c.num_query_heads + c.num_kv_heads) * c.head_dim * c.hidden_size
    + 3 * c.hidden_size * c.intermediate_size
)
head = c.vocab_size * c.hidden_size
found = {str(point.case): point for point in phases.points}
long_prompt, alone = found["prefill 1 x 512"], found["decode 1 x 512"]
four, sixteen = found["decode 4 x 512"], found["decode 16 x 512"]

# the dense part is 2 a weight and position; the context's part comes on top, and grows with the square of a prompt
prompt_flops, one_flops = long_prompt.flops_parts, alone.flops_parts
assert prompt_flops["weights"] == 2 * matrices * 512 and one_flops["weights"] == 2 * matrices
assert prompt_flops["head"] == one_flops["head"] == 2 * head  # one row of logits each
pairs = 512 * 513 // 2  # query 0 sees one key, query 511 sees 512
per_pair = 4 * c.num_query_heads * c.head_dim * c.num_layers
assert prompt_flops["attention"] == per_pair * pairs and one_flops["attention"] == per_pair * 513
print(f"layers {matrices / 1e6:.1f}, head {head / 1e6:.1f} million weights; "
      f"{c.num_layers} layers, {c.num_query_heads} query heads of {c.head_dim}")  # fmt: skip
print("pass             MFLOP: layers + head + attention = all       bytes   FLOPs a byte")
for point in (long_prompt, alone, sixteen):
    dense, logits, context = (n / 1e6 for n in point.flops_parts.values())
    print(f"{point.case!s:<16} {dense:13,.0f} + {logits:4,.0f} + {context:9,.0f} = {point.flops / 1e6:6,.0f}"
          f" {point.nbytes / 1e6:8.0f} MB {point.intensity:14.2f}")  # fmt: skip

# and the clock, in comparisons that hold on any machine
assert long_prompt.flops_per_second > 2 * alone.flops_per_second
assert long_prompt.tokens_per_second > 2 * alone.tokens_per_second
assert sixteen.seconds.median < 16 * alone.seconds.median  # sixteen share one read of the weights
print("prefill reaches more than twice the FLOP/s of decode for one")
print("decode for sixteen takes less than sixteen times as long as for one")

# %% tags=["nbval-ignore-output"]
longer = "prompt" if long_prompt.seconds.median > four.seconds.median else "decode"
times = "less than 4" if four.seconds.median < 4 * alone.seconds.median else "4 or more"
reveal({"21.2-p4": longer, "21.2-p5": times})

# %% [markdown]
# Prefill and decode of one model differ by the intensity, and so end under different slopes of the roof. Neither is
# "compute-bound" or "memory-bound" by name: the prompt of 4 tokens lies on the left, the decode for 16 far to the right of the one
# for 1. Four requests take longer than one although they share the reading of the weights: each has K/V and attention of its own,
# and this machine's products with few rows are far below the roof.
#
# ### A bound, not a measurement
#
# For a dense model of 7 billion weights of two bytes, decoding for one request, each weight has to be read once a step.
# At an assumed trillion bytes a second (a number of this example, no measurement):

# %% tags=["claim-21.2-g"]
weights, width, bandwidth = 7_000_000_000, 2, 1e12
nbytes = weights * width
bound = bound_seconds(nbytes, bandwidth)
print(f"{nbytes:,} bytes / {bandwidth:.0e} B/s = at least {ms(bound)} a step")
assert nbytes == 14_000_000_000 and abs(bound - 0.014) < 1e-12

# the same count for two models that are here, against the bytes of their real tensors
models = {"the shipped model": llm.model, "50 million": big}
for name, model in models.items():
    shape = model.config
    counted = case_nbytes(shape, Case("decode", 1, 64), 4, 4)
    tensors = sum(tensor.nbytes for tensor in model.parameters())
    if not shape.tie_word_embeddings:
        tensors -= model.embed_tokens.weight.nbytes  # one row of it is read, not all
    assert counted["weights"] == tensors
    print(f"{name}: {tensors:,} bytes of weights in each step,")
    print(f"    {counted['keys and values read']:,} of K/V for 64 positions and its own")

# batching reads the weights once for all; a narrower type moves fewer bytes
each = {}
for n in (1, 4, 16):
    case = Case("decode", n, 512)
    each[n] = [sum(case_nbytes(c, case, size, size).values()) / n for size in (4, 2)]
    wide, narrow = (value / 1e6 for value in each[n])
    print(f"decode for {n:>2}: {wide:6.1f} MB a token in 4-byte values, {narrow:6.1f} MB in 2-byte")
assert each[1] > each[4] > each[16] and all(two * 2 == four for four, two in each.values())

# %% tags=["nbval-ignore-output"]
(small,) = measure_phases(llm.model, [Case("decode", 1, 512)]).points
print("decode for one, 512 positions    bytes     bound   measured")
for name, point in (("the shipped model", small), ("50 million", alone)):
    spot = place(point, ceilings)
    bound, took = 1000 * spot.memory_seconds, 1000 * point.seconds.median
    print(f"{name:<26} {point.nbytes / 1e6:8.1f} MB {bound:6.2f} ms {took:7.2f} ms")
    if spot.fits_cache:
        print("    (it fits into the processor's cache: memory is no bound)")
print("where the time of the larger one goes:")
for name, share in step_parts(big, Case("decode", 1, 512)).shares.items():
    print(f"  {name:<20} {share:6.1%}")

# %% [markdown]
# Where the bytes have to come from memory, no engine on this machine and thread can beat that bound. It does not say what a step takes:
# the products themselves run below the roof, attention and K/V (writing and gathering them) come on top, small operations go element
# by element, and "outside torch" is Python with the scheduling. Only a measurement shows them.
#
# The same, with your hand on it. The **ridge** is the intensity where the two bounds meet. Which prompt length is the first to the
# right of it? And how many requests can decode together before the pass takes twice as long as for one? Choose, and press Run.

# %%
timer = phase_timer()
timer

# %%
timer.check()  # raises what went wrong in the timer, if anything did

# %% [markdown]
# <details><summary>What the counts say of the two questions</summary>
#
# Say that a machine gives 25 GB and 100 GFLOP a second: its ridge is at 4 FLOPs a byte. A prompt of n tokens takes about
# 25 + 75.5 n MFLOP and hardly more than the 201 MB of the weights, so it is past the ridge from 11 tokens on. A decode pass for b
# requests with 512 positions takes 107 b MFLOP and 201 + 6.3 b MB: 8.3 ms for one, and arithmetic bounds it from 10 requests on.
# Sixteen take about twice as long as one. What your machine measures is above the bounds, and its own ridge stands in the view's sentence.
#
# </details>
#
# ## A report that can be judged
#
# One figure never describes a run. Below, 200 requests arrive independently of each other (a **Poisson** process), eight a second on
# average, with prompts from 16 to 6,000 tokens. The scheduler is the real one; how long its steps last is a stated cost: 14 ms, the
# bound from above, and 70 µs for each position computed, since $2 \cdot 7 \cdot 10^9$ FLOPs at an assumed $2 \cdot 10^{14}$ a
# second take as long. So the figures are *simulated*, and the same on every machine. The scheduler computes at most so many positions
# a step as its **token budget** allows; long prompts are cut into chunks and share their steps with those who decode.
#
# The targets: the first token within 3 seconds, and no gap above 100 ms. (A service might allow 100 to 300 ms between outputs.) How many
# requests a second keep all targets is the **goodput**.

# %%
predict("21.2-p6", None)

# %% tags=["claim-21.2-h"]
cost = CostModel(per_step=0.014, per_token=70e-6)
crowd = generate(
    200,
    arrivals=Poisson(8),
    prompt_tokens=LogNormal(300, 1.2, 16, 6000),
    output_tokens=LogNormal(120, 0.7, 1, 600),
    vocab_size=1000,
    seed=2,
)
targets = Targets(ttft=3.0, itl=0.100)


def serve(budget):
    """The same arrivals under another token budget a step."""
    manager = KVCacheManager(BlockPool(4096), 16)
    settings = SchedulerConfig(max_model_len=8192, max_num_seqs=64, max_num_batched_tokens=budget)
    engines.append(SimulatedEngine(Scheduler(manager, settings), cost))
    return play(engines[-1], crowd)


reports = {}
print("         gaps, ms                     TTFT, ms       requests that  output")
print("budget   mean   p50   p90   p99       mean    p99    keep both      tokens/s")
for budget in (2048, 256):
    records = records_of(serve(budget))
    reports[budget] = report = summarize(records, targets=targets)
    gap, first = report.itl, report.ttft
    gaps = "".join(f"{1000 * v:>6.0f}" for v in (gap.mean, gap.p50, gap.p90, gap.p99))
    firsts = "".join(f"{1000 * v:>7.0f}" for v in (first.mean, first.p99))
    print(
        f"{budget:>6} {gaps}    {firsts} {report.good:>8} of 200 {report.output_throughput:>11.0f}"
    )
wide, narrow = reports[2048], reports[256]
assert wide.itl.mean < 0.03 < targets.itl < wide.itl.p99  # a fine mean, and a p99 that is not
assert wide.good < 100 and narrow.good == 200 == narrow.completed
assert narrow.itl.p99 < targets.itl and narrow.ttft.mean > 2 * wide.ttft.mean  # and what that costs

# what a line of the report keeps: enough to count anything again
line = records[0].to_dict()
print(textwrap.fill(f"a record keeps: {', '.join(line)}", 88, subsequent_indent="    "))
assert {"num_prompt_tokens", "num_cached_tokens", "events", "error", "arrival", "sent"} <= set(line)

# %%
reveal("21.2-p6", "no" if wide.good < 150 else "yes")

# %% [markdown]
# With a budget of 2,048 positions a step, nine gaps in ten are as short as anybody could wish, and more than half of the
# requests still have a gap that breaks the target. A step full of a long prompt lasts $14 + 2048 \cdot 0.07 = 157$ ms, and everybody
# who decodes waits for it: such steps are rare, but whoever reads an answer of a hundred tokens meets one. With a budget of 256 the
# longest step takes 32 ms, every target is kept, and the first token takes longer. Which of the two is better is a question about targets, and
# a target means something for a **stated workload** alone: these lengths, this rate, this hardware. The next section
# ([21.3](21_3_scheduling.ipynb)) turns that knob and others.
#
# Each dot below is one request; point at one, or walk through them with the arrow keys. The view opens on
# ITL, the gaps between output events: a dot is a request's longest one, and 149 of 200 lie above the target, while the mean of all
# gaps keeps it. Choose TTFT for the other side.

# %%
latency_report(
    records_of(serve(2048)),
    targets,
    title="200 requests, budget 2,048 (simulated)",
    conditions={
        "model": "7 billion weights of 2 bytes, by its cost alone",
        "hardware": "none: simulated, 14 ms a step and 70 µs a position",
        "arrivals": "Poisson, 8 a second, seed 2",
        "concurrency": "at most 64",
    },
)

# %% [markdown]
# ### The same on your machine, through a real server
#
# Now with nothing simulated: `kvlab serve` answers over HTTP on this machine, `kvlab load` asks. Forty people chat; two paste
# long notes. What is timed is what the client sees, from the intended start. The model is tiny, so every target is kept; look for the
# same shape in ITL: whoever was reading an answer while the notes were computed has one long gap (choose "chat" under *requests*).

# %% tags=["nbval-ignore-output"]
chats = [LoadRequest(f"chat {i}", PROMPT, 16, labels={"kind": "chat"}) for i in range(40)]
long_prompts = [list(range(3 + i, 603 + i)) for i in range(2)]
notes = [
    LoadRequest(f"notes {i}", ids, 16, labels={"kind": "notes"})
    for i, ids in enumerate(long_prompts)
]
asked = [*chats[:13], notes[0], *chats[13:26], notes[1], *chats[26:]]

served = LLM("tiny", enable_prefix_caching=False)
engines.append(served.engine)
with Server(served) as server:
    mixed = load(server.url, asked, arrivals=20, ignore_eos=True, hardware=ceilings.name)
targets_here = Targets(ttft=3.0, itl=0.3)
latency_report(mixed.records, targets_here, title="42 requests", conditions=mixed.conditions)

# %%
counted = mixed.summary()
assert counted.completed + counted.failed == 42 == len(mixed.records)
assert all(r.boundary == "client" and r.sent is not None for r in mixed.records)
assert counted.ttft.min > 0 and counted.ttft.max >= counted.ttft.p99 >= counted.ttft.p50
print(f"{len(mixed.records)} requests asked: {counted.completed + counted.failed} in the report")

# %% [markdown]
# ## One run, reported seven ways
#
# The run below was recorded with `kvlab load` against `kvlab serve`, which was told to send a chat's role at once and then
# four tokens at a time, and whose prefix cache (K/V of earlier prompts, kept to be used again) was off. The client let eight requests be
# under way at a time, and gave an answer up that had no end 1.3 s after it was sent for. It comes with kvlab, one JSON line a request: 32 chats, some with long notes pasted in, some that want one word,
# some that want a long story. Seven reports of it follow. Each figure follows from the same lines by the rule that its words suggest,
# and each hides something. Find out what.

# %%
seen = recorded()
print(len(seen), "requests asked")
for report in REPORTS:
    print(f"  {report.letter}  {report.says(seen)}")

# %%
check("21.2-6", None)

# %% [markdown]
# When you have answered, let each say what it should have said:

# %%
ANSWERED = False  # make it True, and run the cell
assert all(report.misleads(seen) for report in REPORTS)
for report in REPORTS:
    if ANSWERED:
        print(f"{report.letter}  {report.honest(seen)}")

# %% [markdown]
# <details><summary>When you have answered: why the view below has another mean of the gaps than C's honest one</summary>
#
# C's honest figure is a mean over the requests: each request's own mean gap counts once. The view's ITL takes all gaps of everybody,
# so that a long answer counts more often: that is B's difference once more.
#
# </details>
#
# No percentile and no second decimal place protects against these. What protects is the record of each request: its boundary, its
# intended start, its events with their tokens, its outcome. From the same lines, the whole report:

# %%
latency_report(seen, Targets(ttft=3.0, itl=0.3), title="The recorded run", conditions=conditions())

# %% [markdown]
# ## The same measurements on another engine
#
# Put in the address of a server with OpenAI's interface that is yours to load: vLLM, SGLang, TensorRT-LLM, llama.cpp, or
# `kvlab serve` in a terminal. The cell sends it the same load twice: first prompts that share 640 of their 704 words, then
# prompts that share nothing, so that its prefix cache shows. Without an address it reads a run that was recorded.

# %% tags=["nbval-ignore-output"]
URL = None  # for example "http://127.0.0.1:8000"

runs = measure_both(URL) if URL else recorded_both()
some = next(iter(runs.values()))
print("measured now" if URL else f"RECORDED on {some.setting['date'][:10]}, not measured here")
for name, value in some.conditions.items():
    print(f"{name}: {'not stated' if value is None else value}")
for name, run in runs.items():
    found = run.summary()
    print(f"{name}: {found.completed} completed, {found.failed} failed")
    print(f"    TTFT p50 {1000 * found.ttft.p50:6.1f}, p99 {1000 * found.ttft.p99:6.1f} ms   "
          f"TPOT mean {1000 * found.tpot.mean:5.1f} ms")  # fmt: skip

# %% [markdown]
# If prompts that share a beginning get their first token sooner, and the time between tokens stays about the same, something was found:
# a hit saves prefill ([section 21.4](21_4_prefix.ipynb)). From a terminal, `kvlab load URL --help` shows the same with more
# choices: arrivals, lengths, a file of prompts, a public trace, targets.
#
# ## How others name it
#
# The words of this page beside those of `vllm bench serve`. `compared_with_bench_serve()` without names gives all the differences that we
# know of.

# %%
Markdown(
    compared_with_bench_serve("ttft", "tpot", "itl", "e2el", "completed, failed", "request_goodput")
)

# %% [markdown]
# ## Summary
#
# - A TTFT has two ends. At the engine, the server and the client the same request has three of them, and equation 21.4 covers only what
#   lies between the engine's start and the delivery.
# - TPOT divides by $N - 1$, and is undefined for one token: counted, never 0. ITL is a list of gaps between events, and events are not
#   always tokens. Throughput divides by everybody's time, and its reciprocal is nobody's wait.
# - A pass takes at least its bytes over the bandwidth, and its FLOPs over the rate. A prompt reuses each weight for all its positions; a
#   decode for one request reads all weights for one token. Batching shares that read.
# - A bound is no measurement, and a mean is no promise. A report keeps a record of each request, its boundary, lengths, arrivals, cache
#   hits, hardware and failures, and judges targets against a stated workload.
#
# **Check yourself.**
#
# 1. A request's text is ready at 0. The model starts on it at 12 ms, the logits of its first output are there at 45 ms, the server hands
#    the text over at 52 ms, and the client has it at 60 ms. What are the terms of equation 21.4, and its TTFT?
# 2. Six tokens come in events at 200 ms (one), 260 ms (three) and 320 ms (two). TPOT, and mean event gap?
# 3. A server reports 1,000 tokens a second with 50 requests at work. What is the TPOT of each, if all are served alike?
# 4. 3 billion weights of one byte, $6 \times 10^{11}$ bytes a second: the least time of a decode step? And of one for eight requests with
#    short contexts?
# 5. A report: 1,000 requests sent, p99 TTFT 900 ms over the 990 that completed. What do you ask first?
#
# <details><summary>Answers</summary>
#
# 1. Queue 12 ms, prefill 33 ms, selection and delivery 7 ms: 52 ms. The last 8 ms are the way back, which only the client sees.
# 2. (320 - 200) / 5 = 24 ms; (60 + 60) / 2 = 60 ms.
# 3. 1000 / 50 = 20 tokens a second each: 50 ms.
# 4. 5 ms; about the same 5 ms for all eight, since the weights are read once.
# 5. What became of the other ten: they may be the slowest. Then the boundary, and from which start.
#
# </details>

# %% [markdown]
# ## Exercises
#
# Put your answer in place of `None` or `...` and run the cell. `hint("21.2-1")` gives the first of three hints, `hint("21.2-1", 2)` the second;
# `solution("21.2-1")` shows a worked solution.

# %%
check("21.2-1", None)


# %%
def tpot(events):
    """Time per output token of one request. events: [time, num_tokens], in the order of time."""
    ...


check("21.2-2", tpot)

# %%
check("21.2-3", None)


# %%
def good_requests(requests, ttft, itl):
    """How many requests kept both targets, in ms. requests: [start, times, error] of each."""
    ...


check("21.2-4", good_requests)

# %% [markdown]
# Exercise 21.2-6 stands above, at the seven reports.

# %%
check({"21.2-5": None, "21.2-7": None})


# %%
def hides_a_wait(tpot, wait):
    """Events, [time, num_tokens], whose TPOT is kept and whose reader waits all the same."""
    ...


check("21.2-8", hides_a_wait)

# %%
for engine in (llm.engine, *engines):
    engine.scheduler.check_invariants()
    pool = engine.scheduler.manager.pool
    assert not engine.has_unfinished_requests() and pool.num_free_blocks == pool.num_blocks
print("nothing leaked: no request is left, every block of every pool is free")
