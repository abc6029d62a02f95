"""How admission grows: with the prompt, and not with the pool."""

from kvlab.measure import manager_speed, report


def case(prompt, pool, rate):
    rates = {"median": rate / 2, "min": rate / 4, "max": rate}
    return {
        "prompt_tokens": prompt,
        "pool_blocks": pool,
        "operations_per_second": dict.fromkeys(("admit", "append", "free"), rates),
        "admitted_tokens_per_second": rates,
    }


CASES = {
    "without hits": case(512, 2048, 1),
    "prompt 64": case(64, 2048, 1000.0),
    "prompt 512": case(512, 2048, 130.0),
    "prompt 4096": case(4096, 2048, 20.0),
    "pool 256": case(512, 256, 120.0),
    "pool 65536": case(512, 65536, 100.0),
}


def test_from_the_smallest_to_the_largest_case_by_the_best_round():
    assert manager_speed.growth(CASES) == [
        ("prompt", "long", 64.0, 50.0),
        ("pool", "large", 256.0, 1.2),
    ]


def test_the_table_says_so_in_words():
    lines = report.manager(CASES).splitlines()[-2:]
    assert lines == [
        "  prompt 64x as long: 50.00x the time to look up and allocate a prompt",
        "  pool 256x as large: 1.20x the time to look up and allocate a prompt",
    ]
    assert "as long" not in report.manager({"without hits": CASES["without hits"]})


def test_the_names_of_the_real_cases_are_read():
    real = {
        name: case(c.prompt_tokens, c.pool_blocks, 1.0)
        for name, c in manager_speed.cases(quick=False).items()
    }
    assert [row[:3] for row in manager_speed.growth(real)] == [
        ("prompt", "long", 256.0),
        ("pool", "large", 256.0),
    ]


def test_a_hit_or_an_admission_touches_no_more_blocks_than_its_prompt_has(monkeypatch):
    """Counted, not timed: the work of an admission in a pool 64 times as large."""
    from kvlab.core.block_pool import BlockPool

    looked = []
    find, take = BlockPool.get_cached_block, BlockPool.get_new_blocks
    monkeypatch.setattr(BlockPool, "get_cached_block", lambda *a: looked.append("find") or find(*a))
    monkeypatch.setattr(BlockPool, "get_new_blocks", lambda *a: looked.append("take") or take(*a))
    counts = []
    for prompt, pool in ((64, 64), (128, 64), (64, 4096)):
        bench = manager_speed.Bench(manager_speed.Case(prompt, pool, hits=True))
        leader = bench._request(bench._prompt())
        bench._admit(leader)
        looked.clear()
        bench._admit(bench._request(list(leader.prompt_token_ids)))
        counts.append((looked.count("find"), looked.count("take")))
    assert counts == [(3, 1), (7, 1), (3, 1)]
