"""As exercise_cases.py, for section 21.3: answers written apart from the package's."""

from math import ceil

import numpy as np
import torch

from kvlab.core.policies import Plan, Turns, Work

# ---- functions that are right


def waiting_by_queue(waiting, budget, seats, free, block_size, chunked):
    """As an engine would: take from the head while it fits."""
    queue, found = list(waiting), []
    while queue and budget and seats:
        num_tokens, cached = queue[0]
        count = num_tokens - cached
        if count > budget:
            if not chunked:
                break
            count = budget
        if ceil(count / block_size) > free:
            break
        queue.pop(0)
        free -= ceil(count / block_size)
        budget -= count
        seats -= 1
        found.append(count)
    return tuple(found) + (0,) * len(queue)


def waiting_by_recursion(waiting, budget, seats, free, block_size, chunked):
    if not waiting:
        return []
    (n, cached), *rest = waiting
    count = min(n - cached, budget)
    blocks = (cached + count + block_size - 1) // block_size - cached // block_size
    if not count or not seats or blocks > free or (count < n - cached and not chunked):
        return [0] * len(waiting)
    left = (budget - count, seats - 1, free - blocks, block_size, chunked)
    return [count, *waiting_by_recursion(rest, *left)]


def waiting_as_array(waiting, *a):
    found = np.array(waiting_by_queue(waiting, *a))
    waiting.clear()
    return found


def unfair_by_other_turns(Serving, prompts):
    """A scheduler of one's own: prompts first, in every step."""

    class PromptsFirst(Serving):
        class Turns(Turns):
            def plan(self, config, running):
                return Plan((Work.PREFILL, Work.DECODE), shared=True)

    serving = PromptsFirst(max_num_batched_tokens=16)
    serving.ask("A", [5, 6], outputs=2)
    serving.step()
    for i in range(prompts):
        serving.ask(str(i), 16)
    while serving.outputs("A") < 2:
        serving.step()
    return torch.tensor(serving.longest_gap("A"))


def unfair_all_at_once(Serving, prompts):
    """A's prompt is the first to go, and its first output is there before the others begin."""
    serving = Serving(policy="continuous", max_num_batched_tokens=16, max_decode_gap=10**9)
    serving.ask("A", 3, 9)
    for i in range(prompts):
        serving.ask(f"p{i}", range(16))
    serving.run()
    return serving.longest_gap("A")


def fair_by_counting(Serving):
    serving = Serving(64, 16, max_num_batched_tokens=5)
    for name in "ABCD":
        serving.ask(name, 2, 100)
    while not all(serving.outputs(name) for name in "ABCD"):
        serving.step()
    serving.ask("long", 60)
    before = [serving.outputs(name) for name in "ABCD"]
    for _ in range(20):
        serving.step()
    return [serving.outputs(name) - n for name, n in zip("ABCD", before, strict=True)] == [20] * 4


def fair_by_assertions(Serving):
    serving = Serving(max_num_batched_tokens=10)
    for i in range(5):
        serving.ask(f"D{i}", 1, outputs=25)
    serving.step()
    for i in range(15):
        serving.ask(f"P{i}", 100)
        step = serving.step()
        assert {f"D{j}" for j in range(5)} <= step.keys(), "somebody waits"


def still_by_steps(Serving):
    """Looks at the steps, and goes through many pairs of requests."""
    for prompts in ((1, 1), (11, 1), (11, 11), (15, 1)):
        for outputs in (1, 16 - max(prompts)):
            serving = Serving(num_blocks=16, block_size=1, max_num_batched_tokens=4)
            for name, prompt in zip("AB", prompts, strict=True):
                serving.ask(name, prompt, outputs)
            while serving.running or serving.waiting:
                serving.step()
                if serving.steps[-2:] == [{}, {}]:
                    return False
    return True


def still_in_the_chapter_s_sizes(Serving):
    """S02 itself, and two more loads of its size."""
    for group in (((1598, 3), (1198, 3)), ((1000, 900), (1000, 900)), ((1900, 2),)):
        serving = Serving(2047, 1, max_num_batched_tokens=2000, prefill_chunk=500)
        for i, (prompt, outputs) in enumerate(group):
            serving.ask(str(i), prompt, outputs)
        serving.run()
        assert len(serving.ended) == len(group)


RIGHT = {
    "21.3-1": [[5, 3, 1, 4, 6, 12], np.array([5, 3, 1, 4, 6, 12])],
    "21.3-2": [[17, 121, 19], (ceil(32889 / 2048), 32889 % 2048, ceil(32889 / 1792))],
    "21.3-3": [[1, 8, 21], torch.tensor([1, 8, 21])],
    "21.3-4": [waiting_by_queue, waiting_by_recursion, waiting_as_array],
    "21.3-5": [unfair_by_other_turns, unfair_all_at_once],
    "21.3-6": [fair_by_counting, fair_by_assertions],
    "21.3-7": [
        "b",
        " B ",
        "admits whose whole prompt fits now; who runs short keeps its blocks and waits",
    ],
    "21.3-8": [still_by_steps, still_in_the_chapter_s_sizes],
    "21.3-9": ["a", "A", "max_num_seqs=2"],
}


# ---- answers that are wrong


def overtakes(waiting, budget, seats, free, block_size, chunked):
    found = []
    for n, cached in waiting:
        count = min(n - cached, budget)
        blocks = ceil(count / block_size)
        if not seats or blocks > free or (count < n - cached and not chunked):
            count = blocks = 0
        found.append(count)
        budget, free, seats = budget - count, free - blocks, seats - (count > 0)
    return found


def recomputes(waiting, *a):
    return waiting_by_queue([(n, 0) for n, _ in waiting], *a)


def cuts_at_blocks(waiting, budget, seats, free, size, chunked):
    found = []
    for n, cached in waiting:
        count = min(n - cached, budget, free * size)
        if not seats or (count < n - cached and not chunked):
            count = 0
        if not count:
            break
        found.append(count)
        budget, seats, free = budget - count, seats - 1, free - ceil(count / size)
    return found + [0] * (len(waiting) - len(found))


def never_admits(waiting, budget, *a):
    while budget >= 0:
        budget += len(waiting) - len(waiting)
    return budget


def play(Serving, prompts, size=16, **settings):
    serving = Serving(**{"max_num_batched_tokens": 16, **settings})
    serving.ask("A", 2, outputs=5)
    serving.step()
    for i in range(prompts):
        serving.ask(str(i), size)
    serving.run()
    return serving.longest_gap("A")


def fair_to_one(Serving):
    serving = Serving(max_num_batched_tokens=4)
    serving.ask("A", 1, outputs=20)
    for i in range(8):
        serving.step()
        serving.ask(str(i), 50)
    return serving.longest_gap("A") == 1


def fair_in_a_wide_budget(Serving):
    serving = Serving()
    for name in "AB":
        serving.ask(name, 1, outputs=20)
    for i in range(8):
        serving.step()
        serving.ask(str(i), 50)
    return serving.longest_gap("A") == serving.longest_gap("B") == 1


def waits_for_ever(Serving):
    serving = Serving(2047, 1, max_num_batched_tokens=128, prefill_chunk=64)
    serving.ask("A", 1598, 3)
    serving.ask("B", 1198, 3)
    while serving.waiting or serving.running:
        serving.step()
    return True


def two_prompts_alone(Serving):
    serving = Serving(20, 1, max_num_batched_tokens=4, prefill_chunk=2)
    serving.ask("A", 15)
    serving.ask("B", 12)
    serving.run()
    return not serving.running and not serving.waiting


WRONG = {
    "21.3-1": [
        ([3, 2, 1, 4, 6, 12], "decode steps between them"),
        ([6, 4, 2, 4, 6, 12], "last chunk gives it itself"),
        ([5, 3, 1, 12, 12, 12], "all of C"),
        ([5, 3, 1, 2, 2, 2], "entry 1 and entry 2 and entry 3"),
    ],
    "21.3-2": [
        ([16, 121, 18], "left after the full chunks"),
        ([17, 121, 17], "the whole budget"),
        ([17, 2048, 19], "is not full"),
        ([17, 120, 18], "Right so far: entry 1"),
    ],
    "21.3-3": [
        ([0, 7, 20], "steps that lie between"),
        ([1, 8, 20], "A's own step"),
        ([1, 9, 21], "at most seven"),
        ([1, 8, 1000], "a bound, not a habit"),
        ([1, 7, 21], "entry 1 and entry 3"),
    ],
    "21.3-4": [
        (overtakes, "Nobody may overtake"),
        (lambda w, b, s, *a: waiting_by_queue(w, b, 99, *a), "forgets the seats"),
        (lambda w, b, s, f, *a: waiting_by_queue(w, b, s, 99, *a), "without looking at the free"),
        (recomputes, "forgets the cached prefix"),
        (lambda w, b, s, f, n, c: waiting_by_queue(w, b, s, f, n, True), "is not split"),
        (lambda w, b, s, f, n, c: waiting_by_queue(w, b, s, f, n, False), "what is left of the"),
        (cuts_at_blocks, "shrinks a chunk"),
        (lambda *a: [n for n in waiting_by_queue(*a) if n], "one number for each"),
        (lambda *a: sum(waiting_by_queue(*a)), "gives 3; the real scheduler gives [3]"),
        (lambda *a: [bool(n) for n in waiting_by_queue(*a)], "gives [True]; the real"),
        (lambda *a: list(enumerate(waiting_by_queue(*a))), "gives [[0, 3]]"),
        (lambda w, *a: w[0][2], "raised IndexError"),
        (lambda w, *a: w, "gives [[3, 0]]"),
        (never_admits, "was still running after"),
    ],
    "21.3-5": [
        (play, "lets nobody join a group that decodes"),
        (lambda S, n: play(S, n, policy="static"), "A gets an output in every step there"),
        (lambda S, n: play(S, n, policy="continuous"), "Put the guard out of reach"),
        (lambda S, n: play(S, n, policy="alternating", prefill_chunk=4), "waits for one step"),
        (lambda S, n: play(S, n, policy="continuous", max_decode_gap=99,
                           max_num_batched_tokens=2048), "large budget computes all of them"),
        (lambda S, n: play(S, n, policy="continuous", max_decode_gap=99, size=8), "takes two of"),
        (lambda S, n: n + 1, "gives 2, and no Serving was played with an A"),
        (lambda S, n: play(S, n) + n, "gives 2, and A waited 1 at most"),
        (lambda S, n: play(S, n, policy="newest first"), "policy is 'newest first'; give 'mixed'"),
        (lambda S, n: S(), "returned an object of type Serving"),
    ],
    "21.3-6": [
        (lambda S: True, "says True to all of them"),
        (lambda S: S().longest_gap("A") == 1, "there is no request 'A'; there are []"),
        (lambda S: not fair_by_counting(S), "other way round"),
        (fair_to_one, "Let two or more decode"),
        (fair_in_a_wide_budget, "small value"),
        (lambda S: fair_by_counting(S) and S.__name__ == "Serving",
         "LeavesRoom (serves prompts first, and leaves one position for each request that "
         "decodes)) gives False"),
    ],
    "21.3-7": [
        ("a", "takes the blocks of the one that came last"),
        ("c", "until its end"),
        ("d", "Nobody is beside A"),
    ],
    "21.3-8": [
        (lambda S: True, "says True to all of them"),
        (lambda S: S(4).free == 5, "says False to all of them"),
        (lambda S: not still_by_steps(S), "other way round"),
        (two_prompts_alone, "Two prompts that do not fit together are one way"),
        (waits_for_ever, "was still running after"),
        (lambda S: S(4, 4).ask("A", 17), "needs 5 blocks of 4 tokens and the whole pool has 4"),
    ],
    "21.3-9": [
        ("b", "done after two steps"),
        ("c", "with the fifth"),
        ("d", "C would wait for B"),
    ],
}  # fmt: skip
