"""What `LLM` may be given: checks that name the bad value, and what stands for None."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

import torch

from kvlab.core.checked import shown, whole
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.offload_tier import MOST_BLOCKS
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.measure.devices import checked_device
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.memory_budget import Block, MemoryPlan, plan, step_nbytes, weights_nbytes
from kvlab.tensors.model import Decoder
from kvlab.tensors.stored import cache_format

LARGEST_BLOCK = 1 << 20  # positions


def checked_layers(asked: Iterable[int] | None, count: int) -> frozenset[int]:
    """The layers to watch; none if none were asked for."""
    layers = [] if asked is None else list(asked) if isinstance(asked, Iterable) else [None]
    if any(type(n) is not int or not 0 <= n < count for n in layers):
        raise ValueError(
            f"attention_layers is {asked!r}; give layers from 0 to {count - 1}, "
            "such as [0], or None"
        )
    return frozenset(layers)


def checked_length(asked: int | None, longest: int) -> int:
    """The longest sequence; the model's own limit if none was asked for."""
    if asked is None:
        return longest
    if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= longest:
        raise ValueError(
            f"max_model_len is {shown(asked)}; give None, or what this model's positions allow, "
            f"1 to {longest}"
        )
    return asked


def scheduler_config(
    limits: tuple[int, int, bool, int], scheduling: Mapping[str, object]
) -> SchedulerConfig:
    """Limits (requests, positions a step, chunked or not, longest sequence) and the rest by name.

    Raises TypeError for a name that `LLM` and SchedulerConfig do not have.
    """
    known = [f.name for f in fields(SchedulerConfig)][len(limits) :]
    if unknown := [name for name in scheduling if name not in known]:
        raise TypeError(
            f"LLM has no argument {unknown[0]!r}; besides its own it takes {', '.join(known)}"
        )
    return SchedulerConfig(*limits, **scheduling)


def computing_device(asked: str | torch.device | None) -> torch.device:
    """Where a model computes: CUDA if there is one, unless something else was asked for.

    Raises ValueError for a device that is not here.
    """
    if asked is None:
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    return checked_device(asked)


def computing_dtype(asked: torch.dtype) -> torch.dtype:
    """What a model computes in. Raises ValueError for what is no floating-point torch.dtype."""
    if not isinstance(asked, torch.dtype) or not asked.is_floating_point:
        raise ValueError(f"dtype is {shown(asked)}; give a torch.dtype such as torch.bfloat16")
    return asked


def checked_dtype(
    asked: torch.dtype | str | None, config: ModelConfig, computes: torch.dtype
) -> torch.dtype | str:
    """What keys and values are stored as; what the model computes in if nothing was asked for."""
    found = cache_format(computes if asked is None else asked, "cache_dtype")
    found.vector_bytes(config.head_dim)  # refuses a width that blocks of 32 do not fill
    return found.asked


def checked_blocks(asked: int | None, block_size: int) -> int | None:
    """Size of the paged cache, as asked for; None leaves it to the budget."""
    whole("block_size", block_size, 1, LARGEST_BLOCK)
    if asked is not None and (type(asked) is not int or not 1 <= asked <= MOST_BLOCKS):
        wanted = f"give an integer from 1 to {MOST_BLOCKS}, or None"
        raise ValueError(f"num_blocks: a pool of {shown(asked)} blocks; {wanted}")
    return asked


def memory_plan(
    model: Decoder,
    stored: torch.dtype | str,
    pool: tuple[int | None, int, int | None],
    limits: SchedulerConfig,
) -> MemoryPlan:
    """What an engine takes. pool: num_blocks, block_size and cpu_blocks, as asked for.

    Raises NotEnoughMemory, before anything is made, for what does not fit.
    """
    num_blocks, block_size, cpu_blocks = pool
    tiered = type(cpu_blocks) is int and 0 < cpu_blocks <= MOST_BLOCKS  # else CPUTier refuses it
    length, config = limits.max_model_len, model.config
    most = min(limits.max_num_batched_tokens, limits.max_num_seqs * length)

    def temporaries(blocks: int) -> int:
        tokens = min(most, blocks * block_size)  # no step computes more than the pool can keep
        rows = min(limits.max_num_seqs, tokens)
        longest = min(length, blocks * block_size)
        return step_nbytes(config, model.dtype.itemsize, tokens, rows, longest)

    return plan(
        Block.of(config, cache_format(stored), block_size),
        temporaries,
        device=model.device,
        weights=weights_nbytes(model),
        context=cdiv(length, block_size),
        most=MOST_BLOCKS,
        num_blocks=num_blocks,
        cpu_blocks=cpu_blocks if tiered else 0,
    )


def checked_flag(name: str, asked: bool) -> bool:
    """Raises ValueError unless it is True or False: a text such as "no" would count as yes."""
    if not isinstance(asked, bool):
        raise ValueError(f"{name} is {shown(asked)}; give True or False")
    return asked
