"""Section 21.3: why a request's first output came late."""

from collections.abc import Callable

from kvlab.exercises.causes import explain
from kvlab.exercises.serving_21_3 import Serving

FIRST_OUTPUT_IN_STEP = 4


def _step_of_the_first_output(**settings: object) -> Callable[[], int]:
    """A run: A and B decode, C comes with 12 tokens; the step, counted from then, of C's output."""

    def run() -> int:
        serving = Serving(**settings)
        serving.ask("A", 2, outputs=4)
        serving.ask("B", 2, outputs=20)
        serving.step()
        serving.ask("C", 12)
        serving.run()
        return len(serving.order("C").split())

    return run


CAUSES = {
    "a": ("max_num_seqs=2", _step_of_the_first_output(max_num_seqs=2)),
    "b": ("max_num_batched_tokens=8", _step_of_the_first_output(max_num_batched_tokens=8)),
    "c": (
        'policy="alternating", prefill_chunk=4',
        _step_of_the_first_output(policy="alternating", prefill_chunk=4),
    ),
    "d": ('policy="static"', _step_of_the_first_output(policy="static")),
}
LATE_OUTPUT = explain(
    "21.3-9",
    "A and B decode; A has 3 outputs to go, B 19. C arrives with a prompt of 12 tokens. The record "
    "of the run says that C's first output came with the fourth step after that. Which setting, "
    "the others being as usual, explains it?",
    CAUSES,
    FIRST_OUTPUT_IN_STEP,
    (
        "For each setting: what does C wait for before its first chunk, and over how many steps is "
        "its prompt computed?",
        "Two of the settings let C begin at once, in chunks. The other two make it wait until "
        "somebody has ended, and then compute it whole.",
        "In chunks of 8 - 2 = 6 it takes two steps, in chunks of 4 with decodes between them "
        "five. Waiting for A alone takes three steps, and waiting for both nineteen.",
    ),
    {
        "b": "A and B take two of the eight positions, and C six: it is done after two steps.",
        "c": "Three chunks with a decode step between any two: the output comes with the fifth.",
        "d": "A static batch ends as a whole: C would wait for B, too.",
    },
    "No seat was free: C waited for A's last three outputs, and was computed whole in one step.",
)
