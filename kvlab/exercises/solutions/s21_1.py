"""Section 21.1, worked. Each function is the answer; a value's function says how it comes about."""

import torch


def bytes_at_three_moments():
    # 2 for keys and values, 3 layers, 1 request, 2 KV heads, width 2, 4 bytes a number:
    one_position = 2 * 3 * 1 * 2 * 2 * 4
    # The prompt fills three positions. Selecting token four fills none. Processing it fills one.
    return [3 * one_position, 3 * one_position, 4 * one_position]


def my_kv_cache_bytes(layers, batch, kv_heads, seq_len, head_dim, bytes_per_value=2):
    numbers_in_one_array = batch * kv_heads * seq_len * head_dim  # eq 21.1
    return 2 * layers * numbers_in_one_array * bytes_per_value  # one of keys, one of values


def my_kv_head(h, num_query_heads, num_kv_heads):
    group = num_query_heads // num_kv_heads  # neighbouring query heads that share a KV head
    return h // group


def key_mask(lengths, new):
    width = max(lengths)

    def may_read(length, i, j):
        if j < width:
            return j < length  # a column of the prompt: no padding
        return j - width <= i  # a new column: nothing later

    columns = range(width + new)
    return [[[may_read(n, i, j) for j in columns] for i in range(new)] for n in lengths]


def decode_step(q, k, v, keys, values):
    keys = torch.cat((keys, k[None]))  # the token's own position is read, too
    values = torch.cat((values, v[None]))
    scores = keys @ q / len(q) ** 0.5  # [T + 1]
    return torch.softmax(scores, dim=0) @ values


def gib():
    layers, requests, kv_heads, positions, width, value = 2**5, 3, 2**2, 2**12, 2**7, 2
    nbytes = 2 * layers * requests * kv_heads * positions * width * value  # 3 * 2^28
    return nbytes / 2**30


def wrong_width():
    answered, in_use = 1_342_177_280, 2_147_483_648
    assert answered / in_use == 80 / 128  # hidden_size / heads in place of head_dim
    return "a"


def wrong_heads():
    answered, in_use = 21_474_836_480, 2_684_354_560
    assert answered / in_use == 64 / 8  # query heads in place of KV heads
    return "b"


def wrong_windows():
    layers, position = 62, 2 * 16 * 128 * 2  # 52 of the layers keep 1,024 positions at most
    assert layers * 131_072 * position == 66_571_993_088
    assert (10 * 131_072 + 52 * 1_024) * position == 11_173_625_856
    return "c"


def padding_is_safe(attend):
    lengths, padding = [2, 3], 100.0
    query, keys = torch.zeros(2, 4), torch.zeros(2, 5, 4)  # all positions weigh the same
    values = torch.full((2, 5, 4), padding)
    values[0, :2] = torch.tensor([[2.0], [4.0]])
    values[1, :3] = torch.tensor([[1.0], [2.0], [6.0]])
    found = attend(query, keys, values, lengths)
    return bool(torch.allclose(found, torch.full((2, 4), 3.0)))  # both means are 3


SOLUTIONS = {
    "21.1-1": bytes_at_three_moments,
    "21.1-2": my_kv_cache_bytes,
    "21.1-3": my_kv_head,
    "21.1-4": key_mask,
    "21.1-5": decode_step,
    "21.1-6": gib,
    "21.1-7": wrong_width,
    "21.1-8": wrong_heads,
    "21.1-9": wrong_windows,
    "21.1-10": padding_is_safe,
}
