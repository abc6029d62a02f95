"""One workload on several engines: kvlab, transformers, and a real server on this machine."""

import sys

import pytest

from kvlab import LLM, tiny
from kvlab.measure.production import (
    BATCHING,
    GENERATE,
    KVLAB,
    URL_VARIABLE,
    ProductionRow,
    SharedWorkload,
    production_rows,
    production_table,
    shared_workload,
)
from kvlab.measure.production_engines import Ran
from kvlab.serve import Server

SMALL = shared_workload(3, max_tokens=4, num_stories=1)


@pytest.fixture(autouse=True)
def no_url(monkeypatch):
    monkeypatch.delenv(URL_VARIABLE, raising=False)


@pytest.fixture
def without_transformers(monkeypatch):
    for name in [n for n in sys.modules if n == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)


@pytest.fixture(scope="module")
def server():
    with Server(LLM("tiny", num_blocks=256)) as running:
        yield running


def test_the_prompts_share_their_notes_and_are_of_one_length():
    llm = LLM("tiny", num_blocks=8)
    ids = [llm.encode(prompt) for prompt in shared_workload().prompts]
    assert [len(prompt) for prompt in ids] == [420] * 12
    alike = next(i for i in range(420) if len({prompt[i] for prompt in ids}) > 1)
    assert alike // 16 == 25  # whole blocks of 16 that all of them begin with
    assert len(set(map(tuple, ids))) == 12
    assert shared_workload() == shared_workload() != shared_workload(seed=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_requests": 1}, "num_requests is 1; give an integer from 2"),
        ({"max_tokens": 0}, "max_tokens is 0; give an integer of at least 1"),
        ({"num_stories": 9}, "num_stories is 9; give an integer from 0 to 8"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        shared_workload(**given)


def test_local_engines_give_equal_tokens_and_only_pools_find_the_notes():
    pytest.importorskip("transformers")
    ours, generate, batching = production_rows(workload=SMALL)
    assert [r.engine for r in (ours, generate, batching)] == [KVLAB, GENERATE, BATCHING]
    prompts = ours.ran.num_prompt_tokens
    blocks = 8  # of 16 that all three share; two requests find them
    for row in (ours, batching):
        assert row.ran.num_found == 2 * blocks * 16
        assert row.ran.num_processed == prompts - 2 * blocks * 16 + 3 * (4 - 1)
    assert generate.ran.num_found == 0 and generate.ran.num_processed == prompts + 9
    assert generate.equal == batching.equal == 3
    assert [r.ran.num_output_tokens for r in (ours, generate, batching)] == [12] * 3
    assert ours.ran.token_ids == generate.ran.token_ids == batching.ran.token_ids


def test_prompts_of_unequal_length_are_padded_for_generate_and_answered_alike():
    pytest.importorskip("transformers")
    first, second, third = SMALL.prompts
    uneven = SharedWorkload((first, second, tiny.prompt("", "Tell me a story."), third), 4)
    ours, generate, batching = production_rows(workload=uneven)
    assert generate.equal == batching.equal == 4
    unpadded = ours.ran.num_processed + ours.ran.num_found
    assert generate.ran.num_processed > unpadded
    assert batching.ran.num_processed == ours.ran.num_processed


def test_a_real_server_is_asked_for_the_same(server, without_transformers):
    ours, *absent, served = production_rows(server.url, workload=SMALL)
    assert served.engine == "kvlab server, tiny" and served.note == ""
    assert served.equal == 3 and served.ran.texts == ours.ran.texts
    assert served.ran.num_prompt_tokens == ours.ran.num_prompt_tokens
    assert served.ran.num_found == ours.ran.num_found == 2 * 8 * 16
    assert served.ran.num_output_tokens == 12 and served.ran.num_processed is None
    assert [row.ran for row in absent] == [None, None]


def test_the_environment_names_the_server_and_an_argument_overrules_it(
    server, monkeypatch, without_transformers
):
    monkeypatch.setenv(URL_VARIABLE, server.url)
    assert production_rows(workload=SMALL)[-1].engine == "kvlab server, tiny"
    assert len(production_rows("", workload=SMALL)) == 3


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9", "no server answers at http://127.0.0.1:9"),
        ("127.0.0.1", "url is '127.0.0.1'; give one such as http://127.0.0.1:8000"),
    ],
)
def test_a_server_that_is_not_there_leaves_the_rest_of_the_table(
    url, message, without_transformers
):
    found = production_rows(url, workload=SMALL)
    assert found[0].ran.num_output_tokens == 12
    assert found[-1].ran is None and found[-1].note.startswith(message)
    assert f"server {url}: {message}" in production_table(found)


def test_requests_that_a_server_refuses_are_told_in_its_words(without_transformers):
    with Server(LLM("tiny", num_blocks=16, max_model_len=64)) as small:
        found = production_rows(small.url, workload=SMALL)
    assert found[-1].ran is None
    assert found[-1].note.startswith("3 of 3 requests failed: HTTP 400")


def test_without_transformers_its_rows_say_so(without_transformers):
    ours, *others = production_rows(workload=SMALL)
    assert ours.ran is not None
    assert {row.note for row in others} == {
        "transformers is not installed: pip install kvlab[models]"
    }


def test_another_model_is_refused():
    with pytest.raises(ValueError, match="model is 'gpt'; give one of tiny, smollm2"):
        production_rows(model="gpt")


def test_the_table_leaves_empty_what_nobody_tells():
    told = Ran(2.0, 5000, 100, 4000, 1090, token_ids=((1, 2),) * 10)
    unknown = Ran(0.5, None, 100, None, None, texts=("a",) * 10)
    text = production_table(
        [
            ProductionRow("one", told),
            ProductionRow("two", unknown, equal=9),
            ProductionRow("three", None, "it is not here"),
        ]
    )
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["one", "5,000", "4,000", "1,090", "100", "50"],
        ["two", "100", "200", "9", "of", "10"],
        ["three", "did", "not", "run"],
        ["three:", "it", "is", "not", "here"],
    ]
