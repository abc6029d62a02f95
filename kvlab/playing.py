"""Plays a workload against an engine: every request comes at its time, every delay is noted.

    real     arrivals in seconds, idle time is waited for
    virtual  arrivals in seconds of a `VirtualClock`, idle time is skipped
    step     arrivals in steps: one at time k comes before step k, the first step being 0

The requests' order and the engine's decisions are the engine's own. On a step clock they are the
same on every machine. Section 21.3.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvlab.core.checked import number, shown
from kvlab.core.metrics import RequestTimes
from kvlab.core.played import Played, PlayedRequest, PlayedStep
from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.core.simulator import VirtualClock
from kvlab.core.step_cost import StepWork, layer_windows
from kvlab.core.workload import Arrival, Workload
from kvlab.engine import LLMEngine, Runner

MODES = ("real", "virtual", "step")
IDLE_STEPS = 10_000  # in a row, with requests waiting and nothing computed: the engine is stuck,
IDLE_SECONDS = 60.0  # but on the real clock a copy may be under way for so long
LONGEST_SLEEP = 0.05  # seconds; so that an interrupt is heard
MOST_STEPS = 1_000_000  # that a workload may last on a step clock


def length_only(arrival: Arrival) -> SamplingParams:
    """Greedy, `max_tokens` outputs whatever they are: a simulated run then has equal lengths."""
    return SamplingParams(max_tokens=arrival.max_tokens, ignore_eos=True)


def play(
    engine: LLMEngine,
    workload: Workload,
    *,
    mode: str | None = None,
    stretch: float = 1.0,
    sampling_params: Callable[[Arrival], SamplingParams] = length_only,
    on_step: Callable[[int], None] | None = None,
) -> Played:
    """Submit each arrival at its time and step the engine until all requests have ended.

    mode: see above; None takes "virtual" where the engine has a `VirtualClock`, else "real".
    stretch: arrival times are multiplied by it (0.5: twice the rate; on a step clock: the steps a
    second of the workload lasts).
    on_step: called with the number of steps taken, after each; it may abort requests.
    A request that the engine refuses is noted as `refused`, and the others go on.

    Raises ValueError, with nothing submitted, for an engine that is at work, a mode that it cannot
    play, or more than a million steps; RuntimeError where the engine does nothing for long while
    requests wait. When an error or an interrupt ends the play, its requests are aborted.
    """
    _check_kinds(engine, workload, sampling_params, on_step)
    if engine.has_unfinished_requests():
        raise ValueError("the engine has unfinished requests; run them to their end first")
    number("stretch", stretch, above=0)
    number("the last arrival, stretched,", workload.duration * stretch)
    mode = _mode(engine, mode)
    if mode == "step" and workload.duration * stretch > MOST_STEPS:
        raise ValueError(
            f"the last request arrives at step {workload.duration * stretch:,.0f}, and a play has "
            f"at most {MOST_STEPS:,}; give a smaller stretch than {stretch:g}"
        )
    stage = _Stage(engine, mode, stretch, sampling_params)
    before = engine.runner, engine.clock
    engine.runner, engine.clock = stage, stage.clock
    try:
        stage.run(workload, on_step)
    finally:
        for request_id in stage.requests:
            engine.abort(request_id)
        engine.runner, engine.clock = before
    return stage.played(workload)


def _check_kinds(
    engine: object, workload: object, sampling_params: object, on_step: object
) -> None:
    """Raises ValueError for an argument of another kind than `play` takes."""
    checks = (
        ("engine", engine, isinstance(engine, LLMEngine), "an LLMEngine, such as llm.engine"),
        ("workload", workload, isinstance(workload, Workload), "a Workload"),
        ("sampling_params", sampling_params, callable(sampling_params), "a function of an Arrival"),
        ("on_step", on_step, on_step is None or callable(on_step), "a function, or None"),
    )
    for name, value, fits, wanted in checks:
        if not fits:
            raise ValueError(f"play: {name} is {shown(value)}; give {wanted}")


def _mode(engine: LLMEngine, mode: str | None) -> str:
    virtual = isinstance(engine.clock, VirtualClock)
    mode = ("virtual" if virtual else "real") if mode is None else mode
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; give one of {', '.join(MODES)}")
    if mode == "virtual" and not virtual:
        raise ValueError(
            "mode is 'virtual' and the engine's clock is not a VirtualClock; use a SimulatedEngine"
        )
    if mode == "real" and virtual:
        raise ValueError(
            "mode is 'real' and the engine's clock never moves by itself; use mode 'virtual'"
        )
    return mode


@dataclass
class _Stage:
    """One play under way. It stands in for the engine's runner, to note what each step does."""

    engine: LLMEngine
    mode: str
    stretch: float
    sampling_params: Callable[[Arrival], SamplingParams]
    requests: dict[str, Request] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    steps: list[PlayedStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runner: Runner = self.engine.runner
        self.clock = VirtualClock() if self.mode == "step" else self.engine.clock
        self.start = self.clock()
        self._work: StepWork | None = None
        self._windows = layer_windows(self.runner, self.engine.scheduler.manager.window)
        self._idle, self._worked_at = 0, self.start

    def __getattr__(self, name: str) -> object:
        """What else the engine asks its runner for."""
        return getattr(self.runner, name)

    def execute(self, output: SchedulerOutput) -> Mapping[str, SampledToken]:
        sampled = self.runner.execute(output)
        self._work = StepWork.of(output, self._windows)
        if self.mode == "step":
            self.clock.advance(1)
        return sampled

    # ---- the loop

    def run(self, workload: Workload, on_step: Callable[[int], None] | None) -> None:
        coming, taken = list(reversed(workload.arrivals)), 0
        while coming or self.engine.has_unfinished_requests():
            now = self.clock() - self.start
            while coming and coming[-1].time * self.stretch <= now:
                self._submit(coming.pop())
            if not self.engine.has_unfinished_requests():
                if coming:
                    self._wait_until(coming[-1].time * self.stretch)
                continue
            self._watch(self._step())
            taken += 1
            if on_step is not None:
                on_step(taken)

    def _watch(self, worked: bool) -> None:
        """Raise RuntimeError where steps have done nothing for long."""
        if worked:
            self._idle, self._worked_at = 0, self.clock()
            return
        self._idle += 1
        patient = self.mode == "real" and self.clock() - self._worked_at < IDLE_SECONDS
        if self._idle > IDLE_STEPS and not patient:
            names = ", ".join(self.engine.requests)
            raise RuntimeError(f"{self._idle} steps in a row did nothing; unfinished: {names}")

    def _submit(self, arrival: Arrival) -> None:
        params = self.sampling_params(arrival)
        if not isinstance(params, SamplingParams):
            name = f"{arrival.request_id}: sampling_params"
            raise ValueError(f"{name} gives {shown(params)}; let it give SamplingParams")
        if params.n != 1:
            raise ValueError(f"{arrival.request_id}: n is {params.n}; a play needs n=1")
        try:
            (request,) = self.engine.add_request(
                arrival.prompt_token_ids,
                params,
                request_id=arrival.request_id,
                arrival_time=self.start + arrival.time * self.stretch,
                priority=arrival.priority,
            )
        except ValueError as error:
            self.refused[arrival.request_id] = str(error)
        else:
            self.requests[arrival.request_id] = request

    def _wait_until(self, moment: float) -> None:
        """Nothing is left to do before `moment` of the play."""
        if self.mode == "step":  # idle steps are taken, so that the scheduler's count goes along
            while self.clock() < moment:
                self.engine.step()
                self.clock.advance(1)
        elif self.mode == "virtual":
            self.clock.wait_until(self.start + moment)
        else:
            time.sleep(min(max(self.start + moment - self.clock(), 0), LONGEST_SLEEP))

    def _step(self) -> bool:
        """Returns whether it computed, or ended, anything."""
        begin, self._work = self.clock(), None
        outputs = self.engine.step()
        if self._work is not None:
            end = self.clock()
            self.steps.append(PlayedStep(begin - self.start, end - self.start, self._work))
        elif self.mode == "step":
            self.clock.advance(1)
        return self._work is not None or bool(outputs)

    # ---- what came of it

    def played(self, workload: Workload) -> Played:
        simulated = getattr(self.runner, "simulated", False)
        unit = "steps" if self.mode == "step" else "s"
        records = tuple(self._record(a, simulated) for a in workload)
        return Played(records, tuple(self.steps), unit, simulated)

    def _record(self, arrival: Arrival, simulated: bool) -> PlayedRequest:
        name, count = arrival.request_id, len(arrival.prompt_token_ids)
        if name in self.refused:
            times = RequestTimes(arrival.time * self.stretch)
            return PlayedRequest(
                name, count, times, refused=self.refused[name], simulated=simulated
            )
        request = self.requests[name]
        return PlayedRequest(
            name,
            count,
            request.times.since(self.start),
            tuple(request.output_token_ids),
            request.num_cached_tokens,
            request.num_preemptions,
            request.finish_reason.value,
            simulated=simulated,
        )
