"""`kvlab generate`: text in, streamed text out, on any model that kvlab loads."""

import json
import sys
from pathlib import Path

from kvlab import tiny
from kvlab.core.request import SamplingParams
from kvlab.core.trace import Trace
from kvlab.core.whole_file import write_whole
from kvlab.llm import LLM
from kvlab.outputs import TextDelta


def run(
    text: str,
    *,
    model: str = "tiny",
    max_tokens: int = 32,
    temperature: float = 0.0,
    seed: int | None = None,
    trace: Path | None = None,
    as_json: bool = False,
) -> int:
    """Print the continuation of a text; with `as_json` one JSON object. Returns the exit code.

    A plain text for the tiny model becomes a user's turn (`kvlab.tiny.as_prompt`). Notices go to
    stderr. Raises ValueError for arguments that do not fit.
    """
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    if trace is not None:
        _refuse_other_than_a_trace(trace)
    llm = LLM(model)
    prompt = tiny.as_prompt(text) if llm.name == "tiny" else text
    if trace is not None:
        llm.start_trace()
    deltas, cached, times = _stream(llm, prompt, params, show=not as_json)
    if as_json:
        print(json.dumps(_report(llm, prompt, deltas, cached, times), ensure_ascii=False))
    elif deltas[-1].finish_reason != "stop":
        print(f"note: ended by {deltas[-1].finish_reason}, see --max-tokens", file=sys.stderr)
    notice = llm.notice(prompt)
    if notice:
        print(f"note: {notice}", file=sys.stderr)
    if trace is not None:  # last: a disk that is full costs the file, not the answer
        write_whole(trace, llm.stop_trace().to_json())
    return 0


def _refuse_other_than_a_trace(place: Path) -> None:
    """Raises ValueError unless a trace can be written there: over an earlier one, or anew."""
    if place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"--trace {str(place)!r} is not a file in a folder that exists")
    if place.exists() and not _is_trace(place):
        raise ValueError(
            f"--trace is {str(place)!r}, which is there and no trace; name another file"
        )


def _is_trace(place: Path) -> bool:
    """A device is none. What does not begin as a trace does is not read: it may be a large file."""
    if not place.is_file():
        return False
    try:
        with place.open("rb") as file:
            begins = file.read(1) == b"{"
        return begins and bool(Trace.load(place))
    except (ValueError, RecursionError):
        return False


def _stream(
    llm: LLM, prompt: str, params: SamplingParams, show: bool
) -> tuple[list[TextDelta], list[int], dict]:
    """Run to the end. Returns the deltas, positions cached after each step, and the times."""
    deltas, cached = [], []
    stream = llm.stream(prompt, params, request_id="prompt")
    request = llm.engine.requests["prompt"]
    for delta in stream:
        deltas.append(delta)
        if delta.token_ids:
            cached.append(request.num_computed_tokens)
        if show and delta.text:
            text = delta.text if any(d.text for d in deltas[:-1]) else delta.text.lstrip()
            print(text, end="", flush=True)
    if show:
        print()
    return deltas, cached, request.times.to_dict()


def _report(llm: LLM, prompt: str, deltas: list[TextDelta], cached: list[int], times: dict) -> dict:
    return {
        "model": llm.name,
        "prompt": prompt,
        "prompt_token_ids": llm.encode(prompt),
        "output_token_ids": [t for d in deltas for t in d.token_ids],
        "text": "".join(d.text for d in deltas),
        "finish_reason": deltas[-1].finish_reason,
        "cached_positions": cached,
        "bytes_per_position": llm.cache.bytes_per_position,
        "times": times,
        "notice": llm.notice(prompt),
    }
