"""The embedded model: a small Llama-layout decoder that answers from the notes in its prompt.

It knows about 700 words, one token each. Any other word falls into bytes that it never learned;
`notice` says so before a reader wonders about the answer.
"""

import difflib
import functools
import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PUNCTUATION = frozenset(".,?")


def prompt(notes: str, question: str, rules: str = "Answer in one short sentence.") -> str:
    """The layout the model was trained on: rules and notes, then one question."""
    system = " ".join(part for part in (rules, notes) if part)
    head = f"<|system|> {system}<|end|>" if system else ""
    return f"<|endoftext|>{head}<|user|> {question}<|end|><|assistant|>"


def as_prompt(text: str) -> str:
    """Plain text becomes a user's turn; a text with tags is left as it is."""
    return text if "<|" in text else prompt("", text, rules="")


@functools.cache
def words() -> tuple[str, ...]:
    """Every word that is one token, in alphabetical order."""
    vocab = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return tuple(sorted(token[1:] for token in vocab if token[0] == "\u0120" and len(token) > 1))


def unknown_words(text: str) -> list[str]:
    """Words and signs of a text that the model never learned, in order, each once."""
    parts = re.findall(r"[^\W_]+|[^\w\s]|_", re.sub(r"<\|\w+\|>", " ", text))
    known = frozenset(words()) | PUNCTUATION
    return list(dict.fromkeys(part for part in parts if part not in known))


def notice(text: str) -> str | None:
    """A sentence about words the model never learned, with near ones that it did; else None."""
    unknown = unknown_words(text)
    if not unknown:
        return None
    near = {w: difflib.get_close_matches(w, words(), n=1, cutoff=0.6) for w in unknown[:5]}
    hints = ", ".join(f"{w!r} (try {m[0]!r})" if m else repr(w) for w, m in near.items())
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    return f"The tiny model never learned {hints}{more}; do not trust the answer. kvlab.tiny.words() lists the {len(words())} words it knows."
