"""From what a tracer saw of the decode kernel's programs to their turns (core/kernel_log.py).

Slots are worked out from the addresses that were really read, not from a variable's name: an
address less the tensor's own is an element, and an element belongs to one slot and one KV head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kvlab.core.kernel_log import Program, Reduce, Turn
from kvlab.tensors.kernel_tracer import IDS, STATE, KernelTracer, Line, Load, Run, State


@dataclass(frozen=True)
class Memory:
    """The tensors that the kernel reads, of one layer.

    key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim], contiguous.
    table: the block table as rows of ids.
    """

    key_cache: Tensor
    value_cache: Tensor
    table: Sequence[Sequence[int]]

    def of(self, load: Load) -> str | None:
        """ "key" or "value"; None for another tensor, or where every place was masked."""
        read = load.addresses[load.mask]
        for name, cache in (("key", self.key_cache), ("value", self.value_cache)):
            start = cache.data_ptr()
            if read.size and (read >= start).all() and (read < start + cache.nbytes).all():
                return name
        return None

    def slots(self, load: Load, name: str) -> tuple[int | None, ...]:
        """The slot of each place of the tile, None where it was masked. Addresses along a vector
        lie one element apart; the tile is the other axis.
        """
        cache = self.key_cache if name == "key" else self.value_cache
        size = cache.element_size()
        elements = (load.addresses - cache.data_ptr()) // size
        slots = np.where(load.mask, elements // (cache.shape[2] * cache.shape[3]), -1)
        if slots.ndim == 1:
            slots = slots[None]
        else:
            along = (np.diff(load.addresses, axis=axis) == size for axis in range(2))
            vector = [bool(steps.size) and bool(steps.all()) for steps in along].index(True)
            slots = np.moveaxis(slots, vector, 1)
        found = slots.max(axis=1)
        return tuple(None if slot < 0 else int(slot) for slot in found)


def programs(tracer: KernelTracer, kernel: str, memory: Memory, group: int) -> tuple[Program, ...]:
    """The programs of the decode kernel as they ran. group: query heads of a KV head."""
    runs = [run for run in tracer.runs if run.kernel == kernel]
    reads = {
        event.own_line
        for run in runs
        for event in run.events
        if isinstance(event, Load) and memory.of(event) == "key"
    }
    loop = tracer.loop_around(kernel, min(reads)) if reads else None
    return tuple(_program(run, loop, reads, memory, group) for run in runs)


def reduces(
    tracer: KernelTracer, kernels: Sequence[str], heads: int, num_splits: int
) -> tuple[Reduce, ...]:
    """The programs of the reduce kernel. heads: query heads of a request; a program each.

    A split's share is its weight over the sum of all; all are 0 for a request without positions.
    """
    found = []
    for run in (run for run in tracer.runs if run.kernel in kernels):
        if not {"row", "weight"} <= set(run.locals):
            continue  # another way of putting splits together
        request, head = divmod(int(run.locals["row"].reshape(-1)[0]), heads)
        weight = run.locals["weight"].reshape(-1)[:num_splits].astype(float)
        shares = weight / (weight.sum() or 1.0)
        lines = tuple(event.number for event in run.events if isinstance(event, Line))
        at = next((e.line for e in run.events if isinstance(e, State) and e.name == "weight"), None)
        found.append(Reduce(request, head, tuple(shares.tolist()), lines, at))
    return tuple(found)


def _program(run: Run, loop: int | None, reads: set[int], memory: Memory, group: int) -> Program:
    """The events cut where the loop's own line runs; what lies between two cuts is a turn."""
    pieces: list[list] = [[]]
    for event in run.events:
        if isinstance(event, Line) and event.own and event.number == loop:
            pieces.append([])
        pieces[-1].append(event)
    tables = _table_reader(run, memory)
    turns, before, after = [], [], []
    held = _State(group)
    for piece in pieces:
        lines = tuple(event.number for event in piece if isinstance(event, Line))
        own = {event.number for event in piece if isinstance(event, Line) and event.own}
        start = held.now()
        held.take(piece)
        if own & reads:
            turns.append(_turn(piece, lines, start, held, memory, tables))
        elif turns:
            after += lines
        else:
            before += lines
    return Program(*_ids(run), tuple(before), tuple(turns), tuple(after))


def _ids(run: Run) -> list[int]:
    """request, kv_head, split; a kernel that does not split has no variable of that name."""
    found = {"split": 0}
    for name in IDS:
        if name in run.locals:
            found[name] = int(run.locals[name].reshape(-1)[0])
        elif name not in found:
            raise RuntimeError(f"the kernel has no local variable `{name}`; the view needs it")
    return [found[name] for name in IDS]


class _State:
    """The running maximum and sum of each query head of the group, as events change them."""

    def __init__(self, group: int) -> None:
        self.group, self.values = group, {}

    def take(self, events: Sequence) -> None:
        for event in events:
            if isinstance(event, State):
                self.values[event.name] = event.value.reshape(-1)[: self.group].tolist()

    def now(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        empty = {"running_max2": float("-inf"), "running_sum": 0.0}
        return tuple(
            tuple(self.values.get(name, [value] * self.group)) for name, value in empty.items()
        )


def _turn(
    piece: Sequence, lines: tuple[int, ...], start: tuple, held: _State, memory: Memory, tables
) -> Turn:
    loads = [event for event in piece if isinstance(event, Load)]
    keys = next((load for load in loads if memory.of(load) == "key"), None)
    values = next((load for load in loads if memory.of(load) == "value"), None)
    position = next((load.position for load in loads if load.position is not None), None)
    if position is None:
        raise RuntimeError("the kernel has no local variable `position`; the view needs it")
    nothing = (None,) * len(position)
    lookups, at = {}, {}
    for load in loads:
        entries = tables(load)
        if entries is not None:
            at.setdefault("lookup", load.line)
            lookups.update(entries)
    for name, load in (("key", keys), ("value", values)):
        if load is not None:
            at[name] = load.line
    for event in piece:
        if isinstance(event, State):
            at.setdefault(STATE[event.name], event.line)
    max2, sums = held.now()
    return Turn(
        positions=tuple(int(p) for p in position),
        keys=nothing if keys is None else memory.slots(keys, "key"),
        values=nothing if values is None else memory.slots(values, "value"),
        lookups=tuple(lookups.items()),
        max2_before=start[0],
        max2=max2,
        sums_before=start[1],
        sums=sums,
        lines=lines,
        at=at,
    )


def _table_reader(run: Run, memory: Memory):
    """load -> {logical block: block id}, or None for a load from anywhere else."""
    width = len(memory.table[0])
    names = [n for n, value in run.arguments.items() if "table" in n and _is_address(value)]
    starts = [int(run.arguments[name].reshape(-1)[0]) for name in names]
    count = len(memory.table) * width

    def read(load: Load) -> dict[int, int] | None:
        addresses = load.addresses[load.mask]
        size = load.result.itemsize
        for start in starts:
            elements = (addresses - start) // size
            if elements.size and (elements >= 0).all() and (elements < count).all():
                found = zip(elements.tolist(), load.result[load.mask].tolist(), strict=True)
                return {element % width: int(block) for element, block in found}
        return None

    return read


def _is_address(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint64
