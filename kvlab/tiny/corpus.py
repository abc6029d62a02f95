"""Prompts whose answer stands in their notes: what the tiny model is asked, made from word lists.

    rules  "Use only the notes and nothing else."      how to answer
    notes  "Ada likes soup." "One windy day ..."       facts, with story sentences between them
    gap    whole turns that tell stories               pushes the notes away from the question
    ask    "What does Ada like?" -> "Ada likes soup."

A fact pairs a subject with a value drawn at random, so nothing but the notes can tell the answer.
One pair in eight is held out: it never stood in a training document as a fact (it may stand
together in a story). Every fact of a case is such a pair.
"""

import random
import re
import zlib
from dataclasses import dataclass, replace

from kvlab.tiny import prompt
from kvlab.tiny.word_lists import (
    ANIMALS,
    CITIES,
    COLOURS,
    FEELINGS,
    FOODS,
    GAMES,
    GIRLS,
    JOBS,
    LANGUAGES,
    NAMES,
    NUMBERS,
    PLACES,
    RULES,
    STORY,
    STORY_REQUESTS,
    STORY_SLOTS,
    THINGS,
)


@dataclass(frozen=True)
class Relation:
    """A kind of fact. {s} stands for the subject, {v} for the value."""

    subjects: tuple[str, ...]
    values: tuple[str, ...]
    answer: str  # also how the notes state it
    other_wording: str  # how reworded notes state it
    question: str


# One word stands between subject and value. The model learned to bind these first.
NEAR = (
    Relation(NAMES, FOODS, "{s} likes {v}.", "{s} eats {v}.", "What does {s} like?"),
    Relation(NAMES, FEELINGS, "{s} feels {v}.", "{s} is {v}.", "How does {s} feel?"),
    Relation(NAMES, CITIES, "{s} visits {v}.", "{s} knows {v}.", "Which city does {s} visit?"),
    Relation(NAMES, GAMES, "{s} plays {v}.", "{s} loves {v}.", "What does {s} play?"),
    Relation(
        NAMES, LANGUAGES, "{s} speaks {v}.", "{s} learns {v}.", "Which language does {s} speak?"
    ),
    Relation(NAMES, NAMES, "{s} helps {v}.", "{s} meets {v}.", "Who does {s} help?"),
    Relation(NAMES, COLOURS, "{s} wears {v}.", "{s} chose {v}.", "Which colour does {s} wear?"),
    Relation(
        NAMES,
        NUMBERS,
        "{s} has {v} coins.",
        "{s} found {v} coins.",
        "How many coins does {s} have?",
    ),
    Relation(THINGS, COLOURS, "The {s} is {v}.", "The {s} looks {v}.", "What colour is the {s}?"),
    Relation(
        THINGS,
        NUMBERS,
        "The {s} costs {v} coins.",
        "The {s} was {v} coins.",
        "How much is the {s}?",
    ),
)
# Two to four words stand between them.
FAR = (
    Relation(NAMES, JOBS, "{s} is a {v}.", "The job of {s} is {v}.", "What is the job of {s}?"),
    Relation(NAMES, PLACES, "{s} is in the {v}.", "You can find {s} in the {v}.", "Where is {s}?"),
    Relation(
        NAMES, ANIMALS, "{s} has a pet {v}.", "The pet of {s} is a {v}.", "What pet does {s} have?"
    ),
    Relation(
        THINGS,
        PLACES,
        "The {s} is in the {v}.",
        "You can find the {s} in the {v}.",
        "Where is the {s}?",
    ),
    Relation(
        THINGS,
        NAMES,
        "The {s} belongs to {v}.",
        "The owner of the {s} is {v}.",
        "Who owns the {s}?",
    ),
)
RELATIONS = NEAR + FAR


@dataclass(frozen=True)
class Fact:
    """One line of the notes and the question that it answers."""

    relation: Relation
    subject: str
    value: str
    reworded: bool = False  # stated in other words than the answer

    @property
    def statement(self) -> str:
        return self._fill(self.relation.other_wording) if self.reworded else self.answer

    @property
    def question(self) -> str:
        return self._fill(self.relation.question)

    @property
    def answer(self) -> str:
        return self._fill(self.relation.answer)

    def _fill(self, sentence: str) -> str:
        return sentence.format(s=self.subject, v=self.value)


@dataclass(frozen=True)
class Case:
    """A prompt and its one right answer.

    statement: the sentence of the notes that holds the answer. answer: what the model should say,
    without the space in front of it and the end mark behind it.
    """

    prompt: str
    answer: str
    statement: str
    question: str
    subject: str
    value: str
    notes: str


def is_held_out(subject: str, value: str) -> bool:
    """One pair in eight, kept out of the training documents."""
    return zlib.crc32(f"{subject}/{value}".encode()) % 8 == 0


def num_tokens(text: str) -> int:
    """Tokens of a text in the model's language: each word, sign and tag is one."""
    return len(re.findall(r"<\|\w+\|>|\w+|[.,?]", text))


# ---- documents


def facts(
    rng: random.Random, count: int, *, held_out: bool = True, reworded: float = 0, far: float = 0.25
) -> list[Fact]:
    """Facts that do not contradict each other: a relation has each subject at most once.

    Half of them repeat the relation of the one before, and some its subject, so that neither the
    kind of value nor the name alone finds an answer. reworded, far: shares of the facts.
    """
    found: list[Fact] = []
    used: set[tuple[Relation, str]] = set()
    relation, last = None, ""
    while len(found) < count:
        if relation is None or rng.random() < 0.5:
            relation = rng.choice(FAR if rng.random() < far else NEAR)
        repeats = last in relation.subjects and rng.random() < 0.3
        subject = last if repeats else rng.choice(relation.subjects)
        value = rng.choice(relation.values)
        fits = subject != value and is_held_out(subject, value) == held_out
        if not fits or (relation, subject) in used:
            last = ""
            continue
        used.add((relation, subject))
        last = subject
        found.append(Fact(relation, subject, value, rng.random() < reworded))
    return found


def story(rng: random.Random, **settled: str) -> list[str]:
    """Sentences of a short story. settled: slots with a given word (hero, colour, thing, place)."""
    words = {slot: rng.choice(choices) for slot, choices in STORY_SLOTS.items()} | settled
    words["friend"] = rng.choice([name for name in NAMES if name != words["hero"]])
    words["elsewhere"] = rng.choice([place for place in PLACES if place != words["place"]])
    pronouns = ("She", "her", "her") if words["hero"] in GIRLS else ("He", "his", "him")
    words |= zip(("He", "his", "him"), pronouns, strict=True)
    words["he"] = words["He"].lower()
    return [text for row in STORY if (text := rng.choice(row).format(**words))]


def story_turns(rng: random.Random) -> str:
    """A user asks for a story, the assistant tells it."""
    words = {slot: rng.choice(STORY_SLOTS[slot]) for slot in ("hero", "colour", "thing", "place")}
    request = rng.choice(STORY_REQUESTS).format(**words)
    return _turn("user", request) + _turn("assistant", " ".join(story(rng, **words)))


def _turn(role: str, text: str) -> str:
    return f"<|{role}|> {text}<|end|>"


# ---- cases


def cases(
    count: int,
    num_facts: int,
    seed: int,
    gap: int = 0,
    *,
    reworded: float = 0,
    far: float = 0.25,
    num_sentences: int = 5,
    num_rules: tuple[int, int] = (4, 8),
    in_question: float = 0.5,
) -> list[Case]:
    """Cases of one kind. The first ones of a seed are the same for every count.

    num_facts: facts in the notes, one of which is asked for; the model was trained on 1 to 8.
    gap: tokens of stories between notes and question, at least. reworded, far: shares of facts
    stated in other words than the answer's, and of relations with more words in between.
    num_sentences: sentences of a story among the facts. num_rules: fewest and most rules.
    in_question: share of cases whose notes stand with the question instead of the rules; none
    with a gap. Raises ValueError for a count that cannot be.
    """
    if not 1 <= num_facts <= 64:
        raise ValueError(f"num_facts is {num_facts}; give 1 to 64")
    if count < 0 or gap < 0:
        raise ValueError(f"count is {count} and gap is {gap}; neither can be negative")
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        lines = facts(rng, num_facts, reworded=reworded, far=far)
        asked = rng.choice(lines)
        notes = _notes(rng, lines, num_sentences)
        rules = " ".join(rng.sample(RULES, rng.randint(*num_rules)))
        with_question = rng.random() < in_question and not gap
        text = _prompt(rng, rules, notes, asked.question, gap, with_question)
        found.append(
            Case(
                text,
                asked.answer,
                asked.statement,
                asked.question,
                asked.subject,
                asked.value,
                notes,
            )
        )
    return found


def _notes(rng: random.Random, lines: list[Fact], num_sentences: int) -> str:
    """The facts in random order with the beginning of a story scattered among them."""
    notes = [fact.statement for fact in rng.sample(lines, len(lines))]
    for sentence in story(rng)[:num_sentences]:
        notes.insert(rng.randint(0, len(notes)), sentence)
    return " ".join(notes)


def _prompt(
    rng: random.Random, rules: str, notes: str, question: str, gap: int, with_question: bool
) -> str:
    if with_question:
        return prompt("", f"{notes} {question}", rules)
    told = ""
    while num_tokens(told) < gap:
        told += story_turns(rng)
    head, mark, ask = prompt(notes, question, rules).rpartition("<|user|>")
    return head + told + mark + ask


def other_request(case: Case) -> Case:
    """The same prompt with another value in the asked fact: what another user might send.

    The value is of the same kind and stands nowhere in the first prompt; one word is one token,
    so every position keeps its number. Raises ValueError for a statement of no relation here.
    """
    same = [Fact(r, case.subject, case.value, other) for r in RELATIONS for other in (False, True)]
    asked = (case.statement, case.question)
    was = next((fact for fact in same if (fact.statement, fact.question) == asked), None)
    if was is None:
        raise ValueError(f"{case.statement!r} with {case.question!r} is no fact of RELATIONS")
    taken = re.findall(r"\w+", case.prompt)
    values = [value for value in was.relation.values if value not in taken]
    now = replace(was, value=random.Random(case.prompt).choice(values))
    return replace(
        case,
        prompt=case.prompt.replace(was.statement, now.statement, 1),
        answer=now.answer,
        statement=now.statement,
        value=now.value,
        notes=case.notes.replace(was.statement, now.statement, 1),
    )
