"""What new weights must be able to do before they replace the shipped ones.

Every figure is counted for both models on the same cases. New weights pass if none of their
figures is worse than the shipped weights', and if they keep the bounds of their own.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvlab import tiny
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.tiny import evaluate, wrong_cache
from kvlab.tiny.corpus import RELATIONS, Case, Fact, cases
from kvlab.tiny.documents import NOT_SAID, absent_question

SEED = 1
FACTS = {
    **{f"{n} fact{'s' if n > 1 else ''}": {"num_facts": n} for n in (1, 2, 4, 5, 6, 7, 8)},
    "6 facts, half of them reworded": {"num_facts": 6, "reworded": 0.5},
    **{f"{n} far facts": {"num_facts": n, "far": 1.0} for n in (1, 3, 6)},
    "6 facts, no rules, no stories": {"num_facts": 6, "num_sentences": 0, "num_rules": (0, 1)},
    **{
        f"6 facts, then {gap} tokens of stories": {"num_facts": 6, "gap": gap}
        for gap in (100, 200, 300, 450, 600, 700)
    },
}
DAMAGES = ("nothing", "another block hidden", "fact hidden", "fact zeroed", "fact exchanged")
MOSTLY_WRONG = 0.1  # share of answers that may still be right without the fact
SAYS_SO = 0.9  # share of absent facts that must be answered "The notes do not say."


@dataclass(frozen=True)
class Figure:
    """A count of `of` cases. shipped: the shipped weights' count; None: it is not compared.

    at_least, at_most: bounds that hold for new weights.
    """

    name: str
    count: int
    of: int
    shipped: int | None = None
    at_least: int = 0
    at_most: int | None = None

    @property
    def passes(self) -> bool:
        return self.count >= self.at_least and (self.at_most is None or self.count <= self.at_most)

    def __str__(self) -> str:
        bound = f"<= {self.at_most}" if self.at_most is not None else f">= {self.at_least}"
        shipped = "" if self.shipped is None else str(self.shipped)
        verdict = "pass" if self.passes else "FAIL"
        return f"{self.name:42}{self.count:5} of {self.of:<5}{shipped:>8}  {bound:7} {verdict}"


HEADER = f"{'':42}{'new':>5}{'':9}{'shipped':>8}  {'bound':7}"


def figures(llm: LLM, shipped: LLM, count: int = 100) -> Iterator[Figure]:
    """All figures, one after another: each takes seconds."""
    for name, kind in FACTS.items():
        asked = cases(count, seed=SEED, **kind)
        old = num_right(shipped, asked)
        yield Figure(name, num_right(llm, asked), count, old, at_least=old)
    yield from _damage(llm, shipped, count)
    forms = [_short_case(*example) for example in tiny.examples()]
    yield Figure(
        "one fact of each form, alone", num_right(llm, forms), len(forms), None, len(forms)
    )
    for name, asked in absent_cases(count).items():
        said = num_right(llm, asked)
        yield Figure(name, said, len(asked), num_right(shipped, asked), round(SAYS_SO * len(asked)))


def _damage(llm: LLM, shipped: LLM, count: int) -> Iterator[Figure]:
    """Damaged caches: what is intact must answer, what is lost must not, what is foreign must show.

    An answer without its fact can still be right by chance: a colour is one of 12.
    """
    new, old = (wrong_cache.count_answers(of, DAMAGES, count) for of in (llm, shipped))
    for name in DAMAGES:
        if name in ("fact hidden", "fact zeroed"):
            most = round(MOSTLY_WRONG * count)
            counts = (new[name].num_right, count, old[name].num_right)
            yield Figure(f"{name}: still right", *counts, at_most=most)
        elif name == "fact exchanged":
            had = old[name].num_other
            yield Figure(f"{name}: the other value", new[name].num_other, count, had, had)
        else:
            had = old[name].num_right
            yield Figure(f"{name}: right", new[name].num_right, count, had, had)


def num_right(llm: LLM, asked: list[Case]) -> int:
    """Cases whose whole answer, its end included, is said."""
    outputs = llm.generate([case.prompt for case in asked], SamplingParams(max_tokens=24))
    pairs = zip(outputs, asked, strict=True)
    return sum(evaluate.is_right(output.outputs[0], case) for output, case in pairs)


def _short_case(fact: str, question: str) -> Case:
    return Case(tiny.prompt(fact, question), fact, fact, question, "", "", fact)


# ---- what the notes do not say


def absent_cases(count: int) -> dict[str, list[Case]]:
    """Questions that nothing in the prompt answers; the right answer is `NOT_SAID`."""
    two, six = cases(count, 2, SEED), cases(count, 6, SEED)
    return {
        "absent, 2 facts": _absent(two),
        "absent, 6 facts": _absent(six),
        "absent, 6 facts, anything asked": _absent(six, near=False),
        "absent, 6 facts, then 300 tokens": _absent(cases(count, 6, SEED, gap=300)),
        "absent, the asked fact taken out": [_without_fact(case) for case in six],
        "absent, no notes": [_without_notes(case) for case in two],
    }


def asked_fact(case: Case) -> Fact:
    """The fact that a case of `corpus.cases` asks for."""
    relation = next(r for r in RELATIONS if r.question.format(s=case.subject) == case.question)
    return Fact(relation, case.subject, case.value)


def _absent(asked: list[Case], near: bool = True) -> list[Case]:
    """near: the question shares its kind or its subject with a fact of the notes."""
    rng, found = random.Random(SEED), []
    for case in asked:
        question = absent_question(rng, case.prompt, [asked_fact(case)] if near else [])
        found.append(_asking(case, case.prompt, question))
    return found


def _without_fact(case: Case) -> Case:
    return _asking(
        case,
        case.prompt.replace(f"{case.statement} ", "").replace(f" {case.statement}", ""),
        case.question,
    )


def _without_notes(case: Case) -> Case:
    return _asking(case, tiny.prompt("", case.question), case.question)


def _asking(case: Case, prompt: str, question: str) -> Case:
    head, _, tail = prompt.rpartition(case.question)
    return replace(case, prompt=f"{head}{question}{tail}", question=question, answer=NOT_SAID)
