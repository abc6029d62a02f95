"""Which words the documents need, and how a tokenizer and a model learn of new ones.

A word is one token. New words get ids after all others, so every id keeps its meaning.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from kvlab.tensors.model import Decoder
from kvlab.tiny import documents
from kvlab.tiny.corpus import RELATIONS
from kvlab.tiny.word_lists import (
    CHAPTER_RULES,
    CHAPTER_SENTENCES,
    DRILL_LINKS,
    DRILL_WORDS,
    RULES,
    STORY,
    STORY_REQUESTS,
    STORY_SLOTS,
)

NUM_SPECIAL = 261  # tags and bytes; words come after


def needed_words() -> list[str]:
    """Every word that a training document can hold, each once, in order of first mention."""
    sentences = [*RULES, *(s for row in STORY for s in row), *STORY_REQUESTS]
    sentences += [text for r in RELATIONS for text in (r.answer, r.other_wording, r.question)]
    sentences += [*(s for rules in CHAPTER_RULES for s in rules), *CHAPTER_SENTENCES]
    sentences += [documents.NOT_SAID, documents.READ, documents.HAVE_READ, "Say She He her his him"]
    lists = [DRILL_WORDS, DRILL_LINKS, *STORY_SLOTS.values()]
    plain = (re.sub(r"\{\w+\}", " ", sentence) for sentence in sentences)
    words = [word for words in lists for word in words]
    words += [word for text in plain for word in re.findall(r"\w+", text)]
    return list(dict.fromkeys(words))


def missing_words(folder: str | Path) -> list[str]:
    """Needed words that are no token of the folder's tokenizer.json.

    Raises ValueError for a tokenizer that is not one of whole words.
    """
    vocab = _read(folder)["model"]["vocab"]
    return [word for word in needed_words() if f"\u0120{word}" not in vocab]


def write_tokenizer(source: str | Path, folder: str | Path, words: Sequence[str]) -> None:
    """Copy the source's tokenizer.json into a folder with these words appended."""
    data = _read(source)
    vocab = data["model"]["vocab"]
    for word in words:
        vocab.setdefault(f"\u0120{word}", len(vocab))
    text = json.dumps(data, indent=2, ensure_ascii=False)
    (Path(folder) / "tokenizer.json").write_text(text, encoding="utf-8")


def _read(folder: str | Path) -> dict:
    path = Path(folder) / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    model = data.get("model", {})
    if model.get("type") != "BPE" or model.get("merges") or not isinstance(model["vocab"], dict):
        raise ValueError(
            f"{path} is no tokenizer of whole words; start from the tiny model ('shipped') or a "
            "folder that was trained from it"
        )
    return data


@torch.no_grad()
def with_new_words(model: Decoder, count: int, seed: int = 0) -> Decoder:
    """A decoder with `count` more ids; the logits of all others stay what they were.

    A new row of the embedding starts near the mean of all words, half as far from it as they
    are: neither likelier than others to be said nor like any one of them.
    """
    generator = torch.Generator().manual_seed(seed)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name in ("embed_tokens.weight", "lm_head.weight"):
        words = state[name][NUM_SPECIAL:]
        noise = torch.randn(count, words.shape[1], generator=generator).to(words)
        rows = words.mean(dim=0) + 0.5 * words.std(dim=0) * noise
        state[name] = torch.cat((state[name], rows))
    wider = Decoder(replace(model.config, vocab_size=model.config.vocab_size + count))
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["embed_tokens.weight"]
    wider.load_state_dict(state, strict=True, assign=True)
    if model.config.tie_word_embeddings:
        wider.lm_head.weight = wider.embed_tokens.weight
    return wider.to(model.device).ready()
