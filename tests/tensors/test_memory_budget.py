"""The budget: products of the chapter with literal numbers, what is chosen, and what is refused."""

import pytest
import torch
from builders import CONFIG
from hypothesis import given
from hypothesis import strategies as st

from kvlab import NotEnoughMemory
from kvlab.tensors import memory_budget
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.memory_budget import (
    BOOKKEEPING,
    Block,
    chosen_blocks,
    plan,
    refuse_weights,
    step_nbytes,
)
from kvlab.tensors.model import Decoder
from kvlab.tensors.stored import cache_format
from kvlab.tensors.weight_counts import num_parameters

MIB = 2**20
GIB = 2**30
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TINY = Block(4, 2, 32, 128, 16, "fp32")  # of the tiny model: 32 KiB a block
LLAMA = ModelConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_layers=32,
    num_query_heads=32, num_kv_heads=8, head_dim=128, max_model_len=131072,
    tie_word_embeddings=False,
)  # fmt: skip


def planned(num_blocks=None, cpu_blocks=0, *, free, step=MIB, device=CPU, block=TINY, host=None):
    told = {CPU: free if host is None else host, CUDA: free}
    return plan(
        block,
        lambda blocks: step,
        device=device,
        weights=3 * MIB,
        context=64,
        most=1 << 20,
        num_blocks=num_blocks,
        cpu_blocks=cpu_blocks,
        free=told.get,
    )


def test_a_block_is_the_chapter_s_product():
    assert TINY.nbytes == 2 * 4 * 2 * 32 * 4 * 16 == 32768
    assert TINY.product(256) == (
        "2 x 4 layers x 2 KV heads x 32 numbers x 4 bytes (fp32) x 16 positions x 256 blocks "
        "= 8 MiB"
    )
    assert Block.of(LLAMA, cache_format("bf16"), 16).nbytes == 16 * 128 * 1024  # 128 KiB a token


def test_formats_with_scales_count_them():
    eight, four = (Block.of(LLAMA, cache_format(name), 1) for name in ("int8", "q4_0"))
    assert eight.vector == 128 + 4 and four.vector == 64 + 4 * 2
    assert "128 numbers x 1.03125 bytes (int8) x 1 positions x 1 block = 66 KiB" in eight.product(1)
    assert "x 0.5625 bytes (q4_0)" in four.product(1)


@pytest.mark.parametrize(
    ("free", "temporaries", "blocks", "why"),
    [
        (None, MIB, 256, "four full contexts"),
        (16 * MIB, MIB, 256, "four full contexts"),  # 8 MiB are half of it
        (16 * MIB - 1, MIB, 255, "half of what is free"),
        (4 * MIB, MIB, 64, "half of what is free"),  # and one full context
        (3 * MIB, MIB, 64, "one full context, though that is more than half of what is free"),
        (3 * MIB - 1, MIB, 47, "half of what is free"),  # a context and a step do not fit
        (3 * MIB, 2 * MIB, 32, "what a step leaves free"),
        (MIB, MIB, 0, "what a step leaves free"),
        (0, MIB, 0, "half of what is free"),
    ],
)
def test_what_is_chosen(free, temporaries, blocks, why):
    assert chosen_blocks(TINY.nbytes, 64, free, temporaries, 1 << 20) == (blocks, why)


def test_512_mib_at_most():
    assert chosen_blocks(MIB, 1000, 64 * GIB, 0, 1 << 20) == (512, "512 MiB at most")
    assert chosen_blocks(GIB, 1, 64 * GIB, 0, 1 << 20) == (
        1,
        "one block, though that is more than 512 MiB",
    )
    assert chosen_blocks(1, 10**6, 64 * GIB, 0, 1 << 20) == (
        1 << 20,
        "as many blocks as a pool may have",
    )


sizes = st.integers(1, 10**6)


@given(sizes, st.integers(1, 500), st.integers(0, 10**9), st.integers(0, 10**8))
def test_what_is_chosen_fits(nbytes, context, free, temporaries):
    blocks, _ = chosen_blocks(nbytes, context, free, temporaries, 1 << 20)
    at_most, _ = chosen_blocks(nbytes, context, None, temporaries, 1 << 20)
    assert 0 <= blocks <= at_most
    assert blocks == 0 or blocks * nbytes + temporaries <= free
    one = min(context, at_most)
    assert blocks <= one or blocks * nbytes <= free / 2
    assert blocks >= one or one * nbytes + temporaries > free


def test_a_plan_says_what_it_chose_and_why():
    found = planned(free=16 * MIB - 1)
    assert (found.num_blocks, found.pool, found.free) == (255, 255 * 32768, 16 * MIB - 1)
    assert str(found) == (
        "255 blocks of 16, 7.97 MiB: half of what is free; weights 3 MiB; a step's temporaries "
        "1 MiB at most; 16 MiB free on cpu before the pool"
    )
    assert "how much is free is not told on cpu" in str(planned(free=None))


def test_who_asks_may_have_more_than_half_and_no_more_than_there_is():
    assert planned(300, free=16 * MIB).num_blocks == 300
    assert planned(480, free=16 * MIB).pool == 15 * MIB  # a step's 1 MiB fits beside it
    with pytest.raises(NotEnoughMemory) as caught:
        planned(481, free=16 * MIB)
    assert str(caught.value) == (
        "the K/V pool does not fit on cpu: 2 x 4 layers x 2 KV heads x 32 numbers x 4 bytes (fp32) "
        "x 16 positions x 481 blocks = 15.03 MiB, and a step's temporaries up to 1 MiB; with 3 MiB "
        "of weights already there, 16 MiB are free. Give num_blocks=434 at most, a cache_dtype of "
        'fewer bytes ("fp16", "int8", "q4_0"), a smaller max_model_len, or free memory: del what '
        "holds other models, restart the kernels of other notebooks"
    )
    assert planned(10**6, free=None).num_blocks == 10**6  # nobody knows: torch will say


@given(st.integers(1, 2000), st.integers(0, 64 * MIB))
def test_the_number_in_the_message_fits_with_its_bookkeeping_and_a_sixteenth_to_spare(
    num_blocks, free
):
    try:
        assert planned(num_blocks, free=free).num_blocks == num_blocks
    except NotEnoughMemory as error:
        said = str(error)
        if "num_blocks=" not in said:
            assert TINY.nbytes + BOOKKEEPING + MIB > free - free // 16 or num_blocks == 1
            return
        most = int(said.split("num_blocks=")[1].split(" ")[0].replace(",", ""))
        assert planned(most, free=free - free // 16).num_blocks == most < num_blocks
        wanted = [n * (TINY.nbytes + BOOKKEEPING) + MIB for n in (most, most + 1)]
        assert wanted[0] <= free - free // 16 and (
            wanted[1] > free - free // 16 or most + 1 == num_blocks
        )


def test_not_even_one_block():
    with pytest.raises(NotEnoughMemory, match=r"x 1 block = 32 KiB.* Give a smaller max_num_batch"):
        planned(free=MIB)
    with pytest.raises(NotEnoughMemory, match="Give a smaller max_num_batched_tokens, a cache_dty"):
        planned(7, free=0)


def test_a_pool_that_bounds_the_step_is_taken_rather_than_none():
    """No step computes more positions than the pool has: a small pool needs small steps."""
    small = {"device": CPU, "weights": 0, "context": 64, "most": 1 << 20}
    found = plan(TINY, lambda blocks: 3 * blocks * TINY.nbytes, free=lambda _: MIB, **small)
    wanted = (8, 3 * MIB // 4, "what a step leaves free")
    assert (found.num_blocks, found.temporaries, found.why) == wanted


def test_a_cpu_tier_lies_beside_the_pool_on_a_cpu():
    assert planned(200, 280, free=16 * MIB).tier == 280 * 32768
    with pytest.raises(NotEnoughMemory, match=r"beside a CPU tier of 8\.78 MiB, .* 7\.22 MiB are"):
        planned(200, 281, free=16 * MIB)
    assert planned(None, 448, free=16 * MIB).num_blocks == 32  # half of the 2 MiB it leaves


def test_a_cpu_tier_s_number_leaves_room_for_the_pool_beside_it():
    """On a CPU both lie in one memory: 15 of 16 MiB, less 64 blocks (2 MiB) and a step (1 MiB)."""
    for num_blocks in (64, None):  # None: one full context
        with pytest.raises(NotEnoughMemory, match="Give cpu_blocks=372 at most, a cache_dtype"):
            planned(num_blocks, 600, free=16 * MIB)
    assert planned(64, 372, free=15 * MIB).tier == 372 * 32768
    with pytest.raises(NotEnoughMemory, match="Give cpu_blocks=None, a cache_dtype"):
        planned(480, 600, free=16 * MIB)
    with pytest.raises(NotEnoughMemory, match="Give num_blocks=171 at most, fewer cpu_blocks, "):
        planned(400, 280, free=16 * MIB)  # bookkeeping of 280 more blocks in the same memory


def test_a_cpu_tier_lies_in_the_host_s_memory_beside_a_gpu():
    found = planned(480, 512, free=16 * MIB, device=CUDA, host=16 * MIB)
    assert (found.pool, found.tier, found.free) == (15 * MIB, 16 * MIB, 16 * MIB)
    with pytest.raises(NotEnoughMemory, match=r"cpu_blocks=513 .*host.* Give cpu_blocks=465 at m"):
        planned(1, 513, free=16 * MIB, device=CUDA, host=16 * MIB)


def test_a_step_s_allowance_is_a_sum_of_widths():
    widths = 4 * 32 + 3 * 48 + 3 * (4 + 2 * 2) * 8
    assert step_nbytes(CONFIG, 4, 10, 1, 100) == (10 * widths + 4 * 100 * 16) * 4 + 8 * 61
    assert step_nbytes(LLAMA, 2, 2048, 64, 131072) < 1.5 * GIB


def test_weights_are_counted_before_they_are_read():
    assert num_parameters(CONFIG) == Decoder.random(CONFIG).num_parameters
    assert num_parameters(LLAMA) == 8_030_261_248
    with pytest.raises(NotEnoughMemory) as caught:
        refuse_weights(10**15, torch.float32, CPU)
    said = str(caught.value)
    assert "the weights do not fit on cpu: 1,000,000,000,000,000 parameters x 4 bytes" in said
    assert "Give a dtype of fewer bytes (torch.bfloat16 has 2), a smaller model" in said


def test_where_nothing_is_told_no_weights_are_refused(monkeypatch):
    monkeypatch.setattr(memory_budget, "free_nbytes", lambda _: None)
    assert refuse_weights(10**15, torch.float32, CPU) is None
