"""Would other tiles or splits than those of tensors/kernel_table.py be faster on this device?

Nothing is changed. Each row shows the table's choice and the best of its neighbours; what is
faster by more than noise belongs into the table, and into benchmarks/NOTES.md with what it was
expected to give.
"""

from collections.abc import Callable
from functools import partial

import torch

from kvlab.measure.gpu_pools import make_pool
from kvlab.measure.gpu_prefill import flops
from kvlab.measure.gpu_setting import Setting, Work, tried
from kvlab.tensors import kernel_table, launch

NOISE = 1.03
TILES = (0.5, 1, 2)  # of the table's
SPLITS = (0.5, 1, 2, 4)
DRY = (1, 2)  # instead, in a dry run
LARGEST = 128  # tile, rows and splits: above, nothing here fits


@torch.inference_mode()
def measure(setting: Setting) -> dict[str, object]:
    """A row for each decode shape and each prompt; a row begins while there is time."""
    sizes, rows = setting.sizes, []
    for batch in sizes.batches:
        for context in sizes.contexts:
            rows.append({"work": f"decode, B {batch}, T {context}"})
            rows[-1] |= tried(partial(_decode, setting, batch, context))
    for prompt in sizes.prompts:
        rows.append({"work": "prefill, B {}, {} new after {}".format(*prompt)})
        rows[-1] |= tried(partial(_prefill, setting, *prompt))
    return {"rows": rows}


def _decode(setting: Setting, batch: int, context: int) -> dict[str, object]:
    first = make_pool(setting, batch, context)
    count = setting.buffers_for(first.nbytes)
    pools = [first, *(make_pool(setting, batch, context, seed=i) for i in range(1, count))]
    heads, width = first.key_cache.shape[2:]
    plan = kernel_table.decode_plan(
        batch, heads, context, width, first.query.itemsize, launch.device_of(setting.device)
    )
    choices = {
        (tile, splits): {"tile": tile, "num_splits": splits}
        for tile in _around(setting, plan.tile, TILES, 16)
        for splits in _around(setting, plan.num_splits, SPLITS, 1)
    }
    times = _times(setting, choices, lambda chosen: [partial(p.decode, **chosen) for p in pools])
    return _compared("tile, splits", times, (plan.tile, plan.num_splits))


def _prefill(setting: Setting, batch: int, new: int, before: int) -> dict[str, object]:
    pool = make_pool(setting, batch, before + new, queries=new)
    heads, width = pool.key_cache.shape[2:]
    group = pool.query.shape[1] // heads
    plan = kernel_table.prefill_plan(
        new, group, before + new, width, pool.query.itemsize, launch.device_of(setting.device)
    )
    choices = {
        (rows, tile): {"rows": rows, "tile": tile}
        for rows in _around(setting, plan.rows, TILES, 16)
        for tile in _around(setting, plan.tile, TILES, 16)
    }
    times = _times(setting, choices, lambda chosen: [partial(pool.prefill, **chosen)])
    told = _compared("rows, tile", times, (plan.rows, plan.tile))
    work = flops(setting, batch, new, before)
    return told | {"best_flops_per_second": work / told["best_seconds"]}


def _around(setting: Setting, number: int, factors: tuple[float, ...], least: int) -> list[int]:
    factors = DRY if setting.dry else factors
    found = {max(least, int(number * factor)) for factor in factors}
    return sorted(n for n in found if n <= max(LARGEST, number))


def _times(
    setting: Setting,
    choices: dict[tuple[int, int], dict[str, int]],
    works: Callable[[dict[str, int]], list[Work]],
) -> dict[tuple[int, int], float | str]:
    """Seconds of each choice, or why it cannot run: too much shared memory, for one."""
    found: dict[tuple[int, int], float | str] = {}
    for key, chosen in choices.items():
        if setting.seconds_left < 5 and not setting.dry:
            break
        told = tried(lambda chosen=chosen: {"seconds": setting.seconds(works(chosen))})
        found[key] = told.get("seconds", told.get("error"))
    return found


def _compared(
    names: str, times: dict[tuple[int, int], float | str], table: tuple[int, int]
) -> dict[str, object]:
    ran = {key: seconds for key, seconds in times.items() if isinstance(seconds, float)}
    best = min(ran, key=ran.get)
    return {
        "choice": names,
        "table": list(table),
        "table_seconds": ran.get(table),
        "best": list(best),
        "best_seconds": ran[best],
        "better": table in ran and ran[best] * NOISE < ran[table],
        "all": [[*key, seconds] for key, seconds in times.items()],
    }
