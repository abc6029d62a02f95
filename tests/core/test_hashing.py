"""Block identity (cases P02, P04, P06, P07): equal everywhere, different for different content."""

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.hashing import (
    encode_tokens,
    encode_value,
    extra_keys_of,
    hash_block_tokens,
    root_hash,
    short,
)

ROOT = root_hash({"weights": "abc", "block_size": 4})


def test_digests_are_these_in_every_process_and_python():
    first = hash_block_tokens(ROOT, [1, 2, 3, 4])
    assert ROOT.hex() == "139683d7a9c1294a6ee0dbb331f751cdaded2b5479f17aa38f31e6f97f6264b8"
    assert first.hex() == "0d12b7b13a2fb065492c779e16ede434c7b60b8215ad8325b2cd3e14a0e19874"
    second = hash_block_tokens(first, [5, 6, 7, 8], (("adapter", "X"),))
    assert second.hex() == "41b8c4d26966a5a3d6ee247ae6ea3aab1f0f1a34aa4e961f548b6e55238175bd"
    odd = hash_block_tokens(ROOT, [-1, -2, 0, 2**61 - 1], (("salt", "X"),))
    assert odd.hex() == "d9808176d2ceaafa9615aaf6aca67e17ee87df2b42fe4da2bac30e5350608c43"


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_another_process_gives_the_same_digest(seed):
    code = (
        "from kvlab.core.hashing import *;"
        "print(root_hash({'b': None, 'a': [1, 2.5, True, 'x']}).hex())"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed}
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == root_hash({"a": [1, 2.5, True, "x"], "b": None}).hex()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([-1], [-2]),
        ([0], [2**61 - 1]),
        ([1, 23], [12, 3]),
        ([1], [1, 0]),
        ([], [0]),
        ([256], [1]),
        ([-1], [2**63 - 1]),
    ],
)
def test_different_tokens_have_different_identities(one, other):
    assert hash_block_tokens(ROOT, one) != hash_block_tokens(ROOT, other)


def test_every_extra_carries_its_kind():
    """Adapter "X" without salt, salt "X" without adapter, both, neither: four identities."""
    extras = [extra_keys_of(a, s, 0) for a in (None, "X") for s in (None, "X")]
    assert len({hash_block_tokens(ROOT, [1, 2], e) for e in extras}) == 4


def test_adapter_enters_every_block_and_salt_the_first():
    assert extra_keys_of("a", "s", 0) == (("adapter", "a"), ("salt", "s"))
    assert extra_keys_of("a", "s", 1) == (("adapter", "a"),)
    assert extra_keys_of(None, None, 0) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["org_1", "2345"], ["org_12345", ""]),
        (["a", ["b"]], [["a"], "b"]),
        ([None], ["None"]),
        ([1], [True]),
        ([1], [1.0]),
        (["1"], [1]),
        ([b"x"], ["x"]),
        ({"a": "bc"}, {"ab": "c"}),
        ([], [[]]),
    ],
)
def test_values_are_framed_by_length_and_kind(one, other):
    assert encode_value(one) != encode_value(other)


def test_order_of_keys_does_not_matter():
    assert root_hash({"a": 1, "b": 2}) == root_hash({"b": 2, "a": 1})


def test_a_changed_parent_changes_every_later_identity():
    a1, b1 = (hash_block_tokens(ROOT, t) for t in ([1, 2], [1, 3]))
    assert hash_block_tokens(a1, [4, 5]) != hash_block_tokens(b1, [4, 5])


def test_what_cannot_be_framed_is_refused():
    with pytest.raises(ValueError, match="9223372036854775808"):
        hash_block_tokens(ROOT, [2**63])
    with pytest.raises(ValueError, match="'seven'"):
        hash_block_tokens(ROOT, ["seven"])
    with pytest.raises(TypeError, match="set"):
        root_hash({"a": {1, 2}})


def test_the_token_that_does_not_fit_is_named():
    class Seven:
        def __index__(self):
            return 7

    assert encode_tokens([Seven()]) == encode_tokens([7])
    for bad in (2**63, 1.5, "7"):
        with pytest.raises(ValueError, match=re.escape(f"token id {bad!r} is not")):
            encode_tokens([Seven(), bad])


def test_short_form_is_eight_hex_digits():
    assert short(ROOT) == "139683d7"
    assert short(None) is None


tokens = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6)


@given(tokens, tokens)
def test_equal_identity_means_equal_tokens(one, other):
    assert (hash_block_tokens(ROOT, one) == hash_block_tokens(ROOT, other)) == (one == other)
