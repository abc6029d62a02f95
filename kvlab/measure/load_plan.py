"""What a load run is asked to send, and when: checked as a whole before anything leaves."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from kvlab.core.arrivals import Arrivals, AtOnce, Poisson
from kvlab.core.checked import whole
from kvlab.core.workload import Workload, stream
from kvlab.measure.load_requests import LoadRequest, Prompt, form_of, of_workload
from kvlab.measure.load_result import OWN_TIMES

LONGEST_WAIT = 30 * 24 * 3600  # seconds, until the last request leaves


def as_requests(
    requests: Workload | Sequence[Prompt | LoadRequest], *, max_tokens: int, api: str, words: bool
) -> list[LoadRequest]:
    """What is to be sent, each with an id of its own. Raises ValueError for what cannot be."""
    whole("max_tokens", max_tokens, 1)
    if isinstance(requests, Workload):
        found = of_workload(requests, words=words or api == "chat")
    elif isinstance(requests, str) or not isinstance(requests, list | tuple):
        raise ValueError(f"requests is {requests!r:.60}; give a Workload, or a list of prompts")
    else:
        found = [
            r if isinstance(r, LoadRequest) else LoadRequest(f"r{n}", r, max_tokens)
            for n, r in enumerate(requests, 1)
        ]
    if not found:
        raise ValueError("there is no request; give at least one prompt")
    seen: set[str] = set()
    for request in found:
        if request.request_id in seen:
            raise ValueError(f"request id {request.request_id!r} stands there twice; rename one")
        seen.add(request.request_id)
        if form_of(request.prompt) == "messages" and api != "chat":
            raise ValueError(
                f"{request.request_id}: a list of messages is no prompt for completions; "
                'give api="chat", or a text'
            )
    return found


def intended_times(
    requests: Sequence[LoadRequest],
    arrivals: Arrivals | float | None,
    seed: int,
    stretch: float,
) -> tuple[list[float] | None, dict[str, object] | str]:
    """Intended starts in seconds (None: a closed loop), and where they come from, as JSON."""
    own = [request.time for request in requests]
    if arrivals is None:
        if all(time is None for time in own):
            return None, "closed loop"
        if None in own:
            name = requests[own.index(None)].request_id
            raise ValueError(f"{name} has no time and others have one; give all of them, or none")
        if any(later < earlier for earlier, later in itertools.pairwise(own)):
            raise ValueError("the requests' times fall; sort the requests by time")
        return _within_reach([time * stretch for time in own], OWN_TIMES), OWN_TIMES
    if isinstance(arrivals, int | float) and not isinstance(arrivals, bool):
        arrivals = AtOnce() if arrivals == math.inf else Poisson(arrivals)
    if not callable(getattr(arrivals, "times", None)) or isinstance(arrivals, type):
        raise ValueError(
            f"arrivals is {arrivals!r:.60}; give requests a second, or Regular, Poisson, Gamma, "
            "OnOff, AtOnce"
        )
    drawn = itertools.islice(arrivals.times(stream(seed, "times")), len(requests))
    process = {"kind": type(arrivals).__name__, **asdict(arrivals)}
    return _within_reach([time * stretch for time in drawn], process), process


def _within_reach(times: list[float], process: object) -> list[float]:
    """Raises ValueError for a time that nobody waits for, infinite or no number at all."""
    for number, time in enumerate(times, 1):
        if not time <= LONGEST_WAIT:
            raise ValueError(
                f"request {number} of {len(times)} would leave after {time:g} s ({process}), and "
                f"{LONGEST_WAIT} s is the longest wait; give a higher rate, fewer requests or a "
                "smaller stretch"
            )
    return times


def checked_body(extra: Mapping[str, object] | None) -> dict[str, object]:
    """Further fields of each request. Raises ValueError for those that the client needs itself."""
    found = {} if extra is None else extra
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"extra_body is {extra!r:.60}; give a mapping of field names to values")
    for name in ("stream", "n"):
        if name in found:
            raise ValueError(f"extra_body sets {name!r}; the client needs one streamed answer")
    try:
        json.dumps(dict(found), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"extra_body is {extra!r:.60}, no JSON ({error}); give JSON values"
        ) from None
    return dict(found)


def checked_texts(**values: str | None) -> None:
    """Raises ValueError for one that is no text, which no report could hold."""
    for name, value in values.items():
        if not isinstance(value, str | None):
            raise ValueError(f"{name} is {value!r:.60}; give a text")
