"""The benchmark behind `make bench` and `kvlab bench`.

Tables: tokens a second beside transformers, also at 135 million parameters; decode through block
tables beside contiguous keys and values; the bookkeeping's operations a second, the simulator's
error, the scheduler's share of a step, steps beside this machine's ceilings, what a server adds to
the first token, redraws of the memory calculator, import time, peak memory, Run All of each
notebook. What each figure means stands in benchmarks/README.md.
"""

import datetime
import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from kvlab.core.whole_file import write_whole
from kvlab.measure import (
    editor_speed,
    footprint,
    hardware,
    large_model,
    machine,
    manager_speed,
    paged_decode,
    report,
    run_all,
    scheduler_cost,
    server_overhead,
    simulator_error,
    subjects,
    throughput,
)


@dataclass(frozen=True)
class Settings:
    """How much is measured: repetitions of each figure."""

    load: throughput.Workload
    manager_rounds: int
    import_rounds: int
    memory_rounds: int
    editor_rounds: int
    server_rounds: int


FULL = Settings(throughput.Workload(9, 1, (1, 16), 64, 64), 9, 7, 3, 9, 60)
QUICK = Settings(throughput.Workload(1, 0, (1, 16), 8, 4), 1, 1, 1, 1, 1)


def main(out: Path | None = None, quick: bool = False) -> int:
    """Measure, print the tables, and write `out`/<date>-<machine>.json (out None: no file).

    quick: one repetition of few tokens, transformers left out: a check that all of it runs.
    Returns 1 if an engine's greedy tokens differ from kvlab's by more than a near tie, else 0.
    Raises ValueError, before anything is measured, for an `out` that takes no file.
    """
    settings = QUICK if quick else FULL
    result = _identity(settings, quick)
    target = None if out is None else _target(out, result)
    print(report.heading(result))
    with throughput.one_thread(), tempfile.TemporaryDirectory() as scratch:
        timed = (subjects.write_random_llama(Path(scratch)), subjects.tiny_model())
        rows = [row for s in timed for row in throughput.measure(s, settings.load, quick)]
    result["generation"] = rows
    _show(report.generation(rows, asdict(settings.load)))
    result["large_model"] = _large_model(quick)
    _show(large_model.table(result["large_model"]))
    result["paged_decode"], shape = _paged_decode(settings, quick)
    _show(paged_decode.table(result["paged_decode"], shape))
    result["manager"] = manager_speed.measure(settings.manager_rounds, quick)
    _show(report.manager(result["manager"]))
    result["simulator"] = simulator_error.measure(quick)
    _show(simulator_error.table(result["simulator"]))
    with throughput.one_thread():
        result["scheduler"] = scheduler_cost.measure(settings.manager_rounds, quick)
    _show(report.scheduler(result["scheduler"]))
    with throughput.one_thread():
        result["hardware"] = hardware.measure(settings.manager_rounds, quick)
    _show(hardware.table(result["hardware"]))
    with throughput.one_thread():
        result["server"] = server_overhead.measure(settings.server_rounds)
    _show(server_overhead.table(result["server"]))
    result["calculator"] = editor_speed.measure(settings.editor_rounds)
    _show(report.calculator(result["calculator"]))
    result["imports"] = footprint.import_times(settings.import_rounds)
    _show(report.imports(result["imports"]))
    result["memory"] = _memory(settings, quick)
    _show(report.memory(result["memory"]))
    result["notebooks"] = run_all.run_all_times(quick)
    _show(report.notebooks(result["notebooks"]))
    if target is not None:
        _write(target, result)
    compared = rows if quick else [*rows, *result["large_model"]]
    return int(any(a["mismatches"] for row in compared for a in row["agreement"].values()))


def _large_model(quick: bool) -> list[dict[str, object]] | str:
    if quick:
        return throughput.QUICK
    with throughput.one_thread(), tempfile.TemporaryDirectory() as scratch:
        return large_model.measure(Path(scratch))


def _paged_decode(settings: Settings, quick: bool) -> tuple[list[dict], paged_decode.Shape]:
    shape = paged_decode.QUICK if quick else paged_decode.FULL
    with throughput.one_thread():
        return paged_decode.measure(shape, settings.manager_rounds), shape


def _identity(settings: Settings, quick: bool) -> dict[str, object]:
    return {
        "format": 1,
        "date": datetime.date.today().isoformat(),
        "machine": machine.machine(),
        "load_average": machine.load_average(),
        "versions": machine.versions(),
        "settings": {"quick": quick, "threads": 1, "dtype": "float32", **asdict(settings)},
    }


def _memory(settings: Settings, quick: bool) -> dict[str, object]:
    names = ["torch", "kvlab", "plain loop"]
    asked = names[:2] if quick else names
    found = footprint.peak_memory(asked, settings.memory_rounds, settings.load.new_tokens)
    return found | {name: throughput.QUICK for name in names if name not in asked}


def _show(text: str) -> None:
    print(f"\n{text}", flush=True)


def _target(out: Path, result: dict[str, object]) -> Path:
    """Where the results go. Raises ValueError where nothing can be written, and makes nothing."""
    path = out / f"{result['date']}-{machine.short_name(result['machine'])}.json"
    there = next(place for place in (out.absolute(), *out.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ValueError(
            f"--out is {str(out)!r}, and no file can be written in {str(there)!r}: "
            f"{error.strerror}; name another folder"
        ) from None
    if path.exists() and not path.is_file():
        raise ValueError(f"{str(path)!r} is no file; move it away, or name another --out")
    return path


def _write(target: Path, result: dict[str, object]) -> None:
    """A later run of the same day on the same machine replaces the earlier one.

    A disk that is full costs the file, not the results: they are printed.
    """
    text = _json(result)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text)
    except OSError:
        _show(f"Not written; what {target.name} was to hold:\n{text}")
        raise
    _show(f"Written: {target}")


def _json(result: dict[str, object]) -> str:
    """Indented, but with each list of repetitions on one line."""
    text = json.dumps(result, indent=1, allow_nan=False)
    lists = re.compile(r"\[\s*\n[^\[\]{}]*\]")
    return lists.sub(lambda m: re.sub(r"\s*\n\s*", " ", m[0]), text) + "\n"
