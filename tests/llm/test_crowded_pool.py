"""Many requests through a pool of 64 blocks on the embedded model, under each policy in turn.

No block leaks and no request is lost, and what was preempted, offloaded or evicted in between gave
the tokens of an undisturbed run. The long form (make soak) plays 5,000 requests a policy and prints
the process's memory as it goes.
"""

from collections import Counter
from pathlib import Path

import pytest

from kvlab import LLM, SamplingParams, play
from kvlab.core.arrivals import Poisson
from kvlab.core.lengths import Uniform
from kvlab.core.scheduler_config import CHOICES
from kvlab.core.workload import SharedPrefix, generate

POLICIES = CHOICES["policy"]


def crowd(num_requests, seed):
    """Short prompts, half of them with a common beginning; four arrive in five steps."""
    return generate(
        num_requests,
        arrivals=Poisson(0.8),
        prompt_tokens=Uniform(3, 40),
        output_tokens=Uniform(1, 20),
        vocab_size=600,
        shared=SharedPrefix(0.5, 10, groups=3),
        priorities=(0, 1),
        seed=seed,
    )


def crowded_llm(policy, **settings):
    return LLM(
        "tiny",
        block_size=4,
        num_blocks=64,
        max_num_seqs=12,
        max_num_batched_tokens=64,
        policy=policy,
        **settings,
    )


def resident_mb():
    """Resident memory of this process in MB; None where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def go_through(llm, workload, report=None):
    """Play all of it; invariants on the way; everything free at the end."""
    scheduler = llm.engine.scheduler

    def look(step):
        if step % 25 == 0:
            scheduler.check_invariants()
        if report and step % 1000 == 0:
            report(step)

    played = play(llm.engine, workload, mode="step", on_step=look)
    scheduler.check_invariants()
    pool = scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks == 64
    assert not llm.engine.requests and not scheduler.has_unfinished_requests()
    if scheduler.offload is not None:
        tier = scheduler.offload.tier.pool
        assert tier.num_free_blocks == tier.num_blocks
    assert len(played.requests) == len(workload)
    asked = {a.request_id: a.max_tokens for a in workload}
    for r in played.requests:
        assert r.finish_reason == "length" and len(r.output_token_ids) == asked[r.request_id]
    return played


def same_as_alone(workload, played, every):
    """A request alone in an engine with room for all of it gives the same tokens."""
    alone = LLM("tiny", block_size=16, num_blocks=64, enable_prefix_caching=False)
    for arrival in list(workload)[::every]:
        params = SamplingParams(max_tokens=arrival.max_tokens, ignore_eos=True)
        (out,) = alone.generate(list(arrival.prompt_token_ids), params)
        found = played[arrival.request_id].output_token_ids
        assert tuple(out.outputs[0].token_ids) == tuple(found), arrival.request_id


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", [{}, {"preempt_by": "offload", "cpu_blocks": 32}], ids=str)
def test_a_crowd_of_sixty(policy, settings):
    workload = crowd(60, seed=POLICIES.index(policy))
    played = go_through(crowded_llm(policy, **settings), workload)
    assert sum(r.num_preemptions for r in played.requests) > 0  # it was crowded
    same_as_alone(workload, played, every=6)


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
def test_a_crowd_of_five_thousand(policy, capsys):
    settings = {"preempt_by": "offload", "cpu_blocks": 32, "order": "priority"}
    llm, sizes = crowded_llm(policy, **settings), []

    def report(step):
        sizes.append(resident_mb())
        with capsys.disabled():
            memory = "unknown" if sizes[-1] is None else f"{sizes[-1]:.0f} MB"
            print(f"\n{policy:>12}, step {step:>6}: resident memory {memory}", end="")

    workload = crowd(5000, seed=9)
    played = go_through(llm, workload, report)
    reasons = Counter(r.finish_reason for r in played.requests)
    assert reasons == {"length": 5000}
    assert sum(r.num_preemptions for r in played.requests) > 100
    same_as_alone(workload, played, every=100)
    known = [size for size in sizes if size is not None]
    if len(known) > 3:
        assert known[-1] < known[1] + 50  # MB: after the first thousand steps it stays flat
