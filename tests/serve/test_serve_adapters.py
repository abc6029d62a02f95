"""LoRA adapters behind the server: chosen by the model's name, as vLLM's --lora-modules has it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from serve_cases import PROMPT, settled

from kvlab import LLM, SamplingParams, tiny
from kvlab.serve import Server
from kvlab.tensors.lora import random_adapter

pytestmark = pytest.mark.usefixtures("clean")
SENTENCE, WORD = " Ada likes pears.", " pears."


@pytest.fixture(scope="module")
def server():
    with Server(LLM("tiny"), lora_modules={"short": tiny.SHORT_ANSWERS}) as running:
        yield running


def asked(client, model, **extra):
    settings = {"prompt": PROMPT, "temperature": 0, **extra}
    return client.completions.create(model=model, **settings)


def test_the_models_name_chooses_the_adapter(client):
    alone = LLM("tiny")
    alone.load_adapter("short", tiny.SHORT_ANSWERS)
    expected = alone.generate([PROMPT] * 2, SamplingParams(), adapter=[None, "short"])
    assert [out.outputs[0].text for out in expected] == [SENTENCE, WORD]
    for name, text in (("tiny", SENTENCE), ("short", WORD)):
        found = asked(client, name)
        assert (found.model, found.choices[0].text) == (name, text)


def test_a_stream_and_a_chat_take_it_too(client):
    stream = list(asked(client, "short", stream=True))
    assert {chunk.model for chunk in stream} == {"short"}
    assert "".join(chunk.choices[0].text for chunk in stream) == WORD
    system = "Answer in one short sentence. Ada likes pears. Tom likes tea."
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "What does Ada like?"},
    ]
    found = client.chat.completions.create(model="short", messages=messages, temperature=0)
    assert (found.model, found.choices[0].message.content) == ("short", WORD)


def test_it_is_listed_under_its_base_model(client, server):
    base, short = client.models.list()
    assert (base.id, base.root, base.parent) == ("tiny", "tiny", None)
    assert (short.id, short.parent, short.root) == ("short", "tiny", str(tiny.SHORT_ANSWERS))
    assert base.max_model_len == short.max_model_len
    assert client.models.retrieve("short") == short


def test_an_unknown_name_is_answered_with_the_names_there_are(client):
    with pytest.raises(openai.NotFoundError, match="'tiny', 'short'") as missing:
        asked(client, "long")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="'tiny', 'short'"):
        client.models.retrieve("long")


def test_cached_blocks_stay_with_their_adapter():
    """Two blocks of 16 positions of one prompt are found by the second request of each name."""
    prompt = tiny.prompt("Vera has a blue bag. Nils has a cat. Ada likes tea.", "What has Vera?")

    def cached(client, name) -> int:
        usage = client.completions.create(model=name, prompt=prompt, max_tokens=1).usage
        return usage.prompt_tokens_details.cached_tokens

    with (
        Server(LLM("tiny"), lora_modules={"short": tiny.SHORT_ANSWERS}) as fresh,
        openai.OpenAI(base_url=f"{fresh.url}/v1", api_key="none", max_retries=0) as client,
    ):
        found = [cached(client, name) for name in ("tiny", "short", "tiny", "short")]
    assert found == [0, 0, 32, 32]


def test_one_that_is_loaded_or_unloaded_meanwhile(client, server):
    other = random_adapter(server.llm.model.config)
    server.call(lambda llm: llm.load_adapter("other", other))
    assert [model.id for model in client.models.list()] == ["tiny", "short", "other"]
    assert client.models.retrieve("other").parent == "tiny"
    assert asked(client, "other").model == "other"
    assert settled(server) == (0, 0)
    server.call(lambda llm: llm.unload_adapter("other"))
    with pytest.raises(openai.NotFoundError):
        asked(client, "other")


def test_what_does_not_fit_is_refused_and_nothing_is_loaded(tmp_path):
    llm = LLM("tiny")
    fits = tiny.SHORT_ANSWERS
    for modules, said in (
        (
            {"short": fits, "other": tmp_path},
            "adapter 'other' of lora_modules: .*adapter_config.json is missing",
        ),
        ({"tiny": fits}, "'tiny' is the name of the model itself; give another"),
        ({"": fits}, "the adapter's name is ''"),
        ({"short": 3}, "adapter 'short' is 3; give a folder"),
        ([("short", fits)], "lora_modules is .*; give a mapping of names to folders"),
    ):
        with pytest.raises(ValueError, match=said):
            Server(llm, lora_modules=modules)
        assert llm.adapters == {}


def test_the_root_is_that_of_the_weights_that_are_loaded(client, server):
    other = random_adapter(server.llm.model.config)

    def root() -> str:
        return client.models.retrieve("short").root

    assert root() == str(tiny.SHORT_ANSWERS)
    server.call(lambda llm: llm.load_adapter("short", other))
    assert root() == "short"  # where these came from nobody has said
    server.call(lambda llm: llm.load_adapter("short", tiny.SHORT_ANSWERS))
    assert root() == str(tiny.SHORT_ANSWERS)


def test_one_that_is_unloaded_before_a_request_starts_is_not_found():
    """The request was checked and waits in the inbox while the adapter goes."""
    with Server(LLM("tiny"), lora_modules={"short": tiny.SHORT_ANSWERS}) as fresh:
        taken, gone = threading.Event(), threading.Event()
        submit = fresh._engine.submit

        def submit_late(job) -> None:
            taken.set()
            gone.wait(20)
            submit(job)

        fresh._engine.submit = submit_late
        url, body = f"{fresh.url}/v1/completions", {"model": "short", "prompt": PROMPT}
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(httpx.post, url, json=body, timeout=60)
            assert taken.wait(20)
            fresh.call(lambda llm: llm.unload_adapter("short"))
            gone.set()
            answer = found.result()
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (
            404,
            "model_not_found",
            "model",
        )
        assert error["message"].endswith("the model that is served has the name 'tiny'")
        assert settled(fresh) == (0, 0)
