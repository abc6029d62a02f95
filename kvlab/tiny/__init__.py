"""The embedded model: a small Llama-layout decoder that answers from the notes in its prompt.

It knows about 700 words, one token each. Any other word falls into bytes that it never learned;
`notice` says so before a reader wonders about the answer.
"""

import difflib
import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FOLDER = Path(__file__).parent
SHORT_ANSWERS = FOLDER / "short_answers"  # a LoRA adapter that answers in one word
PUNCTUATION = ".,?"
BYTES = range(5, 261)  # token ids of single bytes; all but the punctuation are untrained


def prompt(notes: str, question: str, rules: str = "Answer in one short sentence.") -> str:
    """The layout the model was trained on: rules and notes, then one question.

    Line breaks and doubled spaces become single spaces. Raises ValueError without a question.
    """
    system, question = " ".join(f"{rules} {notes}".split()), " ".join(question.split())
    if not question:
        raise ValueError("the question is empty; type one, for example 'What does Ada like?'")
    head = f"<|system|> {system}<|end|>" if system else ""
    return f"<|endoftext|>{head}<|user|> {question}<|end|><|assistant|>"


def as_prompt(text: str) -> str:
    """Plain text becomes a user's turn; a text with tags is left as it is."""
    return text if "<|" in text else prompt("", text, rules="")


def examples() -> list[tuple[str, str]]:
    """One fact and its question for each of the forms that the model was trained on."""
    from kvlab.tiny.corpus import RELATIONS

    return [
        (r.answer.format(s=r.subjects[0], v=r.values[1]), r.question.format(s=r.subjects[0]))
        for r in RELATIONS
    ]


def is_trained_question(text: str) -> bool:
    """Whether a user's turn ends in a question, or a wish for a story, of a trained form."""
    from kvlab.tiny.corpus import RELATIONS

    if re.search(r"(^|[.?] )(Tell me|I want to hear) [^.?]*\.$", text):
        return True
    forms = (re.escape(r.question).replace(r"\{s\}", r"\w+") for r in RELATIONS)
    return any(re.search(rf"(^|[.?] ){form}$", text) for form in forms)


@functools.cache
def words() -> tuple[str, ...]:
    """Every word that is one token, in alphabetical order."""
    vocab = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return tuple(sorted(token[1:] for token in vocab if token[0] == "\u0120" and len(token) > 1))


@functools.cache
def _tokenizer() -> "Tokenizer":
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def unknown_words(text: str) -> list[str]:
    """Pieces of a text that the model never learned, in order, each once.

    They are what the tokenizer turns into single bytes, full stop, comma and question mark apart:
    words outside its vocabulary, other signs, line breaks, doubled spaces, words without a space.
    """
    encoding = _tokenizer().encode(text)
    learned = {_tokenizer().token_to_id(sign) for sign in PUNCTUATION}
    spans: list[list[int]] = []
    for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if token not in BYTES or token in learned:
            continue
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(end, spans[-1][1])
        else:
            spans.append([start, end])
    pieces = (text[start:end] for start, end in spans)
    return list(dict.fromkeys(piece.strip() or piece for piece in pieces))


def notice(text: str) -> str | None:
    """What a reader should know before trusting the answer to a prompt; None if nothing.

    Words the model never learned, with near ones that it did; or a question of no trained form.
    """
    if unknown := unknown_words(text):
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        hints = ", ".join(_hint(word) for word in unknown[:5])
        return (
            f"The tiny model never learned {hints}{more}; do not trust the answer. "
            f"kvlab.tiny.words() lists the {len(words())} words it knows."
        )
    turns = re.findall(r"<\|user\|> (.*?)<\|end\|>", text)
    if turns and not is_trained_question(turns[-1]):
        return (
            "The words are known, but the question has none of the forms that the tiny model was "
            "trained on; do not trust the answer. kvlab.tiny.examples() shows all forms."
        )
    return None


def _hint(word: str) -> str:
    shown = repr(word if len(word) <= 20 else word[:20] + "…")
    if word in words():
        return f"{shown} (put one space before it)"
    near = difflib.get_close_matches(word[:40], words(), n=1, cutoff=0.75)
    return f"{shown} (try {near[0]!r})" if near else shown
