"""A live editor for eq 21.2 and 21.3: choose the sizes, and see the same cache allocated here."""

from kvlab.measure.allocation import allocate, checked_limit, dtype_of, too_large
from kvlab.widgets import grow_cache_words as words
from kvlab.widgets.controls import Choice, Slider, Steps
from kvlab.widgets.editor import LiveEditor

VALUE_SIZES = {"fp32 (4 bytes)": 4, "fp16/bf16 (2 bytes)": 2, "fp8/int8 (1 byte)": 1}
MOST_LAYERS = 128
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
KV_HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
HEAD_DIMS = (2, 4, 8, 16, 32, 64, 80, 96, 128, 192, 256)
POSITIONS = (*range(9), 12, 16, 24, 32, 48, *(2**power for power in range(6, 18)))
HALF = "fp16/bf16 (2 bytes)"


def _sizes(layers: int, batch: int, kv_heads: int, seq_len: int, head_dim: int) -> dict:
    sizes = {"layers": layers, "batch": batch, "kv_heads": kv_heads, "seq_len": seq_len}
    return {**sizes, "head_dim": head_dim, "value_size": HALF}


# The sizes of worked examples, and of a model whose config.json says 32 layers, 8 KV heads of 128.
PRESETS = {
    "21.1's smallest example": _sizes(1, 1, 1, 3, 2),
    "21.6's example": _sizes(2, 1, 4, 5, 8),
    "an 8B model (Llama-3.1-8B), 8,192 positions": _sizes(32, 1, 8, 8192, 128),
    "the same with 2 KV heads": _sizes(32, 1, 2, 8192, 128),
    "the same with 1 KV head (MQA)": _sizes(32, 1, 1, 8192, 128),
    "the 8B model, 32 requests of 8,192": _sizes(32, 32, 8, 8192, 128),
}


def grow_a_cache(
    layers: int = 2,
    batch: int = 1,
    kv_heads: int = 4,
    seq_len: int = 5,
    head_dim: int = 8,
    bytes_per_value: int = 2,
    *,
    limit: int | None = None,
) -> LiveEditor:
    """Six controls, both formulas in numbers, the real tensors' bytes, and a picture of the shape.

    Where more than `limit` bytes would exist at once nothing is allocated and the editor says so;
    None takes 256 MiB, or a quarter of the free memory where that is less. Raises ValueError for a
    value that no control offers, and for a limit that is no number of bytes. Section 21.1.
    """
    dtype_of(bytes_per_value)
    checked_limit(limit)
    value_size = next(name for name, size in VALUE_SIZES.items() if size == bytes_per_value)

    def compute(value_size: str, **counts: int) -> dict:
        sizes = words.Sizes(bytes_per_value=VALUE_SIZES[value_size], **counts)
        most = checked_limit(limit)
        return {"lines": _lines(sizes, most), "view": _picture(sizes, most)}

    controls = [
        Slider("layers", "Layers L", layers, 1, MOST_LAYERS),
        Steps("batch", "Requests B", batch, BATCHES),
        Steps("kv_heads", "KV heads H_kv", kv_heads, KV_HEADS),
        Steps("seq_len", "Positions T", seq_len, POSITIONS),
        Steps("head_dim", "Width d_h", head_dim, HEAD_DIMS),
        Choice("value_size", "Bytes a number s", value_size, tuple(VALUE_SIZES)),
    ]
    return LiveEditor(compute, controls, "Grow a cache, and allocate it", PRESETS)


def _lines(sizes: words.Sizes, limit: int) -> list[list[str]]:
    """Always five: payload, formula, the real allocation, and one position more, both ways."""
    counts, one, everyone = vars(sizes), None, None
    if problem := too_large(**counts, limit=limit):
        there = words.refused_line(problem)
    else:
        found = allocate(**counts, limit=limit)
        one, everyone = found.growth_one, found.growth_all
        there = words.allocated_line(sizes, found.tensors, found.nbytes)
    alone = words.growth_line(sizes, False, one)
    together = words.growth_line(sizes, True, everyone)
    if sizes.batch == 1:
        together = words.same_line()
    return [words.payload_line(sizes), words.formula_line(sizes), there, alone, together]


def _picture(sizes: words.Sizes, limit: int) -> dict:
    return words.shape_payload(sizes, POSITIONS[-1], HEAD_DIMS[-1], limit)
