"""Training documents for the tiny model, made on the fly from word lists.

    notes    rules, notes, questions, often several blocks      reading facts
    chat     the same with stories between notes and question   distance
    story    a request and a story                              language
    drill    a list to copy, pairs to complete                  binding: what followed this word?

A fact pairs a subject with a value at random and is never a held-out pair (`corpus`). Some
questions ask for what the notes do not say.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.tiny.corpus import (
    FAR,
    NEAR,
    RELATIONS,
    Fact,
    Relation,
    is_held_out,
    num_tokens,
    story,
    story_turns,
)
from kvlab.tiny.word_lists import CHAPTER_RULES, CHAPTER_SENTENCES, DRILL_LINKS, DRILL_WORDS, RULES

NOT_SAID = "The notes do not say."
READ, HAVE_READ = "Read the notes.", "I have read the notes."
SHORTEST = 64  # tokens: a document must have room for rules, notes and a question
QUESTION = 16  # tokens of the longest question with its answer and tags


@dataclass(frozen=True)
class Mix:
    """Shares of kinds of documents, and of what stands in them. The rest are stories.

    drills come off first; notes and chat share what is left. max_facts: facts in one block of
    notes. reworded: facts in other words than the answer's. far: relations with more words
    between subject and value. crowded: notes with many facts about one or two subjects. absent:
    questions for what the notes do not say. chapter: notes or rules with a sentence of the
    book's own examples.
    """

    notes: float = 0.45
    chat: float = 0.35
    drills: float = 0.0
    max_facts: int = 8
    reworded: float = 0.15
    far: float = 0.25
    crowded: float = 0.0
    absent: float = 0.0
    chapter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("notes", "chat", "drills", "reworded", "far", "crowded", "absent", "chapter"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; a share is from 0 to 1")
        if self.notes + self.chat > 1:
            raise ValueError(f"notes {self.notes} and chat {self.chat} are more than 1 together")
        if not 1 <= self.max_facts <= 64:
            raise ValueError(f"max_facts is {self.max_facts!r}; give 1 to 64")


def document(rng: random.Random, length: int, mix: Mix) -> str:
    """One document of at most `length` tokens. Raises ValueError for a length below 64."""
    if length < SHORTEST:
        raise ValueError(f"length is {length}; a document needs at least {SHORTEST} tokens")
    while True:
        page = _Page(length)
        kind = rng.random()
        if rng.random() < mix.drills:
            (_copy_drill if kind < 0.3 else _pair_drill)(rng, page, mix)
        elif kind < mix.notes + mix.chat:
            _notes(rng, page, mix, told=0.7 if kind >= mix.notes else 0.0)
        else:
            _stories(rng, page, mix)
        if "<|assistant|>" in page.text:  # a few notes are too long for a short page: draw again
            return page.text


class _Page:
    """A document that grows turn by turn and never past its length."""

    def __init__(self, length: int) -> None:
        self.text, self.length = "<|endoftext|>", length
        self.room = length - 1  # tokens

    def add(self, *turns: str) -> bool:
        """Append these turns if all of them fit; whether they did."""
        size = sum(map(num_tokens, turns))
        if size > self.room:
            return False
        self.text += "".join(turns)
        self.room -= size
        return True


def _turn(role: str, text: str) -> str:
    return f"<|{role}|> {text}<|end|>"


def _exchange(question: str, answer: str) -> tuple[str, str]:
    return _turn("user", question), _turn("assistant", answer)


# ---- notes and questions


def _notes(rng: random.Random, page: _Page, mix: Mix, told: float) -> None:
    """Blocks of notes and questions until the page is full. told: share of blocks that stories
    separate from their questions."""
    stated: set[tuple[Relation, str]] = set()
    rules = _rules(rng, page, mix) if rng.random() < 0.5 else ""
    in_system = bool(rules) or rng.random() < 0.5  # where the first notes stand
    while page.room > 2 * QUESTION:
        lines = _facts(rng, mix, stated)
        notes = _lines(rng, lines, mix)
        if in_system:
            if (head := f"{rules} {notes}".strip()) and not page.add(_turn("system", head)):
                return
            rules = notes = ""
            in_system = False
        if rng.random() < told:
            notes = _tell(rng, page, notes)
        if not _ask(rng, page, lines, notes, mix):
            return


def _tell(rng: random.Random, page: _Page, notes: str) -> str:
    """Stories after the notes, filling a random part of the page. Returns notes not yet given."""
    if notes and page.add(*_exchange(f"{notes} {READ}", HAVE_READ)):
        notes = ""
    left = page.room - rng.randint(40, max(41, page.room - 60))
    room_for_questions = 2 * QUESTION + num_tokens(notes)
    while page.room > left:
        told = story_turns(rng)
        if num_tokens(told) > page.room - room_for_questions:
            break
        page.add(told)
    return notes


def _ask(rng: random.Random, page: _Page, lines: list[Fact], notes: str, mix: Mix) -> bool:
    """Each fact is asked at most once, in random order. False: the page is full."""
    asked = [(fact.question, fact.answer) for fact in rng.sample(lines, len(lines))]
    for i in range(max(len(asked), 1)):
        if rng.random() < mix.absent or not lines:
            text = f"{page.text} {notes}"
            asked.insert(rng.randint(0, i), (absent_question(rng, text, lines), NOT_SAID))
    for question, answer in asked:
        if not page.add(*_exchange(f"{notes} {question}".strip(), answer)):
            return False
        notes = ""
    return True


def absent_question(rng: random.Random, text: str, lines: Sequence[Fact] = ()) -> str:
    """A question that a text does not answer. Most of them come near one of the facts: its kind
    of question with another subject (two in five), or its subject with another kind."""
    while True:
        relation, near = rng.choice(RELATIONS), rng.choice(lines) if lines else None
        same_kind = rng.random() < 0.4
        if near and same_kind:
            relation = near.relation
        subject = rng.choice(relation.subjects)
        if near and not same_kind and near.subject in relation.subjects:
            subject = near.subject
        if not _might_say(text, relation, subject):
            return relation.question.format(s=subject)


def _might_say(text: str, relation: Relation, subject: str) -> bool:
    """Whether some sentence has the subject beside a value of the kind that is asked for."""
    values = set(relation.values) - {subject}
    sentences = (re.findall(r"\w+", sentence) for sentence in re.split(r"[.?>]", text))
    return any(subject in words and not values.isdisjoint(words) for words in sentences)


def _facts(rng: random.Random, mix: Mix, stated: set[tuple[Relation, str]]) -> list[Fact]:
    """Facts of one block, none of them a held-out pair; `stated` grows, so that no later block
    of the page contradicts one. How often a fact repeats the relation before it varies: notes of
    one relation alone can be told apart by their subjects only, and notes about one or two
    subjects by their relations only."""
    if rng.random() < mix.absent / 2:
        return []
    count = rng.randint(1, mix.max_facts) if rng.random() < 0.5 else mix.max_facts
    repeats, cast = rng.choice((0.2, 0.5, 0.9)), ()
    if rng.random() < mix.crowded:
        repeats, cast = 0.1, [rng.choice(rng.choice(RELATIONS).subjects) for _ in range(2)]
    found: list[Fact] = []
    relation, last = None, ""
    while len(found) < count:
        if relation is None or rng.random() > repeats:
            relation = rng.choice(FAR if rng.random() < mix.far else NEAR)
        again = last in relation.subjects and rng.random() < 0.3
        known = [subject for subject in cast if subject in relation.subjects]
        subject = last if again else rng.choice(known or relation.subjects)
        value, last = rng.choice(relation.values), ""
        if (relation, subject) in stated or subject == value or is_held_out(subject, value):
            continue
        stated.add((relation, subject))
        last = subject
        found.append(Fact(relation, subject, value, rng.random() < mix.reworded))
    return found


def _lines(rng: random.Random, lines: list[Fact], mix: Mix) -> str:
    """The facts in random order, some with sentences of a story among them."""
    notes = [fact.statement for fact in rng.sample(lines, len(lines))]
    sentences = story(rng)[: rng.randint(1, 6)] if rng.random() < 0.3 else []
    if rng.random() < mix.chapter:
        sentences.append(rng.choice(CHAPTER_SENTENCES))
    for sentence in sentences:
        notes.insert(rng.randint(0, len(notes)), sentence)
    return " ".join(notes)


def _rules(rng: random.Random, page: _Page, mix: Mix) -> str:
    rules = rng.sample(RULES, rng.randint(1, 9 if page.length > 200 else 4))
    if rng.random() < mix.chapter:
        rules = [*rng.choice(CHAPTER_RULES), *rules[2:]]
    return " ".join(rules)


# ---- stories


def _stories(rng: random.Random, page: _Page, mix: Mix) -> None:
    if rng.random() < 0.5:
        page.add(_turn("system", " ".join(rng.sample(RULES, rng.randint(1, 5)))))
    while page.room > 24 and page.add(_chapter_story(rng, mix)):
        pass


def _chapter_story(rng: random.Random, mix: Mix) -> str:
    """A request and a story; now and then the story has a sentence of the book's examples."""
    told = story_turns(rng)
    if rng.random() < mix.chapter:
        head, stop, rest = told.partition(". ")
        head, stop, rest = told.rpartition(". ") if rng.random() < 0.5 else (head, stop, rest)
        told = f"{head}. {rng.choice(CHAPTER_SENTENCES)} {rest}"
    return told


# ---- drills


def _copy_drill(rng: random.Random, page: _Page, mix: Mix) -> None:
    """A list of words; each turn gives one of them and the assistant says the list from there."""
    while page.room > 24:
        words = rng.sample(DRILL_WORDS, rng.randint(4, 12))
        given = " ".join(words) + ". "
        for _ in range(rng.randint(1, 5)):
            i = rng.randrange(len(words) - 1)
            if not page.add(*_exchange(given + words[i], " ".join(words[i:]) + ".")):
                return
            given = ""


def _pair_drill(rng: random.Random, page: _Page, mix: Mix) -> None:
    """Random pairs joined by the same few words; the first word of a pair asks for the rest.

    0 to 3 words in between, and an answer with or without them: what is looked for never stands
    at one fixed distance. A drill can read like a fact, so held-out pairs stay out here too.
    """
    while page.room > 24:
        count = rng.randint(2, max(2, mix.max_facts))
        drawn = zip(*(rng.sample(DRILL_WORDS, count) for _ in range(2)), strict=True)
        pairs = [(key, value) for key, value in drawn if not is_held_out(key, value)]
        between = rng.choices(DRILL_LINKS, k=rng.choice((0, 0, 1, 1, 2, 3)))
        link = " ".join(["", *between, ""])
        short = rng.random() < 0.5
        given = "".join(f"{key}{link}{value}. " for key, value in pairs)
        for key, value in rng.sample(pairs, len(pairs)):
            long = (f"Say {key}", f"{key}{link}{value}.")
            question, answer = (key, f"{value}.") if short else long
            if not page.add(*_exchange(given + question, answer)):
                return
            given = ""
