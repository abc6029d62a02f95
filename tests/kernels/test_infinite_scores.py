"""Scores of plus and minus infinity, and NaN in queries, keys and values: as torch's softmax."""

import pytest
import torch
from paged_cases import LOW, Case, nan_pool, on_device, scored, slots_of

from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec

pytestmark = [
    pytest.mark.usefixtures("triton_runs"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, of infinity - infinity
]
NAN, INF = float("nan"), float("inf")
SPLITS = (1, 2, 3, 8)


def mixed(case):
    """The one number of the result by decode in 1, 2, 3 and 8 parts, by prefill, by the formula."""
    outs = [case.decode(num_splits=n, tile=16) for n in SPLITS] + [case.prefill(tile=16)]
    given = (case.query, case.key_cache, case.value_cache, case.tables)
    outs.append(paged_attention_spec(*given, case.chunks, case.lengths).float())
    assert all(out.isnan().all() or len(out.unique()) == 1 for out in outs)
    return [round(float(out.flatten()[0]), 4) for out in outs]


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        (LOW + [0.0] * 4, 18.5),  # the mean of 17 to 20
        ([0.0] * 4 + [-INF] * 12 + LOW, 2.5),
        (LOW + LOW + [0.0], 33.0),
        ([*LOW, -300.0, -300.0], 17.5),  # next to -inf, and far from 0
        ([-INF, 0.0], 2.0),
        ([1.0, -INF, *LOW, 1.0], 10.0),  # 1 and 19
    ],
)
def test_minus_infinity_is_no_weight_wherever_it_stands(scores, wanted) -> None:
    assert mixed(scored(scores)) == [wanted] * 6


@pytest.mark.parametrize("count", [1, 4, 16, 17, 40])
def test_nothing_but_minus_infinity_is_nan(count) -> None:
    """0 / 0, as torch's softmax has it: not zeros, which a request without positions gets."""
    assert all(x != x for x in mixed(scored([-INF] * count)))


@pytest.mark.parametrize("scores", [[INF], [0.0, INF], [INF, *LOW, 0.0], [*LOW, 0.0, INF, INF]])
def test_plus_infinity_is_nan(scores) -> None:
    """Infinity less the largest score, itself, is no number."""
    assert all(x != x for x in mixed(scored(scores)))


@pytest.mark.parametrize("at", [0, 15, 16, 19])
def test_a_value_that_is_nan_is_seen_whatever_it_weighs(at) -> None:
    """0 x NaN is NaN: a position of the request that the query may read is part of the sum."""
    value = [1.0] * 20
    value[at] = NAN
    for scores in ([0.0] * 20, LOW + [0.0] * 4, [0.0] * 4 + LOW, [0.0] * 10 + [200.0] * 10):
        assert all(x != x for x in mixed(scored(scores, value)))


def test_a_request_without_positions_gets_zeros_beside_one_that_gets_nan() -> None:
    case = Case((2, 1), 16, 4, (0, 20, 20))
    key = case.key_cache.flatten(0, 1)
    key[slots_of(case.tables[1], 4, 20)] = 0.0
    key[slots_of(case.tables[1], 4, 20), :, 0] = -INF
    case.query[1] = torch.eye(1, 16)
    for splits in SPLITS:
        out = case.decode(num_splits=splits, tile=16)
        assert (out[0] == 0).all() and out[1].isnan().all()
        assert (out[2] - case.wanted()[2]).abs().max() < 1e-6


def nan_rows(out):
    """Which [row, head] are NaN throughout; no other has one."""
    bad = out.isnan()
    assert torch.equal(bad.any(-1), bad.all(-1))
    return bad.any(-1).nonzero().tolist()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_query_that_is_no_number_spoils_its_own_head_alone(bad) -> None:
    case = Case((4, 2), 16, 4, (20, 33), chunks=(3, 2))
    case.query[1, 2, 5] = bad
    out, wanted = case.prefill(rows=16, tile=16), case.wanted()
    assert nan_rows(out) == [[1, 2]]
    assert (out.nan_to_num(0.0) - wanted).abs().max() < 1e-6
    one = Case((4, 2), 16, 4, (20, 33))
    one.query[1, 3, 0] = bad
    for splits in SPLITS:
        assert nan_rows(one.decode(num_splits=splits, tile=16)) == [[1, 3]]


def test_a_key_that_is_nan_spoils_the_queries_that_may_read_it() -> None:
    """Position 18 of request 0, KV head 1: query heads 2 and 3, from the query at 18 on."""
    case = Case((4, 2), 16, 4, (20, 33), chunks=(3, 2))
    case.key_cache.flatten(0, 1)[slots_of(case.tables[0], 4, 20)[18], 1, 3] = NAN
    out = case.prefill(rows=16, tile=16)
    assert nan_rows(out) == [[1, 2], [1, 3], [2, 2], [2, 3]]  # queries at 17, 18, 19
    assert (out.nan_to_num(0.0) - case.wanted()).abs().max() < 1e-6
    case = Case((4, 2), 16, 4, (20, 33))
    case.key_cache.flatten(0, 1)[slots_of(case.tables[0], 4, 20)[18], 1, 3] = NAN
    for splits in SPLITS:
        assert nan_rows(case.decode(num_splits=splits, tile=16)) == [[0, 2], [0, 3]]
    assert nan_rows(case.decode(window=1)) == []  # behind the window it is not read


@pytest.mark.parametrize("name", ["key", "value"])
def test_an_int8_row_that_reads_as_nan_spoils_the_heads_of_its_own(name) -> None:
    case = Case((4, 2), 16, 4, (20, 33))
    pools = [torch.full(case.key_cache.shape, 77, dtype=torch.int8) for _ in range(2)]
    scales = [nan_pool(case.key_cache.shape[:3]) for _ in range(2)]
    rows = getattr(case, name)
    rows[18, 1, 3] = INF  # of request 0; read as NaN, see tensors/stored.py
    on_device(launch.write_kv, case.key, case.value, *pools, case.slots, *scales)
    names = ("key_cache", "value_cache", "key_scale", "value_scale")
    given = dict(zip(names, [*pools, *scales], strict=True))
    for splits in SPLITS:
        out = case.decode(num_splits=splits, tile=16, **given)
        assert nan_rows(out) == [[0, 2], [0, 3]]
    assert nan_rows(case.prefill(**given)) == [[0, 2], [0, 3]]
