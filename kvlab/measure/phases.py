"""Prefill and decode of a real model, timed over prompt lengths and batch sizes (section 21.2).

    for point in PhaseRun(model, cases):     points as they come; run.stop() ends it
        ...
    measure_phases(model)                    all at once, with a progress callback

Each step is the runner's own: the batch laid out, the model's pass over the paged cache, the
selection. Its FLOPs and bytes are counted (step_work.py), never guessed from the time. A time
budget holds: no case begins once it is spent, or if what was seen so far says that the case does
not fit into what is left; what was left out is listed.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import torch

from kvlab.measure import devices
from kvlab.measure.phase_steps import Steps, check_model
from kvlab.measure.roofline_records import (
    DECODE,
    INTERRUPTED,
    PREFILL,
    STOPPED,
    TIME,
    Case,
    Phases,
    Point,
    Spread,
)
from kvlab.measure.step_work import case_flops, case_nbytes
from kvlab.tensors.model import Decoder

BUDGET = 60.0  # seconds
LEAST_REPETITIONS = 3  # that a long case gets, if the budget allows
MANY_TOKENS = 64  # of a step: from here on its FLOP/s foretell a larger step's
DEFAULT = (  # both phases early, so that a small budget shows both
    *(Case(PREFILL, 1, 64), Case(DECODE, 1, 64), Case(PREFILL, 1, 512), Case(DECODE, 1, 512)),
    *(Case(DECODE, 4, 512), Case(DECODE, 16, 512), Case(PREFILL, 1, 16), Case(PREFILL, 1, 256)),
    *(Case(PREFILL, 4, 64), Case(DECODE, 1, 1023), Case(PREFILL, 1, 1024)),
)
QUICK = (Case(PREFILL, 1, 16), Case(DECODE, 1, 16), Case(DECODE, 4, 16))
Sizes = tuple[Sequence[int], Sequence[int]]  # batch sizes, lengths


def default_cases(model: Decoder, quick: bool = False) -> tuple[Case, ...]:
    """Both phases over lengths up to 1,024 and batches up to 16, as far as the model reaches."""
    longest = model.config.max_model_len
    return tuple(case for case in (QUICK if quick else DEFAULT) if case.seq_len <= longest)


def cases_of(prefill: Sizes | None = None, decode: Sizes | None = None) -> tuple[Case, ...]:
    """Every batch size with every length: prefill=((1,), (64, 512)) are two cases.

    Raises ValueError for anything but two sequences.
    """
    asked = ((PREFILL, prefill), (DECODE, decode))
    for phase, sizes in asked:
        pair = isinstance(sizes, Sequence) and len(sizes) == 2
        if sizes is not None and not (pair and all(isinstance(s, Sequence) for s in sizes)):
            raise ValueError(
                f"{phase} is {sizes!r}; give batch sizes and lengths, such as ((1,), (64, 512))"
            )
    return tuple(
        Case(phase, batch, length)
        for phase, sizes in asked
        if sizes is not None
        for batch in sizes[0]
        for length in sizes[1]
    )


def measure_phases(
    model: Decoder,
    cases: Sequence[Case] | None = None,
    *,
    prefill: Sizes | None = None,
    decode: Sizes | None = None,
    repetitions: int = 5,
    seconds: float = BUDGET,
    name: str | None = None,
    progress: Callable[[int, int, Case | None], None] | None = None,
) -> Phases:
    """Measure all cases, or `cases_of(prefill, decode)`; None of them: `default_cases`.

    progress: called with (points done, of, the next case; None at the end). A KeyboardInterrupt
    ends the measurement and keeps what was measured. Raises ValueError as `PhaseRun`.
    """
    if cases is None and (prefill is not None or decode is not None):
        cases = cases_of(prefill, decode)
    run = PhaseRun(model, cases, repetitions=repetitions, seconds=seconds, name=name)
    run.on_case = progress
    try:
        for _ in run:
            pass
    except KeyboardInterrupt:
        run.interrupt()
    return run.result()


class PhaseRun:
    """Points one after another: each turn of the loop measures one case.

    stop() ends it before the next case; result() gives what there is, at any time. Iterate once.
    """

    def __init__(
        self,
        model: Decoder,
        cases: Sequence[Case] | None = None,
        *,
        repetitions: int = 5,
        seconds: float = BUDGET,
        block_size: int = 16,
        cache_dtype: torch.dtype | str | None = None,
        name: str | None = None,
    ) -> None:
        """name: of the model, for the record. block_size, cache_dtype: of the paged cache.

        Raises ValueError, before it allocates the cache, for what cannot be run: see `Steps`.
        """
        if type(repetitions) is not int or repetitions < 1:
            raise ValueError(f"repetitions is {repetitions!r}; give at least 1")
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not number or not 0 < seconds < float("inf"):
            raise ValueError(f"seconds is {seconds!r}; give a number above 0")
        check_model(model)
        if cases is not None and not isinstance(cases, Iterable):
            raise ValueError(f"cases is {cases!r}; give a list, such as [Case('prefill', 1, 64)]")
        self.cases = tuple(default_cases(model) if cases is None else cases)
        self.steps = Steps(model, self.cases, block_size=block_size, cache_dtype=cache_dtype)
        self.model, self.repetitions, self.budget = model, repetitions, float(seconds)
        self.name = name or f"{model.config.architecture}, {model.num_parameters:,} parameters"
        self.on_case: Callable[[int, int, Case | None], None] | None = None
        self.points: list[Point] = []
        self._began: float | None = None
        self._elapsed, self._ended_by = 0.0, ""

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Point]:
        if self._began is not None:
            raise ValueError("this run was iterated already; make another PhaseRun")
        self._began = time.perf_counter()
        for case in self.cases:
            self._note_time()
            if self._ended_by or (self.points and self._spent_by(case)):
                break
            self._tell(case)
            try:
                point = self._measure(case)
            except KeyboardInterrupt:
                self.interrupt()
                break
            self.points.append(point)
            self._note_time()
            yield point
        self._tell(None)

    def stop(self) -> None:
        """No other case begins, and the one under way gets no further repetition; points stay."""
        self._ended_by = self._ended_by or STOPPED

    def interrupt(self) -> None:
        """As stop(), and the result says that it was interrupted."""
        self._ended_by = INTERRUPTED
        self._note_time()

    def result(self) -> Phases:
        """What was measured so far; cases that were not reached are left out."""
        left_out = self.cases[len(self.points) :]
        device = self.model.device
        return Phases(
            self.name,
            self.model.num_parameters,
            devices.label(device),
            devices.device_name(device),
            devices.name_of(self.model.dtype),
            devices.name_of(self.steps.cache_dtype),
            devices.threads(device),
            tuple(self.points),
            left_out,
            (self._ended_by or STOPPED) if left_out else "",
            self._elapsed,
            self.budget,
        )

    def _measure(self, case: Case) -> Point:
        """Fill the cache, warm up once, then time: fewer repetitions where they take long."""
        self.steps.prepare(case)
        output, device = self.steps.output(case), self.model.device
        self.steps.run(output)
        began, taken = time.perf_counter(), []
        share = self.budget / len(self.cases)
        while len(taken) < self.repetitions:
            taken.append(devices.elapsed(device, lambda: self.steps.run(output)))
            now = time.perf_counter()
            long = now - began > share and len(taken) >= LEAST_REPETITIONS
            if long or self._ended_by or now - self._began > self.budget:
                break
        c = self.model.config
        work = case_flops(c, case), case_nbytes(c, case, *self._sizes)
        return Point(case, Spread.of(taken), *work)

    def _spent_by(self, case: Case) -> bool:
        """Whether the budget is spent, or would be by a warm-up and one repetition of the case."""
        spent = self._elapsed + self._expected(case) > self.budget
        if spent:
            self._ended_by = TIME
        return spent

    def _expected(self, case: Case) -> float:
        """Seconds for a prompt to be stored and two steps, at the best rates seen so far.

        A step of few tokens waits for its weights and says nothing about FLOPs a second.
        """
        c = self.model.config
        nbytes = sum(case_nbytes(c, case, *self._sizes).values())
        seconds = 2 * nbytes / max(p.bytes_per_second for p in self.points)
        busy = [p.flops_per_second for p in self.points if p.num_tokens >= MANY_TOKENS]
        if not busy:
            return seconds
        seconds = max(seconds, 2 * sum(case_flops(c, case).values()) / max(busy))
        if case.phase == DECODE and self.steps.filled[0] < case.length:
            seconds += sum(case_flops(c, Case(PREFILL, 1, case.length)).values()) / max(busy)
        return seconds

    @property
    def _sizes(self) -> tuple[int, Fraction]:
        """Bytes of a value as computed with and as stored, its share of a scale included."""
        width = self.model.config.head_dim
        return self.model.dtype.itemsize, Fraction(self.steps.format.vector_bytes(width), width)

    def _note_time(self) -> None:
        if self._began is not None:
            self._elapsed = time.perf_counter() - self._began

    def _tell(self, case: Case | None) -> None:
        if self.on_case is not None:
            self.on_case(len(self.points), len(self.cases), case)
