"""One measurement of the timer: first the ceilings of the device, then the passes of the model."""

import threading
from collections.abc import Callable, Mapping

from kvlab.measure import devices
from kvlab.measure.ceilings import measure_ceilings
from kvlab.measure.phases import PhaseRun
from kvlab.measure.roofline import place
from kvlab.measure.roofline_records import Case, Ceilings, Phases
from kvlab.tensors.model import Decoder
from kvlab.widgets.timer_inputs import cases

CEILING_SECONDS = 8.0  # at most, and at most this share of the budget
CEILING_SHARE = 0.3
Tell = Callable[[float, str, "Phases | None", Ceilings | None], None]


class Stopped(Exception):
    """The reader stopped before anything was measured."""


class TimerRun:
    """Measures in whatever thread calls `measure`; `stop` may come from another one.

    tell(part done, what comes now, points so far, ceilings): after each piece of work.
    ceilings: those of the device where they are known, else None.
    """

    def __init__(
        self,
        inputs: Mapping[str, object],
        model: Callable[[str, str], Decoder],
        ceilings: Ceilings | None,
        tell: Tell,
        quick: bool = False,
    ) -> None:
        self.inputs, self.model, self.ceilings, self.tell = inputs, model, ceilings, tell
        self.quick = quick
        self._stop, self._phases = threading.Event(), None
        self._before = 0.0  # part of the bar that the ceilings take

    def stop(self) -> None:
        """No other repetition of a ceiling's size, no other pass begins."""
        self._stop.set()
        if self._phases is not None:
            self._phases.stop()

    @property
    def plausible(self) -> bool:
        """False where memory or arithmetic gave more than a ceiling: that was measured at a
        slower moment, and the next run measures it again.
        """
        if self.ceilings is None or self._phases is None:
            return True
        spots = [place(point, self.ceilings) for point in self._phases.points]
        return all(spot.share <= 1 or spot.fits_cache for spot in spots)

    def measure(self) -> tuple[Phases, Ceilings]:
        """Raises ValueError for what cannot be measured, and Stopped if there is nothing yet."""
        name, device = self.inputs["model"], self.inputs["device"]
        wanted, seconds = cases(self.inputs), float(self.inputs["seconds"])
        self.tell(0.0, "making the model", None, None)
        model = self.model(name, device)
        if not fits(self.ceilings, model):
            self.ceilings, self._before = None, CEILING_SHARE
        first = min(CEILING_SECONDS, self._before * seconds)
        # before the ceilings take their time, so that what cannot be run is refused at once
        run = PhaseRun(model, wanted, seconds=seconds - first, name=name)
        if self.ceilings is None:
            self.ceilings = measure_ceilings(
                device, model.dtype, seconds=first, quick=self.quick, progress=self._ceiling
            )
        return self._passes(run), self.ceilings

    def _passes(self, run: PhaseRun) -> Phases:
        self._phases = run
        run.on_case = lambda done, of, case: self._case(run, done, of, case)
        if self._stop.is_set():
            run.stop()
        try:
            for _ in run:
                pass
        except KeyboardInterrupt:
            run.interrupt()
        found = run.result()
        if not found.points:
            raise Stopped("stopped before a pass was measured; press Run to begin again")
        return found

    def _ceiling(self, done: int, of: int, what: str) -> None:
        if self._stop.is_set():
            raise Stopped("stopped before both ceilings were measured; press Run to begin again")
        now = f"ceiling {min(done + 1, of)} of {of}: {what}" if what else "ceilings are there"
        self._tell(self._before * done / of, now, None)

    def _case(self, run: PhaseRun, done: int, of: int, case: Case | None) -> None:
        now = f"pass {done + 1} of {of}: {case}" if case else f"{done} of {of} passes"
        self._tell(self._before + (1 - self._before) * done / of, now, run.result())

    def _tell(self, part: float, what: str, phases: Phases | None) -> None:
        self.tell(part, what, phases, self.ceilings)


def fits(ceilings: Ceilings | None, model: Decoder) -> bool:
    """Whether they are those of the model's device, as it computes now."""
    device = model.device
    return ceilings is not None and (
        (ceilings.device.split(":")[0], ceilings.name) == (device.type, devices.device_name(device))
        and ceilings.dtype == devices.name_of(model.dtype)
        and ceilings.threads == devices.threads(device)
    )
