"""A chat's messages as one prompt, in the layout that the model was trained on.

    llm.generate(chat_prompt(llm, "What is the capital of France?"))

What a server puts around each message (a system text, names of the roles, tags) is part of the
prompt, so it is part of what a prefix cache finds again (section 21.4).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kvlab.tensors.tokenizer import Tokenizer

if TYPE_CHECKING:
    from kvlab.llm import LLM

Messages = Sequence[tuple[str, str]]  # of role and text
Layout = Callable[[Messages], str]


class NoChatTemplate(ValueError):
    """This model takes no chats here; the message says why."""


def chat_prompt(llm: "LLM", messages: str | Sequence[Mapping[str, str]]) -> list[int]:
    """Token ids of a chat, up to where the assistant's answer begins; a prompt for `generate`.

    messages: one user's text, or {"role": "system" | "user" | "assistant", "content": "..."} each.
    Raises NoChatTemplate for a model without a layout of chats, ValueError for bad messages and
    for those that the model's own template refuses.
    """
    told = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if not isinstance(told, list | tuple) or not told or not all(map(_is_message, told)):
        raise ValueError(
            f"messages is {messages!r}; give a text, or a list of "
            '{"role": "user", "content": "..."}'
        )
    text = chat_layout(llm.tokenizer)([(m["role"], m["content"]) for m in told])
    return llm.tokenizer.encode(text, add_special_tokens=False)  # the layout holds its own


def _is_message(given: object) -> bool:
    parts = given if isinstance(given, Mapping) else {}
    return all(isinstance(parts.get(key), str) for key in ("role", "content"))


def chat_layout(tokenizer: Tokenizer | None) -> Layout:
    """How this tokenizer's model lays out a chat: by the template that it brings.

    The layout raises ValueError if it refuses a chat. Raises NoChatTemplate if there is none.
    """
    if tokenizer is None:
        raise NoChatTemplate("this model has no tokenizer and takes no chats")
    source = template_of(tokenizer)
    if source is None:
        raise NoChatTemplate("the model's folder has no chat template")
    return _template_layout(tokenizer, source)


def template_of(tokenizer: Tokenizer) -> str | None:
    """The folder's chat template: chat_template.jinja, or an entry of tokenizer_config.json."""
    own = tokenizer.folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = tokenizer.settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _template_layout(tokenizer: Tokenizer, source: str) -> Layout:
    """A template is a program of the checkpoint's: it runs in jinja2's sandbox, which reads the
    messages and nothing else."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise NoChatTemplate("the model's chat template needs jinja2: pip install jinja2") from None

    def fail(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = fail
    settings = tokenizer.settings
    tokens = {name: _token(settings.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
    compiled = functools.cache(lambda: environment.from_string(source))

    def layout(messages: Messages) -> str:
        told = [{"role": role, "content": text} for role, text in messages]
        try:
            return compiled().render(messages=told, add_generation_prompt=True, **tokens)
        except Exception as error:  # whatever a template does wrong
            raise ValueError(f"the model's chat template refuses: {error}"[:300]) from None

    return layout


def _token(value: object) -> str:
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""
