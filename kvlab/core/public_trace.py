"""Traces of real services, as they are published: arrivals and lengths, without any text.

One JSON object a line, as in the traces that Mooncake published with its paper (Qin et al.,
FAST 2025); tools that make or replay traces use the same form:

    {"timestamp": 3000, "input_length": 898, "output_length": 324, "hash_ids": [0, 1099]}

timestamp is in milliseconds, lengths are in tokens. Each hash id stands for one block of 512
tokens of the prompt, the last of which may be cut short; equal ids are equal content. Token ids
are made from the hash ids, so that two prompts share a prefix here exactly where they did there.
Section 21.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvlab.core import json_lines
from kvlab.core.checked import number, whole
from kvlab.core.workload import (
    LARGEST_VOCABULARY,
    Arrival,
    Workload,
    check_total,
    stream,
    token_ids,
)

BLOCK_TOKENS = 512
LARGEST_BLOCK = 1 << 20
NEEDED = ("timestamp", "input_length", "output_length")


def load_public_trace(
    path: str | Path,
    *,
    vocab_size: int,
    block_tokens: int = BLOCK_TOKENS,
    scale: int = 1,
    limit: int | None = None,
) -> Workload:
    """`read_public_trace` of a file's text."""
    return read_public_trace(
        json_lines.read_text(path),
        vocab_size=vocab_size,
        block_tokens=block_tokens,
        scale=scale,
        limit=limit,
        name=Path(path).name,
    )


def read_public_trace(
    text: str,
    *,
    vocab_size: int,
    block_tokens: int = BLOCK_TOKENS,
    scale: int = 1,
    limit: int | None = None,
    name: str = "the trace",
) -> Workload:
    """A workload in seconds after the first line's timestamp; the request of line n is called "n".

    block_tokens: tokens that one hash id stands for in the file.
    scale: every length is divided by it and rounded up, so that long prompts fit a small model:
    a block of 512 becomes 512 / scale tokens, and shared blocks stay shared. It must divide
    block_tokens. Outputs are scaled too, times are not (`play(..., stretch=...)` does that).
    limit: read this many requests from the start; None reads all.
    A line without hash_ids has a prompt of its own. Other keys of a line are not used.

    Raises ValueError, naming the line, the value and what to give instead, for a number outside
    its range, a timestamp before the one above it, or hash ids that do not cover the prompt.
    """
    whole("block_tokens", block_tokens, 1, LARGEST_BLOCK)
    whole("scale", scale, 1)
    if limit is not None:
        whole("limit", limit, 1)
    if block_tokens % scale:
        raise ValueError(f"scale is {scale} and does not divide a block of {block_tokens} tokens")
    blocks = _Blocks(block_tokens // scale, whole("vocab_size", vocab_size, 2, LARGEST_VOCABULARY))
    arrivals: list[Arrival] = []
    times: list[float] = []
    for where, line in json_lines.objects(text, name):
        try:
            times.append(_timestamp(line, times))
            prompt, max_tokens = _prompt(line, where, block_tokens, scale, blocks)
            since = (times[-1] - times[0]) / 1000
            arrivals.append(Arrival(where.rpartition(" ")[2], since, prompt, max_tokens))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if len(arrivals) == limit:
            break
    return Workload(tuple(arrivals))


def _timestamp(line: dict, before: list[float]) -> float:
    if missing := [key for key in NEEDED if key not in line]:
        raise ValueError(f"{missing[0]} is missing; a line has {', '.join(NEEDED)} and hash_ids")
    time = number("timestamp", line["timestamp"])
    if before and time < before[-1]:
        raise ValueError(
            f"timestamp is {time:g}, and the line above has {before[-1]:g}; sort the lines by it"
        )
    return time


def _prompt(
    line: dict, where: str, block_tokens: int, scale: int, blocks: "_Blocks"
) -> tuple[tuple[int, ...], int]:
    """Its token ids, and how many new ones are asked for."""
    length = whole("input_length", line["input_length"], 1)
    output = whole("output_length", line["output_length"], 1)
    count = -(-length // scale)
    blocks.made += count
    check_total(blocks.made)
    if "hash_ids" in line:
        prompt = blocks.prompt(_checked_ids(line["hash_ids"], length, block_tokens), count)
    else:
        prompt = token_ids(count, blocks.vocab_size, stream("line", where.rpartition(" ")[2]))
    return prompt, -(-output // scale)


def _checked_ids(ids: object, length: int, block_tokens: int) -> list[int]:
    """Raises ValueError unless they are ids, as many as blocks hold the prompt."""
    if not isinstance(ids, list):
        raise ValueError(f"hash_ids is {ids!r:.60}; give a list of integers")
    for hash_id in ids:
        if whole("a hash id", hash_id) >= 1 << 64:
            raise ValueError(f"a hash id is {hash_id}; give integers below 2^64")
    blocks = -(-length // block_tokens)
    if len(ids) != blocks:
        raise ValueError(
            f"hash_ids has {len(ids)} ids, and {length} tokens are {blocks} blocks of "
            f"{block_tokens}; mend the line, or say which block_tokens the file uses"
        )
    return ids


@dataclass
class _Blocks:
    """The content of each hash id: `size` tokens, the same whenever it is asked for.

    A block begins with its id, written in base vocab_size: blocks of different ids differ.
    """

    size: int
    vocab_size: int
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)
    made: int = 0  # tokens of all prompts so far

    def prompt(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """The blocks one behind the other, cut to `count` tokens."""
        return tuple(t for hash_id in ids for t in self.block(hash_id))[:count]

    def block(self, hash_id: int) -> tuple[int, ...]:
        if hash_id not in self.known:
            self.known[hash_id] = self._made(hash_id)
        return self.known[hash_id]

    def _made(self, hash_id: int) -> tuple[int, ...]:
        digits, rest = [], hash_id
        for _ in range(min(self.size, self._digits)):
            rest, digit = divmod(rest, self.vocab_size)
            digits.append(digit)
        if rest:
            raise ValueError(
                f"hash id {hash_id} needs a longer block than {self.size} tokens of a vocabulary "
                f"of {self.vocab_size} to be told from the others; give a smaller scale"
            )
        filler = stream("hash id", str(hash_id))
        return (*digits, *token_ids(self.size - len(digits), self.vocab_size, filler))

    @property
    def _digits(self) -> int:
        """As many as any id below 2^64 needs."""
        count = 1
        while self.vocab_size**count < 1 << 64:
            count += 1
        return count
