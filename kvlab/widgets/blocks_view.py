"""The view "block table": from requests to logical blocks to physical blocks, step by step."""

from collections.abc import Iterable

from kvlab.core.trace import Trace
from kvlab.widgets.blocks_story import block_table_payload
from kvlab.widgets.blocks_table import block_table_html, fullest
from kvlab.widgets.growth_words import count
from kvlab.widgets.view import View


class BlockTable(View):
    """Requests on the left, physical blocks on the right. Arguments: see `block_table_payload`."""

    view = "block_table"

    def __init__(
        self, trace: Trace, requests: Iterable[str] | None = None, at: int | str | None = None
    ) -> None:
        super().__init__(payload=block_table_payload(trace, requests, at))

    def html(self) -> str:
        return block_table_html(self.payload)

    def __repr__(self) -> str:
        used = fullest(self.payload).used
        stops, requests = len(self.payload["stops"]), len(self.payload["requests"])
        size = f"{count(stops, 'stop')}, {count(requests, 'request')}"
        return f"BlockTable({size}, at most {count(used, 'block')} in use)"


def block_table(
    trace: Trace, requests: Iterable[str] | None = None, at: int | str | None = None
) -> BlockTable:
    """The view of a recorded run; sections 21.4 and 21.5.

    requests: ids to follow; None follows all. at: the stop to open with, its number or words of
    its sentence, such as "C is admitted" (the first stop that has them); None opens with the
    start. Raises ValueError for an id or a stop that is not there.
    """
    return BlockTable(trace, requests, at)
