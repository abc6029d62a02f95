"""Counts and switches of an `LLM`: refused with the value before any memory is taken."""

import re

import pytest

from kvlab.llm import LLM


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_blocks": 0}, "a pool of 0 blocks; give an integer from 1 to 1048576"),
        ({"num_blocks": True}, "a pool of True blocks; give an integer from 1 to 1048576"),
        ({"num_blocks": 1.5}, "a pool of 1.5 blocks; give an integer from 1 to 1048576"),
        ({"num_blocks": "8"}, "a pool of '8' blocks; give an integer from 1 to 1048576"),
        ({"num_blocks": 10**9}, "a pool of 1000000000 blocks; give an integer from 1 to 1048576"),
        ({"block_size": None}, "block_size is None; give an integer"),
        ({"block_size": True}, "block_size is True; give an integer"),
        ({"block_size": 1.5}, "block_size is 1.5; give an integer"),
        ({"cpu_blocks": 10**9}, "the CPU tier has 1000000000 blocks; give an integer"),
        ({"max_model_len": "8"}, "max_model_len is '8'; give None, or"),
        ({"enable_prefix_caching": "no"}, "enable_prefix_caching is 'no'; give True or False"),
        ({"seed": None}, "seed is None; give an integer"),
        ({"clock": 5}, "clock is 5; give a function"),
    ],
)
def test_a_count_that_is_none_is_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LLM("tiny", **arguments)


def test_block_size_alone_sizes_the_pool():
    """Four full contexts of 1,024 positions."""
    assert LLM("tiny", block_size=32).cache.num_blocks == 4 * 1024 // 32
