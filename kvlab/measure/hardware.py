"""How near the engine comes to this machine's ceilings, as ratios of one run (section 21.2).

The ceilings' best trials and the engine's steps take turns (rounds.py): a disturbance hits a
ceiling and the step beside it alike, and each ratio is taken round by round.

    prefill, 512 tokens     FLOPs of the step / its time  over  the matmul ceiling    goal 50%
    decode, batch 1         bytes of the step / its time  over  the copy ceiling      goal 50%
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict

import torch

from kvlab.measure import devices
from kvlab.measure.ceilings import (
    Trial,
    matmul_trials,
    measure_ceilings,
    memory_trials,
    sample,
)
from kvlab.measure.phase_steps import Steps
from kvlab.measure.random_decoder import random_50m
from kvlab.measure.report import aligned
from kvlab.measure.roofline_records import DECODE, PREFILL, Case, Ceilings
from kvlab.measure.rounds import interleave, paired_ratio, summary
from kvlab.measure.step_parts import MATRIX, step_parts
from kvlab.measure.step_work import case_flops, case_nbytes
from kvlab.tensors.model import Decoder

GOAL = 0.5
ORDER = ("read", "copy", DECODE, "matmul", PREFILL)  # a step right after its ceiling
DECODES = 4  # steps of one measurement: about as long as the copy beside it
CONTEXT = 512
CASES = (Case(PREFILL, 1, CONTEXT), Case(DECODE, 1, CONTEXT))
QUICK_CASES = (Case(PREFILL, 1, 16), Case(DECODE, 1, 16))


def measure(rounds: int, quick: bool = False, device: str = "cpu") -> dict[str, object]:
    """Ceilings, then rounds in `ORDER`, then what eats the rest. Rates in bytes or FLOPs a second.

    Raises ValueError for a device that is not here, or without room for pools and model.
    """
    place = devices.checked_device(device)
    ceilings = measure_ceilings(place, seconds=0.1 if quick else 8.0, quick=quick)
    model = random_50m(ceilings.dtype, place)
    cases = QUICK_CASES if quick else CASES
    rates = interleave(_tasks(model, ceilings, cases, quick), rounds + 1)
    kept = {name: values[1:] for name, values in rates.items()}  # the first round warms up
    return {
        "ceilings": ceilings.to_dict(),
        "parameters": model.num_parameters,
        "rates": {name: summary(values) for name, values in kept.items()},
        "ratios": {
            "prefill": _ratio(kept["prefill"], kept["matmul"]),
            "decode": _ratio(kept["decode"], kept["copy"]),
            "decode, of reading": _ratio(kept["decode"], kept["read"]),
        },
        "cases": [asdict(case) for case in cases],
        "parts": [_parts(model, case) for case in cases],
    }


def _parts(model: Decoder, case: Case) -> dict[str, object]:
    """What the step's time goes to, and what its products reach by themselves."""
    found, c, size = step_parts(model, case), model.config, model.dtype.itemsize
    if case.phase == DECODE:
        work = case_nbytes(c, case, size, size)["weights"]
    else:
        work = sum(case_flops(c, case)[key] for key in ("weights", "head"))
    return {**found.to_dict(), "products": work / found.parts[MATRIX]}


def table(found: Mapping) -> str:
    """The ratios with their goals, then where the steps' time goes."""
    ceilings, (prefill, decode) = found["ceilings"], found["cases"]
    title = (
        f"Ceilings of {ceilings['name']} ({ceilings['device']}, {ceilings['dtype']}"
        f"{_threads(ceilings['threads'])}) and a random decoder of {found['parameters']:,} "
        f"parameters; in turns, {len(found['rates']['copy']['repetitions'])} rounds"
    )
    rows = [["", "reached", "", "of", "ratio", "", "goal"]]
    rows.append(_row("copy, read + written", found["rates"]["copy"]))
    rows.append(_row("read", found["rates"]["read"]))
    rows.append(_row("matrix product", found["rates"]["matmul"]))
    for case, key, ceiling in (
        (prefill, "prefill", "matrix product"),
        (decode, "decode", "copy"),
        (decode, "decode, of reading", "read"),
    ):
        row = _row(str(Case(**case)), found["rates"][case["phase"]])
        ratio = found["ratios"][key]
        span = f"[{100 * ratio['min']:.0f} .. {100 * ratio['max']:.0f}]"
        row += [ceiling, f"{100 * ratio['median']:.0f}%", span]
        if key in (PREFILL, DECODE):
            row.append(f"50% {'met' if ratio['median'] >= GOAL else 'MISSED'}")
        rows.append(row)
    width = len(rows[0])
    lines = [title, aligned([[*row, *[""] * width][:width] for row in rows])]
    return "\n".join([*lines, *(f"  {_told(parts)}" for parts in found["parts"])])


def _tasks(
    model: Decoder, ceilings: Ceilings, cases: tuple[Case, Case], quick: bool
) -> dict[str, Callable[[int], float]]:
    """{name: one measurement, in bytes or FLOPs a second}."""
    best = _best_trials(ceilings, model.device, model.dtype, quick)
    tasks = {t.kind: lambda _, t=t: t.amount / sample(t.work, model.device) for t in best}
    steps, c, size = Steps(model, cases), model.config, model.dtype.itemsize
    for case in cases:
        steps.prepare(case)
        output = steps.output(case)
        work = case_nbytes(c, case, size, size) if case.phase == DECODE else case_flops(c, case)
        amount = sum(work.values())
        inner = DECODES if case.phase == DECODE else 1
        tasks[case.phase] = lambda _, o=output, a=amount, n=inner: (
            a / sample(lambda: steps.run(o), model.device, n)
        )
    return {name: tasks[name] for name in ORDER}


def _best_trials(
    ceilings: Ceilings, device: torch.device, dtype: torch.dtype, quick: bool
) -> list[Trial]:
    """The trials whose sizes gave the ceilings, with buffers of their own."""
    best = {kind: getattr(ceilings, kind).best for kind in ("copy", "read", "matmul")}
    found = (*memory_trials(device, dtype, quick), *matmul_trials(device, dtype, quick))
    return [t for t in found if (t.size, t.how) == (best[t.kind].size, best[t.kind].how)]


def _ratio(ours: list[float], ceiling: list[float]) -> dict[str, object]:
    """Round by round; of_best: the two best rounds, which others disturbed least."""
    return {"of_best": max(ours) / max(ceiling), **paired_ratio(ours, ceiling)}


def _row(name: str, rate: Mapping) -> list[str]:
    each, least, most = (rate[key] / 1e9 for key in ("median", "min", "max"))
    return [name, f"{each:,.1f} G/s", f"[{least:,.1f} .. {most:,.1f}]"]


def _told(parts: Mapping) -> str:
    case, whole = Case(**parts["case"]), parts["seconds"]
    ordered = sorted(parts["parts"].items(), key=lambda item: -item[1])
    shares = ", ".join(f"{name} {100 * value / whole:.0f}%" for name, value in ordered)
    unit = "GB/s" if case.phase == DECODE else "GFLOP/s"
    return f"{case}: {shares}; the products alone: {parts['products'] / 1e9:,.1f} {unit}"


def _threads(count: int | None) -> str:
    return "" if count is None else f", {count} thread{'s' if count > 1 else ''}"
