"""Requests for a load client: from a file, drawn from a seed, or from a public trace.

Servers tokenise in their own ways, so a drawn prompt is made of common words, most of them one
token in most vocabularies; how many tokens it was, the server's usage says. Equal token ids of a
workload become equal words, so prompts share a prefix in words exactly where they did in ids.
Section 21.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvlab.core import json_lines
from kvlab.core.arrivals import Arrivals, AtOnce
from kvlab.core.checked import number, whole
from kvlab.core.lengths import Lengths
from kvlab.core.public_trace import load_public_trace
from kvlab.core.workload import Arrival, SharedPrefix, Workload, generate
from kvlab.tiny import word_lists

WORDS = tuple(
    dict.fromkeys(
        word_lists.THINGS
        + word_lists.COLOURS
        + word_lists.PLACES
        + word_lists.ANIMALS
        + word_lists.FOODS
        + word_lists.JOBS
        + word_lists.FEELINGS
    )
)
Prompt = str | Sequence[int] | Sequence[Mapping[str, object]]
PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
OTHER_KEYS = ("request_id", "time", "max_tokens", "priority", "group", "labels")


@dataclass(frozen=True)
class LoadRequest:
    """One request to send. prompt: a text, token ids, or the messages of a chat.

    time: seconds after the start at which it is meant to leave; None leaves that to the run.
    labels: what a report filters by. Raises ValueError for a value that cannot be sent.
    """

    request_id: str
    prompt: Prompt
    max_tokens: int = 32
    time: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.request_id
        if not isinstance(name, str) or not name:
            raise ValueError(f"request_id is {name!r:.60}; give a text")
        if form_of(self.prompt) is None:
            raise ValueError(
                f"{name}: prompt is {self.prompt!r:.60}; give a text, a list of token ids, or a "
                'list of messages such as {"role": "user", "content": "..."}'
            )
        whole(f"{name}: max_tokens", self.max_tokens, 1)
        if self.time is not None:
            number(f"{name}: time", self.time)
        for label, value in self.labels.items():
            if not isinstance(label, str) or not isinstance(value, str):
                raise ValueError(f"{name}: label {label!r:.60} is {value!r:.60}; give texts")


def form_of(prompt: object) -> str | None:
    """ "text", "ids" or "messages"; None for what is no prompt, an empty one included."""
    if isinstance(prompt, str):
        return "text" if prompt else None
    if not isinstance(prompt, list | tuple) or not prompt:
        return None
    if all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
        return "ids" if min(prompt) >= 0 else None
    if all(isinstance(m, Mapping) and isinstance(m.get("role"), str) for m in prompt):
        return "messages"
    return None


def words_of(token_ids: Iterable[int]) -> str:
    """A text with one word a token id; ids that differ by a multiple of the list's length are
    equal.
    """
    return " ".join(WORDS[token % len(WORDS)] for token in token_ids)


def of_workload(
    workload: Workload, *, words: bool = False, timed: bool = True
) -> list[LoadRequest]:
    """A workload's requests, at their own times unless timed is False; as words where the server
    takes no token ids.
    """
    return [_of_arrival(arrival, words, timed) for arrival in workload]


def _of_arrival(arrival: Arrival, words: bool, timed: bool) -> LoadRequest:
    ids = arrival.prompt_token_ids
    labels = {} if arrival.group is None else {"group": arrival.group}
    return LoadRequest(
        arrival.request_id,
        words_of(ids) if words else ids,
        arrival.max_tokens,
        arrival.time if timed else None,
        labels,
    )


def random_requests(
    num_prompts: int,
    *,
    prompt_tokens: int | Lengths = 128,
    output_tokens: int | Lengths = 32,
    shared: SharedPrefix | None = None,
    arrivals: Arrivals | None = None,
    seed: int = 0,
) -> Workload:
    """Prompts drawn from the word list, one token id a word: `kvlab.core.workload.generate`.

    Give it to `load` with words=True. arrivals None: all at time 0.
    """
    return generate(
        num_prompts,
        arrivals=AtOnce() if arrivals is None else arrivals,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        vocab_size=len(WORDS),
        shared=shared,
        seed=seed,
    )


def trace_requests(path: str | Path, *, scale: int = 1, limit: int | None = None) -> Workload:
    """A public trace (`kvlab.core.public_trace`) over the word list, at the trace's own times."""
    return load_public_trace(path, vocab_size=len(WORDS), scale=scale, limit=limit)


def read_prompts(
    path: str | Path, *, max_tokens: int = 32, limit: int | None = None
) -> list[LoadRequest]:
    """Prompts from a file: JSONL if its first letter is "{", else one prompt a line of text.

    A JSON line has one of prompt (text), messages, prompt_token_ids; and request_id, time,
    max_tokens, group, labels where wanted: a saved `Workload` is such a file. Empty lines are
    passed over. max_tokens: for requests that do not say. limit: at most so many, from the start.

    Raises ValueError, naming the line and what to write instead; OSError for no such file.
    """
    text, name = json_lines.read_text(path), Path(path).name
    if limit is not None:
        whole("limit", limit, 1)
    if text.lstrip().startswith("{"):
        found = [
            _of_line(line, where, max_tokens) for where, line in json_lines.objects(text, name)
        ]
    else:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        found = [LoadRequest(str(n), line, max_tokens) for n, line in lines]
    if not found:
        raise ValueError(f"{name} has no prompt; write one a line, as text or as a JSON object")
    if limit is not None and len(found) < limit:
        raise ValueError(
            f"{name} has {len(found)} prompts, fewer than {limit}; ask for fewer, or add some "
            "(a prompt sent twice would be found in the prefix cache)"
        )
    return found[:limit]


def _of_line(line: Mapping[str, object], where: str, max_tokens: int) -> LoadRequest:
    given = [key for key in PROMPT_KEYS if key in line]
    if len(given) != 1:
        raise ValueError(
            f"{where}: it has {' and '.join(given) or 'no prompt'}; give one of "
            f"{', '.join(PROMPT_KEYS)}"
        )
    if unknown := [key for key in line if key not in PROMPT_KEYS + OTHER_KEYS]:
        raise ValueError(
            f"{where}: {unknown[0][:60]!r} is no part of a request; it has "
            f"{', '.join(PROMPT_KEYS + OTHER_KEYS)}"
        )
    labels = line.get("labels", {})
    if not isinstance(labels, dict):
        raise ValueError(f"{where}: labels is {labels!r:.60}; give an object of texts")
    if line.get("group") is not None:
        labels = {**labels, "group": line["group"]}
    try:
        return LoadRequest(
            line.get("request_id", where.rpartition(" ")[2]),
            line[given[0]],
            line.get("max_tokens", max_tokens),
            line.get("time"),
            labels,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
