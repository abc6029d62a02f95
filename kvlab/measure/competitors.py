"""Four ways to continue the same prompts greedily with the same weights, timed alike.

Each is `run(prompts, new_tokens) -> Run`. All compute in float32 on one CPU thread and ignore
the end-of-sequence token. transformers is imported late: kvlab is measured without it too.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.tensors.checkpoint import load_model

Prompts = Sequence[Sequence[int]]
PAGE = 16
KVLAB, LOOP, GENERATE, BATCHING = "kvlab", "plain loop", "generate", "generate_batch"


@dataclass(frozen=True)
class Run:
    """One repetition. seconds: from the prompts handed over to the last token.

    call_seconds: the whole call, where that holds set-up and tear-down which `seconds` leaves out.
    cpu_seconds: of the process, all threads; at most the whole call's time if one thread works.
    """

    token_ids: list[list[int]]
    seconds: float
    call_seconds: float
    cpu_seconds: float

    @property
    def tokens_per_second(self) -> float:
        return sum(map(len, self.token_ids)) / self.seconds


Competitor = Callable[[Prompts, int], Run]


def begin_alike(prompts: Prompts) -> bool:
    """Several prompts with the same first page."""
    return len(prompts) > 1 and len({tuple(prompt[:PAGE]) for prompt in prompts}) == 1


def kvlab_engine(folder: Path) -> Competitor:
    """kvlab's facade with token ids, prefix caching on as it is by default.

    Prompts that begin alike find that part of each other; no others may find anything.
    """
    llm = LLM(load_model(folder), device="cpu")

    def generate(prompts: Prompts, new_tokens: int) -> list[list[int]]:
        params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
        outputs = llm.generate(prompts, params)
        hit = any(o.num_cached_tokens for o in outputs)
        assert hit == begin_alike(prompts), "a timed prompt was in the cache, or a prefix was not"
        return [list(o.outputs[0].token_ids) for o in outputs]

    return _timed(generate)


def transformers_competitors(folder: Path) -> dict[str, Competitor]:
    """The plain loop, `generate` and `generate_batch` over one transformers model.

    Raises ImportError where transformers is not installed.
    """
    model = load_transformers(folder)
    return {
        LOOP: _timed(lambda prompts, new_tokens: plain_loop(model, prompts, new_tokens)),
        GENERATE: _timed(lambda prompts, new_tokens: generate(model, prompts, new_tokens)),
        BATCHING: lambda prompts, new_tokens: generate_batch(model, prompts, new_tokens),
    }


def load_transformers(folder: Path) -> object:
    """The folder's LlamaForCausalLM in float32 with sdpa attention; it never ends on its own."""
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    model.generation_config.eos_token_id = None
    return model.eval().requires_grad_(False)


@torch.inference_mode()
def plain_loop(model: object, prompts: Prompts, new_tokens: int) -> list[list[int]]:
    """A batch of equal prompts and its growing cache. Only the last logits are computed."""
    from transformers import DynamicCache

    input_ids, selected = torch.tensor(prompts), []
    known = inspect.signature(model.forward).parameters
    settings = {  # newer versions call it `cache` and would warn at every step
        "cache" if "cache" in known else "past_key_values": DynamicCache(),
        "use_cache": True,
        "logits_to_keep": 1,
    }
    for _ in range(new_tokens):
        logits = model(input_ids, **settings).logits
        input_ids = logits[:, -1].argmax(dim=-1, keepdim=True)  # [B, 1]
        selected.append(input_ids)
    return torch.cat(selected, dim=1).tolist()


@torch.inference_mode()
def generate(model: object, prompts: Prompts, new_tokens: int) -> list[list[int]]:
    input_ids = torch.tensor(prompts)
    settings = {"do_sample": False, "max_new_tokens": new_tokens, "pad_token_id": 0}
    output = model.generate(input_ids, attention_mask=torch.ones_like(input_ids), **settings)
    return output[:, input_ids.shape[1] :].tolist()


def batching_limits(page_size: int, **limits: int) -> object:
    """A ContinuousBatchingConfig with pages of so many tokens, which older versions call blocks."""
    from transformers import ContinuousBatchingConfig

    known = inspect.signature(ContinuousBatchingConfig).parameters
    name = "page_size" if "page_size" in known else "block_size"
    return ContinuousBatchingConfig(**{name: page_size}, **limits)


def generate_batch(model: object, prompts: Prompts, new_tokens: int) -> Run:
    """Continuous batching. Its pool is sized to the work; pages of 16 were its fastest here.

    A step takes all prompts. Where they begin alike, it takes one: pages are shared with requests
    of earlier steps alone, so the others find the prefix, and that was its fastest.

    A call also sets up a pool and a thread and waits up to 0.1 s for the thread to end. `seconds`
    leaves that out: from the first request's creation to the last one's end, as it stamps them.
    """
    from transformers import GenerationConfig

    batch, longest = len(prompts), max(map(len, prompts))
    limits = batching_limits(
        PAGE,
        num_blocks=batch * (-(-(longest + new_tokens) // PAGE) + 1) + 4,
        max_batch_tokens=longest if begin_alike(prompts) else max(64, sum(map(len, prompts))),
    )
    greedy = GenerationConfig(
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=-1, pad_token_id=0
    )
    start, cpu = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        found = model.generate_batch(
            list(prompts),
            generation_config=greedy,
            continuous_batching_config=limits,
            warmup=False,
        )
    whole, used = time.perf_counter() - start, time.process_time() - cpu
    outputs = list(found.values())
    seconds = max(o.lifespan[1] for o in outputs) - min(o.created_time for o in outputs)
    return Run([list(o.generated_tokens) for o in outputs], seconds, whole, used)


def _timed(generate: Callable[[Prompts, int], list[list[int]]]) -> Competitor:
    def run(prompts: Prompts, new_tokens: int) -> Run:
        start, cpu = time.perf_counter(), time.process_time()
        token_ids = generate(prompts, new_tokens)
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
        return Run(token_ids, seconds, seconds, used)

    return run
