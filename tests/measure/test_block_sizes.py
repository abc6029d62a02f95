"""What a workload takes in blocks of one size, by hand for a small one."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.core.request import SamplingParams
from kvlab.measure.block_sizes import STORED, serve_in_blocks
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

CONFIG = ModelConfig(
    vocab_size=31, hidden_size=16, intermediate_size=24, num_layers=1,
    num_query_heads=2, num_kv_heads=1, head_dim=8,
)  # fmt: skip
MODEL = Decoder.random(CONFIG, seed=3)
SIX, THREE = [1, 2, 3, 4, 5, 6], [9, 8, 7]


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=True)


def test_two_requests_counted_by_hand() -> None:
    """Lengths in the steps: 6 and 3, 7 and 4, 8; blocks of four: 2 and 1, 2 and 1, 2."""
    use = serve_in_blocks(MODEL, [SIX, THREE], [params(3), params(2)], block_size=4, num_slots=64)
    assert (use.block_size, use.num_blocks, use.steps, use.most_running) == (4, 16, 3, 2)
    assert use.positions == 9 + 11 + 8
    assert use.slots == 4 * (3 + 3 + 2)
    assert use.entries == 3 + 3 + 2
    assert use.empty_share == 1 - 28 / 32
    assert (use.turns, use.tail) == (2 + 2 + 1, 4 / 5)
    assert [len(out) for out in use.token_ids] == [3, 2]
    assert use.num_preemptions == 0


def test_a_reserved_region_is_one_large_block() -> None:
    """16 slots: two regions of 8, so the third request waits until one of the first has ended."""
    several = [SIX, THREE, THREE]
    reserved = serve_in_blocks(MODEL, several, params(2), block_size=8, num_slots=16)
    paged = serve_in_blocks(MODEL, several, params(2), block_size=2, num_slots=16)
    assert (reserved.num_blocks, reserved.most_running, reserved.steps) == (2, 2, 4)
    assert (paged.num_blocks, paged.most_running, paged.steps) == (8, 3, 2)
    assert paged.token_ids == reserved.token_ids
    assert paged.empty_share < reserved.empty_share


def test_slots_that_make_no_whole_block_are_left_out() -> None:
    use = serve_in_blocks(MODEL, [THREE], params(1), block_size=4, num_slots=11)
    assert (use.num_blocks, use.slots, use.positions) == (2, 4, 3)


def test_a_request_sent_back_is_counted_as_often_as_it_runs() -> None:
    use = serve_in_blocks(MODEL, [SIX, SIX], params(6), block_size=2, num_slots=18)
    alone = serve_in_blocks(MODEL, [SIX], params(6), block_size=2, num_slots=18)
    assert use.num_preemptions > 0 and alone.num_preemptions == 0
    assert use.token_ids == alone.token_ids * 2
    assert use.positions > 2 * alone.positions - alone.positions // alone.steps


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@settings(deadline=None, max_examples=25)
@given(LENGTHS, st.integers(1, 6))
def test_a_smaller_block_wastes_no_more_and_needs_no_fewer_entries(
    lengths: list[int], outputs: int
) -> None:
    prompts = [[(7 * i + t) % 31 for t in range(n)] for i, n in enumerate(lengths)]
    small, large = (
        serve_in_blocks(MODEL, prompts, params(outputs), block_size=size, num_slots=128)
        for size in (2, 4)
    )
    assert small.token_ids == large.token_ids
    assert (small.positions, small.steps) == (large.positions, large.steps)
    assert small.slots <= large.slots and small.entries >= large.entries
    assert small.slots - small.positions <= len(lengths) * 1 * small.steps


@pytest.mark.parametrize("dtype", STORED)
def test_the_stored_type_can_be_another(dtype: torch.dtype) -> None:
    use = serve_in_blocks(MODEL, [SIX], params(2), block_size=4, num_slots=16, dtype=dtype)
    assert use.positions == 6 + 7


@pytest.mark.parametrize("size", [0, -1, 17, 4.0, True, None])
def test_a_size_that_makes_no_block_is_refused(size: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"block_size is {size!r}; give an integer")):
        serve_in_blocks(MODEL, [THREE], params(1), block_size=size, num_slots=16)


@pytest.mark.parametrize("count", [0, -16, 16.5, 16.0, "16", None, True, [16]])
def test_slots_that_are_no_count_are_refused(count: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"num_slots is {count!r}; give an integer")):
        serve_in_blocks(MODEL, [THREE], params(1), block_size=4, num_slots=count)


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ([1, 2], "a prompt is 1; give each as a list of token ids"),
        (["ab"], "a prompt is 'ab'; give each as a list of token ids"),
        ([THREE, None], "a prompt is None; give each"),
        ([THREE, {1, 2}], "a prompt is {1, 2}; give each"),
        ("ab", "prompts is 'ab'; give a list of prompts"),
        (5, "prompts is 5; give a list of prompts"),
        (None, "prompts is None; give a list of prompts"),
        ({0: THREE}, "prompts is {0: [9, 8, 7]}; give a list"),
        (torch.tensor([THREE]), "prompts is tensor([[9, 8, 7]]); give a list"),
        ([THREE, [4, 31]], "prompt token 31 is not an id of this vocabulary (0 to 30)"),
        ([[-1]], "prompt token -1 is not an id"),
        ([[1.5]], "prompt token 1.5 is not an id"),
        ([[True]], "prompt token True is not an id"),
        ([["a"]], "prompt token 'a' is not an id"),
        ([THREE, []], "the prompt has no tokens; give at least one"),
        ((), "no prompts; give at least one"),
    ],
)
def test_prompts_that_are_no_ids_are_refused(prompts: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        serve_in_blocks(MODEL, prompts, params(1), block_size=4, num_slots=16)


@pytest.mark.parametrize("dtype", ["float16", float, 0, torch.int8, torch.bool, torch.float8_e5m2])
def test_a_type_that_cannot_be_stored_is_refused(dtype: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"dtype is {dtype!r}; give one of torch.fl")):
        serve_in_blocks(MODEL, [THREE], params(1), block_size=4, num_slots=16, dtype=dtype)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("tiny", "model is 'tiny'; give a Decoder"),
        (None, "model is None; give a Decoder"),
        (CONFIG, "model is ModelConfig(vocab_size=31"),
        (Decoder(CONFIG), "model has no weights; give Decoder.random(config)"),
    ],
)
def test_what_is_no_model_is_refused(model: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        serve_in_blocks(model, [THREE], params(1), block_size=4, num_slots=16)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "sampling_params is 5; give a SamplingParams"),
        ([5], "one of sampling_params is 5; give a SamplingParams"),
        ("a", "sampling_params is 'a'; give"),
        (SamplingParams(stop=["x"]), "stop is ('x',); prompts are ids here, give stop_token_ids"),
    ],
)
def test_what_is_no_parameter_is_refused(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        serve_in_blocks(MODEL, [THREE], given, block_size=4, num_slots=16)


def test_other_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="no prompts; give at least one"):
        serve_in_blocks(MODEL, [], params(1), block_size=4, num_slots=16)
    with pytest.raises(ValueError, match="n is 2; give each prompt as often"):
        serve_in_blocks(MODEL, [THREE], SamplingParams(n=2), block_size=4, num_slots=16)
    with pytest.raises(ValueError, match="1 prompts and 2 sampling_params"):
        serve_in_blocks(MODEL, [THREE], [params(1)] * 2, block_size=4, num_slots=16)
    with pytest.raises(ValueError, match="needs 3 blocks of 4 tokens and the whole pool has 2"):
        serve_in_blocks(MODEL, [[1] * 9], params(1), block_size=4, num_slots=8)
