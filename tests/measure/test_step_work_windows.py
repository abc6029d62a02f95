"""What a layer with a sliding window reads and multiplies, counted by hand and by its mask."""

import pytest

from kvlab.measure import step_work
from kvlab.measure.roofline_records import Case
from kvlab.tensors.attention import causal_mask
from kvlab.tensors.config import ModelConfig

SHAPE = ModelConfig(
    vocab_size=10,
    hidden_size=8,
    intermediate_size=12,
    num_layers=2,
    num_query_heads=4,
    num_kv_heads=2,
    head_dim=4,
    max_model_len=64,
)


@pytest.mark.parametrize(
    ("query_len", "seq_len", "window", "pairs", "read"),
    [
        *((2, 5, 3, 6, 4), (2, 5, 1, 2, 2), (5, 5, 2, 9, 5), (1, 9, 4, 4, 4)),
        *((3, 9, 9, 24, 9), (3, 9, 99, 24, 9), (3, 9, None, 24, 9), (3, 9, 8, 23, 9)),
    ],
)
def test_a_window_leaves_out_what_no_query_may_see(query_len, seq_len, window, pairs, read):
    assert step_work.seen_pairs(query_len, seq_len, window) == pairs
    assert step_work.positions_read(query_len, seq_len, window) == read
    mask = causal_mask(query_len, seq_len, window=window)
    assert (int(mask.sum()), int(mask.any(0).sum())) == (pairs, read)


def test_only_layers_with_a_window_count_it():
    """Layer 1 has a window of 4: a decode over 20 reads 21 positions in layer 0, 4 in layer 1."""
    kinds = ("full_attention", "sliding_attention")
    config = ModelConfig(**{**vars(SHAPE), "sliding_window": 4, "layer_types": kinds})
    case = Case("decode", 3, 20)
    whole, nbytes = (step_work.case_nbytes(c, case, 4, 2) for c in (SHAPE, config))
    assert nbytes["keys and values read"] == 3 * (21 + 4) * 2 * 2 * 4 * 2
    assert {**nbytes, "keys and values read": 0} == {**whole, "keys and values read": 0}
    assert step_work.case_flops(config, case)["attention"] == 4 * 4 * 4 * 3 * (21 + 4)
