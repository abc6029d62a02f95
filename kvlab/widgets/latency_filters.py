"""What a latency report can be filtered by: the values of labels, and ranges of prompt lengths."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvlab.core.latency_record import LatencyRecord
from kvlab.widgets.growth_words import count

MOST_CHOICES = 16  # values of labels; a label that brings more has no filter
QUARTERS = (25, 50, 75, 100)


class Choice(NamedTuple):
    """A filter's choice: its text, and whether it keeps a record."""

    text: str
    keeps: Callable[[LatencyRecord], bool]


EVERY = Choice("any", lambda record: True)


class Labels(NamedTuple):
    """choices: EVERY, then one for each value of each label. common: labels with one value that
    every record has, which filter nothing. crowded: labels with too many values for a filter.
    """

    choices: list[Choice]
    common: dict[str, str]
    crowded: list[str]


def label_choices(records: Sequence[LatencyRecord]) -> Labels:
    """What the records' labels offer."""
    found: dict[str, set[str | None]] = {}
    for name in {name for record in records for name in record.labels}:
        found[name] = {record.labels.get(name) for record in records}
    labels = Labels([EVERY], {}, [])
    for name, known in sorted(found.items()):
        values = sorted(known - {None})
        if len(known) == 1:
            labels.common[name] = values[0]
        elif len(labels.choices) + len(values) > MOST_CHOICES + 1:
            labels.crowded.append(name)
        else:
            labels.choices.extend(_labelled(name, value) for value in values)
    return labels


def _labelled(name: str, value: str) -> Choice:
    return Choice(f"{name}: {value}", lambda record: record.labels.get(name) == value)


def length_choices(records: Sequence[LatencyRecord]) -> list[Choice]:
    """EVERY, then up to four ranges of prompt lengths: each length where they are few, else
    quarters of the requests. One length alone needs no choice.
    """
    lengths = sorted(r.num_prompt_tokens for r in records if r.num_prompt_tokens is not None)
    tops = sorted(set(lengths))
    if len(tops) < 2:
        return [EVERY]
    choices, below = [EVERY], -1
    if len(tops) > len(QUARTERS):
        tops = sorted({lengths[(len(lengths) - 1) * percent // 100] for percent in QUARTERS})
    for top in tops:
        choices.append(_between(next(n for n in lengths if n > below), top))
        below = top
    return choices


def _between(low: int, top: int) -> Choice:
    text = f"{low:,} to {top:,} tokens" if low < top else count(top, "token")

    def keeps(record: LatencyRecord) -> bool:
        length = record.num_prompt_tokens
        return length is not None and low <= length <= top

    return Choice(text, keeps)
