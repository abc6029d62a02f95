"""Out of memory, told in the chapter's terms, and with nothing large left behind.

torch says how many bytes it could not get. What they were for is known here: weights, the pool of
keys and values, and what a step needs for a moment. Then the memory has to come free. The
traceback of an exception holds every local variable on its way, hidden states and gathered keys
among them, and a notebook keeps its last exception: so the frames are emptied before it is told.
Section 21.1.
"""

import errno
import gc
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kvlab.core.sizes import in_units

SIGNS = (
    "DefaultCPUAllocator",
    "annot allocate memory",
    "out of memory",
    "not enough memory",
    "bad_alloc",
    "ALLOC_FAILED",
    "could not create a memory",
)
ASKED = re.compile(r"allocate ([\d.]+) ?([KMGTPE]iB|bytes)")
FREE_SOME = "or free memory: del what holds other models, restart the kernels of other notebooks"


class NotEnoughMemory(MemoryError):
    """Tensors do not fit: found out before any is made, or by an allocation that failed.

    The message says what was to be held, what is free, and what to do. Nothing of the attempt is
    left: the engine has taken the step back, and its requests stand where they stood.
    """


def ran_out(error: BaseException) -> bool:
    """Whether an exception says that memory was refused, by Python, the system, numpy or torch."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def asked_for(error: BaseException) -> str:
    """ "12.5 MiB more were asked for", as far as the exception tells."""
    found = ASKED.search(str(error))
    if found is None:
        return "more was asked for"
    amount, unit = found.groups()
    amount = in_units(int(float(amount))) if unit == "bytes" else f"{amount} {unit}"
    return f"{amount} more were asked for"


@contextmanager
def explained(told: Callable[[str], str]) -> Iterator[None]:
    """Where memory runs out inside, raise `NotEnoughMemory(told(what was asked for))` instead.

    The frames that the exception came through lose their variables, and on CUDA what PyTorch kept
    for later goes back to the GPU. `told` is called after that. The caller's own frame is still
    running: what it holds stays, so let it hold nothing large.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, NotEnoughMemory) or not ran_out(error):
            raise
        traceback.clear_frames(error.__traceback__)
        give_back()
        raise NotEnoughMemory(told(asked_for(error))) from None


@contextmanager
def nothing_kept(owner: object) -> Iterator[None]:
    """An object whose making fails for want of memory lets go of all that it has so far: the
    traceback would keep it, with the weights that were loaded already."""
    try:
        yield
    except NotEnoughMemory as error:
        traceback.clear_frames(error.__traceback__)
        vars(owner).clear()
        give_back()
        raise


def give_back() -> None:
    """What nobody refers to any more is freed, on CUDA for other processes too."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
