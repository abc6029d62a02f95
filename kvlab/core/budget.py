"""What fits: blocks from a budget, tokens, concurrent requests, the longest context, the whole GPU.

A paged engine takes memory in blocks. Where all layers are alike, a block holds block_size
positions of every layer. Where kinds differ, vLLM's way is followed: layers of one kind form
groups of equal size, a block belongs to one group, and every group's blocks are equally large.
Everything here is for one rank, whose budget is one GPU's. Sections 21.1 and 21.5.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from kvlab.core.storage import Storage, check_count
from kvlab.core.windows import SlidingWindow

STEP_TOKENS = 2048  # max_num_batched_tokens where nobody says otherwise, as in SchedulerConfig


@dataclass(frozen=True)
class Group:
    """Layers that share a block table.

    reach: "full", "window", "chunk" or "state"; "freed": a window, as kvlab's own engine has it.
    """

    reach: str
    layers: int
    block_size: int  # positions a block; 0 for a state, which takes one block a request
    window: int | None = None

    def blocks(self, seq_len: int, step_tokens: int) -> int:
        """Blocks that a request of up to seq_len positions may need at once.

        A window also holds the step's new tokens, and may begin inside a block (hence one more).
        """
        if self.reach == "state":
            return 1
        if self.window is None:
            return cdiv(seq_len, self.block_size)
        if self.reach == "freed":
            return SlidingWindow(self.window, self.block_size).most_blocks(seq_len, step_tokens)
        past = self.window - 1 if self.reach == "window" else self.window
        held = min(past + step_tokens, seq_len)
        return cdiv(held, self.block_size) + (self.reach == "window")

    def blocks_at(self, seq_len: int) -> int:
        """Blocks that hold what is kept of exactly seq_len positions, between steps."""
        if self.reach == "state":
            return 1
        if self.reach == "freed":
            out = SlidingWindow(self.window, self.block_size).first_held(seq_len)
            return cdiv(seq_len, self.block_size) - out
        gone = max(seq_len - self.window, 0) if self.window else 0
        return cdiv(seq_len, self.block_size) - gone // self.block_size


@dataclass(frozen=True)
class BlockLayout:
    """How a pool is cut: equal blocks of block_bytes, each of which belongs to one group."""

    block_size: int
    block_bytes: int
    groups: tuple[Group, ...]
    notices: tuple[str, ...] = ()

    def blocks(self, seq_len: int, step_tokens: int = STEP_TOKENS) -> int:
        return sum(group.blocks(seq_len, step_tokens) for group in self.groups)

    def blocks_at(self, seq_len: int) -> int:
        return sum(group.blocks_at(seq_len) for group in self.groups) if seq_len else 0

    def tokens(self, num_blocks: int) -> int | None:
        """Positions that fit while no window is full. None where positions take no memory."""
        if all(group.reach == "state" for group in self.groups):
            return None
        return num_blocks // len(self.groups) * self.block_size


def block_layout(storage: Storage, block_size: int = 16) -> BlockLayout:
    """Cut one rank's memory into blocks. Raises ValueError for a block_size below 1."""
    check_count("block_size", block_size)
    kinds, state = _kinds(storage)
    if len(kinds) == 1 and not state:
        ((reach, window, _), layers) = next(iter(kinds.items()))
        block_bytes = block_size * storage.bytes_per_token_per_rank
        return BlockLayout(block_size, block_bytes, (Group(reach, layers, block_size, window),))
    if not kinds:
        group = Group("state", sum(state.values()), 0)
        return BlockLayout(block_size, storage.state_bytes_per_rank, (group,))
    if not state and len({(reach, window) for reach, window, _ in kinds}) == 1:
        reach, window, _ = next(iter(kinds))  # alike but for their heads: one block table for all
        group = Group(reach, sum(kinds.values()), block_size, window)
        return BlockLayout(block_size, block_size * storage.bytes_per_token_per_rank, (group,))
    return _mixed_layout(kinds, state, block_size)


def _kinds(storage: Storage) -> tuple[Counter, Counter]:
    """Layers of each kind, by (reach, window, bytes a position), and by the bytes of a state."""
    kinds: Counter = Counter()
    state: Counter = Counter()
    for layer, count in storage.spec.groups:
        if layer.vectors:
            reach = layer.reach, layer.window
            if storage.policy == "freed" and storage.freeing_window is not None:
                reach = "freed", storage.freeing_window
            elif storage.policy in ("freed", "reserve_full"):
                reach = "full", None
            kinds[(*reach, storage.position_bytes(layer, storage.ranks))] += count
        if layer.state:
            state[storage.layer_state_bytes(layer, storage.ranks)] += count
    return kinds, state


def _mixed_layout(kinds: Counter, state: Counter, block_size: int) -> BlockLayout:
    """vLLM's hybrid groups: pages of one size, and as many layers a group as the rarest kind."""
    notices = []
    widest = max(position for _, _, position in kinds)
    largest_state = max(state, default=0)
    if largest_state > block_size * widest:
        asked, block_size = block_size, block_size * cdiv(largest_state, block_size * widest)
        notices.append(
            f"block_size is raised from {asked} to {block_size}, so that a block can hold a "
            f"layer's state of {largest_state:,} bytes"
        )
    page = block_size * widest
    counts = [*kinds.values(), *state.values()]
    rarest, commonest = min(counts), max(counts)
    size = commonest if 4 * commonest < 5 * rarest else rarest
    groups = []
    for (reach, window, position), count in kinds.items():
        groups += [Group(reach, layers, page // position, window) for layers in _split(count, size)]
    for count in state.values():
        groups += [Group("state", layers, 0) for layers in _split(count, size)]
    padding = len(groups) * size - sum(counts)
    if padding:
        notices.append(f"{padding} places for layers stay empty, so that groups are equally large")
    return BlockLayout(block_size, page * size, tuple(groups), tuple(notices))


def _split(count: int, size: int) -> list[int]:
    """`count` layers in groups of at most `size`, as even as can be."""
    groups = cdiv(count, size)
    return [count // groups + (i < count % groups) for i in range(groups)]


@dataclass(frozen=True)
class Capacity:
    """What a pool of num_blocks blocks holds.

    tokens: while no window is full; None where positions take no memory. concurrency: requests of
    seq_len at once, as vLLM reports it; requests: the whole ones. Both None without a seq_len.
    """

    num_blocks: int
    pool_bytes: int
    tokens: int | None
    blocks_per_request: int | None = None

    @property
    def concurrency(self) -> Fraction | None:
        each = self.blocks_per_request
        return None if each is None else Fraction(self.num_blocks, each)

    @property
    def requests(self) -> int | None:
        each = self.blocks_per_request
        return None if each is None else self.num_blocks // each


def blocks_from_budget(layout: BlockLayout, budget: int) -> int:
    """Whole blocks that fit into a rank's bytes for the cache."""
    check_count("budget", budget, at_least=0)
    return budget // layout.block_bytes


def capacity(
    layout: BlockLayout, num_blocks: int, seq_len: int | None = None, step_tokens: int = STEP_TOKENS
) -> Capacity:
    """What num_blocks blocks hold; seq_len is the length of the requests to count."""
    check_count("blocks", num_blocks, at_least=0)
    check_count("max_num_batched_tokens", step_tokens)
    each = None
    if seq_len is not None:
        check_count("context", seq_len)
        each = layout.blocks(seq_len, step_tokens)
    tokens = layout.tokens(num_blocks)
    return Capacity(num_blocks, num_blocks * layout.block_bytes, tokens, each)


def context_that_fits(storage: Storage, budget: int, requests: int = 1) -> int | None:
    """The longest context that `requests` requests can all reach within a rank's bytes.

    The inverse of nbytes_per_rank, windows included: dividing by the bytes of one position would
    be wrong once a window is full. None: every length fits. 0: not even one position.
    """
    check_count("budget", budget, at_least=0)
    check_count("requests", requests)
    bend = max(storage.spec.windows, default=0)
    slope = storage.nbytes_per_rank(bend + 1, requests) - storage.nbytes_per_rank(bend, requests)
    if slope == 0 and storage.nbytes_per_rank(bend, requests) <= budget:
        return None
    low, high = 0, budget // slope + 1 if slope else bend
    while low < high:
        middle = (low + high + 1) // 2
        if storage.nbytes_per_rank(middle, requests) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True)
class Budget:
    """One GPU's bytes, shared out. The parts and `free` add up to `total` where all of it fits.

    payload: keys and values; state: fixed states; tails: slots of blocks that hold nothing; other:
    what else is in use at the peak. missing: what is lacking, or 0.
    """

    total: int
    weights: int
    other: int
    payload: int
    state: int
    tails: int

    @property
    def used(self) -> int:
        return self.weights + self.other + self.payload + self.state + self.tails

    @property
    def free(self) -> int:
        return max(self.total - self.used, 0)

    @property
    def missing(self) -> int:
        return max(self.used - self.total, 0)

    @property
    def fits(self) -> bool:
        return self.used <= self.total


def whole_budget(
    storage: Storage,
    total: int,
    *,
    weights: int = 0,
    other: int = 0,
    seq_len: int,
    requests: int = 1,
    block_size: int = 16,
) -> Budget:
    """Share out one GPU's `total` bytes: its part of the weights, other peak, and the cache."""
    for name, value in (("total", total), ("weights", weights), ("other", other)):
        check_count(name, value, at_least=0)
    state = requests * storage.state_bytes_per_rank
    payload = storage.nbytes_per_rank(seq_len, requests) - state
    layout = block_layout(storage, block_size)
    taken = requests * layout.blocks_at(seq_len) * layout.block_bytes
    return Budget(total, weights, other, payload, state, max(taken - payload - state, 0))


def curve(
    storage: Storage, longest: int, requests: int = 1, points: int = 64
) -> tuple[tuple[int, int], ...]:
    """(length, one rank's bytes) from 0 to `longest`; each bend of a window is a point of its own.

    Between two points the bytes are a straight line.
    """
    check_count("longest", longest)
    check_count("points", points)
    lengths = {longest * i // points for i in range(points + 1)}
    lengths |= {bend for bend in storage.bends if bend <= longest}
    return tuple((t, storage.nbytes_per_rank(t, requests)) for t in sorted(lengths))


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
