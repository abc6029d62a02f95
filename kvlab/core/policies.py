"""Whose turn it is in a step: four ways to share steps between prompts and decodes (section 21.3).

A step has two kinds of work: positions of prompts (PREFILL) and the one pending output of each
decoding request (DECODE). A policy says which kind comes first, whether one step takes both, and
whether waiting requests may join. P12: a step with 12 positions of a prompt, D: a decode step.
A prompt of 12 tokens arrives beside two decoding requests:

    continuous                P12 D D D ...           whole prompts first
    alternating, chunk 4      P4 D P4 D P4 D D ...    a chunk, a decode step, a chunk ...
    mixed, chunk 4            D+P4 D+P4 D+P4 D ...    both in one step, decodes first (vLLM)
    static                    its group has to end first, then P12 D D D ...

Nobody waits without end. A gap is the difference of two steps' numbers, so 1 means every step;
B is max_num_batched_tokens, k = ceil(decoding requests / B) the turns that serve all of them once.

    static, continuous   decode gap at most max_decode_gap * k
    alternating          decode gap at most 2 * k
    mixed                decode gap 1 while fewer than B decode and prompts may be split; else
                         at most k + ceil(k / (max_prefill_gap - 1)): after max_prefill_gap - 1
                         steps that left prompts no budget, one step serves prompts first

and positions of prompts are computed at least every second step (mixed: every max_prefill_gap
steps) while a prompt is admitted or can be. These hold for requests that keep their blocks.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.core.request import Request, RequestStatus
from kvlab.core.scheduler_config import SchedulerConfig


class Work(enum.Enum):
    """The two kinds of work; each request that runs waits for one of them."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Plan:
    """What one step tries, in order. shared: all of it; else the first kind that finds work.

    admits: whether waiting requests may join with the prompts.
    """

    order: tuple[Work, Work]
    shared: bool
    admits: bool = True


@dataclass
class Turns:
    """What a policy remembers from step to step.

    decode_waits: steps in a row that went to prompts alone while a request was decoding.
    prefill_waits: steps in a row that left prompts no budget. group_closed: a static group is
    whole, and nobody joins it any more. It is filled until the queue is empty or seats or blocks
    run out; whom the budget left out may still join in the next step, before the group decodes.
    """

    decode_waits: int = 0
    prefill_waits: int = 0
    group_closed: bool = False

    def plan(self, config: SchedulerConfig, running: Sequence[Request]) -> Plan:
        """The next step's."""
        prompts_first, decodes_first = (Work.PREFILL, Work.DECODE), (Work.DECODE, Work.PREFILL)
        if not running:
            self.group_closed = False
        if config.policy == "mixed":
            starving = self.prefill_waits >= config.max_prefill_gap - 1
            return Plan(prompts_first if starving else decodes_first, shared=True)
        most = 2 if config.policy == "alternating" else config.max_decode_gap
        order = decodes_first if self.decode_waits >= most - 1 else prompts_first
        return Plan(order, shared=False, admits=not self.group_closed)

    def note(
        self,
        policy: str,
        took: Work | None,
        running: Sequence[Request],
        in_step: Sequence[Request],
        short: bool,
    ) -> None:
        """Remember a step. took: its kind of work; None: both, or nothing.

        in_step: whom it serves; short: some prompt was left out because the budget was used up.
        """
        starves = short and all(r.is_decoding for r in in_step)
        self.prefill_waits = self.prefill_waits + 1 if starves else 0
        starves = took is Work.PREFILL and any(r.is_decoding for r in running)
        self.decode_waits = self.decode_waits + 1 if starves else 0
        whole = self.group_closed or not short  # a decode step has no place for prompts: whole
        self.group_closed = policy == "static" and whole


def whose_turn(running: Sequence[Request], work: Work, config: SchedulerConfig) -> list[Request]:
    """Requests of one kind: decodes with the longest waiting first, prompts by rank."""
    decodes = work is Work.DECODE
    ready = [r for r in running if r.is_decoding == decodes and r.status is RequestStatus.RUNNING]
    return sorted(ready, key=lambda r: r.last_step if decodes else rank(r, config))


def chunk(pending: int, budget: int, config: SchedulerConfig) -> int:
    """How many of a request's pending positions one step computes."""
    return min(pending, budget, config.prefill_chunk or budget)


def rank(request: Request, config: SchedulerConfig) -> tuple[int, int]:
    """A request's place in every queue: the lowest is served first and preempted last.

    fcfs: by arrival. priority: the lower `Request.priority` first; one level weighs as much as
    `priority_ageing` steps of waiting, so whoever waits long enough overtakes any newcomer.
    """
    if config.order == "fcfs":
        return (0, request.arrival_index)
    if config.priority_ageing is None:
        return (request.priority, request.arrival_index)
    return (
        request.priority * config.priority_ageing + request.arrival_step,
        request.arrival_index,
    )


def longest_decode_gap(config: SchedulerConfig, num_decoding: int) -> int:
    """The most steps from one output of a decoding request to its next, by the policy's bound."""
    budget = config.max_num_batched_tokens
    turns = -(-num_decoding // budget)
    if config.policy == "alternating":
        return 2 * turns
    if config.policy != "mixed":
        return config.max_decode_gap * turns
    if num_decoding < budget and config.splits_prompts:
        return 1
    return turns - (-turns // (config.max_prefill_gap - 1))
