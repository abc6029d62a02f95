"""Section 21.3's expectations, from the engine's own scheduler. Cases are made afresh."""

from collections.abc import Sequence

from kvlab.core.scheduler import Scheduler
from kvlab.exercises.errors_21_3 import ADMISSION, FAIRNESS, RULES
from kvlab.exercises.serving_21_3 import Serving

CHUNKS = (4, 6, 12)
LONG, BUDGET, BESIDE = 32_889, 2_048, 256
STREAM, PROMPT, GUARD, NO_GUARD = 20, 16, 8, 1_000  # a budget of PROMPT: one prompt a step


def twelve_beside_two(prefill_chunk: int) -> Serving:
    """The chapter's example: A and B decode, and C arrives with 12 tokens."""
    serving = Serving(policy="alternating", prefill_chunk=prefill_chunk)
    serving.ask("A", 3, outputs=20)
    serving.ask("B", 3, outputs=20)
    while serving.outputs("B") < 2:
        serving.step()
    serving.ask("C", 12)
    serving.run()
    return serving


def chunk_sizes() -> list[int]:
    """Of each chunk size: steps to C's first output; then the most of C between two of A."""
    orders = [twelve_beside_two(size).order("C").split() for size in CHUNKS]
    between = [max(int(s[1:]) for s in order if s.startswith("P")) for order in orders]
    return [*map(len, orders), *between]


def _chunks_of_the_long_prompt(beside: int) -> list[int]:
    """The positions of each chunk, beside so many requests that decode all the while."""
    serving = Serving(
        6_000, 16, max_num_batched_tokens=BUDGET, max_num_seqs=beside + 1, policy="mixed"
    )
    for i in range(beside):
        serving.ask(f"D{i}", 1, outputs=1_000)
    if beside:
        serving.step()
    serving.ask("long", LONG)
    while "long" not in serving.ended:
        serving.step()
    return [step["long"] for step in serving.steps if "long" in step]


def long_prompt() -> list[int]:
    alone = _chunks_of_the_long_prompt(0)
    return [len(alone), alone[-1], len(_chunks_of_the_long_prompt(BESIDE))]


def gap_beside(serving: Serving, prompts: int) -> int:
    """A decodes, and so many prompts of PROMPT tokens arrive at once: A's longest gap in steps."""
    serving.ask("A", 2, outputs=20)
    serving.step()
    for i in range(prompts):
        serving.ask(f"prompt {i}", PROMPT)
    serving.run()
    return serving.longest_gap("A")


def gaps_of_three_settings() -> list[int]:
    found = []
    for settings in (
        {"policy": "mixed"},
        {"policy": "continuous", "max_decode_gap": GUARD},
        {"policy": "continuous", "max_decode_gap": NO_GUARD},
    ):
        found.append(gap_beside(Serving(max_num_batched_tokens=PROMPT, **settings), STREAM))
    return found


# ---- who is admitted


class Admitting(Scheduler):
    """A scheduler whose second half can be run alone."""

    def admit(self, budget: int) -> list[int]:
        """Positions that each waiting request computes now, 0 where it goes on waiting."""
        queue, self._in_step = list(self.waiting), {}
        self._schedule_waiting(budget)
        return [self._in_step.get(r.request_id, (r, 0))[1] for r in queue]


class AdmittingServing(Serving):
    Scheduler = Admitting


def schedule_waiting(
    waiting: Sequence[Sequence[int]],
    budget: int,
    seats: int,
    free: int,
    block_size: int,
    chunked: bool,
) -> list[int]:
    """What the real scheduler admits from a queue, when the running ones have had their turn.

    Each cached prefix is held by a request that runs; one more takes blocks, so that the pool is
    larger than any prompt.
    """
    prompts = [range(1000 * i, 1000 * i + n) for i, (n, _) in enumerate(waiting, 1)]
    held = [prompt[:hit] for prompt, (_, hit) in zip(prompts, waiting, strict=True) if hit]
    largest = max((-(-n // block_size) for n, _ in waiting), default=1)
    holders = [range(-largest * block_size, 0), *held]
    serving = AdmittingServing(
        sum(len(tokens) // block_size for tokens in holders) + free,
        block_size,
        prefix_caching=True,
        max_num_seqs=len(holders) + seats,
        max_num_batched_tokens=10_000,
        enable_chunked_prefill=chunked,
    )
    for i, tokens in enumerate(holders):
        serving.ask(f"runs {i}", tokens, outputs=2)
    serving.step()
    assert serving.free == free and len(serving.running) == len(holders)
    for i, prompt in enumerate(prompts):
        serving.ask(f"waits {i}", prompt)
    return serving.engine.scheduler.admit(budget)


def waiting_cases() -> Sequence[tuple]:
    """Queues in which budget, seats or blocks run out, at the first request or behind it."""
    return (
        ([[3, 0]], 16, 2, 8, 4, True),
        ([[12, 0], [6, 0]], 16, 2, 8, 4, True),
        ([[3, 0], [2, 0], [1, 0]], 16, 2, 8, 4, True),
        ([[3, 0]], 16, 0, 8, 4, True),
        ([[9, 0], [3, 0]], 16, 4, 2, 4, True),
        ([[8, 0], [5, 0], [2, 0]], 20, 4, 3, 4, True),
        ([[5, 0]], 16, 4, 1, 4, True),
        ([[12, 0]], 16, 4, 1, 4, True),
        ([[4, 0], [8, 0]], 16, 4, 3, 4, True),
        ([[12, 8]], 16, 2, 8, 4, True),
        ([[12, 8], [3, 0]], 16, 4, 2, 4, True),
        ([[12, 8], [8, 4], [9, 0]], 10, 4, 8, 4, True),
        ([[40, 0]], 8, 4, 2, 4, True),
        ([[40, 8], [3, 0]], 8, 4, 2, 4, True),
        ([[12, 0], [3, 0]], 8, 4, 8, 4, False),
        ([[8, 0], [3, 0]], 8, 4, 8, 4, False),
        ([[12, 8], [6, 0], [2, 0]], 8, 4, 8, 4, False),
        ([[20, 16], [33, 16], [10, 0]], 32, 3, 4, 16, True),
        ([[3, 0], [3, 2]], 9, 5, 4, 1, True),
        ([[5, 4], [1, 0]], 9, 5, 0, 4, True),
        ([[3, 0]], 0, 4, 8, 4, True),
        ([], 8, 4, 4, 4, True),
    )


# ---- breaking fairness

_NUM_PROMPTS = (1, 4, 16, 40)


def unfair_gap(kind: type[Serving], prompts: int) -> int:
    """A's longest gap where every prompt goes first, and no guard is in reach."""
    serving = kind(max_num_batched_tokens=PROMPT, policy="continuous", max_decode_gap=NO_GUARD)
    return gap_beside(serving, prompts)


def noted(kind: type[Serving]) -> type[Serving]:
    """A class of its own, which keeps those that are made of it in `made`."""
    made: list[Serving] = []

    class Noted(kind):
        def __init__(self, *args: object, **settings: object) -> None:
            super().__init__(*args, **settings)
            made.append(self)

    Noted.__name__, Noted.__doc__, Noted.made = kind.__name__, kind.__doc__, made
    return Noted


def unfair_cases() -> Sequence[tuple[type[Serving], int]]:
    return tuple((noted(Serving), prompts) for prompts in _NUM_PROMPTS)


# ---- rules, and checks of them


def rule_that_dead_ends() -> str:
    """S02: both have begun, or never do; the letter of the rule with which somebody never ends."""
    (letter,) = [letter for letter, kind in RULES.items() if _is_stuck_at_s02(kind)]
    return letter


def two_too_large(kind: type[Serving]) -> Serving:
    """S02: A needs 1,600 blocks of a pool of 2,047, B 1,200; a step has a chunk of 64 for each."""
    serving = kind(2_047, 1, max_num_batched_tokens=128, prefill_chunk=64)
    serving.ask("A", 1_598, outputs=3)
    serving.ask("B", 1_198, outputs=3)
    serving.run()
    return serving


def _is_stuck_at_s02(kind: type[Serving]) -> bool:
    serving = two_too_large(kind)
    return bool(serving.waiting or serving.running)


def _fresh(kinds: Sequence[type[Serving]]) -> Sequence[tuple[type[Serving]]]:
    """Each as a class of its own, which a check may change without harm."""

    def own(kind: type[Serving]) -> type[Serving]:
        parts = {name: type(name, (getattr(kind, name),), {}) for name in ("Scheduler", "Turns")}
        return type(kind.__name__, (kind,), {"__doc__": kind.__doc__, **parts})

    return tuple((own(kind),) for kind in kinds)


def fairness() -> Sequence[tuple[type[Serving]]]:
    return _fresh(FAIRNESS)


def admission() -> Sequence[tuple[type[Serving]]]:
    return _fresh(ADMISSION)
