"""A sentence or a few for each stop of the view "block table": what happened, and why.

Positions written: blocks_pass.py. Blocks gained: blocks_gain.py. Given back: blocks_loss.py.
"""

from kvlab.core.trace import Event, State
from kvlab.widgets.blocks_gain import admitted, copied, evicted, forked, registered, taken
from kvlab.widgets.blocks_loss import failed, finished, freed, out_of_window, preempted
from kvlab.widgets.blocks_notes import Notes, Told
from kvlab.widgets.blocks_pass import computed, logits_kept, logits_reused, selected
from kvlab.widgets.blocks_words import name_in_words
from kvlab.widgets.growth_words import count, visible


def start(notes: Notes, state: State) -> str:
    """Before the first event."""
    used = sum(b["ref_cnt"] > 0 for b in state["blocks"].values())
    free = state["free"]
    following = f"The next to be taken is block {free[0]}." if free else "None is free."
    blocks = f"{count(used + len(free), 'block')} of {count(notes.size, 'slot')}"
    if used or state["requests"]:
        return f"The recording starts here: {used} of {blocks} in use. {following}"
    return f"The pool has {blocks}, all free. {following}"


def tell(notes: Notes, event: Event, now: State) -> Told:
    """The stop of an event. now: the state after it. A kind without words gets a neutral one."""
    return KINDS.get(event.kind, unknown)(notes, event, now)


def added(notes: Notes, event: Event, now: State) -> Told:
    tokens = now["requests"][event.request_id]["num_prompt_tokens"]
    blocks = -(-tokens // notes.size)
    return Told(
        f"{name_in_words(event.request_id, notes.letters[event.request_id])} arrives with a prompt "
        f"of {count(tokens, 'token')}: {count(blocks, 'logical block')} (⌈{tokens}/{notes.size}⌉). "
        "It waits and holds no physical block yet."
    )


def reset(notes: Notes, event: Event, now: State) -> Told:
    return Told("The prefix cache is reset: no block has an identity any more.")


def unknown(notes: Notes, event: Event, now: State) -> Told:
    of = "" if event.request_id is None else f" of {notes.letters[event.request_id]}"
    return Told(f"The engine notes an event{of}: {visible(event.kind)}.")


KINDS = {
    "added": added,
    "admitted": admitted,
    "shared": admitted,
    "block_taken": taken,
    "registered": registered,
    "evicted": evicted,
    "forked": forked,
    "copied": copied,
    "computed": computed,
    "logits_kept": logits_kept,
    "logits_reused": logits_reused,
    "selected": selected,
    "freed": freed,
    "out_of_window": out_of_window,
    "finished": finished,
    "preempted": preempted,
    "step_failed": failed,
    "reset": reset,
}
