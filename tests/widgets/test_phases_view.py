"""Prefill against decode: places under the roof, sentences, and what is refused."""

import json
import re
import subprocess
import sys

import pytest
from phases_cases import HOSTILE, POINTS, ceilings, phases, point

from kvlab.measure.roofline_records import Case
from kvlab.widgets import module_source, phases_html, phases_payload, phases_view
from kvlab.widgets.roofline_words import amount, digits, duration


def test_prefills_by_length_then_decodes_by_context_and_batch() -> None:
    payload = phases_payload(phases(), ceilings())
    names = [f"{p['letter']} {p['label']}" for p in payload["points"]]
    assert names == ["P 1 x 64", "P 1 x 512", "D 1 x 8", "D 1 x 512", "D 4 x 512"]
    assert payload["newest"] == 2 and payload["points"][2]["label"] == "1 x 8"  # measured last
    assert len(payload["said"]) == 6


def test_the_roof_is_the_two_measured_ceilings() -> None:
    roof = phases_payload(phases(), ceilings())["roof"]
    assert (roof["bandwidth"], roof["rate"], roof["ridge"]) == (10e9, 100e9, 10.0)
    assert roof["memory"] == "memory: 10.0 GB/s"
    assert roof["arithmetic"] == "arithmetic: 100 GFLOP/s"
    assert roof["ways"][0] == ["copy", "8.00 GB/s", "7.20 GB/s to 8.80 GB/s", "copy, 64 MiB"]


def test_a_decode_below_the_slope_and_a_prefill_below_the_flat_part() -> None:
    found = {p["label"] + p["letter"]: p for p in phases_payload(phases(), ceilings())["points"]}
    decode, prefill = found["4 x 512D"], found["1 x 512P"]
    assert (decode["intensity"], decode["reached"], decode["attainable"]) == (1.0, 8e9, 10e9)
    assert (decode["bounds"], decode["limit"], decode["share"]) == ([0.02, 0.002], "memory", "80 %")
    assert (prefill["intensity"], prefill["reached"], prefill["attainable"]) == (20.0, 50e9, 100e9)
    assert (prefill["bounds"], prefill["limit"]) == ([0.02, 0.04], "compute")
    assert prefill["share"] == "50 %" and prefill["tokens"] == 512 and decode["tokens"] == 4


def test_the_sentences_read_alone_tell_the_story() -> None:
    said = phases_payload(phases(), ceilings())["said"]
    assert said[0] == (
        "The roof of this machine: memory delivers 10.0 GB/s, arithmetic 100 GFLOP/s; they meet "
        "at 10.0 FLOPs a byte. Of 2 prefills, prefill 1 x 512 comes closest: 50 %. Of 2 decodes "
        "whose bytes exceed the cache, decode 4 x 512 comes closest: 80 %."
    )
    assert said[5] == (
        "decode 4 x 512 (4 requests, 1 token each after 512 positions): 200 MFLOP, 200 MB, "
        "1.00 FLOPs a byte. It took 25.0 ms, 160 tokens/s, and reached 8.00 GB/s and "
        "8.00 GFLOP/s; its bytes need at least 20.0 ms at 10.0 GB/s: 80 % of the time it took. "
        "The limit is memory."
    )
    assert said[2] == (
        "prefill 1 x 512 (1 request, 512 tokens): 4.00 GFLOP, 200 MB, 20.0 FLOPs a byte. "
        "It took 80.0 ms, 6,400 tokens/s, and reached 2.50 GB/s and 50.0 GFLOP/s; its FLOPs need "
        "at least 40.0 ms at 100 GFLOP/s: 50 % of the time it took. The limit is arithmetic."
    )


def test_a_share_above_one_is_no_error_where_the_bytes_fit_into_the_cache() -> None:
    payload = phases_payload(phases(), ceilings())
    small = payload["points"][2]
    assert small["cached"] and small["share"] == "200 %"
    assert payload["said"][3].endswith(
        "These bytes fit into the processor's cache of 1 MiB, so more than 100 % is no error."
    )
    assert "comes closest: 80 %" in payload["said"][0]  # nothing is claimed from the cache
    unknown = phases_payload(phases(), ceilings(cache_nbytes=None))
    assert not unknown["points"][2]["cached"] and "measure both again" in unknown["said"][3]


def test_a_pass_alone_of_its_phase_is_not_compared() -> None:
    (prefill,) = (point for point in POINTS if str(point.case) == "prefill 1 x 512")
    said = phases_payload(phases((prefill,)), ceilings())["said"][0]
    assert said.endswith("10.0 FLOPs a byte. Prefill 1 x 512 reaches 50 % of the roof.")


def test_what_was_left_out_is_named_with_the_reason() -> None:
    rest = (Case("prefill", 1, 1024), Case("decode", 16, 512))
    cut = phases(POINTS[:2], left_out=rest, why_left_out="time")
    said = phases_payload(cut, ceilings())["said"]
    assert said[0].endswith("Not measured, the time was spent: prefill 1 x 1024, decode 16 x 512.")


def test_before_a_run_there_is_an_empty_roof_and_what_to_do() -> None:
    empty = phases_payload(None, None)
    assert empty["roof"] is None and empty["points"] == [] and empty["newest"] is None
    assert empty["said"][0].startswith("Nothing was measured yet: press Run.")
    alone = phases_payload(None, ceilings())
    assert alone["roof"]["ridge"] == 10.0 and len(alone["said"]) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.05e8, "205 MB"), (999.6, "1.00 kB"), (12, "12.0 B"), (0.2, "0.20 B"), (3e13, "30.0 TB")],
)
def test_amounts_have_units_and_three_digits(value: float, text: str) -> None:
    assert amount(value, "B") == text


def test_durations_choose_their_unit() -> None:
    assert [duration(s) for s in (2.5, 0.0251, 0.9996, 4e-6)] == [
        *("2.50 s", "25.1 ms", "1.00 s", "4.00 µs")
    ]
    assert [digits(v) for v in (99.96, 9.996, 20_400)] == ["100", "10.0", "20,400"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 2}, "threads of the phases is 1, of the ceilings 2; measure both"),
        ({"dtype": "bfloat16"}, "dtype of the phases is 'float32', of the ceilings 'bfloat16'"),
        ({"device": "cuda"}, "device of the phases is 'cpu', of the ceilings 'cuda'"),
        ({"name": "another"}, "name of the phases is 'a machine', of the ceilings 'another'"),
    ],
)
def test_ceilings_of_another_machine_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        phases_view(phases(), ceilings(**changes))


def test_a_second_gpu_is_still_a_gpu() -> None:
    gpu = {"device": "cuda", "threads": None}
    payload = phases_payload(phases(**{**gpu, "device": "cuda:0"}), ceilings(**gpu))
    assert len(payload["points"]) == 5 and "thread" not in payload["about"]


@pytest.mark.parametrize("given", [(None, ceilings()), (phases(), None), ({}, ceilings())])
def test_other_records_are_refused(given: tuple) -> None:
    with pytest.raises(ValueError, match=r"measure_phases|phases has type dict; give Phases"):
        phases_view(*given)


def test_all_three_forms_say_the_same() -> None:
    view = phases_view(phases(model=HOSTILE), ceilings(), title=HOSTILE)
    assert repr(view) == "PhasesView(2 prefills, 3 decodes)"
    html = view.html()
    assert HOSTILE not in html and "&lt;img src=x" in html
    found = re.search(r'<script type="application/json">(.*?)</script>', html)
    assert json.loads(found[1]) == view.payload
    for text in ("decode 4 x 512", "200 MFLOP", "20.0 ms", "7.20 GB/s to 8.80 GB/s", "80 %"):
        assert text in html
    assert "arithmetic" in html and html == phases_html(view.payload)
    (data, _) = view._repr_mimebundle_()
    assert data["text/html"] == html and data["text/plain"] == repr(view)


def test_a_run_of_one_phase_alone_is_shown() -> None:
    payload = phases_payload(phases((point("prefill", 4, 64, 10, 400, 20_000),)), ceilings())
    assert payload["points"][0]["tokens"] == 256
    assert "4 requests, 64 tokens each" in payload["said"][1] and "decode" not in payload["said"][0]


def test_the_view_needs_no_torch_and_its_module_asks_no_network() -> None:
    parts = "kvlab.widgets.roofline_view, kvlab.measure.roofline"
    code = f"import sys, {parts}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    source = module_source("phases") + module_source("phase_timer")
    assert "http" not in source and "innerHTML" not in source and "\nimport " not in source
