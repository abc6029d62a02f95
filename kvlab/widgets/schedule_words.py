"""What a step did, as a sentence; what a request went through, as a short line of letters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvlab.core.schedule_spans import QUEUED, RequestRecord, Schedule, Span
from kvlab.widgets.growth_words import count

LETTERS = {
    "waiting": "w",
    "prefill": "P",
    "decode": "D",
    "idle": "i",
    "preempted": "x",
    "offloaded": "O",
    "loading": "L",
    "suspended": "s",
    "failed": "!",
}
GONE_BEFORE = ("", "suspended", "failed", *QUEUED)  # it had lost its blocks already, or had none
LONGEST_NAME = 12
MOST_NAMES, MOST_LETTERS = 3, 16  # of a list; more than that is counted
WAYS = {"abort": " (aborted)", "capacity": " (no block is left)"}
FEW_SEATS = 8  # so many that an empty one says something


def short_names(request_ids: Sequence[str]) -> list[str]:
    """Names that fit beside a row. A long one is cut; two that are cut alike get their number."""
    cut = [n if len(n) <= LONGEST_NAME else f"{n[: LONGEST_NAME - 1]}…" for n in request_ids]
    return [f"{n}#{i + 1}" if cut.count(n) > 1 else n for i, n in enumerate(cut)]


def listed(names: Sequence[str]) -> str:
    """A and B; of many, how many."""
    long = len(names) > 2 and sum(map(len, names)) > MOST_LETTERS
    if len(names) > MOST_NAMES or long:
        return f"{len(names)} requests"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def said(names: Sequence[str], one: str, several: str) -> str:
    """With a verb in the right number: A waits, A and B wait."""
    return f"{listed(names)} {one if len(names) == 1 else several}"


# ---- a step


@dataclass(frozen=True)
class Part:
    """What a step computes of one prompt. first: it gives the request's first output."""

    name: str
    tokens: int
    notes: tuple[str, ...]
    first: bool

    def __str__(self) -> str:
        return f"P{self.tokens} of {self.name}"


@dataclass
class Moment:
    """One step of a run: who fared how, by name."""

    kinds: dict[str, list[str]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    ended: dict[str, list[str]] = field(default_factory=dict)  # by their reason

    @property
    def queued(self) -> list[str]:
        """Who holds no block and is to be admitted, or again."""
        return [name for kind in QUEUED for name in self.kinds.get(kind, ())]


def moments(log: Schedule, labels: Sequence[str]) -> dict[int, Moment]:
    """One for each step that did something."""
    found = {record.step: Moment() for record in log.steps}
    for record, name in zip(log.requests.values(), labels, strict=True):
        _follow(record, name, found)
    return found


def _follow(record: RequestRecord, name: str, found: Mapping[int, Moment]) -> None:
    """Enter one request into the steps that it was there for."""
    reached, before = 0, ""
    for span in record.spans:
        for step in range(span.first, span.end):
            found[step].kinds.setdefault(span.kind, []).append(name)
            if span.kind == "prefill":
                found[step].parts.append(_part(record, name, span, step, reached))
        if span.kind in ("preempted", "offloaded") and before not in GONE_BEFORE:
            found[span.first].lost.append(name)
        reached, before = max(reached, span.start + span.tokens), span.kind
    if record.spans:
        found[record.spans[0].first].new.append(name)
        if record.finish_reason:
            last = found[record.spans[-1].end - 1]
            last.ended.setdefault(record.finish_reason, []).append(name)


def _part(record: RequestRecord, name: str, span: Span, step: int, reached: int) -> Part:
    tokens, start = span.tokens // span.count, span.position(step)
    end = start + tokens - 1
    where = f"position {start}" if tokens == 1 else f"positions {start} to {end}"
    again = " again" if end < reached else f", up to {reached - 1} again" if start < reached else ""
    notes = [where + again if tokens else "nothing to compute"]
    if step == record.spans[0].first:
        notes.insert(0, "new")
    elif start == 0 and record.steps_in("waiting") and span.first == step and not reached:
        notes.insert(0, "admitted")
    return Part(name, tokens, tuple(notes), step in record.selected_steps[:1])


def _parts(parts: Sequence[Part]) -> Iterable[str]:
    """One prompt with its positions, a few with their counts, many as a sum."""
    if not parts:
        return
    first = [part.name for part in parts if part.first]
    if len(parts) == 1:
        (part,) = parts
        yield f"{part} ({', '.join([*part.notes, *['first output'] * part.first])})"
        return
    told = " and ".join((", ".join(map(str, parts[:-1])), str(parts[-1])))
    if len(parts) > MOST_NAMES:
        told = f"{sum(part.tokens for part in parts)} prompt positions of {len(parts)} requests"
    outputs = "first outputs" if len(first) == len(parts) else f"first output of {listed(first)}"
    yield told + (f" ({outputs})" if first else "")


def sentences(log: Schedule, labels: Sequence[str]) -> list[str]:
    """One a step, without its number."""
    found = moments(log, labels)
    return [_sentence(found[s.step], s.free_blocks, log.meta.get("max_num_seqs"))
            for s in log.steps]  # fmt: skip


def _sentence(moment: Moment, free: int, seats: int | None) -> str:
    kinds = moment.kinds
    work = [*_parts(moment.parts)]
    if "decode" in kinds:
        work.append(f"decode of {listed(kinds['decode'])}")
    if "loading" in kinds:
        work.append(f"loading of {listed(kinds['loading'])}")
    if "failed" in kinds:
        work.append(f"the pass fails, and {said(kinds['failed'], 'has', 'have')} to be computed "
                    "again")  # fmt: skip
    told = [", ".join(work) or "nothing is computed"]
    told += _changes(moment)
    told.append(_queue(moment, seats))
    return "; ".join([*told, f"{count(free, 'free block')}."])


def _changes(moment: Moment) -> Iterable[str]:
    """Who was left out, lost blocks, ended; of those in the queue, see `_queue`."""
    if idle := moment.kinds.get("idle"):
        yield said(idle, "misses this step", "miss this step")
    for kind, what in (("preempted", "its blocks and waits again"), ("offloaded", "its blocks")):
        names = [name for name in moment.lost if name in moment.kinds.get(kind, ())]
        where = ", which go to the CPU tier" if kind == "offloaded" else ""
        if names:
            several = what.replace("its", "their").replace("waits", "wait")
            yield f"{said(names, f'loses {what}', f'lose {several}')}{where}"
    if aside := moment.kinds.get("suspended"):
        yield said(aside, "is put aside", "are put aside")
    for reason, names in moment.ended.items():
        names = [n for n in names if reason == "capacity" or n not in moment.queued]
        if names:
            yield said(names, "ends", "end") + WAYS.get(reason, "")


def _queue(moment: Moment, seats: int | None) -> str:
    """Who waits, beside how many empty seats, and whom the caller ends there after the step.

    Whom the step itself ended, for want of blocks, does not wait.
    """
    waiting = [n for n in moment.queued if n not in moment.ended.get("capacity", ())]
    if not waiting:
        return "nobody waits"
    new = [name for name in waiting if name in moment.new]
    old = [name for name in waiting if name not in moment.new]
    told = [said(old, "waits", "wait")] if old else []
    told += [said(new, "arrives and waits", "arrive and wait")] if new else []
    busy = sum(map(len, moment.kinds.values())) - len(moment.queued)
    empty = (seats or 0) - busy + len(moment.kinds.get("suspended", ()))
    if seats and seats <= FEW_SEATS and empty > 0:
        told.append(f"{empty} of {seats} seats empty")
    for reason, names in moment.ended.items():
        if gone := [name for name in names if name in waiting]:
            told.append(f"then {said(gone, 'ends', 'end')}{WAYS.get(reason, '')}")
    return ", ".join(told)


def schedule_steps(log: Schedule) -> list[str]:
    """The work of each step in one word: P4 a chunk of four, D decodes, D+P4 both.

    L: nothing but loading; -: nothing. Section 21.3's examples are written so.
    """
    found = moments(log, short_names(list(log.requests)))
    return [_word(found[s.step]) for s in log.steps]


def _word(moment: Moment) -> str:
    chunks = [f"P{part.tokens}" for part in moment.parts]
    words = ["D"] * ("decode" in moment.kinds) + chunks
    return "+".join(words) or ("L" if "loading" in moment.kinds else "-")


# ---- a request


def spans_text(spans: Iterable[Sequence]) -> str:
    """w3 P4 D P4 D8: Pn is a step of n prompt positions, of the others n is how many steps.

    spans: [letter, first step, steps, positions a step] as in a payload.
    """
    return " ".join(_span_text(*span) for span in spans)


def _span_text(letter: str, first: int, steps: int, tokens: int) -> str:
    if letter == "P":
        return " ".join([f"P{tokens}"] * steps) if steps < 4 else f"P{tokens}×{steps}"
    return letter if steps == 1 else f"{letter}{steps}"
