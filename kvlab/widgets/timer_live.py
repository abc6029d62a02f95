"""The timer "prefill against decode": press Run, and passes of a real model are timed here.

    browser                              kernel                       a thread of the kernel
    Run: inputs                    ->    starts the thread      ->    measures the ceilings, passes
    bar, new points                <-    . . . . . . . . . .    <-    state after each of them
    Stop                           ->    sets a flag            ->    ends before the next pass

The kernel's loop stays free while the thread measures, so Stop comes through. What else runs
meanwhile makes the passes slower: leave the machine alone for these seconds. Section 21.2.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

import traitlets

from kvlab.llm import LLM
from kvlab.measure.roofline_records import Ceilings, Phases
from kvlab.tensors.model import Decoder
from kvlab.widgets.controls import Choice, spec
from kvlab.widgets.growth_words import count
from kvlab.widgets.html import html_form, table
from kvlab.widgets.roofline_story import phases_payload
from kvlab.widgets.roofline_table import phases_content
from kvlab.widgets.roofline_words import WHY
from kvlab.widgets.timer_inputs import BATCHES, CONTEXT, HERE, LENGTHS, controls, sizes_text
from kvlab.widgets.timer_models import TimerModels
from kvlab.widgets.timer_run import Stopped, TimerRun
from kvlab.widgets.view import View

LOG = logging.getLogger("kvlab.widgets")
TITLE = "Prefill against decode, timed here"
Result = tuple[Phases, Ceilings]


class PhaseTimer(View):
    """Arguments: see `phase_timer`."""

    view = "phase_timer"
    state = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        models: TimerModels,
        fields: Sequence,
        *,
        result: Result | None = None,
        ceilings: Ceilings | None = None,
        quick: bool = False,
    ) -> None:
        self.models, self.quick = models, quick
        self.controls = {control.name: control for control in fields}
        self.result = result
        self.ceilings = result[1] if result else ceilings
        self.error: Exception | None = None
        self._run: TimerRun | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        state = {
            "inputs": {control.name: control.check(control.value) for control in fields},
            "running": False,
            "part": 0.0,
            "now": "",
            "error": None,
            "runs": 0,
            "view": self._last_good(),
        }
        payload = {"view": self.view, "title": TITLE, "controls": [spec(c) for c in fields]}
        super().__init__(payload=payload, state=state)
        self.on_msg(self._received)

    # ---- from a cell

    @property
    def inputs(self) -> dict:
        """What the fields show."""
        return dict(self.state["inputs"])

    @property
    def running(self) -> bool:
        return self._run is not None

    def run(self, **inputs: object) -> Result | None:
        """Measure now, as the button does, and wait for it. inputs: see `phase_timer`.

        Interrupting the kernel keeps what was measured. An error stands in the widget as well;
        the last good result is kept. None: it was stopped before anything was measured.
        """
        self._measure(self._begin(inputs))
        self.check()
        return self.result

    def start(self, **inputs: object) -> None:
        """Measure in a thread, as the button does; `wait` for it, or `stop` it."""
        run = self._begin(inputs)
        self._thread = threading.Thread(target=self._measure, args=(run, True), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the run before its next pass; what was measured stays."""
        run = self._run
        if run is not None:
            run.stop()
            self._tell(now="stopping after this pass")

    def wait(self, timeout: float | None = None) -> bool:
        """Until the thread is done, at most timeout seconds. Returns whether it is."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.running

    def check(self) -> None:
        """Raise the error of the last run, if it had one."""
        if self.error is not None:
            raise self.error

    # ---- a run

    def _received(self, _: object, content: object, buffers: object) -> None:
        """{"kind": "run", "inputs": {...}} or {"kind": "stop"} of a browser."""
        kind = content.get("kind") if isinstance(content, Mapping) else None
        if kind == "stop":
            self.stop()
        elif kind == "run" and not self.running:
            given = content.get("inputs")
            try:
                self.start(**(given if isinstance(given, Mapping) else {"inputs": given}))
            except Exception:  # it stands in the widget
                LOG.exception("the timer could not start")

    def _begin(self, inputs: Mapping[str, object]) -> TimerRun:
        """Raises ValueError for inputs that no field takes, and during a run."""
        with self._lock:
            if self.running:
                raise ValueError("a run is under way; stop() it, or wait() for it")
            try:
                checked = self._checked(inputs)
            except Exception as error:
                self._ended(error)
                raise
            self.error = None
            run = TimerRun(checked, self.models.get, self.ceilings, self._progress, self.quick)
            self._run = run
            self._tell(inputs=checked, running=True, part=0.0, now="starting", error=None)
            return run

    def _measure(self, run: TimerRun, aside: bool = False) -> None:
        """aside: in a thread, where nobody else sees an exception."""
        error, now, part = None, "interrupted before a pass was measured", 0.0
        try:
            self.result = run.measure()
            now, part = _done(self.result[0])
        except Stopped as stopped:
            now = str(stopped)
        except Exception as found:  # whatever it is, the reader has to see it
            error, now = found, ""
            if aside:
                LOG.exception("the timer failed")
        finally:
            with self._lock:
                self.ceilings = run.ceilings if run.plausible else None
                self._run = None
                self._ended(error, now, part)

    def _progress(
        self, part: float, now: str, phases: Phases | None, ceilings: Ceilings | None
    ) -> None:
        news = {"part": round(part, 4), "now": now}
        if ceilings is not None:
            news["view"] = phases_payload(phases, ceilings)
        self._tell(**news)

    def _ended(self, error: Exception | None, now: str = "", part: float = 0.0) -> None:
        self.error = error
        text = None if error is None else f"{type(error).__name__}: {error}"
        runs = self.state["runs"] + 1
        view = self._last_good()
        self._tell(running=False, part=part, now=now, error=text, runs=runs, view=view)

    def _tell(self, **news: object) -> None:
        """The thread and the kernel's loop both change the state."""
        with self._lock:
            self.state = {**self.state, **news}

    def _last_good(self) -> dict:
        return phases_payload(*(self.result or (None, self.ceilings)))

    def _checked(self, inputs: Mapping[str, object]) -> dict:
        if unknown := inputs.keys() - self.controls.keys():
            raise ValueError(
                f"the timer has no {min(map(str, unknown))!r}; it has {', '.join(self.controls)}"
            )
        checked = self.inputs
        for name, value in inputs.items():
            if name in ("lengths", "batches", "context"):
                value = sizes_text(name, value)
            checked[name] = self.controls[name].check(value)
        return checked

    # ---- the forms without a kernel

    def html(self) -> str:
        """Before the first run the same on every machine: devices are not named."""
        fields = list(self.controls.values())
        state = {**self.state, "runs": 0}
        if self.result is None:
            state["inputs"] = {**state["inputs"], "device": HERE}
            fields = [
                replace(c, value=HERE, options=(HERE,)) if _is_device(c) else c for c in fields
            ]
        rows = [(c.label, state["inputs"][c.name]) for c in fields]
        rows += [("error", state["error"])] if state["error"] else []
        parts = [f"<p><strong>{escape(TITLE)}</strong></p>", table(TITLE, ("", "value"), rows)]
        payload = {**self.payload, "controls": [spec(c) for c in fields], "state": state}
        return html_form(payload, "\n".join([*parts, phases_content(state["view"])]))

    def __repr__(self) -> str:
        if self.error is not None:
            return "PhaseTimer(error)"
        if self.result is None:
            return "PhaseTimer(nothing measured)"
        phases = [point.phase for point in self.result[0].points]
        prefills = count(phases.count("prefill"), "prefill")
        return f"PhaseTimer({prefills}, {count(phases.count('decode'), 'decode')})"


def phase_timer(
    model: Decoder | LLM | None = None,
    *,
    device: str | None = None,
    lengths: Sequence[int] | str = LENGTHS,
    batches: Sequence[int] | str = BATCHES,
    context: int = CONTEXT,
    seconds: int = 20,
    result: Result | None = None,
    ceilings: Ceilings | None = None,
    quick: bool = False,
) -> PhaseTimer:
    """Time prefill and decode on this machine: fields, Run, Stop, and the view of `phases_view`.

    model: offered beside 50 million random weights and the embedded model, and chosen first;
    None: the random ones. device: None takes the fastest one here. lengths: of the prompts, for
    one request; batches: numbers of requests that decode one token each, after `context`
    positions. seconds: about so many for everything, the ceilings included; what does not fit is
    left out and named. result: what to show before the first run. ceilings: measured before, so
    that a run need not do it. quick: small buffers for the ceilings, to see that all of it runs.
    Nothing is measured before Run or `run()`. Raises ValueError for what no field takes.
    """
    models = TimerModels(model)
    whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not whole or not 1 <= seconds <= 3600:
        raise ValueError(f"seconds is {seconds!r}; give a whole number from 1 to 3600")
    if result is not None and (not isinstance(result, tuple | list) or len(result) != 2):
        raise ValueError(f"result has type {type(result).__name__}; give (phases, ceilings)")
    fields = controls(models.names, device, lengths, batches, context, seconds)
    return PhaseTimer(models, fields, result=result, ceilings=ceilings, quick=quick)


def _is_device(control: object) -> bool:
    return isinstance(control, Choice) and control.name == "device"


def _done(phases: Phases) -> tuple[str, float]:
    """What is said at the end, and which part of the passes was measured."""
    passes, why = len(phases.points), phases.why_left_out
    total = passes + len(phases.left_out)
    said = f"{passes} of {total} passes measured in {phases.elapsed:.0f} s"
    return (f"{said}; then {WHY[why]}" if why else said), passes / total
