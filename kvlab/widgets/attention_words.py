"""What one query reads, in words. static/attention_read.js has the same sentences.

A browser test holds the two against each other for every stop, layer and head. Weights are whole
ten-thousandths, None where they are NaN.
"""

from collections.abc import Mapping, Sequence

from kvlab.widgets.byte_tokens import byte_name
from kvlab.widgets.growth_words import count, visible

Weight = int | None
NAN = "NaN, not a number: where one score is NaN, the softmax makes every weight NaN"


def sentence(payload: Mapping, stop: Mapping, layer: int, head: int | None) -> str:
    """The whole text line of a stop, for one query head or for all (None)."""
    middle = all_heads if head is None else one_head
    parts = (stop["intro"], middle(payload, stop, layer, head), stop["outro"])
    return " ".join(part for part in parts if part)


def one_head(payload: Mapping, stop: Mapping, layer: int, head: int) -> str:
    """Where the weight of one query head goes."""
    columns, weights = payload["columns"], stop["weights"][str(layer)][head]
    keys = count(keys_read(columns, stop), "key")
    sums = f"The weights of its {keys} sum to {decimal(total(weights))}."
    told = f"its weights are {NAN}" if None in weights else _goals(columns, stop, weights)
    return f"Layer {layer}, query head {head} ({partners(payload['heads'], head)}): {told}. {sums}"


def _goals(columns: Sequence, stop: Mapping, weights: Sequence[int]) -> str:
    """The two largest weights of a head, its own key's, and the padding's."""
    own = stop["own"]
    first, *others = ranked(weights)
    others = [p for p in others if weights[p] >= 50]  # the rest would read 0.00
    share = "most of its weight" if weights[first] >= 5000 else "the largest weight"
    told = f"{share}, {decimal(weights[first])}, goes to {key(columns, own, first)}"
    if others:
        told += f", then {decimal(weights[others[0]])} to {key(columns, own, others[0])}"
    if own not in (first, *others[:1]):
        told += f"; its own key gets {decimal(weights[own])}"
    if pads := padded(columns, own):
        lost = decimal(leak(columns, stop, weights))
        told += f"; {count(len(pads), 'padded slot')} together {lost}"
    return told


def all_heads(payload: Mapping, stop: Mapping, layer: int, _: None) -> str:
    """How the heads share KV heads, and how differently they weigh the same keys."""
    columns, own, rows = payload["columns"], stop["own"], stop["weights"][str(layer)]
    nan = [head for head, weights in enumerate(rows) if None in weights]
    told = _nan_heads(nan, len(rows)) if nan else _extremes(columns, own, rows)
    if padded(columns, own):
        lost = between([leak(columns, stop, weights) for weights in rows])
        told += f"; padding gets {lost} of a head's weight"
    sums = between([total(weights) for weights in rows])
    shared = sharing(payload["heads"])
    return f"In layer {layer}, {shared}. {told}. The weights of each head sum to {sums}."


def _extremes(columns: Sequence, own: int, rows: Sequence[Sequence[int]]) -> str:
    """The head whose largest weight is the largest, and the one whose largest is the smallest."""
    tops = [ranked(weights)[0] for weights in rows]
    peaks = [weights[top] for weights, top in zip(rows, tops, strict=True)]
    sharp, flat = peaks.index(max(peaks)), peaks.index(min(peaks))
    most, goal = decimal(peaks[sharp]), key(columns, own, tops[sharp])
    if flat == sharp:
        return f"Head {sharp} gives at most {most}, to {goal}" + (
            "; the largest weights of all heads are equal" if len(rows) > 1 else ""
        )
    least, other = decimal(peaks[flat]), key(columns, own, tops[flat])
    told = f"Sharpest is head {sharp}: {most} to {goal}; "
    return told + f"most spread is head {flat}: at most {least}, to {other}"


def _nan_heads(nan: Sequence[int], heads: int) -> str:
    """Which heads have no weights to compare."""
    if len(nan) == heads:
        return f"The weights of every head are {NAN}"
    names = ", ".join(map(str, nan))
    return f"The weights of {'head' if len(nan) == 1 else 'heads'} {names} are {NAN}"


def sharing(heads: Sequence[int]) -> str:
    """[num_query_heads, num_kv_heads] in words, with the field's name for it."""
    query, kv = heads
    name = "multi-head" if query == kv else "multi-query" if kv == 1 else "grouped-query"
    verb = "have a KV head each" if query == kv else f"share {count(kv, 'KV head')}"
    if query == 1:
        verb = "has a KV head"
    return f"{count(query, 'query head')} {verb} ({name} attention)"


def partners(heads: Sequence[int], head: int) -> str:
    """Which KV head a query head reads, and who else does."""
    group = heads[0] // heads[1]
    mine = head // group
    if group == 1:
        return f"reads KV head {mine} alone"
    if group == 2:
        return f"reads KV head {mine} together with query head {head ^ 1}"
    return f"reads KV head {mine} together with {group - 1} other query heads"


def ranked(weights: Sequence[int]) -> list[int]:
    """Columns by weight, largest first, then from the left."""
    return sorted(range(len(weights)), key=lambda p: -weights[p])


def padded(columns: Sequence, own: int) -> list[int]:
    """Padded columns before the query."""
    return [p for p in range(own + 1) if columns[p][0] is None]


def keys_read(columns: Sequence, stop: Mapping) -> int:
    """Keys that the query may read."""
    return stop["own"] + 1 - (0 if stop["open"] else len(padded(columns, stop["own"])))


def leak(columns: Sequence, stop: Mapping, weights: Sequence[Weight]) -> Weight:
    """Weight on padded slots."""
    return total([weights[p] for p in padded(columns, stop["own"])])


def total(weights: Sequence[Weight]) -> Weight:
    """Their sum; one NaN makes it NaN."""
    return None if None in weights else sum(weights)


def key(columns: Sequence, own: int, p: int) -> str:
    """A column as the goal of some weight."""
    if columns[p][0] is None:
        return f"padding in slot {p}"
    return f"{'its own key, ' if p == own else ''}{word(columns[p])}"


def word(column: Sequence) -> str:
    """' soup' at position 7; a byte by name, a token without text by its id."""
    position, token, text = column
    name = f"token {token}" if text is None else byte_name(text) or f"'{visible(text)}'"
    return name if position is None else f"{name} at position {position}"


def decimal(weight: Weight) -> str:
    """Ten-thousandths with two digits. Whole numbers throughout, so that ties round alike."""
    if weight is None:
        return "NaN"
    hundredths = (weight + 50) // 100
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def between(weights: Sequence[Weight]) -> str:
    """The smallest and the largest, or the one number that both are; NaN apart."""
    numbers = [weight for weight in weights if weight is not None]
    if not numbers:
        return "NaN"
    low, high = decimal(min(numbers)), decimal(max(numbers))
    told = low if low == high else f"{low} to {high}"
    return told if len(numbers) == len(weights) else f"{told}, or NaN"
