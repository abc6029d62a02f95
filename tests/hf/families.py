"""Tiny random models of transformers, one a family, and what transformers itself makes of them."""

import pytest
import torch

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

WINDOW = 8
SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.25,  # large enough for attention that is far from uniform
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
HEAD_DIM_12 = {"head_dim": 12}  # not hidden_size / heads, as in Gemma
GEMMA = {**HEAD_DIM_12, "sliding_window": WINDOW, "query_pre_attn_scalar": 24}
FAMILIES = {
    "Llama": {},
    "Mistral": {"sliding_window": WINDOW, **HEAD_DIM_12},
    "Gemma2": {
        **GEMMA,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
    },
    "Gemma3": {
        **GEMMA,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 6,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "linear",
                "factor": 4.0,
                "rope_theta": 1e6,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "Phi3": {"sliding_window": WINDOW},
    "Olmo2": {},
    "Granite": {
        "attention_multiplier": 0.2,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 3.0,
    },
    "Qwen3Moe": {
        **HEAD_DIM_12,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "GptOss": {**HEAD_DIM_12, "num_local_experts": 4, "sliding_window": WINDOW},
}
_CONFIG = {"Gemma3": "Gemma3TextConfig"}


def model_of(family, **changed):
    """A random model in float32; the same one every time. GPT-2 stands apart: other key names."""
    torch.manual_seed(len(family))
    if family == "GPT2":
        config = transformers.GPT2Config(
            vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=256, initializer_range=0.25
        )
        return transformers.GPT2LMHeadModel(config).eval()
    config_class = getattr(transformers, _CONFIG.get(family, f"{family}Config"))
    config = config_class(**{**SIZES, **FAMILIES[family], **changed})
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def tokens(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 97, (length,), generator=generator).tolist()


@torch.no_grad()
def own_logits(model, ids):
    """[N, V] of transformers' own eager forward, the whole sequence at once, no cache."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    model.set_attn_implementation(before)
    return logits


@torch.no_grad()
def paged_logits(decoder, prompts, chunk, block_size=4):
    """[N, V] of each prompt, computed together in passes of `chunk` positions a prompt.

    Blocks of the prompts lie interleaved and backwards in the pool.
    """
    counts = [-(-len(ids) // block_size) for ids in prompts]
    free = list(range(sum(counts)))[::-1]
    tables = [[] for _ in prompts]
    for turn in range(max(counts)):
        for table, count in zip(tables, counts, strict=True):
            if turn < count:
                table.append(free.pop(0))
    cache = PagedCache(decoder.config, sum(counts), block_size, decoder.dtype)
    attention, found = decoder.attention_over(cache), [[] for _ in prompts]
    for start in range(0, max(map(len, prompts)), chunk):
        which = [i for i, ids in enumerate(prompts) if len(ids) > start]
        rows = tuple(
            ScheduledRequest(str(i), start, prompts[i][start : start + chunk], tables[i], ())
            for i in which
        )
        batch = build_input_batch(rows, block_size, decoder.device)
        attention.begin(batch)
        hidden = decoder(batch.input_ids, batch.positions, attention)
        pieces = decoder.compute_logits(hidden).split(batch.query_lens)
        for i, piece in zip(which, pieces, strict=True):
            found[i].append(piece)
    return [torch.cat(pieces) for pieces in found]
