"""The same requests served twice by one model: over a padded rectangle, and over blocks.

Both runs select greedily and end requests by the same rule, so they go through the same passes:
all prompts, then one output of each request a pass. Every number is read off real tensors.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.layouts import PADDING, LayoutPass, LayoutRequest
from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.trace import Event, State, Trace
from kvlab.engine import LLMEngine
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner
from kvlab.widgets.growth_story import states

Inputs = Sequence[tuple[Sequence[int], SamplingParams]]  # a prompt's token ids, and its parameters
NAMES = "ABCDEFGH"


def serve_twice(
    model: Decoder, inputs: Inputs, block_size: int, dtype: torch.dtype, max_model_len: int
) -> tuple[tuple[LayoutRequest, ...], tuple[LayoutPass, ...]]:
    """Requests and passes, as a `LayoutRun` takes them. dtype: of the stored keys and values.

    Raises RuntimeError where the two layouts select different tokens.
    """
    requests, rectangle = run_rectangle(model, inputs, dtype, max_model_len)
    trace = run_blocks(model, inputs, block_size, dtype, max_model_len)
    last = trace.last_state()["requests"]
    for request in requests:
        tokens = tuple(last[request.name]["token_ids"][len(request.prompt_token_ids) :])
        _check_same(request.name, request.output_token_ids, tokens)
    blocks = block_passes(trace, len(inputs))
    passes = (LayoutPass(**a, **b) for a, b in zip(rectangle, blocks, strict=True))
    return requests, tuple(passes)


def run_rectangle(
    model: Decoder, inputs: Inputs, dtype: torch.dtype, max_model_len: int
) -> tuple[tuple[LayoutRequest, ...], list[dict]]:
    """Greedy decoding over one `ContiguousCache`; prompts are padded at the right.

    A request that has ended keeps its row: each further pass adds a padded slot to it.
    """
    running = _requests(model, inputs)
    everyone = list(running)
    cache = ContiguousCache(model.config, len(everyone), dtype, model.device)
    new = [list(request.prompt_token_ids) for request in everyone]
    letter, passes = "P", []
    while running:
        lengths = [len(tokens) for tokens in new]
        rows = [tokens + [0] * (max(lengths) - len(tokens)) for tokens in new]
        ids = torch.tensor(rows, device=model.device)  # [B, t]
        logits = contiguous_forward(model, ids, cache, lengths)
        passes.append(rectangle_pass(cache, ids.shape[1], letter))
        for request in running:
            row = everyone.index(request)
            request.append_output(int(logits[row, lengths[row] - 1].argmax()))
        running = [r for r in running if r.check_stop(max_model_len) is None]
        new = [r.all_token_ids[-1:] if r in running else [] for r in everyone]
        letter = "O"
    named = (
        LayoutRequest(r.request_id, tuple(r.prompt_token_ids), tuple(r.output_token_ids))
        for r in everyone
    )
    return tuple(named), passes


def rectangle_pass(cache: ContiguousCache, width: int, letter: str) -> dict:
    """The newest `width` columns as letters, and the bytes of the rectangle and of its rows."""
    columns = cache.valid[:, -width:].tolist()
    return {
        "columns": tuple("".join(letter if v else PADDING for v in row) for row in columns),
        "rectangle_nbytes": cache.nbytes,
        "row_nbytes": tuple(_row_nbytes(cache, row) for row in range(cache.batch)),
    }


def _row_nbytes(cache: ContiguousCache, row: int) -> int:
    """Bytes of the processed positions of one request, K and V of all layers."""
    stored: list[Tensor] = [*cache.keys, *cache.values]  # each [B, num_kv_heads, T, head_dim]
    return sum(t[row][:, cache.valid[row]].nbytes for t in stored)


def run_blocks(
    model: Decoder, inputs: Inputs, block_size: int, dtype: torch.dtype, max_model_len: int
) -> Trace:
    """An engine over a `PagedCache` of its own, without prefix caching, recorded as a trace."""
    lengths = [len(prompt) + params.max_tokens for prompt, params in inputs]
    num_blocks = sum(cdiv(min(length, max_model_len), block_size) for length in lengths)
    cache = PagedCache(model.config, num_blocks, block_size, dtype, model.device)
    manager = KVCacheManager(BlockPool(num_blocks), block_size, enable_prefix_caching=False)
    budget = sum(len(prompt) for prompt, _ in inputs)  # all prompts in the first pass
    limits = SchedulerConfig(len(inputs), budget, max_model_len=max_model_len)
    runner, eos = ModelRunner(model, cache), model.config.eos_token_ids
    engine = LLMEngine(Scheduler(manager, limits), runner, eos_token_ids=eos)

    def measured(request: Request) -> Mapping[str, int]:
        table = manager.block_table(request.request_id)
        taken = (tensor[:, table].nbytes for tensor in (cache.key_cache, cache.value_cache))
        stored = cache.stored_nbytes(table, request.num_computed_tokens)
        return {"nbytes": stored, "taken_nbytes": sum(taken)}

    for name, (prompt, params) in zip(NAMES, inputs, strict=False):
        engine.add_request(prompt, params, request_id=name)
    engine.start_trace(probe=measured)
    engine.run()
    return engine.stop_trace()


def block_passes(trace: Trace, count: int) -> list[dict]:
    """What each step of the trace did to the block tables, one dict a pass."""
    steps: dict[float, list[tuple[Event, State]]] = {}
    for _, event, state in states(trace):
        if event.kind in ("computed", "finished"):
            steps.setdefault(event.clock, []).append((event, state))
    held = [0] * count  # blocks of each request so far: tables only grow
    return [_block_pass(events, held) for events in steps.values()]


def _block_pass(events: Sequence[tuple[Event, State]], held: list[int]) -> dict:
    done, stored, taken = ([0] * len(held) for _ in range(3))
    new: list[tuple[int, ...]] = [()] * len(held)
    ended = []
    for event, state in events:
        i, request = NAMES.index(event.request_id), state["requests"][event.request_id]
        if event.kind == "finished":
            ended.append(i)
            continue
        done[i] = request["num_computed_tokens"]
        stored[i], taken[i] = event.data["nbytes"], event.data["taken_nbytes"]
        new[i] = tuple(request["block_table"][held[i] :])
        held[i] = len(request["block_table"])
    return {
        "num_computed_tokens": tuple(done),
        "new_block_ids": tuple(new),
        "block_nbytes": tuple(taken),
        "payload_nbytes": tuple(stored),
        "ended": tuple(sorted(ended)),
    }


def _requests(model: Decoder, inputs: Inputs) -> list[Request]:
    eos = model.config.eos_token_ids
    pairs = zip(NAMES, inputs, strict=False)
    return [Request(name, ids, params, eos_token_ids=eos) for name, (ids, params) in pairs]


def _check_same(name: str, rectangle: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    if rectangle == blocks:
        return
    pairs = zip(rectangle, blocks, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(rectangle), len(blocks)))
    raise RuntimeError(
        f"request {name}, output {at + 1}: the rectangle selects {rectangle[at : at + 1]} and the "
        f"blocks select {blocks[at : at + 1]}. The layouts store the same keys and values, so one "
        "of them reads what it must not (is padding masked?), or two logits are as good as equal "
        "(then compute in float32)"
    )
