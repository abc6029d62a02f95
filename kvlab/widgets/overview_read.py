"""What a trace says about each request of a run, and about the cache at its busiest moment.

Nothing is assumed about the run: requests may come together or one by one, continue another one,
lose their blocks and be computed again, be aborted, or be there when the record begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvlab.core.trace import Event, State, Trace, apply_patch


@dataclass(frozen=True)
class Pass:
    """Positions start to end - 1 of one request, processed in one step.

    nbytes: what the request's tensors held afterwards; selected: token id that its last logits
    chose, None where more of the prompt was still to come. again: how many of the positions the
    request had held before, and lost.
    """

    step: int
    start: int
    end: int
    nbytes: int
    selected: int | None
    again: int = 0


@dataclass(frozen=True)
class Served:
    """One request of the run. letter: A, B, ... in the order in which the record names them.

    came: "added" (it arrived), "there" (when the record began) or "named" (a continuation that
    leads in place of one that ended). parent: letter of the request that it continues.
    arrived: the step after which it could run; until: the last step in which it could, None where
    it has not ended. preempted, failed: steps in which it lost its blocks to another request, or
    because the step failed.
    """

    request_id: str
    letter: str
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    came: str
    parent: str | None
    arrived: int
    until: int | None
    passes: tuple[Pass, ...]
    preempted: tuple[int, ...]
    failed: tuple[int, ...]

    def prompt_passes(self) -> tuple[Pass, ...]:
        return tuple(p for p in self.passes if p.start < self.num_prompt_tokens)

    def decode_passes(self) -> tuple[Pass, ...]:
        return tuple(p for p in self.passes if p.start >= self.num_prompt_tokens)

    def pass_in(self, step: int) -> Pass | None:
        return next((p for p in self.passes if p.step == step), None)

    def waits_in(self, step: int) -> bool:
        """Whether it could have run in a step and did not."""
        there = step > self.arrived and (self.until is None or step <= self.until)
        return there and self.pass_in(step) is None and step not in self.failed

    def goes_through(self) -> bool:
        """Position 0 to a decode pass, each position once: the prompt, then output by output."""
        ends = [0, *(p.end for p in self.passes)]
        once = all(p.start == end for p, end in zip(self.passes, ends, strict=False))
        prompt = all(p.end <= self.num_prompt_tokens for p in self.prompt_passes())
        single = all(p.end - p.start == 1 for p in self.decode_passes())
        afresh = not any(p.again for p in self.passes)
        return once and prompt and single and afresh and bool(self.decode_passes())


@dataclass(frozen=True)
class Moment:
    """The cache after one pass. owners: letters of the requests that hold a block, by its id.

    filled: slots in use of these blocks, and of free ones that the prefix cache keeps. tables:
    block ids of each letter in logical order; free: the queue, next to be taken first.
    """

    step: int
    owners: Mapping[int, tuple[str, ...]]
    filled: Mapping[int, int]
    tables: Mapping[str, tuple[int, ...]]
    free: tuple[int, ...]


@dataclass
class _Notes:
    """What has been read about one request so far."""

    came: str
    arrived: int
    parent: str | None = None
    until: int | None = None
    held: int = 0  # positions that it held at some time
    passes: list[Pass] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def letter_of(index: int) -> str:
    """A to Z, then A1, B1, ..."""
    turn, place = divmod(index, 26)
    return chr(ord("A") + place) + (str(turn) if turn else "")


def steps_of(trace: Trace) -> range:
    """From the first step that scheduled somebody to the last one."""
    ran = [int(e.clock) for e in trace.events if e.kind == "scheduled"]
    return range(min(ran), max(ran) + 1) if ran else range(0)


def requests_of(trace: Trace) -> tuple[Served, ...]:
    """All requests of the trace. Raises ValueError for one without measured bytes, or where an id
    is used again for another request."""
    start = next(iter(steps_of(trace)), 1) - 1
    notes = {name: _Notes("there", start) for name in trace.initial["requests"]}
    state = trace.initial
    _note_held(notes, state)
    for event in trace.events:
        state = apply_patch(state, event.patch)
        if event.request_id is not None:
            _note(notes, event)
        _note_held(notes, state)
    last = state["requests"]
    letters = {name: letter_of(i) for i, name in enumerate(last)}
    return tuple(_served(name, request, notes[name], letters) for name, request in last.items())


def _note(notes: dict[str, _Notes], event: Event) -> None:
    step, name = int(event.clock), event.request_id
    if name not in notes:
        came = "added" if event.kind in ("added", "forked") else "named"
        outside = event.kind in ("added", "forked", "finished")  # the step has run already
        notes[name] = _Notes(came, step if outside else step - 1)
    mine = notes[name]
    if mine.until is not None:
        raise ValueError(
            f"the trace uses the id {name!r} for two requests, one after the other; "
            "record them with ids of their own"
        )
    if event.kind == "forked":
        mine.arrived, mine.parent = step, event.data["parent"]
    elif event.kind == "computed":
        mine.passes.append(_pass(event, mine.held))
    elif event.kind == "selected" and mine.passes and mine.passes[-1].step == step:
        mine.passes[-1] = replace(mine.passes[-1], selected=event.data["token_id"])
    elif event.kind == "preempted":
        mine.preempted.append(step)
    elif event.kind == "step_failed":
        mine.failed.append(step)
    elif event.kind == "finished":  # for want of blocks: before the step could run it
        mine.until = step - (event.data["reason"] == "capacity")


def _pass(event: Event, held: int) -> Pass:
    if "nbytes" not in event.data:
        raise ValueError(
            "the trace does not say how many bytes a pass left in the tensors; record it with "
            "LLM.start_trace()"
        )
    start, end = event.data["start"], event.data["end"]
    again = max(min(held, end) - start, 0)
    return Pass(int(event.clock), start, end, event.data["nbytes"], None, again)


def _note_held(notes: dict[str, _Notes], state: State) -> None:
    """Positions in the cache, now or at some time: an output is selected once all before it are."""
    for name, request in state["requests"].items():
        known, prompt = len(request["token_ids"]), request["num_prompt_tokens"]
        before = known - 1 if known > prompt else 0
        notes[name].held = max(notes[name].held, request["num_computed_tokens"], before)


def _served(name: str, request: Mapping, notes: _Notes, letters: Mapping[str, str]) -> Served:
    return Served(
        name,
        letters[name],
        request["num_prompt_tokens"],
        tuple(request["token_ids"]),
        notes.came,
        letters.get(notes.parent),
        notes.arrived,
        notes.until,
        tuple(notes.passes),
        tuple(notes.preempted),
        tuple(notes.failed),
    )


def busiest_moment(trace: Trace, letters: Mapping[str, str]) -> Moment:
    """After the last pass at which most requests, and of these moments most blocks, are held."""
    state, best, most = trace.initial, None, (0, 0)
    for event in trace.events:
        state = apply_patch(state, event.patch)
        if event.kind != "computed":
            continue
        tables = [r["block_table"] for r in state["requests"].values() if r["block_table"]]
        size = (len(tables), len({block for table in tables for block in table} - {None}))
        if size >= most:
            best, most = (event, state), size
    if best is None:
        raise ValueError("no request of the trace ever held a block; record a run that computes")
    return _moment(*best, letters)


def _moment(event: Event, state: State, letters: Mapping[str, str]) -> Moment:
    tables = {
        letters[name]: tuple(b for b in request["block_table"] if b is not None)
        for name, request in state["requests"].items()
        if request["block_table"]
    }
    owners: dict[int, tuple[str, ...]] = {}
    for letter, table in tables.items():
        for block in table:
            owners[block] = (*owners.get(block, ()), letter)
    filled = {int(block): found["filled"] for block, found in state["blocks"].items()}
    return Moment(int(event.clock), owners, filled, tables, tuple(state["free"]))
