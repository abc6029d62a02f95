"""Memory runs out for real: what is said, that nothing large stays, and that the engine goes on."""

import json
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import kvlab
from kvlab import LLM, NotEnoughMemory, SamplingParams
from kvlab.core.offload_tier import MOST_BLOCKS
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.out_of_memory import asked_for, explained, ran_out

on_linux = pytest.mark.skipif(
    not Path("/proc/self/statm").is_file(), reason="needs limits that Linux has"
)
TOO_MUCH = 1 << 50  # numbers; no machine has so many addresses


def limited(what: str) -> dict:
    """What memory_limits.py found in a process of its own."""
    program = [sys.executable, str(Path(__file__).with_name("memory_limits.py")), what]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(program, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def steps() -> dict:
    return limited("steps")


@pytest.fixture(scope="module")
def making() -> dict:
    return limited("making")


@on_linux
def test_a_step_that_runs_out_says_what_was_held_and_what_helps(steps):
    said = steps["said"]
    assert said.startswith("out of memory in a step that computes 1,500 positions of 1 request: ")
    assert "46.88 MiB more were asked for" in said  # gate and up: 1,500 x 8,192 x 4 bytes
    assert "Held: weights 13.31 MiB, the K/V pool 2 MiB" in said
    assert "Give a smaller max_num_batched_tokens" in said


@on_linux
def test_the_engine_answers_afterwards_and_the_remedy_helps(steps):
    assert steps["left"] == 0
    assert steps["short"] == steps["wanted"]["short"]
    assert steps["in_parts"] == steps["wanted"]["long"]  # max_num_batched_tokens=64, as little room


@on_linux
def test_requests_keep_their_places_or_are_aborted(steps):
    assert steps["again"] == [True, True] and steps["waiting"] == ["ended", "kept"]
    assert steps["aborted"] is True
    assert steps["kept"] == steps["wanted"]["long"]  # with the room that the budget allows a step
    assert steps["free"] == 128


@on_linux
def test_what_cannot_fit_is_refused_before_it_is_made(making):
    weights, pool = making["weights"][0], making["pool"][0]
    assert "the weights do not fit on cpu: 3,490,432 parameters x 8 bytes = 26.63 MiB" in weights
    assert (
        "2 x 2 layers x 2 KV heads x 32 numbers x 4 bytes (fp32) x 16 positions x 4,096 blocks "
        "= 64 MiB" in pool
    )
    assert re.search("Give num_blocks=[0-9,]+ at most", pool)


@on_linux
def test_who_gives_the_number_of_the_message_gets_an_engine_that_answers():
    """The pool's blocks in Python's objects take memory too, and what is free moves meanwhile."""
    found = limited("following")
    assert sorted(found) == ["cpu_blocks", "num_blocks"]
    assert all(number > 10_000 and count == 3 for number, count in found.values())


@on_linux
def test_what_fails_all_the_same_is_told_in_the_same_terms(making):
    """The limit is one that the budget does not look at."""
    assert "out of memory while the weights were loaded" in making["weights, late"][0]
    assert "out of memory while the K/V pool was made: 32 MiB more" in making["pool, late"][0]
    assert "Planned were 4,096 blocks of 16, 64 MiB: asked for" in making["pool, late"][0]
    assert "the K/V pool and the CPU tier were made: 64 MiB more" in making["tier, late"][0]


@on_linux
def test_an_llm_that_was_not_made_keeps_no_weights(making):
    """Counted while the exception was still held, as a notebook holds its last one."""
    kept = {name: found[1] for name, found in making.items() if name != "small"}
    assert kept == dict.fromkeys(kept, 0) and len(kept) == 5
    assert making["small"][0] == 512 and len(making["small"][2]) == 3  # and another one works


class Insatiable(PagedAttention):
    """Asks, in the second layer, for more than there can be."""

    def __call__(self, layer: int, query: torch.Tensor, *rest: object, **more: object):
        self.seen = [*getattr(self, "seen", ()), weakref.ref(query)]
        if layer == 1:
            torch.empty(TOO_MUCH)
        return super().__call__(layer, query, *rest, **more)


def test_the_exception_holds_no_tensor_of_the_step():
    llm = LLM("tiny", device="cpu", block_size=4, num_blocks=64)
    plain, insatiable = llm.runner.attention, Insatiable(llm.cache, llm.model.dtype)
    params = SamplingParams(max_tokens=4)
    want = llm.generate([[1, 2, 3]], params)[0].outputs[0].token_ids
    llm.reset_prefix_cache()
    llm.runner.attention = insatiable
    with pytest.raises(NotEnoughMemory, match=r"4 PiB more were asked for") as caught:
        llm.generate([[1, 2, 3]], params)
    assert caught.value.__context__ is not None  # torch's own words are there to look up
    assert len(insatiable.seen) == 2 and [ref() for ref in insatiable.seen] == [None, None]
    llm.runner.attention = plain
    assert llm.generate([[1, 2, 3]], params)[0].outputs[0].token_ids == want


def test_a_stream_ends_and_another_request_goes_on():
    llm = LLM("tiny", device="cpu", block_size=4, num_blocks=64)
    (other,) = llm.engine.add_request([5, 6, 7], SamplingParams(max_tokens=3, ignore_eos=True))
    plain = llm.runner.attention
    llm.runner.attention = Insatiable(llm.cache, llm.model.dtype)
    stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=3))
    with pytest.raises(NotEnoughMemory, match="6 positions of 2 requests"):
        next(stream)
    stream.close()
    llm.runner.attention = plain
    assert list(llm.engine.requests) == [other.request_id]
    llm.engine.run()
    assert len(other.output_token_ids) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_blocks": MOST_BLOCKS, "block_size": 1 << 20}, r"x 1048576 positions x 1,048,576 bl"),
        ({"cpu_blocks": MOST_BLOCKS, "block_size": 1 << 20}, "cpu_blocks=1,048,576 does not fit"),
    ],
)
def test_no_pool_larger_than_any_memory(options, said):
    with pytest.raises(NotEnoughMemory, match=said):
        LLM("tiny", device="cpu", **options)


def test_the_plan_is_an_attribute_and_the_default_stays_what_it_was():
    found = LLM("tiny", device="cpu").memory
    assert (found.num_blocks, found.why, found.pool) == (256, "four full contexts", 8 * 2**20)
    assert found.weights == 910_208 * 4 and str(found).startswith("256 blocks of 16, 8 MiB: four ")
    asked = LLM("tiny", device="cpu", num_blocks=8, cpu_blocks=4, cache_dtype="int8").memory
    assert (asked.why, asked.pool, asked.tier) == ("asked for", 8 * 9216, 4 * 9216)


@pytest.mark.parametrize("dtype", ["float32", torch.int8, None])
def test_what_computes_is_a_floating_point_type(dtype):
    with pytest.raises(ValueError, match=r"dtype is .*; give a torch\.dtype such as torch\.bfloat"):
        LLM("tiny", dtype=dtype)


def test_signs_of_exhausted_memory():
    """Real exceptions: of torch, of Python, and those that have nothing to do with memory."""
    found = {}
    for name, work in {
        "torch": lambda: torch.empty(TOO_MUCH),
        "python": lambda: bytearray(1 << 62),
        "shapes": lambda: torch.ones(2) @ torch.ones(3),
        "file": lambda: os.stat("/no/such/file"),
    }.items():
        try:
            work()
        except (RuntimeError, MemoryError, OSError) as error:
            found[name] = ran_out(error), asked_for(error)
    assert {name: out for name, (out, _) in found.items()} == {
        "torch": True, "python": True, "shapes": False, "file": False,
    }  # fmt: skip
    assert found["torch"][1] == "4 PiB more were asked for"
    assert found["python"][1] == "more was asked for"
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a")
    assert ran_out(cuda) and asked_for(cuda) == "2.50 GiB more were asked for"


def test_another_exception_passes_unchanged_and_an_explained_one_is_not_explained_again():
    with pytest.raises(RuntimeError, match="inconsistent tensor size"), explained(str.upper):
        torch.ones(2).dot(torch.ones(3))
    with pytest.raises(NotEnoughMemory) as caught, explained(str.lower), explained(str.upper):
        torch.empty(TOO_MUCH)
    assert str(caught.value) == "4 PIB MORE WERE ASKED FOR"


def test_it_is_exported_and_a_memory_error():
    assert kvlab.NotEnoughMemory is NotEnoughMemory and issubclass(NotEnoughMemory, MemoryError)
