"""Which events of a trace are stops of their own, and which are told by a later one.

The engine takes and registers blocks while it schedules, and writes them after; a request that
ends gives its blocks back one event before. A reader sees one change each.
"""

from collections.abc import Sequence

from kvlab.core.trace import Event

ENDS = ("computed", "freed", "preempted", "finished", "step_failed")  # a request's step is over
GIVEN_UP = ("finished", "preempted", "step_failed")  # these say why blocks were freed


def told_by(events: Sequence[Event]) -> list[int | None]:
    """For each event the index of the one whose stop tells it: its own, a later one, or None.

    block_taken and registered: told where the request writes (computed); with an eviction, at the
    last block taken in that go, or at the admission if that found a prefix. shared: at the
    admission. freed: with the end, the preemption or the failed step, and so unregistered. Steps
    that fail for several requests at once are one stop. Any other kind is a stop of its own.
    """
    hosts: list[int | None] = [_host(events, i) for i in range(len(events))]
    for i, event in enumerate(events):
        if event.kind == "evicted" and _taken_after(events, i):
            last = _last_of_go(events, i)
            for k in range(i, last + 1):
                hosts[k] = _admission_after(events, hosts, last)
    return hosts


def _host(events: Sequence[Event], i: int) -> int | None:
    match events[i].kind:
        case "scheduled":
            return None
        case "admitted":
            return i if _shares_before(events, i) else None
        case "shared":
            end = _next_of(events, i, ("admitted", *ENDS))
            return end if end is not None and events[end].kind == "admitted" else i
        case "block_taken" | "registered":
            end = _next_of(events, i, ("scheduled", *ENDS))
            if end is not None and events[end].kind == "scheduled":
                end = _next_of(events, end, ENDS)
            elif end is not None and events[end].kind != "computed":
                end = None  # an allocator alone, without steps
            return _last_of_kind(events, i) if end is None else _host(events, end)
        case "freed" | "unregistered":
            end = _next_of(events, i, None)
            if end is None or events[end].kind not in (*GIVEN_UP, "freed"):
                return i
            return _host(events, end)
        case "step_failed":
            return _last_of_run(events, i)
    return i


def _next_of(events: Sequence[Event], i: int, kinds: Sequence[str] | None) -> int | None:
    """The next event of the same request, of one of these kinds (None: of any)."""
    for k in range(i + 1, len(events)):
        same = events[k].request_id == events[i].request_id
        if same and (kinds is None or events[k].kind in kinds):
            return k
    return None


def _shares_before(events: Sequence[Event], i: int) -> bool:
    """Whether this admission found blocks: a `shared` of the request since its last step."""
    for k in range(i - 1, -1, -1):
        if events[k].request_id == events[i].request_id:
            if events[k].kind == "shared":
                return True
            if events[k].kind in ENDS:
                return False
    return False


def _taken_after(events: Sequence[Event], i: int) -> bool:
    """Whether the next event is the taking of the block that lost its identity."""
    if i + 1 == len(events) or "block_id" not in events[i].data:
        return False
    lost, after = events[i].data["block_id"], events[i + 1].data
    return lost in (after.get("block_id"), after.get("dst"))


def _admission_after(events: Sequence[Event], hosts: Sequence[int | None], last: int) -> int:
    """The admission that tells of a prefix found before these blocks were taken, else `last`."""
    for k in range(last - 1, -1, -1):
        same = events[k].request_id == events[last].request_id
        if same and events[k].kind == "shared":
            return max(hosts[k], last)
        if same and events[k].kind in ENDS:
            break
    return last


def _last_of_go(events: Sequence[Event], i: int) -> int:
    """One request takes several blocks in a row, evicting some: the last of these events.

    A copy is a stop of its own, so the go ends there.
    """
    last, request = i + 1, events[i + 1].request_id
    if events[last].kind == "copied":
        return last
    for k in range(last + 1, len(events)):
        if events[k].kind == "block_taken" and events[k].request_id == request:
            last = k
        elif events[k].kind != "evicted":
            break
    return last


def _last_of_run(events: Sequence[Event], i: int) -> int:
    """The last of the consecutive events of this kind."""
    while i + 1 < len(events) and events[i + 1].kind == events[i].kind:
        i += 1
    return i


def _last_of_kind(events: Sequence[Event], i: int) -> int:
    """As `_last_of_run`, of one request."""
    while i + 1 < len(events) and (events[i + 1].kind, events[i + 1].request_id) == (
        events[i].kind,
        events[i].request_id,
    ):
        i += 1
    return i
