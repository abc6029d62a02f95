"""Results of runs over damaged caches: one answer, and counts over many cases."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import torch

from kvlab.llm import LLM
from kvlab.tiny.corpus import Case, other_request
from kvlab.tiny.damage import Said
from kvlab.tiny.documents import NOT_SAID
from kvlab.tiny.wrong_cases import Setting

RIGHT, OTHER = "right", "the other request's answer"
FROM_NOTES, MADE_UP = "from the notes", "made up"
DECLINED = "says that the notes do not say"
KINDS = (RIGHT, OTHER, DECLINED, FROM_NOTES, MADE_UP)


@dataclass(frozen=True)
class DamagedAnswer:
    """What the model said over a damaged cache.

    kind: one of KINDS. "from the notes": the first wrong word stands there; "made up": it does not.
    probability: the smallest that a word of the right answer got, up to the first one that was
    not selected. logit_change: the largest of any logit, against the intact cache, at the outputs
    that both runs selected after the same words.
    """

    damage: str
    text: str
    kind: str
    probability: float
    logit_change: float

    @property
    def is_right(self) -> bool:
        return self.kind == RIGHT


@dataclass(frozen=True)
class DamageCount:
    """Answers of `num_cases` cases under one damage. Mean probability, median logit change."""

    damage: str
    num_cases: int
    num_right: int
    num_other: int
    num_declined: int
    num_from_notes: int
    num_made_up: int
    probability: float
    logit_change: float

    def cells(self) -> tuple[str, ...]:
        """As the table shows them."""
        counts = (self.num_cases, self.num_right, self.num_other, self.num_declined)
        counts += (self.num_from_notes, self.num_made_up)
        measured = (f"{self.probability:.2f}", f"{self.logit_change:.1f}")
        return (self.damage, *map(str, counts), *measured)


HEAD = ("damage", "cases", "right", "other", "not said", "notes", "made up", "prob.", "logits")
NOTE = (
    "other: the other request's answer. not said: the model says that the notes do not say. "
    "notes, made up: the first wrong word stands in the notes, or does not. "
    "prob.: mean over the cases of the least probability that a word of the right answer got. "
    "logits: median over the cases of the largest change of a logit."
)


@dataclass(frozen=True)
class DamageTable:
    """One row a damage, all in one setting. `table["fact hidden"]` is a row."""

    setting: Setting
    rows: tuple[DamageCount, ...]

    def __getitem__(self, damage: str) -> DamageCount:
        found = [row for row in self.rows if row.damage == damage]
        if not found:
            names = ", ".join(row.damage for row in self.rows)
            raise KeyError(f"{damage!r} was not counted; there are {names}")
        return found[0]

    @property
    def caption(self) -> str:
        return f"6 facts, blocks of {self.setting.block_size}"

    def __str__(self) -> str:
        lines = [(self.caption, *HEAD[1:]), *(row.cells() for row in self.rows)]
        widths = (24, 7, 7, 7, 10, 7, 9, 8, 8)
        padded = (zip(line, widths, strict=True) for line in lines)
        return "\n".join(f"{a:{b}}" + "".join(f"{c:>{w}}" for c, w in r) for (a, b), *r in padded)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEAD)
        body = []
        for first, *rest in (row.cells() for row in self.rows):
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
            body.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
        caption = f"<caption>{escape(f'Answers over damaged caches: {self.caption}')}</caption>"
        parts = [f"<table>{caption}", f"<thead><tr>{head}</tr></thead>", "<tbody>", *body]
        return "\n".join([*parts, "</tbody></table>", f"<p><small>{escape(NOTE)}</small></p>"])


def judged(llm: LLM, case: Case, name: str, said: Said, intact: Said) -> DamagedAnswer:
    """Compare a run with the right answer and with the intact run of the same case."""
    right = [*llm.encode(case.answer), *llm.model.config.eos_token_ids[:1]]
    same = shared_start(right, said.token_ids)
    follow = min(same + 1, len(right), len(said.token_ids))
    probabilities = torch.softmax(said.logits[:follow].double(), dim=-1)
    compared = min(shared_start(intact.token_ids, said.token_ids) + 1, len(said.token_ids))
    compared = min(compared, len(intact.token_ids))
    change = said.logits[:compared] - intact.logits[:compared]
    return DamagedAnswer(
        name,
        said.text,
        kind_of(said, case, list(said.token_ids) == right),
        min(float(probabilities[i, token]) for i, token in enumerate(right[:follow])),
        float(change.abs().max()),
    )


def kind_of(said: Said, case: Case, is_right: bool) -> str:
    """Which of KINDS an answer is."""
    if is_right:
        return RIGHT
    if said.text == other_request(case).answer:
        return OTHER
    if said.text == NOT_SAID:
        return DECLINED
    words, right = words_of(said.text), words_of(case.answer)
    first = shared_start(right, words)
    return (
        FROM_NOTES if words[first : first + 1] and words[first] in words_of(case.notes) else MADE_UP
    )


def words_of(text: str) -> list[str]:
    """Words and signs, as the model's language has them."""
    for sign in ".,?":
        text = text.replace(sign, f" {sign} ")
    return text.split()


def shared_start(a: Sequence[object], b: Sequence[object]) -> int:
    """How many first items are the same."""
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return same


def counted(answers: Sequence[DamagedAnswer]) -> DamageCount:
    """One row from the answers under one damage."""
    kinds = Counter(a.kind for a in answers)
    return DamageCount(
        answers[0].damage,
        len(answers),
        *(kinds[kind] for kind in KINDS),
        statistics.fmean(a.probability for a in answers),
        statistics.median(a.logit_change for a in answers),
    )
