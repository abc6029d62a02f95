"""What the events of one streamed answer say: text, tokens, the end, or an error (section 21.2).

    data: {"choices": [{"delta": {"role": "assistant"}}]}             no text: no token (T07)
    data: {"choices": [{"delta": {"content": "He"}}]}                 an output event
    data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}       the answer's end
    data: {"choices": [], "usage": {"completion_tokens": 1, ...}}     what the server counted
    data: [DONE]                                                      the stream's end

It reads what the servers in use send on /v1/completions and /v1/chat/completions, and needs no
network: times are given with the events, so the arithmetic can be tried on any clock.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvlab.core.metrics import RequestTimes
from kvlab.measure.sse import Event

DONE = "[DONE]"
# Ends that are no end of an answer, by their finish_reason.
BROKEN_OFF = {
    "abort": "the server gave the request up",
    "error": "the server reports an error",
    "capacity": "no block of the server's cache was left",
}
LONGEST_MESSAGE = 200  # letters of a server's own words that are kept
MOST_OUTPUT, MOST_PROMPT = 10**6, 10**9  # tokens; a count above it is no server's that counts


@dataclass
class Answer:
    """One answer as it comes in. A failed one has `error`, and keeps what came before.

    Text is content, or text, or refusal; a reasoning model's thoughts (reasoning_content,
    reasoning) and the names and arguments of tool calls are text too, since the model made them
    token by token and a reader sees them come. Empty and null contents are none.

    The answer ends with its finish_reason, else with [DONE], or with a text after them. A piece's
    tokens: what its usage counts beyond the pieces before it, else its token_ids, else 1.
    """

    times: RequestTimes
    error: str | None = None
    finish_reason: str | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    has_usage: bool = False
    first_event: float | None = None  # the first JSON object, with or without text
    done: bool = False
    saw_event: bool = False
    whole: bool = False  # it came as one JSON object, not as a stream
    text: list[str] = field(default_factory=list)
    extras: dict[str, object] = field(default_factory=dict)

    def read(self, event: Event, now: float) -> None:
        """Take in one event whose bytes arrived at `now`."""
        self.saw_event = True
        if self.error is not None:
            return
        if event.data.strip() == DONE:
            self.done = True
            if self.times.finished is None:
                self.times.finished = now
            return
        try:
            chunk = loads(event.data)
        except ValueError:
            self.error = f"invalid JSON in the stream: {_short(event.data)}"
            return
        if not isinstance(chunk, dict):
            self.error = f"the stream holds {_short(event.data)}, no JSON object"
            return
        self.read_chunk(chunk, now, event.name)

    def read_chunk(self, chunk: Mapping[str, object], now: float, name: str = "message") -> None:
        """Take in one JSON object: a chunk of a stream, or a whole answer that was not streamed."""
        if self.first_event is None:
            self.first_event = now
        if (message := _error_of(chunk, name)) is not None:
            self.error = f"error event: {message}"
            return
        self._usage(chunk.get("usage"))
        if isinstance(chunk.get("kvlab"), dict):
            self.extras.update({k: v for k, v in chunk["kvlab"].items() if _is_moment(v)})
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._choice(choice, now, isinstance(chunk.get("usage"), dict))

    def close(self) -> None:
        """The stream is over. Without a finish_reason and without [DONE] it was cut off."""
        if self.error is not None:
            return
        count = len(self.times.events)
        if not self.done and self.finish_reason is None:
            self.error = f"truncated: the stream ended after {count} pieces of text, without an end"
        elif self.finish_reason in BROKEN_OFF:
            self.error = f"{self.finish_reason}: {BROKEN_OFF[self.finish_reason]}"
        elif not count:
            self.error = f"no text: the answer ended ({self.finish_reason or DONE}) without any"

    @property
    def estimated(self) -> bool:
        """Whether the output tokens were counted here, as the server did not say how many."""
        return self.times.counted is None

    def _usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        self.has_usage = True
        self.times.counted = _count(usage, "completion_tokens", self.times.counted, MOST_OUTPUT)
        self.num_prompt_tokens = _count(usage, "prompt_tokens", self.num_prompt_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.num_cached_tokens = _count(details, "cached_tokens", self.num_cached_tokens)

    def _choice(self, choice: Mapping[str, object], now: float, with_usage: bool) -> None:
        text, reason = _text_of(choice), choice.get("finish_reason")
        if text:
            self.times.note(now, self._tokens_of(choice, with_usage))
            self.text.append(text)
        if reason and isinstance(reason, str):
            self.finish_reason = _short(reason)
        if (self.done or self.finish_reason is not None) and (text or reason):
            self.times.finished = now

    def _tokens_of(self, choice: Mapping[str, object], with_usage: bool) -> int:
        """At least 1 for a piece with text, whatever the server counts."""
        if with_usage and self.times.counted is not None:
            noted = sum(event.num_tokens for event in self.times.events)
            return max(self.times.counted - noted, 1)
        ids = choice.get("token_ids")
        return max(len(ids), 1) if isinstance(ids, list) else 1


def _text_of(choice: Mapping[str, object]) -> str:
    """What a reader sees of this piece: "" for a role alone, null or empty contents."""
    parts: list[object] = [choice.get("text")]
    for holder in (choice.get("delta"), choice.get("message")):
        if isinstance(holder, dict):
            names = ("reasoning_content", "reasoning", "content", "refusal")
            found = [holder.get(name) for name in names]
            if found[0] == found[1]:  # some servers send the thoughts under both names
                found[1] = None
            parts += found
            parts += _tool_text(holder.get("tool_calls"))
    return "".join(part for part in parts if isinstance(part, str))


def _tool_text(calls: object) -> list[object]:
    listed = calls if isinstance(calls, list) else []
    functions = [call.get("function") for call in listed if isinstance(call, dict)]
    return [f.get(name) for f in functions if isinstance(f, dict) for name in ("name", "arguments")]


def _error_of(chunk: Mapping[str, object], name: str) -> str | None:
    """The message of an error event, in the forms that servers use; None for any other chunk."""
    error = chunk.get("error")
    if error or name == "error" or chunk.get("object") == "error":
        return message_of(error if error else chunk)
    return None


def message_of(error: object) -> str:
    """A server's own words in an error object, shortened."""
    if isinstance(error, dict):
        for key in ("message", "detail", "error"):
            if error.get(key):
                return message_of(error[key])
    return _short(error if isinstance(error, str) else json.dumps(error))


def loads(text: str | bytes) -> object:
    """JSON from a server. NaN and Infinity, which some write and JSON does not have, are None.

    Raises ValueError for what is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def printable(text: str) -> str:
    """A server's words without what a terminal would act upon, or a file cannot hold."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _is_moment(value: object) -> bool:
    """Whether it is a finite number, or nothing."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (fits and abs(value) < 1e15)


def _short(text: str) -> str:
    words = printable(" ".join(text.split()))
    return words if len(words) <= LONGEST_MESSAGE else words[: LONGEST_MESSAGE - 3] + "..."


def _count(
    holder: Mapping[str, object], name: str, before: int | None, most: int = MOST_PROMPT
) -> int | None:
    """A whole number from 0 to `most`; anything else leaves what is known."""
    value = holder.get(name)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    return value if fits else before
