"""Five small workloads for the knobs: who arrives before which step, with how much to do.

Prompts are random token ids: to a scheduler their number matters, and which blocks are equal.
Section 21.3.
"""

from collections.abc import Callable
from string import ascii_uppercase

from kvlab.core.workload import Arrival, Workload, stream, token_ids

Draw = Callable[[str, int], tuple[int, ...]]  # a name and a count give so many token ids


def _two_seats(draw: Draw) -> list[Arrival]:
    """Section 21.3's example: all come at once; A gives two outputs, B four, C three."""
    return [
        Arrival("A", 0, draw("A", 3), 2),
        Arrival("B", 0, draw("B", 3), 4),
        Arrival("C", 0, draw("C", 3), 3),
    ]


def _twelve(draw: Draw) -> list[Arrival]:
    """The chapter's example: a prompt of 12 tokens beside two decoding requests."""
    return [
        Arrival("A", 0, draw("A", 3), 9),
        Arrival("B", 0, draw("B", 3), 9),
        Arrival("C", 1, draw("C", 12), 4),
    ]


def _long_prompts(draw: Draw) -> list[Arrival]:
    """A chat that wants an output in every step; then four prompts of 24 tokens come at once."""
    chat = Arrival("chat", 0, draw("chat", 4), 14)
    names = [f"long {i}" for i in range(1, 5)]
    return [chat, *(Arrival(name, 3, draw(name, 24), 2, priority=1) for name in names)]


def _burst(draw: Draw) -> list[Arrival]:
    """Twenty within three steps: the odd ones short, the even ones long."""
    made = []
    for i in range(20):
        long = i % 2
        name = f"{ascii_uppercase[i]}"
        tokens = draw(name, 9 + i % 5 if long else 3 + i % 3)
        made.append(Arrival(name, i // 8, tokens, 6 if long else 2, priority=long))
    return made


def _shared_prefix(draw: Draw) -> list[Arrival]:
    """Eight requests whose prompts begin with the same 16 tokens."""
    prefix = draw("prefix", 16)
    names = ascii_uppercase[:8]
    return [Arrival(n, 2 * i, prefix + draw(n, 3), 5) for i, n in enumerate(names)]


WORKLOADS: dict[str, Callable[[Draw], list[Arrival]]] = {
    "two seats: A, B, C": _two_seats,
    "12 tokens beside two": _twelve,
    "long prompts, a chat": _long_prompts,
    "burst of 20": _burst,
    "one shared prefix": _shared_prefix,
}


def workload(name: str, vocab_size: int) -> Workload:
    """One of WORKLOADS, always with the same token ids below vocab_size; times are steps."""

    def draw(which: str, count: int) -> tuple[int, ...]:
        return token_ids(count, vocab_size, stream(name, which))

    return Workload(tuple(WORKLOADS[name](draw)))
