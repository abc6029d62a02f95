"""The decode kernel watched in Triton's interpreter: its own source, real addresses (21.5)."""

import importlib.util
import inspect
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="there is no kernel to watch without Triton")

from kvlab import LLM, SamplingParams
from kvlab.core.kernel_log import recorded_log
from kvlab.tensors import launch, watch_kernel
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.watch_engine import watch_request
from kvlab.tensors.watch_kernel import can_watch, watch_decode, why_not

pytestmark = pytest.mark.skipif(not can_watch(), reason=why_not())

SLOTS = [28, 29, 30, 31, 8, 9, 10, 11, 20, 21]  # table [7, 2, 5], blocks of 4, 10 positions


def pool(num_blocks=10, block_size=4, kv_heads=2, tables=((7, 2, 5),), lengths=(10,)):
    """Keys and values, [num_blocks, block_size, kv_heads, 32]: NaN but where the tables lead."""
    generator = torch.Generator().manual_seed(3)
    caches = [torch.full((num_blocks * block_size, kv_heads, 32), torch.nan) for _ in range(2)]
    for table, length in zip(tables, lengths, strict=True):
        for t in range(length):
            for cache in caches:
                slot = table[t // block_size] * block_size + t % block_size
                cache[slot] = torch.randn(kv_heads, 32, generator=generator)
    return [cache.unflatten(0, (num_blocks, block_size)) for cache in caches]


def queries(n=1, heads=4):
    return torch.randn(n, heads, 32, generator=torch.Generator().manual_seed(4))


def test_the_slots_read_are_those_of_a_table_out_of_order() -> None:
    key_cache, value_cache = pool()
    log, out, _ = watch_decode(queries(), key_cache, value_cache, [[7, 2, 5]], [10], num_splits=2)
    assert [p.ids for p in log.programs] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    for head in (0, 1):
        assert log.slots_read(0, head) == log.slots_read(0, head, "values") == SLOTS
    first, empty = log.programs[:2]
    (turn,) = first.turns
    assert turn.positions == tuple(range(16)) and turn.masked == tuple(range(10, 16))
    assert turn.keys == turn.values == (*SLOTS, *[None] * 6)
    assert turn.lookups == ((0, 7), (1, 2), (2, 5))
    assert empty.turns == () and [r.weights for r in log.reduces] == [(1.0, 0.0)] * 4
    wanted = paged_attention_spec(queries(), key_cache, value_cache, [[7, 2, 5]], [1], [10])
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=0)


def test_tiles_splits_and_what_is_held_after_each_turn() -> None:
    table = [3, 9, 0, 7, 5, 1, 8, 2, 6, 4]
    key_cache, value_cache = pool(tables=[table], lengths=[37])
    log, *_ = watch_decode(queries(), key_cache, value_cache, [table], [37])
    split_0, split_1 = log.programs[:2]
    assert [t.positions[0] for t in (*split_0.turns, *split_1.turns)] == [0, 16, 32]
    assert [t.lookups for t in split_1.turns] == [((8, 6), (9, 4))]
    assert split_1.turns[0].slots == (24, 25, 26, 27, 16)
    assert len(split_1.turns[0].masked) == 11
    keys = key_cache.flatten(0, 1)[log.table_slots(0), 0]  # of KV head 0, in logical order
    score2 = queries()[0, :2] @ keys.T * 32**-0.5 * torch.tensor(2.0).log().reciprocal()
    for turn, end in zip(split_0.turns, (16, 32), strict=True):
        top = score2[:, :end].amax(1)
        sums = torch.exp2(score2[:, :end] - top[:, None]).sum(1)
        torch.testing.assert_close(torch.tensor(turn.max2), top, atol=1e-4, rtol=0)
        torch.testing.assert_close(torch.tensor(turn.sums), sums, atol=1e-4, rtol=0)
    for before, after in pairwise(split_0.turns):
        assert (after.max2_before, after.sums_before) == (before.max2, before.sums)
    shares = torch.softmax(score2 * torch.tensor(2.0).log(), 1)[:, 32:].sum(1).tolist()
    assert [log.reduces[head].weights[1] for head in (0, 1)] == pytest.approx(shares, abs=1e-4)


def test_a_window_requests_of_other_lengths_and_blocks_of_other_sizes() -> None:
    tables = [[4, 0, 2], [1, 5, 0]]
    key_cache, value_cache = pool(6, 16, 1, tables, (41, 20))
    options = {"window": 20, "num_splits": 1}
    log, out, _ = watch_decode(queries(2), key_cache, value_cache, tables, [41, 20], **options)
    assert log.slots_read(0, 0) == log.table_slots(0) == [*range(5, 16), *range(32, 41)]
    assert log.slots_read(1, 0) == log.table_slots(1) == [*range(16, 32), *range(80, 84)]
    assert log.programs[0].turns[0].masked == (16, 17, 18, 19, 20)
    assert log.reduces == () and len(log.block_table[1]) == 2
    rows = ([1, 1], [41, 20])
    wanted = paged_attention_spec(queries(2), key_cache, value_cache, tables, *rows, window=20)
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=0)


def test_the_lines_are_those_of_the_kernel_s_own_file() -> None:
    from kvlab.tensors import kernels

    key_cache, value_cache = pool()
    log, *_ = watch_decode(queries(), key_cache, value_cache, [[7, 2, 5]], [10])
    text = Path(kernels.__file__).read_text(encoding="utf-8").splitlines()
    decode, reduce = log.sources
    assert (log.file, decode.name, reduce.name) == (
        *("kernels.py", "paged_decode_kernel", "reduce_splits_kernel"),
    )
    for source in log.sources:
        span = slice(source.first_line - 1, source.first_line - 1 + len(source.lines))
        assert list(source.lines) == text[span]
    turn = log.programs[0].turns[0]
    for what, code in (("lookup", "block_id = tl.load("), ("key", "key = tl.load(")):
        assert decode.line(turn.at[what]).strip().startswith(code)
    assert decode.line(turn.at["sum"]).strip().startswith("running_sum = ")
    ran = (*log.programs[0].before, *turn.lines, *log.programs[0].after)
    assert all(line in decode for line in ran) and len(set(ran)) > 25


def changed_kernels(tmp_path: Path, old: str, new: str):
    """A copy of kernels.py in which one line is another."""
    from kvlab.tensors import kernels

    text = Path(kernels.__file__).read_text(encoding="utf-8")
    start = text.index("def paged_decode_kernel")
    assert old in text[start:], f"the kernel has no line with {old!r} any more"
    (tmp_path / "changed.py").write_text(text[:start] + text[start:].replace(old, new, 1), "utf-8")
    spec = importlib.util.spec_from_file_location("changed", tmp_path / "changed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("old", "new", "what", "slots"),
    [
        ("+ position % BLOCK_SIZE", "+ 3 - position % BLOCK_SIZE", "keys",
         [31, 30, 29, 28, 11, 10, 9, 8, 23, 22]),
        ("tl.load(value_cache_ptr + stored_at, mask=mask, other=0.0)",
         "tl.load(value_cache_ptr + stored_at)", "values", [*SLOTS, 2, 3, 0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_a_changed_line_changes_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, what: str, slots: list
) -> None:
    module = changed_kernels(tmp_path, old, new)
    monkeypatch.setattr(launch, "kernels", lambda: module)
    kernels = [module.paged_decode_kernel, module.reduce_splits_kernel]
    key_cache, value_cache = pool()
    log, *_ = watch_decode(
        *(queries(), key_cache, value_cache, [[7, 2, 5]], [10]),
        decode=launch.paged_decode,
        kernels=kernels,
    )
    assert log.file == "changed.py"
    assert any(new in line for line in log.sources[0].lines)
    assert log.slots_read(0, 0, what) == slots != log.table_slots(0)


def served(n=2, positions=9):
    """The shipped model, some steps into two continuations of one prompt."""
    llm = LLM("tiny", block_size=4, num_blocks=24)
    prompt = llm.encode("Ada likes soup. The key is")
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=7, n=n, ignore_eos=True)
    requests = llm.engine.add_request(prompt, params, request_id="A")
    while min(r.num_computed_tokens for r in requests) < positions:
        llm.engine.step()
    return llm, requests


def test_requests_of_a_real_engine_in_the_middle_of_their_work() -> None:
    llm, (first, second) = served()
    names, attention = [first.request_id, second.request_id], llm.runner.attention
    log, out, _ = watch_request(llm.engine, names, 2)
    assert log.names == ("A", "A.1") and log.about == "layer 2"
    tables = [llm.engine.scheduler.manager.block_table(name) for name in names]
    assert log.seq_lens == (first.num_computed_tokens, second.num_computed_tokens) == (10, 10)
    for i in (0, 1):
        assert list(log.block_table[i]) == tables[i]
        by_table = [tables[i][t // 4] * 4 + t % 4 for t in range(10)]
        assert [log.slots_read(i, head) for head in range(log.num_kv_heads)] == [by_table] * 2
    assert log.block_table[0][0] == log.block_table[1][0] and len(set(map(tuple, tables))) == 2
    assert out.shape == (2, log.num_query_heads, log.head_dim)
    assert llm.runner.attention is attention and "execute" not in vars(llm.runner)
    again = watch_request(llm.engine, "A.1").log  # the next step, one request, another layer
    assert (again.names, again.seq_lens) == (("A.1",), (11,))


def test_a_prompt_s_last_position_is_watched_too() -> None:
    llm = LLM("tiny", block_size=4, num_blocks=24)
    llm.engine.add_request(list(range(3, 20)), SamplingParams(max_tokens=2), request_id="A")
    log, *_ = watch_request(llm.engine, "A")
    assert log.seq_lens == (17,) and log.slots_read(0, 1) == log.table_slots(0)


def test_a_kernel_that_computes_something_else_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, _ = served(n=1)
    module = changed_kernels(tmp_path, "key = tl.load(", "key = 2 * tl.load(")
    kernels = [module.paged_decode_kernel, module.reduce_splits_kernel]
    monkeypatch.setattr(launch, "kernels", lambda: module)
    monkeypatch.setattr(watch_kernel, "_own", lambda: (launch.paged_decode, kernels))
    with pytest.raises(AssertionError, match="the kernel and the engine's attention differ by"):
        watch_request(llm.engine, "A")


def test_nothing_is_left_behind() -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    load = inspect.getattr_static(InterpreterBuilder, "create_masked_load")
    called = []

    def tracer(*event: object) -> None:
        called.append(event)

    def interrupted(*_: object, **__: object) -> torch.Tensor:
        assert sys.gettrace() is not tracer
        raise KeyboardInterrupt

    key_cache, value_cache = pool()
    arguments = (queries(), key_cache, value_cache, [[7, 2, 5]], [10])
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        for decode in (interrupted, launch.paged_decode):
            kernels = watch_kernel._own()[1]
            if decode is interrupted:
                with pytest.raises(KeyboardInterrupt):
                    watch_decode(*arguments, decode=decode, kernels=kernels)
            else:
                watch_decode(*arguments, decode=decode, kernels=kernels)
            assert sys.gettrace() is tracer
            assert inspect.getattr_static(InterpreterBuilder, "create_masked_load") is load
    finally:
        sys.settrace(before)


def test_what_cannot_be_watched_is_refused() -> None:
    key_cache, value_cache = pool()
    arguments = (queries(), key_cache, value_cache)
    for tables, lengths, message in (
        ([[7, 2]], [10], "request 0 of 10 positions needs 3 entries of its block table"),
        ([[7, 2, 10]], [10], "each below 10; its row is"),
        ([[7, 2, 5]] * 2, [10, 10], "for 1 queries; give a row and a length for each"),
    ):
        with pytest.raises(ValueError, match=message):
            watch_decode(*arguments, tables, lengths)
    long = [list(range(10)) * 60]
    with pytest.raises(ValueError, match="300 turns of programs are more than one can look at"):
        watch_decode(*arguments, long, [2400])
    with pytest.raises(ValueError, match="twice \\[num_blocks, block_size, num_kv_heads"):
        watch_decode(queries(), key_cache[0], value_cache[0], [[7, 2, 5]], [10])
    with pytest.raises(ValueError, match="tile is 3"):
        watch_decode(*arguments, [[7, 2, 5]], [10], tile=3)


def test_requests_that_cannot_be_watched_are_refused() -> None:
    llm, (first,) = served(n=1)
    for ids, named in (("B", "'B'"), (["A", "B"], "'B'"), ([], "None")):
        with pytest.raises(ValueError, match=f"request_ids: {named} is no request that is being"):
            watch_request(llm.engine, ids)
    with pytest.raises(ValueError, match="layer is 4; give an integer from 0 to 3"):
        watch_request(llm.engine, "A", 4)
    known = first.num_tokens
    llm.engine.suspend("A")
    with pytest.raises(ValueError, match="request 'A' has no pass in this step"):
        watch_request(llm.engine, "A")
    assert first.num_tokens == known


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("import os; os.environ['TRITON_INTERPRET'] = '0'", "with TRITON_INTERPRET=1 set"),
        ("import sys; sys.modules['triton'] = None", "Triton is missing on this machine"),
    ],
)
def test_where_no_kernel_is_interpreted_there_is_the_recorded_log(
    before: str, message: str
) -> None:
    code = f"""
{before}
import torch
from kvlab.tensors.watch_kernel import can_watch, recorded_log, watch_decode
assert not can_watch() and recorded_log().recorded
try:
    watch_decode(*[torch.zeros(1, 1, 1)] * 3, [[0]], [1])
except RuntimeError as error:
    print(error)
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert message in done.stdout
    assert "recorded_log() gives a log that was recorded elsewhere" in done.stdout


def test_the_recorded_log_is_that_of_this_kernel() -> None:
    """After a change of the kernel: python -m kvlab.measure.kernel_example"""
    from kvlab.measure.kernel_example import example_log

    fresh, kept = example_log(), recorded_log()
    texts = [[source.lines for source in log.sources] for log in (fresh, kept)]
    assert texts[0] == texts[1], "record the log anew (see above)"
    below = fresh.sources[0].first_line - kept.sources[0].first_line  # lines added further up
    assert [p.ids for p in fresh.programs] == [p.ids for p in kept.programs]
    for (_, now), (_, then) in zip(fresh.turns(), kept.turns(), strict=True):
        assert now.keys == then.keys and now.values == then.values and now.lookups == then.lookups
        assert now.lines == tuple(line + below for line in then.lines)
        assert now.max2 == pytest.approx(then.max2, abs=1e-3)
        assert now.sums == pytest.approx(then.sums, abs=1e-3)


def test_shown_numbers_of_the_example_are_far_from_where_rounding_turns() -> None:
    """So that another processor shows the same two digits: the notebook's output is compared."""
    log = recorded_log()
    held = [value for _, turn in log.turns() for value in (*turn.max2, *turn.sums)]
    held += [weight for one in log.reduces for weight in one.weights]
    assert len(held) > 40
    assert min(abs(value * 100 % 1 - 0.5) / 100 for value in held) > 5e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_slots_are_found_whatever_is_stored_in_them(dtype: torch.dtype) -> None:
    caches = [cache.nan_to_num().mul(8).to(dtype) for cache in pool()]
    scale = {torch.bfloat16: None, torch.float8_e4m3fn: 0.125, torch.int8: torch.ones(10, 4, 2) / 8}
    scales = {"key_scale": scale[dtype], "value_scale": scale[dtype]}
    log, *_ = watch_decode(queries(), *caches, [[7, 2, 5]], [10], **scales)
    for head in (0, 1):
        assert log.slots_read(0, head) == log.slots_read(0, head, "values") == SLOTS
    assert log.programs[0].turns[0].lookups == ((0, 7), (1, 2), (2, 5))
    assert log.programs[2].turns[0].sums[0] > 0


def test_functions_that_the_kernel_calls_are_quoted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load of keys moved into a function of its own."""
    old = "key = tl.load(key_cache_ptr + stored_at, mask=mask, other=0.0)"
    module = changed_kernels(tmp_path, old, "key = keys_of(key_cache_ptr, stored_at, mask)")
    path = tmp_path / "changed.py"
    helper = """@triton.jit
def keys_of(pointer, at, mask):
    found = tl.load(pointer + at, mask=mask, other=0.0)
    return found


"""
    text = path.read_text("utf-8")
    start = text.index("@triton.jit")
    path.write_text(text[:start] + helper + text[start:], "utf-8")
    module.__spec__.loader.exec_module(module)
    monkeypatch.setattr(launch, "kernels", lambda: module)
    log, *_ = watch_decode(
        *(queries(), *pool(), [[7, 2, 5]], [10]),
        decode=launch.paged_decode,
        kernels=[module.paged_decode_kernel, module.reduce_splits_kernel],
    )
    turn = log.programs[0].turns[0]
    names = [source.name for source in log.sources]
    assert names == ["keys_of", "paged_decode_kernel", "reduce_splits_kernel"]
    assert log.source_of(turn.at["key"]).line(turn.at["key"]).strip().startswith("found = tl.load(")
    assert log.source_of(turn.at["value"]).name == "paged_decode_kernel"
    assert log.slots_read(0, 0) == SLOTS and log.slots_read(0, 0, "values") == SLOTS
