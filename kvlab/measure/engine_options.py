"""Which engine exposes which mechanism of section 21.5, under what name and by what option.

Each row was looked up in the source or the documentation of the version that it names, and says
where. Options change from version to version: ask your engine's own --help before you rely on one.
The rows of transformers are compared with the installed library by this package's tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

UNIT, POOL, PREFIX = "unit of memory", "size of the pool", "finding a prefix again"
FORMAT, TIER, TOLD = "stored format", "second tier", "tokens found, as told"
MECHANISMS = (UNIT, POOL, PREFIX, FORMAT, TIER, TOLD)
NONE = "none"
_ON = "--enable-prefix-caching"


@dataclass(frozen=True)
class EngineOption:
    """One mechanism of one engine. name: what the engine calls it; option: what sets it, several
    with a comma between, "none" where nothing does; default: the values where nobody gives one;
    source: the file or page where that was read.
    """

    engine: str
    version: str
    mechanism: str
    name: str
    option: str
    default: str
    source: str


def _of(engine: str, version: str, where: str, *rows: tuple[str, ...]) -> tuple[EngineOption, ...]:
    """Rows (mechanism, name, option, default, source) of one engine; `where` goes before each."""
    return tuple(EngineOption(engine, version, *row[:4], f"{where}{row[4]}") for row in rows)


ROWS = (
    *_of(
        *("kvlab", "this package", "kvlab/"),
        (UNIT, "block", "block_size", "16", "llm.py"),
        (POOL, "pool of blocks", "num_blocks", "four full contexts, 512 MiB at most", "llm.py"),
        (PREFIX, "prefix caching", "enable_prefix_caching", "True", "llm.py"),
        (FORMAT, "stored dtype", "cache_dtype", "as computed", "llm.py"),
        (TIER, "CPU tier", "cpu_blocks", "None: there is none", "llm.py"),
        (TOLD, "usage, cached_tokens", NONE, "always", "serve/answers.py"),
    ),
    *_of(
        *("transformers, generate", "5.24.0", "generation/configuration_utils.py"),
        (UNIT, "one array a layer", "cache_implementation", "None: DynamicCache", ""),
        (POOL, "grows with the text", NONE, "static ones have max_cache_len", ""),
        (PREFIX, "past_key_values, handed over", NONE, "nothing is kept between calls", ""),
        (FORMAT, "QuantizedCache", "cache_implementation", "None: the model's dtype", ""),
        (TIER, "offloaded cache", "cache_implementation", "None: there is none", ""),
        (TOLD, "nothing", NONE, "", ""),
    ),
    *_of(
        *("transformers, generate_batch", "5.24.0", "generation/"),
        (UNIT, "page", "page_size", "256", "configuration_utils.py"),
        (POOL, "blocks", "num_blocks", "None: from free memory", "configuration_utils.py"),
        (PREFIX, "block sharing", "allow_block_sharing", "True", "configuration_utils.py"),
        (FORMAT, "the model's dtype", NONE, "", "continuous_batching/cache.py"),
        (TIER, "CPU offloading", "cpu_offload_space", "0.0 GiB", "configuration_utils.py"),
        (TOLD, "nothing", NONE, "", "continuous_batching/requests.py"),
    ),
    *_of(
        *("vLLM", "0.10.2", "vllm/"),
        (UNIT, "block", "--block-size", "16 on CUDA", "platforms/cuda.py"),
        (
            *(POOL, "GPU blocks", "--gpu-memory-utilization, --num-gpu-blocks-override"),
            *("0.9; None", "config/cache.py"),
        ),
        (
            *(PREFIX, "automatic prefix caching", f"{_ON}, --no-enable-prefix-caching"),
            *("on in V1", "engine/arg_utils.py"),
        ),
        (FORMAT, "KV cache dtype", "--kv-cache-dtype", "auto", "config/cache.py"),
        (TIER, "KV connector", "--kv-transfer-config", "none", "engine/arg_utils.py"),
        (
            *(TOLD, "/metrics; usage", "--enable-prompt-tokens-details"),
            *("counters always, usage False", "entrypoints/openai/cli_args.py"),
        ),
    ),
    *_of(
        *("vLLM", "0.33.0", "vllm/"),
        (UNIT, "block", "--block-size", "16", "config/cache.py"),
        (
            *(POOL, "GPU blocks", "--gpu-memory-utilization, --num-gpu-blocks-override"),
            *("0.92; None", "config/cache.py"),
        ),
        (
            *(PREFIX, "automatic prefix caching", f"{_ON}, --no-enable-prefix-caching"),
            *("on", "engine/arg_utils.py"),
        ),
        (FORMAT, "KV cache dtype", "--kv-cache-dtype", "auto", "config/cache.py"),
        (TIER, "KV offloading", "--kv-offloading-size", "None: there is none", "config/cache.py"),
        (
            *(TOLD, "/metrics; usage", "--enable-prompt-tokens-details"),
            *("counters always, usage False", "entrypoints/common/cli_args.py"),
        ),
    ),
    *_of(
        *("SGLang", "0.5.23", "sglang/srt/arg_groups/"),
        (UNIT, "page", "--page-size", "1 on CUDA", "overrides.py"),
        (
            *(POOL, "token pool", "--mem-fraction-static, --max-total-tokens"),
            *("None: computed; None", "fields/schedule.py"),
        ),
        (PREFIX, "RadixAttention", "--disable-radix-cache", "False: it is on", "fields/memory.py"),
        (FORMAT, "KV cache dtype", "--kv-cache-dtype", "auto", "fields/model.py"),
        (TIER, "hierarchical cache", "--enable-hierarchical-cache", "False", "fields/memory.py"),
        (TOLD, "usage", "--enable-cache-report", "False", "fields/serving.py"),
    ),
    *_of(
        *("TensorRT-LLM", "1.3.0rc27", "llm-api/reference/KvCacheConfig (documentation)"),
        (UNIT, "block", "tokens_per_block", "32", ""),
        (POOL, "pool of blocks", "free_gpu_memory_fraction, max_tokens", "0.9; None", ""),
        (PREFIX, "block reuse", "enable_block_reuse", "True", ""),
        (FORMAT, "dtype", "dtype", "auto", ""),
        (TIER, "host cache", "host_cache_size", "None", ""),
    ),
    *_of(
        *("TensorRT-LLM", "1.3.0rc27", "tensorrt_llm/serve/openai_protocol.py, commit 0076e93"),
        (TOLD, "usage, cached_tokens", NONE, "whether always: unchecked", ""),
    ),
    *_of(
        *("llama.cpp", "b11434", ""),
        (UNIT, "cell of one token", NONE, "", "src/llama-kv-cells.h"),
        (
            *(POOL, "one buffer for all slots", "--ctx-size, --parallel, --kv-unified"),
            *("0: the model's own; -1: auto; on if auto", "tools/server/README.md"),
        ),
        (
            *(PREFIX, "prompt cache of a slot", "--cache-prompt, --cache-reuse"),
            *("enabled; 0: off", "tools/server/README.md"),
        ),
        (
            *(FORMAT, "cache type", "--cache-type-k, --cache-type-v"),
            *("f16; f16", "tools/server/README.md"),
        ),
        (TIER, "prompt cache in RAM", "--cache-ram", "8192 MiB", "tools/server/README.md"),
        (TOLD, "usage, cached_tokens", NONE, "always", "tools/server/server-task.cpp"),
    ),
)


def rows(engine: str, version: str | None = None) -> tuple[EngineOption, ...]:
    """The rows of one engine, of all its versions or of one. Raises ValueError for none."""
    found = tuple(r for r in ROWS if r.engine == engine and version in (None, r.version))
    if not found:
        known = dict.fromkeys(f"{r.engine} {r.version}" for r in ROWS)
        raise ValueError(f"there is no row of {engine!r} {version or ''}; there are {list(known)}")
    return found


def markdown(mechanisms: Sequence[str] = MECHANISMS, sources: bool = False) -> str:
    """A table of Markdown: a line an engine, a column a mechanism.

    A cell is the engine's name for it, the option, and the default in brackets. sources: one more
    column, where these were looked up. Raises ValueError for a mechanism that there is not.
    """
    if unknown := [m for m in mechanisms if m not in MECHANISMS]:
        raise ValueError(f"there is no mechanism {unknown[0]!r}; there are {', '.join(MECHANISMS)}")
    head = ["engine", *mechanisms, *(["looked up in"] if sources else [])]
    lines = [_line(head), _line(["---"] * len(head))]
    for engine, version in dict.fromkeys((r.engine, r.version) for r in ROWS):
        of_it = {r.mechanism: r for r in rows(engine, version)}
        chosen = [of_it[m] for m in mechanisms]
        cells = [f"**{engine}** {version}", *map(_cell, chosen)]
        if sources:
            cells.append(", ".join(f"`{s}`" for s in dict.fromkeys(r.source for r in chosen)))
        lines.append(_line(cells))
    return "\n".join(lines)


def _cell(row: EngineOption) -> str:
    """name, then the option (default)."""
    options = [] if row.option == NONE else row.option.split(", ")
    name = f"{row.name}: {', '.join(f'`{o}`' for o in options)}" if options else row.name
    return f"{name} ({row.default})" if row.default else name


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
