"""What one piece of work costs, counted and not guessed: operations, and bytes of temporaries."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from kvlab import triton_mode

triton_mode.choose()  # torch's counter imports triton
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count  # noqa: E402


def _cpu_attention_flops(
    query_shape: torch.Size,
    key_shape: torch.Size,
    value_shape: torch.Size,
    *_: object,
    **__: object,
) -> int:
    """torch's counter leaves the CPU's fused attention out; the formula is its own for others."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def count_flops(run: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and attentions that `run()` carries out.

    A multiplication and an addition are two. Products with masked scores are counted as well.
    """
    ops = torch.ops.aten
    counter = FlopCounterMode(
        display=False,
        custom_mapping={ops._scaled_dot_product_flash_attention_for_cpu: _cpu_attention_flops},
    )
    with counter:
        run()
    return counter.get_total_flops()


class _Tracker(TorchDispatchMode):
    """Watches every tensor that an operation makes, and how many of them live at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self._known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for tensor in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor):
                key = tensor.untyped_storage()._cdata
                if key not in self._live:
                    self._known.add(key)  # it was there before
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._note(tensor)
        self._live = {k: v for k, v in self._live.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())


def peak_temporaries(run: Callable[[], object]) -> int:
    """Most bytes of new tensors that lived at once while `run()` worked.

    Tensors that existed before do not count. What a fused operation needs inside is not seen.
    """
    tracker = _Tracker()
    with tracker:
        run()
    return tracker.peak
