"""The story behind the view "block table": stops, sentences, states, and the three forms."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from blocks_cases import PROMPT_A, chapter, forks, large_run, named, random_run
from history_runner import HistoryRunner, StepClock, make_engine
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import Trace
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.trace import Event, patch_of
from kvlab.engine import LLMEngine
from kvlab.widgets import (
    BlockTable,
    block_table,
    block_table_html,
    block_table_payload,
    module_source,
)
from kvlab.widgets.blocks_merge import told_by
from kvlab.widgets.blocks_story import block_stops, letters
from kvlab.widgets.blocks_table import Moment, blocks_table, fullest
from kvlab.widgets.blocks_words import and_list, blocks_named, logical_named, pieces, unused

HOSTILE = "</script><img src=x onerror=alert(1)>"
LIVE = "application/vnd.jupyter.widget-view+json"


def told(trace: Trace, **options: object) -> list[str]:
    return [stop[3] for stop in block_table_payload(trace, **options)["stops"]]


def state_at(trace: Trace, beginning: str) -> dict:
    """The state of the stop whose sentence begins so."""
    payload = block_table_payload(trace)
    (index,) = [stop[0] for stop in payload["stops"] if stop[3].startswith(beginning)]
    return list(trace.frames())[index].state


# ---- section 21.5's example


def test_the_chapter_s_example_in_words() -> None:
    trace = chapter()
    first = trace.last_state()["blocks"]["7"]["identity"]
    assert re.fullmatch("[0-9a-f]{8}", first)
    frames = list(trace.frames())
    ids = {b: {f.state["blocks"].get(b, {}).get("identity") for f in frames} for b in "29"}
    second, ninth = (next(i for i in ids[b] if i) for b in "29")
    stored = "It is known, not stored:"
    assert told(trace)[:13] == [
        "The pool has 4 blocks of 4 slots, all free. The next to be taken is block 7.",
        "A arrives with a prompt of 6 tokens: 2 logical blocks (⌈6/4⌉). "
        "It waits and holds no physical block yet.",
        "B arrives with a prompt of 4 tokens: 1 logical block (⌈4/4⌉). "
        "It waits and holds no physical block yet.",
        "A is admitted and processes positions 0 to 5, its whole prompt. The pool gives blocks 7 "
        f"and 2 for logical blocks 0 and 1. Block 7 is full now and gets identity {first}. "
        "Two slots of block 2 stay unused. In the same step the pool gives block 9 to B.",
        "B is admitted and processes positions 0 to 3, its whole prompt. Logical block 0 is "
        "block 9, taken in this step: slots 0 to 3 are written. Block 9 is full now and gets "
        f"identity {ninth}.",
        f"The logits of position 5 select ' w0' as A's position 6. {stored} "
        "slot 2 of block 2 is still empty.",
        f"The logits of position 3 select ' w32' as B's position 4. {stored} "
        "there is no logical block 1 yet.",
        "B ends (length) and gives up its 1 reference. Block 9 is free to be taken too, but keeps "
        "its identity: until then a request with the same prefix can find it.",
        "A processes position 6: logical block 1 is block 2, and slot 2 is written. "
        "One slot of it stays unused.",
        f"The logits of position 6 select ' w37' as A's position 7. {stored} "
        "slot 3 of block 2 is still empty.",
        "A processes position 7: logical block 1 is block 2, and slot 3 is written. "
        f"Block 2 is full now and gets identity {second}.",
        f"The logits of position 7 select ' w46' as A's position 8. {stored} "
        "there is no logical block 2 yet.",
        "A processes position 8. Logical block 2 does not exist yet, so the pool gives block 5, "
        "and slot 0 is written. Three slots of it stay unused.",
    ]
    assert told(trace)[15] == (
        f"C is admitted. Its tokens at positions 0 to 3 have the identity of block 7 ({first}), so "
        "block 7 is C's logical block 0 too and now counts 2 references. Nothing is computed or "
        "copied. For the rest the pool gives block 9. Block 9, next in the free queue, was kept "
        f"without a reference under identity {ninth}: that identity is evicted and no longer found."
    )
    assert told(trace)[-2] == (
        "A ends (length) and gives up its 3 references, the last block's first. Block 5 is free. "
        "Block 2 is free to be taken too, but keeps its identity: until then a request with the "
        "same prefix can find it. Block 7 stays in use: C still holds it."
    )


def test_the_chapter_s_example_in_states() -> None:
    trace = chapter()
    prompt = state_at(trace, "A is admitted and processes positions 0 to 5")
    assert prompt["requests"]["A"]["block_table"] == [7, 2]
    assert {b: s["filled"] for b, s in prompt["blocks"].items()} == {"7": 4, "2": 2, "9": 4}
    grown = state_at(trace, "A processes position 8.")
    assert grown["requests"]["A"]["block_table"] == [7, 2, 5] and grown["free"] == [9]
    assert {b: s["filled"] for b, s in grown["blocks"].items()} == {"7": 4, "2": 4, "5": 1, "9": 4}
    shared = state_at(trace, "C is admitted.")
    assert shared["requests"]["C"]["block_table"] == [7, 9] and shared["free"] == []
    assert shared["blocks"]["7"]["ref_cnt"] == 2
    after = state_at(trace, "A ends")
    assert after["free"] == [5, 2] and after["requests"]["C"]["block_table"] == [7, 9]


def test_the_ring_is_around_what_the_sentence_is_about() -> None:
    payload = block_table_payload(chapter())
    rings = {stop[3].split(",")[0]: stop[4:] for stop in payload["stops"]}
    grown = "A processes position 8. Logical block 2 does not exist yet"
    assert rings[grown] == [[5], [8, 9]]
    assert rings["A is admitted and processes positions 0 to 5"] == [[7, 2], [0, 6]]
    assert rings["A ends (length) and gives up its 3 references"] == [[7, 2, 5], None]


def test_the_chapter_s_payload_is_small_and_the_same_every_time() -> None:
    payload = block_table_payload(chapter())
    text = json.dumps(payload)
    assert len(text) < 20_000 and len(block_table_html(payload)) < 20_000
    assert text == json.dumps(block_table_payload(chapter()))


# ---- sharing, copying, losing


def test_continuations_share_and_copy_before_they_write() -> None:
    sentences = told(forks())
    assert [s for s in sentences if "continues from" in s] == [
        f"{letter} (request r.{i}) continues from A: its block table is a copy of A's, blocks 0 "
        f"and 1, which now count {i + 1} references each. No key and no value is copied."
        for i, letter in ((1, "B"), (2, "C"))
    ]
    assert [s for s in sentences if "Copy-on-write" in s] == [
        "B is about to write position 6, slot 2 of block 1, which A and C hold too. Copy-on-write: "
        "the pool gives block 2, 2 written slots of block 1 are copied there, and B's logical "
        "block 1 is block 2 from now on. Block 1 keeps 2 references.",
        "C is about to write position 6, slot 2 of block 1, which A holds too. Copy-on-write: the "
        "pool gives block 3, 2 written slots of block 1 are copied there, and C's logical block 1 "
        "is block 3 from now on. Block 1 keeps 1 reference.",
    ]
    assert "B and C hold some of these blocks too." in sentences[4]


def test_of_many_blocks_the_references_are_told_in_one_word() -> None:
    engine = make_engine(12, 2)
    engine.start_trace()
    engine.add_request([*range(10)], SamplingParams(max_tokens=4), request_id="A")
    engine.step()
    engine.add_request([*range(8), 50, 51, 52], SamplingParams(max_tokens=2, n=2), request_id="B")
    engine.run()
    (forked,) = [s for s in told(engine.stop_trace()) if "continues from" in s]
    assert "blocks 0, 1, 2 and 3 more, which now count 2 or 3 references each. No" in forked


def test_a_failed_step_is_one_stop_for_all_of_its_requests() -> None:
    engine = make_engine(8, 4)
    engine.start_trace()
    engine.add_request([1, 2, 3, 4, 5], SamplingParams(max_tokens=2), request_id="A")
    engine.add_request([6, 7, 8], SamplingParams(max_tokens=2), request_id="B")
    engine.runner.fail_next = True
    with pytest.raises(RuntimeError):
        engine.step()
    engine.run()
    failed = [s for s in told(engine.stop_trace()) if "failed" in s]
    assert failed == [
        "The step failed and is undone. B and A give up 3 references and wait to be computed "
        "again; what this step was to write loses its identity."
    ]


def test_preemption_says_why_and_what_is_kept() -> None:
    engine = make_engine(4, 4, prefix_caching=False)
    engine.start_trace()
    for name, prompt in (("A", [1, 2, 3, 4, 5]), ("B", [6, 7, 8, 9, 10])):
        engine.add_request(prompt, SamplingParams(max_tokens=6), request_id=name)
    engine.run()
    sentences = told(engine.stop_trace())
    assert (
        "B is preempted, because too few blocks are free, and gives up its 2 references, the last "
        "block's first. Blocks 3 and 2 are free. Its tokens are kept; it waits to be computed "
        "again." in sentences
    )
    assert any("again, after its blocks were given up" in s for s in sentences)


def test_a_prompt_in_parts_says_what_is_left() -> None:
    engine = make_engine(8, 4, max_num_batched_tokens=3)
    engine.start_trace()
    engine.add_request(PROMPT_A, SamplingParams(max_tokens=1), request_id="A")
    engine.run()
    first, second = [s for s in told(engine.stop_trace()) if "processes" in s]
    assert first == (
        "A is admitted and processes positions 0 to 2, the first part of its prompt (3 tokens "
        "left). The pool gives block 0 for logical block 0. One slot of block 0 stays unused."
    )
    assert second.startswith(
        "A processes positions 3 to 5, the rest of its prompt. The pool gives block 1 for logical "
        "block 1. Logical block 0 is block 0: slot 3 is written. Block 0 is full now and gets"
    )


def test_every_kind_of_event_is_told_or_belongs_to_one_that_is() -> None:
    kinds = set()
    for seed in range(12):
        trace = random_run(seed)
        hosts = told_by(trace.events)
        kinds |= {e.kind for e in trace.events}
        for i, (event, host) in enumerate(zip(trace.events, hosts, strict=True)):
            if host is not None:
                assert host >= i and hosts[host] == host
            else:  # told with the first positions, or with none
                assert event.kind in ("scheduled", "admitted")
    told_here = {"computed", "selected", "shared", "forked", "copied", "evicted", "preempted"}
    assert told_here | {"freed", "finished", "step_failed", "block_taken", "added"} <= kinds


def test_unknown_kinds_get_a_neutral_sentence() -> None:
    trace = forks()
    odd = (
        Event("moved_to_<b>disk</b>", "r", 9, {"x": 1}),
        Event("reset", None, 9),
        Event("new", None, 9),
    )
    longer = Trace(trace.meta, trace.initial, (*trace.events, *odd))
    assert told(longer)[-3:] == [
        "The engine notes an event of A: moved_to_<b>disk</b>.",
        "The prefix cache is reset: no block has an identity any more.",
        "The engine notes an event: new.",
    ]
    assert "<b>" not in block_table_html(block_table_payload(longer))


def allocator(*steps: tuple[str, dict, dict]) -> Trace:
    """A manager alone, without passes: (kind, data, requests and blocks and free after it)."""
    empty = {"requests": {}, "blocks": {}, "free": [7, 2]}
    states, events = [empty], []
    for kind, data, change in steps:
        states.append({**states[-1], **change})
        events.append(Event(kind, "A", 0, data, patch_of(states[-2], states[-1])))
    return Trace({"block_size": 4}, empty, tuple(events))


def test_blocks_that_no_pass_writes_are_stops_of_their_own() -> None:
    request = {"status": "running", "num_prompt_tokens": 3, "token_ids": [1, 2, 3]}
    held = {"A": {**request, "num_computed_tokens": 0, "block_table": [7]}}
    block = {"ref_cnt": 1, "identity": None, "filled": 0, "tier": "device"}
    gone = {"A": {**request, "num_computed_tokens": 0, "block_table": []}}
    trace = allocator(
        (
            "block_taken",
            {"block_id": 7, "logical_block": 0},
            {"requests": held, "blocks": {"7": block}, "free": [2]},
        ),
        ("unregistered", {"block_ids": [7]}, {}),
        (
            "freed",
            {"block_ids": [7]},
            {"requests": gone, "blocks": {"7": {**block, "ref_cnt": 0}}, "free": [7, 2]},
        ),
    )
    assert told(trace)[1:] == [
        "The pool gives block 7 for A's logical block 0.",
        "A gives up its 1 reference. Block 7 is free. "
        "Identities go with the last reference here, so nothing is kept.",
    ]


def test_immediate_release_frees_blocks_with_their_identities() -> None:
    policy = PrefixCachePolicy(retain_freed=False)
    manager = KVCacheManager(BlockPool([7, 2, 9, 5]), 4, policy=policy)
    engine = LLMEngine(Scheduler(manager), HistoryRunner(4), StepClock())
    engine.start_trace()
    engine.add_request(PROMPT_A, SamplingParams(max_tokens=1), request_id="A")
    engine.run()
    assert told(engine.stop_trace())[-1] == (
        "A ends (length) and gives up its 2 references, the last block's first. Blocks 2 and 7 are "
        "free. Identities go with the last reference here, so nothing is kept."
    )


def test_kept_logits_have_a_sentence_when_kept_and_when_used() -> None:
    engine = make_engine(4, 4, policy=PrefixCachePolicy(kept_logits=1))
    for name in "AB":
        engine.add_request([5, 6, 7, 8], SamplingParams(max_tokens=1), request_id=name)
        if name == "A":
            engine.start_trace()
            engine.run()
    engine.run()
    sentences = told(engine.stop_trace())
    assert (
        "The logits of A's position 3 are kept beside block 0: a prompt that ends there needs no "
        "pass to select its first output." in sentences
    )
    assert (
        "B's whole prompt was found, and the logits of its last position were kept beside block "
        "0: its first output is selected from them, without a pass." in sentences
    )


# ---- invariants over random histories


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(5, 16), st.integers(1, 5))
def test_at_every_stop_the_drawn_state_is_the_trace_s(seed: int, blocks: int, size: int) -> None:
    trace = random_run(seed, blocks, size)
    payload = json.loads(json.dumps(block_table_payload(trace)))
    drawn = list(Trace.from_dict(payload["trace"]).frames())
    frames = list(trace.frames())
    assert len(drawn) == len(frames)
    indices = [stop[0] for stop in payload["stops"]]
    assert indices == sorted(set(indices)) and indices[0] == 0
    for index in indices:
        old, new = frames[index].state, drawn[index].state
        assert new["blocks"] == old["blocks"] and new["free"] == old["free"]
        assert new["requests"].keys() == old["requests"].keys()
        for name, request in old["requests"].items():
            assert new["requests"][name].items() <= request.items()
            table = request["block_table"]
            where = {
                piece.logical * size + slot: (piece.block, slot)
                for piece in pieces(table, 0, request["num_computed_tokens"], size)
                for slot in range(piece.first, piece.after)
            }
            stored = range(request["num_computed_tokens"]) if table else ()
            assert where == {t: (table[t // size], t % size) for t in stored}
    assert all(set(stop[4]) <= set(payload["blocks"]) for stop in payload["stops"])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_sentence_tells_every_taken_block_and_the_story_survives_json(seed: int) -> None:
    trace = random_run(seed)
    payload = block_table_payload(trace)
    assert block_table_payload(Trace.from_json(trace.to_json())) == payload
    reduced = Trace.from_dict(json.loads(json.dumps(payload["trace"])))
    again = [
        [s.index, s.kind, s.request, s.sentence] for s in block_stops(reduced, payload["shown"])
    ]
    assert again == [stop[:4] for stop in payload["stops"]]
    sentences = {stop[0]: stop[3] for stop in payload["stops"]}
    hosts = told_by(trace.events)
    for i, event in enumerate(trace.events):
        if event.kind != "block_taken" or trace.events[hosts[i]].kind != "computed":
            continue
        start, end = (trace.events[hosts[i]].data[key] for key in ("start", "end"))
        near = pieces([0] * 99, start, end, trace.meta["block_size"])
        if len(near) <= 2 and event.data["logical_block"] in [p.logical for p in near]:
            assert re.search(rf"\b{event.data['block_id']}\b", sentences[hosts[i] + 1])


# ---- which requests, which letters, which blocks


def test_chosen_requests_keep_their_letters_and_only_their_events_are_stops() -> None:
    payload = block_table_payload(chapter(), requests=["C"])
    assert payload["shown"] == ["C"]
    assert payload["requests"] == [["A", "A"], ["B", "B"], ["C", "C"]]
    assert {stop[2] for stop in payload["stops"]} == {None, "C"}
    with pytest.raises(ValueError, match="no request 'X'; the trace has A, B, C"):
        block_table_payload(chapter(), requests=["X"])
    with pytest.raises(ValueError, match="no request is named; give ids, or None"):
        block_table_payload(chapter(), requests=[])


def test_a_trace_without_its_block_size_is_refused() -> None:
    trace = chapter()
    with pytest.raises(ValueError, match="does not say its block_size; record it with"):
        block_table_payload(Trace({}, trace.initial, trace.events))


def test_letters_follow_the_arrivals_and_leave_letters_alone() -> None:
    assert letters(["r1", "B", "r2", "A"]) == {"r1": "C", "B": "B", "r2": "D", "A": "A"}
    many = list(letters([f"r{i}" for i in range(60)]).values())
    assert many[:3] == ["A", "B", "C"] and many[25:28] == ["Z", "A1", "B1"]
    assert len(set(many)) == 60


def test_of_many_blocks_that_stay_free_a_few_are_drawn() -> None:
    engine = make_engine(100, 4)
    engine.start_trace()
    engine.add_request([1, 2, 3], SamplingParams(max_tokens=1), request_id="A")
    engine.run()
    payload = block_table_payload(engine.stop_trace())
    assert payload["blocks"] == list(range(9)) and payload["left_out"] == 91


def test_words_for_blocks_and_slots() -> None:
    assert and_list([1]) == "1" and and_list([1, 2, 3]) == "1, 2 and 3"
    assert blocks_named([7]) == "block 7" and blocks_named([7, 2]) == "blocks 7 and 2"
    assert blocks_named(range(9)) == "blocks 0, 1, 2 and 6 more"
    assert logical_named([0, 1, 2, 3, 4, 5]) == "logical blocks 0 to 5"
    assert unused(1, "it") == "One slot of it stays unused."
    assert unused(12, "block 3") == "12 slots of block 3 stay unused."


# ---- the three forms


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.cells.append([])

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("td", "th") and data.strip():
            self.cells[-1].append(data)


def test_the_html_form_shows_the_stop_with_most_blocks_in_use() -> None:
    payload = block_table_payload(chapter())
    moment = fullest(payload)
    assert (moment.stop, moment.used) == (15, 4)
    rows = Elements(block_table_html(payload)).cells
    first = moment.state["blocks"]["7"]["identity"]
    assert ["A", "A", "running", "10", "9", "0 → 7, 1 → 2, 2 → 5"] in rows
    assert ["B", "B", "finished", "5", "0", "none"] in rows
    assert ["C", "C", "running", "5", "4", "0 → 7, 1 → 9"] in rows
    assert ["7", "2", "A, C", "4 of 4", first] in rows
    assert ["9", "1", "C", "0 of 4", "none yet"] in rows


def test_the_table_marks_copies_and_kept_blocks() -> None:
    page = block_table_html(block_table_payload(forks()))
    assert "(copy of block 1)" in page
    trace = chapter()
    payload, after_b = block_table_payload(trace), state_at(trace, "B ends")
    rows = Elements(blocks_table(payload, Moment(7, 2, after_b, {}), "after B")).cells
    ninth = after_b["blocks"]["9"]["identity"]
    assert ["9", "0", "nobody, evictable", "4 of 4", ninth] in rows
    assert ["5", "0", "nobody, free", "0 of 4", "none yet"] in rows


def test_one_output_has_three_forms_that_repeat() -> None:
    one, other = block_table(chapter()), block_table(chapter())
    data, _ = one._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", LIVE}
    assert repr(one) == "BlockTable(26 stops, 3 requests, at most 4 blocks in use)"
    assert one.html() == other.html() and one.model_id not in one.html()
    assert isinstance(one, BlockTable) and one.get_state()["_esm"] == module_source("block_table")
    assert all(line.strip() for line in one.html().splitlines())


def test_the_module_is_one_file_without_imports_network_or_markup_from_text() -> None:
    source = module_source("block_table")
    assert not re.search(
        r"^\s*import\b|\bimport\s*\(|https?:(?!//www\.w3\.org/2000/svg)", source, re.M
    )
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|@import|url\(", source)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)
    assert source.count("export default") == 1


def test_hostile_ids_and_tokens_stay_text() -> None:
    engine = make_engine(8, 4)
    engine.start_trace()
    for name in (HOSTILE, "__proto__", "constructor", "line\nbreak"):
        engine.add_request(PROMPT_A, SamplingParams(max_tokens=1), request_id=name)
    engine.run()
    trace = named(engine.stop_trace())
    vocab = {token: HOSTILE for token in trace.meta["vocab"]}
    trace = Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)
    page = block_table_html(block_table_payload(trace))
    tags = Elements(page).tags
    assert "img" not in tags and tags.count("script") == 1
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert all(line.strip() for line in page.splitlines())
    assert "B (request __proto__) arrives" in page and "D (request line\\nbreak) arrives" in page


def test_the_large_run_takes_all_its_blocks() -> None:
    payload = block_table_payload(large_run())
    assert (len(payload["blocks"]), payload["left_out"]) == (200, 0)
    assert len(payload["requests"]) == 20


def test_the_view_imports_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, kvlab.widgets.blocks_view\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')"
        " or m in ('kvlab.llm', 'kvlab.engine', 'kvlab.tensors')]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 0
