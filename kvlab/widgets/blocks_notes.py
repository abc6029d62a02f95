"""What a teller of the view "block table" remembers between two stops."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.trace import Event, State
from kvlab.widgets.blocks_words import refs_of
from kvlab.widgets.byte_tokens import with_named_bytes


@dataclass(frozen=True)
class Told:
    """A stop's sentence, the blocks to ring, and the positions (start, end) it is about."""

    sentence: str
    blocks: tuple[int, ...] = ()
    span: tuple[int, int] | None = None


class Notes:
    """Events that a later stop tells, by request. letters: of all requests; size: slots a block."""

    def __init__(
        self, letters: Mapping[str, str], block_size: int, vocab: Mapping[str, str]
    ) -> None:
        self.letters, self.size, self.vocab = letters, block_size, with_named_bytes(vocab)
        self.taken: dict[str, dict[int, int]] = defaultdict(dict)  # logical -> block, of this step
        self.told: set[tuple[str, int]] = set()  # of these, what a stop has told already
        self.registered: dict[str, list[int]] = defaultdict(list)
        self.shared: dict[str, list[tuple[int, int]]] = {}  # (block, references before)
        self.evicted: list[tuple[int, str]] = []
        self.given: dict[str, list[int]] = {}  # the table that a request has given up
        self.forgotten: set[str] = set()  # requests whose blocks lost their identities as well
        self.admitted: set[str] = set()
        self.reached: dict[str, int] = defaultdict(int)  # positions computed at some time

    def add(self, event: Event, before: State) -> None:
        """Remember an event. before: the state before it."""
        who, data = event.request_id, event.data
        match event.kind:
            case "block_taken":
                self.taken[who][data["logical_block"]] = data["block_id"]
            case "registered":
                self.registered[who] += data["block_ids"]
            case "shared":
                self.shared[who] = [(b, refs_of(b, before)) for b in data["block_ids"]]
            case "evicted":
                self.evicted.append((data.get("block_id"), data.get("identity")))
            case "admitted":
                self.admitted.add(who)
            case "unregistered":
                self.forgotten.add(who)
                self._note_given(who, before)
            case "freed":
                self._note_given(who, before)
                self.end_step(who)

    def _note_given(self, who: str, before: State) -> None:
        """The table as it was before its first blocks went."""
        table = before["requests"].get(who, {}).get("block_table")
        if table:
            self.given[who] = [block for block in table if block is not None]  # out of the window

    def end_step(self, who: str) -> None:
        """The request has written, or given up, what it got in this step."""
        for noted in (self.taken, self.registered, self.shared):
            noted.pop(who, None)
        self.told = {(name, logical) for name, logical in self.told if name != who}
        self.admitted.discard(who)

    def untold(self, who: str) -> dict[int, int]:
        """Blocks that the request has taken in this step, as far as no stop has told of them."""
        taken = self.taken.get(who, {})
        return {logical: b for logical, b in taken.items() if (who, logical) not in self.told}

    def tell_taken(self, who: str) -> dict[int, int]:
        """The same; from now on they count as told."""
        new = self.untold(who)
        self.told |= {(who, logical) for logical in new}
        return new

    def tell_evicted(self) -> list[tuple[int, str]]:
        lost, self.evicted = self.evicted, []
        return lost
