"""Decode steps padded for CUDA graphs: with a capture that records nothing they run anywhere."""

import warnings

import pytest
import torch
from builders import random_model

from kvlab import triton_mode
from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.backends import KernelAttention
from kvlab.tensors.cuda_graph import (
    DecodeGraphs,
    copy_padded,
    empty_batch,
    padded_size,
    why_no_graphs,
)
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.ops import PagedAttention

needs_kernels = pytest.mark.skipif(
    triton_mode.current().mode != "interpreted", reason="needs Triton's interpreter"
)
CPU = torch.device("cpu")
SIZE = 4  # of a block


def decode_rows(lengths):
    """Requests that compute position length - 1, in blocks of their own."""
    rows, block = [], 1
    for i, length in enumerate(lengths):
        count = -(-length // SIZE)
        table = tuple(range(block, block + count))
        block += count
        rows.append(ScheduledRequest(f"r{i}", length - 1, (7 * i % 61,), table, ()))
    return tuple(rows)


@pytest.fixture(scope="module")
def model():
    return random_model(1, num_layers=1, num_query_heads=2, num_kv_heads=1, max_model_len=48)


def attention_with_a_past(model, num_blocks=40):
    cache = PagedCache(model.config, num_blocks, SIZE)
    generator = torch.Generator().manual_seed(0)
    for pool in (cache.key_cache, cache.value_cache):
        pool.copy_(torch.randn(pool.shape, generator=generator))
    return KernelAttention(cache, torch.float32)


def test_sizes():
    asked = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 16, 16: 16, 17: 24, 33: 40, 64: 64, 65: 72}
    assert {n: padded_size(n) for n in asked} == asked
    with pytest.raises(ValueError, match="num_requests is 0; a step has at least 1"):
        padded_size(0)


def test_padding_is_stored_nowhere_and_reads_nothing():
    batch = build_input_batch(decode_rows([5, 2, 9]), SIZE, CPU)
    static = empty_batch(4, 6, SIZE, CPU)
    copy_padded(batch, static)
    assert static.slot_mapping.tolist() == [8, 13, 24, -1]  # blocks 2, 3, 6
    assert static.seq_lens_on_device.tolist() == [5, 2, 9, 0]
    assert static.positions.tolist() == [4, 1, 8, 0]
    assert static.input_ids.tolist() == [0, 7, 14, 0]
    assert static.block_table.tolist() == [[1, 2, 0, 0, 0, 0], [3, *[0] * 5],
                                           [4, 5, 6, 0, 0, 0], [0] * 6]  # fmt: skip
    copy_padded(build_input_batch(decode_rows([3]), SIZE, CPU), static)  # fewer, afterwards
    assert static.slot_mapping.tolist() == [6, -1, -1, -1]
    assert static.seq_lens_on_device.tolist() == [3, 0, 0, 0]


@needs_kernels
def test_padded_steps_equal_unpadded_ones(model):
    """1 to 9 requests of several lengths, in sizes 1, 2, 4, 8 and 16: results and stored K/V."""
    padded, plain = attention_with_a_past(model), attention_with_a_past(model)
    graphs = DecodeGraphs(model, padded, capture=lambda one_pass: one_pass)
    with torch.inference_mode():
        for count in range(1, 10):
            batch = build_input_batch(
                decode_rows([1 + 5 * i % 13 for i in range(count)]), SIZE, CPU
            )
            got = graphs(batch).clone()
            plain.begin(batch)
            wanted = model(batch.input_ids, batch.positions, plain)
            assert got.shape == wanted.shape == (count, model.config.hidden_size)
            assert (got - wanted).abs().max() < 1e-5
            assert (padded.cache.key_cache - plain.cache.key_cache).abs().max() < 1e-5
    assert graphs.sizes == [1, 2, 4, 8, 16] and graphs.failed is None


@needs_kernels
def test_a_size_is_captured_once(model):
    captured = []

    def capture(one_pass):
        captured.append(one_pass)
        return one_pass

    graphs = DecodeGraphs(model, attention_with_a_past(model), capture)
    with torch.inference_mode():
        for lengths in ([3], [4], [2, 9], [1, 1]):
            assert graphs(build_input_batch(decode_rows(lengths), SIZE, CPU)) is not None
    assert len(captured) == 2


@needs_kernels
def test_what_is_no_step_for_a_graph(model):
    graphs = DecodeGraphs(model, attention_with_a_past(model), lambda one_pass: one_pass)
    chunk = (ScheduledRequest("A", 0, (1, 2, 3), (1,), ()),)
    wide = (ScheduledRequest("A", 50, (1,), tuple(range(1, 14)), ()),)  # of 52 positions, not 48
    many = decode_rows([1] * 513)
    for rows in (chunk, wide, many):
        assert graphs(build_input_batch(rows, SIZE, CPU)) is None
    assert graphs.sizes == []


@needs_kernels
def test_after_a_capture_that_fails_steps_run_without(model):
    def capture(one_pass):
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = DecodeGraphs(model, attention_with_a_past(model), capture)
    batch = build_input_batch(decode_rows([3]), SIZE, CPU)
    with pytest.warns(UserWarning, match="decode steps run without CUDA graphs; capturing failed"):
        assert graphs(batch) is None
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        assert graphs(batch) is None
    assert graphs.failed.endswith("RuntimeError: operation not permitted when stream is capturing")


@needs_kernels
def test_an_engine_whose_decode_steps_are_padded(model):
    """The runner's own choice between a graph and the layers, over whole requests."""
    from test_attention_backends import engine_over, served

    plain, _ = served(engine_over("torch", model), [[1, 2, 3], [9]], 4)
    engine = engine_over("triton", model)
    graphs = DecodeGraphs(model, engine.runner.attention, lambda one_pass: one_pass)
    engine.runner.decode_graphs = graphs
    found, logits = served(engine, [[1, 2, 3], [9]], 4)
    assert graphs.sizes == [2]
    assert [r.output_token_ids for r in found] == [r.output_token_ids for r in plain]
    assert all(len(rows) == 4 for rows in logits.values())


@needs_kernels
def test_an_engine_goes_on_where_capturing_fails(model):
    from test_attention_backends import engine_over, served

    def capture(one_pass):
        one_pass()  # warming up has written this step's K/V
        raise MemoryError("no room for a graph")

    plain, _ = served(engine_over("torch", model), [[1, 2, 3], [9]], 4)
    engine = engine_over("triton", model)
    engine.runner.decode_graphs = DecodeGraphs(model, engine.runner.attention, capture)
    with pytest.warns(UserWarning, match="MemoryError: no room for a graph"):
        found, _ = served(engine, [[1, 2, 3], [9]], 4)
    assert [r.output_token_ids for r in found] == [r.output_token_ids for r in plain]


@needs_kernels
def test_nobody_is_watched_in_a_graph(model):
    from test_attention_backends import engine_over, served

    engine = engine_over("triton", model)
    graphs = DecodeGraphs(model, engine.runner.attention, lambda one_pass: one_pass)
    engine.runner.decode_graphs, engine.runner.watch_layers = graphs, frozenset([0])
    served(engine, [[1, 2]], 2)
    assert graphs.sizes == []
    engine.runner.watch_layers = frozenset()
    engine.runner.attention = PagedAttention(engine.runner.cache, torch.float32)  # another one
    served(engine, [[1, 2]], 2)
    assert graphs.sizes == []


def test_where_there_are_graphs():
    gpu = torch.device("cuda")
    assert why_no_graphs("triton", gpu) is None
    assert why_no_graphs("triton", gpu, enforce_eager=True) == "enforce_eager was asked for"
    assert why_no_graphs("triton", CPU) == "they need an NVIDIA GPU, and the model is on cpu"
    assert "'torch', which reads lengths on the host" in why_no_graphs("torch", gpu)
