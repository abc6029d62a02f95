"""Under `pytest --nbval`, each cell of a notebook runs twice in a row and must show the same again.

A reader presses Shift-Enter more than once; a second run of a cell changes nothing. Both runs are
compared with the output that the notebook was committed with.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile


class EachCellTwice(IPyNbFile):
    """A notebook whose items are "Cell 0", "Cell 0 again", "Cell 1" and so on, in one kernel."""

    def collect(self) -> Iterator[IPyNbCell]:
        for cell in super().collect():
            yield cell
            again = {"cell_num": cell.cell_num, "cell": cell.cell, "options": cell.options}
            yield IPyNbCell.from_parent(self, name=f"{cell.name} again", **again)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Iterator[None]:
    found = yield
    return [
        EachCellTwice.from_parent(parent, path=file_path) if isinstance(one, IPyNbFile) else one
        for one in found
    ]
