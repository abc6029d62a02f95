"""What the allocator playground says: why an action is impossible, what one has done, the audit."""

from collections.abc import Iterable, Mapping, Sequence

from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler
from kvlab.core.trace import Event
from kvlab.widgets.blocks_words import and_list, blocks_named, is_are
from kvlab.widgets.growth_words import count
from kvlab.widgets.playground_check import TOLERANCE, Audit
from kvlab.widgets.playground_script import Action

MOST_LISTED = 6  # requests that a message names
MOST_COUNTS = 12  # blocks whose references the audit lists

# ---- why not


def unknown(requests: Mapping[str, Request], name: str) -> str:
    known = (
        f"there {is_are(list(requests))} {_named(requests)}" if requests else "there is none yet"
    )
    return f"there is no request {name!r}; admit it first, or name one that is there: {known}"


def ended(requests: Mapping[str, Request], name: str) -> str:
    alive = [n for n, r in requests.items() if not r.is_finished]
    others = f"running: {_named(alive)}" if alive else "none is running"
    return (
        f"request {name!r} has finished and holds no block; choose one that is running ({others}), "
        f"or write `share` to start a new one with its tokens"
    )


def name_taken(requests: Mapping[str, Request], name: str) -> str:
    state = "has finished" if requests[name].is_finished else "is running"
    return f"there is a request {name!r} already, which {state}; give the new one another name"


def too_few_tokens(source: Request, wanted: int) -> str:
    name, there = source.request_id, source.num_tokens
    which = "that one" if there == 1 else f"1 to {there} of them"
    return f"{name!r} has {count(there, 'token')}, not {wanted}; share {which}"


def no_room(scheduler: Scheduler, request: Request, needed: int) -> str:
    """A full pool: who holds what, and what a scheduler would do."""
    pool, table = scheduler.manager.pool, scheduler.manager.block_table
    holders = [(r.request_id, table(r.request_id)) for r in scheduler.running]
    told = "; ".join(f"{name} holds {and_list(ids)}" for name, ids in holders[:MOST_LISTED])
    more = f"; and {len(holders) - MOST_LISTED} more" if holders[MOST_LISTED:] else ""
    free = pool.num_free_blocks
    there = f"{free or 'none'} of the pool's {pool.num_blocks} {'is' if free < 2 else 'are'} free"
    return (
        f"{_need(scheduler, request, needed)}, and {there}: {told or 'nobody holds any'}{more}. "
        "A scheduler would preempt a running request here: it takes its blocks and computes it "
        "again later. Finish a request, undo, or give the pool more blocks"
    )


def _need(scheduler: Scheduler, request: Request, needed: int) -> str:
    manager, position = scheduler.manager, request.num_computed_tokens
    table = manager.block_table(request.request_id)
    if not table:
        verb = "needs" if request.num_tokens == 1 else "need"
        return f"{count(request.num_tokens, 'token')} {verb} {count(needed, 'free block')}"
    slot = position % manager.block_size
    if slot == 0:
        return f"position {position} begins a new block"
    return (
        f"position {position} goes into block {table[-1]}, which another request holds too: "
        "its copy needs a free block"
    )


def _named(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"{len(names) - MOST_LISTED} more"] if names[MOST_LISTED:] else []
    return and_list([*(repr(name) for name in names[:MOST_LISTED]), *more])


# ---- what it did


def note(scheduler: Scheduler, action: Action, events: Sequence[Event]) -> str:
    """One line for an action, from the events that it caused and the pool after it."""
    if action.kind == "fork":
        ids = scheduler.manager.block_table(action.name)
        return f"shares {blocks_named(ids)}; copies nothing"
    if action.kind == "finish":
        return _given_back(scheduler, events)
    say = [*_found(events), *_copied(events), *_taken(events), *_written(scheduler, action, events)]
    return "; ".join(say)


def _found(events: Sequence[Event]) -> list[str]:
    return [f"finds {blocks_named(e.data['block_ids'])}" for e in events if e.kind == "shared"]


def _copied(events: Sequence[Event]) -> list[str]:
    copies = [e.data for e in events if e.kind == "copied"]
    return [f"copies block {c['src']} to block {c['dst']}" for c in copies]


def _taken(events: Sequence[Event]) -> list[str]:
    taken = [e.data["block_id"] for e in events if e.kind == "block_taken"]
    lost = [e.data["block_id"] for e in events if e.kind == "evicted"]
    say = [f"takes {blocks_named(taken)}"] if taken else []
    return say + ([f"evicts what {blocks_named(lost)} kept"] if lost else [])


def _written(scheduler: Scheduler, action: Action, events: Sequence[Event]) -> list[str]:
    """Where the newest position stands, or how many were computed."""
    passes = [e.data for e in events if e.kind == "computed"]
    if not passes:
        return ["computes nothing (logits are kept)"]
    first, end = passes[0]["start"], passes[-1]["end"]
    size, table = scheduler.manager.block_size, scheduler.manager.block_table(action.name)
    if end - first == 1:
        return [f"position {first} goes to block {table[first // size]}, slot {first % size}"]
    return [f"computes positions {first} to {end - 1}"]


def _given_back(scheduler: Scheduler, events: Sequence[Event]) -> str:
    pool = scheduler.manager.pool
    gone = [i for e in events if e.kind == "freed" for i in e.data["block_ids"]]
    kept = [i for i in gone if pool.blocks[i].block_hash is not None]
    free = [i for i in gone if i not in kept]
    say = [f"frees {blocks_named(free)}"] if free else []
    say += [f"leaves {blocks_named(kept)} evictable"] if kept else []
    return "; ".join(say) or "frees no block: others hold them all"


# ---- the audit


def told(audit: Audit) -> list[list[str]]:
    """[name, finding, "ok" or "bad"] of the three rules."""
    sums = (
        f"{audit.in_use} in use + {audit.kept} evictable + {audit.free} free "
        f"{'=' if audit.balanced else '≠'} {count(audit.usable, 'usable block')}"
    )
    wrong = [
        f"block {b}: {n} counted, {count(held, 'table')}"
        for b, n, held in audit.references
        if n != held
    ]
    listed = ", ".join(f"{b}: {n}" for b, n, _ in sorted(audit.references)[:MOST_COUNTS])
    more = ", …" if audit.references[MOST_COUNTS:] else ""
    agree = f"ref_cnt {listed}{more} = tables that hold the block"
    references = "; ".join(wrong) or (agree if listed else "no block is held by a table")
    rules = [["blocks", sums, audit.balanced], ["references", references, audit.referenced]]
    rules.append(["tensors", _difference(audit), audit.recomputed])
    rows = [[name, text, "ok" if holds else "bad"] for name, text, holds in rules]
    return rows + [["broken", sentence, "bad"] for sentence in audit.broken]


def _difference(audit: Audit) -> str:
    if not audit.positions and audit.recomputed:
        return "no position is stored, none is compared"
    what = f"K/V of {count(audit.positions, 'position')} through the tables"
    if audit.recomputed:
        return f"{what} = recomputed (within {TOLERANCE:.0e})".replace("e-0", "e-")
    return f"{what} ≠ recomputed (apart by {audit.difference:.2g})"
