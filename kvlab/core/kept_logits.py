"""Where the logits of a block's last position are kept, so that a whole prompt can be a hit.

K/V of a prompt give no logits: without this, the last position of a fully cached prompt is
computed again (section 21.4). The logits themselves lie with the runner, in numbered slots; here
stands whose they are. A block that loses its identity loses its slot (`BlockPool.uncache`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.core.block_pool import KVCacheBlock
from kvlab.core.request import Request


@dataclass(frozen=True)
class LogitsToKeep:
    """Keep the logits of a position that this step computes, in a numbered slot."""

    request_id: str
    position: int
    slot: int


class KeptLogits:
    """A fixed number of slots. The least recently used one is taken when none is empty.

    Invariant: `block.logits_slot` is None, or the slot whose owner is this block.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._owners: OrderedDict[int, KVCacheBlock | None] = OrderedDict.fromkeys(range(capacity))

    def __len__(self) -> int:
        """Slots in use."""
        return sum(self._in_use(slot) for slot in self._owners)

    def _in_use(self, slot: int) -> bool:
        owner = self._owners[slot]
        return owner is not None and owner.logits_slot == slot

    def keep(
        self,
        request: Request,
        table: Sequence[KVCacheBlock],
        filled: Sequence[KVCacheBlock],
        block_size: int,
    ) -> list[LogitsToKeep]:
        """Slots for the last positions of those prompt blocks of a table that are being filled.

        Where slots are fewer than blocks, the deepest ones get them.
        """
        whole = request.num_prompt_tokens // block_size
        new = {block.block_id for block in filled}
        ends = [(i, block) for i, block in enumerate(table[:whole]) if block.block_id in new]
        return [
            LogitsToKeep(request.request_id, (i + 1) * block_size - 1, self._reserve(block))
            for i, block in ends[-self.capacity :]
        ]

    def _reserve(self, block: KVCacheBlock) -> int:
        """An empty slot, or else the one whose logits were not used for longest."""
        empty = (slot for slot in self._owners if not self._in_use(slot))
        slot = next(empty, next(iter(self._owners)))
        if self._in_use(slot):
            self._owners[slot].logits_slot = None
        self._owners[slot] = block
        block.logits_slot = slot
        self._owners.move_to_end(slot)
        return slot

    def use(self, block: KVCacheBlock) -> int:
        """The slot of a block whose logits are kept; it is now the most recently used."""
        assert block.logits_slot is not None and self._owners[block.logits_slot] is block
        self._owners.move_to_end(block.logits_slot)
        return block.logits_slot
