"""Section 21.3's known mistakes in what plays with a `Serving`: a broken policy, and two checks."""

from kvlab.exercises.exercise import Mistake
from kvlab.exercises.runs_21_3 import NO_GUARD, PROMPT, gap_beside
from kvlab.exercises.serving_21_3 import Serving
from kvlab.exercises.wrong_21_4 import verdict_mistakes

Kind = type[Serving]


def _unfair(says: str, **settings: object) -> Mistake:
    def play(kind: Kind, prompts: int) -> int:
        return gap_beside(kind(**{"max_num_batched_tokens": PROMPT, **settings}), prompts)

    return Mistake(says, play)


UNFAIR = (
    _unfair(
        "A gets an output in every step there: mixed serves decodes first, and static lets nobody "
        "join a group that decodes.",
        policy="mixed",
    ),
    _unfair(
        "That holds up to the guard: after max_decode_gap - 1 steps for prompts alone A has its "
        "turn. Put the guard out of reach.",
        policy="continuous",
    ),
    _unfair(
        "A waits for one step, however many prompts arrive. Alternating lets it decode after "
        "every step for prompts; and a large budget computes all of them in one step, where "
        "max_num_batched_tokens=16 takes one at a time.",
        policy="alternating",
    ),
    _unfair(
        "A step takes two of your prompts there. With max_num_batched_tokens=16 each takes a step "
        "of its own.",
        policy="continuous",
        max_num_batched_tokens=2 * PROMPT,
        max_decode_gap=NO_GUARD,
    ),
)


# ---- a check of fairness


def _fair(
    kind: Kind, *, prompt: int = 40, decoding: int = 3, most: int = 1, every: int = 1,
) -> bool:  # fmt: skip
    """Some decode and prompts arrive, one in every so many steps; nobody waits longer than `most`.

    every: 0 for no prompts.
    """
    serving = kind(max_num_batched_tokens=8)
    names = [f"D{i}" for i in range(decoding)]
    for name in names:
        serving.ask(name, 1, outputs=30)
    serving.step()
    for i in range(12):
        if every and i % every == 0:
            serving.ask(f"P{i}", prompt)
        serving.step()
    return all(serving.longest_gap(name) <= most for name in names)


FAIR = (
    *verdict_mistakes(_fair),
    Mistake(
        "One of the wrong schedulers lets one request decode a step. Let two or more decode.",
        lambda kind: _fair(kind, decoding=1),
    ),
    Mistake(
        "Your prompts fit into a step beside the decodes, so that two of the wrong schedulers have "
        "nobody to take from. Give max_num_batched_tokens a small value, and send prompts that "
        "are longer than that.",
        lambda kind: _fair(kind, prompt=4),
    ),
    Mistake(
        "Your prompts have ended before the next one comes. One of the wrong schedulers is unfair "
        "beside a prompt that goes on for several steps.",
        lambda kind: _fair(kind, prompt=8, every=4),
    ),
    Mistake(
        "That allows three steps from one output to the next. Mixed promises an output in every "
        "step while fewer requests decode than a step has budget.",
        lambda kind: _fair(kind, most=3),
    ),
    Mistake(
        "Your decoding requests are alone. Most that is unfair shows where prompts arrive beside "
        "them.",
        lambda kind: _fair(kind, every=0),
    ),
)


# ---- a check that nothing stands still


def _goes_on(kind: Kind, loads: tuple[tuple[tuple[int, int], ...], ...]) -> bool:
    """Pools of 8 blocks of 4, a budget of 8; each load: (prompt, outputs) of each request."""
    for load in loads:
        serving = kind(8, 4, max_num_batched_tokens=8, prefill_chunk=4)
        for i, (prompt, outputs) in enumerate(load):
            serving.ask(f"r{i}", prompt, outputs)
        serving.run()
        if serving.waiting or serving.running:
            return False
    return True


TWO_PROMPTS = ((24, 2), (20, 2))
TWO_THAT_GROW = ((4, 28), (4, 28))
NEARLY_ALL = ((30, 2),)
SMALL = ((4, 2), (4, 2))


def _stands_still(says: str, *loads: tuple[tuple[int, int], ...]) -> Mistake:
    return Mistake(says, lambda kind: _goes_on(kind, loads))


GOES_ON = (
    *verdict_mistakes(lambda kind: _goes_on(kind, (TWO_PROMPTS, TWO_THAT_GROW, NEARLY_ALL))),
    _stands_still(
        "Two prompts that do not fit together are one way. One of the wrong rules looks at all "
        "prompts and forgets that outputs grow; another never admits a prompt of nearly the "
        "whole pool.",
        TWO_PROMPTS,
    ),
    _stands_still(
        "Two whose outputs grow are one way. One of the wrong rules never admits a prompt of "
        "nearly the whole pool, even when nobody runs.",
        TWO_THAT_GROW,
    ),
    _stands_still(
        "One of the wrong rules adds the prompts up and forgets that outputs grow. Let two small "
        "prompts give so many outputs that both cannot end in the pool together.",
        TWO_PROMPTS,
        NEARLY_ALL,
    ),
    _stands_still(
        "A prompt of nearly the whole pool is one way. Let two requests that cannot end together "
        "begin together as well.",
        NEARLY_ALL,
    ),
)
