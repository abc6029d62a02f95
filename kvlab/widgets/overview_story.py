"""The chapter's four parts, read off one run: prefill, decode, scheduling, cache blocks.

Every number comes from the trace: passes and their bytes, who was scheduled in which step, and who
held which block at the fullest moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.trace import Event, State, Trace, apply_patch

NEEDED = ("block_size", "num_layers", "bytes_per_position")


@dataclass(frozen=True)
class Pass:
    """Positions start to end - 1 of one request, processed in one step.

    nbytes: what the request's tensors held afterwards; selected: token id that its last logits
    chose, None where more of the prompt was still to come.
    """

    step: int
    start: int
    end: int
    nbytes: int
    selected: int | None


@dataclass(frozen=True)
class Served:
    """One request of the run. letter: A, B, ... in the order of arrival.

    arrived: the step after which it came; first, last: the steps that first and last ran it.
    """

    request_id: str
    letter: str
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    arrived: int
    passes: tuple[Pass, ...]

    @property
    def first(self) -> int:
        return self.passes[0].step

    @property
    def last(self) -> int:
        return self.passes[-1].step

    def prompt_passes(self) -> tuple[Pass, ...]:
        return tuple(p for p in self.passes if p.start < self.num_prompt_tokens)

    def decode_passes(self) -> tuple[Pass, ...]:
        return tuple(p for p in self.passes if p.start >= self.num_prompt_tokens)


@dataclass(frozen=True)
class Moment:
    """The cache after one event. owners: letters by block id; filled: slots in use, by block id.

    tables: block ids of each letter in logical order; free: the queue, next to be taken first.
    """

    step: int
    owners: Mapping[int, str]
    filled: Mapping[int, int]
    tables: Mapping[str, tuple[int, ...]]
    free: tuple[int, ...]


@dataclass(frozen=True)
class Story:
    """Requests in the order of arrival, the one that is shown alone, and the fullest moment."""

    meta: Mapping[str, object]
    requests: tuple[Served, ...]
    shown: Served
    fullest: Moment

    def text(self, token_id: int) -> str:
        """The token in quotes, or its number where the trace has no word for it."""
        text = self.meta.get("vocab", {}).get(str(token_id))
        return f"token {token_id}" if text is None else f"'{text.strip() or text}'"


def overview_story(trace: Trace) -> Story:
    """Raises ValueError for a trace that lacks one of the four parts, saying which and why."""
    if missing := [key for key in NEEDED if key not in trace.meta]:
        raise ValueError(
            f"the trace does not say {', '.join(missing)}; record it with LLM.start_trace()"
        )
    if trace.meta.get("clock") != "step":
        raise ValueError(
            f"the trace runs on the {trace.meta.get('clock')} clock; the overview counts steps, "
            "record it without real_clock"
        )
    requests = _requests(trace)
    whole = [r for r in requests if r.decode_passes() and _in_one_go(r)]
    if not whole:
        raise ValueError(
            "no request of the trace goes from its prompt's first position to a decode pass in one "
            "go; record one with max_tokens of at least 2, without reuse and preemption"
        )
    if len(requests) < 2:
        raise ValueError(
            "the trace has one request; scheduling needs at least two that run together"
        )
    # the one whose prompt took the fewest passes, the earliest of these
    shown = min(whole, key=lambda r: len(r.prompt_passes()))
    return Story(trace.meta, requests, shown, _fullest(trace, requests))


def _in_one_go(request: Served) -> bool:
    """Every position processed once, from position 0 on."""
    ends = [0, *(p.end for p in request.passes)]
    return all(p.start == end for p, end in zip(request.passes, ends, strict=False))


def letter_of(index: int) -> str:
    """A to Z, then A1, B1, ..."""
    turn, place = divmod(index, 26)
    return chr(ord("A") + place) + (str(turn) if turn else "")


def _requests(trace: Trace) -> tuple[Served, ...]:
    last = trace.last_state()["requests"]
    arrived = {r: 0 for r in trace.initial["requests"]}
    passes: dict[str, list[Pass]] = {r: [] for r in last}
    for event in trace.events:
        arrived.setdefault(event.request_id, int(event.clock))
        if event.kind == "computed":
            passes[event.request_id].append(_pass(event))
        elif event.kind == "selected" and passes[event.request_id]:
            latest = passes[event.request_id][-1]
            chosen = {**vars(latest), "selected": event.data["token_id"]}
            passes[event.request_id][-1] = Pass(**chosen)
    return tuple(
        Served(
            request_id,
            letter_of(i),
            state["num_prompt_tokens"],
            tuple(state["token_ids"]),
            arrived[request_id],
            tuple(passes[request_id]),
        )
        for i, (request_id, state) in enumerate(last.items())
    )


def _pass(event: Event) -> Pass:
    if "nbytes" not in event.data:
        raise ValueError(
            "the trace does not say how many bytes a pass left in the tensors; record it with "
            "LLM.start_trace()"
        )
    data = event.data
    return Pass(int(event.clock), data["start"], data["end"], data["nbytes"], None)


def _fullest(trace: Trace, requests: tuple[Served, ...]) -> Moment:
    """After the last pass at which most requests, and of these moments most blocks, are held."""
    letters = {r.request_id: r.letter for r in requests}
    state, best, most = trace.initial, None, (0, 0)
    for event in trace.events:
        state = apply_patch(state, event.patch)
        if event.kind != "computed":
            continue
        tables = [r["block_table"] for r in state["requests"].values() if r["block_table"]]
        size = (len(tables), len({block for table in tables for block in table}))
        if size >= most:
            best, most = _moment(event, state, letters), size
    if best is None:
        raise ValueError("no request of the trace ever held a block; record a run that computes")
    return best


def _moment(event: Event, state: State, letters: Mapping[str, str]) -> Moment:
    tables = {
        letters[name]: tuple(request["block_table"])
        for name, request in state["requests"].items()
        if request["block_table"]
    }
    owners: dict[int, str] = {}
    for letter, table in tables.items():
        for block in table:
            owners[block] = f"{owners[block]}, {letter}" if block in owners else letter
    filled = {block: state["blocks"][str(block)]["filled"] for block in owners}
    return Moment(int(event.clock), owners, filled, tables, tuple(state["free"]))
