"""Random arrivals, pool and tier sizes, policies, aborts, suspensions, copies that take long or
fail, steps that fail: every request ends once, with the tokens of an undisturbed run (or a
beginning of them and the reason); all blocks of both tiers come back."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from history_runner import alone
from hypothesis import given, settings
from hypothesis import strategies as st
from tiered_runner import check_empty, make_tiered

from kvlab.core.hashing import sha256, truncated_sha256
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import FinishReason, RequestStatus, SamplingParams

requests = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 12),
        "own": st.integers(1, 12),
        "max_tokens": st.integers(1, 14),
        "n": st.sampled_from([1, 1, 1, 2, 3]),
        "priority": st.integers(0, 2),
        "arrives": st.integers(0, 14),
        "aborted_at": st.none() | st.integers(0, 25) | st.just("loading"),  # a step or a status
        "suspended_at": st.none() | st.integers(0, 25),
    }
)
configurations = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(3, 6),
        "max_num_batched_tokens": st.integers(1, 24),
        "policy": st.sampled_from(["mixed", "static", "continuous", "alternating"]),
        "order": st.sampled_from(["fcfs", "priority"]),
        "admission": st.sampled_from(["current", "reserved"]),
        "watermark": st.sampled_from([0.0, 0.2]),
        "max_bypass": st.integers(0, 2),
        "preempt_by": st.sampled_from(["offload", "offload", "recompute"]),
        "enable_chunked_prefill": st.booleans(),
    }
)
cache_policies = st.builds(
    PrefixCachePolicy,
    st.sampled_from([sha256, truncated_sha256(0)]),
    retain_freed=st.booleans(),
    kept_logits=st.integers(0, 2),
)
copies = st.fixed_dictionaries(
    {
        "delays": st.lists(st.integers(0, 4), min_size=1, max_size=5),
        "failing": st.sets(st.integers(1, 60), max_size=8) | st.just(frozenset(range(1, 10_000))),
    }
)


@dataclass
class Story:
    """One engine and what happens to it from outside, step by step."""

    engine: object
    plans: list
    failing_steps: set
    admitted: dict = field(default_factory=dict)
    ended: dict = field(default_factory=dict)
    step: int = 0
    idle: int = 0  # steps in a row without work while somebody waits

    def run(self):
        todo = sorted(enumerate(self.plans), key=lambda p: p[1]["arrives"])
        while todo or self.engine.has_unfinished_requests() or self.engine.scheduler.suspended:
            while todo and todo[0][1]["arrives"] <= self.step:
                self.arrive(*todo.pop(0))
            self.disturb()
            self.take_step()
            self.step += 1
            assert self.step < 800, "no progress"

    def arrive(self, i, plan):
        prompt = [*range(plan["shared"]), *range(100 * (i + 1), 100 * (i + 1) + plan["own"])]
        params = SamplingParams(max_tokens=plan["max_tokens"], n=plan["n"])
        try:
            group = self.engine.add_request(
                prompt, params, request_id=f"q{i}", priority=plan["priority"]
            )
        except ValueError:
            return  # it could never run
        self.admitted.update({r.request_id: (r, plan) for r in group})

    def disturb(self):
        for name, (r, plan) in self.admitted.items():
            if plan["suspended_at"] == self.step and r.sample_index != 1:
                self.engine.runner.cut_short += r.status is RequestStatus.LOADING
                self.engine.suspend(name)
            elif plan["suspended_at"] is not None and plan["suspended_at"] + 6 == self.step:
                self.engine.resume(name)
            if plan["aborted_at"] in (self.step, r.status.value) and r.sample_index == 0:
                was_there = not r.is_finished
                self.engine.runner.cut_short += r.status is RequestStatus.LOADING
                assert self.engine.abort(name) == was_there
                assert not self.engine.abort(name)
        if self.step > 40:
            for name in list(self.engine.scheduler.suspended):
                self.engine.resume(name)

    def take_step(self):
        before, waited = len(self.engine.runner.messages), bool(self.engine.scheduler.waiting)
        runner, fails = self.engine.runner, self.step in self.failing_steps
        runner.fail_early = fails and self.step % 2 == 0
        runner.fail_next = fails and self.step % 2 == 1  # after its copies were started
        try:
            outputs, failed = self.engine.step(), False
        except RuntimeError:
            outputs, failed = [], True
        runner.fail_early = runner.fail_next = False
        worked = len(runner.messages) > before or outputs or failed
        self.idle = 0 if worked or not waited else self.idle + 1
        assert self.idle < 2, "nothing runs and someone waits"
        for out in outputs:
            if out.finish_reason is not None:
                assert out.request_id not in self.ended, "ended twice"
                self.ended[out.request_id] = out.finish_reason
        self.engine.scheduler.check_invariants()

    def check(self):
        for name, (r, plan) in self.admitted.items():
            whole = alone(r.prompt_token_ids, plan["max_tokens"], r.sample_index)
            assert r.status is RequestStatus.FINISHED
            assert r.output_token_ids == whole[: len(r.output_token_ids)]
            if r.finish_reason is FinishReason.LENGTH:
                assert r.output_token_ids == whole
            else:
                assert r.finish_reason in (FinishReason.ABORT, FinishReason.CAPACITY)
            if r.finish_reason is FinishReason.CAPACITY and plan["n"] == 1:
                manager = self.engine.scheduler.manager
                blocks, window = manager.pool.num_blocks, manager.window
                assert r.num_tokens > blocks * manager.block_size
                assert window is None or window.most_blocks(r.num_tokens) > blocks
            assert (name in self.ended) == (r.finish_reason is not FinishReason.ABORT)
        check_empty(self.engine)


stories = st.fixed_dictionaries(
    {
        "plans": st.lists(requests, min_size=1, max_size=7),
        "block_size": st.integers(1, 5),
        "blocks": st.integers(2, 30),
        "cpu_blocks": st.integers(1, 30),
        "caching": st.booleans(),
        "window": st.sampled_from([None, None, 1, 2, 5, 8, 13]),
        "cache_policy": cache_policies,
        "config": configurations,
        "copies": copies,
        "failing_steps": st.sets(st.integers(0, 30), max_size=3),
    }
)


def tell(story):
    """Run it to its end and check the end. Returns the engine."""
    engine = make_tiered(
        story["blocks"],
        story["cpu_blocks"],
        story["block_size"],
        delays=story["copies"]["delays"],
        fails=lambda kind, number: number in story["copies"]["failing"],
        prefix_caching=story["caching"],
        window=story["window"],
        cache_policy=story["cache_policy"],
        **story["config"],
    )
    told = Story(engine, story["plans"], story["failing_steps"])
    told.run()
    told.check()
    return engine


def crowded(seed):
    """A story with long requests in a small pool, so that most of them go to the tier and back."""
    r = random.Random(seed)
    plans = [
        {
            "shared": r.choice([0, 8, 12]),
            "own": r.randint(1, 8),
            "max_tokens": r.randint(6, 16),
            "n": r.choice([1, 1, 1, 2]),
            "priority": r.randint(0, 2),
            "arrives": r.randint(0, 20),
            "aborted_at": r.choice([None, None, None, r.randint(1, 40), "loading"]),
            "suspended_at": r.choice([None, None, r.randint(1, 25)]),
        }
        for _ in range(r.randint(4, 8))
    ]
    size = r.choice([1, 2, 4])
    return {
        "plans": plans,
        "block_size": size,
        "blocks": 40 // size + r.randint(0, 6),
        "cpu_blocks": r.choice([3, 40 // size, 160 // size]),
        "caching": r.random() < 0.7,
        "window": r.choice([None, None, 2, 6, 11]),
        "cache_policy": PrefixCachePolicy(
            r.choice([sha256, truncated_sha256(0)]),
            retain_freed=r.random() < 0.8,
            kept_logits=r.choice([0, 2]),
        ),
        "config": {
            "max_num_seqs": r.randint(3, 8),
            "max_num_batched_tokens": r.randint(8, 32),
            "policy": r.choice(["mixed", "mixed", "static", "continuous", "alternating"]),
            "order": r.choice(["fcfs", "priority"]),
            "admission": r.choice(["current", "current", "reserved"]),
            "max_bypass": r.choice([0, 2]),
            "preempt_by": r.choice(["offload", "offload", "recompute"]),
        },
        "copies": {
            "delays": [r.randint(0, 4) for _ in range(r.randint(1, 5))],
            "failing": set(r.sample(range(1, 80), r.choice([0, 0, 2, 20]))),
        },
        "failing_steps": set(r.sample(range(50), r.choice([0, 0, 2]))),
    }


def count(seeds):
    """Over all these stories: in how many each counter of the tier moved, and loads cut short."""
    moved = Counter()
    for seed in seeds:
        engine = tell(crowded(seed))
        moved.update(name for name, n in engine.scheduler.offload.stats.as_dict().items() if n)
        moved["cut_short"] += engine.runner.cut_short
    return moved


NEEDED = (
    "requests_offloaded", "requests_loaded", "refused", "evicted_stored", "evicted_lost",
    "tokens_found", "failed_stores", "failed_loads", "cut_short",
)  # fmt: skip


def test_nothing_is_lost_in_four_hundred_crowded_stories():
    moved = count(range(400))
    assert min(moved[name] for name in NEEDED) > 20, moved


@pytest.mark.soak
def test_nothing_is_lost_in_ten_thousand_crowded_stories():
    moved = count(range(1000, 11_000))
    assert min(moved[name] for name in NEEDED) > 500, moved


@settings(max_examples=300)
@given(stories)
def test_nothing_is_lost_between_two_tiers(story):
    engine = tell(story)
    assert not engine.has_unfinished_requests()


@pytest.mark.soak
@settings(max_examples=10_000, derandomize=False)
@given(stories)
def test_nothing_is_lost_in_ten_thousand_more(story):
    engine = tell(story)
    assert not engine.has_unfinished_requests()
