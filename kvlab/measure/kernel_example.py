"""The example of the view "watch a kernel": two continuations of one prompt, blocks out of order.

    python -m kvlab.measure.kernel_example      records anew the log that ships with the package

Its pool hands out blocks in no order, and the two requests share the blocks of their prompt.
Section 21.5.
"""

import json

from kvlab.core.block_pool import BlockPool
from kvlab.core.kernel_log import RECORDED, KernelLog
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.engine import LLMEngine
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner
from kvlab.tensors.watch_engine import watch_request
from kvlab.tensors.watch_kernel import WatchedDecode

POOL = (7, 2, 9, 5, 17, 0, 14, 3, 12, 19, 10, 1, 16, 6, 13, 4, 18, 8, 15, 11)  # as handed out
FACTS, STORY = "Ada likes soup. The key is red.", "Tell me a story about Ada and a red kite."
POSITIONS, LAYER, ABOUT = 34, 1, "two continuations of one prompt"


def continued(model: Decoder, prompt: list[int], positions: int) -> LLMEngine:
    """An engine that has served two continuations of a prompt up to so many positions each.

    Slots that nobody wrote hold NaN.
    """
    cache = PagedCache(model.config, num_blocks=len(POOL), block_size=4)
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    manager = KVCacheManager(BlockPool(list(POOL)), block_size=4)
    engine = LLMEngine(Scheduler(manager), ModelRunner(model, cache))
    both = SamplingParams(max_tokens=99, temperature=1.0, seed=7, n=2, ignore_eos=True)
    first, second = engine.add_request(prompt, both, request_id="A")
    while min(first.num_computed_tokens, second.num_computed_tokens) < positions:
        engine.step()
    return engine


def watch_example() -> WatchedDecode:
    """One step of the shipped model: both requests read 35 positions through their tables."""
    from kvlab import LLM, tiny

    llm = LLM("tiny")
    engine = continued(llm.model, llm.encode(tiny.prompt(FACTS, STORY, rules="")), POSITIONS)
    return watch_request(engine, ["A", "A.1"], LAYER, about=ABOUT)


def main() -> None:
    """Write the file. Raises RuntimeError where no kernel can be interpreted."""
    log = watch_example().log
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(rounded(log.to_dict())) + "\n", encoding="utf-8")
    print(f"{log} written to {RECORDED.name}")


def rounded(value: object) -> object:
    """Floats with seven digits: what a float32 has."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def example_log() -> KernelLog:
    """The example's log alone."""
    return watch_example().log


if __name__ == "__main__":
    main()
