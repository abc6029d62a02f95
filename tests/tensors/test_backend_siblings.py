"""Backends and the watched kernel beside what models bring: windows, dtypes, strides, formats."""

import pytest
import torch
from builders import greedy, random_model

from kvlab import LLM, SamplingParams, triton_mode
from kvlab.tensors.watch_engine import watch_request

pytestmark = pytest.mark.skipif(
    triton_mode.current().mode != "interpreted", reason="needs Triton's interpreter"
)
SMALL = {"num_layers": 1, "num_query_heads": 2, "num_kv_heads": 1, "max_model_len": 64}
WINDOW = {"sliding_window": 3, "layer_types": ("sliding_attention",)}


def serving(prompt=(4, 5, 6, 7, 8), changes=None, **arguments):
    """An engine over a pool of NaN, with one request "A" that has computed nothing yet."""
    model = random_model(1, **SMALL | (changes or {}))
    llm = LLM(model, device="cpu", block_size=2, **arguments)
    llm.cache.fill_with_nan()
    llm.engine.add_request(list(prompt), greedy(8, ignore_eos=True), request_id="A")
    return llm


def test_a_layer_with_a_window_is_watched() -> None:
    """Its model hands the window over by name. Blocks behind it were given back."""
    llm = serving(changes=WINDOW)
    for length in (5, 6, 7):
        log = watch_request(llm.engine, "A").log
        assert (log.window, log.seq_lens) == (3, (length,))
    table = log.block_table[0]
    assert log.slots_read(0, 0) == [table[t // 2] * 2 + t % 2 for t in (4, 5, 6)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_watched_within_its_own_rounding(dtype) -> None:
    """The kernel sums in another order: what float32 would call a difference is rounding."""
    llm = serving(prompt=range(2, 33), changes={"head_dim": 64}, dtype=dtype)
    watched = watch_request(llm.engine, "A")
    assert watched.output.dtype == dtype and watched.log.seq_lens == (31,)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({"cache_dtype": "int4"}, {}, "the kernels do not read a q4_0 cache; watch an engine"),
        ({"dtype": torch.float64, "cache_dtype": "fp32"}, {}, "do not compute in float64; watch"),
        ({}, {"num_splits": 0}, "num_splits is 0"),
        ({}, {"tile": -16}, "tile is -16"),
    ],
)
def test_what_cannot_be_watched_costs_no_step(arguments, options, message) -> None:
    llm = serving(changes={"head_dim": 32}, **arguments)
    with pytest.raises(ValueError, match=message):
        watch_request(llm.engine, "A", **options)
    assert llm.engine.requests["A"].num_computed_tokens == 0


@pytest.mark.parametrize("window", [1 << 31, 1 << 63, 1 << 70])
def test_a_window_beyond_every_position_reaches_all(window) -> None:
    """Checkpoints say so with large numbers; a kernel counts in 32 bits."""
    texts = []
    for changes in ({}, WINDOW | {"sliding_window": window}):
        llm = LLM(random_model(3, **SMALL | changes), device="cpu", attention_backend="triton")
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        texts.append([o.outputs[0].token_ids for o in llm.generate([[1, 2, 3, 4, 5], [9]], params)])
    assert texts[0] == texts[1] and len(texts[0][0]) == 3
