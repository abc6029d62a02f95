"""Small GGUF files as llama.cpp's converter writes them, for tests."""

import gguf
import numpy as np
from tokenizers import pre_tokenizers

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
TOKENS = ["<|end|>", "<|user|>", *LETTERS, "hi", "Ġhi"]
MERGES = ["h i", "Ġ hi"]
F32 = gguf.GGMLQuantizationType.F32
NAMES = {
    "self_attn.o_proj": "attn_output",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def llama_cpp_order(rows, heads):
    """The converter's own statement: a head's halves become neighbouring pairs."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def tensors_of(model):
    """A decoder's weights by llama.cpp's names, as numpy arrays in its order of rows."""
    c, found = model.config, {}
    size = c.num_query_heads * c.head_dim, c.num_kv_heads * c.head_dim
    found["token_embd.weight"] = model.embed_tokens.weight
    found["output_norm.weight"] = model.norm.weight
    if not c.tie_word_embeddings:
        found["output.weight"] = model.lm_head.weight
    for i, layer in enumerate(model.layers):
        q, k, v = layer.self_attn.qkv_proj.weight.split([size[0], size[1], size[1]])
        gate, up = layer.mlp.gate_up_proj.weight.chunk(2)
        found |= {
            f"blk.{i}.attn_q.weight": llama_cpp_order(q.numpy(), c.num_query_heads),
            f"blk.{i}.attn_k.weight": llama_cpp_order(k.numpy(), c.num_kv_heads),
            f"blk.{i}.attn_v.weight": v,
            f"blk.{i}.ffn_gate.weight": gate,
            f"blk.{i}.ffn_up.weight": up,
        }
        for ours, theirs in NAMES.items():
            found[f"blk.{i}.{theirs}.weight"] = layer.get_submodule(ours).weight
    return {name: np.ascontiguousarray(np.asarray(weight)) for name, weight in found.items()}


def write(path, config, tensors, types=None, architecture="llama", pre="smollm", scaling=None):
    """types: name -> how it is stored; what is not named is F32."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_model_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_query_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    if scaling is not None:
        writer.add_rope_scaling_type(scaling)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template("{{ bos_token }}{{ messages[0]['content'] }}")
    for name, weight in tensors.items():
        kind = (types or {}).get(name, F32)
        if kind == F32:
            writer.add_tensor(name, weight)
        elif kind == gguf.GGMLQuantizationType.Q8_K:  # blocks of 256 values in 292 bytes
            empty = np.zeros((weight.shape[0], 292), dtype=np.uint8)
            writer.add_tensor(name, empty, raw_dtype=kind)
        else:
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
