"""As exercise_cases.py, for section 21.4: answers written apart from the package's."""

import numpy as np
import torch

# ---- functions that are right


def hits_by_blocks(cached, new, block_size):
    hits = 0
    for start in range(0, len(new) - 1, block_size):
        end = start + block_size
        if end > len(new) - 1 or end > len(cached) or new[start:end] != cached[start:end]:
            break
        hits += block_size
    return hits


def hits_by_look(look, cached, new, block_size):
    """Wrong: blocks that only look alike count."""
    end = block_size
    while end < len(new) and end <= len(cached) and look(cached[:end]) == look(new[:end]):
        end += block_size
    return end - block_size


def hits_by_arrays(cached, new, block_size):
    n = min(len(cached), len(new) - 1)
    equal = np.array(cached[:n]) == np.array(new[:n])
    return np.cumprod(equal).sum() // block_size * block_size


def hits_by_chain(cached, new, block_size):
    def chain(tokens):
        ends = range(block_size, len(tokens) + 1, block_size)
        return [hash(tuple(tokens[:end])) for end in ends]

    known = set(chain(cached))
    return sum(block in known for block in chain(new[:-1])) * block_size


def chain_by_pairs(identities):
    """Every pair among prompts of three blocks of two kinds."""
    a, b = [1, 2, 3, 4], [5, 6, 7, 8]
    prompts = [x + y + z for x in (a, b) for y in (a, b) for z in (a, b)]
    for one in prompts:
        for other in prompts:
            for i, pair in enumerate(zip(identities(one), identities(other), strict=True)):
                end = (i + 1) * 4
                if (pair[0] == pair[1]) != (one[:end] == other[:end]):
                    return False
    return True


def chain_by_assertions(identities):
    one = identities([1] * 12)
    assert one == identities([1] * 12), "equal prompts"
    assert len({*one, *identities([2] + [1] * 11), *identities([1] * 8 + [2] * 4)}) == 7


RIGHT = {
    "21.4-1": [
        [48, 64, 48, 16, 0, 0],
        np.array([48, 64, 48, 16, 0, 0]),
        tuple((n - 1) - (n - 1) % 16 for n in (64, 65, 63, 17, 16, 1)),
    ],
    "21.4-2": [hits_by_blocks, hits_by_arrays, hits_by_chain],
    "21.4-3": [[0, 0, 32, 0, 0, 32], torch.tensor([0, 0, 32, 0, 0, 32])],
    "21.4-4": [chain_by_pairs, chain_by_assertions, lambda ids: np.bool_(chain_by_pairs(ids))],
    "21.4-5": [[5, 2, 1, 0, 4, 3], (5.0, 2, 1, 0, 4, 3)],
    "21.4-6": ["b", "B", "the token at position 20 is another"],
}


# ---- answers that are wrong


def unequal(identities):
    a, b, c = [1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]
    return identities(a + c)[1] != identities(b + c)[1]


WRONG = {
    "21.4-1": [
        ([64, 64, 48, 16, 16, 0], "may not cover the whole prompt"),
        ([63, 64, 62, 16, 15, 0], "found whole, or not at all"),
        ([63, 64, 48, 16, 15, 0], "cuts the last full block in two"),
        ([64, 65, 63, 17, 16, 1], "takes every position"),
        ([48, 48, 32, 0, 0, 0], "always leaves a whole block out"),
        ([3, 4, 3, 1, 0, 0], "Those are blocks"),
        ([16, 1, 15, 1, 16, 1], "positions that are computed"),
        ([48, 64, 48, 16, 16, 0], "entry 1 and entry 2 and entry 3 and entry 4 and entry 6"),
    ],
    "21.4-2": [
        (lambda c, n, b: hits_by_blocks(c, [*n, 0], b), "may not cover the whole prompt"),
        (lambda c, n, b: sum(c[i : i + b] == n[i : i + b] for i in range(0, len(n) - b, b)) * b,
         "goes on after a difference"),
        (lambda c, n, b: hits_by_blocks(c, n, b) // b, "counts blocks"),
        (lambda c, n, b: len(n) - hits_by_blocks(c, n, b), "positions that are computed"),
        (lambda c, n, b: hits_by_blocks(c, n, 1), "Only whole blocks are found"),
        (lambda c, n, b: max(hits_by_blocks(c, [*n, 0], b) - b, 0), "last whole block out"),
        (lambda c, n, b: min(hits_by_blocks(c, [*n, 0], b), len(n) - 1), "cuts a block in two"),
        (lambda c, n, b: hits_by_look(sorted, c, n, b), "and not their order"),
        (lambda c, n, b: hits_by_look(set, c, n, b), "and not their order"),
        (lambda c, n, b: hits_by_look(sum, c, n, b), "That compares sums"),
        (lambda c, n, b: hits_by_look(lambda x: "".join(map(str, x)), c, n, b),
         "[1, 23] and [12, 3] are both 123"),
        (lambda c, n, b: c.index(n[0]) * 0 + hits_by_blocks(c, n, b), "raised ValueError"),
    ],
    "21.4-3": [
        ([0, 32, 32, 32, 32, 32], "lets everybody share"),
        ([0, 0, 32, 0, 32, 32], "adapter"),
        ([0, 0, 32, 0, 0, 0], "identities of the first"),
        ([0, 0, 35, 0, 0, 35], "whole blocks of 16. Of 35 tokens the first 32"),
        ([0, 0, 34, 0, 0, 34], "keeps one position back, as it must"),
        ([0, 16, 32, 16, 16, 32], "the chain carries it"),
        ([32, 32, 32, 32, 32, 32], "entry 3 and entry 6"),
    ],
    "21.4-4": [
        (lambda ids: True, "says True to all of them"),
        (lambda ids: ids([1] * 4) == ids([1] * 8), "says False to all of them"),
        (lambda ids: not chain_by_pairs(ids), "other way round"),
        (unequal, "Go one block further, too"),
        (lambda ids: ids([1] * 4)[0] != ids([2] * 4)[0], "blocks of different tokens"),
        (lambda ids: ids([1] * 8) == ids([1] * 8), "Where must they differ?"),
        (lambda ids: len(ids([1, 2, 3, 4])[0]) == 32 and chain_by_pairs(ids), "hash of 16 bytes"),
        (lambda ids: ids([1] * 8)[0] != ids([1] * 8)[1],
         "PlaceForParent (identities of the tokens and the block's place"),
        (lambda ids: ids([1, 2, 3]) == ids([])[0], "raised ValueError"),
    ],
    "21.4-5": [
        ([5, 0, 1, 2, 3, 4], "from the front"),
        ([2, 1, 0, 5, 4, 3], "no identity"),
        ([2, 1, 0, 4, 3, 5], "not last"),
        ([5, 4, 3, 2, 1, 0], "begins with B"),
        ([0, 1, 2, 3, 4, 5], "first taken"),
        ([5, 2, 1, 0, 3, 4], "entry 4"),
    ],
    "21.4-6": [
        ("a", "The other two stay hits"),
        ("c", "One token in front moves"),
        ("d", "nothing would be found"),
    ],
}  # fmt: skip
