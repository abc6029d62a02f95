"""Watches the decode kernel do its part of a step that an engine is making, with real requests.

The step is the engine's own. In one layer, what its attention is given and returns is kept:

engine.step()  ->  ...  layer 1: attention(query, key, value)  -> mixed  ...
                                     |  the same query, pool and tables     |
                                     +->  the decode kernel, watched  ->  compared

Section 21.5.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kvlab.core.checked import whole
from kvlab.tensors.backends import why_no_kernels
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.watch_kernel import WatchedDecode, check_can_watch, watch_decode

if TYPE_CHECKING:
    from kvlab.core.scheduler_output import SchedulerOutput
    from kvlab.engine import LLMEngine
    from kvlab.llm import LLM

FREED = -1  # the entry of a block that fell out of the window: somebody else's by now
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def watch_request(
    engine: "LLMEngine | LLM",
    request_ids: str | Sequence[str],
    layer: int = 0,
    *,
    num_splits: int = 2,
    tile: int = 16,
    about: str | None = None,
) -> WatchedDecode:
    """Let the engine make its next step, and watch the decode kernel do some requests' part of it.

    The kernel gets what the engine's own attention has in that step and layer: the query of each
    request's newest position, the pool, the block tables. Its result is compared with that of the
    engine's attention: AssertionError where they differ by more than the dtype's TOLERANCE, or by
    that share of values above 1. The engine has made one step afterwards, with whatever else was
    running. request_ids: one id, or several, which become requests 0, 1, ... of the log. Raises
    ValueError for a request that is not being served or has no pass in that step (which is made
    all the same), for a layer that is not there, and for a model or cache that the kernel does not
    take.
    """
    names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
    engine = getattr(engine, "engine", engine)
    runner = engine.runner
    whole("layer", layer, 0, runner.model.config.num_layers - 1)
    for name in names or [None]:
        if name not in engine.requests:
            raise ValueError(f"request_ids: {name!r:.60} is no request that is being served")
    check_can_watch()
    stored, dtype = runner.cache.format, runner.model.dtype
    reason = why_no_kernels(runner.model.config, stored, dtype, torch.device("cpu"))
    if reason is not None:
        raise ValueError(f"{reason}; watch an engine such as LLM('tiny'), or give other dtypes")
    whole("num_splits", num_splits, 1)
    whole("tile", tile, 1)
    seen = _next_step(engine, layer)
    if absent := [name for name in names if name not in seen]:
        raise ValueError(f"request {absent[0]!r:.60} has no pass in this step; watch a later one")
    mine = [seen[name] for name in names]
    about = f"layer {layer}" if about is None else about
    options = {"num_splits": num_splits, "tile": tile, "about": about, "names": names}
    watched = _decode(mine, runner.cache, layer, options)
    _check_same(watched.output, torch.stack([one.mixed for one in mine]).cpu(), TOLERANCE[dtype])
    return watched


class _Pass(NamedTuple):
    """A request's newest position in one layer of a step."""

    query: Tensor  # [num_query_heads, head_dim]
    mixed: Tensor  # what the engine's attention made of it
    window: int | None
    table: list[int]
    length: int


def _next_step(engine: "LLMEngine", layer: int) -> dict[str, _Pass]:
    """One step of the engine; what the attention of a layer was given for each request."""
    runner, rows, seen = engine.runner, [], {}
    attention, execute = runner.attention, runner.execute

    class Watching:
        """Hands every call on to the engine's attention."""

        def __getattr__(self, name: str) -> object:
            return getattr(attention, name)

        def __call__(
            self, number: int, query: Tensor, *new: Tensor, window: int | None = None
        ) -> Tensor:
            reach = {} if window is None else {"window": window}
            mixed = attention(number, query, *new, **reach)  # new: key and value
            if number == layer:
                ends = accumulate(len(row.token_ids) for row in rows)
                for row, end in zip(rows, ends, strict=True):
                    last = (query[end - 1].clone(), mixed[end - 1].clone())
                    table = [FREED if block is None else block for block in row.block_ids]
                    seen[row.request_id] = _Pass(*last, window, table, row.end)
            return mixed

    def executing(output: "SchedulerOutput") -> object:
        rows[:] = [row for row in output.requests if row.logits_slot is None]
        return execute(output)

    own = "execute" in vars(runner)  # somebody else's, to be put back
    runner.attention, runner.execute = Watching(), executing
    try:
        engine.step()
    finally:
        runner.attention, runner.execute = attention, execute
        if not own:
            del runner.execute  # the method of its class is there again
    return seen


def _check_same(by_kernel: Tensor, by_engine: Tensor, tolerance: float) -> None:
    """Raises AssertionError where they differ; NaN is like NaN."""
    apart = (by_kernel - by_engine).abs()
    apart[by_kernel.isnan() & by_engine.isnan()] = 0.0
    most, apart = tolerance * max(1.0, float(by_engine.abs().max())), float(apart.max())
    assert apart <= most, f"the kernel and the engine's attention differ by {apart:.2g}"


def _decode(mine: list[_Pass], cache: PagedCache, layer: int, options: dict) -> WatchedDecode:
    """The kernel over what the engine's attention was given."""
    width = max(len(one.table) for one in mine)
    scales = (getattr(cache, name, None) for name in ("key_scale", "value_scale"))
    key_scale, value_scale = (None if scale is None else scale[layer] for scale in scales)
    return watch_decode(
        torch.stack([one.query for one in mine]),
        cache.key_cache[layer],
        cache.value_cache[layer],
        [[*one.table, *([0] * (width - len(one.table)))] for one in mine],
        [one.length for one in mine],
        window=mine[0].window,
        key_scale=key_scale,
        value_scale=value_scale,
        **options,
    )
