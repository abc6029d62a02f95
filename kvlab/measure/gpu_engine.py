"""Tokens a second of whole engines on one GPU: a model of Qwen3-0.6B's shape, weights at random.

    kvlab                        kernels, decode steps as CUDA graphs
    kvlab, eager                 the same without graphs
    generate, static             transformers' generate over its static cache
    generate, static, compiled   the same, compiled by torch: last, and only with time to spare
    generate_batch               transformers' continuous batching
    generate_batch, graphs       the same with use_cuda_graph

All hold the same weights and continue the same prompts greedily; end tokens are ignored. Time is
from the prompts handed over to the last token, prefill included; for generate_batch by its own
stamps, which leave out its set-up.
"""

import inspect
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.measure.competitors import batching_limits
from kvlab.measure.gpu_setting import Setting, tried
from kvlab.measure.subjects import random_prompts
from kvlab.tensors.checkpoint_save import save_model
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

QWEN3_06B = ModelConfig(
    vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_layers=28,
    num_query_heads=16, num_kv_heads=8, head_dim=128, max_model_len=40960, rope_theta=1e6,
    tie_word_embeddings=True, qk_norm=True, architecture="Qwen3ForCausalLM",
)  # fmt: skip
SMALL = ModelConfig(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_layers=1, num_query_heads=4,
    num_kv_heads=2, head_dim=16, max_model_len=64, tie_word_embeddings=True, qk_norm=True,
    architecture="Qwen3ForCausalLM",
)  # fmt: skip
KVLAB, EAGER, STATIC = "kvlab", "kvlab, eager", "generate, static"
COMPILED, BATCHING, GRAPHS = f"{STATIC}, compiled", "generate_batch", "generate_batch, graphs"
GOAL = 2.0  # kvlab's tokens a second over the better generate_batch
ROUNDS, WARM_TOKENS = 2, 8
LEAST_SECONDS, COMPILE_SECONDS = 12, 70  # left of the budget, or a way is not begun

Prompts = Sequence[Sequence[int]]
Answer = tuple[list[list[int]], float]  # tokens of each prompt, seconds
Way = Callable[[Prompts, int], Answer]


def measure(setting: Setting) -> dict[str, object]:
    """{"rows": one for each batch and way, ...}. Without transformers its ways say so."""
    config = SMALL if setting.dry else QWEN3_06B
    model = random_on(config, setting)
    rows, first = [], {}
    with tempfile.TemporaryDirectory() as folder:
        others: dict[str, object] = {}
        told = tried(partial(_loaded, model, folder, setting, others))
        for name, way in _ways(model, others.get("model"), setting):
            for batch in setting.sizes.engine_batches:
                row = {"batch": batch, "way": name}
                needed = COMPILE_SECONDS if name == COMPILED else LEAST_SECONDS
                if setting.seconds_left < needed and not setting.dry:
                    row["skipped"] = f"{setting.seconds_left:.0f} s left, it wants {needed}"
                elif way is None:
                    row["skipped"] = told.get("error", "no transformers model")
                else:
                    row |= tried(partial(_row, setting, way, batch, config.vocab_size, first))
                rows.append(row)
    return {"parameters": model.num_parameters, "rows": rows, "runner": _about(model, setting)}


def random_on(config: ModelConfig, setting: Setting) -> Decoder:
    """As `Decoder.random`, drawn on the device: half a billion numbers take a CPU its time."""
    model = Decoder(config).to(setting.device)
    generator = torch.Generator(setting.device).manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(std=0.8 * parameter.shape[1] ** -0.5, generator=generator)
        parameter.data = parameter.data.to(setting.dtype)
    return model.ready()


def _ways(model: Decoder, other: object, setting: Setting) -> Iterator[tuple[str, Way | None]]:
    """One after another: what one holds on the device is given up before the next."""
    yield KVLAB, kvlab_way(model, setting)
    yield EAGER, kvlab_way(model, setting, enforce_eager=True)
    if other is None:
        yield from ((name, None) for name in (STATIC, BATCHING))
        return
    yield STATIC, partial(_generate, other, setting, True)
    yield BATCHING, partial(_generate_batch, other, setting, {})
    if not setting.dry:  # what needs a GPU
        yield GRAPHS, partial(_generate_batch, other, setting, {"use_cuda_graph": True})
        yield COMPILED, partial(_generate, other, setting, False)


def kvlab_llm(model: Decoder, setting: Setting, **options: object) -> LLM:
    """Blocks for the largest batch; prefix caching would serve no one here."""
    sizes = setting.sizes
    length = sizes.prompt_tokens + sizes.new_tokens
    batch = max(sizes.engine_batches)
    return LLM(
        model, dtype=setting.dtype, device=setting.device, block_size=sizes.block,
        num_blocks=batch * (-(-length // sizes.block) + 1), max_num_seqs=batch,
        max_num_batched_tokens=max(8192, batch), enable_prefix_caching=False,
        attention_backend="triton" if setting.dry else None, **options,
    )  # fmt: skip


def kvlab_way(model: Decoder, setting: Setting, **options: object) -> Way:
    """The facade with token ids, made when it is first called."""
    made: list[LLM] = []

    def way(prompts: Prompts, new_tokens: int) -> Answer:
        if not made:
            made.append(kvlab_llm(model, setting, **options))
        params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
        began = time.perf_counter()
        outputs = made[0].generate([list(p) for p in prompts], params)
        seconds = time.perf_counter() - began
        return [list(o.outputs[0].token_ids) for o in outputs], seconds

    return way


def _row(
    setting: Setting, way: Way, batch: int, vocabulary: int, first: dict[object, list[list[int]]]
) -> dict[str, object]:
    """first: the tokens of the first way that served a prompt, filled here, to compare with."""
    sizes = setting.sizes
    way(
        random_prompts(batch, sizes.prompt_tokens, vocabulary, 99),
        min(WARM_TOKENS, sizes.new_tokens),
    )
    seconds, same, counted = [], 0, 0
    for number in range(ROUNDS):
        prompts = random_prompts(batch, sizes.prompt_tokens, vocabulary, number)
        tokens, took = way(prompts, sizes.new_tokens)
        seconds.append(took)
        wanted = first.setdefault((batch, number), tokens)
        pairs = (zip(x, y, strict=True) for x, y in zip(tokens, wanted, strict=True))
        same += sum(a == b for pair in pairs for a, b in pair)
        counted += sum(map(len, wanted))
    typical = statistics.median(seconds)
    return {
        "seconds": typical,
        "rounds": seconds,
        "tokens_per_second": batch * sizes.new_tokens / typical,
        "same_tokens": same,
        "tokens": counted,
    }


def _about(model: Decoder, setting: Setting) -> dict[str, object]:
    """Which attention the engine took, and the graphs that a short run captured."""
    runner = (llm := kvlab_llm(model, setting)).runner
    llm.generate([1, 2, 3], SamplingParams(max_tokens=3, ignore_eos=True))
    graphs = runner.decode_graphs
    return {
        "backend": runner.backend.name,
        "reason": runner.backend.reason,
        "graphs": [] if graphs is None else graphs.sizes,
        "why_no_graphs": runner.why_eager if graphs is None else graphs.failed,
    }


def _loaded(
    model: Decoder, folder: str, setting: Setting, into: dict[str, object]
) -> dict[str, object]:
    """transformers' model over the same weights. Raises ImportError where it is not installed."""
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    save_model(model, folder, dtype=setting.dtype)
    other = AutoModelForCausalLM.from_pretrained(
        folder, dtype=setting.dtype, attn_implementation="sdpa", local_files_only=True
    )
    other.generation_config.eos_token_id = None
    into["model"] = other.to(setting.device).eval().requires_grad_(False)
    return {}


@torch.inference_mode()
def _generate(
    model: object, setting: Setting, eager: bool, prompts: Prompts, new_tokens: int
) -> Answer:
    ids = torch.tensor(prompts, device=setting.device)
    began = time.perf_counter()
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens,
        pad_token_id=0, cache_implementation="static", disable_compile=eager,
    )  # fmt: skip
    tokens = output[:, ids.shape[1] :].tolist()
    return tokens, time.perf_counter() - began


@torch.inference_mode()
def _generate_batch(
    model: object, setting: Setting, more: dict[str, object], prompts: Prompts, new_tokens: int
) -> Answer:
    from transformers import GenerationConfig

    limits = _limits_of_theirs(setting, len(prompts), more)
    greedy = GenerationConfig(
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=-1, pad_token_id=0
    )
    warm = {"warmup": bool(more)}  # not every version has it
    known = inspect.signature(model.generate_batch).parameters
    found = model.generate_batch(
        [list(p) for p in prompts], generation_config=greedy, continuous_batching_config=limits,
        **(warm if "warmup" in known else {}),
    )  # fmt: skip
    outputs = list(found.values())
    seconds = max(o.lifespan[1] for o in outputs) - min(o.created_time for o in outputs)
    return [list(o.generated_tokens) for o in outputs], seconds


def _limits_of_theirs(setting: Setting, batch: int, more: dict[str, object]) -> object:
    """On a GPU its own choice, from a third of the free memory: each call allocates it anew."""
    if not setting.dry:
        from transformers import ContinuousBatchingConfig

        return ContinuousBatchingConfig(max_memory_percent=0.3, **more)
    positions = setting.sizes.prompt_tokens + setting.sizes.new_tokens
    return batching_limits(
        16, num_blocks=batch * (positions // 16 + 2) + 4, max_batch_tokens=64, **more
    )
