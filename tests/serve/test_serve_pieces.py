"""What a piece of a stream carries: several tokens, or a role and no text."""

import openai
import pytest

from kvlab import LLM, SamplingParams, tiny
from kvlab.measure.load import LoadRequest, load
from kvlab.serve import Server

PROMPT = tiny.prompt("Ada likes soup.", "What does Ada like?")
WHOLE = {"ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def gathering():
    """Four tokens to a piece, and the role at once."""
    with Server(LLM("tiny"), stream_interval=4, early_role=True) as running:
        yield running


@pytest.mark.parametrize("tokens, pieces", [(1, [1]), (5, [1, 4]), (10, [1, 4, 4, 1])])
def test_the_first_token_comes_alone_and_then_four_at_a_time(gathering, tokens, pieces):
    with openai.OpenAI(base_url=f"{gathering.url}/v1", api_key="none") as client:
        stream = client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=tokens, temperature=0, stream=True,
            extra_body=WHOLE,
        )  # fmt: skip
        found = [chunk.choices[0] for chunk in stream]
    assert [len(choice.token_ids) for choice in found] == pieces
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    (alone,) = LLM("tiny").generate(PROMPT, params)
    assert "".join(choice.text for choice in found) == alone.outputs[0].text
    assert [t for choice in found for t in choice.token_ids] == list(alone.outputs[0].token_ids)


def test_each_continuation_has_pieces_of_its_own(gathering):
    with openai.OpenAI(base_url=f"{gathering.url}/v1", api_key="none") as client:
        stream = client.completions.create(
            model="tiny", prompt=PROMPT, n=2, seed=1, max_tokens=6, stream=True, extra_body=WHOLE
        )
        found = [choice for chunk in stream for choice in chunk.choices]
    for index in (0, 1):
        assert [len(c.token_ids) for c in found if c.index == index] == [1, 4, 1]


def test_a_role_that_comes_early_is_no_first_token(gathering):
    chat = [{"role": "user", "content": "What does Ada like?"}]
    asked = [LoadRequest("a", chat, max_tokens=9)]
    result = load(gathering.url, asked, api="chat", ignore_eos=True)
    (record,) = result.records
    assert record.error is None and record.times.num_output_tokens == 9
    assert record.sent <= record.first_event < record.times.first_token


def test_a_role_comes_once(gathering):
    chat = [{"role": "user", "content": "What does Ada like?"}]
    with openai.OpenAI(base_url=f"{gathering.url}/v1", api_key="none") as client:
        stream = client.chat.completions.create(model="tiny", messages=chat, n=2, stream=True)
        deltas = [(c.index, c.delta.role) for chunk in stream for c in chunk.choices]
    assert [pair for pair in deltas if pair[1]] == [(0, "assistant"), (1, "assistant")]
    assert deltas[:2] == [(0, "assistant"), (1, "assistant")]


@pytest.mark.parametrize("interval", [0, -1, 1.5, "4", True])
def test_another_interval_is_refused(interval):
    with pytest.raises(ValueError, match="stream_interval"):
        Server(LLM("tiny", num_blocks=64), stream_interval=interval)
