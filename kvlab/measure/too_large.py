"""Two requests that do not fit into the pool together, and six ways to deal with it (section 21.3).

    delay        B begins when it and what A can grow to fit        (admission="reserved")
    reject       as above, but B is refused where it cannot begin at once
    shorten      B comes with a shorter prompt, so that both fit
    recompute    both begin; who came last loses its blocks and is computed again
    offload      both begin; who came last has its blocks kept in the CPU tier
    put A aside  A goes to the CPU tier when B comes, and comes back when B has ended

A comes first and decodes when B arrives. Each way is a run of the real engine with a pool of its
own and without a prefix cache; delays count steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import Request, SamplingParams
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.schedule_spans import RequestRecord, Schedule
from kvlab.llm import LLM
from kvlab.tensors.model import Decoder

MOST_STEPS = 10_000
SETTINGS: dict[str, dict[str, object]] = {
    "delay": {"admission": "reserved"},
    "reject": {"admission": "reserved"},
    "shorten": {},
    "recompute": {},
    "offload": {"preempt_by": "offload"},
    "put A aside": {},
}


@dataclass(frozen=True)
class Side:
    """One of the two requests. ttft, end: steps from its arrival; None where there was none.

    prompt: positions of its prompt that were admitted. recomputed: positions computed once more.
    """

    prompt: int
    ttft: int | None
    end: int | None
    recomputed: int
    ended: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Way:
    """What one way gave. peak: most blocks in use at once; nbytes: between the tiers, both ways;
    log: the run's schedule."""

    a: Side
    b: Side
    peak: int
    nbytes: int
    log: Schedule


def two_too_large(
    model: Decoder,
    a: Sequence[int],
    b: Sequence[int],
    b_short: Sequence[int],
    params: SamplingParams,
    *,
    block_size: int,
    num_blocks: int,
) -> dict[str, Way]:
    """{way: what it gave}. a, b, b_short: prompts as token ids.

    Raises ValueError where A and B fit together, where one does not fit alone, or where A does
    not fit beside the shortened B: then there is nothing to compare.
    """
    blocks = [cdiv(len(p) + params.max_tokens - 1, block_size) for p in (a, b, b_short)]
    if blocks[0] + blocks[1] <= num_blocks:
        raise ValueError(
            f"{blocks[0]} and {blocks[1]} blocks fit into {num_blocks}; give a smaller pool"
        )
    if max(blocks) > num_blocks or blocks[0] + blocks[2] > num_blocks:
        raise ValueError(
            f"the pool has {num_blocks} blocks, A needs {blocks[0]}, B {blocks[1]} and the "
            f"shortened B {blocks[2]}; each alone, and A beside the shortened B, must fit"
        )
    prompts = {name: (a, b_short if name == "shorten" else b) for name in SETTINGS}
    return {
        name: _run(model, name, prompts[name], params, block_size, num_blocks) for name in SETTINGS
    }


def _run(
    model: Decoder,
    name: str,
    prompts: tuple[Sequence[int], Sequence[int]],
    params: SamplingParams,
    block_size: int,
    num_blocks: int,
) -> Way:
    llm = LLM(
        model,
        block_size=block_size,
        num_blocks=num_blocks,
        cpu_blocks=num_blocks if name in ("offload", "put A aside") else None,
        enable_prefix_caching=False,
        **SETTINGS[name],
    )
    with ScheduleLog(llm.engine.scheduler) as log:
        (first,) = llm.engine.add_request(prompts[0], params, request_id="A")
        llm.engine.step()
        llm.engine.step()
        if name == "put A aside":
            llm.engine.suspend("A")
        (second,) = llm.engine.add_request(prompts[1], params, request_id="B")
        llm.engine.step()
        if name == "reject" and second in llm.engine.scheduler.waiting:
            llm.engine.abort("B")
        _until(llm, lambda: second.is_finished)
        llm.engine.resume("A")
        _until(llm, lambda: first.is_finished)
    sides = [_side(request, log.requests[request.request_id]) for request in (first, second)]
    stats = llm.offload_stats
    peak = num_blocks - min(step.free_blocks for step in log.steps)
    return Way(*sides, peak, stats.bytes_stored + stats.bytes_loaded if stats else 0, log)


def _until(llm: LLM, done: Callable[[], bool]) -> None:
    for _ in range(MOST_STEPS):
        if done():
            return
        llm.engine.step()
    raise RuntimeError(f"not at an end after {MOST_STEPS:,} steps")


def _side(request: Request, record: RequestRecord) -> Side:
    computed = sum(span.tokens for span in record.spans)
    outputs = tuple(request.output_token_ids)
    needed = len(request.prompt_token_ids) + len(outputs) - 1 if outputs else 0
    return Side(
        len(request.prompt_token_ids) if computed else 0,
        None if record.ttft is None else int(record.ttft),
        int(record.e2el) if request.finish_reason.value != "abort" else None,
        computed - needed,
        request.finish_reason.value,
        outputs,
    )
