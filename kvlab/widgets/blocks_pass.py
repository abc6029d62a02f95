"""Sentences for positions that a pass writes, and for the token that its logits select."""

from collections.abc import Mapping, Sequence

from kvlab.core.trace import Event, State
from kvlab.widgets.blocks_notes import Notes, Told
from kvlab.widgets.blocks_words import (
    Piece,
    and_list,
    blocks_named,
    logical_named,
    now_full,
    owners,
    pieces,
    shortened,
    slots_named,
    token_text,
    unused,
)
from kvlab.widgets.growth_words import count, span


def computed(notes: Notes, event: Event, now: State) -> Told:
    """Where the positions go, which blocks are new, full, and partly unused."""
    name, start, end = event.request_id, event.data["start"], event.data["end"]
    request = now["requests"][name]
    where = pieces(request["block_table"], start, end, notes.size)
    new, taken = notes.untold(name), dict(notes.taken.get(name, {}))
    lead = _lead(notes, name, start, end, request["num_prompt_tokens"])
    notes.end_step(name)
    notes.reached[name] = max(notes.reached[name], end)
    if end - start == 1 and where:
        say = [_one(lead, where[0], new, taken), *_after(notes, where, "it", now)]
    else:
        say = [_several(lead, where, new, taken), *_after(notes, where, "", now)]
    blocks = tuple(p.block for p in where)
    say += [*_kin(notes, name, blocks, now), *_by_the_way(notes)]
    return Told(" ".join(say), blocks, (start, end) if where else None)


def _lead(notes: Notes, name: str, start: int, end: int, prompt: int) -> str:
    who = notes.letters[name]
    if start >= end:
        return f"{who} has no position left to process: the logits of its last one were kept"
    enters = "is admitted and " if name in notes.admitted and start == 0 else ""
    lead = f"{who} {enters}processes {span(start, end)}"
    if start < notes.reached[name]:
        return f"{lead} again, after its blocks were given up"
    if start >= prompt or (end - start == 1 and prompt > 1):
        return lead
    if end < prompt:
        which = "the first part" if start == 0 else "a part"
        return f"{lead}, {which} of its prompt ({count(prompt - end, 'token')} left)"
    return f"{lead}, {'its whole prompt' if start == 0 else 'the rest of its prompt'}"


def _one(lead: str, piece: Piece, new: Mapping, taken: Mapping) -> str:
    if piece.logical in new:
        return (
            f"{lead}. Logical block {piece.logical} does not exist yet, so the pool gives "
            f"block {piece.block}, and slot {piece.first} is written."
        )
    early = " taken in this step," if piece.logical in taken else ""
    return (
        f"{lead}: logical block {piece.logical} is block {piece.block},{early} "
        f"and slot {piece.first} is written."
    )


def _several(lead: str, where: Sequence[Piece], new: Mapping, taken: Mapping) -> str:
    say = [f"{lead}."]
    if new:
        blocks, logical = list(new.values()), logical_named(list(new))
        say.append(f"The pool gives {blocks_named(blocks)} for {logical}.")
    for piece in [p for p in where if p.logical not in new][:2]:
        early = ", taken in this step" if piece.logical in taken else ""
        be = "is" if piece.after - piece.first == 1 else "are"
        say.append(
            f"Logical block {piece.logical} is block {piece.block}{early}: "
            f"{slots_named(piece.first, piece.after)} {be} written."
        )
    return " ".join(say)


def _after(notes: Notes, where: Sequence[Piece], it: str, now: State) -> list[str]:
    """Which blocks are full now, and what stays unused in the last one."""
    full = [p.block for p in where if p.after == notes.size]
    say = [now_full(full, now)] if full else []
    if where and where[-1].after < notes.size:
        say.append(unused(notes.size - where[-1].after, it or f"block {where[-1].block}"))
    return say


def _kin(notes: Notes, name: str, blocks: Sequence[int], now: State) -> list[str]:
    kin = sorted({notes.letters[o] for b in blocks for o in owners(b, now) if o != name})
    if not kin:
        return []
    what = "this block" if len(blocks) == 1 else "some of these blocks"
    return [f"{shortened(kin)} {'holds' if len(kin) == 1 else 'hold'} {what} too."]


def _by_the_way(notes: Notes) -> list[str]:
    """Blocks that the same step took for others; they are written at stops to come."""
    others = {name: new for name in list(notes.taken) if (new := notes.tell_taken(name))}
    if not others:
        return []
    if len(others) > 2:
        blocks = sum(len(new) for new in others.values())
        given = f"{count(blocks, 'block')} to {len(others)} other requests"
    else:
        given = and_list(
            f"{blocks_named(list(new.values()))} to {notes.letters[name]}"
            for name, new in others.items()
        )
    return [f"In the same step the pool gives {given}."]


def selected(notes: Notes, event: Event, now: State) -> Told:
    """One more token is known; no block changes."""
    who, position = notes.letters[event.request_id], event.data["position"]
    table = now["requests"][event.request_id]["block_table"]
    logical, slot = divmod(position, notes.size)
    text = token_text(notes.vocab, event.data["token_id"])
    if logical < len(table):
        still = f"slot {slot} of block {table[logical]} is still empty."
    else:
        still = f"there is no logical block {logical} yet."
    return Told(
        f"The logits of position {position - 1} select {text} as {who}'s position {position}. "
        f"It is known, not stored: {still}",
        (),
        (position, position + 1),
    )


def logits_kept(notes: Notes, event: Event, now: State) -> Told:
    """K/V give no logits: those of a block's last position can be kept beside it."""
    position = event.data["position"]
    table = now["requests"][event.request_id]["block_table"]
    where = pieces(table, position, position + 1, notes.size)
    beside = f" beside block {where[0].block}" if where else ""
    return Told(
        f"The logits of {notes.letters[event.request_id]}'s position {position} are kept{beside}: "
        "a prompt that ends there needs no pass to select its first output.",
        tuple(piece.block for piece in where),
    )


def logits_reused(notes: Notes, event: Event, now: State) -> Told:
    """A prompt that is cached whole, with the logits of its last position."""
    who, block = notes.letters[event.request_id], event.data["block_id"]
    return Told(
        f"{who}'s whole prompt was found, and the logits of its last position were kept beside "
        f"block {block}: its first output is selected from them, without a pass.",
        (block,),
    )
