"""A chat's messages as token ids, with the server's own refusals."""

from collections.abc import Callable

from kvlab.chat import Messages, NoChatTemplate, chat_layout
from kvlab.llm import LLM
from kvlab.serve.errors import ApiError

INSTEAD = "send the whole text to /v1/completions"


def chat_form(llm: LLM) -> Callable[[Messages], list[int]]:
    """How this model's chats become token ids; what it returns raises ApiError(400) if it cannot.

    The layout is the template that the model's folder brings.
    """
    try:
        layout = chat_layout(llm.tokenizer)
    except NoChatTemplate as error:
        return _refuses(f"{error}; {INSTEAD}")

    def form(messages: Messages) -> list[int]:
        try:
            text = layout(messages)
        except ValueError as error:
            raise ApiError(400, f"{error}, or {INSTEAD}", param="messages") from None
        return llm.tokenizer.encode(text, add_special_tokens=False)  # the layout holds its own

    return form


def _refuses(message: str) -> Callable[[Messages], list[int]]:
    def refuse(messages: Messages) -> list[int]:
        raise ApiError(400, message, param="messages", code="no_chat_template")

    return refuse
