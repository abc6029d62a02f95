"""A live editor for prefix reuse: edit a token, and see which blocks stop matching."""

from collections.abc import Mapping, Sequence

from kvlab.llm import LLM
from kvlab.widgets.controls import Steps, TextArea
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.prefix_data import PrefixRow
from kvlab.widgets.prefix_run import NAMES, checked_salts, prefix_rows, serve
from kvlab.widgets.prefix_story import prefix_payload
from kvlab.widgets.prefix_words import lines

BLOCK_SIZES = (1, 2, 4, 8, 16)
LONGEST_SALT = 40  # characters
# Three blocks of four words the tiny model knows, and a partly filled one.
PONY = "A gentle pony walked and the young child laughed in the meadow again."
IN_3, IN_2 = PONY.replace("meadow", "garden"), PONY.replace("young", "clever")
BREEZE = "a gentle breeze stirred the leaves as children laughed in the distance"
TIME = "The time is {}."
WHOLE = PONY.removesuffix(" again.")
PROMPTS = (PONY, IN_3, IN_2)


def _preset(*prompts: str, salts: Sequence[str] = ("", "", "")) -> dict:
    """Values of all controls."""
    texts = (*prompts, "", "")[:3]
    return {**_inputs(texts, salts), "block_size": 4}


def _inputs(prompts: Sequence[str], salts: Sequence[str]) -> dict:
    pairs = zip(NAMES.lower(), prompts, salts, strict=False)
    return {
        key: text
        for name, prompt, salt in pairs
        for key, text in ((f"prompt_{name}", prompt), (f"salt_{name}", salt))
    }


PRESETS = {
    "an edit in block 3 (B) and in block 2 (C)": _preset(*PROMPTS),
    "edit block 3": _preset(PONY, IN_3),
    "edit block 2": _preset(PONY, IN_2),
    "timestamp first": _preset(*(f"{TIME.format(hour)} {PONY}" for hour in (10, 11))),
    "timestamp last": _preset(*(f"{PONY} {TIME.format(hour)}" for hour in (10, 11))),
    "same words, other spacing (B), in a template (C)": _preset(
        PONY, PONY.replace("pony ", "pony  "), f"<|user|> {PONY}<|end|>"
    ),
    "two groups (salts)": _preset(PONY, PONY, PONY, salts=("one", "two", "one")),
    "the whole prompt again (B), and a longer one (C)": _preset(WHOLE, WHOLE, PONY),
    "words that the tokenizer cuts into pieces": _preset(
        BREEZE, BREEZE.replace("in the", "in a"), BREEZE.replace("leaves", "loaves")
    ),
}


class PrefixBlocks(LiveEditor):
    """The editor, with what it shows as data."""

    llm: LLM

    @property
    def rows(self) -> tuple[PrefixRow, ...]:
        """One row a prompt for the last inputs that worked; see `prefix_rows`."""
        return prefix_rows(self.llm, *_served(self.inputs), self.inputs["block_size"])


def prefix_blocks(
    llm: LLM,
    prompts: Sequence[str] = PROMPTS,
    salts: Sequence[str | None] | None = None,
    block_size: int = 4,
) -> PrefixBlocks:
    """Two or three prompts as text, served one after the other, and each one's row of blocks.

    Controls: prompt_a, salt_a, prompt_b, ..., block_size. An empty last prompt of three is left
    out. Each update is a run of a new engine over the weights of `llm`, whose own blocks are left
    alone. Tags such as `<|user|>` in a text are special tokens. Raises ValueError for anything
    that does not fit. Section 21.4.
    """
    if not isinstance(prompts, list | tuple) or len(prompts) not in (2, 3):
        raise ValueError(f"prompts is {prompts!r}; give a list of two or three texts")
    salts = [salt or "" for salt in checked_salts(salts, len(prompts))]

    def compute(block_size: int, **inputs: str) -> dict:
        run = serve(llm, *_served(inputs), block_size)
        return {"lines": lines(run), "view": prefix_payload(run, len(prompts))}

    controls = [Steps("block_size", "Block size", block_size, BLOCK_SIZES)]
    for name, prompt, salt in zip(NAMES, prompts, salts, strict=False):
        controls.append(TextArea(f"prompt_{name.lower()}", f"Prompt {name}", prompt, rows=1))
        controls.append(TextArea(f"salt_{name.lower()}", "Salt", salt, rows=1))
    editor = PrefixBlocks(compute, controls, "Prefix blocks", _fitting(len(prompts)))
    editor.llm = llm
    return editor


def _fitting(count: int) -> dict[str, dict]:
    """The presets that need no more prompts than there are, with the controls that there are."""
    absent = [f"{what}_{name.lower()}" for what in ("prompt", "salt") for name in NAMES[count:3]]
    return {
        name: {key: value for key, value in given.items() if key not in absent}
        for name, given in PRESETS.items()
        if not any(given[key] for key in absent)
    }


def _served(inputs: Mapping) -> tuple[list[str], list[str]]:
    """Prompts and salts in order; an empty third prompt is left out."""
    names = [key[-1] for key in inputs if key.startswith("prompt_")]
    if len(names) == 3 and not inputs["prompt_c"]:
        names.pop()
    for name in names:
        if not inputs[f"prompt_{name}"].strip():
            raise ValueError(
                f"prompt {name.upper()} is empty; type a few words, such as {WHOLE[:20]!r}"
            )
        if len(salt := inputs[f"salt_{name}"]) > LONGEST_SALT:
            raise ValueError(
                f"salt {name.upper()} has {len(salt)} characters; give {LONGEST_SALT} at most"
            )
    return [inputs[f"prompt_{n}"] for n in names], [inputs[f"salt_{n}"] for n in names]
