"""Standard settings while a reader's function runs, and the notebook's own again afterwards.

A function may set torch's default dtype or device, switch gradients off, change the number of
threads, or seed a generator of random numbers. None of that outlives the call, and none of what
the notebook has set changes an answer: inside, the dtype is float32, the device the CPU, and
gradients are on.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType


@contextmanager
def standard_settings() -> Iterator[None]:
    """Everything as in a new kernel; on leaving, as it was. numpy and torch: if they are loaded."""
    with ExitStack() as after:
        after.callback(random.setstate, random.getstate())
        numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        if numpy_random is not None:
            after.callback(numpy_random.set_state, numpy_random.get_state())
        if torch is not None:
            _keep_torch(torch, after)
        yield


def _keep_torch(torch: ModuleType, after: ExitStack) -> None:
    """Note down torch's settings for `after`, which restores the one noted last first."""
    after.callback(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():
        after.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    after.callback(_restore_threads, torch, torch.get_num_threads())
    after.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float32)
    after.enter_context(torch.inference_mode(False))  # restores the mode of gradients, too
    device = _default_device(torch)
    after.callback(_restore_device, torch, device)
    if device != "cpu":
        torch.set_default_device("cpu")


def _restore_threads(torch: ModuleType, threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def _default_device(torch: ModuleType) -> str:
    """The name of the default device; torch makes a tensor there to find it out."""
    try:
        return str(torch.get_default_device())
    except (AssertionError, RuntimeError):  # a device that this machine does not have
        return "missing"


def _restore_device(torch: ModuleType, device: str) -> None:
    """None takes back what was set last; what a `with torch.device(...)` around it says remains."""
    torch.set_default_device(None)
    if device not in ("missing", _default_device(torch)):
        torch.set_default_device(device)
