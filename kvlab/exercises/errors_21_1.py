"""Find the error: answers of wrong calculators, whose mistake the reader names. Section 21.1."""

from kvlab.exercises.calculators_21_1 import (
    CALCULATORS,
    GUESSED,
    KEYS_ONLY,
    LENGTH,
    MISTAKES,
    MODELS,
    ONE_LAYER,
    QUERY_HEADS,
    WINDOWS,
    mistake_behind,
    right,
)
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.kinds import Choice

_PAGE = (
    "A public calculator was asked what one request of {length:,} positions takes in {title}, at 2 "
    "bytes a number. Of its config.json: {keys}. It answered {said:,} bytes; its user found "
    "{right:,} in use. Which mistake gives the wrong answer?"
)


def _find_the_error(
    number: int, name: str, shown: tuple[str, ...], letter: str, length: int,
    hints: tuple[str, str, str], says: dict[str, str], why: str,
) -> Exercise:  # fmt: skip
    config = MODELS[name]
    said = CALCULATORS[letter](config, length)
    keys = ", ".join(f"{key} {config[key]:,}" for key in shown)
    return Exercise(
        id=f"21.1-{number}",
        question=_PAGE.format(
            length=length, title=name, keys=keys, said=said,
            right=right(config, length),
        ),
        kind=Choice(MISTAKES),
        run=lambda: mistake_behind(name, said, length),
        hints=hints,
        mistakes=tuple(Mistake(text, lambda given=given: given) for given, text in says.items()),
        why=why,
    )  # fmt: skip


WRONG_WIDTH = _find_the_error(
    7,
    "Qwen3 32B",
    ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    GUESSED,
    8192,
    (
        "Divide what is in use by what was answered. Which of the numbers shown could be wrong by "
        "this factor?",
        "Work out eq 21.2 once with every key as it stands. Which number of it does the calculator "
        "not read, but make up?",
        "hidden_size / num_attention_heads is 80. The configuration says how wide a head is.",
    ),
    {
        KEYS_ONLY: "That would be half of what is in use; the answer is five eighths of it.",
        QUERY_HEADS: "That would make the answer too large, and it is too small.",
        WINDOWS: "This model has no windows.",
        ONE_LAYER: "One of 64 layers is a small part; three eighths are missing.",
    },
    "head_dim is a key of its own: 128 here, where hidden_size / heads is 80.",
)
WRONG_HEADS = _find_the_error(
    8,
    "Llama 3.1 70B",
    ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"),
    QUERY_HEADS,
    8192,
    (
        "Divide what was answered by what is in use. Two of the numbers shown have this ratio.",
        "What do eight query heads of this model have in common?",
        "Keys and values are kept for each KV head, 8 of them; the answer counts 64.",
    ),
    {
        GUESSED: "hidden_size / heads is 128, the width that a head really has.",
        WINDOWS: "This model has no windows.",
        KEYS_ONLY: "That would make the answer too small, and it is too large.",
        ONE_LAYER: "That would make the answer too small, and it is too large.",
    },
    "Eight query heads read one KV head (GQA), and it is stored once.",
)
WRONG_WINDOWS = _find_the_error(
    9, "Gemma 3 27B",
    ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
     "sliding_window", "sliding_window_pattern"),
    WINDOWS, LENGTH,
    (
        "The ratio is no whole number, so no single factor of eq 21.2 was exchanged.",
        "Every sixth layer reads the whole context. What do the other 52 keep of it?",
        "A window of 1,024 keeps at most 1,024 positions; the answer charges 131,072 for it.",
    ),
    {
        QUERY_HEADS: "32 query heads for 16 KV heads would be a factor of 2; it is almost 6.",
        GUESSED: "hidden_size / heads is 168, and 168 / 128 is no factor of almost 6.",
        KEYS_ONLY: "That would make the answer too small, and it is too large.",
        ONE_LAYER: "That would make the answer too small, and it is too large.",
    },
    "52 of 62 layers keep the last 1,024 positions; only 10 keep all of them.",
)  # fmt: skip

FIND_THE_ERROR = (WRONG_WIDTH, WRONG_HEADS, WRONG_WINDOWS)
