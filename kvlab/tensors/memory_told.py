"""What is said where memory ran out: what was held, what it was for, what needs less.

The messages of `NotEnoughMemory` after an allocation failed; those of a budget that was refused
before are in memory_budget.py. Section 21.1.
"""

import torch

from kvlab.core.scheduler_output import SchedulerOutput
from kvlab.core.sizes import in_units
from kvlab.tensors.free_memory import free_nbytes
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.memory_budget import (
    FEWER_BYTES,
    MemoryPlan,
    counted,
    step_nbytes,
    weights_nbytes,
)
from kvlab.tensors.model import Decoder
from kvlab.tensors.out_of_memory import FREE_SOME


def making_told(device: torch.device, planned: MemoryPlan | None, asked: str) -> str:
    """An engine's own tensors could not be made, although they were to fit.

    planned: None while the weights are loaded. asked: how much more was asked for.
    """
    if planned is None:
        said = f"out of memory while the weights were loaded: {asked}{_left(device)}"
        return f"{said}. {FEWER_BYTES}"
    made = "the K/V pool and the CPU tier were" if planned.cpu_blocks else "the K/V pool was"
    return (
        f"out of memory while {made} made: {asked}{_left(device)}. Planned were "
        f"{planned}. Give a smaller pool, {FREE_SOME}"
    )


def step_told(
    model: Decoder, cache: PagedCache, kept: int, output: SchedulerOutput, asked: str
) -> str:
    """A step ran out. kept: bytes of buffers and logits that earlier steps left."""
    tokens = sum(len(row.token_ids) for row in output.requests)
    rows = sum(len(row.samplers) for row in output.requests)
    longest = max((row.end for row in output.requests), default=0)
    moment = step_nbytes(model.config, model.dtype.itemsize, tokens, rows, longest)
    held = {"weights": weights_nbytes(model), "the K/V pool": cache.nbytes, "buffers": kept}
    parts = ", ".join(f"{name} {in_units(nbytes)}" for name, nbytes in held.items() if nbytes)
    return (
        f"out of memory in a step that computes {counted(tokens, 'position')} of "
        f"{counted(len(output.requests), 'request')}: {asked}{_left(model.device)}. Held: {parts}. "
        "What the step needs for a moment (hidden states, the MLP's values, gathered keys and "
        f"values, {counted(rows, 'row')} of logits) may be {in_units(moment)}. The step is taken "
        "back, and its requests keep their places. Give a smaller max_num_batched_tokens (a long "
        "prompt is then computed in parts), a smaller max_num_seqs, fewer num_blocks, "
        f"{FREE_SOME}"
    )


def _left(device: torch.device) -> str:
    free = free_nbytes(device)
    return "" if free is None else f", and {in_units(free)} are free on {device}"
