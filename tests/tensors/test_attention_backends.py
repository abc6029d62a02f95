"""The engine over each attention backend: one answer, and clear words where one cannot be had."""

import pytest
import torch
from builders import CONFIG, assert_same_run, greedy, random_model, record_logits, run

from kvlab import LLM, SamplingParams, triton_mode
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import RequestStatus
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.engine import LLMEngine
from kvlab.tensors.backends import KernelAttention, ReferenceAttention, choose_backend
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.runner import ModelRunner

needs_kernels = pytest.mark.skipif(
    triton_mode.current().mode != "interpreted", reason="needs Triton's interpreter"
)
SMALL = {"num_layers": 1, "num_query_heads": 2, "num_kv_heads": 1}  # few programs to interpret
PROMPTS = ([5, 6, 7, 8, 9], [1], [*range(20, 31)])


@pytest.fixture(scope="module")
def model():
    return random_model(1, **SMALL)


def engine_over(backend, model, num_blocks=64, block_size=4, stored=torch.float32, **limits):
    """Over a pool of NaN, with prefix caching."""
    cache = PagedCache(model.config, num_blocks, block_size, stored)
    cache.fill_with_nan()
    window = model.config.widest_window
    manager = KVCacheManager(BlockPool(num_blocks), block_size, window=window)
    runner = ModelRunner(model, cache, attention_backend=backend)
    return LLMEngine(Scheduler(manager, SchedulerConfig(**limits)), runner)


def served(engine, prompts, max_tokens=4):
    """All together. Returns the requests and {request_id: logits of each selection}."""
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(max_tokens), request_id=f"r{len(engine.requests)}-{i}")[0]
        for i, p in enumerate(prompts)
    ]
    run(engine)
    return requests, logits


@needs_kernels
@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_prompts_of_several_lengths_in_chunks(model, backend):
    engine = engine_over(backend, model, max_num_batched_tokens=6)
    requests, logits = served(engine, PROMPTS)
    for prompt, r in zip(PROMPTS, requests, strict=True):
        assert len(r.output_token_ids) == 4
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@needs_kernels
def test_a_step_with_decodes_in_front_of_a_chunk_and_with_one_behind(model):
    """Both orders; `num_leading_decodes` says where the step is cut."""
    engine, seen = engine_over("triton", model, max_num_batched_tokens=12), []
    begin = engine.runner.attention.begin

    def noting(batch):
        seen.append((tuple(batch.query_lens), batch.num_leading_decodes))
        begin(batch)

    engine.runner.attention.begin = noting
    logits = record_logits(engine)
    first, *_ = engine.add_request([1, 2, 3], greedy(6), request_id="first")
    engine.step()
    later = [engine.add_request(p, greedy(2), request_id=str(p))[0] for p in ([4] * 9, [7])]
    run(engine)
    assert ((1, 9, 1), 1) in seen and ((3,), 0) in seen and ((1, 1, 1), 3) in seen
    for r in (first, *later):
        prompt = list(r.prompt_token_ids)
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@needs_kernels
def test_a_prefix_that_is_found_again(model):
    engine = engine_over("triton", model)
    prompt = list(range(2, 12))
    served(engine, [prompt], 2)
    (again,), logits = served(engine, [[*prompt, 50]], 3)
    assert again.num_cached_tokens == 8
    assert_same_run(model, [*prompt, 50], again.output_token_ids, logits[again.request_id])


@needs_kernels
def test_forks_draw_what_they_draw_in_torch(model):
    params = SamplingParams(max_tokens=4, temperature=0.8, seed=3, n=2)
    drawn = []
    for backend in ("torch", "triton"):
        engine = engine_over(backend, model)
        group = engine.add_request([5, 6, 7, 8, 9, 10], params)
        run(engine)
        drawn.append([r.output_token_ids for r in group])
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


@needs_kernels
def test_a_preempted_request_goes_on_as_if_nothing_had_been(model):
    engine, preempted = engine_over("triton", model, num_blocks=5, block_size=2), 0
    logits = record_logits(engine)
    requests = [engine.add_request([i, i + 1], greedy(6), request_id=str(i))[0] for i in (3, 30)]
    while engine.has_unfinished_requests():
        engine.step()
        preempted += any(r.status is RequestStatus.PREEMPTED for r in requests)
    assert preempted > 0
    for r in requests:
        prompt = list(r.prompt_token_ids)
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@needs_kernels
@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_blocks_behind_the_window_are_never_read(backend):
    """They are given back and become NaN here; the answer is that of torch."""
    model = random_model(
        2, **SMALL, sliding_window=5, layer_types=("sliding_attention",), max_model_len=64
    )
    found = {}
    for name in ("torch", backend):
        engine = engine_over(name, model, block_size=2)
        logits = record_logits(engine)
        (r,) = engine.add_request(list(range(1, 12)), greedy(4), request_id="A")
        held = []
        while engine.has_unfinished_requests():
            engine.step()
            free, cache = engine.scheduler.manager.pool.free_block_ids, engine.runner.cache
            cache.key_cache[:, free] = cache.value_cache[:, free] = torch.nan
            held.append(64 - len(free))
        found[name] = r.output_token_ids, torch.stack(logits["A"])
    assert found[backend][0] == found["torch"][0] and held[-2] < 5  # not 7
    assert (found[backend][1] - found["torch"][1]).abs().max() < 1e-4


@needs_kernels
@pytest.mark.parametrize("stored", ["int8", "fp8", "bf16"])
def test_stored_formats(stored):
    """Triton and the specification read the codes that torch reads."""
    model = random_model(1, **SMALL)
    rows = {}
    for backend in ("torch", "triton", "reference"):
        _, logits = served(engine_over(backend, model, stored=stored), [[4, 5, 6, 7, 8]], 1)
        rows[backend] = next(iter(logits.values()))[0]
    assert (rows["triton"] - rows["torch"]).abs().max() < 2e-3
    assert (rows["reference"] - rows["torch"]).abs().max() < 2e-3


def test_the_specification_reads_q4_0_too():
    model = random_model(1, num_layers=1, head_dim=32)
    rows = []
    for backend in ("torch", "reference"):
        _, logits = served(engine_over(backend, model, stored="q4_0"), [[4, 5, 6]], 1)
        rows.append(next(iter(logits.values()))[0])
    assert (rows[0] - rows[1]).abs().max() < 1e-4


@needs_kernels
def test_the_facade_gives_the_same_tokens():
    model = random_model(4, **SMALL, max_model_len=64)
    texts = []
    for backend in (None, "triton", "reference"):
        llm = LLM(model, attention_backend=backend, device="cpu", enforce_eager=True)
        (out,) = llm.generate([[3, 1, 4, 1, 5]], SamplingParams(max_tokens=5, ignore_eos=True))
        texts.append(out.outputs[0].token_ids)
    assert texts[0] == texts[1] == texts[2]


def test_on_a_cpu_torch_is_taken_and_says_why():
    llm = LLM(random_model(), device="cpu")
    assert llm.runner.backend.name == "torch" and type(llm.runner.attention) is PagedAttention
    assert llm.runner.backend.reason == "the model is on cpu, where kernels are not compiled"
    assert llm.runner.decode_graphs is None
    assert llm.runner.why_eager == "they need an NVIDIA GPU, and the model is on cpu"
    eager = LLM(random_model(), device="cpu", enforce_eager=True)
    assert eager.runner.why_eager == "enforce_eager was asked for"


@needs_kernels
def test_each_name_gives_its_own_class():
    kinds = {"torch": PagedAttention, "triton": KernelAttention, "reference": ReferenceAttention}
    for name, kind in kinds.items():
        runner = LLM(random_model(), device="cpu", attention_backend=name).runner
        assert type(runner.attention) is kind and runner.backend.name == name


@pytest.mark.parametrize("asked", ["cuda", "", 3, "Triton"])
def test_an_unknown_backend(asked):
    with pytest.raises(ValueError, match="give one of 'torch', 'triton', 'reference', or None"):
        LLM(random_model(), device="cpu", attention_backend=asked)


def test_eager_is_yes_or_no():
    with pytest.raises(ValueError, match="enforce_eager is 'no'; give True or False"):
        LLM(random_model(), device="cpu", enforce_eager="no")


@pytest.mark.parametrize(
    ("changes", "stored", "why"),
    [
        ({"head_dim": 32}, "q4_0", "the kernels do not read a q4_0 cache"),
        ({"head_dim": 12}, "fp32", "head_dim is 12; the kernels take multiples of 8 up to 256"),
        ({}, torch.float64, "the kernels do not read a float64 cache"),
    ],
)
def test_what_the_kernels_do_not_take(changes, stored, why):
    with pytest.raises(ValueError) as found:
        LLM(random_model(**changes), device="cpu", cache_dtype=stored, attention_backend="triton")
    assert str(found.value) == f"attention_backend is 'triton', but {why}; give 'torch' or None"


def test_arithmetic_that_the_kernels_do_not_have():
    cache = PagedCache(random_model().config, 2, 4)
    with pytest.raises(ValueError, match="the kernels do not compute in float64"):
        choose_backend("triton", random_model().double(), cache)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (triton_mode.TritonMode(None, "it is not there", False), "Triton cannot run: it is not"),
        (
            triton_mode.TritonMode("compiled", "torch sees a CUDA device", True),
            "Triton compiles for the GPU and the model is on the CPU",
        ),
    ],
)
def test_where_triton_cannot_run_its_own_reason_is_given(monkeypatch, mode, why):
    monkeypatch.setattr(triton_mode, "current", lambda: mode)
    with pytest.raises(ValueError, match=why):
        LLM(random_model(), device="cpu", attention_backend="triton")


def test_a_model_that_attends_in_its_own_way_stays_with_torch():
    class Own(Decoder):
        def attention_over(self, cache):
            return PagedAttention(cache, self.dtype)

    model, cache = Own(random_model().config), PagedCache(CONFIG, 2, 4)
    assert choose_backend(None, model, cache).name == "torch"
    with pytest.raises(ValueError, match="this model's layers attend in ways of their own"):
        choose_backend("triton", model, cache)
