"""Section 21.6's expectations, from real runs: the engine's trace, a real pool, a real cache.

torch is imported when one of them runs. Each list of cases is made afresh at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from kvlab.exercises.shapes import config_of

if TYPE_CHECKING:
    from torch import Tensor

    from kvlab.core.trace import Event

PROMPT, OUTPUTS = 7, 4


@cache
def events_of(prompt_length: int, num_outputs: int) -> tuple[Event, ...]:
    """Serve one request with a small random model; what the engine recorded."""
    from kvlab import LLM, Decoder, SamplingParams

    llm = LLM(Decoder.random(config_of(2, 2, 1, 2)), block_size=4, num_blocks=8)
    llm.start_trace()
    prompt = [1 + t % 7 for t in range(prompt_length)]
    llm.generate(prompt, SamplingParams(max_tokens=num_outputs, ignore_eos=True))
    return llm.stop_trace().events


def cache_lengths_of_a_real_run(prompt_length: int, num_outputs: int) -> list[int]:
    """Positions with keys and values after each pass."""
    events = events_of(prompt_length, num_outputs)
    return [event.data["end"] for event in events if event.kind == "computed"]


def length_cases() -> Sequence[tuple]:
    return ((1, 1), (5, 1), (1, 2), (2, 3), (5, 4), (9, 6))


def positions_at_the_end() -> int:
    return cache_lengths_of_a_real_run(PROMPT, OUTPUTS)[-1]


def passes_of_output_three() -> list[int]:
    """The number of the pass after which output 3 is selected, and of the one that computes it."""
    position = PROMPT + 3 - 1
    number, found = -1, {}
    for event in events_of(PROMPT, OUTPUTS):
        if event.kind == "computed":
            number += 1
            if event.data["start"] <= position < event.data["end"]:
                found["computed"] = number
        elif event.kind == "selected" and event.data["position"] == position:
            found["selected"] = number
    return [found["selected"], found["computed"]]


def slot_in_a_real_pool(t: int, block_table: list[int], block_size: int) -> int:
    """Number the slots of a pool in their own tensor, and read position t through the table."""
    import torch

    from kvlab.tensors.kv_cache import PagedCache

    pool = PagedCache(config_of(1, 1, 1, 2), num_blocks=10, block_size=block_size)
    numbers = torch.arange(10 * block_size, dtype=torch.float32)
    pool.key_cache.copy_(numbers.view(1, 10, block_size, 1, 1))
    keys, _values = pool.read(block_table, t + 1)  # [layers, heads, t + 1, width]
    return int(keys[0, 0, -1, 0])


def slot_cases() -> Sequence[tuple]:
    return (
        (0, [2], 4),
        (3, [2], 4),
        (3, [1, 0], 2),
        (5, [7, 2], 4),
        (6, [7, 2], 4),
        (1, [7, 2, 5], 4),  # a table may be longer than position t needs
        (5, [7, 2, 5], 4),
        (8, [7, 2, 5], 4),
        (17, [3, 9, 4], 8),
    )


def append_to_a_real_cache(
    keys: Tensor, values: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """Two appends to a real cache of one layer: what was there, and what is new."""
    from kvlab.tensors.kv_cache import ContiguousCache

    batch, heads, _, width = keys.shape
    cache = ContiguousCache(config_of(1, heads, heads, width), batch)
    cache.append(0, keys, values)
    cache.append(0, k, v)
    return cache.keys[0], cache.values[0]


def append_cases() -> Sequence[tuple]:
    """keys, values [B, H, T, d], k, v [B, H, n, d]: whole numbers from 0 on, no two alike."""
    import torch

    def case(batch: int, heads: int, length: int, new: int, width: int) -> tuple:
        sizes = (length, length, new, new)
        shapes = [(batch, heads, n, width) for n in sizes]
        starts = [sum(batch * heads * n * width for n in sizes[:i]) for i in range(4)]
        return tuple(
            (torch.arange(s[0] * s[1] * s[2] * s[3], dtype=torch.float32) + start).view(s)
            for s, start in zip(shapes, starts, strict=True)
        )

    return (case(1, 1, 1, 1, 2), case(1, 1, 2, 1, 2), case(1, 2, 3, 1, 2), case(2, 2, 2, 2, 4))
