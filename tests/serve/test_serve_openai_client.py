"""The official openai client against `Server`: what it gets equals what LLM.generate gives."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from serve_cases import LONG, PROMPT, settled

from kvlab import LLM, SamplingParams, tiny

pytestmark = pytest.mark.usefixtures("clean")
IDS = {"return_token_ids": True}
CHAT = [
    {"role": "system", "content": "Answer in one short sentence. Ada likes pears."},
    {"role": "user", "content": "What does Ada like?"},
]


@pytest.fixture(scope="module")
def alone() -> LLM:
    """Another engine, asked without a server."""
    return LLM("tiny")


def test_a_completion(client, alone):
    found = client.completions.create(model="tiny", prompt=PROMPT, temperature=0, extra_body=IDS)
    (expected,) = alone.generate(PROMPT, SamplingParams(max_tokens=16))
    (choice,) = found.choices
    assert choice.text == expected.outputs[0].text == " Ada likes pears."
    assert tuple(choice.token_ids) == expected.outputs[0].token_ids
    assert (choice.finish_reason, choice.stop_reason) == ("stop", 4)
    assert found.usage.prompt_tokens == len(expected.prompt_token_ids)
    assert found.usage.completion_tokens == 5
    assert found.usage.total_tokens == found.usage.prompt_tokens + 5
    assert found.id.startswith("cmpl-") and found.object == "text_completion"


@pytest.mark.parametrize("temperature, top_p", [(0.0, 1.0), (1.3, 1.0), (2.0, 0.9)])
def test_several_continuations_are_those_of_generate(client, alone, temperature, top_p):
    settings = {"n": 3, "seed": 7, "temperature": temperature, "top_p": top_p, "max_tokens": 12}
    (expected,) = alone.generate(PROMPT, SamplingParams(ignore_eos=True, **settings))
    found = client.completions.create(
        model="tiny", prompt=PROMPT, extra_body={"ignore_eos": True, **IDS}, **settings
    )
    assert [tuple(c.token_ids) for c in found.choices] == [o.token_ids for o in expected.outputs]
    assert [c.text for c in found.choices] == [o.text for o in expected.outputs]
    assert [c.index for c in found.choices] == [0, 1, 2]
    assert found.usage.completion_tokens == 36


def test_prompts_as_texts_and_as_ids(client, alone):
    other = tiny.prompt("Karl has a dog.", "What does Karl have?")
    texts = [PROMPT, other]
    expected = [o.outputs[0].text for o in alone.generate(texts)]
    settings = {"model": "tiny", "temperature": 0}
    ids = [alone.encode(text) for text in texts]
    for prompt in (texts, ids):
        found = client.completions.create(prompt=prompt, **settings)
        assert [c.text for c in found.choices] == expected
    assert client.completions.create(prompt=ids[1], **settings).choices[0].text == expected[1]
    assert found.usage.prompt_tokens == len(ids[0]) + len(ids[1])


def test_a_stream_joins_to_the_whole(client):
    settings = {"model": "tiny", "prompt": PROMPT, "temperature": 0}
    whole = client.completions.create(**settings)
    options = {"include_usage": True}
    chunks = list(client.completions.create(**settings, stream=True, stream_options=options))
    *said, last = chunks
    assert [c.choices[0].text for c in said] == [" Ada", " likes", " pears", ".", ""]
    assert [c.choices[0].finish_reason for c in said] == [None] * 4 + ["stop"]
    assert last.choices == [] and last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in said)
    assert {c.id for c in chunks} == {last.id} and last.id != whole.id


def test_a_stream_of_several_continuations(client, alone):
    settings = {"n": 3, "seed": 1, "temperature": 1.5, "max_tokens": 8}
    (expected,) = alone.generate(PROMPT, SamplingParams(**settings))
    texts, ends = ["", "", ""], [None, None, None]
    for chunk in client.completions.create(model="tiny", prompt=PROMPT, stream=True, **settings):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert texts == [o.text for o in expected.outputs]
    assert ends == [o.finish_reason for o in expected.outputs]


def test_a_stop_string_is_cut_off(client):
    settings = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "stop": [" pears", "zebra"]}
    found = client.completions.create(**settings).choices[0]
    assert (found.text, found.finish_reason, found.stop_reason) == (" Ada likes", "stop", " pears")
    streamed = [c.choices[0] for c in client.completions.create(**settings, stream=True)]
    assert "".join(c.text for c in streamed) == " Ada likes"
    assert streamed[-1].finish_reason == "stop"


def test_max_tokens_ends_with_length(client):
    found = client.completions.create(model="tiny", prompt=PROMPT, temperature=0, max_tokens=2)
    assert (found.choices[0].text, found.choices[0].finish_reason) == (" Ada likes", "length")


def test_logprobs_of_outputs(client, alone):
    (expected,) = alone.generate(PROMPT, SamplingParams(logprobs=3))
    settings = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "logprobs": 3}
    found = client.completions.create(**settings).choices[0].logprobs
    output = expected.outputs[0]
    wanted = [row[t] for row, t in zip(output.logprobs, output.token_ids, strict=True)]
    assert found.token_logprobs == pytest.approx(wanted, abs=1e-4)
    assert found.tokens == [" Ada", " likes", " pears", ".", "<|end|>"]
    assert found.text_offset == [0, 4, 10, 16, 17]
    assert [len(top) for top in found.top_logprobs] == [3] * 5
    rows = [c.choices[0].logprobs for c in client.completions.create(**settings, stream=True)]
    assert [t for row in rows for t in row.tokens] == found.tokens
    assert [o for row in rows for o in row.text_offset] == found.text_offset


def test_logprobs_stand_with_text_that_is_held_back(client):
    """ " Ada likes" may become the stop string: no text is certain, yet the scores come."""
    settings = {"stop": [" Ada likes tea"], "logprobs": 0, "temperature": 0}
    stream = client.completions.create(model="tiny", prompt=PROMPT, stream=True, **settings)
    choices = [chunk.choices[0] for chunk in stream]
    assert [c.text for c in choices] == ["", "", " Ada likes pears", ".", ""]
    assert choices[0].logprobs.tokens == [" Ada"]


def test_echo_begins_with_the_prompt(client, alone):
    settings = {"model": "tiny", "temperature": 0, "echo": True}
    ids = alone.encode(PROMPT)
    for prompt in (PROMPT, ids):
        found = client.completions.create(prompt=prompt, **settings)
        assert found.choices[0].text == PROMPT + " Ada likes pears."
        stream = client.completions.create(prompt=prompt, stream=True, **settings)
        assert "".join(c.choices[0].text for c in stream) == PROMPT + " Ada likes pears."


def test_a_chat(client, alone):
    prompt = tiny.prompt("Ada likes pears.", "What does Ada like?")
    (expected,) = alone.generate(prompt)
    found = client.chat.completions.create(model="tiny", messages=CHAT, temperature=0)
    message = found.choices[0].message
    assert (message.role, message.content) == ("assistant", expected.outputs[0].text)
    assert found.usage.prompt_tokens == len(expected.prompt_token_ids)
    assert found.id.startswith("chatcmpl-") and found.object == "chat.completion"


def test_a_chat_stream_says_who_speaks_first(client):
    settings = {"model": "tiny", "messages": CHAT, "temperature": 0, "stream": True}
    deltas = [c.choices[0].delta for c in client.chat.completions.create(**settings)]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert [d.content for d in deltas[1:]] == [" Ada", " likes", " pears", ".", ""]
    assert all(d.role is None for d in deltas[1:])


def test_a_chat_goes_on_after_an_answer(client):
    messages = [
        *CHAT,
        {"role": "assistant", "content": "Ada likes pears."},
        {"role": "user", "content": [{"type": "text", "text": "What does Ada like?"}]},
    ]
    found = client.chat.completions.create(model="tiny", messages=messages, temperature=0)
    first = client.chat.completions.create(model="tiny", messages=CHAT, temperature=0)
    assert found.usage.prompt_tokens > first.usage.prompt_tokens
    assert found.usage.prompt_tokens_details.cached_tokens >= 0
    assert found.choices[0].finish_reason in ("stop", "length")


def test_logprobs_of_a_chat(client):
    found = client.chat.completions.create(
        model="tiny", messages=CHAT, temperature=0, logprobs=True, top_logprobs=2
    )
    content = found.choices[0].logprobs.content
    assert [entry.token for entry in content] == [" Ada", " likes", " pears", ".", "<|end|>"]
    assert bytes(content[0].bytes) == b" Ada"
    assert [len(entry.top_logprobs) for entry in content] == [2] * 5
    assert content[0].top_logprobs[0].logprob == content[0].logprob


def test_a_second_request_hits_the_prefix_and_a_salt_keeps_it_away(client):
    prompt = tiny.prompt("Vera has a blue bag. Nils has a cat.", "What does Vera have?")

    def cached(**extra) -> int:
        found = client.completions.create(model="tiny", prompt=prompt, extra_body=extra)
        return found.usage.prompt_tokens_details.cached_tokens

    first, second = cached(), cached()
    assert first < second and second % 16 == 0
    assert cached(cache_salt="mine") == 0


def test_closing_a_stream_ends_the_request(client, server):
    body = dict(LONG)
    body.pop("ignore_eos")
    stream = client.completions.create(
        model="tiny", stream=True, extra_body={"ignore_eos": True}, **body
    )
    next(stream)
    assert server.call(lambda llm: len(llm.engine.requests)) == 1
    stream.close()
    assert settled(server) == (0, 0)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "kvlab"
    with pytest.raises(openai.NotFoundError, match="has the name 'tiny'"):
        client.models.retrieve("gpt")


def test_errors_have_the_clients_classes(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt", prompt="x")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="max_tokens is -1") as wrong:
        client.completions.create(model="tiny", prompt="x", max_tokens=-1)
    assert (wrong.value.param, wrong.value.type) == ("max_tokens", "invalid_request_error")
    with pytest.raises(openai.BadRequestError, match="tools is not offered"):
        client.chat.completions.create(
            model="tiny", messages=CHAT, tools=[{"type": "function", "function": {"name": "f"}}]
        )


async def _answers(url: str) -> tuple[str, str]:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        whole = await client.completions.create(model="tiny", prompt=PROMPT, temperature=0)
        text = ""
        async for chunk in await client.completions.create(
            model="tiny", prompt=PROMPT, temperature=0, stream=True
        ):
            text += chunk.choices[0].text
        return whole.choices[0].text, text


def test_the_asynchronous_client(server):
    with ThreadPoolExecutor(1) as pool:  # a browser's test leaves a loop in the main thread
        answers = pool.submit(lambda: asyncio.run(_answers(f"{server.url}/v1"))).result()
    assert answers == (" Ada likes pears.",) * 2
