"""The body of a request: what every request of a run asks for, beside its own prompt."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvlab.core.checked import number
from kvlab.measure.load_requests import LoadRequest, form_of, words_of

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class Asking:
    """What every request of a run asks for beside its prompt.

    api: "completions" or "chat". model: "" asks the server, before the run. temperature None
    leaves it to the server. Raises ValueError for another api, and for what is no temperature.
    """

    api: str = "completions"
    model: str = ""
    temperature: float | None = 0.0
    ignore_eos: bool = False
    extra_body: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.api not in PATHS:
            raise ValueError(f"api is {self.api!r:.60}; give one of {', '.join(PATHS)}")
        if not isinstance(self.model, str):
            raise ValueError(f"model is {self.model!r:.60}; give a name, or None to ask the server")
        if self.temperature is not None:
            number("temperature", self.temperature)

    def body(self, request: LoadRequest, usage: bool) -> bytes:
        """The request as JSON. A chat takes a text as the user's turn, and ids as words."""
        prompt = request.prompt
        if self.api == "chat":
            text = words_of(prompt) if form_of(prompt) == "ids" else prompt
            asked = text if form_of(text) == "messages" else [{"role": "user", "content": text}]
        else:
            asked = prompt
        found = {"model": self.model, "messages" if self.api == "chat" else "prompt": asked}
        found |= {"max_tokens": request.max_tokens, "stream": True}
        if self.temperature is not None:
            found["temperature"] = self.temperature
        if self.ignore_eos:
            found["ignore_eos"] = True
        if usage:
            found["stream_options"] = {"include_usage": True}
        return json.dumps(found | dict(self.extra_body)).encode()
