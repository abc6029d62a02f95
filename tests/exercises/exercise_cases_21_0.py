"""As exercise_cases.py, for the start page: answers written apart from the package's."""

import numpy as np
import torch


def position_bytes_by_counting(layers, query_heads, kv_heads, head_dim, bytes_per_value):
    total = 0
    for _layer in range(layers):
        for _head in range(kv_heads):
            total += 2 * head_dim * bytes_per_value
    return total


def spoil_keys(stopped):
    """Keys that point the other way, in every block that the request has."""
    for block in stopped.block_table:
        stopped.key_cache[:, block] *= -1
    return stopped.answer()


def spoil_in_one_layer(stopped):
    stopped.value_cache[2, stopped.block_table] = 0
    return f" {stopped.answer()}\n"


RIGHT = {
    "21.0-1": [
        position_bytes_by_counting,
        lambda layers, heads, kv_heads, d, size: np.int64(layers * kv_heads * d * size) * 2,
    ],
    "21.0-2": [spoil_keys, spoil_in_one_layer],
    "21.0-3": [[24, 28, 31], (24, 28, 31), torch.tensor([24.0, 28.0, 31.0])],
}


def copies_instead_of_the_cache(stopped):
    mine = stopped.value_cache[:, stopped.block_table]  # a list of blocks makes a copy
    mine.zero_()
    return stopped.answer()


def too_late(stopped):
    text = stopped.answer()
    stopped.value_cache[:] = 0
    return text


def makes_an_answer_up(stopped):
    stopped.answer()
    return "The key is in the soup."


def slots_behind_the_prompt(stopped):
    free = [b for b in range(stopped.key_cache.shape[1]) if b not in stopped.block_table]
    stopped.key_cache[:, free] = float("nan")
    stopped.key_cache[:, free] = 3.0
    return stopped.answer()


def a_little(stopped):
    stopped.value_cache[:, stopped.block_table[1]] *= 1.0001
    return stopped.answer()


WRONG = {
    "21.0-1": [
        (lambda n, hq, hkv, d, size: 2 * n * hq * d * size, "You used the query heads"),
        (lambda n, hq, hkv, d, size: n * hkv * d * size, "a position has both"),
        (lambda n, hq, hkv, d, size: 2 * n * hkv * d, "bytes_per_value bytes"),
        (lambda n, hq, hkv, d, size: 2 * n * hkv * d * size * 8, "the arrays of a real cache"),
        (lambda n, hq, hkv, d, size: 2 * n * hkv * d * size / 2**10, "the arrays of a real cache"),
        (lambda n, hq, hkv, d, size: 2048, "the arrays of a real cache"),  # the page's own model
    ],
    "21.0-2": [
        (lambda stopped: stopped.answer(), "Nothing was changed"),
        (copies_instead_of_the_cache, "Nothing was changed"),
        (too_late, "Nothing was changed"),
        (makes_an_answer_up, "what this request has not answered"),
        (slots_behind_the_prompt, "not this request's"),
        (a_little, "the answer is still the same"),
        (lambda stopped: stopped.block_table, "what this request has not answered"),
    ],
    "21.0-3": [
        ([32, 32, 32], "the last position is computed again"),
        ([31, 31, 31], "found whole or not at all"),
        ([8, 4, 1], "Asked for is what is found"),
        ([16, 16, 16], "less is lost"),
        ([3, 7, 31], "Asked for are positions"),
        ([24, 28, 32], "Right so far: entry 1 and entry 2"),
    ],
}
