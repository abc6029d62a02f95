"""Prompts for a load run: from files, drawn, and from a trace."""

import json

import pytest

from kvlab.core.workload import SharedPrefix
from kvlab.measure.load_requests import (
    WORDS,
    LoadRequest,
    of_workload,
    random_requests,
    read_prompts,
    trace_requests,
    words_of,
)


def test_a_text_file_has_one_prompt_a_line(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("Say hello.\n\nCount to ten.\n")
    assert read_prompts(file, max_tokens=5) == [
        LoadRequest("1", "Say hello.", 5),
        LoadRequest("3", "Count to ten.", 5),
    ]
    assert len(read_prompts(file, limit=1)) == 1


def test_a_jsonl_file_says_more(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    lines = [
        {"prompt": "Say hello.", "max_tokens": 3, "labels": {"kind": "short"}},
        {"messages": messages, "request_id": "chat", "group": "p1"},
        {"prompt_token_ids": [1, 2], "time": 0.5},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_prompts(file, max_tokens=8) == [
        LoadRequest("1", "Say hello.", 3, labels={"kind": "short"}),
        LoadRequest("chat", messages, 8, labels={"group": "p1"}),
        LoadRequest("3", [1, 2], 8, 0.5),
    ]


def test_a_saved_workload_is_such_a_file(tmp_path):
    drawn = random_requests(3, prompt_tokens=4, shared=SharedPrefix(1.0, 2), seed=5)
    drawn.save(tmp_path / "workload.jsonl")
    read = read_prompts(tmp_path / "workload.jsonl")
    assert [(r.request_id, tuple(r.prompt), r.max_tokens, r.time, r.labels) for r in read] == [
        (r.request_id, r.prompt, r.max_tokens, r.time, r.labels) for r in of_workload(drawn)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "bad has no prompt; write one a line"),
        ('{"text": "x"}', "bad, line 1: it has no prompt; give one of prompt, messages"),
        ('{"prompt": "x", "messages": []}', "line 1: it has prompt and messages; give one"),
        ('{"prompt": "x"}\n{"prompt": ""}', "bad, line 2: 2: prompt is ''"),
        ('{"prompt": "x", "speed": 2}', "line 1: 'speed' is no part of a request"),
        ('{"prompt": "x", "labels": 2}', "line 1: labels is 2; give an object"),
        ('{"prompt": "x", "labels": {"a": 2}}', "label 'a' is 2; give texts"),
        ('{"prompt": "x", "max_tokens": 0}', "max_tokens is 0"),
        ('{"prompt": "x", "time": -1}', "time is -1"),
        ('{"prompt": ', "line 1: .* is no JSON object"),
    ],
)
def test_a_bad_file_is_refused_at_its_line(tmp_path, text, message):
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_prompts(file)


def test_too_few_prompts_are_not_repeated(tmp_path):
    file = tmp_path / "few"
    file.write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="few has 2 prompts, fewer than 3"):
        read_prompts(file, limit=3)


def test_equal_ids_are_equal_words_and_different_ids_differ():
    assert len(WORDS) == len(set(WORDS)) == 250
    assert words_of([0, 1, 250]) == "key book key"
    assert len({words_of([i]) for i in range(250)}) == 250


def test_a_shared_prefix_is_shared_in_words():
    drawn = random_requests(40, prompt_tokens=4, shared=SharedPrefix(0.5, 16, groups=2), seed=1)
    heads: dict[str | None, set] = {}
    for request in of_workload(drawn, words=True, timed=False):
        words = request.prompt.split()
        group = request.labels.get("group")
        assert len(words) == (4 if group is None else 20)
        assert request.time is None
        heads.setdefault(group, set()).add(tuple(words[:16]))
    assert {len(found) for group, found in heads.items() if group} == {1}
    assert set(heads) == {None, "p1", "p2"}
    assert heads["p1"] != heads["p2"]


def test_the_same_seed_draws_the_same_words():
    first, again, other = (
        [r.prompt for r in of_workload(random_requests(5, seed=s), words=True)] for s in (1, 1, 2)
    )
    assert first == again != other


def test_a_trace_keeps_times_lengths_and_shared_blocks(tmp_path):
    lines = [
        {"timestamp": 0, "input_length": 1024, "output_length": 8, "hash_ids": [1, 2]},
        {"timestamp": 500, "input_length": 1000, "output_length": 80, "hash_ids": [1, 3]},
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = of_workload(trace_requests(file, scale=16), words=True)
    assert [first.time, second.time] == [0.0, 0.5]
    assert [len(r.prompt.split()) for r in (first, second)] == [64, 63]
    assert first.prompt.split()[:32] == second.prompt.split()[:32]
    assert first.prompt.split()[32:] != second.prompt.split()[32:]
    assert (first.max_tokens, second.max_tokens) == (1, 5)
    assert len(trace_requests(file, scale=16, limit=1)) == 1
