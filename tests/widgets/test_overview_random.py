"""The overview's sentences against figures counted a second time, over runs of every kind.

Runs are drawn by seed: continuations, preemption, aborts, prefix hits, prompts in parts, failing
steps, records that begin midway. The second count reads frames and events and nothing of the view.
"""

import re

import pytest
from growth_cases import small_llm
from overview_count import Count, recorded
from test_overview import drawn

from kvlab import SamplingParams, Trace
from kvlab.widgets import overview
from kvlab.widgets.overview_story import overview_story

SEEDS = range(200)


def check_list(text: str, pattern: str, expected: dict[str, object], more: str) -> None:
    """Every name of a short list with its figure; of a long one the first three and the rest."""
    found = re.findall(pattern, text)
    if len(expected) <= 4:
        assert found == list(expected.items())
    else:
        assert found == list(expected.items())[:3] and f"and {len(expected) - 3} {more}" in text


def check_scheduling(text: str, rows: list[list[str]], count: Count) -> None:
    letters = count.letters
    assert rows[0] == ["step", *map(str, count.steps[:14])]
    for row, name in zip(rows[1:-1], count.last, strict=True):
        assert row == [letters[name], *(count.cell(name, s) for s in count.steps[:14])]
    waits = {letters[n]: str(len(w)) for n in count.last if (w := count.waits(n))}
    check_list(text, r"(\w+) waits (\d+) steps?", waits, "more wait")
    assert ("Nobody waits" in text) == (not waits)
    lost = {letters[n] for n in count.lost if count.lost[n]}
    assert ("preempted in" in text) == bool(lost)
    if len(lost) <= 4:
        assert set(re.findall(r"(\w+) is preempted in steps? \d", text)) == lost
    again = {letters[n]: str(a) for n in count.last if (a := sum(count.again(n).values()))}
    check_list(text, r"(\w+) computes (\d+) positions? again", again, "more compute")
    assert ("R n" in text) == bool(again)
    assert ("failed" in text) == bool(count.failed)
    at_once = {s: [n for n in count.last if (n, s) in count.ran] for s in count.steps}
    most = max(map(len, at_once.values()))
    if most < 2:
        assert "No step runs more than one request" in text
    else:
        step, who, load = re.search(r"step (\d+) runs (.+?) in one pass, (\d+) pos", text).groups()
        ran = at_once[int(step)]
        assert len(ran) == most and who.startswith(letters[ran[0]])
        assert int(load) == sum(e - s for s, e in (count.ran[n, int(step)] for n in ran))
    check_arrivals(text, count)


def check_arrivals(text: str, count: Count) -> None:
    first, moments = text.split(". ")[0], set(count.added.values())
    many = len(count.added)
    assert ("different times" in first) == (len(moments) > 1)
    assert ("together" in first) == (many > 1 and len(moments) == 1)
    if many > 1:
        assert f"{many} requests arrive" in first
        assert (f"{len(moments)} different" in first) == (1 < len(moments) < many)
    there = [n for n in count.frames[0].state["requests"] if not count.forks[n]]
    assert ("when the record begins" in first) == bool(there)
    pairs = {(count.letters[c], count.letters[f[-1][1]]) for c, f in count.forks.items() if f}
    assert ("continue" in first) == bool(pairs)
    assert all(f" {parent}" in first and child in first for child, parent in pairs)
    known = {*count.added, *there, *(c for c, f in count.forks.items() if f)}
    assert ("no arrival of" in first.lower()) == (set(count.last) != known)


def check_blocks(text: str, count: Count, pool: int, size: int) -> None:
    step = int(re.search(r"In the pass of step (\d+),", text)[1])
    after = {}
    for frame in count.frames[1:]:
        if frame.event.kind == "computed":
            after[frame.event.clock] = frame.state
    tables = {
        s: {count.letters[n]: r["block_table"] for n, r in state["requests"].items()}
        for s, state in after.items()
    }
    tables = {s: {n: t for n, t in found.items() if t} for s, found in tables.items()}
    now = tables[step]
    names = [block for table in now.values() for block in table]
    assert len(now) == max(map(len, tables.values()))
    assert f"{len(now)} request{'s hold' if len(now) != 1 else ' holds'} blocks" in text
    assert f"{len(set(names))} of {pool} blocks are held" in text
    listed = re.search(r"blocks are held: (.+?)[.;]", text)[1]
    for letter, table in list(now.items())[:3]:
        assert f"{letter} {len(table)}" in listed
    shared = len({b for b in names if names.count(b) > 1})
    assert ("shared" in text) == bool(shared)
    if shared:
        found = re.search(r"; (\d+) (?:is|are) shared, so that (\d+) entries .*? name (\d+)", text)
        assert [int(n) for n in found.groups()] == [shared, len(names), len(set(names))]
    blocks = after[step]["blocks"]
    filled = sum(blocks[str(b)]["filled"] for b in set(names))
    assert f"{filled} of their {size * len(set(names))} slots hold" in text
    kept = sum(blocks.get(str(b), {"filled": 0})["filled"] > 0 for b in after[step]["free"])
    told = re.search(r"(\d+) free blocks? still keeps?", text)
    assert kept == (int(told[1]) if told else 0)


def check_passes(prefill: str, decode: str, trace: Trace, count: Count) -> None:
    letter = re.search(r"(\w+)'s prompt", prefill)[1]
    (name,) = [n for n, found in count.letters.items() if found == letter]
    assert count.whole(name)
    prompt = count.last[name]["num_prompt_tokens"]
    parts = [e.data for e in trace.events if e.kind == "computed" and e.request_id == name]
    first = [d for d in parts if d["start"] < prompt]
    later = [d for d in parts if d["start"] >= prompt]
    assert ("One pass takes" if len(first) == 1 else f"{len(first)} passes take") in prefill
    assert f"{prompt} position{'s' if prompt > 1 else ''}" in prefill
    assert ("side by side" in prefill) == (max(d["end"] - d["start"] for d in first) > 1)
    assert f"{256 * prompt:,} bytes measured" in prefill and f"position {prompt - 1} sel" in prefill
    assert f"token {count.last[name]['token_ids'][prompt]}" in prefill or "'" in prefill
    assert f"from {256 * prompt:,} to {256 * (prompt + len(later)):,} bytes" in decode
    assert (f"in {len(later)} passes" in decode) == (len(later) > 1)
    assert ("One later pass" in decode) == (len(later) == 1)


def check(trace: Trace, pool: int) -> str | None:
    """All four texts; None for a run that is refused, after a look whether it had to be."""
    count = Count(trace)
    whole = [n for n in count.last if count.whole(n)]
    if not whole or len(count.last) < 2:
        with pytest.raises(ValueError, match=r"no request of the trace goes|has one request"):
            overview(trace)
        return None
    panels = drawn(trace)
    texts = {section: " ".join(panel["text"].split()) for section, panel in panels.items()}
    texts = {s: t.split("not in this folder ", 1)[1] for s, t in texts.items()}
    check_passes(texts["21.1"], texts["21.6"], trace, count)
    check_scheduling(texts["21.3"], panels["21.3"]["rows"], count)
    check_blocks(texts["21.5"], count, pool, trace.meta["block_size"])
    assert not re.search(r"(?<![\d,])1 (?:passes|positions|steps|blocks|requests)\b", str(texts))
    return " ".join(texts.values())


SEEN = {
    *("waits", "is preempted in", "again", "shared", "continues", "together", "different times"),
    *("free blocks still keep", "No step runs more", "Nobody waits", "passes take", "failed"),
    *("One later pass", "when the record begins", "arrives before step", "o arrival of"),
}


def test_every_sentence_is_true_of_any_run() -> None:
    told = [check(*recorded(seed)) for seed in SEEDS]
    texts = [text for text in told if text is not None]
    assert len(texts) > len(SEEDS) // 2 and None in told
    missing = {words for words in SEEN if not any(words in text for text in texts)}
    assert missing == set()  # each kind of run was among them


def test_two_prompts_of_one_call_arrive_together_and_two_calls_never_share_a_step() -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    llm = small_llm()
    llm.start_trace()
    llm.generate([[1, 2, 3], [4, 5]], params)
    text = drawn(llm.stop_trace())["21.3"]["text"]
    assert "2 requests arrive together, before step 1. Requests share steps: step 1 runs A" in text
    llm.start_trace()
    llm.generate([1, 2, 3], params)
    llm.generate([4, 5], params)
    text = drawn(llm.stop_trace())["21.3"]["text"]
    assert "2 requests arrive at different times. No step runs more than one request." in text


def test_who_is_preempted_waits_and_computes_again() -> None:
    llm = small_llm(block_size=2, num_blocks=9, enable_prefix_caching=False)
    llm.start_trace()
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    llm.generate([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], params)
    panel = drawn(llm.stop_trace())["21.3"]
    waits = ["waits"] * 4
    assert panel["rows"][2] == ["B", "P 5", "d", "d", "d", *waits, "R 9", "d", "d", "d"]
    assert (
        "R n: n positions, some of them computed before and lost. B waits 4 steps. "
        "B is preempted in step 5. B computes 8 positions again." in panel["text"]
    )
    assert "Nobody waits" not in panel["text"]


def test_shared_blocks_are_counted_once() -> None:
    llm = small_llm()
    llm.start_trace()
    prefix = list(range(1, 9))
    llm.generate([[*prefix, 20], [*prefix, 21]], SamplingParams(max_tokens=3, ignore_eos=True))
    panel = drawn(llm.stop_trace())["21.5"]
    assert (
        "4 of 12 blocks are held: A 3 and B 3; 2 are shared, so that 6 entries of tables name 4."
        in panel["text"]
    )
    assert panel["rows"][1:3] == [["0", "A, B", "■■■■"], ["1", "A, B", "■■■■"]]


def test_a_free_block_that_the_prefix_cache_keeps_is_not_drawn_empty() -> None:
    llm = small_llm(num_blocks=5)
    llm.start_trace()
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    llm.generate([1, 2, 3, 4, 5], params)
    llm.generate([6, 7, 8, 9, 10], params)
    panel = drawn(llm.stop_trace())["21.5"]
    assert ["0", "free, kept", "■■■■"] in panel["rows"]
    assert "1 free block still keeps positions that the prefix cache may reuse." in panel["text"]


def test_sixty_requests_are_named_in_short() -> None:
    llm = small_llm(num_blocks=128)
    llm.start_trace()
    prompts = [[i % 60, 61, 62] for i in range(60)]
    llm.generate(prompts, SamplingParams(max_tokens=3, ignore_eos=True))
    panels = drawn(llm.stop_trace())
    assert "step 1 runs A, B, C and 57 more in one pass, 180 positions" in panels["21.3"]["text"]
    assert "are held: A 2, B 2, C 2 and 57 more." in panels["21.5"]["text"]


def test_one_layer_and_one_later_pass_are_told_in_the_singular() -> None:
    llm = small_llm()
    llm.start_trace()
    llm.generate([[1, 2, 3], [4, 5]], SamplingParams(max_tokens=2, ignore_eos=True))
    trace = llm.stop_trace()
    assert "256 bytes: from 768 to 1,024 bytes. What" in drawn(trace)["21.6"]["text"]
    flat = Trace({**trace.meta, "num_layers": 1}, trace.initial, trace.events)
    assert "3 positions side by side, in one layer." in drawn(flat)["21.1"]["text"]


def test_an_id_that_names_two_requests_is_refused() -> None:
    llm = small_llm()
    llm.start_trace()
    for prompt in ([1, 2], [3, 4]):
        llm.engine.add_request(prompt, SamplingParams(max_tokens=3), request_id="same")
        llm.engine.run()
    with pytest.raises(ValueError, match="the id 'same' for two requests"):
        overview_story(llm.stop_trace())


@pytest.mark.parametrize("given", [None, {}, "trace"])
def test_what_is_no_trace_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"; give a Trace, as LLM\.stop_trace"):
        overview(given)
