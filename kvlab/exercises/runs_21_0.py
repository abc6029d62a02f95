"""The start page's expectations, from real runs of the tiny model. Cases are made afresh.

torch is imported when one of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from kvlab.exercises.shapes import config_of

if TYPE_CHECKING:
    from torch import Tensor

    from kvlab import LLM

NOTES = "Ada likes soup. Tom plays chess. The key is in the garden."
QUESTION, OUTPUTS = "Where is the key?", 12
BLOCK_SIZES = (8, 4, 1)


@cache
def _prompt() -> str:
    from kvlab import tiny

    return tiny.prompt(NOTES, QUESTION)


@cache
def _model() -> object:
    from kvlab import LLM

    return LLM("tiny", block_size=16, num_blocks=1).model


def engine(block_size: int = 16) -> LLM:
    """A new engine over the tiny model, with a pool of 256 positions."""
    from kvlab import LLM

    return LLM(_model(), tokenizer="tiny", block_size=block_size, num_blocks=256 // block_size)


# ---- bytes of a position


def bytes_of_real_arrays(
    layers: int, query_heads: int, kv_heads: int, head_dim: int, bytes_per_value: int
) -> int:
    """What the arrays of a pool of this shape with a single slot take."""
    from kvlab.tensors.kv_cache import PagedCache

    config = config_of(layers, query_heads, kv_heads, head_dim)
    kind = {1: "fp8", 2: "fp16", 4: "fp32"}[bytes_per_value]
    return PagedCache(config, num_blocks=1, block_size=1, dtype=kind).nbytes


def models() -> Sequence[tuple[int, int, int, int, int]]:
    """The tiny model's shape, two small ones, and those of public models by their config.json."""
    from kvlab.core.presets import preset

    found = [(4, 4, 2, 32, 4), (1, 1, 1, 2, 1), (2, 8, 8, 4, 2)]
    for name in ("llama-3.1-8b", "qwen3-0.6b", "qwen2.5-7b"):
        config = preset(name).config
        layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
        width = config.get("head_dim", config["hidden_size"] // heads)
        found.append((layers, heads, config["num_key_value_heads"], width, 2))
    return tuple(found)


# ---- a cache that somebody has changed


class Stopped:
    """the page's first request, stopped after its prompt's pass

    key_cache, value_cache: [layers, blocks, slots, KV heads, width], the pool's own tensors. Block
    block_table[i] holds the request's positions 16 i to 16 i + 15.
    """

    def __init__(self) -> None:
        from kvlab import SamplingParams

        self._llm = engine()
        ids = self._llm.encode(_prompt())
        (self._request,) = self._llm.engine.add_request(ids, SamplingParams(max_tokens=OUTPUTS))
        self._llm.engine.step()
        self.key_cache: Tensor = self._llm.cache.key_cache
        self.value_cache: Tensor = self._llm.cache.value_cache
        self._kept = self.key_cache.clone(), self.value_cache.clone()
        self.answers: dict[str, str] = {}  # text -> what of the pool had been changed before

    @property
    def block_table(self) -> list[int]:
        manager = self._llm.engine.scheduler.manager
        return manager.block_table(self._request.request_id)

    def answer(self) -> str:
        """Let the engine go on to the request's end; the text of its answer."""
        changed = self._changed()
        self._llm.engine.run()
        text = self._llm.tokenizer.decode(self._request.output_token_ids).strip()
        self.answers.setdefault(text, changed)
        return text

    def _changed(self) -> str:
        pairs = zip((self.key_cache, self.value_cache), self._kept, strict=True)
        apart = sum((now != kept).flatten(2).any(-1).any(0).int() for now, kept in pairs)
        blocks = set(apart.nonzero().flatten().tolist())
        own = blocks & set(self.block_table)
        return "its own" if own else "other blocks" if blocks else "nothing"


@cache
def recomputed() -> str:
    """The answer without a cache: for each token the whole text goes through the model again."""
    import torch

    from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward

    llm = engine()
    ids, outputs = list(llm.encode(_prompt())), []
    ends = set(llm.model.config.eos_token_ids)
    while len(outputs) < OUTPUTS and not ends & set(outputs):
        logits = contiguous_forward(
            llm.model, torch.tensor([ids + outputs]), ContiguousCache(llm.model.config)
        )
        outputs.append(int(logits[0, -1].argmax()))
    return llm.tokenizer.decode(outputs).strip()


def stopped() -> Sequence[tuple[Stopped]]:
    return ((Stopped(),),)


# ---- positions found again


def positions_found() -> list[int]:
    """Of each block size: what the second of two equal requests finds."""
    from kvlab import SamplingParams

    found = []
    for block_size in BLOCK_SIZES:
        llm = engine(block_size)
        for _time in range(2):
            (output,) = llm.generate(_prompt(), SamplingParams(max_tokens=OUTPUTS))
        found.append(output.num_cached_tokens)
    return found
