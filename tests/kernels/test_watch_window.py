"""Watching layers with a window: freed blocks, a small model that has one, and odd scores."""

import json
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="there is no kernel to watch without Triton")
sys.path.append(str(Path(__file__).parents[1] / "tensors"))

from builders import make_engine, random_model
from paged_cases import LOW, Case, scored

from kvlab import SamplingParams
from kvlab.measure.kernel_case import kernel_case
from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.watch_engine import watch_request
from kvlab.tensors.watch_kernel import can_watch, watch_decode, why_not
from kvlab.widgets import kernel_payload

pytestmark = pytest.mark.skipif(not can_watch(), reason=why_not())
WINDOW = 6


@pytest.fixture(scope="module")
def model():
    return random_model(sliding_window=WINDOW, layer_types=("sliding_attention",) * 2)


def given(case):
    return case.query, case.key_cache, case.value_cache, case.block_table, case.seq_lens


def test_entries_of_freed_blocks_may_be_minus_one() -> None:
    """21 positions in blocks of 4, a window of 9: positions 12 to 20, entries 3 to 5."""
    case = Case((2, 1), 16, 4, (21,), window=9)
    wanted, blocks = case.wanted(), case.tables[0]
    case.block_table[0, :3] = -1
    log, out, _ = watch_decode(*given(case), window=9, num_splits=1)
    assert log.block_table == ((-1, -1, -1, *blocks[3:]),)
    assert log.slots_read(0, 0) == log.table_slots(0)
    assert log.slots_read(0, 0) == [b * 4 + i for b in blocks[3:] for i in range(4)][:9]
    assert (out - wanted).abs().max() < 1e-6
    assert "(3 before them were freed)" in kernel_payload(log)["stops"][1]["sentence"]


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (10, r"needs 6 entries .*\(those before entry 2 may be anything\); its row is \[-1"),
        (None, r"needs 6 entries of its block table, each below 14; its row is"),
        (0, "window is 0; give an integer of at least 1"),
        ("9", "window is '9'; give an integer"),
    ],
)
def test_an_entry_that_the_window_reaches_must_be_a_block(window, message) -> None:
    case = Case((2, 1), 16, 4, (21,), window=9)
    case.block_table[0, :3] = -1
    with pytest.raises(ValueError, match=message):
        watch_decode(*given(case), window=window)


def test_a_long_request_with_a_short_window_has_few_turns() -> None:
    case = Case((2, 1), 16, 16, (4000,), window=20)
    log, *_ = watch_decode(*given(case), window=20, num_splits=1)
    assert [len(program.turns) for program in log.programs] == [2]
    with pytest.raises(ValueError, match="250 turns of programs are more than one can look at"):
        watch_decode(*given(case), num_splits=1)


def test_a_request_of_an_engine_that_has_freed_blocks(model) -> None:
    engine = make_engine(model)
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
    (request,) = engine.add_request(list(range(3, 12)), params, request_id="A")
    while request.num_computed_tokens < 17:
        engine.step()
    log, *_ = watch_request(engine, "A", layer=1, num_splits=1)
    assert log.window == WINDOW and log.seq_lens == (18,)
    freed = [block < 0 for block in log.block_table[0]]
    assert freed == [True, True, True, False, False]  # positions 0 to 11; 12 to 17 are read
    assert log.slots_read(0, 1) == log.table_slots(0) and len(log.slots_read(0, 1)) == WINDOW


def test_a_kernel_case_of_a_layer_with_a_window(model) -> None:
    case = kernel_case(model, range(3, 16), (4, 2, 9, 5, 1, 7, 8, 3, 6), positions=15, layer=1)
    assert case.window == WINDOW and case.to("cpu").window == WINDOW
    found = launch.paged_decode(*case.given, window=case.window)
    assert (found - case.wanted()).abs().max() < 1e-5
    assert (case.by_engine - case.wanted()).abs().max() < 1e-5
    whole = [row[:4] for row in case.block_table.tolist()]
    lens = case.seq_lens.tolist()
    caches = (case.key_cache, case.value_cache)
    everything = paged_attention_spec(case.query, *caches, whole, [1, 1], lens)
    assert (everything - case.wanted()).abs().max() > 1e-4  # the window does something here


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of infinity - infinity
@pytest.mark.parametrize("scores", [LOW + [0.0] * 4, LOW * 2, [torch.inf, 0.0], [torch.nan, 0.0]])
def test_odd_scores_can_be_watched_and_drawn(scores) -> None:
    case = scored(scores)
    log, out, _ = watch_decode(*given(case))
    assert torch.equal(out, case.decode(num_splits=2, tile=16)) or out.isnan().all()
    payload = kernel_payload(log)
    assert json.loads(json.dumps(payload, allow_nan=False))["scale"]["max2"][0] > -1e3
    assert type(log).from_dict(json.loads(json.dumps(log.to_dict()))).programs[0].turns
