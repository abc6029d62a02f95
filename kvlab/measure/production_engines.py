"""How each engine is given the workload of `production`: first one request, then all the others.

Every function returns what `Ran` holds. transformers is imported when its model is loaded.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from kvlab import tiny
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.measure.competitors import batching_limits, load_transformers
from kvlab.measure.load import load
from kvlab.measure.load_result import LoadResult
from kvlab.model_source import smollm2_file

if TYPE_CHECKING:
    from kvlab.measure.production import SharedWorkload

Ids = tuple[tuple[int, ...], ...]
PATIENCE = 120.0  # seconds for one request of continuous batching


@dataclass(frozen=True)
class Ran:
    """What an engine did with the workload, in the order of its prompts.

    num_found: prompt tokens found in its cache, None where it does not say. num_processed:
    positions that went through the model, None where nobody counts. texts: () where nobody put
    the token ids into words; token_ids: None where only texts are known.
    """

    seconds: float
    num_prompt_tokens: int | None
    num_output_tokens: int
    num_found: int | None
    num_processed: int | None
    texts: tuple[str, ...] = ()
    token_ids: Ids | None = None


@contextmanager
def counted(embedding: torch.nn.Module) -> Iterator[list[int]]:
    """A list that grows by one number a pass: the positions that went in."""
    seen: list[int] = []
    hook = embedding.register_forward_hook(
        lambda module, given, made: seen.append(given[0].numel())
    )
    try:
        yield seen
    finally:
        hook.remove()


def kvlab_engine(model: str, block_size: int) -> LLM:
    """On the CPU, prefix caching on as it is by default. Raises ValueError as `LLM` does."""
    return LLM(model, block_size=block_size, device="cpu")


def on_kvlab(llm: LLM, prompt_ids: Ids, workload: "SharedWorkload") -> Ran:
    """kvlab's engine, which says itself what it found."""
    params = SamplingParams(max_tokens=workload.max_tokens)
    prompts = [list(ids) for ids in prompt_ids]
    with counted(llm.model.embed_tokens) as passes:
        start = time.perf_counter()
        outputs = llm.generate(prompts[:1], params) + llm.generate(prompts[1:], params)
        seconds = time.perf_counter() - start
    answers = [o.outputs[0] for o in outputs]
    found, token_ids = sum(o.num_cached_tokens for o in outputs), [a.token_ids for a in answers]
    ran = _ran(seconds, prompt_ids, token_ids, found, sum(passes))
    return replace(ran, texts=tuple(a.text for a in answers))


# ---- transformers


def transformers_model(model: str) -> object:
    """The same weights in transformers, in float32. Raises ImportError where it is missing."""
    if model == "tiny":
        found = load_transformers(tiny.FOLDER)
    else:
        from transformers import AutoModelForCausalLM, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        file = smollm2_file()
        found = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        ).eval()
    found.generation_config.eos_token_id = found.config.eos_token_id
    return found


def on_generate(model: object, prompt_ids: Ids, workload: "SharedWorkload") -> Ran:
    """transformers' `generate`: a call for the first request, and one for the others.

    Shorter prompts are padded on the left. Nothing is kept from one call to the next.
    """
    with counted(model.get_input_embeddings()) as passes, torch.inference_mode():
        start = time.perf_counter()
        token_ids = _generate(model, prompt_ids[:1], workload.max_tokens)
        token_ids += _generate(model, prompt_ids[1:], workload.max_tokens)
        seconds = time.perf_counter() - start
    return _ran(seconds, prompt_ids, token_ids, 0, sum(passes))


def _generate(model: object, prompt_ids: Ids, max_tokens: int) -> list[list[int]]:
    longest = max(map(len, prompt_ids))
    padding = [longest - len(ids) for ids in prompt_ids]
    rows = [[0] * n + list(ids) for n, ids in zip(padding, prompt_ids, strict=True)]
    mask = [[0] * n + [1] * (longest - n) for n in padding]
    settings = {"do_sample": False, "max_new_tokens": max_tokens, "pad_token_id": 0}
    output = model.generate(torch.tensor(rows), attention_mask=torch.tensor(mask), **settings)
    return [_until(row, model.config.eos_token_id) for row in output[:, longest:].tolist()]


def _until(row: list[int], eos_token_id: int | Sequence[int] | None) -> list[int]:
    """The outputs up to the first end mark; what follows is padding."""
    ends = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id or ())
    return row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))]


def on_batching(model: object, prompt_ids: Ids, workload: "SharedWorkload", block_size: int) -> Ran:
    """transformers' continuous batching, with pages of block_size and block sharing as it is.

    It keeps its cache from the first request to the others. What it found there it does not say;
    it is what its prompts have more than went through the model.
    """
    from transformers import GenerationConfig

    pages = sum(-(-(len(ids) + workload.max_tokens) // block_size) + 1 for ids in prompt_ids)
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=workload.max_tokens,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=0,
    )
    limits = batching_limits(
        block_size, num_blocks=pages + 4, max_batch_tokens=sum(map(len, prompt_ids))
    )
    with (
        counted(model.get_input_embeddings()) as passes,
        torch.inference_mode(),
        model.continuous_batching_context_manager(
            generation_config=greedy, continuous_batching_config=limits, warmup=False
        ) as manager,
    ):
        start = time.perf_counter()
        token_ids = _batched(manager, prompt_ids[:1]) + _batched(manager, prompt_ids[1:])
        seconds = time.perf_counter() - start
    outputs_read = sum(len(ids) - 1 for ids in token_ids)  # the last one is never processed
    found = sum(map(len, prompt_ids)) + outputs_read - sum(passes)
    return _ran(seconds, prompt_ids, token_ids, max(0, found), sum(passes))


def _batched(manager: object, prompt_ids: Ids) -> list[list[int]]:
    """Hand requests over and wait for all of them. Raises RuntimeError for one that failed."""
    names = manager.add_requests([list(ids) for ids in prompt_ids])
    done: dict[str, object] = {}
    while len(done) < len(names):
        result = manager.get_result(timeout=PATIENCE)
        if result is None or result.error is not None:
            why = "no answer in time" if result is None else result.error
            raise RuntimeError(f"continuous batching of transformers: {why}")
        done[result.request_id] = result
    return [list(done[name].generated_tokens) for name in names]


def _ran(
    seconds: float, prompt_ids: Ids, token_ids: list[list[int]], found: int, processed: int
) -> Ran:
    counts = sum(map(len, prompt_ids)), sum(map(len, token_ids))
    return Ran(seconds, *counts, found, processed, token_ids=tuple(map(tuple, token_ids)))


# ---- any server


def on_server(
    url: str, workload: "SharedWorkload", served_model: str | None = None, **options: object
) -> tuple[str, Ran | None, str]:
    """A server with OpenAI's API: (who answered, what it did, a note).

    options: as `load` takes them (api, api_key, timeout, ...). A short request of another text
    comes first and is not counted, since some servers load their model then. Raises ValueError and
    ConnectionError as `load` does.
    """
    settings = {"model": served_model, **options}
    opening = load(url, ["Hello."], max_tokens=1, **settings)
    prompts = list(workload.prompts)
    settings |= {"max_tokens": workload.max_tokens, "keep_text": True}
    runs = [
        load(url, prompts[:1], **settings),
        load(url, prompts[1:], arrivals=math.inf, **settings),
    ]
    setting = runs[0].setting
    owner = opening.setting.get("server")
    name = f"{f'{owner} ' if owner else ''}server, {setting['model']}"
    if failed := [why for run in runs for why, n in run.failures().items() for _ in range(n)]:
        return name, None, f"{len(failed)} of {len(prompts)} requests failed: {failed[0]}"
    return name, _of_runs(runs), ""


def _of_runs(runs: Sequence[LoadResult]) -> Ran:
    records = [record for run in runs for record in run.records]
    texts = tuple(run.texts[r.request_id] for run in runs for r in run.records)
    return Ran(
        sum(run.duration for run in runs),
        _total(r.num_prompt_tokens for r in records),
        sum(r.times.num_output_tokens for r in records),
        _found(runs),
        None,
        texts,
    )


def _found(runs: Sequence[LoadResult]) -> int | None:
    """What the answers say, else what the server's counters rose by, else None."""
    told = _total(r.num_cached_tokens for run in runs for r in run.records)
    if told is not None:
        return told
    hits = _total(None if run.prefix_cache is None else run.prefix_cache.hits for run in runs)
    return None if hits is None else int(hits)


def _total(counts: Iterable[float | None]) -> float | None:
    """The sum, or None if any of them is not known."""
    listed = list(counts)
    return None if any(n is None for n in listed) else sum(listed)
