"""A trace: each event of a run with the state after it, small and in plain JSON.

The state is a plain dict (see `Recorder`). Only the first one is stored whole; each event carries
a patch. `patch_of` and `apply_patch` are inverse: dicts are merged key by key (a state gains keys,
it never loses one), and a changed list is a splice `{"at": start, "cut": count, "put": [...]}`.

Section 21.6.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from kvlab.core.whole_file import write_whole

FORMAT, VERSION = "kvlab.trace", 1
State = dict


@dataclass(frozen=True)
class Event:
    """Something a reader can stop at.

    kind: added, admitted, scheduled, shared, block_taken, evicted, copied, registered, forked,
    computed, out_of_window (blocks given back behind a window), logits_kept, logits_reused,
    selected, unregistered, freed, preempted, step_failed, finished, reset; suspended, resumed.
    With a CPU tier: offloaded (blocks leave for it; without a request: an evicted prefix),
    loading, loaded, transfer_failed.
    """

    kind: str
    request_id: str | None
    clock: float
    data: Mapping[str, object] = field(default_factory=dict)
    patch: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Frame:
    """One stop: the event and the whole state after it. Index 0 is the start, without an event."""

    index: int
    event: Event | None
    state: State


@dataclass(frozen=True)
class Trace:
    """What happened, in order. `meta` holds what does not change (model, block_size, clock ...)."""

    meta: Mapping[str, object]
    initial: State
    events: tuple[Event, ...]

    def __len__(self) -> int:
        return len(self.events) + 1

    def __repr__(self) -> str:
        return f"Trace({len(self.events)} events, {self.meta.get('clock', 'step')} clock)"

    def frames(self) -> Iterator[Frame]:
        """Start state first, then one frame an event. Each state is a copy of its own."""
        state = json.loads(json.dumps(self.initial))
        yield Frame(0, None, json.loads(json.dumps(state)))
        for i, event in enumerate(self.events, 1):
            state = apply_patch(state, event.patch)
            yield Frame(i, event, json.loads(json.dumps(state)))

    def last_state(self) -> State:
        """The state after the last event."""
        state = self.initial
        for event in self.events:
            state = apply_patch(state, event.patch)
        return state

    def to_dict(self) -> dict:
        events = [
            {
                "kind": e.kind,
                "request": e.request_id,
                "clock": e.clock,
                "data": dict(e.data),
                "patch": dict(e.patch),
            }
            for e in self.events
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "meta": dict(self.meta),
            "initial": self.initial,
            "events": events,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_dict(cls, document: Mapping) -> "Trace":
        """Raises ValueError for another format or version."""
        if not isinstance(document, Mapping):
            raise ValueError(f"not a trace: {type(document).__name__} instead of an object")
        if document.get("format") != FORMAT or document.get("version") != VERSION:
            found = f"{document.get('format')!r} version {document.get('version')!r}"
            raise ValueError(
                f"not a trace that this kvlab reads: {found}; wanted {FORMAT!r} version {VERSION}"
            )
        try:
            events = tuple(_event(e) for e in document["events"])
            return cls(document["meta"], document["initial"], events)
        except (KeyError, TypeError) as error:
            raise ValueError(f"a damaged trace: {type(error).__name__} {error}") from None

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        return cls.from_dict(json.loads(text))

    def save(self, path: str | Path) -> None:
        """Write the trace whole, or leave what is there. Raises OSError."""
        write_whole(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _event(e: Mapping) -> Event:
    data, patch = MappingProxyType(e["data"]), MappingProxyType(e["patch"])
    return Event(e["kind"], e["request"], e["clock"], data, patch)


def patch_of(old: Mapping, new: Mapping) -> dict:
    """The smallest patch that leads from `old` to `new` (dicts of dicts, lists and scalars)."""
    if lost := old.keys() - new.keys():
        raise ValueError(f"a state never loses a key, and {sorted(lost)} are gone")
    patch: dict = {}
    for key, value in new.items():
        if key in old and old[key] == value:
            continue
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patch[key] = patch_of(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            patch[key] = _splice(before, value)
        else:
            patch[key] = value
    return patch


def _splice(old: list, new: list) -> dict:
    """Where two lists differ: common start and common end are left out."""
    shorter, start, end = min(len(old), len(new)), 0, 0
    while start < shorter and old[start] == new[start]:
        start += 1
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return {"at": start, "cut": len(old) - end - start, "put": new[start : len(new) - end]}


def apply_patch(state: Mapping, patch: Mapping) -> dict:
    """A new state; the given one is left as it is."""
    result = dict(state)
    for key, change in patch.items():
        before = state.get(key)
        if isinstance(before, list) and isinstance(change, Mapping):
            at = change["at"]
            result[key] = before[:at] + list(change["put"]) + before[at + change["cut"] :]
        elif isinstance(before, Mapping) and isinstance(change, Mapping):
            result[key] = apply_patch(before, change)
        else:
            result[key] = change
    return result
