"""Sentences for each stop of the view "cache in two layouts"; read alone, they tell the story."""

from collections.abc import Sequence

from kvlab.core.layouts import LayoutRun, LayoutState
from kvlab.widgets.growth_words import count, ordinal


def start_sentence(run: LayoutRun) -> str:
    lengths = [(r.name, len(r.prompt_token_ids)) for r in run.requests]
    nothing = "Nothing is stored yet: 0 bytes in both layouts."
    if len(lengths) == 1:
        (name, n) = lengths[0]
        return f"Request {name} arrives with a prompt of {count(n, 'token')}. {nothing}"
    told = listed([f"{n:,} ({name})" for name, n in lengths])
    return f"{len(lengths)} requests arrive, with prompts of {told} tokens. {nothing}"


def prompt_sentence(run: LayoutRun, state: LayoutState) -> str:
    """The first pass: who is padded, and by how much."""
    lengths = {r.name: len(r.prompt_token_ids) for r in run.requests}
    width = max(lengths.values())
    padded = [f"{name} by {width - n:,}" for name, n in lengths.items() if n < width]
    if not padded:
        what = "the prompt has" if len(lengths) == 1 else "all prompts have"
        told = f"{what} {count(width, 'token')}, so no slot is padding"
        return f"The prompt pass: {told}. {totals(state)}"
    longest = next(name for name, n in lengths.items() if n == width)
    pads = listed(padded).replace(" by ", " is padded by ", 1)
    slots = f"{count(state.padding, 'slot')} {'holds' if state.padding == 1 else 'hold'}"
    whose = "the request" if len(padded) == 1 else "these requests"
    return (
        f"The prompt pass: {longest} has {count(width, 'token')}, so every row gets "
        f"{count(width, 'slot')}. {pads}: {slots} keys and values of a filler token, nothing of "
        f"{whose}. {totals(state)}"
    )


def output_sentence(run: LayoutRun, done: int, state: LayoutState) -> str:
    """A later pass: one output of each running request, one more column, perhaps new blocks."""
    step, names = run.passes[done - 1], [r.name for r in run.requests]
    active = [name for name, on in zip(names, state.running, strict=True) if on]
    idle = [name for name in names if name not in active]
    column = f"The rectangle grows by a column of {count(len(names), 'slot')}"
    if idle:
        one = len(idle) == 1
        column += f"; in {'the row' if one else 'the rows'} of {listed(idle)}, which "
        column += f"{'has' if one else 'have'} ended, it holds "
        column += f"no position of {'the request' if one else 'these requests'}"
    return (
        f"Pass {done - 1} processes the {ordinal(done - 1)} output of {listed(active)}. "
        f"{column}. {_new_blocks(names, step.new_block_ids)} {totals(state)}"
    )


def ended_sentence(run: LayoutRun, done: int, state: LayoutState) -> str:
    """Requests have all their outputs: given back in one layout, still held in the other."""
    ended = [run.requests[i] for i in run.passes[done - 1].ended]
    names = listed([r.name for r in ended])
    blocks = sum(len(p.new_block_ids[i]) for p in run.passes for i in run.passes[done - 1].ended)
    if len(ended) == 1:
        outputs = count(len(ended[0].output_token_ids), "output")
        who = f"{names} has its {outputs} and ends. Its {count(blocks, 'block')}"
        rows = f"its row of {count(state.width, 'slot')} is still held"
    else:
        who = f"{names} have all their outputs and end. Their {count(blocks, 'block')}"
        rows = f"their rows of {count(state.width, 'slot')} are still held"
    goes = "goes" if blocks == 1 else "go"
    told = f"{who} {goes} back to the pool. In the rectangle, {rows}"
    if not any(state.running):
        told += " until the whole of it is dropped"
    return f"{told}. {totals(state)}"


def totals(state: LayoutState) -> str:
    """What both layouts hold for the same positions in use."""
    n = state.in_use
    use = "No position is" if n == 0 else f"{count(n, 'position')} {'is' if n == 1 else 'are'}"
    slots, blocks = count(state.rectangle_slots, "slot"), "Blocks: none"
    if state.num_blocks:
        taken = f"{count(state.num_blocks, 'block')} of {state.block_size}"
        blocks = f"{taken}: {count(state.block_slots, 'slot')}"
    return (
        f"{use} in use. Rectangle: {slots}, {count(state.rectangle_nbytes, 'byte')}. "
        f"{blocks}, {count(sum(state.block_nbytes), 'byte')}."
    )


def listed(words: Sequence[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _new_blocks(names: Sequence[str], new: Sequence[Sequence[int]]) -> str:
    taken = [
        f"{name} takes {'block' if len(ids) == 1 else 'blocks'} {listed([str(i) for i in ids])}"
        for name, ids in zip(names, new, strict=True)
        if ids
    ]
    if not taken:
        return "No new block is needed."
    return f"{listed(taken)}."
