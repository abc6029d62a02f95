"""The rows at 135 million parameters, on a small model; decode through blocks, on a small shape."""

import sys

import pytest

from kvlab.measure import competitors as c
from kvlab.measure import large_model, paged_decode, subjects, throughput
from kvlab.measure.large_model import Case
from kvlab.tensors.config import config_from_hf
from kvlab.tensors.weight_counts import num_parameters

SMALL = (Case("1 request", 1, 0, 20, 4, 1), Case("3 sharing 40", 3, 40, 9, 4, 2))


def test_the_shape_is_smollm2s() -> None:
    assert num_parameters(config_from_hf(subjects.SMOLLM2_SHAPE)) == 134_515_008


def test_prompts_share_a_prefix_within_a_round_alone() -> None:
    first, second = (SMALL[1].prompts(i, 4096) for i in range(2))
    assert [len(prompt) for prompt in first] == [49] * 3
    assert len({tuple(prompt[:40]) for prompt in first}) == 1
    assert len({tuple(prompt[40:]) for prompt in first}) == 3
    assert first[0][:16] != second[0][:16]
    assert c.begin_alike(first) and not c.begin_alike(first[:1])
    assert not c.begin_alike([first[0], second[0]])


def test_every_case_has_its_row(tmp_path) -> None:
    """kvlab's engine checks itself that the prefix was found where there is one."""
    pytest.importorskip("transformers")
    subject = subjects.write_random_llama(tmp_path)
    with throughput.one_thread():
        rows = large_model.measure_subject(subject, SMALL)
    names = [c.KVLAB, c.GENERATE, c.BATCHING, throughput.WHOLE_CALL]
    assert [row["work"] for row in rows] == [case.name for case in SMALL]
    for row, case in zip(rows, SMALL, strict=True):
        assert list(row["engines"]) == names and list(row["ratios"]) == names[1:]
        assert not any(found["mismatches"] for found in row["agreement"].values())
        rates = row["engines"][c.KVLAB]["tokens_per_second"]["repetitions"]
        assert len(rates) == case.rounds and min(rates) > 0
    printed = large_model.table(rows)
    assert printed.count("all 6") == 2 and "the model: random Llama" in printed


def test_without_transformers_kvlabs_rates_stand_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    rows = large_model.measure_subject(subjects.tiny_model(), SMALL[:1])
    printed = large_model.table(rows)
    assert list(rows[0]["engines"]) == [c.KVLAB] and "transformers is not installed" in printed


def test_paged_and_contiguous_decode_give_the_same_numbers() -> None:
    """A context that blocks of 16 do not fill, and one of a single block."""
    shape = paged_decode.Shape(3, 8, 2, 16, (1, 50))
    rows = paged_decode.measure(shape, 2)
    assert [row["context"] for row in rows] == [1, 50]
    for row in rows:
        assert row["difference"] < 1e-6
        assert {len(s["repetitions"]) for s in row["seconds"].values()} == {2}
    assert "paged / contiguous" in paged_decode.table(rows, shape)
