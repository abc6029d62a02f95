"""Sentences for references that are given back, and what becomes of the blocks."""

from kvlab.core.trace import Event, State
from kvlab.widgets.blocks_notes import Notes, Told
from kvlab.widgets.blocks_words import (
    blocks_named,
    identity_of,
    is_are,
    owners,
    references,
    refs_of,
    shortened,
)
from kvlab.widgets.growth_words import visible


def freed(notes: Notes, event: Event, now: State) -> Told:
    return _gives_up(notes, f"{notes.letters[event.request_id]}", event, now)


def finished(notes: Notes, event: Event, now: State) -> Told:
    why = visible(str(event.data.get("reason", "no reason told")))
    lead = f"{notes.letters[event.request_id]} ends ({why}) and"
    return _gives_up(notes, lead, event, now)


def preempted(notes: Notes, event: Event, now: State) -> Told:
    lead = f"{notes.letters[event.request_id]} is preempted, because too few blocks are free, and"
    told = _gives_up(notes, lead, event, now)
    return Told(f"{told.sentence} Its tokens are kept; it waits to be computed again.", told.blocks)


def failed(notes: Notes, event: Event, now: State) -> Told:
    """One stop for all requests of the step."""
    names = list(notes.given) or [event.request_id]
    blocks = [b for name in names for b in notes.given.pop(name, ())]
    notes.forgotten -= set(names)
    who = shortened([notes.letters[name] for name in names])
    gives, waits = ("gives", "waits") if len(names) == 1 else ("give", "wait")
    return Told(
        f"The step failed and is undone. {who} {gives} up {references(len(blocks))} and {waits} to "
        "be computed again; what this step was to write loses its identity.",
        tuple(dict.fromkeys(blocks)),
    )


def _gives_up(notes: Notes, lead: str, event: Event, now: State) -> Told:
    """References given back; which blocks are free, free but findable, or still held."""
    name = event.request_id
    table = notes.given.pop(name, [])
    forgets = name in notes.forgotten
    notes.forgotten.discard(name)
    if not table:
        return Told(f"{lead} gives up no block: it held none.")
    last_first = ", the last block's first" if len(table) > 1 else ""
    say = [f"{lead} gives up its {references(len(table))}{last_first}."]
    return Told(" ".join([*say, *_become(notes, table, now, forgets)]), tuple(table))


def out_of_window(notes: Notes, event: Event, now: State) -> Told:
    """Given back while the request runs: the table keeps its length."""
    blocks, who = event.data["block_ids"], notes.letters[event.request_id]
    forgets = event.request_id in notes.forgotten
    notes.forgotten.discard(event.request_id)
    notes.given.pop(event.request_id, None)
    lead = (
        f"Every layer has a window, and none of {who}'s coming queries reaches back into "
        f"{blocks_named(blocks)}: {who} gives up {references(len(blocks))}."
    )
    return Told(" ".join([lead, *_become(notes, blocks, now, forgets)]), tuple(blocks))


def _become(notes: Notes, table: list[int], now: State, forgets: bool) -> list[str]:
    """Sentences: which of the blocks are free, free but findable, still held."""
    stay = [b for b in table if refs_of(b, now)]
    kept = [b for b in table if not refs_of(b, now) and identity_of(b, now)]
    free = [b for b in reversed(table) if b not in stay and b not in kept]
    say = []
    if free:
        say.append(f"{blocks_named(free).capitalize()} {is_are(free)} free.")
    if forgets:
        say.append("Identities go with the last reference here, so nothing is kept.")
    if kept:
        keeps = "keeps its identity" if len(kept) == 1 else "keep their identities"
        it = "it" if len(kept) == 1 else "them"
        say.append(
            f"{blocks_named(kept).capitalize()} {is_are(kept)} free to be taken too, but {keeps}: "
            f"until then a request with the same prefix can find {it}."
        )
    if stay:
        holders = sorted({notes.letters[o] for b in stay for o in owners(b, now)})
        stays = "stays" if len(stay) == 1 else "stay"
        say.append(f"{blocks_named(stay).capitalize()} {stays} in use: {_hold(holders, stay)}.")
    return say


def _hold(holders: list[str], blocks: list[int]) -> str:
    it = "it" if len(blocks) == 1 else "them"
    return f"{shortened(holders)} still {'holds' if len(holders) == 1 else 'hold'} {it}"
