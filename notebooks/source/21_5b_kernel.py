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
# # 21.5b A kernel that follows the block table
#
# **Attention over scattered blocks is twenty lines of torch. What does it take to do the same in one pass over the
# cache, without storing a single score? And which of its lines can be wrong without anybody noticing?**
#
# 70 minutes · any laptop, no GPU, no network · an extra to [section 21.5](21_5_paging.ipynb), for readers who want to
# write a kernel
#
# Go down with <kbd>Shift</kbd>+<kbd>Enter</kbd>: write a piece, have it checked, go on; predict, then run. A cell with
# `check` or `predict` asks its questions when it is run as it is; write the piece, or your answers in place of `None`,
# and run it again. What answers a prediction is folded away until then. Nothing breaks while your functions are empty,
# or if you choose **Run ▸ Run All Cells**, which takes about half a minute: where a later cell needs a piece that you
# have not written, it takes the package's.
#
# The words you need. A **kernel** is one function that many **programs** run side by side on a GPU. A program works on
# a **tile**, a small array; a **pointer** is the address of a number in memory, and a program loads from as many
# addresses at once as its tile has places. A **mask** says for which of them it does. The cache is a **pool** of
# **blocks**, each of a few **slots**, one slot a position; a request's **block table** says where its blocks lie
# ([section 21.5](21_5_paging.ipynb)). Several query heads share one **KV head**: they are its **group**
# ([section 21.1](21_1_reuse.ipynb)).
#
# After this section you can
#
# - write the four pieces of a decode kernel: a load through the table, scores in base 2, the online softmax, and the
#   merge of splits;
# - say what each mask is for, and show what happens without it;
# - name inputs that find a wrong line, and inputs that do not.

# %% tags=["setup"]
import sys

if "google.colab" in sys.modules:  # on Colab alone: adds kvlab, changes nothing that is there
    import subprocess

    pip = f"{sys.executable} -m pip"
    add = f"{pip} list --format=freeze > there.txt && {pip} install -c there.txt kvlab[serve] anywidget"
    done = subprocess.run(add, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-900:] + done.stderr

import inspect
import math
import subprocess
from types import SimpleNamespace

import torch

from kvlab import LLM, tiny, triton_mode
from kvlab.exercises import check, hint, predict, reveal, solution
from kvlab.measure.kernel_case import kernel_case
from kvlab.measure.kernel_example import FACTS, STORY
from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.changed_kernels import ChangedKernels
from kvlab.tensors.watch_kernel import can_watch, recorded_log, watch_decode
from kvlab.widgets import kernel_view

_ = torch.set_num_threads(1)  # one thread: the model is small

here = triton_mode.current()  # before anything imports triton
if here.usable:
    import triton
    import triton.language as tl

    print(f"kernels are {here.mode} here")
else:  # the cells below define their kernels, and do not run them
    triton = SimpleNamespace(jit=lambda function: function)
    tl = SimpleNamespace(constexpr=None)
    print(f"no kernel can run here: {here.reason}")
device = "cuda" if here.usable and here.mode == "compiled" else "cpu"
NOT_HERE = "no kernel can run here; the text under this cell says what it shows where one can"

llm = LLM("tiny", block_size=4, num_blocks=64)

# %% [markdown]
# Kernels in this section are written in **Triton**, a language inside Python. With a GPU it compiles them. Without one
# its **interpreter** runs the same lines on the CPU, one program after another: slow, right, and open to inspection.
# Triton exists for Linux alone. On macOS and Windows the cells in torch work, your functions cannot be checked, and the
# view shows a trace that was recorded elsewhere, and says so.
#
# ## The specification
#
# What the kernel has to compute stands in the package as plain torch. Everything below is compared with it.

# %%
print(inspect.getsource(paged_attention_spec))

# %% [markdown]
# Its two helpers are short. `causal_mask` lets a query read up to its own position. `attend_masked` scores the queries
# against the keys, $q \cdot k / \sqrt{d}$ with $d$ the `head_dim`, takes a softmax over what the mask allows, and mixes
# the values by it. `window` would limit how far back a query reads; here it is `None`, which is all the way.
#
# Three things in it cost too much on a GPU. `c[table]` copies the keys and values of a request before a single score
# is computed. The scores of all positions are stored, and read again for the softmax. And requests take turns, while
# most of the GPU waits. The kernel reads the blocks where they lie, a tile of 16 positions at a time, keeps no score,
# and has a program for each request, KV head, and part of the positions.
#
# ### The words of Triton that it needs
#
# | | |
# |---|---|
# | `tl.arange(0, 16)` | the numbers 0 to 15; sizes are powers of two |
# | `x[:, None]`, `x[None, :]` | as a column, as a row; together they span a rectangle, as in torch |
# | `x // 4`, `x % 4` | of each number: how often 4 goes into it, and the rest; 13 gives 3 and 1 |
# | `tl.load(ptr + x, mask=m, other=0.0)` | the numbers at these addresses; where `m` is False nothing is read, and 0 stands there. Without `other`, anything |
# | `tl.store(ptr + x, y, mask=m)` | writes `y` to these addresses, where `m` is True |
# | `tl.dot(a, b, input_precision="ieee")` | product of two matrices, at least 16 × 16, in full float32 |
# | `tl.trans(a)` | the matrix turned: its rows are columns |
# | `tl.where(m, a, b)` | `a` where `m` is True, `b` elsewhere; minus infinity is `float("-inf")` |
# | `tl.max(x, axis=1)`, `tl.sum(x, axis=1)` | the largest number, the sum: one for each row; with `axis=0` one for each column, or the one of a vector |
# | `tl.maximum(x, y)`, `tl.exp2(x)` | place by place: the larger of two; $2^x$ |
#
# Masks are put together by `&`, not by `and`. Two things the interpreter cannot show by itself: without `other` it puts
# 0 at masked places, where a GPU leaves anything (the checker puts NaN there), and without "ieee" it rounds nothing,
# where a GPU may round to 10 binary digits (tf32). A kernel has `@triton.jit` above it, and a `tl.constexpr` is a
# number that is known when it is compiled.
#
# A kernel from end to end: it takes three of five numbers, by their places. The brackets after its name say how many
# programs there are.


# %%
@triton.jit
def pick_kernel(from_ptr, which_ptr, to_ptr, count, TILE: tl.constexpr):
    place = tl.arange(0, TILE)
    which = tl.load(which_ptr + place, mask=place < count, other=0)
    number = tl.load(from_ptr + which, mask=place < count, other=0.0)
    tl.store(to_ptr + place, number)


if here.usable:
    numbers = torch.tensor([10.0, 11.0, 12.0, 13.0, 14.0], device=device)
    which = torch.tensor([4, 0, 2], device=device)
    picked = torch.zeros(8, device=device)
    pick_kernel[(1,)](numbers, which, picked, 3, TILE=8)
    print(picked.tolist())
    assert picked.tolist() == [14, 10, 12, 0, 0, 0, 0, 0]
else:
    print(NOT_HERE)

# %% [markdown]
# The tile has eight places and three numbers were asked for, so five places are masked: nothing was read for them.
#
# ## Step 1: from a position to a slot
#
# A tile of positions, say 0 to 15, goes through the table: with blocks of $s$ slots, position $t$ is in the block that
# entry $\lfloor t/s \rfloor$ names, in its slot $t \bmod s$. In torch, for one request and one KV head:


# %%
def tile_spec(cache, table, kv_head, start, length, tile=16):
    """[tile, d]: rows of the cache for positions start, start + 1, ...; zeros from `length` on."""
    rows, size = torch.zeros(tile, cache.shape[-1]), cache.shape[1]
    for place, t in enumerate(range(start, start + tile)):
        if t < length:
            rows[place] = cache[table[t // size], t % size, kv_head]
    return rows


slots = torch.arange(16.0).reshape(4, 4, 1, 1)  # 4 blocks of 4 slots; each says its number
print(tile_spec(slots, table=[3, 1], kv_head=0, start=0, length=6).flatten().int().tolist())

# %% [markdown]
# Six positions in blocks 3 and 1: slots 12 to 15, then 4 and 5. The ten places behind them are 0.
#
# Two things differ in the kernel. It computes addresses: the cache lies in memory as rows of `HEAD_DIM` numbers,
# `NUM_KV_HEADS` rows a slot. And `dim` counts up to a power of two, so for a `HEAD_DIM` of 80 it has 128 places, 48 of
# which lie in the next row. The slots behind the length belong to nobody, or to somebody else. In the checker's pool
# they hold NaN ("not a number").


# %%
@triton.jit
def load_tile(
    cache_ptr,  # where [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM] begins
    block_table_ptr,  # where the tables of all requests begin, one row each
    table_stride,  # entries from one row to the next
    request,
    kv_head,
    position,  # [TILE]
    length,  # of the request
    dim,  # [PADDED_DIM]: 0, 1, 2, ...
    BLOCK_SIZE,
    NUM_KV_HEADS,
    HEAD_DIM,
):
    """[TILE, PADDED_DIM]; 0 where there is nothing to read."""
    ...


check("21.5b-1", load_tile)

# %% [markdown]
# `hint("21.5b-1")` gives the first of three hints, `hint("21.5b-1", 2)` the second; `solution("21.5b-1")` shows a worked
# solution. In the interpreter a plain `print(position)` inside your function shows what the tile holds.
#
# The checker launches your function over small cases first, then over hard ones: lengths of 0, 1, 15, 16, 17 and 33,
# blocks of 1, 4 and 16, tables out of order, several requests and heads. The numbers in its pool say where they lie:
# number $i$ of KV head $h$ at position $t$ of request $r$ is $100\,r + t + h/10 + i/1000$. If your tile has 105.1 in
# place of 5, it has read request 1, head 1.
#
# A load that leaves the memory of the tensors ends a real GPU program, or reads anything; the checker refuses it and
# says so. In one of its cases the tables end in memory with the last request's last block. (The package's kernel makes
# its block ids 64-bit numbers, `.to(tl.int64)`: a large pool has more numbers than 32 bits can count.)
#
# ## Step 2: scores of a group, in base 2
#
# The query heads of a group read the same keys. So they are the rows of one matrix, and all scores of a tile are one
# product: the keys are loaded once for all of them. A GPU computes $2^x$, not $e^x$, so the scores are multiplied by
# $\log_2 e$ beforehand, together with the $1/\sqrt{d}$ that attention wants anyway. That factor is `scale2`.

# %%
query_row, keys = torch.tensor([2.0, 0, 0, 0]), torch.zeros(3, 4)
keys[:, 0] = torch.tensor([0.5, 1.5, 2.5])
natural = keys @ query_row / math.sqrt(4)
score2 = keys @ query_row * (math.log2(math.e) / math.sqrt(4))
print("scores              ", *(f"{x:.2f}" for x in natural.tolist()))
print("scores in base 2    ", *(f"{x:.2f}" for x in score2.tolist()))
print("e ** score          ", *(f"{x:.2f}" for x in torch.exp(natural).tolist()))
print("2 ** score in base 2", *(f"{x:.2f}" for x in torch.exp2(score2).tolist()))
assert torch.allclose(torch.exp(natural), torch.exp2(score2))

# %% [markdown]
# A place of the tile that has no position got zeros from `load_tile`, so its product is 0. That is a score like any
# other. The one score without a weight is $-\infty$.


# %%
@triton.jit
def tile_scores(
    query,  # [ROWS, PADDED_DIM]: the query heads of the group, then rows of zeros up to 16
    key,  # [TILE, PADDED_DIM], from load_tile
    position,  # [TILE]
    length,
    scale2,  # log2(e) / sqrt(head_dim)
):
    """[ROWS, TILE]: scores in base 2, minus infinity where there is no position."""
    ...


check("21.5b-2", tile_scores)

# %% [markdown]
# ## Step 3: the online softmax
#
# A softmax takes the largest score off first, or its powers overflow. But the largest is known only at the end. The
# kernel goes on with the largest so far. When a larger one comes, what was summed before is worth less, by the factor
# $2^{\text{old} - \text{new}}$. Three positions in two tiles, with scores 0 and 1, then 2, and values 10, 20 and 40:

# %%
score_tiles, value_tiles = ([0.0, 1.0], [2.0]), ([10.0, 20.0], [40.0])
largest, total, mixed = -math.inf, 0.0, 0.0
for scores, values in zip(score_tiles, value_tiles, strict=True):
    new_largest = max(largest, *scores)
    correction = 2 ** (largest - new_largest)
    weights = [2 ** (score - new_largest) for score in scores]
    total = total * correction + sum(weights)
    mixed = mixed * correction + sum(w * v for w, v in zip(weights, values, strict=True))
    largest = new_largest
    print(f"largest {largest:.0f}   correction {correction:.1f}   sum {total}   mixed {mixed}")
all_scores, all_values = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([10.0, 20.0, 40.0])
at_once = torch.softmax(all_scores * math.log(2), 0) @ all_values
print(f"mixed / sum = {mixed / total};  all at once: {at_once:.0f}")
assert mixed / total == 30 and abs(at_once - 30) < 1e-4

# %% [markdown]
# No score was kept. In the kernel the state has an entry for each row, and `acc` is a row of `PADDED_DIM` numbers.


# %%
@triton.jit
def add_tile(
    running_max2,  # [ROWS]: the largest score so far; minus infinity at the start
    running_sum,  # [ROWS]: the sum of 2 ** (score2 - running_max2)
    acc,  # [ROWS, PADDED_DIM]: the same sum, each power times its position's value
    score2,  # [ROWS, TILE], from tile_scores; every tile has at least one position
    value,  # [TILE, PADDED_DIM], from load_tile
):
    """(running_max2, running_sum, acc) with the tile added."""
    ...


check("21.5b-3", add_tile)

# %% [markdown]
# ## Step 4: splits, and their merge
#
# One request with one KV head would be one program, and a GPU has room for hundreds. So the positions are cut into
# **splits**, each with a program of its own (split-KV). Each ends with a result of its own, `part`, and with the
# log-sum-exp to base 2, $\text{lse2} = \log_2 \sum 2^{\text{score2}}$, which says how much it weighs. A second kernel merges them. A split that
# has no positions says 0 and weighs $2^{-\infty} = 0$.

# %%
part, lse2 = torch.tensor([3.0, 6.0, 0.0]), torch.tensor([1.0, 0.0, -math.inf])
share = torch.exp2(lse2) / torch.exp2(lse2).sum()
print("shares:", *(f"{x:.2f}" for x in share.tolist()), f"  merged: {share @ part:.1f}")
assert share[2] == 0 and abs(share @ part - 4) < 1e-5

# %% [markdown]
# These powers are small. Scores of a real model are not, so the largest comes off first, as always. What if all splits
# are empty?


# %%
@triton.jit
def merge_splits(
    part,  # [SPLITS, PADDED_DIM]: what each split says
    lse2,  # [SPLITS]: how much it weighs; minus infinity: it has no positions
):
    """[PADDED_DIM]: the merged result; 0 where all splits are empty."""
    ...


check("21.5b-4", merge_splits)

# %% [markdown]
# ## Put together
#
# The kernel around your pieces: three ids say which program this is, the query heads of the group are loaded as rows,
# and the loop goes over the tiles of the split, one tile a **turn**. Some words are new: `tl.program_id(0)` is this
# program's place along the first of the three numbers in the launch's brackets; `tl.cdiv(a, b)` is a / b rounded up;
# `tl.minimum` takes the smaller of two, place by place; `tl.full` and `tl.zeros` make a tile of one number. `LOAD`,
# `SCORES`, `ADD` and `MERGE` are your functions, passed as constants. The package's own kernel has the same lines in
# one piece ([kernels.py](../kvlab/tensors/kernels.py)).


# %%
@triton.jit
def my_decode_kernel(
    query_ptr, key_cache_ptr, value_cache_ptr, block_table_ptr, seq_lens_ptr, part_ptr, lse2_ptr,
    scale2, table_stride,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    NUM_SPLITS: tl.constexpr, LOAD: tl.constexpr, SCORES: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    request, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, dim = tl.arange(0, ROWS), tl.arange(0, PADDED_DIM)
    query_head = request * NUM_KV_HEADS * GROUP + kv_head * GROUP + row
    query_mask = (row < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    query_at = query_ptr + query_head[:, None] * HEAD_DIM + dim[None, :]
    query = tl.load(query_at, mask=query_mask, other=0.0)

    length = tl.load(seq_lens_ptr + request)
    share = tl.cdiv(tl.cdiv(length, TILE), NUM_SPLITS) * TILE
    begin = split * share
    end = tl.minimum(begin + share, length)

    running_max2 = tl.full([ROWS], float("-inf"), tl.float32)
    running_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    for start in range(begin, end, TILE):
        position = start + tl.arange(0, TILE)
        key = LOAD(
            key_cache_ptr, block_table_ptr, table_stride, request, kv_head, position, length, dim,
            BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
        )  # fmt: skip
        value = LOAD(
            value_cache_ptr, block_table_ptr, table_stride, request, kv_head, position, length, dim,
            BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
        )  # fmt: skip
        score2 = SCORES(query, key, position, length, scale2)
        running_max2, running_sum, acc = ADD(running_max2, running_sum, acc, score2, value)

    divisor = tl.where(running_sum > 0, running_sum, 1.0)  # an empty split: 0 / 1
    part_row = query_head * NUM_SPLITS + split
    part_at = part_ptr + part_row[:, None] * HEAD_DIM + dim[None, :]
    tl.store(part_at, acc / divisor[:, None], mask=query_mask)
    tl.store(lse2_ptr + part_row, running_max2 + tl.log2(divisor), mask=row < GROUP)


@triton.jit
def my_reduce_kernel(
    part_ptr, lse2_ptr, out_ptr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, NUM_SPLITS: tl.constexpr,
    PADDED_SPLITS: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    query_head = tl.program_id(0)
    split, dim = tl.arange(0, PADDED_SPLITS), tl.arange(0, PADDED_DIM)
    part_row = query_head * NUM_SPLITS + split
    lse2 = tl.load(lse2_ptr + part_row, mask=split < NUM_SPLITS, other=float("-inf"))
    mask = (split < NUM_SPLITS)[:, None] & (dim < HEAD_DIM)[None, :]
    part_at = part_ptr + part_row[:, None] * HEAD_DIM + dim[None, :]
    out = MERGE(tl.load(part_at, mask=mask, other=0.0), lse2)
    tl.store(out_ptr + query_head * HEAD_DIM + dim, out, mask=dim < HEAD_DIM)


def my_decode(query, key_cache, value_cache, block_table, seq_lens, *, num_splits=2, tile=16, **_):
    """As launch.paged_decode, without windows and scales."""
    (requests, heads, width), kv_heads = query.shape, key_cache.shape[2]
    padded = max(16, triton.next_power_of_2(width))
    part = query.new_empty(requests * heads, num_splits, width)
    lse2, out = query.new_empty(requests * heads, num_splits), torch.empty_like(query)
    sizes = {"HEAD_DIM": width, "PADDED_DIM": padded, "NUM_SPLITS": num_splits}
    my_decode_kernel[(requests, kv_heads, num_splits)](
        query, key_cache, value_cache, block_table, seq_lens, part, lse2,
        math.log2(math.e) / math.sqrt(width), block_table.stride(0),
        NUM_KV_HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=16, BLOCK_SIZE=key_cache.shape[1],
        TILE=tile, LOAD=LOAD, SCORES=SCORES, ADD=ADD, **sizes,
    )  # fmt: skip
    splits = triton.next_power_of_2(num_splits)
    my_reduce_kernel[(requests * heads,)](
        part, lse2, out, PADDED_SPLITS=splits, MERGE=MERGE, **sizes
    )
    return out


# %% [markdown]
# Now a real case. The engine serves two continuations of one prompt with the shipped model, up to 34 positions each,
# over a pool whose unwritten slots hold NaN. It makes one more step, and what its attention gets in layer 1 is kept:
# the queries, the pool, the block tables and the lengths. Your kernel, the package's and the engine's own attention
# (in torch) get the same. Pieces that are not right yet are taken from the package;
# when you have written one, run this cell again.

# %%
POOL = (7, 2, 9, 5, 17, 14, 3, 12, 19, 10, 1, 16, 6, 13, 4, 18, 8, 15, 11)  # 0 is nobody's
prompt = llm.encode(tiny.prompt(FACTS, STORY, rules=""))
case = kernel_case(llm.model, prompt, POOL, positions=34, layer=1)
wanted = case.wanted()
WRITTEN = {
    "21.5b-1": load_tile,
    "21.5b-2": tile_scores,
    "21.5b-3": add_tile,
    "21.5b-4": merge_splits,
}


def pieces():
    """Your functions where they are right, the package's where not."""
    from kvlab.exercises import pieces_21_5b

    chosen, mine = [], []
    for name, function in WRITTEN.items():
        own = check(name, function).is_right
        given = getattr(pieces_21_5b, function.__name__)
        chosen.append(function if own else triton.jit(given))
        mine += [function.__name__] * own
    return chosen, mine


def error(found):
    """The largest distance from the specification; NaN if anything is NaN."""
    return float((found.cpu() - wanted).abs().max())


print(f"{len(case.seq_lens)} requests of {case.seq_lens.tolist()} positions, blocks of 4")
for row in case.block_table.tolist():
    print(f"  table {row}")
if here.usable:
    (LOAD, SCORES, ADD, MERGE), mine = pieces()
    given = case.to(device).given
    print(f"written by you: {', '.join(mine) or 'nothing yet'}")
    print("\nas specified to 0.00001:")
    print("splits   this notebook's kernel   kvlab's")
    for splits in (1, 2, 4):
        own = error(my_decode(*given, num_splits=splits)) < 1e-5
        package = error(launch.paged_decode(*given, num_splits=splits, tile=16)) < 1e-5
        print(f"{splits:>6} {own!s:>24} {package!s:>9}")
        assert own and package
    print(f"and the engine's attention, in torch: {error(case.by_engine) < 1e-5}")
else:
    print(NOT_HERE)

NAMES = ("A", "A.1")
if can_watch():
    watched = watch_decode(
        *case.given, about="the kernel of this notebook", names=NAMES,
        decode=my_decode, kernels=[my_decode_kernel, my_reduce_kernel],
    )  # fmt: skip
    log = watched.log
else:  # a similar step, recorded on another machine
    log = recorded_log()
kernel_view(log)

# %% [markdown]
# All three agree with the specification, which computes in float64: the kernels and the engine compute in float32. With
# four splits one has no tile left (35 positions are three tiles of 16), and its weight is 0.
#
# The picture is the view of [section 21.5](21_5_paging.ipynb), on the kernel of this notebook; where kernels cannot be
# watched it is a similar step, marked as recorded. Step through it and watch the running maximum and sum that `add_tile`
# returns. On one side are the programs and the state of each row, on the other the tile and the slots that it reads. The lines
# below are the kernel's; those that ran are marked.
#
# ## Break it
#
# Three wrong lines in the package's kernels. `ChangedKernels` reads their file, changes one line, and runs the copy. Each
# of the three passes some tests. Predict first.

# %%
predict({"21.5b-p1": None, "21.5b-p2": None, "21.5b-p3": None})

# %% [markdown]
# **V without its mask.** The weights of the places behind the length are exactly 0, so it seems safe to load V for them
# as well. The second pool is the same but for one thing: it hands out block 0, too. A masked look-up gives 0, so that
# is the block that those places read.

# %%
unmasked = ChangedKernels(
    "paged_decode_kernel",
    "tl.load(value_cache_ptr + stored_at, mask=mask, other=0.0)",
    "tl.load(value_cache_ptr + stored_at)",
) if here.usable else None  # fmt: skip
if here.usable:
    print(unmasked.change)
    with_zero = kernel_case(llm.model, prompt, (0, *POOL), positions=34, layer=1)
    damaged = {}
    print("\npool                 results that are NaN   the others as specified")
    for what, one in (("block 0 is nobody's", case), ("block 0 is in use", with_zero)):
        found = unmasked.paged_decode(*one.to(device).given, num_splits=2, tile=16).cpu()
        bad = damaged[what] = found.isnan()
        apart = (found - one.wanted()).abs()[~bad]
        close = bool((apart < 1e-5).all()) if len(apart) else "(there are none)"
        print(f"{what:<20} {int(bad.sum()):>8} of {bad.numel()} {close!s:>27}")
        assert bad.all() if what.endswith("nobody's") else not bad.any()
    nobodys = damaged["block 0 is nobody's"]
    shown = reveal("21.5b-p1", "c" if nobodys.all() else "b" if nobodys.any() else "a")
else:
    shown = print(NOT_HERE)
shown

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# $0 \cdot \text{NaN}$ is NaN, and a result is a sum over all places of the tile. In the second pool the same line does
# no harm that a test could see: block 0 held finite numbers. It would come up later, when the block is not written yet,
# or holds what overflowed in somebody else's request. So a test of a kernel fills the pool with NaN and leaves block 0
# unused.
#
# </details>
#
# Where the damage enters:

# %%
if can_watch():
    broken = watch_decode(
        *case.given, about="V without its mask", names=NAMES,
        decode=unmasked.paged_decode, kernels=unmasked.kernels,
    )  # fmt: skip
    for what in ("keys", "values"):
        read = broken.log.slots_read(0, 0, what)
        print(f"{what:<6} read for request A, KV head 0: {len(read)}, the last {read[-5:]}")
    assert len(broken.log.slots_read(0, 0, "values")) == 48
    view = kernel_view(broken.log)
else:
    print("recorded on another machine, and with the line as it should be")
    view = kernel_view(recorded_log())
view

# %% [markdown]
# 35 keys, 48 values: the last 13 come from block 0, over and over. The view goes from **stop** to stop, one for each
# thing that a program does. A program with split 1 is the first to read them, at stop 11: keys from slots 4 to 6,
# values from slots 4 to 6 and then 3 and 0 to 3. Its running sum is a number all the same (stop 12), since the weights
# alone enter it. What is damaged is `acc`. The last stop holds what was read against the block tables.
#
# **The wrong base.** Each split says how much it weighs by a logarithm. One kernel writes it to base $e$, the other
# reads it to base 2.

# %%
if here.usable:
    natural_log = ChangedKernels("paged_decode_kernel", "tl.log2(divisor)", "tl.log(divisor)")
    print(natural_log.change)
    print(f"\nthe results go up to {float(wanted.abs().max()):.1f}")
    print("splits   largest error")
    errors = {}
    for splits in (1, 2, 3):
        found = natural_log.paged_decode(*case.to(device).given, num_splits=splits, tile=16)
        errors[splits] = error(found)
        below = "below 0.00001" if errors[splits] < 1e-5 else f"{errors[splits]:.2f}"
        print(f"{splits:>6}   {below}")
    assert errors[1] < 1e-5 and errors[2] > 0.01 and errors[3] > 0.01
    shown = reveal("21.5b-p2", errors[1] >= 1e-5)
else:
    shown = print(NOT_HERE)
shown

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# With one split the mistake is there and does nothing. With more the result is wrong by a few hundredths or more: no
# NaN, nothing that looks odd. An engine with such a kernel may well give fluent text, and worse text where contexts are
# long and there are more splits. A logarithm should carry its base in its name: `lse2`.
#
# </details>
#
# **Causal, off by one.** When a prompt is read (**prefill**), a request has several new positions in one step, a
# **chunk**. The package has a kernel for it, which takes a query for each of them; each may read up to its own
# position. Five queries at the end of request A, each row against the specification; the wrong line lets each see one
# position more.

# %%
if here.usable:
    ahead = ChangedKernels(
        "paged_prefill_kernel",
        "position[None, :] <= query_position[:, None]",
        "(position < length)[None, :] & (position[None, :] <= query_position[:, None] + 1)",
    )
    print(ahead.change)
    length, table = int(case.seq_lens[0]), case.block_table[0].tolist()
    five = torch.randn(5, *case.query.shape[1:], generator=torch.Generator().manual_seed(0))
    by_spec = paged_attention_spec(five, case.key_cache, case.value_cache, [table], [5], [length])
    one = case.to(device)
    chunk = (
        five.to(device), one.key_cache, one.value_cache, one.block_table[:1],
        torch.tensor([0, 5], dtype=torch.int32, device=device), one.seq_lens[:1],
    )  # fmt: skip
    print("\nposition   as specified:   kvlab's kernel   the changed one")
    right, wrong = (
        ((kernel(*chunk, max_query_len=5).cpu() - by_spec).abs().amax(dim=(1, 2)) < 1e-5).tolist()
        for kernel in (launch.paged_prefill, ahead.paged_prefill)
    )
    for row in range(5):
        print(f"{length - 5 + row:>8}   {right[row]!s:>30} {wrong[row]!s:>17}")
    assert all(right) and wrong == [False] * 4 + [True]
    shown = reveal("21.5b-p3", wrong.count(False))
else:
    shown = print(NOT_HERE)
shown

# %% [markdown]
# <details><summary>What the run shows</summary>
#
# The last row is the one whose logits select the next token, and it is right. The four before it have seen their
# future: in the next layer their keys and values are computed from that, and stay in the cache. Decoding alone, one
# query at a time, never shows it. A test has to compare every row of a chunk.
#
# The three together:
#
# | wrong line | a test that does not find it | a test that does |
# |---|---|---|
# | V without a mask | zeros or finite numbers in unwritten slots | a pool of NaN, block 0 unused |
# | logarithm to another base | one split | two splits of unequal weight |
# | one position ahead | the last row; decode | every row of a chunk |
#
# </details>
#
# The package's own tests change such lines of its kernels, one at a time, and see a check fail for each
# (`tests/kernels/test_cut_kernels.py`).
#
# ## Compiled, without a GPU
#
# Triton's compiler needs no GPU to compile for one. What it makes of the package's decode kernel, in bf16 with
# `head_dim` 128 (column `d`), on three GPUs: an A100 (`sm_80`), an H100 or H200 (`sm_90`), an MI300 (`gfx942`). A program
# is worked on by a hundred **threads** or more of one **multiprocessor**, of which such a GPU has over a hundred. **Registers**
# hold a thread's numbers; **shared** is the fast memory of the multiprocessor, in bytes, that the program's tiles of K
# and V take; **spills** are numbers that found no register. `dtype` is that of the queries, `cache` that of the pool.

# %% tags=["nbval-ignore-output"]
COMPILE = """
from kvlab.measure.compiled_kernels import TARGETS, Build, compile_all, table
print(table(compile_all([Build("paged_decode_kernel", gpu) for gpu in TARGETS])))
"""
if here.mode is None:
    print(NOT_HERE)
else:  # in a process of its own, since this one interprets
    command = [sys.executable, "-c", COMPILE]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

# %% [markdown]
# In the last column stand the instructions that multiply small matrices, on the **tensor cores**. They are why the
# query heads of a group are packed as rows: 16 at least, or there is nothing to multiply at once. `python -m
# kvlab.measure.compiled_kernels` does it for every kernel of the package.
#
# ## What production kernels do more
#
# The four steps are in all of these. What comes on top:
#
# | kernel | what it does more |
# |---|---|
# | Flash-Decoding, in `flash_attn_with_kvcache` of Dao-AILab/flash-attention | the origin of step 4: CUDA, copies of later tiles under way while one is computed, the number of splits from a heuristic |
# | vLLM, `vllm/v1/attention/ops/triton_unified_attention.py` | Triton as here; decode and chunks of prompts in one launch, windows, ALiBi, soft caps, fp8; `kernel_unified_attention_3d` has the splits, `reduce_segments` the merge |
# | FlashInfer, `BatchDecodeWithPagedKVCacheWrapper` | plans the splits of a whole batch ahead, so that long and short requests make equal work; `cascade` reads a prefix that requests share once for all of them |
# | FlashMLA of deepseek-ai | for models that keep one compressed vector a position for all heads: K and V are the same load; blocks of 64; `get_mla_metadata` shares out the work |
#
# Log-sum-exps of such kernels meet where outputs are merged, and not all have the same base: FlashInfer's is 2. vLLM's
# function for it has a switch, `is_lse_base_on_e`.
#
# ## Two more exercises
#
# The first is in plain torch: a merge of splits is handed to you, and you find out whether it is right. The second asks
# what a log of the kernel counted. `hint` and `solution` help as above.


# %%
def merge_is_right(merge):
    """True if merge(part, lse2) weighs each split by 2 ** lse2, whatever lse2 is."""
    ...


check("21.5b-5", merge_is_right)

# %%
check("21.5b-6", None)

# %% [markdown]
# ## Summary
#
# - The kernel reads blocks where they lie: position, entry of the table, block, slot, row of a head.
# - A group of query heads is one matrix; its keys and values are loaded once.
# - The online softmax keeps a maximum, a sum and a mixture for each row. A larger score shrinks what was summed.
# - Splits make programs out of one long request. Each says how much it weighs by `lse2`, base 2.
# - Every load of a tile is masked: a weight of 0 does not take a NaN away.
# - A mistake is found by an input that lets it show. Random numbers in a full pool let few of them show.
#
# **Check yourself.** (1) A tile of 16 positions starts at 32, the length is 33. How many places are masked? (2)
# Blocks of 1, a tile of 16: how many entries of the table does one turn of the loop look up? (3) Why does the running
# sum not become NaN where V is loaded without a mask? (4) A split says 5 with lse2 3, another says 1 with lse2 1.
# What is the merged result?
#
# <details><summary>Answers</summary>
# (1) 15. (2) One for each position that is there, 16 at most. (3) It sums weights, and V does not enter them. (4) The
# weights are 8 and 2: (8 &middot; 5 + 2 &middot; 1) / 10 = 4.2.
# </details>
