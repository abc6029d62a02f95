"""TTFT taken apart: parts, boundaries, sentences and three forms (section 21.2)."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))

from policy_cases import engine_with
from schedule_cases import TWO_SLOTS

from kvlab.core.ttft import FirstTokenStamps
from kvlab.playing import play
from kvlab.widgets import ttft_html, ttft_parts, ttft_payload

HOSTILE = "<img src=x onerror=alert(1)>"
WHOLE = FirstTokenStamps(
    client_sent=10.0,
    server_arrival=10.0006,
    submitted=10.0013,
    first_scheduled=10.0093,
    first_logits=10.0293,
    selected=10.0297,
    server_sent=10.0303,
    client_received=10.0309,
)


def shown(payload: dict, boundary: str) -> dict[str, str]:
    row = next(r for r in payload["rows"] if r["boundary"] == boundary)
    parts = payload["parts"][row["first"] : row["last"] + 1]
    return {p["name"]: p["text"] for p in parts} | {"TTFT": row["text"], "rest": row["remainder"]}


def test_one_run_three_boundaries() -> None:
    payload = ttft_payload(WHOLE)
    assert payload["unit"] == "ms"
    engine = {"queue": "8.00", "prefill": "20.00", "selection": "0.40"}
    server = {"preparation": "0.70", **engine, "delivery": "0.60"}
    client = {"way there": "0.60", **server, "way back": "0.60"}
    assert shown(payload, "engine") == {**engine, "TTFT": "28.40", "rest": "0.00"}
    assert shown(payload, "server") == {**server, "TTFT": "29.70", "rest": "0.70"}
    assert shown(payload, "client") == {**client, "TTFT": "30.90", "rest": "1.90"}
    assert [part["letter"] for part in payload["parts"]] == list("TIQPSDB")


def test_the_sentences_tell_the_story_without_the_picture() -> None:
    said = ttft_payload(WHOLE)["said"]
    assert len(said) == 1 + 3 + 7
    assert said[0] == (
        "One request, one first token, 3 different TTFTs: engine 28.40 ms, server 29.70 ms, "
        "client 30.90 ms. A TTFT without its two ends cannot be compared."
    )
    assert said[1] == (
        "Engine: queue 8.00 + prefill 20.00 + selection 0.40 = 28.40 ms. It starts when the engine "
        "takes the request, and ends when the step that selects the token ends. All of it is in "
        "equation 21.4, which goes on until delivery: 29.00 ms. The client waits 2.50 ms more."
    )
    assert "Equation 21.4 is 29.00 ms of it. The remainder: preparation. The client" in said[2]
    assert "+ delivery 0.60 + remainder 1.90 = 30.90 ms." in said[3]
    assert said[3].endswith(
        "Equation 21.4 is 29.00 ms of it. The remainder: way there, preparation, way back."
    )
    assert said[6] == (
        "Queue, 8.00 ms: from when the engine takes the request until the model first works on it. "
        "The TTFT of engine, server and client includes it; a term of equation 21.4."
    )
    assert said[7].endswith("It holds the same steps' work for other requests too.")
    assert "Only the client's TTFT includes it; remainder: equation 21.4 has no term" in said[4]


def test_equation_21_4_is_none_of_the_three() -> None:
    """8 + 20 + 0.4 + 0.6 ms, from the engine's taking the request to the first bytes with text."""
    payload = ttft_payload(WHOLE)
    assert payload["equation"] == {"first": 2, "last": 5, "text": "29.00"}
    row = '<th scope="row">eq 21.4</th><td>–</td><td>–</td><td>8.00</td><td>20.00</td>'
    rest = "<td>0.40</td><td>0.60</td><td>–</td><td>–</td><td>29.00</td>"
    assert row + rest in ttft_html(payload)
    engine = ttft_payload(FirstTokenStamps(0.0, 0.008, 0.0284, 0.028))
    assert engine["equation"] is None and "eq 21.4" not in ttft_html(engine)
    assert "equation 21.4, which goes on until delivery. " not in engine["said"][1]
    assert engine["said"][1].endswith("equation 21.4, which goes on until delivery.")


def test_without_the_server_s_arrival_the_equation_is_known_all_the_same() -> None:
    stamps = FirstTokenStamps(
        3.0, 11.0, 32.0, server_sent=35.0, client_sent=0.0, client_received=39.0
    )
    payload = ttft_payload(stamps)
    assert payload["equation"] == {"first": 1, "last": 3, "text": "32.00"}
    assert payload["said"][2].endswith(
        "Equation 21.4 is 32.00 s of it. The remainder: way there + preparation, way back."
    )


def test_shown_parts_add_up_to_the_shown_total() -> None:
    """Each of three thirds is 0.33, and the sum 1.00 all the same: the moments are rounded."""
    third = FirstTokenStamps(0.0, 0.001 / 3, 0.001, 0.002 / 3)
    payload = ttft_payload(third)
    assert payload["unit"] == "ms" or payload["rows"][0]["text"] == "1,000.0"
    texts = [part["text"].replace(",", "") for part in payload["parts"]]
    total = sum(round(float(text) * 100) for text in texts)
    assert total == round(float(payload["rows"][0]["text"].replace(",", "")) * 100)


def test_parts_that_nobody_told_apart() -> None:
    stamps = FirstTokenStamps(3.0, 11.0, 32.0, client_sent=0.0, client_received=39.0)
    payload = ttft_payload(stamps)
    assert payload["unit"] == "s"
    assert [(p["letter"], p["term"]) for p in payload["parts"]] == [
        *(("TI", False), ("Q", True), ("PS", True), ("DB", False)),
    ]
    assert "of it, equation 21.4 names delivery alone." in payload["said"][-1]
    assert [row["boundary"] for row in payload["rows"]] == ["engine", "client"]


def test_the_engine_alone_and_steps() -> None:
    played = play(engine_with(policy="static", max_num_seqs=2), TWO_SLOTS, mode="step")
    late = next(r for r in played.requests if r.request_id == "C")
    view = ttft_parts(FirstTokenStamps.from_times(late.times), unit="steps", request_id="C")
    assert repr(view) == "TtftParts(engine 5 steps)"
    assert shown(view.payload, "engine")["queue"] == "4"
    assert view.payload["said"][0] == (
        "Timed at one boundary: engine 5 steps. What lies outside it was not noted."
    )


def test_a_token_in_no_time() -> None:
    payload = ttft_payload(FirstTokenStamps(1.0, 1.0, 1.0))
    assert payload["length"] == 0 and payload["rows"][0]["text"] == "0.00"


def test_the_book_s_example() -> None:
    payload = ttft_payload(FirstTokenStamps.from_terms(0.008, 0.020, 0.002, 0.003))
    assert shown(payload, "server")["TTFT"] == "33.00"
    assert "= 33.00 ms" in payload["said"][2]


def test_boundaries_that_see_the_same_are_not_called_different() -> None:
    said = ttft_payload(FirstTokenStamps.from_terms(0.008, 0.020, 0.002))["said"]
    assert said[0] == (
        "One request, one first token, timed at 2 boundaries: engine 30.00 ms, server 30.00 ms. "
        "A TTFT without its two ends cannot be compared."
    )


def test_cached_tokens_of_a_prompt_whose_length_nobody_gave() -> None:
    assert ttft_payload(WHOLE, num_cached_tokens=1)["about"] == "1 prompt token cached"
    assert ttft_payload(WHOLE, num_cached_tokens=48)["about"] == "48 prompt tokens cached"


def test_three_forms() -> None:
    options = {"request_id": HOSTILE, "num_prompt_tokens": 512, "num_cached_tokens": 256}
    one, other = (ttft_parts(WHOLE, title=HOSTILE, **options) for _ in range(2))
    data, _ = one._repr_mimebundle_()
    assert data["text/plain"] == "TtftParts(engine 28.40 ms, server 29.70 ms, client 30.90 ms)"
    page = data["text/html"]
    assert page == other.html() and "<img" not in page
    assert json.loads(re.search(r"<script[^>]*>(.*?)</script>", page, re.S)[1]) == one.payload
    assert '<th scope="row">server</th><td>–</td><td>0.70</td><td>8.00</td>' in page
    assert page.count("<li>") == 11 and "prompt of 512 tokens, 256 of them cached" in page
    assert all(line.strip() for line in page.splitlines())


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ValueError, match="stamps has type dict; give FirstTokenStamps"):
        ttft_payload(WHOLE.to_dict())
    with pytest.raises(ValueError, match="unit is 'ms'; give one of s, steps"):
        ttft_html(ttft_payload(WHOLE, unit="ms"))
