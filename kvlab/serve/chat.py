"""A chat's messages as token ids, in the layout that the model was trained on."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kvlab import tiny
from kvlab.llm import LLM
from kvlab.serve.errors import ApiError

Messages = Sequence[tuple[str, str]]
INSTEAD = "send the whole text to /v1/completions"


def chat_form(llm: LLM) -> Callable[[Messages], list[int]]:
    """How this model's chats become token ids; what it returns raises ApiError(400) if it cannot.

    The tiny model has a layout of its own; other folders bring a template.
    """
    if llm.tokenizer is None:
        return _refuses(f"this model has no tokenizer and takes no chats; {INSTEAD} as token ids")
    if llm.tokenizer.folder == tiny.FOLDER:
        return lambda messages: llm.encode(tiny_chat(messages))
    source = template_of(llm.tokenizer.folder)
    if source is None:
        return _refuses(f"the model's folder has no chat template; {INSTEAD}")
    return _template_form(llm, source)


def _refuses(message: str) -> Callable[[Messages], list[int]]:
    def refuse(messages: Messages) -> list[int]:
        raise ApiError(400, message, param="messages", code="no_chat_template")

    return refuse


def tiny_chat(messages: Messages) -> str:
    """The tiny model's layout; line breaks and doubled spaces become single spaces.

    Raises ApiError(400) for a text that holds one of the layout's tags: it could close its turn
    and speak for somebody else.
    """
    turns = []
    for role, text in messages:
        if "<|" in text:
            raise ApiError(
                400, f"a message holds a tag, '<|'; take it out, or {INSTEAD}", param="messages"
            )
        turns.append(f"<|{role}|> {' '.join(text.split())}<|end|>")
    return f"<|endoftext|>{''.join(turns)}<|assistant|>"


def template_of(folder: Path) -> str | None:
    """The folder's chat template: chat_template.jinja, or an entry of tokenizer_config.json."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = _tokenizer_config(folder).get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _tokenizer_config(folder: Path) -> dict[str, object]:
    try:
        found = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _template_form(llm: LLM, source: str) -> Callable[[Messages], list[int]]:
    """A template is a program of the checkpoint's: it runs in jinja2's sandbox, which reads the
    messages and nothing else."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        return _refuses(f"the model's chat template needs jinja2: pip install jinja2, or {INSTEAD}")

    def fail(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = fail
    config = _tokenizer_config(llm.tokenizer.folder)
    tokens = {name: _token(config.get(name)) for name in ("bos_token", "eos_token", "pad_token")}

    def form(messages: Messages) -> list[int]:
        told = [{"role": role, "content": text} for role, text in messages]
        try:
            text = environment.from_string(source).render(
                messages=told, add_generation_prompt=True, **tokens
            )
        except Exception as error:  # whatever a template does wrong
            raise ApiError(
                400, f"the model's chat template refuses: {error}"[:300], param="messages"
            ) from None
        return llm.tokenizer.backend.encode(text, add_special_tokens=False).ids

    return form


def _token(value: object) -> str:
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""
