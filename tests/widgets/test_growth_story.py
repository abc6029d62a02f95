"""The story behind the view "cache growth": stops, sentences, bytes, and what the payload holds."""

import json

import pytest
from growth_cases import example, small_llm, traced

from kvlab import SamplingParams, Trace
from kvlab.widgets import growth_payload
from kvlab.widgets.growth_story import Stop, chosen_layers, growth_stops
from kvlab.widgets.growth_table import bytes_in_words, growth_formula
from kvlab.widgets.growth_words import ordinal, span


def sentences(trace: Trace, request_id: str = "r1") -> list[str]:
    return [stop.sentence for stop in growth_stops(trace, request_id)]


def test_selecting_and_processing_are_two_stops_of_the_example() -> None:
    stops = growth_stops(example(), "r1")
    assert [s.kind for s in stops] == ["added", *["computed", "selected"] * 4, "finished"]
    assert [s.held for s in stops] == [0, 5, 5, 6, 6, 7, 7, 8, 8, 0]
    assert [s.nbytes for s in stops] == [None, 1280, 1280, 1536, 1536, 1792, 1792, 2048, 2048, None]


def test_each_sentence_says_what_happened_with_the_trace_s_numbers() -> None:
    trace = example()
    outputs = growth_stops(trace, "r1")[-1].request["token_ids"][5:]
    first, second, third, fourth = (f"' w{token}'" for token in outputs)
    none_yet = "output and has no cache entry yet: still"
    assert sentences(trace) == [
        "The request arrives with a prompt of 5 tokens. Nothing is in the cache yet: 0 bytes.",
        "The prompt pass processes positions 0 to 4 and adds 1,280 bytes: "
        "in each layer, a key and a value of each token.",
        f"The logits of position 4 select {first}. It is the first {none_yet} 1,280 bytes.",
        f"Pass 1 processes the first output {first} at position 5 and adds 256 bytes. "
        "It has 6 keys to read.",
        f"The logits of position 5 select {second}. It is the second {none_yet} 1,536 bytes.",
        f"Pass 2 processes the second output {second} at position 6 and adds 256 bytes. "
        "It has 7 keys to read.",
        f"The logits of position 6 select {third}. It is the third {none_yet} 1,792 bytes.",
        f"Pass 3 processes the third output {third} at position 7 and adds 256 bytes. "
        "It has 8 keys to read.",
        f"The logits of position 7 select {fourth}. It is the fourth {none_yet} 2,048 bytes.",
        "The request ends (length). 4 outputs selected, 3 processed: "
        f"the last one, {fourth}, never gets a cache entry. "
        "It gives up its 2 blocks and holds 0 bytes.",
    ]


def test_the_formula_stands_beside_the_measured_bytes() -> None:
    trace = example()
    stop = growth_stops(trace, "r1")[5]
    words, product = growth_formula(trace.meta, stop.held)
    assert (words, product) == (
        "2 · 2 layers · 1 request · 4 KV heads · 7 positions · 8 width · 2 B",
        1792,
    )
    assert bytes_in_words(trace.meta, stop).endswith("they agree.")


def test_the_formula_counts_the_scales_of_int8() -> None:
    """8 values and a scale of 4 bytes are 12 bytes: 1.5 a value."""
    llm = small_llm(cache_dtype="int8")
    trace = traced(llm, [5, 6, 7, 8, 9], SamplingParams(max_tokens=4))
    stop = growth_stops(trace, "r1")[5]
    words, product = growth_formula(trace.meta, stop.held)
    assert words.endswith("8 width · 1.5 B") and product == stop.nbytes == 1344
    assert isinstance(product, int) and bytes_in_words(trace.meta, stop).endswith("they agree.")


def test_bytes_that_do_not_fit_the_formula_are_called_wrong() -> None:
    document = json.loads(example().to_json())
    for event in document["events"]:
        if event["data"].get("nbytes") == 1792:
            event["data"]["nbytes"] = 1800
    trace = Trace.from_dict(document)
    stop = growth_stops(trace, "r1")[5]
    assert stop.nbytes == 1800 and "adds 264 bytes" in stop.sentence
    assert "THEY DISAGREE" in bytes_in_words(trace.meta, stop)


def test_a_reused_prefix_is_a_stop_of_its_own() -> None:
    llm = small_llm()
    llm.generate([5, 6, 7, 8, 9], SamplingParams(max_tokens=1))
    trace = traced(llm, [5, 6, 7, 8, 9, 10], SamplingParams(max_tokens=1))
    assert sentences(trace, "r2")[1:3] == [
        "The prefix cache already holds positions 0 to 3 (1 block): reused, not computed. "
        "2 tokens left to process.",
        "The prompt pass processes the rest of the prompt, positions 4 to 5; "
        "the request now holds 1,536 bytes. It has 6 keys to read.",
    ]


def test_a_prompt_in_parts_tells_what_is_left() -> None:
    llm = small_llm(max_num_batched_tokens=4)
    trace = traced(llm, list(range(5, 11)), SamplingParams(max_tokens=1))
    assert sentences(trace)[1:3] == [
        "The prompt pass takes a part, positions 0 to 3, and adds 1,024 bytes. "
        "2 prompt tokens left. It has 4 keys to read.",
        "The prompt pass processes the rest of the prompt, positions 4 to 5, and adds 512 bytes. "
        "It has 6 keys to read.",
    ]


def test_preemption_empties_the_cache_and_the_positions_are_computed_again() -> None:
    llm = small_llm(num_blocks=4, enable_prefix_caching=False)
    trace = traced(llm, [[5, 6, 7, 8, 9], [6, 7, 8, 9, 5]], SamplingParams(max_tokens=6))
    told = sentences(trace, "r2")
    (lost,) = [i for i, s in enumerate(told) if s.startswith("Preempted")]
    assert (
        "gives up its 2 blocks and waits" in told[lost]
        and "its cache is gone: 0 bytes" in told[lost]
    )
    assert told[lost + 1].startswith("A pass processes positions 0 to 8 again")
    assert growth_stops(trace, "r2")[lost].held == 0


def test_continuations_share_blocks_and_copy_before_they_write() -> None:
    trace = traced(
        small_llm(), [5, 6, 7, 8, 9], SamplingParams(max_tokens=3, n=2, temperature=1.0, seed=1)
    )
    told = sentences(trace, "r1.1")
    assert told[0] == "This request continues from r1 and shares its 2 blocks; nothing is copied."
    assert told[1].startswith("A pass of r1 processes positions 0 to 4, which this request shares.")
    everything = told + sentences(trace)
    assert sum("Copy-on-write: block 1 is shared" in s for s in everything) == 1


def test_the_payload_is_json_with_the_frames_of_one_request() -> None:
    trace = traced(small_llm(), [[5, 6, 7, 8, 9], [9, 8, 7]], SamplingParams(max_tokens=2))
    payload = growth_payload(trace, "r2")
    assert payload == json.loads(json.dumps(payload))
    assert set(payload) == {"view", "title", "request", "layers", "trace", "stops"}
    reduced = Trace.from_dict(payload["trace"])
    assert len(reduced) == len(trace)
    *_, last = reduced.frames()
    assert set(last.state) == {"requests", "blocks"} and set(last.state["requests"]) == {"r2"}
    assert [s.sentence for s in growth_stops(reduced, "r2")] == [
        text for _, text in payload["stops"]
    ]


def test_a_request_has_to_be_named_where_there_are_several() -> None:
    trace = traced(small_llm(), [[5, 6], [7, 8]], SamplingParams(max_tokens=1))
    with pytest.raises(ValueError, match="no request is named; the trace has r1, r2"):
        growth_payload(trace)
    with pytest.raises(ValueError, match="there is no request 'r9'"):
        growth_payload(trace, "r9")


def test_a_trace_without_the_model_s_shape_is_refused() -> None:
    trace = example()
    bare = Trace({"block_size": 4}, trace.initial, trace.events)
    with pytest.raises(ValueError, match="num_layers, num_kv_heads, head_dim, bytes_per_value"):
        growth_payload(bare)


def test_few_layers_are_drawn_all_and_of_many_the_first_two_and_the_last() -> None:
    assert chosen_layers(4, None) == [0, 1, 2, 3]
    assert chosen_layers(32, None) == [0, 1, 31]
    assert chosen_layers(32, [5, 3]) == [3, 5]
    with pytest.raises(ValueError, match="between 0 and 31"):
        chosen_layers(32, [32])


def test_words_for_counts_and_places() -> None:
    assert [ordinal(n) for n in (1, 10, 11, 12, 21, 22, 103, 111)] == [
        "first",
        "tenth",
        "11th",
        "12th",
        "21st",
        "22nd",
        "103rd",
        "111th",
    ]
    assert span(6, 7) == "position 6" and span(0, 5) == "positions 0 to 4"


def test_a_stop_without_blocks_holds_nothing() -> None:
    stop = Stop(1, "finished", "", {"num_computed_tokens": 8, "block_table": []}, None)
    assert stop.held == 0
