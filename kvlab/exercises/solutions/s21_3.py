"""Section 21.3, worked. Each function is the answer; a value's function says how it comes about."""


def chunk_sizes():
    steps, between = [], []
    for chunk in (4, 6, 12):
        chunks = 12 // chunk
        steps.append(chunks + chunks - 1)  # a decode step between any two chunks
        between.append(chunk)  # one chunk stands between two outputs of A
    return steps + between


def long_prompt():
    def chunks(beside):
        return -(-32889 // (2048 - beside))  # each decode takes one position of every step first

    return [chunks(0), 32889 - 16 * 2048, chunks(256)]


def longest_gaps():
    mixed = 1  # an output in every step
    guarded = 8  # seven steps for prompts, then A
    unguarded = 20 + 1  # all prompts, one a step, then A
    return [mixed, guarded, unguarded]


def schedule_waiting(waiting, budget, seats, free, block_size, chunked):
    positions = [0] * len(waiting)
    for i, (num_tokens, num_cached) in enumerate(waiting):
        pending = num_tokens - num_cached
        count = min(pending, budget)
        blocks = -(-count // block_size)  # the cached ones are full blocks, and exist
        if count == 0 or seats == 0 or blocks > free:
            break  # whoever is behind waits, too
        if count < pending and not chunked:
            break
        positions[i] = count
        budget, seats, free = budget - count, seats - 1, free - blocks
    return positions


def unfair(Serving, prompts):
    serving = Serving(
        policy="continuous",  # whole prompts first
        max_num_batched_tokens=16,  # one prompt a step
        max_decode_gap=1000,  # the guard that would let A decode in between is out of reach
    )
    serving.ask("A", 2, outputs=4)
    serving.step()  # A decodes from here on
    for i in range(prompts):
        serving.ask(f"P{i}", 16)
    serving.run()
    return serving.longest_gap("A")


def fair(Serving):
    serving = Serving(max_num_batched_tokens=8)
    names = ["A", "B", "C"]
    for name in names:
        serving.ask(name, 1, outputs=40)
    serving.step()
    for i in range(12):
        serving.ask(f"P{i}", 30)  # several steps each
        serving.step()
    return all(serving.longest_gap(name) == 1 for name in names)


def never_stands_still(Serving):
    loads = (
        [(24, 2), (20, 2)],  # two prompts that do not fit together
        [(4, 28), (4, 28)],  # two that fit, and grow
        [(31, 1)],  # one that takes the whole pool
    )
    for load in loads:
        serving = Serving(8, 4, max_num_batched_tokens=8, prefill_chunk=4)
        for i, (prompt, outputs) in enumerate(load):
            serving.ask(f"r{i}", prompt, outputs)
        serving.run()
        if serving.waiting or serving.running:
            return False
    return True


def rule_that_dead_ends():
    # When B comes, most of A's prompt has not been computed: its blocks are still free, and B's
    # whole prompt fits into them. Then both need what the other holds.
    return "b"


def first_output_in_the_fourth_step():
    return "a"  # three steps until A has ended and its seat is free, and one for all 12 tokens


SOLUTIONS = {
    "21.3-1": chunk_sizes,
    "21.3-2": long_prompt,
    "21.3-3": longest_gaps,
    "21.3-4": schedule_waiting,
    "21.3-5": unfair,
    "21.3-6": fair,
    "21.3-7": rule_that_dead_ends,
    "21.3-8": never_stands_still,
    "21.3-9": first_output_in_the_fourth_step,
}
