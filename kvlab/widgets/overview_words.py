"""What the overview says in words. Each sentence holds for any run, or is left out."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kvlab.widgets.growth_words import count
from kvlab.widgets.overview_read import Served
from kvlab.widgets.overview_story import Story

MOST_NAMES = 4  # of more, the first three and how many others there are


def prefill_told(story: Story) -> str:
    """Of the prompt of the request that is shown."""
    request, layers = story.shown, story.meta["num_layers"]
    prompt, passes = request.num_prompt_tokens, request.prompt_passes()
    last, widest = passes[-1], max(p.end - p.start for p in passes)
    took = "One pass takes" if len(passes) == 1 else f"{len(passes)} passes take"
    at_once = "" if len(passes) == 1 else f"up to {widest} "
    beside = f"{', ' if at_once else ' '}{at_once}side by side" if widest > 1 else ""
    deep = f"{count(layers, 'layer')} one after another" if layers > 1 else "in one layer"
    return (
        f"{took} {request.letter}'s prompt: {count(prompt, 'position')}{beside}, {deep}. "
        "Each position leaves a key and a value (KV) in every layer: "
        f"{last.nbytes:,} bytes measured. The logits of position {last.end - 1} "
        f"select the first output, {story.text(last.selected)}."
    )


def decode_told(story: Story, left_out: int) -> str:
    """Of the passes after the prompt. left_out: how many of them are not drawn."""
    request = story.shown
    shown = [request.prompt_passes()[-1], *request.decode_passes()]
    each = " or ".join(f"{n:,}" for n in sorted({b.nbytes - a.nbytes for a, b in pairwise(shown)}))
    told, passes = f"one token of {request.letter} and adds its column", len(shown) - 1
    grown = f"from {shown[0].nbytes:,} to {shown[-1].nbytes:,} bytes"
    if passes == 1:
        first = f"One later pass reads {told}, {each} bytes: {grown}."
    else:
        first = f"Each later pass reads {told}, {each} bytes each time: {grown} in {passes} passes."
    more = f" {left_out} more pass{'' if left_out == 1 else 'es'} not drawn." if left_out else ""
    return f"{first} What a pass selects, the next one reads.{more}"


def scheduling_told(story: Story, left_out: int) -> str:
    """Who comes, shares steps, waits and loses its blocks. left_out: steps not drawn."""
    requests, steps = story.requests, story.steps
    waiting = [(r, sum(r.waits_in(s) for s in steps)) for r in requests]
    waits = [f"{r.letter} waits {count(n, 'step')}" for r, n in waiting if n]
    lost = [f"{r.letter} is preempted in {_steps(r.preempted)}" for r in requests if r.preempted]
    again = [(r.letter, sum(p.again for p in r.passes)) for r in requests]
    redone = [f"{letter} computes {count(n, 'position')} again" for letter, n in again if n]
    failed = sorted({step for r in requests for step in r.failed})
    legend = "P n: n positions of a prompt; d: one output is read"
    legend += "; R n: n positions, some of them computed before and lost" if redone else ""
    told = [
        _arrivals(requests),
        _together(story),
        legend,
        listed(waits, "more wait") or "Nobody waits",
        listed(lost, "more are preempted"),
        listed(redone, "more compute positions again"),
        f"{_steps(failed).capitalize()} failed and left nothing" if failed else "",
        f"{count(left_out, 'later step')} not drawn" if left_out else "",
    ]
    return " ".join(f"{sentence}." for sentence in told if sentence)


def blocks_told(story: Story, left_out: int = 0) -> str:
    """Of the moment at which most requests hold blocks. left_out: free blocks not drawn."""
    now, size = story.busiest, story.meta["block_size"]
    held, filled = len(now.owners), sum(now.filled[block] for block in now.owners)
    whose = listed([f"{letter} {len(table)}" for letter, table in now.tables.items()])
    shared = sum(len(owners) > 1 for owners in now.owners.values())
    if shared:
        entries = sum(map(len, now.tables.values()))
        are = "is" if shared == 1 else "are"
        whose += f"; {shared:,} {are} shared, so that {entries:,} entries of tables name {held:,}"
    kept = sum(now.filled.get(block, 0) > 0 for block in now.free)
    keep = "block still keeps" if kept == 1 else "blocks still keep"
    left = f" {kept:,} free {keep} positions that the prefix cache may reuse." if kept else ""
    if left_out:
        left += (
            f" {left_out:,} more free {'block is' if left_out == 1 else 'blocks are'} not drawn."
        )
    return (
        f"In the pass of step {now.step}, {_hold(len(now.tables))}; no pass has more. "
        f"{held:,} of {held + len(now.free):,} blocks are held: {whose}. {filled:,} of "
        f"their {held * size:,} slots hold a position.{left} A table lists a request's blocks in "
        "the order of its positions, wherever they lie."
    )


def _hold(requests: int) -> str:
    return f"{count(requests, 'request')} {'holds' if requests == 1 else 'hold'} blocks"


def _arrivals(requests: Sequence[Served]) -> str:
    own = [r for r in requests if r.parent is None]
    added = [r for r in own if r.came == "added"]
    there = [r.letter for r in own if r.came == "there"]
    told = [_when(added)] if added else []
    if there:
        are = "is" if len(there) == 1 else "are"
        told.append(f"{listed(there)} {are} there when the record begins")
    children: dict[str, list[str]] = {}
    for r in requests:
        if r.parent is not None:
            children.setdefault(r.parent, []).append(r.letter)
    continued = [
        f"{listed(c)} {'continues' if len(c) == 1 else 'continue'} {parent}"
        for parent, c in children.items()
    ]
    told += [listed(continued, "more are continued")] if continued else []
    unseen = [r.letter for r in own if r.came == "named"]
    told += [f"no arrival of {listed(unseen)} is recorded"] if unseen else []
    text = "; ".join(told)
    return text[:1].upper() + text[1:]


def _when(added: Sequence[Served]) -> str:
    moments = len({r.arrived for r in added})
    if len(added) == 1:
        return f"{added[0].letter} arrives before step {added[0].arrived + 1}"
    who = f"{count(len(added), 'request')} arrive"
    if moments == 1:
        return f"{who} together, before step {added[0].arrived + 1}"
    return f"{who} at {'' if moments == len(added) else f'{moments} '}different times"


def _together(story: Story) -> str:
    """The step that runs most requests, the first of these."""
    ran = {s: [r for r in story.requests if r.pass_in(s)] for s in story.steps}
    step = max(ran, key=lambda s: len(ran[s]))
    if len(ran[step]) < 2:
        return "No step runs more than one request"
    load = sum(p.end - p.start for r in ran[step] if (p := r.pass_in(step)))
    who = listed([r.letter for r in ran[step]])
    return (
        f"Requests share steps: step {step} runs {who} in one pass, "
        f"{count(load, 'position')} in all, and no step runs more requests"
    )


def _steps(steps: Iterable[int]) -> str:
    numbers = [str(step) for step in steps]
    return f"step{'' if len(numbers) == 1 else 's'} {listed(numbers)}"


def listed(words: Sequence[str], more: str = "more") -> str:
    """A, B and C; of many words the first three and the number of the others."""
    if len(words) > MOST_NAMES:
        words = [*words[: MOST_NAMES - 1], f"{len(words) - MOST_NAMES + 1:,} {more}"]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
