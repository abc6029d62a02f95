"""Sentences for blocks that a request gets: found, taken, forked, copied; and what that evicts."""

from collections.abc import Sequence

from kvlab.core.trace import Event, State
from kvlab.widgets.blocks_notes import Notes, Told
from kvlab.widgets.blocks_words import (
    MOST_NAMED,
    and_list,
    blocks_named,
    identity_of,
    is_are,
    logical_named,
    name_in_words,
    now_full,
    owners,
    references,
    refs_of,
    shortened,
)
from kvlab.widgets.growth_words import count, span


def admitted(notes: Notes, event: Event, now: State) -> Told:
    """A prefix found in the cache, with the blocks taken for the rest."""
    name, who = event.request_id, notes.letters[event.request_id]
    hits = notes.shared.pop(name, [])
    blocks = [b for b, _ in hits]
    first = now["requests"][name]["block_table"].count(None)  # places behind the window
    logical = range(first, first + len(blocks))
    positions = span(first * notes.size, logical.stop * notes.size)
    word = "identity" if len(blocks) == 1 else "identities"
    so = blocks_named(blocks) if len(blocks) == 1 else "these"
    identities = [identity_of(b, now) for b in blocks]
    which = f" ({and_list(identities)})" if len(blocks) <= 2 and all(identities) else ""
    say = [
        f"{who} is admitted." if event.kind == "admitted" else f"{who} finds a prefix.",
        f"Its tokens at {positions} have the {word} of {blocks_named(blocks)}{which}, so "
        f"{so} {is_are(blocks)} {who}'s {logical_named(logical)} too and now "
        f"{_counts(blocks, now)}. Nothing is computed or copied.",
        *([f"No query reads {logical_named(range(first))} any more."] if first else []),
        *_same_step(notes, name, blocks),
        *_out_of_the_queue([b for b, refs in hits if refs == 0]),
    ]
    if rest := notes.tell_taken(name):
        say.append(f"For the rest the pool gives {blocks_named(list(rest.values()))}.")
    if lost := notes.tell_evicted():
        say.append(_lost(lost))
    return Told(" ".join(say), (*blocks, *rest.values()))


def _counts(blocks: Sequence[int], now: State) -> str:
    counts = [refs_of(b, now) for b in blocks]
    if len(blocks) == 1:
        return f"counts {references(counts[0])}"
    if len(set(counts)) == 1:
        return f"count {references(counts[0])} each"
    if len(counts) > MOST_NAMED:  # the blocks are not named one by one either
        least, most = min(counts), max(counts)
        return f"count {least} {'or' if most == least + 1 else 'to'} {references(most)} each"
    return f"count {and_list(counts)} references"


def _same_step(notes: Notes, name: str, blocks: Sequence[int]) -> list[str]:
    """A hit on a block that another request is going to write in this very step."""
    pending = (n for n, ids in notes.registered.items() if n != name and set(ids) & set(blocks))
    it = "it" if len(blocks) == 1 else "them"
    return [f"{notes.letters[n]} writes {it} in this same step." for n in pending]


def _out_of_the_queue(blocks: Sequence[int]) -> list[str]:
    if not blocks:
        return []
    was, leaves = ("was", "leaves") if len(blocks) == 1 else ("were", "leave")
    named = blocks_named(blocks).capitalize()
    return [f"{named} {was} kept without a reference and {leaves} the free queue."]


def taken(notes: Notes, event: Event, now: State) -> Told:
    """Blocks taken with the eviction of identities, or without a pass that follows."""
    new = notes.tell_taken(event.request_id)
    blocks, who = list(new.values()), notes.letters[event.request_id]
    lost = notes.tell_evicted()
    say = f"The pool gives {blocks_named(blocks)} for {who}'s {logical_named(list(new))}."
    return Told(f"{say} {_lost(lost)}" if lost else say, tuple(blocks))


def _lost(lost: Sequence[tuple[int, str]]) -> str:
    """Next in the free queue were blocks that still had an identity."""
    blocks, identities = [b for b, _ in lost], [identity for _, identity in lost]
    if len(lost) == 1:
        return (
            f"Block {blocks[0]}, next in the free queue, was kept without a reference under "
            f"identity {identities[0]}: that identity is evicted and no longer found."
        )
    return (
        f"Of these, {blocks_named(blocks)}, next in the free queue, were kept without a reference: "
        f"their identities {shortened(identities)} are evicted and no longer found."
    )


def registered(notes: Notes, event: Event, now: State) -> Told:
    blocks = notes.registered.pop(event.request_id, [])
    return Told(now_full(blocks, now), tuple(blocks))


def evicted(notes: Notes, event: Event, now: State) -> Told:
    lost = notes.tell_evicted()
    return Told(_lost(lost), tuple(b for b, _ in lost))


def forked(notes: Notes, event: Event, now: State) -> Told:
    parent = notes.letters.get(event.data["parent"], "another request")
    table = [b for b in now["requests"][event.request_id]["block_table"] if b is not None]
    who = name_in_words(event.request_id, notes.letters[event.request_id])
    return Told(
        f"{who} continues from {parent}: its block table is a copy of {parent}'s, "
        f"{blocks_named(table)}, which now {_counts(table, now)}. No key and no value is copied.",
        tuple(table),
    )


def copied(notes: Notes, event: Event, now: State) -> Told:
    """Copy-on-write."""
    src, dst, who = event.data["src"], event.data["dst"], notes.letters[event.request_id]
    position = now["requests"][event.request_id]["num_computed_tokens"]
    logical, slot = divmod(position, notes.size)
    others = [notes.letters[name] for name in owners(src, now)]
    hold = f"{shortened(others)} {'holds' if len(others) == 1 else 'hold'} too"
    lost = notes.tell_evicted()
    say = (
        f"{who} is about to write position {position}, slot {slot} of block {src}, which {hold}. "
        f"Copy-on-write: the pool gives block {dst}, {count(slot, 'written slot')} of block {src} "
        f"{'is' if slot == 1 else 'are'} copied there, and {who}'s logical block {logical} is "
        f"block {dst} from now on. Block {src} keeps {references(refs_of(src, now))}."
    )
    return Told(f"{say} {_lost(lost)}" if lost else say, (src, dst))
