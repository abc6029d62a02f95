"""Section 21.5, worked. Each function is the answer; a value's function says how it comes about."""


def three_continuations():
    after_the_prompt = 2  # 6 tokens: a full block and a half-filled one, held by three tables
    copied = 2  # the first two that write; the third is alone with the original then
    return [after_the_prompt, after_the_prompt + copied, copied]


def unused_slots():
    def unused(size):
        blocks = -(-33 // size)  # rounded up
        return blocks * size - 33

    return [unused(size) for size in (1, 4, 16, 64)]


def append(table, num_computed, free, block_size):
    logical_block, slot = divmod(num_computed, block_size)
    if logical_block == len(table):  # the table ends before this position
        if not free:
            return None
        table.append(free.pop(0))
    return table[logical_block], slot


def append_shared(table, num_computed, free, ref_cnt, block_size):
    logical_block, slot = divmod(num_computed, block_size)
    is_missing = logical_block == len(table)
    is_shared = not is_missing and ref_cnt[table[logical_block]] > 1
    if not is_missing and not is_shared:
        return table[logical_block], slot, None
    if not free:
        return None
    block = free.pop(0)
    ref_cnt[block] = 1
    if is_missing:
        table.append(block)
        return block, slot, None
    source = table[logical_block]
    ref_cnt[source] -= 1
    table[logical_block] = block
    return block, slot, source


def eviction_is_right(Allocator):
    allocator = Allocator(3)
    prompt = list(range(12))  # three full blocks
    allocator.admit("A", prompt)
    allocator.finish("A")
    for taken in (1, 2):
        allocator.admit(f"other {taken}", [90 + taken])
        if allocator.hits([*prompt, 12]) != 12 - 4 * taken:
            return False
    return True


def fork_is_right(Allocator):
    allocator = Allocator(8)
    prompt = [1, 2, 3, 4, 5, 6]  # the second block is half filled
    allocator.admit("A", prompt)
    allocator.fork("A", "B")
    allocator.fork("A", "C")
    own = {"A": 60, "B": 70, "C": 80}
    for name, token in own.items():
        allocator.append(name, token)
    return all(allocator.read(name) == [*prompt, token] for name, token in own.items())


def seven_of_nine():
    return "b"  # 9 - 7 = 2: one block in three tables, so 4 to 7 tokens in front are the same


SOLUTIONS = {
    "21.5-1": three_continuations,
    "21.5-2": unused_slots,
    "21.5-3": append,
    "21.5-4": append_shared,
    "21.5-5": eviction_is_right,
    "21.5-6": fork_is_right,
    "21.5-7": seven_of_nine,
}
