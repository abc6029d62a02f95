"""Section 21.5: why fewer blocks are in use than three tables name."""

from collections.abc import Callable

from kvlab.exercises.allocator import Allocator
from kvlab.exercises.causes import explain

LENGTH, NUM_BLOCKS, IN_USE = 10, 16, 7


def _blocks_of_prompts(alike: int) -> Callable[[], int]:
    """A run: three prompts of 10 tokens, the first `alike` of them equal; blocks in use."""

    def run() -> int:
        allocator = Allocator(NUM_BLOCKS)
        for i, name in enumerate("ABC", 1):
            allocator.admit(name, [t if t < alike else 100 * i + t for t in range(LENGTH)])
        return NUM_BLOCKS - len(allocator.free)

    return run


def _blocks_of_continuations() -> int:
    allocator = Allocator(NUM_BLOCKS)
    allocator.admit("A", range(LENGTH))
    allocator.fork("A", "B")
    allocator.fork("A", "C")
    return NUM_BLOCKS - len(allocator.free)


CAUSES = {
    "a": ("the prompts' first 3 tokens are the same", _blocks_of_prompts(3)),
    "b": ("the prompts' first 7 tokens are the same", _blocks_of_prompts(7)),
    "c": ("the prompts' first 9 tokens are the same", _blocks_of_prompts(9)),
    "d": (
        "they are continuations of one prompt of 10 tokens, with no more tokens yet",
        _blocks_of_continuations,
    ),
}
SEVEN_OF_NINE = explain(
    "21.5-7",
    "Blocks of four. Three requests of 10 processed positions each are running, and each has a "
    "table of three blocks. A monitor of the pool shows 7 blocks in use, and not 9. What explains "
    "it?",
    CAUSES,
    IN_USE,
    (
        "How many blocks does each of the three share with the others, in each of the four cases?",
        "Between prompts only full blocks are shared, and only those before the first difference. "
        "Continuations share all that they have not written to.",
        "9 - 7 = 2: one block stands in all three tables. It takes four equal tokens in front, and "
        "eight would make two such blocks.",
    ),
    {
        "a": "Three tokens fill no block, and only full blocks are found: nobody would share one.",
        "c": "Nine equal tokens fill two blocks: two would stand in all three tables, and 5 would "
        "be in use.",
        "d": "Before one writes they share the last block, too: 3 would be in use.",
    },
    "One full block is the same, and stands in three tables; the rest of the 7 tokens fills none.",
)
