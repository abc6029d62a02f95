"""Decode steps at a few batch sizes, so that CUDA graphs can repeat them without Python.

A decode step is some hundred small kernels a layer stack, and Python takes longer to start them
than a GPU to run them. A CUDA graph is a recording of all those starts, made once and replayed by
one call. What it replays is fixed: the kernels, their grids, and the memory that they read. So a
step is copied into memory of its own and padded to the next size of 1, 2, 4, 8, 16, 24, 32, ...:

    3 requests in a graph for 4     request 0   1   2   padding
    input_ids, positions                   .   .   .     0
    slot_mapping                           .   .   .    -1   stored nowhere
    seq_lens                               .   .   .     0   reads nothing

Steps with a prompt's positions, with adapters, or with watched layers run without (the runner
sees to that). The padding is the same with or without a GPU; capturing alone needs one.
Section 21.5.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from kvlab.tensors.backends import KernelAttention
from kvlab.tensors.input_batch import InputBatch
from kvlab.tensors.model import Decoder

MOST_REQUESTS = 512
MOST_TABLE = 1 << 22  # block ids that one graph's table may hold
WARM_UP = 2  # passes before a capture: kernels are compiled, libraries take their workspaces
PADDING = {"input_ids": 0, "positions": 0, "slot_mapping": -1, "seq_lens_on_device": 0}

Pass = Callable[[], Tensor]


def padded_size(num_requests: int) -> int:
    """The batch size that a step of so many requests is padded to: 1, 2, 4, then eights."""
    if num_requests < 1:
        raise ValueError(f"num_requests is {num_requests}; a step has at least 1")
    if num_requests <= 4:
        return 1 << (num_requests - 1).bit_length()
    return -(-num_requests // 8) * 8


def empty_batch(size: int, width: int, block_size: int, device: torch.device) -> InputBatch:
    """Memory for a decode step of `size` requests with tables of `width` blocks: all padding."""
    rows = {
        name: torch.full((size,), fill, dtype=torch.long, device=device)
        for name, fill in PADDING.items()
    }
    return InputBatch(
        **rows,
        block_table=torch.zeros((size, width), dtype=torch.long, device=device),
        query_start_loc_on_device=torch.arange(size + 1, device=device),
        query_lens=[1] * size,
        seq_lens=[0] * size,  # not kept up; a decode step reads those on the device
        last_rows=list(range(size)),
        block_size=block_size,
    )


def copy_padded(batch: InputBatch, static: InputBatch) -> None:
    """Put a decode step into memory for as many requests or more.

    What stood behind a request's last block before stays; its length says that nobody reads it.
    """
    n, width = batch.block_table.shape
    for name, fill in PADDING.items():
        room = getattr(static, name)
        room[:n].copy_(getattr(batch, name))
        room[n:].fill_(fill)
    static.block_table[:n, :width].copy_(batch.block_table)


class DecodeGraphs:
    """One graph a padded batch size, each captured when a step first needs it.

    failed: why capturing failed, if it did; every step is then left to the caller.
    """

    def __init__(
        self,
        model: Decoder,
        attention: KernelAttention,
        capture: Callable[[Pass], Pass] | None = None,
    ) -> None:
        """capture: makes a pass repeatable. None: as a CUDA graph; one that returns what it is
        given runs the same padded steps anywhere."""
        self.model, self.attention = model, attention
        self.capture = CudaCapture() if capture is None else capture
        self.width = -(-model.config.max_model_len // attention.cache.block_size)
        self.failed: str | None = None
        self._graphs: dict[int, tuple[InputBatch, Pass]] = {}

    @property
    def sizes(self) -> list[int]:
        """Of the graphs that were captured."""
        return sorted(self._graphs)

    def __call__(self, batch: InputBatch) -> Tensor | None:
        """Hidden states [R, D] of a step, valid until the next; None: it has to run without."""
        if self.failed is not None or not self._takes(batch):
            return None
        requests = len(batch.query_lens)
        size = padded_size(requests)
        if size not in self._graphs:
            try:
                self._graphs[size] = self._captured(size, batch)
            except Exception as error:  # of a driver, a library or the memory: none stops a step
                self.failed = f"capturing failed: {type(error).__name__}: {error}"
                warnings.warn(f"decode steps run without CUDA graphs; {self.failed}", stacklevel=2)
                return None
        static, replay = self._graphs[size]
        copy_padded(batch, static)
        return replay()[:requests]

    def _takes(self, batch: InputBatch) -> bool:
        size = padded_size(len(batch.query_lens))
        fits = size <= MOST_REQUESTS and size * self.width <= MOST_TABLE
        return fits and batch.is_pure_decode and batch.block_table.shape[1] <= self.width

    def _captured(self, size: int, batch: InputBatch) -> tuple[InputBatch, Pass]:
        """The pass writes this step's K/V more than once, to the same slots."""
        cache = self.attention.cache
        static = empty_batch(size, self.width, cache.block_size, cache.key_cache.device)
        copy_padded(batch, static)

        def one_pass() -> Tensor:
            self.attention.begin(static)
            return self.model(static.input_ids, static.positions, self.attention)

        return static, self.capture(one_pass)


class CudaCapture:
    """Records passes on the current CUDA device; all recordings share one pool of memory."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, one_pass: Pass) -> Pass:
        """Raises what CUDA raises where a pass cannot be recorded."""
        before = torch.cuda.current_stream()
        aside = torch.cuda.Stream()
        aside.wait_stream(before)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                one_pass()
        before.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                out = one_pass()
        finally:
            torch.cuda.set_stream(before)  # a capture that fails leaves its own stream current

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay


def why_no_graphs(backend: str, device: torch.device, enforce_eager: bool = False) -> str | None:
    """What keeps decode steps from running as CUDA graphs; None: nothing.

    backend: of tensors/backends.py.
    """
    if enforce_eager:
        return "enforce_eager was asked for"
    if device.type != "cuda" or torch.version.hip:
        return f"they need an NVIDIA GPU, and the model is on {device}"
    if backend != "triton":
        return f"attention is computed by {backend!r}, which reads lengths on the host"
    return None
