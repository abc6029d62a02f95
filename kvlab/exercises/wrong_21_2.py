"""Section 21.2's known mistakes in functions: each written out, with what to say to it."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from kvlab.exercises.exercise import Mistake

Events = Sequence[Sequence[float]]


def _texts(events: Events) -> list[Sequence[float]]:
    return [event for event in events if event[1]]


def _over(divisor: Callable[[Sequence[Sequence[float]]], int], keep: Callable = _texts) -> Callable:
    """Last time less the first, over something else than the number of tokens less 1."""

    def wrong(events: Events) -> float | None:
        kept = keep(events)
        if len(kept) < 2:
            return None
        return (kept[-1][0] - kept[0][0]) / divisor(kept)

    return wrong


def _num_tokens(events: Events) -> int:
    return sum(tokens for _, tokens in events)


def _zero_if_undefined(events: Events) -> float:
    return _over(lambda kept: _num_tokens(kept) - 1)(events) or 0


def _with_the_first_wait(events: Events) -> float | None:
    kept = _texts(events)
    return kept[-1][0] / _num_tokens(kept) if len(kept) > 1 else None


def _zero_for_one_event(events: Events) -> float | None:
    kept = _texts(events)
    if _num_tokens(kept) < 2:
        return None
    return (kept[-1][0] - kept[0][0]) / (_num_tokens(kept) - 1)


def _one_event_one_token(events: Events) -> float | None:
    if len(events) < 2:
        return None
    return (events[-1][0] - events[0][0]) / (len(events) - 1)


def _unguarded(events: Events) -> float:
    kept = _texts(events)
    return (kept[-1][0] - kept[0][0]) / (_num_tokens(kept) - 1)


def _only_too_few(events: Events) -> float | None:
    """Looks at the tokens first, and at all events afterwards."""
    if _num_tokens(events) < 2:
        return None
    return (events[-1][0] - events[0][0]) / (_num_tokens(events) - 1)


TPOT = (
    Mistake(
        "That is the mean gap between events. An event may carry several tokens: divide by the "
        "tokens less one.",
        _over(lambda kept: len(kept) - 1),
    ),
    Mistake("n tokens have n - 1 intervals.", _over(_num_tokens)),
    Mistake(
        "The value is right where there is one. Where no interval was seen it is undefined: None, "
        "not 0.",
        _zero_if_undefined,
    ),
    Mistake(
        "Seven tokens in one event: no time between two of them was seen, and 0 would be a guess. "
        "Return None there as well.",
        _zero_for_one_event,
    ),
    Mistake(
        "That begins at 0 and holds the wait for the first token. Begin at the first token.",
        _with_the_first_wait,
    ),
    Mistake(
        "An event without a token is no output, and starts and ends no interval. Leave it out, "
        "and divide by tokens.",
        _one_event_one_token,
    ),
    Mistake(
        "An event without a token is no output: leave it out before you look for the first and "
        "the last.",
        _over(lambda kept: max(_num_tokens(kept) - 1, 1), list),
    ),
    Mistake(
        "An event without a token is no output: leave it out before you look for the first and "
        "the last; and one event alone has no interval.",
        _only_too_few,
    ),
    Mistake(
        "The formula has N - 1, with all tokens in N: also those that came with the first.",
        _over(lambda kept: max(_num_tokens(kept[1:]), 1)),
    ),
    Mistake(
        "With fewer than two tokens, or without an event, this divides by 0 or looks for an event "
        "that is not there. Return None there.",
        _unguarded,
    ),
)


# ---- good_requests


def _count(
    ttft_of: Callable = lambda start, times: times[0] - start,
    worst: Callable = max,
    *,
    fails: bool = True,
    strict: bool = False,
    needs_gap: bool = False,
    text: bool = True,
    either: bool = False,
    whole_wait: bool = False,
) -> Callable[..., int]:
    """good_requests with a fault: each option that is not its default leaves something out."""

    def is_good(start: float, times: Sequence[float], limits: tuple[float, float]) -> bool:
        if not times:
            return not text
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if whole_wait:
            gaps = [times[0] - start, *gaps]
        if needs_gap and not gaps:
            return False
        found = (ttft_of(start, times), worst(gaps) if gaps else 0)
        kept = [f < x if strict else f <= x for f, x in zip(found, limits, strict=True)]
        return any(kept) if either else all(kept)

    def wrong(requests: Sequence[Sequence], ttft: float, itl: float) -> int:
        return sum(
            is_good(start, times, (ttft, itl)) for start, times, e in requests if not (e and fails)
        )

    return wrong


def _mean(gaps: Sequence[float]) -> float:
    return sum(gaps) / len(gaps)


def _percentile_90(gaps: Sequence[float]) -> float:
    return sorted(gaps)[int(0.9 * len(gaps))]


def _share(requests: Sequence[Sequence], ttft: float, itl: float) -> float:
    return _count()(requests, ttft, itl) / len(requests) if requests else 0


def _in_all(requests: Sequence[Sequence], ttft: float, itl: float) -> int:
    return sum(
        bool(times) and not error and times[-1] - start <= ttft + itl * (len(times) - 1)
        for start, times, error in requests
    )


def _which(requests: Sequence[Sequence], ttft: float, itl: float) -> list[int]:
    return [i for i, request in enumerate(requests) if _count()([request], ttft, itl)]


def _bad(requests: Sequence[Sequence], ttft: float, itl: float) -> int:
    return len(requests) - _count()(requests, ttft, itl)


GOOD_REQUESTS = (
    Mistake(
        "That judges the mean of a request's gaps. One long gap among short ones is felt, and "
        "hidden by it: judge the longest.",
        _count(worst=_mean),
    ),
    Mistake(
        "That judges a percentile of a request's gaps. A long answer has many, and its one long "
        "gap lies above it: judge the longest.",
        _count(worst=_percentile_90),
    ),
    Mistake(
        "That looks at the first gap alone. Any of them may be too long.",
        _count(worst=lambda gaps: gaps[0]),
    ),
    Mistake(
        "That judges the whole time to the last output by the sum of what is allowed. A wait that "
        "is too long is not made good by the others.",
        _in_all,
    ),
    Mistake(
        "A request that failed kept nothing of what was promised, however quick its first tokens "
        "were.",
        _count(fails=False),
    ),
    Mistake(
        "That counts a request that never got any text. It was not served in time; it was not "
        "served.",
        _count(text=False),
    ),
    Mistake(
        "That counts requests without any text, failed ones among them.",
        _count(text=False, fails=False),
    ),
    Mistake(
        "TTFT begins at the request's own start, not at 0.", _count(lambda start, times: times[0])
    ),
    Mistake("A target that is met exactly is met.", _count(strict=True)),
    Mistake(
        "A request with one event has no gap that could be too long: its first token decides.",
        _count(needs_gap=True),
    ),
    Mistake("A good request keeps both targets.", _count(either=True)),
    Mistake(
        "The wait for the first token is no gap between two outputs; it has a target of its own.",
        _count(whole_wait=True),
    ),
    Mistake("That looks at the shortest gap.", _count(worst=min)),
    Mistake(
        "That is the whole time from the first output to the last. A target for gaps looks at "
        "each.",
        _count(worst=sum),
    ),
    Mistake("Return how many, not the share of them.", _share),
    Mistake("Return how many, not which.", _which),
    Mistake("Those are the others. Count the good ones.", _bad),
)
