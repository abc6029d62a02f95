"""A pool of NaN with some requests in it, the kernels over it, and the specification in float64."""

import torch

from kvlab import triton_mode
from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 2e-2}
DEVICE = "cuda" if triton_mode.current().mode == "compiled" else "cpu"
HEADS = [(2, 2), (6, 2), (8, 2), (16, 2), (4, 1)]  # MHA, groups of 3, 4 and 8, MQA


LOW = [float("-inf")] * 16  # the scores of a whole tile


def nan_pool(shape, dtype=torch.float32):
    return torch.full(shape, torch.nan).to(dtype)


def slots_of(table, block_size, length):
    """Slot of each position: its block's first slot, and as many further as in the block."""
    return [table[p // block_size] * block_size + p % block_size for p in range(length)]


def on_device(function, *arguments, **named):
    """function(...) with its tensors on the device that runs kernels. What it writes comes back."""
    given = [*arguments, *named.values()]
    moved = [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in given]
    count = len(arguments)
    out = function(*moved[:count], **dict(zip(named, moved[count:], strict=True)))
    for x, on_it in zip(given, moved, strict=True):
        if x is not on_it:
            x.copy_(on_it)
    return out if out is None else out.cpu()


class Case:
    """K/V of requests of `lengths` positions, in scattered blocks of a pool that is NaN elsewhere.

    The last of each request's positions have queries: `chunks` says how many (None: one each).
    Values lie between -1 and 1, where all the dtypes are fine enough.
    """

    def __init__(
        self, heads, head_dim, block_size, lengths, dtype=torch.float32, chunks=None, window=None
    ):
        self.lengths, self.window = lengths, window
        self.chunks = [1] * len(lengths) if chunks is None else chunks
        generator = torch.Generator().manual_seed(0)
        counts = [-(-length // block_size) for length in lengths]
        blocks = torch.randperm(sum(counts), generator=generator) * 2 + 1  # each other one unused
        self.tables = [part.tolist() for part in blocks.split(counts)]
        self.block_table = torch.full((len(counts), max(*counts, 1)), -1)  # -1 must not be read
        slots = []
        for row, table, length in zip(self.block_table, self.tables, lengths, strict=True):
            row[: len(table)] = torch.tensor(table)
            slots += slots_of(table, block_size, length)
        self.slots = torch.tensor(slots, dtype=torch.long)
        self.seq_lens = torch.tensor(lengths)
        rows = (len(slots), heads[1], head_dim)
        self.key = torch.randn(rows, generator=generator).to(dtype)
        self.value = (torch.rand(rows, generator=generator) * 2 - 1).to(dtype)
        self.query = torch.randn(sum(self.chunks), heads[0], head_dim, generator=generator)
        self.query = self.query.to(dtype)
        self.key_cache = nan_pool((2 * sum(counts) + 2, block_size, heads[1], head_dim), dtype)
        self.value_cache = self.key_cache.clone()
        self.key_cache.flatten(0, 1)[self.slots] = self.key
        self.value_cache.flatten(0, 1)[self.slots] = self.value

    def decode(self, **changes):
        return on_device(launch.paged_decode, **self.given() | changes)

    def prefill(self, **changes):
        starts = torch.tensor([0, *self.chunks]).cumsum(0)
        cut = {"query_start_loc": starts, "max_query_len": max(self.chunks)}
        return on_device(launch.paged_prefill, **self.given() | cut | changes)

    def given(self):
        """What both attention kernels take."""
        return {
            "query": self.query,
            "key_cache": self.key_cache,
            "value_cache": self.value_cache,
            "block_table": self.block_table,
            "seq_lens": self.seq_lens,
            "window": self.window,
        }

    def wanted(self):
        """[N, Hq, d] in float64; zeros where a request has no position."""
        return paged_attention_spec(
            self.query, self.key_cache, self.value_cache, self.tables, self.chunks, self.lengths,
            window=self.window,
        ).nan_to_num(0.0)  # fmt: skip

    def error(self, out):
        """The largest difference from the specification; not a number where `out` is none."""
        assert torch.isfinite(out).all()
        return float((out.double() - self.wanted()).abs().max())


def scored(scores, value=None):
    """One request of one head whose last query has these scores: key p is (score p, 0, ...), the
    query (sqrt(16), 0, ...), and value p is p + 1 in every number, or what is given."""
    case = Case((1, 1), 16, 4, (len(scores),))
    case.query = torch.eye(1, 16)[None] * 4
    key = torch.zeros(len(scores), 1, 16)
    key[..., 0] = torch.tensor(scores)[:, None]
    value = torch.arange(1.0, len(scores) + 1) if value is None else torch.tensor(value)
    slots = slots_of(case.tables[0], 4, len(scores))
    case.key_cache.flatten(0, 1)[slots] = key
    case.value_cache.flatten(0, 1)[slots] = value[:, None, None].expand(-1, 1, 16)
    return case
