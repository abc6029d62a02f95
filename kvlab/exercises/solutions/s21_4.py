"""Section 21.4, worked. Each function is the answer; a value's function says how it comes about."""


def hits_by_length():
    # At least the last position is computed; of those before it, whole blocks of 16 are hits.
    return [(n - 1) // 16 * 16 for n in (64, 65, 63, 17, 16, 1)]


def num_hits(cached, new, block_size):
    alike = 0
    while alike < min(len(cached), len(new)) and cached[alike] == new[alike]:
        alike += 1
    at_most = len(new) - 1  # the last position is computed: keys and values give no logits
    return min(alike, at_most) // block_size * block_size


def six_groups():
    two_blocks = 2 * 16  # of 35 tokens; the third block is not full
    # Only the third (salt "a" after salt "a") and the sixth (no salt, as the first) find theirs.
    return [0, 0, two_blocks, 0, 0, two_blocks]


def chain_is_right(identities):
    first, other, middle, last = [1, 2, 3, 4], [1, 2, 3, 5], [6, 6, 6, 6], [7, 8, 9, 0]
    one = identities(first + middle + last)
    if one != identities(first + middle + last):
        return False  # equal prompts would never be found
    if one[:2] != identities(first + middle + other)[:2]:
        return False  # what comes later must not matter
    if one[2] == identities(first + middle + other)[2]:
        return False  # a block's own tokens matter
    changed = identities(other + middle + last)
    return all(a != b for a, b in zip(one, changed, strict=True))  # and all tokens before it


def free_queue():
    partly_filled = [5]  # no identity: nothing is lost
    a, b = [2, 1, 0], [4, 3]  # deepest first; A ended before B
    return partly_filled + a + b


def half_the_hits():
    return "b"  # position 20 lies in block 1 (16 to 31): block 0 alone is found


SOLUTIONS = {
    "21.4-1": hits_by_length,
    "21.4-2": num_hits,
    "21.4-3": six_groups,
    "21.4-4": chain_is_right,
    "21.4-5": free_queue,
    "21.4-6": half_the_hits,
}
