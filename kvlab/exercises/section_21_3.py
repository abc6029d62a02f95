"""Section 21.3: who waits, who is admitted, and what must never happen to anybody."""

from kvlab.exercises import runs_21_3 as runs
from kvlab.exercises.errors_21_3 import RULES, goes_on, is_fair
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.explain_21_3 import LATE_OUTPUT
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.kinds import Choice, Function, Numbers
from kvlab.exercises.kinds_21_3 import Played
from kvlab.exercises.predictions_21_3 import PREDICTIONS
from kvlab.exercises.wrong_21_3 import SCHEDULE_WAITING
from kvlab.exercises.wrong_21_3_checks import FAIR, GOES_ON, UNFAIR

CHUNK_SIZES = Exercise(
    id="21.3-1",
    question=(
        "A and B decode, C arrives with 12 tokens, and steps alternate: a chunk of C, a decode "
        "step, and so on. Chunks of 4, of 6 and of 12: how many steps is it to C's first output "
        "(three numbers), and how many positions of C are computed at most between two outputs of "
        "A (three more)?"
    ),
    kind=Numbers(6),
    run=runs.chunk_sizes,
    hints=(
        "Write down the steps from C's arrival on, one after the other. Which of them gives C's "
        "first output?",
        "The last chunk gives the output itself, so a decode step stands between any two chunks "
        "and none after the last. Between two outputs of A stands one chunk.",
        "With n chunks there are n + n - 1 steps: 12 / 4 is three chunks, so P4 D P4 D P4.",
    ),
    mistakes=(
        Mistake(
            "Those are the chunks. The decode steps between them count as well.",
            lambda: [3, 2, 1, 4, 6, 12],
        ),
        Mistake(
            "No decode step comes before the output: the last chunk gives it itself.",
            lambda: [6, 4, 2, 4, 6, 12],
        ),
        Mistake(
            "That is all of C in every case. A decodes between its chunks.",
            lambda: [5, 3, 1, 12, 12, 12],
        ),
        Mistake(
            "The steps are right. The other three count positions of C, not steps.",
            lambda: [5, 3, 1, 1, 1, 1],
        ),
        Mistake("That has the two halves in the other order.", lambda: [4, 6, 12, 5, 3, 1]),
    ),
    why="Small chunks let C wait, large ones A; what a step lasts has to be measured.",
)

LONG_PROMPT = Exercise(
    id="21.3-2",
    question=(
        "Mixed policy, 2,048 positions a step. A prompt of 32,889 tokens runs alone: how many "
        "chunks has it, and how many positions has the last one? And how many chunks has it where "
        "256 requests decode beside it all the while?"
    ),
    kind=Numbers(3),
    run=runs.long_prompt,
    hints=(
        "Each step takes as much of the prompt as its budget allows. Who takes a share of the "
        "budget before it?",
        "Alone: whole chunks of 2,048, and what is left over. Beside others: every request that "
        "decodes takes one position of each step first.",
        "32,889 / 2,048, rounded up; 32,889 % 2,048; 32,889 / (2,048 - 256), rounded up.",
    ),
    mistakes=(
        Mistake("What is left after the full chunks takes a step, too.", lambda: [16, 121, 18]),
        Mistake(
            "That lets the prompt have the whole budget, and the decodes too. They take their "
            "positions of the same budget, before it.",
            lambda: [17, 121, 17],
        ),
        Mistake("The last chunk has what is left over, and is not full.", lambda: [17, 2048, 19]),
        Mistake("A decode takes one position of the budget, not a chunk.", lambda: [17, 121, 256]),
        Mistake(
            "The last chunk of the prompt alone is asked for, not of the one beside 256 others.",
            lambda: [17, 633, 19],
        ),
    ),
    why="Only the last chunk selects an output; decodes take their share of each step first.",
)

LONGEST_GAPS = Exercise(
    id="21.3-3",
    question=(
        "A decodes; 20 prompts of 16 tokens arrive at once, and a step computes at most 16 "
        "positions. What is A's longest gap between two outputs, in steps (1: an output in every "
        "step): under mixed; under continuous with max_decode_gap 8; under continuous with "
        "max_decode_gap 1,000?"
    ),
    kind=Numbers(3, "steps"),
    run=runs.gaps_of_three_settings,
    hints=(
        "For each of the three: who has the first share of a step, and how often in a row may "
        "prompts take it?",
        "Mixed serves decodes first in every step. Continuous serves prompts first, one a step "
        "here, until the guard lets A decode; a guard that is not reached is none.",
        "Mixed: every step. Guard of 8: seven steps for prompts, then A. No guard: all 20 prompts, "
        "then A.",
    ),
    mistakes=(
        Mistake(
            "Those are the steps that lie between. From one output to the next it is one more.",
            lambda: [0, 7, 20],
        ),
        Mistake(
            "The last one counts the prompts. A's own step comes after them.",
            lambda: [1, 8, 20],
        ),
        Mistake(
            "The guard lets at most seven steps of prompts pass, and A has the eighth.",
            lambda: [1, 9, 21],
        ),
        Mistake(
            "A guard is a bound, not a habit: with fewer prompts than that A waits for all of "
            "them, and no longer.",
            lambda: [1, 8, 1000],
        ),
        Mistake(
            "Under mixed A has its position in every step, and the prompts take longer.",
            lambda: [21, 8, 21],
        ),
        Mistake(
            "Under mixed A has its position in every step: a step may hold both.",
            lambda: [2, 8, 21],
        ),
        Mistake("The guard stops this: 8 is the longest that A waits.", lambda: [1, 21, 21]),
    ),
    why="Mixed is bounded by its rule, continuous by its guard, and without one by the load alone.",
)

WHO_IS_ADMITTED = Exercise(
    id="21.3-4",
    question=(
        "Write schedule_waiting, the half of a step that admits. `waiting` holds [num_tokens, "
        "num_cached] of each in the queue, the first to be admitted first; num_cached leading "
        "positions lie in full blocks that a running request holds. The step has `budget` "
        "positions, `seats` and `free` blocks left. Nobody overtakes. With `chunked` a prompt may "
        "begin with a part. Return the positions that each computes now, 0 for those that go on "
        "waiting."
    ),
    kind=Function(
        "schedule_waiting", ("waiting", "budget", "seats", "free", "block_size", "chunked")
    ),
    run=runs.schedule_waiting,
    cases=runs.waiting_cases,
    truth="the real scheduler gives",
    hints=(
        "Go through the queue from its head. What does a request need to begin, and what does the "
        "first that cannot begin mean for those behind it?",
        "It computes what is not cached, at most the budget, and needs a seat and the blocks of "
        "what it computes now. What it takes is gone for the next; the first that does not fit "
        "ends it.",
        "count = min(num_tokens - num_cached, budget); blocks = -(-count // block_size). Stop if "
        "count is 0, no seat is left, blocks > free, or count is a part and not chunked.",
    ),
    mistakes=SCHEDULE_WAITING,
    why="Budget, seats and blocks all have to last, and the head of the queue decides.",
)

BREAK_IT = Exercise(
    id="21.3-5",
    question=(
        "Break fairness. Write unfair: make a Serving with settings under which A, which decodes, "
        "waits for all prompts that arrive at once, however many. Ask for A and step once, ask "
        'for `prompts` prompts of 16 tokens, run it, and return longest_gap of "A". A step has '
        "max_num_batched_tokens=16: one prompt."
    ),
    kind=Played("unfair", ("Serving", "prompts")),
    run=runs.unfair_gap,
    cases=runs.unfair_cases,
    truth="an unfair scheduler reaches",
    hints=(
        "Which policy serves whole prompts before anybody decodes? And what keeps even that one "
        "from letting A wait without end?",
        "Continuous puts prompts first. Its guard, max_decode_gap, lets A decode after some steps; "
        "a guard that is never reached is none.",
        'Serving(policy="continuous", max_num_batched_tokens=16, max_decode_gap=1000), then ask '
        'for "A" with 2 tokens and outputs=4, and go on as the question says.',
    ),
    mistakes=UNFAIR,
    why="The gap grows with the load, and nothing of the scheduler's own ends it.",
)

FAIR_CHECK = Exercise(
    id="21.3-6",
    question=(
        "Write fair, a check of a Serving under its default policy, mixed. True, if each request "
        "that decodes gets an output in every step, whatever prompts arrive, while fewer requests "
        "decode than a step has budget. It is run on two fair schedulers, which need not serve in "
        "the same order, and on unfair ones."
    ),
    kind=Verdict("fair", ("Serving",)),
    run=is_fair,
    cases=runs.fairness,
    truth="many loads at random say",
    hints=(
        "Somebody has to have a reason to wait. How large must the budget be, and how long the "
        "prompts, for that? How many requests should decode?",
        "Give a small budget, let three requests decode, and let a prompt arrive in every step "
        "that takes several steps. Look at the longest gap of each of the three.",
        "Serving(max_num_batched_tokens=8); three requests of 1 token and 40 outputs; a step; ten "
        "times a prompt of 30 tokens and a step; all longest_gap(name) are 1.",
    ),
    mistakes=FAIR,
    why="Fair is what a bound says that holds whatever arrives, and this one is 1.",
)

WHICH_RULE = Exercise(
    id="21.3-7",
    question=(
        "A pool of 2,047 blocks; A needs 1,600 and B 1,200. Both are there from the start, and a "
        "step computes a chunk of 64 positions of each that runs, one block a position. With "
        "which of the four rules of admission does this end with nothing computed any more and "
        "both unfinished?"
    ),
    kind=Choice(tuple((letter, kind.__doc__.partition("\n")[0]) for letter, kind in RULES.items())),
    run=runs.rule_that_dead_ends,
    hints=(
        "For each rule: does B begin before A has ended? If it does, what happens when A needs a "
        "block and none is free?",
        "A prompt takes its blocks chunk by chunk. What does a rule see that looks at the free "
        "blocks of this moment?",
        "After A's first chunk nearly 2,000 blocks are free. Somebody may come in then who does "
        "not fit later, and one of these rules has no way back.",
    ),
    mistakes=(
        Mistake(
            "The engine's own lets both begin, and takes the blocks of the one that came last: "
            "the other one ends, and nothing stands still.",
            lambda: "a",
        ),
        Mistake(
            "That rule counts what A will need until its end. B has to wait for A, and A ends.",
            lambda: "c",
        ),
        Mistake("Nobody is beside A there, and A fits into the pool: it ends.", lambda: "d"),
    ),
    why="It looks at this moment's free blocks, which A needs later, and nobody gives any back.",
)

STANDS_STILL = Exercise(
    id="21.3-8",
    question=(
        "Write never_stands_still, a check of a Serving: True, if there are never two steps in a "
        "row that compute nothing while somebody has not ended. Ask only for what fits into the "
        "pool alone. It is run on three rules of admission that always go on, and on four that do "
        "not; run() ends after two idle steps, waiting and running say who has not ended."
    ),
    kind=Verdict("never_stands_still", ("Serving",)),
    run=goes_on,
    cases=runs.admission,
    truth="many loads at random say",
    hints=(
        "Take a small pool. Which requests can begin together there, and cannot end together?",
        "There are three ways to try: two prompts too large together that begin in chunks, two "
        "small prompts with many outputs, and one prompt that takes nearly the whole pool.",
        "Serving(8, 4, max_num_batched_tokens=8, prefill_chunk=4) with (24, 2) and (20, 2), with "
        "(4, 28) twice, with (31, 1); after run() nobody may be in waiting or running.",
    ),
    mistakes=GOES_ON,
    why="Whoever is admitted on a promise that the pool cannot keep needs a way back.",
)

EXERCISES = (
    CHUNK_SIZES,
    LONG_PROMPT,
    LONGEST_GAPS,
    WHO_IS_ADMITTED,
    BREAK_IT,
    FAIR_CHECK,
    WHICH_RULE,
    STANDS_STILL,
    LATE_OUTPUT,
)

__all__ = ["EXERCISES", "PREDICTIONS"]
