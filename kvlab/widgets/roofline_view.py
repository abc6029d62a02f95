"""The view "prefill against decode": what passes reach, and what the machine allows."""

from typing import TYPE_CHECKING

from kvlab.widgets.growth_words import count
from kvlab.widgets.roofline_story import phases_payload
from kvlab.widgets.roofline_table import phases_html
from kvlab.widgets.view import View

if TYPE_CHECKING:  # a view imports kvlab.core alone; the records are of the standard library
    from kvlab.measure.roofline_records import Ceilings, Phases


class PhasesView(View):
    """A roofline, and curves over prompt length and batch size. Arguments: see `phases_view`."""

    view = "phases"

    def __init__(self, phases: "Phases", ceilings: "Ceilings", *, title: str | None = None) -> None:
        super().__init__(payload=phases_payload(phases, ceilings, title=title))

    def html(self) -> str:
        return phases_html(self.payload)

    def __repr__(self) -> str:
        letters = [point["letter"] for point in self.payload["points"]]
        prefills = count(letters.count("P"), "prefill")
        return f"PhasesView({prefills}, {count(letters.count('D'), 'decode')})"


def phases_view(phases: "Phases", ceilings: "Ceilings", *, title: str | None = None) -> PhasesView:
    """Measured passes below the two ceilings of the machine they ran on; section 21.2.

        phases_view(measure_phases(model), measure_ceilings())

    Left: FLOP/s over FLOPs a byte, both axes logarithmic, so that the roof of the two ceilings is
    two straight lines. Right: the time of a pass and tokens/s over the prompt's length (prefill)
    and over the batch size (decode), beside what bytes / bandwidth allows. Raises ValueError for
    other records, and for ceilings of another device, dtype or number of threads.
    """
    if phases is None or ceilings is None:
        raise ValueError("give what measure_phases and measure_ceilings return")
    return PhasesView(phases, ceilings, title=title)
