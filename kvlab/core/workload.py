"""Who asks for what, and when: the requests that a scheduler is tried with.

A workload is drawn from a seed, or read from a file, and then fixed: two policies are compared on
the same arrivals, and tomorrow's run repeats today's. Every quantity has a stream of random
numbers of its own, so that other output lengths leave the arrivals and the prompts as they were.
Section 21.3.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kvlab.core import json_lines
from kvlab.core.arrivals import Arrivals
from kvlab.core.checked import integer, number, shown, whole
from kvlab.core.lengths import Lengths, UniformNumbers, as_lengths

NEEDED = ("request_id", "time", "prompt_token_ids", "max_tokens")
OPTIONAL = ("priority", "group")
MOST_REQUESTS = 1_000_000  # that are drawn; the files of public traces hold some ten thousand
MOST_TOKENS = 1 << 28  # of all prompts together: as tuples, they are some gigabytes
LARGEST_VOCABULARY = 1 << 32


@dataclass(frozen=True)
class Arrival:
    """One request of a workload.

    time: when it arrives, after the start, in seconds (or in steps, on a step clock).
    group: the name of the prefix that it shares with others, if it does.
    Raises ValueError for a value outside its range.
    """

    request_id: str
    time: float
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    group: str | None = None

    def __post_init__(self) -> None:
        name, ids = self.request_id, self.prompt_token_ids
        if not isinstance(name, str) or not name:
            raise ValueError(f"request_id is {name!r:.60}; give a text")
        object.__setattr__(self, "time", number(f"{name}: time", self.time))
        if not isinstance(ids, tuple | list) or not ids:
            raise ValueError(f"{name}: prompt_token_ids is {ids!r:.60}; give at least one token id")
        for token in ids:
            whole(f"{name}: a prompt token", token)
        object.__setattr__(self, "prompt_token_ids", tuple(ids))
        whole(f"{name}: max_tokens", self.max_tokens, 1)
        integer(f"{name}: priority", self.priority)
        if self.group is not None and not isinstance(self.group, str):
            raise ValueError(f"{name}: group is {self.group!r:.60}; give a text, or nothing")


@dataclass(frozen=True)
class Workload:
    """Arrivals in the order of their times, each with an id of its own.

    Raises ValueError for none, for a time before the one above it, for an id used twice, and for
    what is no Arrival.
    """

    arrivals: tuple[Arrival, ...]

    def __post_init__(self) -> None:
        given = self.arrivals
        made = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(arrival, Arrival) for arrival in made):
            raise ValueError(f"the workload's arrivals are {shown(given)}; give Arrival objects")
        object.__setattr__(self, "arrivals", made)
        if not self.arrivals:
            raise ValueError("the workload has no arrivals; give at least one")
        for before, after in itertools.pairwise(self.arrivals):
            if after.time < before.time:
                raise ValueError(
                    f"{after.request_id} arrives at {after.time:g}, after {before.request_id} at "
                    f"{before.time:g}; sort the arrivals by time"
                )
        seen: set[str] = set()
        for arrival in self.arrivals:
            if arrival.request_id in seen:
                raise ValueError(
                    f"request id {arrival.request_id!r} stands there twice; give each its own"
                )
            seen.add(arrival.request_id)

    def __len__(self) -> int:
        return len(self.arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def __repr__(self) -> str:
        asked = f"{len(self)} requests within {self.duration:g}"
        return (
            f"Workload({asked}, {self.prompt_tokens:,} prompt and {self.max_tokens:,} new tokens)"
        )

    @property
    def duration(self) -> float:
        """When the last request arrives."""
        return self.arrivals[-1].time

    @property
    def prompt_tokens(self) -> int:
        return sum(len(a.prompt_token_ids) for a in self.arrivals)

    @property
    def max_tokens(self) -> int:
        """New tokens if no request ends early."""
        return sum(a.max_tokens for a in self.arrivals)

    # ---- files

    def to_jsonl(self) -> str:
        """One JSON object a request; `from_jsonl` gives an equal workload back."""
        lines = (json.dumps(asdict(a), separators=(",", ":")) for a in self.arrivals)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def from_jsonl(cls, text: str, name: str = "the workload") -> "Workload":
        """Raises ValueError naming the line, the value and what to give instead."""
        arrivals: list[Arrival] = []
        places: dict[str, str] = {}  # request id -> where it stands
        for where, found in json_lines.objects(text, name):
            try:
                arrivals.append(_arrival(found))
                cls(tuple(arrivals[-2:]))  # the order, at the line that breaks it
                if (request_id := arrivals[-1].request_id) in places:
                    raise ValueError(
                        f"request id {request_id!r} stands in {places[request_id]} already; "
                        "give each request its own"
                    )
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            places[request_id] = where
        return cls(tuple(arrivals))

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_jsonl(), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | Path) -> "Workload":
        return cls.from_jsonl(json_lines.read_text(path), Path(path).name)


def _arrival(found: dict) -> Arrival:
    if missing := [key for key in NEEDED if key not in found]:
        raise ValueError(f"{missing[0]} is missing; a request has {', '.join(NEEDED)}")
    if unknown := [key for key in found if key not in NEEDED + OPTIONAL]:
        raise ValueError(
            f"{unknown[0][:60]!r} is no part of a request; it has {', '.join(NEEDED + OPTIONAL)}"
        )
    return Arrival(**found)


# ---- drawing one


@dataclass(frozen=True)
class SharedPrefix:
    """A `share` of the requests begins with one of `groups` prefixes of `tokens` tokens each."""

    share: float
    tokens: int
    groups: int = 1

    def __post_init__(self) -> None:
        if number("SharedPrefix: share", self.share) > 1:
            raise ValueError(f"SharedPrefix: share is {self.share!r}; give a number from 0 to 1")
        whole("SharedPrefix: tokens", self.tokens, 1)
        whole("SharedPrefix: groups", self.groups, 1)


def generate(
    num_requests: int,
    *,
    arrivals: Arrivals,
    prompt_tokens: int | Lengths,
    output_tokens: int | Lengths,
    vocab_size: int,
    shared: SharedPrefix | None = None,
    priorities: Sequence[int] = (0,),
    seed: int = 0,
) -> Workload:
    """Draw a workload. The same arguments give the same bytes (`to_jsonl`) on every Python.

    prompt_tokens: length of a request's own part of the prompt, which stands behind the prefix
    where it shares one. output_tokens: its max_tokens. vocab_size: token ids are below it.
    priorities: each request takes one of them, all equally likely.
    Times are rounded to a millionth.

    Raises ValueError for a value outside its range, and, before a token is drawn, for more than
    a million requests or 2^28 prompt tokens together.
    """
    whole("num_requests", num_requests, 1, MOST_REQUESTS)
    _check_drawing(arrivals, vocab_size, shared, priorities, seed)
    lengths = as_lengths("prompt_tokens", prompt_tokens)
    outputs = as_lengths("output_tokens", output_tokens)
    own, new, ranks, sharing = (
        stream(seed, name) for name in ("prompt lengths", "output lengths", "priorities", "sharing")
    )
    sizes = [lengths.draw(own) for _ in range(num_requests)]
    check_total(sum(sizes) + (shared.tokens * (shared.groups + num_requests) if shared else 0))
    prefixes = _prefixes(shared, vocab_size, seed)
    made = []
    times = arrivals.times(stream(seed, "times"))
    for i, (size, time) in enumerate(zip(sizes, times, strict=False)):
        group = _group(shared, sharing)
        tokens = token_ids(size, vocab_size, stream(seed, f"prompt {i}"))
        prompt = (prefixes[group] if group else ()) + tokens
        rank = priorities[int(ranks() * len(priorities))]
        made.append(Arrival(f"r{i + 1}", round(time, 6), prompt, outputs.draw(new), rank, group))
    return Workload(tuple(made))


def check_total(tokens: int) -> None:
    """Raises ValueError where the prompts of a workload are more than a machine holds."""
    if tokens > MOST_TOKENS:
        raise ValueError(
            f"the prompts have up to {tokens:,} tokens together, and a workload holds "
            f"{MOST_TOKENS:,}; give fewer requests, or shorter prompts"
        )


def _check_drawing(
    arrivals: object, vocab_size: object, shared: object, priorities: object, seed: object
) -> None:
    """Raises ValueError for what `generate` cannot draw from."""
    whole("vocab_size", vocab_size, 1, LARGEST_VOCABULARY)
    if not callable(getattr(arrivals, "times", None)) or isinstance(arrivals, type):
        raise ValueError(
            f"arrivals is {shown(arrivals)}; give AtOnce(), Regular, Poisson, Gamma or OnOff"
        )
    if not isinstance(shared, SharedPrefix | None):
        raise ValueError(f"shared is {shown(shared)}; give a SharedPrefix, or None for none")
    if not isinstance(priorities, tuple | list | range):
        raise ValueError(f"priorities is {shown(priorities)}; give integers in parentheses")
    if not priorities:
        raise ValueError("priorities is empty; give (0,) where all are alike")
    integer("seed", seed)


def _prefixes(shared: SharedPrefix | None, vocab_size: int, seed: int) -> dict[str, tuple]:
    """{group: its tokens}, named p1, p2 ..."""
    names = [f"p{i + 1}" for i in range(shared.groups)] if shared else []
    return {n: token_ids(shared.tokens, vocab_size, stream(seed, f"prefix {n}")) for n in names}


def _group(shared: SharedPrefix | None, uniform: UniformNumbers) -> str | None:
    """Two numbers each, whatever they say: another share leaves the choice among groups alone."""
    first, second = uniform(), uniform()
    if shared is None or first >= shared.share:
        return None
    return f"p{int(second * shared.groups) + 1}"


def stream(seed: int | str, name: str) -> UniformNumbers:
    """Uniform numbers in [0, 1) that belong to this seed and name alone."""
    digest = hashlib.sha256(f"kvlab {seed} {name}".encode()).digest()
    return random.Random(int.from_bytes(digest[:16], "big")).random


def token_ids(count: int, vocab_size: int, uniform: UniformNumbers) -> tuple[int, ...]:
    """`count` token ids from 0 to vocab_size - 1."""
    return tuple(int(uniform() * vocab_size) for _ in range(count))
