"""What a reader sets in the timer: device, model, sizes and seconds."""

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from kvlab.measure import devices
from kvlab.measure.roofline_records import DECODE, PREFILL, Case
from kvlab.widgets.controls import Choice, Control, Steps, TextLine

LENGTHS = (16, 64, 256, 512)
BATCHES = (1, 4, 16)
CONTEXT = 512
SECONDS = (5, 10, 20, 30, 60, 120)
MOST_SIZES = 12
RANDOM, TINY = "random, 50M weights", "tiny, the embedded"
HERE = "a device of this machine"  # in the form that is compared, in place of devices' names


def controls(
    models: Sequence[str],
    device: str | None,
    lengths: object,
    batches: object,
    context: int,
    seconds: float,
) -> list[Control]:
    """With their first values. models: what can be chosen, the first one is chosen."""
    chosen = devices.default_device() if device is None else str(devices.checked_device(device))
    offered = devices.names()
    return [
        Choice("device", "Device", chosen, tuple(dict.fromkeys((*offered, chosen)))),
        Choice("model", "Model", models[0], tuple(models)),
        TextLine("lengths", "Prompt lengths (P)", sizes_text("lengths", lengths)),
        TextLine("batches", "Batch sizes (D)", sizes_text("batches", batches)),
        TextLine("context", "Context (D)", sizes_text("context", context)),
        Steps("seconds", "Seconds", seconds, tuple(sorted({*SECONDS, seconds}))),
    ]


def cases(inputs: Mapping[str, object]) -> list[Case]:
    """Both phases in turn, small ones first, so that a run cut short shows both."""
    contexts = sizes("context", inputs["context"])
    prefills = [Case(PREFILL, 1, length) for length in sizes("lengths", inputs["lengths"])]
    decodes = [Case(DECODE, b, c) for c in contexts for b in sizes("batches", inputs["batches"])]
    if not prefills and not decodes:
        raise ValueError("no lengths and no batches; give at least one, such as 64")
    pairs = zip_longest(prefills, decodes)
    return [case for pair in pairs for case in pair if case is not None]


def sizes(name: str, text: str) -> list[int]:
    """sizes("batches", "4, 1 16") == [1, 4, 16]. Raises ValueError for anything else."""
    words = re.split(r"[,;\s]+", text.strip())
    words = [word for word in words if word]
    for word in words:
        if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) < 1:
            raise ValueError(f"{name} has {word!r}; give whole numbers from 1, such as 16, 64")
    found = sorted({int(word) for word in words})
    if len(found) > MOST_SIZES:
        raise ValueError(f"{name} has {len(found)} sizes; give at most {MOST_SIZES}")
    return found


def sizes_text(name: str, given: object) -> str:
    """The text of a field: of numbers, of one number, or as it is."""
    if isinstance(given, str):
        text = given
    elif isinstance(given, Sequence):
        text = ", ".join(map(str, given))
    else:
        text = str(given)
    sizes(name, text)
    return text
