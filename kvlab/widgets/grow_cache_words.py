"""What the editor of section 21.1 says and draws: eq 21.2 and 21.3 with the numbers filled in."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape

from kvlab.core.memory import growth_bytes, kv_cache_bytes
from kvlab.core.sizes import BINARY, in_units
from kvlab.widgets.growth_words import count
from kvlab.widgets.html import table

# names of the ruler's marks, and how many times each doubles a byte
RULER = (("1 byte", 0), *((f"1 {unit}", 10 * power) for power, unit in enumerate(BINARY, 1)))


@dataclass(frozen=True)
class Sizes:
    """The six numbers of eq 21.2, named as in `kv_cache_bytes`."""

    layers: int
    batch: int
    kv_heads: int
    seq_len: int
    head_dim: int
    bytes_per_value: int

    @property
    def shape(self) -> list[int]:
        """[B, H_kv, T, d_h] of one layer's keys, and of its values (eq 21.1)."""
        return [self.batch, self.kv_heads, self.seq_len, self.head_dim]

    @property
    def nbytes(self) -> int:
        return kv_cache_bytes(**asdict(self))

    def growth(self, batch: int) -> int:
        return growth_bytes(self.layers, batch, self.kv_heads, self.head_dim, self.bytes_per_value)


def payload_line(sizes: Sizes) -> list[str]:
    return ["Payload", in_both(sizes.nbytes), "answer"]


def formula_line(sizes: Sizes) -> list[str]:
    """Eq 21.2, every factor with its name."""
    factors = (
        "2",
        count(sizes.layers, "layer"),
        count(sizes.batch, "request"),
        count(sizes.kv_heads, "KV head"),
        count(sizes.seq_len, "position"),
        f"{sizes.head_dim} wide",
        f"{sizes.bytes_per_value} B",
    )
    return ["(21.2) Formula", f"{' · '.join(factors)} = {sizes.nbytes:,} B", "plain"]


def allocated_line(sizes: Sizes, tensors: int, nbytes: int) -> list[str]:
    """What the real tensors say, beside the formula."""
    found = f"{count(tensors, 'tensor')} of {sizes.shape}, sum of nbytes {nbytes:,}"
    return ["Allocated here", *verdict(found, nbytes, sizes.nbytes)]


def refused_line(problem: str) -> list[str]:
    return ["Allocated here", f"{problem}; what you read is the formula alone", "notice"]


def growth_line(sizes: Sizes, all_of_them: bool, measured: int | None) -> list[str]:
    """Eq 21.3 for one request or for all, beside what appending added (None: not measured)."""
    batch = sizes.batch if all_of_them else 1
    product = sizes.growth(batch)
    factors = (2, sizes.layers, batch, sizes.kv_heads, sizes.head_dim, sizes.bytes_per_value)
    formula = f"2·L·B·H_kv·d_h·s = {' · '.join(f'{n:,}' for n in factors)} = {product:,} B"
    if product >= 1024:
        formula += f" = {in_units(product)}"
    label = "(21.3) +1 position for all" if all_of_them else "(21.3) +1 position for one"
    if measured is None:
        return [label, formula, "plain"]
    return [label, *verdict(f"{formula}; appending it added {measured:,}", measured, product)]


def same_line() -> list[str]:
    """In place of the growth of all requests where there is one."""
    return ["(21.3) +1 position for all", "the same: one request is all there is", "plain"]


def verdict(found: str, measured: int, product: int) -> tuple[str, str]:
    """The finding with its judgement, and the kind of line that it makes."""
    if measured == product:
        return f"{found}: they agree ✓", "plain"
    return f"{found}, the formula gives {product:,}: THEY DISAGREE", "notice"


def in_both(nbytes: int) -> str:
    """Bytes, and the fitting unit where that is another."""
    if nbytes < 1024:
        return in_units(nbytes)
    return f"{nbytes:,} bytes = {in_units(nbytes)}"


def sentence(sizes: Sizes) -> str:
    """The picture in words."""
    tensors, values = 2 * sizes.layers, math.prod(sizes.shape)
    each = values * sizes.bytes_per_value
    layers = "The layer keeps" if sizes.layers == 1 else f"Each of {sizes.layers} layers keeps"
    return (
        f"{layers} one tensor of keys (K) and one of values (V), both {sizes.shape}: "
        f"{count(sizes.batch, 'request')} with {count(sizes.kv_heads, 'KV head')}, "
        f"{count(sizes.seq_len, 'position')} in each, {sizes.head_dim} numbers a position. "
        f"That is {count(values, 'number')} or {in_units(each)} a tensor, "
        f"and {in_units(sizes.nbytes)} in all {tensors}."
    )


def shape_payload(sizes: Sizes, longest: int, widest: int, limit: int) -> dict:
    """What the picture draws. longest, widest: positions and head width that fill it."""
    each = math.prod(sizes.shape) * sizes.bytes_per_value
    return {
        "view": "cache_shape",
        "title": "Shape of the cache",
        "layers": sizes.layers,
        "shape": sizes.shape,
        "longest": longest,
        "widest": widest,
        "bytes_per_value": sizes.bytes_per_value,
        "nbytes": sizes.nbytes,
        "total": in_units(sizes.nbytes),
        "each": in_units(each),
        "limit": [limit, in_units(limit)],
        "ruler": [list(mark) for mark in RULER],
        "sentence": sentence(sizes),
    }


def shape_content(payload: Mapping) -> str:
    """The picture without scripts: its sentence, and its dimensions from the outside in."""
    batch, heads, positions, width = payload["shape"]
    rows = [
        ("layers", "L", f"{payload['layers']:,}"),
        ("tensors a layer: K and V", "2", "2"),
        ("requests", "B", f"{batch:,}"),
        ("KV heads", "H_kv", f"{heads:,}"),
        ("positions", "T", f"{positions:,}"),
        ("numbers a head and position", "d_h", f"{width:,}"),
        ("bytes a number", "s", payload["bytes_per_value"]),
    ]
    return "\n".join(
        [
            f"<p>{escape(payload['sentence'])}</p>",
            table("From the outside in", ("dimension", "letter", "size"), rows),
        ]
    )
