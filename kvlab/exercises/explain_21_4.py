"""Section 21.4: why a prompt that was served finds half of what was expected."""

from collections.abc import Callable, Sequence

from kvlab.exercises.allocator import Allocator
from kvlab.exercises.causes import explain

LENGTH, BLOCK_SIZE, FOUND = 40, 16, 16


def _hits(tokens: Sequence[int], **extras: str) -> Callable[[], int]:
    """A run: 40 tokens are served, and then these are looked up; how many positions are hits."""

    def run() -> int:
        allocator = Allocator(8, BLOCK_SIZE)
        allocator.admit("first", range(LENGTH))
        allocator.finish("first")
        return allocator.hits(tokens, **extras)

    return run


def _another_at(position: int) -> list[int]:
    return [999 if t == position else t for t in range(LENGTH)]


CAUSES = {
    "a": ("its last token is another", _hits(_another_at(LENGTH - 1))),
    "b": ("the token at position 20 is another", _hits(_another_at(20))),
    "c": ("a token has come in front of it", _hits([999, *range(LENGTH)])),
    "d": ("it comes with a cache_salt", _hits(range(LENGTH), cache_salt="a")),
}
HALF_THE_HITS = explain(
    "21.4-6",
    "Blocks of 16. A prompt of 40 tokens was served, and all its full blocks are kept. Somebody "
    "sends it again and expects 32 hit positions. num_cached_tokens says 16. What explains it?",
    CAUSES,
    FOUND,
    (
        "Say for each of the four which blocks change their identity.",
        "An identity holds the block's tokens and all before them, and the group: a change reaches "
        "from its own block to the end.",
        "16 positions are block 0 alone. So the first difference lies in block 1, positions 16 "
        "to 31.",
    ),
    {
        "a": "The last token lies in the third block, which is not full and never found. The other "
        "two stay hits.",
        "c": "One token in front moves every other: no block has its old tokens.",
        "d": "A salt enters the first block's identity, and through the chain all others: nothing "
        "would be found.",
    },
    "The first difference decides: block 0 lies before it, block 1 holds it.",
)
