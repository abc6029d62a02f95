"""Chats of a checkpoint's folder: its own template, in a sandbox; without one a clear 400."""

import json
import shutil
from pathlib import Path

import httpx
import pytest
from serve_cases import settled

from kvlab import LLM, tiny
from kvlab.serve import Server

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|{{ message['role'] }}|> {{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHAT = [
    {"role": "system", "content": "Answer in one short sentence. Ada likes pears."},
    {"role": "user", "content": "What does Ada like?"},
]


@pytest.fixture
def folder(tmp_path) -> Path:
    """The tiny model's files as any checkpoint's."""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(tiny.FOLDER / name, tmp_path / name)
    return tmp_path


def ask(folder: Path, messages: list[dict] = CHAT) -> httpx.Response:
    with Server(LLM(folder)) as server:
        body = {"messages": messages, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        assert settled(server) == (0, 0)
    return answer


def config(template: object) -> str:
    return json.dumps({"chat_template": template, "bos_token": {"content": "<|endoftext|>"}})


def test_a_template_makes_the_prompt(folder):
    (folder / "tokenizer_config.json").write_text(config(TEMPLATE))
    answer = ask(folder).json()
    assert answer["choices"][0]["message"]["content"] == " Ada likes pears."
    prompt = tiny.prompt("Ada likes pears.", "What does Ada like?")
    assert answer["usage"]["prompt_tokens"] == len(LLM("tiny").encode(prompt))
    assert answer["model"] == folder.name


def test_a_template_in_a_file_of_its_own_or_by_name(folder):
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    (folder / "tokenizer_config.json").write_text(config(named))
    assert ask(folder).json()["choices"][0]["message"]["content"] == " Ada likes pears."
    (folder / "tokenizer_config.json").write_text(config("of no use"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert ask(folder).json()["choices"][0]["message"]["content"] == " Ada likes pears."


@pytest.mark.parametrize("written", [None, "{}", "no json", "[]", '{"chat_template": 5}'])
def test_without_a_template_the_remedy_is_named(folder, written):
    if written is not None:
        (folder / "tokenizer_config.json").write_text(written)
    answer = ask(folder)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "no_chat_template")
    assert "/v1/completions" in error["message"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('only two turns') }}",
        "{% if %}",
        "{{ ''.__class__.__mro__ }}",
        "{% for i in range(10000000000) %}x{% endfor %}",
        "{{ messages.append('x') }}",
        "{{ nothing.at.all }}",
    ],
)
def test_a_template_that_goes_wrong_is_a_400(folder, template):
    (folder / "tokenizer_config.json").write_text(config(template))
    answer = ask(folder)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the model's chat template refuses: ")


def test_a_template_without_text_is_a_400(folder):
    (folder / "tokenizer_config.json").write_text(config("{# nothing #}"))
    assert ask(folder).status_code == 400
