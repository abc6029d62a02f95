"""Sentences of the view "prefill against decode", and its numbers with their units."""

from typing import TYPE_CHECKING

from kvlab.widgets.growth_words import count

if TYPE_CHECKING:  # a view imports kvlab.core alone; the records are of the standard library
    from kvlab.measure.roofline import Placed
    from kvlab.measure.roofline_records import Case, Ceilings, Phases

PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
WHY = {
    "time": "the time was spent",
    "interrupted": "it was interrupted",
    "stopped": "it was stopped",
}


def digits(value: float) -> str:
    """Three significant digits, and all digits of a number above 100."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def amount(value: float, unit: str) -> str:
    """amount(2.05e8, "B") == "205 MB"; prefixes are powers of 1,000."""
    prefix, size = next((p for p in PREFIXES if value >= 0.9995 * p[1]), PREFIXES[-1])
    return f"{digits(value / size)} {prefix}{unit}"


def duration(seconds: float) -> str:
    """duration(0.0251) == "25.1 ms"."""
    unit, size = next((t for t in TIMES if seconds >= 0.9995 * t[1]), TIMES[-1])
    return f"{digits(seconds / size)} {unit}"


def percent(share: float) -> str:
    """percent(0.76) == "76 %"."""
    return f"{share:.0%}".replace("%", " %")


def who(case: "Case") -> str:
    """What the numbers of a case stand for."""
    requests = count(case.batch, "request")
    if case.phase == "prefill":
        return f"{requests}, {count(case.length, 'token')}{' each' if case.batch > 1 else ''}"
    each = "1 token each" if case.batch > 1 else "1 token"
    return f"{requests}, {each} after {count(case.length, 'position')}"


def point_sentence(spot: "Placed", ceilings: "Ceilings") -> str:
    """One measured pass: its work, its time, its bound, and which ceiling sets it."""
    point = spot.point
    if spot.limited_by == "memory":
        bound = f"its bytes need at least {duration(spot.memory_seconds)} at " + amount(
            ceilings.bandwidth, "B/s"
        )
    else:
        bound = f"its FLOPs need at least {duration(spot.compute_seconds)} at " + amount(
            ceilings.matmul.median, "FLOP/s"
        )
    limit = "memory" if spot.limited_by == "memory" else "arithmetic"
    return (
        f"{point.case} ({who(point.case)}): {amount(point.flops, 'FLOP')}, "
        f"{amount(point.nbytes, 'B')}, {digits(point.intensity)} FLOPs a byte. "
        f"It took {duration(point.seconds.median)}, {digits(point.tokens_per_second)} tokens/s, "
        f"and reached {amount(point.bytes_per_second, 'B/s')} and "
        f"{amount(point.flops_per_second, 'FLOP/s')}; "
        f"{bound}: {percent(spot.share)} of the time it took. The limit is {limit}."
        f"{_odd(spot, ceilings)}"
    )


def _odd(spot: "Placed", ceilings: "Ceilings") -> str:
    if spot.fits_cache:
        size = f"{ceilings.cache_nbytes / 2**20:,.0f} MiB"
        more = " so more than 100 % is no error." if spot.share > 1 else " which may speed it up."
        return f" These bytes fit into the processor's cache of {size},{more}"
    if spot.share > 1:
        return (
            " More than 100 %: the ceilings were measured at a slower moment; measure both again."
        )
    return ""


def overview(phases: "Phases | None", ceilings: "Ceilings | None", spots: list["Placed"]) -> str:
    """What the picture shows as a whole; before a run, what to do."""
    if ceilings is None:
        return (
            "Nothing was measured yet: press Run. First this machine's two ceilings are measured, "
            "then passes of prefill (P) and of decode (D) take their places below them."
        )
    roof = (
        f"The roof of this machine: memory delivers {amount(ceilings.bandwidth, 'B/s')}, "
        f"arithmetic {amount(ceilings.matmul.median, 'FLOP/s')}; they meet at "
        f"{digits(ceilings.matmul.median / ceilings.bandwidth)} FLOPs a byte."
    )
    best = [_best(phase, spots) for phase in ("prefill", "decode")]
    return " ".join(filter(None, [roof, *best, _left_out(phases)]))


def _best(phase: str, spots: list["Placed"]) -> str:
    mine = [spot for spot in spots if spot.point.phase == phase]
    if not mine:
        return ""
    outside = [spot for spot in mine if not spot.fits_cache]
    best = max(outside or mine, key=lambda spot: spot.share)
    which = " whose bytes exceed the cache" if 0 < len(outside) < len(mine) else ""
    passes = count(len(outside or mine), phase)
    if len(mine) == 1:
        return f"{str(best.point.case).capitalize()} reaches {percent(best.share)} of the roof."
    return f"Of {passes}{which}, {best.point.case} comes closest: {percent(best.share)}."


def _left_out(phases: "Phases | None") -> str:
    if phases is None or not phases.left_out:
        return ""
    cases = ", ".join(str(case) for case in phases.left_out)
    return f"Not measured, {WHY.get(phases.why_left_out, phases.why_left_out)}: {cases}."
