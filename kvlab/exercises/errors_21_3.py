"""Schedulers that starve somebody, admission rules that dead-end, and what finds them out.

Each is the engine's own scheduler with one thing changed. Section 21.3.
"""

import random
from collections.abc import Sequence
from typing import ClassVar

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.policies import Plan, Turns, Work, chunk, whose_turn
from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.exercises.serving_21_3 import Serving

PROMPTS_FIRST = Plan((Work.PREFILL, Work.DECODE), shared=True)
DECODES_FIRST = Plan((Work.DECODE, Work.PREFILL), shared=True)
PROMPTS_ALONE = Plan((Work.PREFILL, Work.DECODE), shared=False)

# ---- whose turn it is


class PromptsFirst(Serving):
    """gives a step's budget to prompts, and what they leave to decodes"""

    class Turns(Turns):
        def plan(self, config: SchedulerConfig, running: Sequence[Request]) -> Plan:
            return PROMPTS_FIRST


class BegunFirst(Serving):
    """goes on with a prompt that has begun before anybody decodes"""

    class Turns(Turns):
        def plan(self, config: SchedulerConfig, running: Sequence[Request]) -> Plan:
            has_begun = any(not request.is_decoding for request in running)
            return PROMPTS_FIRST if has_begun else DECODES_FIRST


class EveryThird(Serving):
    """lets decodes into every third step while there are prompts"""

    class Turns(Turns):
        count = 0

        def plan(self, config: SchedulerConfig, running: Sequence[Request]) -> Plan:
            self.count += 1
            return PROMPTS_ALONE if self.count % 3 else DECODES_FIRST


class OneDecode(Serving):
    """decodes one request a step, the one that has waited longest"""

    class Scheduler(Scheduler):
        def _schedule_running(self, work: Work, budget: int) -> int:
            if work is Work.PREFILL:
                return super()._schedule_running(work, budget)
            return budget - 1 + super()._schedule_running(work, 1)


class LeavesRoom(Serving):
    """serves prompts first, and leaves one position for each request that decodes"""

    Turns = PromptsFirst.Turns

    class Scheduler(Scheduler):
        def _kept(self, budget: int) -> int:
            return min(budget, sum(request.is_decoding for request in self.running))

        def _schedule_running(self, work: Work, budget: int) -> int:
            kept = self._kept(budget) if work is Work.PREFILL else 0
            return kept + super()._schedule_running(work, budget - kept)

        def _schedule_waiting(self, budget: int) -> int:
            kept = self._kept(budget)
            return kept + super()._schedule_waiting(budget - kept)


FAIRNESS = (Serving, LeavesRoom, PromptsFirst, BegunFirst, EveryThird, OneDecode)

# ---- who may begin


class TakesBack(Serving):
    """admits whose first chunk fits now; who runs short takes the blocks of the last that came"""


class Reserving(Serving):
    """admits whom the pool can hold until the end, beside what the others grow to"""

    fixed: ClassVar = {"admission": "reserved"}


class OneAtATime(Serving):
    """admits the next one when nobody runs"""

    class Scheduler(Scheduler):
        def _admit(self, request: Request, budget: int) -> int | None:
            return None if self.running else super()._admit(request, budget)


class _Patient(Scheduler):
    """Whoever finds no block keeps those it has, and waits until others end."""

    def _schedule_running(self, work: Work, budget: int) -> int:
        for request in whose_turn(self.running, work, self.config):
            count = chunk(request.num_pending_tokens, budget, self.config)
            if count and self.manager.allocate_slots(request, count) is not None:
                budget -= self._put_in_step(request, count)
        return budget


class FirstChunkFits(Serving):
    """admits whose first chunk fits now; who runs short keeps its blocks and waits"""

    Scheduler = _Patient


class PromptFits(Serving):
    """admits whose whole prompt fits now; who runs short keeps its blocks and waits"""

    class Scheduler(_Patient):
        def _admit(self, request: Request, budget: int) -> int | None:
            need = self.manager.blocks_needed(request, request.num_tokens)
            fits = need <= self.manager.pool.num_free_blocks
            return super()._admit(request, budget) if fits else None


class PromptsFit(Serving):
    """admits while the prompts of all who run fit together; who runs short waits"""

    class Scheduler(_Patient):
        def _admit(self, request: Request, budget: int) -> int | None:
            size, pool = self.manager.block_size, self.manager.pool
            prompts = (r.num_prompt_tokens for r in (*self.running, request))
            fit = sum(cdiv(n, size) for n in prompts) <= pool.num_blocks
            return super()._admit(request, budget) if fit else None


class QuarterFree(Serving):
    """admits whose prompt leaves a quarter of the pool free, even when nobody runs"""

    class Scheduler(Scheduler):
        def _schedule_waiting(self, budget: int) -> int:
            manager, pool = self.manager, self.manager.pool
            while self.waiting and budget:
                need = manager.blocks_needed(self.waiting[0], self.waiting[0].num_tokens)
                if need > pool.num_free_blocks - pool.num_blocks / 4:
                    break
                count = self._admit(self.waiting[0], budget)
                if count is None:
                    break
                budget -= count
            return budget


ADMISSION = (
    Serving,
    Reserving,
    OneAtATime,
    FirstChunkFits,
    PromptFits,
    PromptsFit,
    QuarterFree,
)
RULES = {"a": TakesBack, "b": PromptFits, "c": Reserving, "d": OneAtATime}

# ---- many loads at random

SEEDS, BUDGET = 6, 8


def is_fair(kind: type[Serving]) -> bool:
    """Whether, in many loads at random, everybody who decodes gets an output in every step."""
    for seed in range(SEEDS):
        draw = random.Random(seed)
        serving = kind(600, max_num_batched_tokens=BUDGET)
        names = [f"D{i}" for i in range(draw.randint(1, BUDGET - 2))]
        for name in names:
            serving.ask(name, draw.randint(1, 4), outputs=50)
        for i in range(30):
            if draw.random() < 0.4:
                serving.ask(f"P{i}", draw.randint(1, 40))
            serving.step()
        if any(serving.longest_gap(name) > 1 for name in names):
            return False
    return True


def goes_on(kind: type[Serving]) -> bool:
    """Whether, in many loads at random, all that is asked for ends, without two idle steps."""
    for seed in range(4 * SEEDS):
        draw = random.Random(seed)
        blocks, size = draw.randint(4, 10), draw.choice((1, 2, 4))
        serving = kind(blocks, size, max_num_batched_tokens=draw.choice((3, 8, 64)))
        for i in range(draw.randint(1, 5)):
            prompt = draw.randint(1, blocks * size - 1)
            serving.ask(f"r{i}", prompt, draw.randint(1, blocks * size - prompt))
            if draw.random() < 0.5:
                serving.step()
        serving.run()
        if serving.waiting or serving.running:
            return False
    return True
