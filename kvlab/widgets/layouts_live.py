"""Serve requests of unequal length in two layouts and look at both; needs an LLM."""

from collections.abc import Sequence

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.layouts import LayoutRun
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.prompts import Prompt, as_list, one_each
from kvlab.widgets.layouts_run import NAMES, Inputs, serve_twice
from kvlab.widgets.layouts_view import CacheLayouts

MOST_SLOTS = 512  # width of what is drawn
MOST_BYTES = 256 * 2**20  # of the rectangle and of the blocks


def cache_layouts(
    llm: LLM,
    prompts: Prompt | Sequence[Prompt],
    sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    *,
    block_size: int | None = None,
) -> CacheLayouts:
    """The view of `compare_layouts`, section 21.1. Same arguments, same errors."""
    return CacheLayouts(compare_layouts(llm, prompts, sampling_params, block_size=block_size))


def compare_layouts(
    llm: LLM,
    prompts: Prompt | Sequence[Prompt],
    sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    *,
    block_size: int | None = None,
) -> LayoutRun:
    """Run the same requests over a padded rectangle and over blocks; what both held, as data.

    prompts: one to eight, texts or lists of token ids. sampling_params: one for all or one each;
    outputs are selected greedily. block_size: slots a block, None for the llm's own. The weights
    and the stored dtype are the llm's; its own cache and engine are left alone.

    Raises ValueError, before anything runs, for what cannot be run or drawn; RuntimeError where
    the two layouts select different tokens.
    """
    if not isinstance(llm, LLM):
        raise ValueError(f"llm has type {type(llm).__name__}; give an LLM, such as LLM('tiny')")
    if not llm.cache.format.is_plain:
        raise ValueError(
            f"the llm's cache stores {llm.cache.format.name}, and a rectangle here holds plain "
            'numbers; give an LLM with cache_dtype "bf16", "fp16" or "fp32"'
        )
    several = _several(prompts)
    params = one_each(sampling_params, len(several))
    limit = llm.engine.scheduler.config.max_model_len
    size = llm.cache.block_size if block_size is None else block_size
    inputs = [(llm.encode(prompt), p) for prompt, p in zip(several, params, strict=True)]
    for name, (ids, p) in zip(NAMES, inputs, strict=False):
        _check_request(name, ids, p, limit)
    _check_size(llm, inputs, size, limit)
    requests, passes = serve_twice(llm.model, inputs, size, llm.cache.dtype, limit)
    config = llm.model.config
    used = sorted({t for r in requests for t in (*r.prompt_token_ids, *r.output_token_ids)})
    meta = {
        "model": llm.name,
        "block_size": size,
        "num_layers": config.num_layers,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "bytes_per_value": llm.cache.dtype.itemsize,
        "vocab": {str(t): llm.tokenizer.token_text(t) for t in used} if llm.tokenizer else {},
    }
    return LayoutRun(meta, requests, passes)


def _several(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    several = [] if isinstance(prompts, list | tuple) and not prompts else as_list(prompts)
    if not several:
        raise ValueError(f"prompts is {prompts!r}; give one to {len(NAMES)} prompts")
    if len(several) > len(NAMES):
        raise ValueError(
            f"{len(several)} prompts; the view draws {len(NAMES)} at most, leave some out"
        )
    return several


def _check_request(name: str, ids: Sequence[int], params: SamplingParams, limit: int) -> None:
    if not isinstance(params, SamplingParams):
        raise ValueError(f"sampling_params of {name} is {params!r}; give a SamplingParams")
    if not ids:
        raise ValueError(f"prompt {name} is empty; give at least one token")
    if len(ids) >= limit:
        raise ValueError(
            f"prompt {name} has {len(ids)} tokens and the longest sequence is {limit}; "
            f"shorten it to {limit - 1} or fewer, so that one output fits"
        )
    for field, nothing, instead in (
        ("temperature", 0, "0: both layouts must select the same tokens"),
        ("n", 1, "1, and the prompt twice for two continuations"),
        ("stop", (), "none; stop_token_ids end a request in both layouts"),
    ):
        if getattr(params, field) != nothing:
            value = getattr(params, field)
            raise ValueError(f"sampling_params of {name}: {field} is {value!r}; give {instead}")


def _check_size(llm: LLM, inputs: Inputs, block_size: int, limit: int) -> None:
    """Whether the largest state that can come fits into the picture and into memory."""
    if type(block_size) is not int or not 1 <= block_size <= MOST_SLOTS:
        raise ValueError(f"block_size is {block_size!r}; give an integer from 1 to {MOST_SLOTS}")
    passes = [min(p.max_tokens, limit - len(ids)) for ids, p in inputs]
    processed = [len(ids) + n - 1 for (ids, _), n in zip(inputs, passes, strict=True)]
    width = max(len(ids) for ids, _ in inputs) + max(passes) - 1
    if width > MOST_SLOTS:
        raise ValueError(
            f"the rectangle may become {width} slots wide and the view draws {MOST_SLOTS} at "
            f"most; shorten the longest prompt or lower max_tokens by {width - MOST_SLOTS}"
        )
    blocks = sum(cdiv(n, block_size) for n in processed)
    slots = max(len(inputs) * width, blocks * block_size)
    nbytes = slots * llm.cache.bytes_per_position
    if nbytes > MOST_BYTES:
        raise ValueError(
            f"a layout may need {nbytes:,} bytes and {MOST_BYTES:,} are allowed here; give fewer "
            "or shorter prompts, lower max_tokens, or store values of fewer bytes (cache_dtype)"
        )
