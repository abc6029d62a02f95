"""Which outputs of a page answer a prediction: the book folds them, for the reader to guess.

A prediction is asked in one cell, `predict("21.7-p1", None)`, and answered in a later one, whose
`reveal("21.7-p1", ...)` shows the run beside it. What runs between the two tells the answer, too.
"""

import re
from typing import Any

CALL = re.compile(r"^[ \t]*(?:\w+ = )?(?P<name>predict|reveal)\(", re.MULTILINE)


def folded(cells: list[dict[str, Any]]) -> set[int]:
    """The places of the code cells whose outputs are folded.

    These are the cells that call `reveal`, and those between a `predict` and the first `reveal`
    after it. A prediction that no later cell reveals folds nothing.
    """
    found: set[int] = set()
    between: set[int] | None = None  # the cells since the last question; None: nothing was asked
    for place, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        calls = {match["name"] for match in CALL.finditer("".join(cell["source"]))}
        if "reveal" in calls:
            found |= {place, *(between or ())}
            between = None
        elif "predict" in calls:
            between = set()
        elif between is not None:
            between.add(place)
    return found
