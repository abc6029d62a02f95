"""An engine whose decode steps are CUDA graphs beside one that runs without, and no graph where
none can be."""

import warnings

import pytest
import torch
from builders import greedy, random_model

from kvlab import LLM, SamplingParams
from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.backends import KernelAttention
from kvlab.tensors.cuda_graph import DecodeGraphs
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def model():
    return random_model(1, max_model_len=128).to(DEVICE)


def llm_over(model, **options):
    settings = {
        "device": DEVICE,
        "block_size": 4,
        "num_blocks": 256,
        "enable_prefix_caching": False,
    }
    return LLM(model, **settings | options)


def continued(llm, prompts, max_tokens=6):
    """Outputs and the logits of every selection, by request."""
    logits = {}

    def keep(step):
        for name, row in step.items():
            logits.setdefault(name, []).append(row.float().clone())

    llm.runner.on_logits = keep
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    outputs = llm.generate(prompts, params)
    return [out.outputs[0].token_ids for out in outputs], list(logits.values())


def assert_alike(found, wanted):
    assert found[0] == wanted[0]
    for a, b in zip(found[1], wanted[1], strict=True):
        assert (torch.stack(a) - torch.stack(b)).abs().max() < 1e-4


def test_batches_of_one_to_nine(model):
    graphs, eager = llm_over(model), llm_over(model, enforce_eager=True)
    assert graphs.runner.why_eager is None and eager.runner.decode_graphs is None
    for count in range(1, 10):
        prompts = [list(range(1 + i, 4 + 2 * i)) for i in range(count)]
        assert_alike(continued(graphs, prompts), continued(eager, prompts))
    captured = graphs.runner.decode_graphs
    assert captured.failed is None and captured.sizes == [1, 2, 4, 8, 16]


def test_requests_that_come_and_go(model):
    """Decode steps, steps with a prompt among them, and sizes that change up and down."""
    found = []
    for eager in (False, True):
        engine = llm_over(model, enforce_eager=eager, max_num_batched_tokens=8).engine
        requests = []
        for i in range(6):
            requests += engine.add_request([3 * i, 5, 7, 9, 11, i], greedy(3 + 2 * i))
            engine.step()
            engine.step()
        engine.run()
        found.append([list(r.output_token_ids) for r in requests])
    assert found[0] == found[1]


@pytest.mark.parametrize("stored", ["bf16", "int8", "fp8"])
def test_other_formats(model, stored):
    if stored == "fp8" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no float8")
    prompts = [[1, 2, 3, 4, 5], [9, 8]]
    graphs, eager = (llm_over(model, cache_dtype=stored, enforce_eager=e) for e in (False, True))
    assert graphs.runner.backend.name == "triton"
    assert_alike(continued(graphs, prompts), continued(eager, prompts))


def test_a_window():
    windowed = random_model(
        2, sliding_window=6, layer_types=("sliding_attention",) * 2, max_model_len=128
    ).to(DEVICE)
    prompts = [list(range(1, 20)), [4, 5]]
    graphs, eager = llm_over(windowed), llm_over(windowed, enforce_eager=True)
    assert_alike(continued(graphs, prompts, 12), continued(eager, prompts, 12))


def test_what_a_graph_cannot_record_is_said_once(model):
    class Waits(KernelAttention):
        """Asks the GPU for a number, which no capture allows."""

        def __call__(self, layer, query, *rest, **more):
            query.sum().item()
            return super().__call__(layer, query, *rest, **more)

    llm, eager = llm_over(model), llm_over(model, enforce_eager=True)
    attention = Waits(llm.cache, model.dtype)
    llm.runner.attention = attention
    llm.runner.decode_graphs = DecodeGraphs(model, attention)
    with pytest.warns(UserWarning, match="decode steps run without CUDA graphs"):
        found = continued(llm, [[1, 2, 3]])
    assert_alike(found, continued(eager, [[1, 2, 3]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        continued(llm, [[1, 2, 3], [4]])
    assert "capturing failed" in llm.runner.decode_graphs.failed


def test_a_decode_step_waits_for_no_copy(model):
    """From a scheduler's rows to hidden states. torch raises where the host would wait."""
    cache = PagedCache(model.config, 32, 4, torch.float32, DEVICE)
    graphs = DecodeGraphs(model, KernelAttention(cache, torch.float32))
    rows = tuple(ScheduledRequest(f"r{i}", 5, (i,), (2 * i, 2 * i + 1), ()) for i in range(3))
    with torch.inference_mode():
        graphs(build_input_batch(rows, 4, DEVICE))  # captures
        torch.cuda.set_sync_debug_mode("error")
        try:
            hidden = graphs(build_input_batch(rows, 4, DEVICE))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert hidden.shape == (3, model.config.hidden_size)
