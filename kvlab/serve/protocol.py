"""What a request may ask for: a JSON object becomes an `Asked`, or an ApiError(400) by name.

Fields are OpenAI's, with these of vLLM's: top_k, ignore_eos, stop_token_ids, cache_salt, priority,
return_token_ids. Decisions: the defaults are OpenAI's (temperature 1). A field that nobody knows
is refused, as OpenAI does, because a typing error would otherwise change an experiment unseen. One
that is known and not offered (tools, logit_bias ...) is refused too, unless its value asks for
nothing. `model` names what is served (serve/models.py), and may be left out, as with vLLM.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.request import SamplingParams
from kvlab.serve.errors import ApiError
from kvlab.serve.fields import Fields, bad
from kvlab.serve.models import not_served

Prompt = str | list[int]
MOST_PROMPTS, MOST_N, MOST_LOGPROBS = 1024, 128, 20
MOST_STOPS, LONGEST_STOP = 16, 256
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
NONE, ZERO, ONE = (), (0,), (1,)
NOT_OFFERED = {  # name -> values that ask for nothing
    "logit_bias": ({},),
    "presence_penalty": ZERO,
    "frequency_penalty": ZERO,
    "repetition_penalty": ONE,
    "min_p": ZERO,
    "min_tokens": ZERO,
    "length_penalty": ONE,
    "use_beam_search": (False,),
    "prompt_logprobs": NONE,
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none",),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "audio": NONE,
    "reasoning_effort": ("none",),
}
REMEDIES = {
    "prompt_logprobs": "a prefix hit computes no scores of the prompt; ask for logprobs of outputs",
    "logit_bias": "shape the choice with temperature, top_k and top_p",
    "response_format": "plain text is what there is: leave it out",
}


@dataclass(frozen=True)
class Asked:
    """One HTTP request, checked as far as the model need not be known.

    model: one of the names that are served. max_tokens None: the rest of the context. messages: of
    a chat; prompts: of a completion.
    """

    chat: bool
    model: str
    prompts: tuple[Prompt, ...]
    messages: tuple[tuple[str, str], ...]
    params: SamplingParams
    max_tokens: int | None
    stream: bool
    include_usage: bool
    echo: bool
    return_token_ids: bool
    cache_salt: str | None
    priority: int

    @property
    def num_sequences(self) -> int:
        """Continuations in all: what takes seats in the engine."""
        return max(1, len(self.prompts)) * self.params.n


def completion(values: Mapping[str, object], served: tuple[str, ...]) -> Asked:
    """A body of /v1/completions. served: names of models; the first is meant where none stands."""
    fields = Fields(values)
    model = _model(fields, served)
    prompts = _prompts(fields.get("prompt"))
    echo = fields.flag("echo")
    logprobs = fields.whole("logprobs", None, 0, MOST_LOGPROBS)
    if echo and logprobs is not None:
        raise ApiError(
            400,
            "echo with logprobs asks for scores of the prompt, which a prefix hit does not "
            "compute; leave one of them out",
            param="echo",
            code="unsupported_parameter",
        )
    max_tokens = fields.whole("max_tokens", 16, 1)
    return _asked(fields, (False, model, prompts, ()), max_tokens, logprobs, echo)


def chat(values: Mapping[str, object], served: tuple[str, ...]) -> Asked:
    """A body of /v1/chat/completions; `served` as in `completion`."""
    fields = Fields(values)
    model = _model(fields, served)
    messages = _messages(fields.get("messages"))
    wanted = fields.flag("logprobs")
    top = fields.whole("top_logprobs", 0, 0, MOST_LOGPROBS)
    if top and not wanted:
        raise bad("top_logprobs", top, "it together with logprobs true, or leave it out")
    older = fields.whole("max_tokens", None, 1)
    max_tokens = fields.whole("max_completion_tokens", older, 1)
    content = (True, model, (), messages)
    return _asked(fields, content, max_tokens, top if wanted else None, False)


def _asked(
    fields: Fields,
    content: tuple[bool, str, tuple[Prompt, ...], tuple[tuple[str, str], ...]],
    max_tokens: int | None,
    logprobs: int | None,
    echo: bool,
) -> Asked:
    """The fields that both kinds have, then the check that none is left. content: the first four
    of an `Asked`."""
    params = _params(fields, logprobs)
    stream = fields.flag("stream")
    usage = _stream_options(fields, stream)
    ids = fields.flag("return_token_ids")
    salt, priority = fields.text("cache_salt"), fields.whole("priority", 0, -(2**31), 2**31)
    best = fields.whole("best_of", params.n, 1)
    if best != params.n:
        raise bad("best_of", best, f"the same as n ({params.n}), or leave it out")
    fields.refuse(NOT_OFFERED, REMEDIES)
    fields.ignore(IGNORED)
    fields.finish()
    return Asked(*content, params, max_tokens, stream, usage, echo, ids, salt, priority)


def _params(fields: Fields, logprobs: int | None) -> SamplingParams:
    top_k = fields.whole("top_k", None, -1)
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise bad("top_p", top_p, "a number above 0, up to 1")
    return SamplingParams(
        temperature=fields.number("temperature", 1.0, 0.0, 100.0),
        top_k=None if top_k in (-1, 0) else top_k,
        top_p=top_p,
        seed=fields.whole("seed", None, -(2**63), 2**63 - 1),
        n=fields.whole("n", 1, 1, MOST_N),
        stop=fields.texts("stop", MOST_STOPS, LONGEST_STOP),
        stop_token_ids=fields.integers("stop_token_ids", MOST_PROMPTS),
        ignore_eos=fields.flag("ignore_eos"),
        logprobs=logprobs,
    )


def _model(fields: Fields, served: tuple[str, ...]) -> str:
    name = fields.text("model")
    if name is not None and name not in served:
        raise not_served(name, served)
    return served[0] if name is None else name


def _stream_options(fields: Fields, stream: bool) -> bool:
    """Whether the last chunk shall carry the usage."""
    value = fields.get("stream_options")
    if value is None:
        return False
    if not isinstance(value, dict) or not stream:
        raise bad("stream_options", value, 'an object, with "stream": true, or leave it out')
    options = Fields(value)
    usage = options.flag("include_usage")
    options.refuse({"continuous_usage_stats": (False,)}, {})
    options.ignore(("include_obfuscation",))
    options.finish()
    return usage


def _prompts(value: object) -> tuple[Prompt, ...]:
    """A text, a list of texts, token ids, or a list of lists of ids."""
    wanted = "a text, a list of texts, a list of token ids, or a list of such lists"
    several = [value] if isinstance(value, str) or _is_ids(value) else value
    fits = isinstance(several, list) and 0 < len(several) <= MOST_PROMPTS
    one_kind = fits and (all(isinstance(p, str) for p in several) or all(map(_is_ids, several)))
    if not one_kind:
        raise bad("prompt", value, f"{wanted}, {MOST_PROMPTS} prompts at most")
    if not all(several):
        raise bad("prompt", value, "a prompt with at least one token")
    return tuple(several)


def _is_ids(value: object) -> bool:
    """Token ids; the vocabulary checks their range later. An empty list is none."""
    return isinstance(value, list) and bool(value) and all(type(t) is int for t in value)


def _messages(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise bad("messages", value, 'a list such as [{"role": "user", "content": "..."}]')
    return tuple(_message(m, f"messages[{i}]") for i, m in enumerate(value))


def _message(value: object, name: str) -> tuple[str, str]:
    """Role and text. "developer" is the newer word for "system"."""
    if not isinstance(value, dict):
        raise bad(name, value, 'an object with "role" and "content"')
    role = value.get("role")
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant"):
        raise bad(f"{name}.role", role, "system, developer, user or assistant")
    if value.get("tool_calls"):
        raise bad(f"{name}.tool_calls", value["tool_calls"], "none: tools are not offered")
    return role, _content(value.get("content"), f"{name}.content")


def _content(value: object, name: str) -> str:
    """A text, or parts of type text."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) and value else [None]
    if not all(isinstance(p, dict) and p.get("type") == "text" for p in parts) or not all(
        isinstance(p.get("text"), str) for p in parts
    ):
        raise bad(name, value, 'a text, or parts such as {"type": "text", "text": "..."}')
    return "\n".join(p["text"] for p in parts)
