"""Three ways to attend over a paged cache, and which of them an engine takes.

    torch      tensors/ops.py: fast on a CPU; runs everywhere and reads every stored format
    triton     tensors/kernels.py: compiled on a GPU; on a CPU interpreted, the same source, slowly
    reference  tensors/attention.py: the specification in float64, to compare with

Each does the same two things in every layer: write K and V of the new positions, then let each
query read its past. A score that is NaN or infinity makes NaN of that query's and head's result,
and -inf has no weight beside finite ones. But where all scores are -inf, torch's own function gives
zeros in place of NaN; in half precision it may do so for infinity, too. And there a NaN or
infinity can reach queries that may not read it: what a mask hides in a chunk of one request has
the weight 0, and 0 times NaN is NaN. Other requests, and slots that nobody wrote, never do.

Nobody has to choose: None takes the kernels where they are compiled, torch elsewhere. Section 21.5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab import triton_mode
from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.input_batch import InputBatch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.launch_checks import COMPUTED, LARGEST_DIM, STORED
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.stored import CacheFormat

BACKENDS = ("torch", "triton", "reference")


@dataclass(frozen=True)
class Backend:
    """One of BACKENDS, and why it is that one."""

    name: str
    reason: str


def choose_backend(asked: str | None, model: Decoder, cache: PagedCache) -> Backend:
    """The backend for a model and its cache; None leaves the choice to what is there.

    Raises ValueError for a name that is none, and for one that cannot serve this model here, with
    the reason.
    """
    if asked is not None and asked not in BACKENDS:
        wanted = ", ".join(map(repr, BACKENDS))
        raise ValueError(f"attention_backend is {asked!r:.60}; give one of {wanted}, or None")
    if hasattr(model, "attention_over"):
        if asked in (None, "torch"):
            return Backend("torch", "this model's layers attend in ways of their own")
        raise ValueError(
            f"attention_backend is {asked!r}, but this model's layers attend in ways of their own, "
            "which torch alone has here; give 'torch' or None"
        )
    if asked in ("torch", "reference"):
        return Backend(asked, "it was asked for")
    wanted = asked == "triton" or model.device.type == "cuda"  # else Triton is not even imported
    arguments = model.config, cache.format, model.dtype, model.device
    reason = why_no_kernels(*arguments) if wanted else None
    if asked == "triton" and reason is not None:
        raise ValueError(f"attention_backend is 'triton', but {reason}; give 'torch' or None")
    return Backend("triton", "it was asked for") if asked else unasked(model.device, reason)


def unasked(device: torch.device, reason: str | None) -> Backend:
    """The backend where nobody chooses. reason: why there are no kernels, if so."""
    if device.type != "cuda":
        return Backend("torch", f"the model is on {device}, where kernels are not compiled")
    if reason is None and launch.interpreting():
        reason = f"Triton interprets its kernels: {triton_mode.current().reason}"
    if reason is not None:
        return Backend("torch", reason)
    return Backend("triton", "Triton compiles its kernels for this GPU")


def why_no_kernels(
    config: ModelConfig, stored: CacheFormat, dtype: torch.dtype, device: torch.device
) -> str | None:
    """What keeps the kernels from serving such a model and cache on a device; None: nothing."""
    if stored.dtype not in STORED:
        return f"the kernels do not read a {stored.name} cache"
    if dtype not in COMPUTED:
        return f"the kernels do not compute in {str(dtype).removeprefix('torch.')}"
    if config.head_dim % 8 or config.head_dim > LARGEST_DIM:
        return f"head_dim is {config.head_dim}; the kernels take multiples of 8 up to {LARGEST_DIM}"
    if stored.name == "fp8" and not _has_fp8(device):
        return "this GPU has no float8"
    return why_no_triton(device)


def why_no_triton(device: torch.device) -> str | None:
    """What keeps any kernel from running on a device; None: nothing."""
    if device.type not in ("cpu", "cuda"):
        return f"Triton has nothing for a model on {device}"
    mode = triton_mode.current()
    if not mode.usable:
        return f"Triton cannot run: {mode.reason}"
    if mode.mode == "compiled" and device.type == "cpu":
        return "Triton compiles for the GPU and the model is on the CPU (TRITON_INTERPRET=1 helps)"
    return None


def _has_fp8(device: torch.device) -> bool:
    """Every device but an NVIDIA GPU older than capability 8.9."""
    if device.type != "cuda" or torch.version.hip:
        return True
    return torch.cuda.get_device_capability(device) >= (8, 9)


def attention_over(
    backend: Backend, model: Decoder, cache: PagedCache
) -> "PagedAttention | KernelAttention | ReferenceAttention":
    """The attention of a backend, between a model and its cache."""
    own = getattr(model, "attention_over", None)
    if own is not None:
        return own(cache)
    kinds = {"torch": PagedAttention, "triton": KernelAttention, "reference": ReferenceAttention}
    return kinds[backend.name](cache, model.dtype)


class KernelAttention:
    """The kernels. Requests that decode, as far as they lead the step, are split over a GPU's
    multiprocessors by position; all the others go through the kernel for chunks, which does any.
    """

    buffer_nbytes = 0  # K/V are read where they lie

    def __init__(self, cache: PagedCache, dtype: torch.dtype) -> None:
        """dtype: the arithmetic's. Raises RuntimeError, saying why, where Triton cannot run."""
        launch.kernels()
        self.cache, self.dtype = cache, dtype

    def begin(self, batch: InputBatch) -> None:
        """A new step. Its numbers are on the device already."""
        self.batch, first = batch, batch.num_leading_decodes
        self.chunked: tuple[Tensor, ...] = ()  # tables, starts, lengths of those that do not lead
        if 0 < first < len(batch.query_lens):  # copies: memory that begins where Triton likes it
            starts = batch.query_start_loc_on_device[first:] - first
            rest = batch.block_table[first:].clone(), batch.seq_lens_on_device[first:].clone()
            self.chunked = rest[0], starts, rest[1]
        elif first == 0:
            starts = batch.query_start_loc_on_device
            self.chunked = batch.block_table, starts, batch.seq_lens_on_device

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        """Write K/V of the new positions, then let each query read its past. Shapes: model.py."""
        cache, batch = self.cache, self.batch
        pool = cache.key_cache[layer], cache.value_cache[layer]
        settings = {
            "key_scale": None if cache.key_scale is None else cache.key_scale[layer],
            "value_scale": None if cache.value_scale is None else cache.value_scale[layer],
        }
        launch.write_kv(key, value, *pool, batch.slot_mapping, **settings)
        settings["window"] = window
        lens, tables = batch.seq_lens_on_device, batch.block_table
        if not self.chunked:
            return launch.paged_decode(query, *pool, tables, lens, **settings)
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        first = batch.num_leading_decodes  # of the others; also its row
        if first > 0:
            leading = query[:first], *pool, tables[:first], lens[:first]
            launch.paged_decode(*leading, out=out[:first], **settings)
        launch.paged_prefill(
            query[first:], *pool, *self.chunked, max_query_len=max(batch.query_lens),
            out=out[first:], **settings,
        )  # fmt: skip
        return out


class ReferenceAttention:
    """The specification, request by request, in float64, over any stored format."""

    buffer_nbytes = 0  # none are kept

    def __init__(self, cache: PagedCache, dtype: torch.dtype) -> None:
        """dtype: of queries and results."""
        self.cache, self.dtype = cache, dtype

    def begin(self, batch: InputBatch) -> None:
        """A new step."""
        self.batch = batch

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        """As `KernelAttention`. Blocks out of every query's window, which may belong to others by
        now, are left out of the table."""
        batch, size = self.batch, self.batch.block_size
        self.cache.write(layer, key, value, batch.slot_mapping)
        tables, lens = [], []
        for table, n, length in zip(
            batch.block_table.tolist(), batch.query_lens, batch.seq_lens, strict=True
        ):
            out = 0 if window is None else max(0, length - n - window + 1) // size
            tables.append(table[out : -(-length // size)])
            lens.append(length - out * size)
        numbers = (self._numbers(layer, name) for name in ("key", "value"))
        mixed = paged_attention_spec(query, *numbers, tables, batch.query_lens, lens, window=window)
        return mixed.to(self.dtype)

    def _numbers(self, layer: int, name: str) -> Tensor:
        """What the codes of a layer's pool stand for: [num_blocks, block_size, Hkv, d]."""
        codes, scale = (getattr(self.cache, f"{name}_{what}") for what in ("cache", "scale"))
        return self.cache.format.decode(codes[layer], None if scale is None else scale[layer])
