"""Models of transformers whose layers all have a window: blocks that fell out of it are freed."""

import pytest
from families import FAMILIES, WINDOW, model_of, own_logits, tokens

from kvlab import SamplingParams
from kvlab.hf import load_llm, open_decoder
from kvlab.hf.decoder import TransformersConfig

SLIDING = "sliding_attention"
EVERY = {
    "Mistral": {},
    "Phi3": {},
    "Gemma2": {"layer_types": [SLIDING] * 4},  # capped scores: the layer's own formula
    "GptOss": {"layer_types": [SLIDING] * 4},  # sinks
}


@pytest.mark.parametrize("family", EVERY)
def test_a_pool_of_a_few_blocks_runs_any_length(family):
    """159 positions in 6 blocks of 4; what is given back is filled with NaN."""
    model, prompt = model_of(family, **EVERY[family]), tokens(100)
    llm = load_llm(
        open_decoder(model), block_size=4, num_blocks=6, enable_prefix_caching=False,
        max_num_batched_tokens=11,
    )  # fmt: skip
    manager, gone = llm.engine.scheduler.manager, []
    assert manager.window.size == WINDOW

    def poison(kind, request, **data):
        for block_id in data["block_ids"] if kind == "out_of_window" else ():
            gone.append(block_id)
            for tensor in (llm.cache.key_cache, llm.cache.value_cache):
                tensor[:, block_id] = float("nan")

    manager.observer = poison
    (answer,) = llm.generate([prompt], SamplingParams(max_tokens=60, ignore_eos=True))
    output = list(answer.outputs[0].token_ids)
    assert len(output) == 60 and len(gone) > 30
    logits = own_logits(model, prompt + output)[len(prompt) - 1 : -1]
    assert logits.argmax(dim=-1).tolist() == output


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in EVERY] + ["Gemma2", "GptOss"])
def test_one_layer_that_attends_to_everything_keeps_every_block(family):
    llm = load_llm(open_decoder(model_of(family)), block_size=4, num_blocks=64)
    assert llm.engine.scheduler.manager.window is None


@pytest.mark.parametrize(
    ("windows", "widest"), [((8, 5), 8), ((5, 8), 8), ((8, None), None), ((None,), None)]
)
def test_the_widest_window_decides(windows, widest):
    sizes = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 8)
    heads = {"num_layers": 2, "num_query_heads": 2, "num_kv_heads": 1, "head_dim": 4}
    config = TransformersConfig(**sizes, **heads, windows=windows)
    assert config.widest_window == widest
    assert tuple(map(config.window_of, range(len(windows)))) == windows
