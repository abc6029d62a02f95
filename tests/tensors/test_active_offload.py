"""Offloading the blocks of running requests: equal outputs, and the transfer is paid every step."""

import pytest
from builders import greedy, make_engine, random_model, run

from kvlab.tensors.active_offload import ActiveOffload
from kvlab.tensors.host_tier import HostTier

MODEL = random_model(3)


def served(active, ask, **limits):
    engine = make_engine(MODEL, 64, 4, nan=not active, **limits)
    if active:
        engine.runner = ActiveOffload(engine.runner)
    requests = ask(engine)
    run(engine)
    return [r.output_token_ids for r in requests], engine.runner


def one(engine):
    return engine.add_request(range(1, 11), greedy(8))


def many(engine):
    """Shared prefixes, continuations that copy a block before they write, chunks."""
    requests = engine.add_request(range(1, 11), greedy(8, n=3))
    requests += engine.add_request(range(1, 31), greedy(4))
    engine.step()
    return requests + engine.add_request([*range(1, 9), 40], greedy(6))


@pytest.mark.parametrize("ask", [one, many])
def test_outputs_are_the_same(ask):
    limits = {"max_num_batched_tokens": 16}
    assert served(True, ask, **limits)[0] == served(False, ask, **limits)[0]


def test_the_price_is_paid_every_step_and_grows_with_the_context():
    """Ten prompt positions, block size 4: three blocks, then four from position 12 on."""
    _, runner = served(True, one)
    block = runner.host.block_nbytes
    assert [len(r.stored) for r in runner.reports] == [3, 1, 1, 1, 1, 1, 1, 1]
    assert [len(r.loaded) for r in runner.reports] == [0, 3, 3, 3, 4, 4, 4, 4]
    assert [r.bytes_loaded for r in runner.reports] == [
        len(r.loaded) * block for r in runner.reports
    ]
    assert runner.stats.bytes_loaded == 25 * block
    assert all(r.seconds_loading > 0 for r in runner.reports[1:])


def test_a_runner_with_a_tier_is_refused():
    engine = make_engine(MODEL)
    engine.runner.host_tier = HostTier(engine.runner.cache, 2)
    with pytest.raises(ValueError, match="has a CPU tier; use one without cpu_blocks"):
        ActiveOffload(engine.runner)
