"""Answers worked by hand, and functions written apart from the package's solutions.

RIGHT: for each exercise, answers that must be found right. WRONG: answers that must not, each with
a piece of what has to be said about it (None: a counterexample or a direction is enough).
"""

import numpy as np
import torch

# ---- functions that are right


def cache_bytes_by_counting(layers, batch, kv_heads, seq_len, head_dim, bytes_per_value=2):
    total = 0
    for _layer in range(layers):
        for _array in ("K", "V"):
            total += np.zeros((batch, kv_heads, seq_len, head_dim)).size * bytes_per_value
    return total


def kv_head_by_listing(h, num_query_heads, num_kv_heads):
    owners = [g for g in range(num_kv_heads) for _ in range(num_query_heads // num_kv_heads)]
    return owners[h]


def key_mask_by_tensors(lengths, new):
    width = max(lengths)
    prompt = torch.arange(width) < torch.tensor(lengths)[:, None]  # [B, T]
    later = torch.tril(torch.ones(new, new, dtype=torch.bool))
    return torch.cat(
        (prompt[:, None].expand(-1, new, -1), later.expand(len(lengths), -1, -1)), dim=2
    )


def decode_by_hand(q, k, v, keys, values):
    rows = [*keys.tolist(), k.tolist()]
    mixed = [*values.tolist(), v.tolist()]
    scores = [sum(a * b for a, b in zip(q.tolist(), row, strict=True)) for row in rows]
    powers = np.exp(np.array(scores) / np.sqrt(len(q)))
    return powers @ np.array(mixed) / powers.sum()


def decode_in(dtype, *tensors):
    """Right, and computed with 16 bits a number."""
    q, k, v, keys, values = (tensor.to(dtype) for tensor in tensors)
    weights = torch.softmax(torch.cat((keys, k[None])) @ q / len(q) ** 0.5, 0)
    return weights @ torch.cat((values, v[None]))


def lengths_by_stepping(prompt_length, num_outputs):
    filled, lengths = 0, []
    while len(lengths) < num_outputs:
        filled += 1 if filled else prompt_length
        lengths.append(filled)
    return lengths


def slot_by_counting(t, block_table, block_size):
    slots = [block * block_size + place for block in block_table for place in range(block_size)]
    return torch.tensor(slots)[t]


def append_by_filling(keys, values, k, v):
    def longer(old, new):
        shape = (*old.shape[:2], old.shape[2] + new.shape[2], old.shape[3])
        out = torch.empty(shape)
        out[:, :, : old.shape[2]], out[:, :, old.shape[2] :] = old, new
        return out

    return [longer(keys, k), longer(values, v).numpy()]


# 3 layers x (K, V) x 2 heads x width 2 x 4 bytes = 96 bytes a position; 3, 3 and 4 positions
MOMENTS = [288, 288, 384]


def _alone(attend, lengths):
    """[what each request gets in the batch], [what it gets alone]; padding of ones."""
    draw = torch.Generator().manual_seed(11)
    keys, values = (torch.ones(len(lengths), 6, 4) for _ in "KV")
    query = torch.randn(len(lengths), 4, generator=draw)
    alone = []
    for b, length in enumerate(lengths):
        keys[b, :length] = torch.randn(length, 4, generator=draw)
        values[b, :length] = torch.randn(length, 4, generator=draw)
        weights = torch.softmax(keys[b, :length] @ query[b] / 2, dim=0)
        alone.append(weights @ values[b, :length])
    return attend(query, keys, values, lengths), torch.stack(alone)


def padding_against_alone(attend):
    found, alone = _alone(attend, [2, 5, 1])
    return torch.allclose(found, alone, atol=1e-5)


def padding_of_ones(attend):
    for lengths in ([1, 4], [4, 1]):
        found, alone = _alone(attend, lengths)
        assert (found - alone).abs().max() < 1e-4


def four_parts(new):
    """keys, values, k, v of 2 requests and 3 heads, no number twice."""
    numbers = torch.arange(2 * 2 * 3 * (4 + new) * 2.0).view(2, 2, 3, 4 + new, 2)
    return numbers[0, :, :, :4], numbers[1, :, :, :4], numbers[0, :, :, 4:], numbers[1, :, :, 4:]


def append_is_right_by_shape_and_sum(append):
    keys, values, k, v = four_parts(3)
    found = append(keys, values, k, v)
    return all(
        [tuple(column) for column in got[1, 2].tolist()]
        == [tuple(column) for column in [*old[1, 2].tolist(), *new[1, 2].tolist()]]
        for got, old, new in zip(found, (keys, values), (k, v), strict=True)
    )


def append_is_right_by_assertions(append):
    keys, values, k, v = four_parts(2)
    new_keys, new_values = append(keys, values, k, v)
    assert (new_keys[:, :, :4] == keys).all() and (new_keys[:, :, 4:] == k).all()
    assert (new_values[:, :, :4] == values).all() and (new_values[:, :, 4:] == v).all()


RIGHT = {
    "21.1-1": [
        MOMENTS,
        tuple(MOMENTS),
        [288.0, 288, np.int64(384)],
        np.array(MOMENTS),
        torch.tensor(MOMENTS),
        [torch.tensor(288), 288, 384],
    ],
    "21.1-2": [cache_bytes_by_counting, lambda a, b, c, d, e, f: 2.0 * a * b * c * d * e * f],
    "21.1-3": [kv_head_by_listing, lambda h, q, g: float(h // (q // g))],
    "21.1-4": [key_mask_by_tensors, lambda n, new: key_mask_by_tensors(n, new).int().tolist()],
    "21.1-5": [
        decode_by_hand,
        lambda *a: torch.tensor(decode_by_hand(*a)).float().tolist(),
    ],
    "21.1-6": [0.75, 3 / 4, np.float32(0.75), torch.tensor(0.75), np.array([0.75])],
    "21.1-7": ["a", "A", " a ", "the head's width is guessed as hidden_size / heads"],
    "21.1-8": ["b", "query heads are counted in place of KV heads"],
    "21.1-9": ["c", "layers with a window are charged with the whole context"],
    "21.1-10": [padding_against_alone, padding_of_ones],
    "21.6-1": [10, 10.0, np.int64(10), torch.tensor(10), np.array([10])],
    "21.6-2": [[2, 3], (2, 3), np.array([2, 3]), torch.tensor([2.0, 3.0])],
    "21.6-3": [lengths_by_stepping, lambda p, n: np.arange(p, p + n), lambda p, n: range(p, p + n)],
    "21.6-4": [
        slot_by_counting,
        lambda t, table, n: [table[t // n] * n + t % n],
        lambda t, table, n: torch.tensor([table[t // n] * n + t % n]),
    ],
    "21.6-5": [append_by_filling, lambda a, b, c, d: tuple(append_by_filling(a, b, c, d))],
    "21.6-6": [append_is_right_by_shape_and_sum, append_is_right_by_assertions],
    "21.6-7": [6, 6.0, np.int64(6)],
}


def first_request_only(attend):
    found, alone = _alone(attend, [2, 5])
    return torch.allclose(found[0], alone[0], atol=1e-5)


def a_full_batch(attend):
    found, alone = _alone(attend, [6, 6])
    return torch.allclose(found, alone, atol=1e-5)


def padding_not_a_number(attend):
    """0 x NaN: the right one mixes the padding's values with weights of 0."""
    values = torch.full((1, 3, 2), float("nan"))
    values[0, :1] = 2
    return bool((attend(torch.zeros(1, 2), torch.zeros(1, 3, 2), values, [1]) == 2).all())


def keys_alone(append):
    keys, values, k, v = four_parts(2)
    return torch.equal(append(keys, values, k, v)[0], torch.cat((keys, k), dim=2))


def one_new_token(append):
    keys, values, k, v = four_parts(1)
    wanted = torch.cat((keys, k), dim=2), torch.cat((values, v), dim=2)
    return all(torch.equal(*pair) for pair in zip(append(keys, values, k, v), wanted, strict=True))


def shapes_alone(append):
    keys, values, k, v = four_parts(2)
    return all(x.shape == (2, 3, 6, 2) for x in append(keys, values, k, v))


WRONG = {
    "21.1-1": [
        ([288, 384, 384], "Selecting computes no keys"),
        ([144, 144, 192], "factor 2"),
        ([864, 864, 1152], "query heads"),
        ([96, 96, 128], "one layer"),
        ([72, 72, 96], "counts numbers"),
        ([288, 288, 672], "all positions"),
        ([288, 288, 385], "entry 1 and entry 2"),
        ([1, 2, 3], "None of the entries"),
        ([300, 300, 400], "The positions are understood. Look again at the size of one."),
        ([300, 300, 600], "The first two are rightly equal, and the third larger."),
        ([300, 400, 400], "The first two differ: you let the selection change the cache."),
        ([96, 96, 96], "The pass that processes a token adds its keys and values."),
    ],
    "21.1-2": [
        (lambda n, b, h, t, d, s: n * b * h * t * d * s, "counts keys only"),
        (lambda n, b, h, t, d, s: 2 * n * b * h * t * d * s / 2**30, "GiB"),
        (lambda n, b, h, t, d, s: 2 * n * b * h * t * d * s / 1e9, "GB"),
        (lambda n, b, h, t, d, s: 2 * n * b * h * t * d * s * 8, "bits"),
        (lambda n, b, h, t, d, s: 2 * n * h * t * d * s, "one request"),
        (lambda n, b, h, t, d, s: 2 * n * b * h * d * s, "one position"),
        (lambda n, b, h, t, d, s: 2 * n * b * h * t * d * 2, "bytes_per_value=4"),
        (lambda n, b, h, t, d: 0, "TypeError"),
    ],
    "21.1-3": [
        (lambda h, q, g: h % g, "deals the query heads out"),
        (lambda h, q, g: h, "MHA"),
        (lambda h, q, g: h // g, "size of a group"),
        (lambda h, q, g: h * g / q, "fraction of a head"),
        (lambda h, q, g: h >> ((q // g).bit_length() - 1), "heads=3, num_kv_heads=1) gives 1"),
        (lambda h, q, g: 0, "my_kv_head(h=1, num_query_heads=2, num_kv_heads=2) gives 0"),
    ],
    "21.1-4": [
        (lambda n, new: [[[True] * (max(n) + i + 1) + [False] * (new - i - 1) for i in range(new)]
                         for _ in n], "reads the padding"),
        (lambda n, new: ~key_mask_by_tensors(n, new), "other way round"),
        (lambda n, new: [[[j < x or j >= max(n) for j in range(max(n) + new)]] * new for x in n],
         "read the ones after it"),
        (lambda n, new: key_mask_by_tensors(n, new)[:, 0], "key_mask(lengths=[1], new=1) gives"),
        (lambda n, new: key_mask_by_tensors(n, new).flip(2), "key_mask(lengths="),
        (lambda n, new: [[[j < x if j < max(n) else j - max(n) <= min(i, 1)
                           for j in range(max(n) + new)] for i in range(new)] for x in n],
         "key_mask(lengths=[2, 1], new=3) gives"),
    ],
    "21.1-5": [
        (lambda q, k, v, K, V: torch.softmax(K @ q / q.numel() ** 0.5, 0) @ V, "own key and value"),
        (lambda q, k, v, K, V: decode_by_hand(q * len(q) ** 0.5, k, v, K, V), "divided by sqrt(d)"),
        (lambda q, k, v, K, V: decode_by_hand(q, k, k, K, K), "mixes the keys"),
        (lambda q, k, v, K, V: torch.cat((V, v[None])).mean(0), "mean of the values"),
        (lambda q, k, v, K, V: v, "the real attention gives"),
        (lambda *a: decode_in(torch.float16, *a), "half precision; compute in float32."),
        (lambda *a: decode_in(torch.bfloat16, *a), "Right within half precision"),
        (lambda *a: decode_in(torch.bfloat16, *a).float() * 1.1, "the real attention gives"),
    ],
    "21.1-6": [
        (0.805306368, "GB, units of 10^9"),
        (0.81, "GB, units of 10^9"),
        (0.375, "keys only"),
        (6, "query heads"),
        (768, "MiB"),
        (805306368, "That is bytes"),
        (0.25, "three requests"),
        (0.7, "too small"),
        (3.0, "too large"),
    ],
    "21.1-7": [
        ("b", "too small"),
        ("c", "no windows"),
        ("d", "five eighths"),
        ("e", "three eighths"),
    ],
    "21.1-8": [
        ("a", "the width that a head really has"),
        ("c", "no windows"),
        ("d", "too small"),
        ("e", "too small"),
    ],
    "21.1-9": [
        ("a", "168 / 128"),
        ("b", "a factor of 2"),
        ("d", "too small"),
        ("e", "too small"),
    ],
    "21.1-10": [
        (lambda attend: True, "says True to all of them"),
        (lambda attend: not padding_against_alone(attend), "other way round"),
        (first_request_only, "takes its length for all others"),
        (a_full_batch, "the right verdict is False"),
        (padding_not_a_number, "the right verdict is True"),
    ],
    "21.6-1": [
        (11, "no pass has read it"),
        (7, "prompt alone"),
        (4, "Those are the outputs"),
        (3, "prompt's positions come on top"),
        (12, "too large"),
    ],
    "21.6-2": [
        ([2, 2], "one pass for both"),
        ([3, 3], "one pass for both"),
        ([3, 4], "counted passes from 1"),
        ([3, 2], "other way round"),
        ([2, 5], "entry 1"),
    ],
    "21.6-3": [
        (lambda p, n: list(range(p, p + n + 1)), "nobody reads it"),
        (lambda p, n: list(range(p + 1, p + n + 1)), "what has been selected"),
        (lambda p, n: list(range(p + 1, p + n)), "prompt's pass is missing"),
        (lambda p, n: [[p + i] for i in range(n)], "gives [[1]]; the engine's trace says [1]"),
        (lambda p, n: [p] * n, "cache_lengths(prompt_length=1, num_outputs=2) gives [1, 1]"),
    ],
    "21.6-4": [
        (lambda t, table, n: t, "logical position"),
        (lambda t, table, n: table[t // n] + t % n, "block_id * block_size"),
        (lambda t, table, n: (table[t // n], t % n), "pair of block and place"),
        (lambda t, table, n: table[t % n] * n + t // n, "IndexError"),
        (lambda t, table, n: table[-1] * n + t % n, "last entry of the table"),
        (lambda t, table, n: table[t],
         "uses the position as the index of the table"),
        (lambda t, table, n: table[t] * n + t % n,
         "uses the position as the index of the table"),
        (lambda t, table, n: str(table[0] * n + t), "gives '8'; the real pool has it in slot 8"),
    ],
    "21.6-5": [
        (lambda K, V, k, v: (torch.cat((k, K), 2), torch.cat((v, V), 2)), "new positions first"),
        (lambda K, V, k, v: (torch.cat((V, v), 2), torch.cat((K, k), 2)), "changed places"),
        (lambda K, V, k, v: (torch.cat((K, k), 2), torch.cat((V, k), 2)), "into the values"),
        (lambda K, V, k, v: torch.cat((K, k), 2), "append(keys="),
        (lambda K, V, k, v: (torch.cat((K, k), 1), torch.cat((V, v), 1)), "append(keys="),
    ],
    "21.6-6": [
        (lambda append: True, "says True to all of them"),
        (keys_alone, "at the keys alone"),
        (one_new_token, "a single token"),
        (shapes_alone, "the right verdict is False"),
        (lambda append: append(*four_parts(2))[0].shape[2] == 0, "says False to all of them"),
    ],
    "21.6-7": [
        (5, "has selected one more"),
        (17, "Those are the positions"),
        (7, "counts the next one"),
        (23, "nothing is to be doubled"),
        (12, "too large"),
    ],
}  # fmt: skip
