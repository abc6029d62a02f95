"""Section 21.0, worked. Each function is the answer; a value's function says how it comes about."""


def position_bytes(layers, query_heads, kv_heads, head_dim, bytes_per_value):
    return 2 * layers * kv_heads * head_dim * bytes_per_value


def spoil(stopped):
    stopped.value_cache[:, stopped.block_table[-1]] = 0  # the question's values, in all layers
    return stopped.answer()


def positions_found():
    return [32 - block_size for block_size in (8, 4, 1)]  # all blocks but the last


SOLUTIONS = {
    "21.0-1": position_bytes,
    "21.0-2": spoil,
    "21.0-3": positions_found,
}
