"""Two requests that do not fit together: six ways, with the prices counted by hand."""

import re

import pytest

from kvlab.core.request import SamplingParams
from kvlab.measure.too_large import SETTINGS, two_too_large
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

CONFIG = ModelConfig(
    vocab_size=31, hidden_size=16, intermediate_size=24, num_layers=1,
    num_query_heads=2, num_kv_heads=1, head_dim=8,
)  # fmt: skip
MODEL = Decoder.random(CONFIG, seed=3)
A, B, SHORT = list(range(1, 9)), list(range(10, 26)), list(range(22, 26))
SIX = SamplingParams(max_tokens=6, ignore_eos=True)
BLOCK = 2 * 1 * 4 * 1 * 8 * 4  # K and V, layers, slots, heads, width, bytes


@pytest.fixture(scope="module")
def ways():
    """A grows to 13 positions, 4 blocks; B to 21, 6 blocks; the pool has 8."""
    return two_too_large(MODEL, A, B, SHORT, SIX, block_size=4, num_blocks=8)


def test_delays_in_steps(ways):
    """A's outputs come in steps 1 to 6. B arrives after step 2."""
    found = {name: (w.a.ttft, w.a.end, w.b.ttft, w.b.end) for name, w in ways.items()}
    assert list(found) == list(SETTINGS)
    assert found["delay"] == (1, 6, 5, 10)
    assert found["reject"] == (1, 6, None, None)
    assert found["shorten"] == (1, 6, 1, 6)
    assert found["put A aside"][2:] == (1, 6)
    assert found["put A aside"][1] > found["delay"][1]
    for name in ("recompute", "offload"):
        assert found[name][:3] == (1, 6, 1) and 6 < found[name][3] < 10


def test_nothing_but_shortening_and_refusing_changes_an_output(ways):
    a, b = ways["delay"].a.token_ids, ways["delay"].b.token_ids
    assert len(a) == len(b) == 6
    for name, way in ways.items():
        assert way.a.token_ids == a
        if name not in ("reject", "shorten"):
            assert way.b.token_ids == b
    assert ways["reject"].b.token_ids == () and ways["reject"].b.ended == "abort"
    assert ways["shorten"].b.token_ids != b


def test_what_was_admitted_and_what_it_cost(ways):
    assert {n: w.b.prompt for n, w in ways.items()} == {
        **dict.fromkeys(ways, 16), "reject": 0, "shorten": 4,
    }  # fmt: skip
    assert all(w.a.prompt == 8 and w.a.recomputed == 0 and w.peak <= 8 for w in ways.values())
    again = {n: w.b.recomputed for n, w in ways.items() if w.b.recomputed}
    assert list(again) == ["recompute"] and again["recompute"] >= 16
    moved = {n: w.nbytes for n, w in ways.items() if w.nbytes}
    assert list(moved) == ["offload", "put A aside"]
    assert moved["put A aside"] == 2 * 3 * BLOCK  # A's nine positions, there and back
    assert moved["offload"] % (2 * BLOCK) == 0


@pytest.mark.parametrize(
    ("num_blocks", "short", "message"),
    [
        (10, SHORT, "4 and 6 blocks fit into 10; give a smaller pool"),
        (5, SHORT, "the pool has 5 blocks, A needs 4, B 6 and the shortened B 3"),
        (6, SHORT, "A beside the shortened B, must fit"),
        (8, B, "the shortened B 6"),
    ],
)
def test_requests_that_show_nothing_are_refused(num_blocks, short, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        two_too_large(MODEL, A, B, short, SIX, block_size=4, num_blocks=num_blocks)
