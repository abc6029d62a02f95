"""Prefix hits never change output: the same random requests with caching on and off, equal tokens.

fp32, greedy and seeded sampling, chunks, preemption, continuations, salts, every policy of the
prefix cache. Pools are full of NaN beforehand, so a slot read before it is written shows.
"""

import random
from dataclasses import dataclass

import pytest
import torch
from builders import greedy, make_engine, random_model, record_logits, run

from kvlab.core.block_pool import BlockPool
from kvlab.core.hashing import sha256, truncated_sha256
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import SamplingParams

MODELS = [random_model(1), random_model(2, num_kv_heads=4), random_model(4, qk_norm=True)]


def engine_with(policy, model, num_blocks=64, block_size=4, **options):
    """As `make_engine`, with the policy given."""
    engine = make_engine(model, num_blocks, block_size, **options)
    old = engine.scheduler.manager
    engine.scheduler.manager = KVCacheManager(
        BlockPool(num_blocks),
        block_size,
        enable_prefix_caching=old.enable_prefix_caching,
        policy=policy,
    )
    return engine


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: list[int]
    params: SamplingParams
    salt: str | None


@dataclass(frozen=True)
class Workload:
    """Requests whose prompts begin alike, and an engine small enough to preempt now and then."""

    model: int
    block_size: int
    num_blocks: int
    budget: int
    policy: PrefixCachePolicy
    arrivals: list[Arrival]

    @classmethod
    def random(cls, seed):
        r = random.Random(seed)
        block_size = r.choice([1, 2, 3, 4, 8])
        stem = [r.randrange(61) for _ in range(24)]
        arrivals = []
        for _ in range(r.randint(3, 8)):
            same = stem[: r.choice([block_size, 2 * block_size, 24, r.randint(0, 24)])]
            own = [r.randrange(61) for _ in range(r.choice([0, 0, 1, r.randint(1, 8)]))]
            temperature = r.choice([0.0, 0.9])
            params = SamplingParams(
                r.randint(1, 8), temperature, seed=r.getrandbits(30), n=r.choice([1, 1, 1, 2])
            )
            salt = r.choice([None, None, None, "s"])
            arrivals.append(Arrival(r.randint(0, 12), same + own or [5], params, salt))
        policy = PrefixCachePolicy(
            r.choice([sha256, truncated_sha256(0), truncated_sha256(1)]),
            retain_freed=r.random() < 0.8,
            kept_logits=r.choice([0, 1, 4]),
        )
        blocks = -(-40 // block_size) + r.choice([0, 3, 60])
        budget = r.choice([5, 16, 64])
        return cls(r.randrange(len(MODELS)), block_size, blocks, budget, policy, arrivals)

    def run(self, caching):
        engine = engine_with(
            self.policy,
            MODELS[self.model],
            self.num_blocks,
            self.block_size,
            caching=caching,
            max_num_batched_tokens=self.budget,
        )
        finite = []
        engine.runner.on_logits = lambda rows: finite.extend(
            bool(torch.isfinite(x).all()) for x in rows.values()
        )
        requests, todo, step = [], sorted(self.arrivals, key=lambda a: a.step), 0
        while todo or engine.has_unfinished_requests():
            while todo and todo[0].step <= step:
                a = todo.pop(0)
                requests += engine.add_request(a.prompt, a.params, cache_salt=a.salt)
            engine.step()
            engine.scheduler.check_invariants()
            step += 1
        assert all(finite)
        pool = engine.scheduler.manager.pool
        assert pool.num_free_blocks == pool.num_blocks
        return requests, engine


def check(seeds):
    hits = reused = preempted = 0
    for seed in seeds:
        workload = Workload.random(seed)
        on, engine = workload.run(caching=True)
        off, _ = workload.run(caching=False)
        assert [r.output_token_ids for r in on] == [r.output_token_ids for r in off], seed
        assert [r.finish_reason for r in on] == [r.finish_reason for r in off], seed
        hits += engine.scheduler.manager.stats.hits
        reused += sum(r.num_cached_tokens == r.num_prompt_tokens for r in on)
        preempted += sum(r.num_preemptions for r in on)
        assert all(r.num_cached_tokens == 0 for r in off)
    return hits, reused, preempted


def test_two_hundred_workloads_with_and_without_caching():
    hits, reused, preempted = check(range(200))
    assert min(hits, reused, preempted) > 50  # the comparison was about something


@pytest.mark.soak
def test_two_thousand_more():
    hits, reused, preempted = check(range(1000, 3000))
    assert min(hits, reused, preempted) > 500


@pytest.mark.parametrize("block_size", [1, 4])
def test_kept_logits_are_those_of_computing_the_last_position(block_size):
    model, prompt = MODELS[0], list(range(3, 11))
    engine = engine_with(PrefixCachePolicy(kept_logits=2), model, 64, block_size)
    logits = record_logits(engine)
    engine.add_request(prompt, greedy(4), request_id="first")
    run(engine)
    (r,) = engine.add_request(prompt, greedy(4), request_id="again")
    run(engine)
    assert r.num_cached_tokens == 8
    for one, other in zip(logits["again"], logits["first"], strict=True):
        assert (one - other).abs().max() < 1e-4
    assert engine.runner.kept_logits_nbytes == 2 * 61 * 4 if block_size == 1 else 61 * 4


def test_kept_logits_inside_a_prompt_are_right_too():
    """The block's last position is not the row's: its logits are computed for keeping alone."""
    model, prompt = MODELS[0], list(range(3, 16))
    engine = engine_with(PrefixCachePolicy(kept_logits=8), model, 64, 4)
    logits = record_logits(engine)
    engine.add_request(prompt, greedy(1), request_id="long")
    engine.add_request([9, 8, 7], greedy(3), request_id="beside")
    run(engine)
    for length in (4, 8, 12):
        (r,) = engine.add_request(prompt[:length], greedy(3), request_id=f"c{length}")
        run(engine)
        assert r.num_cached_tokens == length
        apart = make_engine(model, caching=False)
        want = record_logits(apart)
        (alone,) = apart.add_request(prompt[:length], greedy(3), request_id="a")
        run(apart)
        assert r.output_token_ids == alone.output_token_ids
        assert (logits[f"c{length}"][0] - want["a"][0]).abs().max() < 1e-4
    assert engine.runner.kept_logits_nbytes == 3 * 61 * 4


def test_memory_of_kept_logits_is_bounded():
    model = MODELS[0]
    engine = engine_with(PrefixCachePolicy(kept_logits=3), model, 64, 2)
    for i in range(10):
        engine.add_request([i + 1] * 12, greedy(2))
    run(engine)
    assert engine.runner.kept_logits_nbytes == 3 * 61 * 4


def test_unchecked_a_weak_hash_changes_the_output_and_the_comparison_saves_it():
    """Everything collides; what is wrong without comparing contents is right with it."""
    model = MODELS[0]
    alone = []
    for exact_match in (True, False):
        engine = engine_with(PrefixCachePolicy(truncated_sha256(0), exact_match), model)
        engine.add_request([1, 2, 3, 4, 60], greedy(6))
        run(engine)
        (b,) = engine.add_request([30, 31, 32, 33, 60], greedy(6))
        run(engine)
        alone.append((b.num_cached_tokens, b.output_token_ids))
    apart = make_engine(model, caching=False)
    (want,) = apart.add_request([30, 31, 32, 33, 60], greedy(6))
    run(apart)
    (checked, unchecked) = alone
    assert checked == (0, want.output_token_ids)
    assert unchecked[0] == 4 and unchecked[1] != want.output_token_ids


def test_two_tenants_of_one_engine_share_nothing():
    """Equal prompts: no common block, a hit within one's own salt only, equal answers."""
    engine = engine_with(PrefixCachePolicy(), MODELS[0])
    outputs, tables = [], {}
    for name, salt in (("a", "one"), ("b", "two"), ("c", "one"), ("d", None)):
        (r,) = engine.add_request(range(1, 14), greedy(4), request_id=name, cache_salt=salt)
        engine.step()
        tables[name] = set(engine.scheduler.manager.block_table(name))
        run(engine)
        outputs.append((r.num_cached_tokens, r.output_token_ids))
    assert [cached for cached, _ in outputs] == [0, 0, 12, 0]
    assert len({tuple(tokens) for _, tokens in outputs}) == 1
    assert len(tables["a"] & tables["c"]) == 3
    assert tables["a"].isdisjoint(tables["b"])
    stats = engine.scheduler.manager.stats
    assert (stats.requests, stats.queries, stats.hits) == (4, 52, 12)
