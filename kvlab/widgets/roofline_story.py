"""The payload of the view "prefill against decode": measured passes under two measured ceilings."""

from typing import TYPE_CHECKING

from kvlab.widgets.roofline_words import (
    amount,
    digits,
    duration,
    overview,
    percent,
    point_sentence,
)

if TYPE_CHECKING:  # a view imports kvlab.core alone; the records are of the standard library
    from kvlab.measure.roofline import Placed
    from kvlab.measure.roofline_records import Ceilings, Phases

TITLE = "Prefill against decode"
LETTERS = {"prefill": "P", "decode": "D"}


def phases_payload(
    phases: "Phases | None", ceilings: "Ceilings | None", *, title: str | None = None
) -> dict:
    """What the view draws: plain data, the same for the same records. See `phases_view`.

    None for both: an empty roof; None for phases: the roof alone.
    """
    from kvlab.measure.roofline import place  # standard library only, and only once it is used

    check_records(phases, ceilings)
    points = () if phases is None else phases.points
    spots = [place(point, ceilings) for point in points]
    order = sorted(range(len(spots)), key=lambda i: _place(spots[i]))
    stops = [overview(phases, ceilings, spots)]
    return {
        "view": "phases",
        "title": TITLE if title is None else str(title),
        "about": about(phases, ceilings),
        "roof": None if ceilings is None else roof(ceilings),
        "points": [entry(spots[i]) for i in order],
        "newest": order.index(len(spots) - 1) if spots else None,
        "said": stops + [point_sentence(spots[i], ceilings) for i in order],
    }


def check_records(phases: "Phases | None", ceilings: "Ceilings | None") -> None:
    """Raises ValueError for other types, and where the two are not of one machine."""
    from kvlab.measure.roofline_records import Ceilings, Phases

    for name, value, kind in (("phases", phases, Phases), ("ceilings", ceilings, Ceilings)):
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} has type {type(value).__name__}; give {kind.__name__}")
    if phases is None:
        return
    if ceilings is None:
        raise ValueError("ceilings is None; measure_ceilings(device) gives those of the machine")
    kinds = [one.device.split(":")[0] for one in (phases, ceilings)]
    pairs = {
        "device": kinds,
        "name": [phases.name, ceilings.name],
        "dtype": [phases.dtype, ceilings.dtype],
        "threads": [phases.threads, ceilings.threads],
    }
    for name, (steps, limits) in pairs.items():
        if steps != limits:
            raise ValueError(
                f"{name} of the phases is {steps!r}, of the ceilings {limits!r}; "
                "measure both in the same way"
            )


def about(phases: "Phases | None", ceilings: "Ceilings | None") -> str:
    """The machine and the model in a few words."""
    if ceilings is None:
        return ""
    threads = ceilings.threads
    lines = [] if threads is None else [f"{threads} thread{'' if threads == 1 else 's'}"]
    model = [] if phases is None else [phases.model]
    return ", ".join([ceilings.name, *lines, ceilings.dtype, *model])


def roof(ceilings: "Ceilings") -> dict:
    """Both ceilings, in bytes/s and FLOP/s, and what is written at them."""
    bandwidth, rate = ceilings.bandwidth, ceilings.matmul.median
    return {
        "bandwidth": rounded(bandwidth),
        "rate": rounded(rate),
        "ridge": rounded(rate / bandwidth),
        "memory": f"memory: {amount(bandwidth, 'B/s')}",
        "arithmetic": f"arithmetic: {amount(rate, 'FLOP/s')}",
        "meets": f"{digits(rate / bandwidth)} FLOPs a byte",
        "ways": [_ceiling(name, getattr(ceilings, name)) for name in ("copy", "read", "matmul")],
    }


def entry(spot: "Placed") -> dict:
    """A dot: where it stands, and its figures as texts."""
    point = spot.point
    return {
        "letter": LETTERS[point.phase],
        "phase": point.phase,
        "batch": point.batch,
        "length": point.length,
        "label": f"{point.batch} x {point.length}",
        "intensity": rounded(point.intensity),
        "reached": rounded(point.flops_per_second),
        "attainable": rounded(spot.attainable),
        "seconds": rounded(point.seconds.median),
        "spread": [rounded(point.seconds.min), rounded(point.seconds.max)],
        "tokens": point.num_tokens,
        "bounds": [rounded(spot.memory_seconds), rounded(spot.compute_seconds)],
        "limit": spot.limited_by,
        "cached": spot.fits_cache,
        "share": percent(spot.share),
        "cells": [
            amount(point.flops, "FLOP"),
            amount(point.nbytes, "B"),
            digits(point.intensity),
            duration(point.seconds.median),
            duration(spot.memory_seconds),
            duration(spot.compute_seconds),
            percent(spot.share),
            digits(point.tokens_per_second),
            amount(point.flops_per_second, "FLOP/s"),
            amount(point.bytes_per_second, "B/s"),
        ],
    }


def rounded(value: float) -> float:
    """Four significant digits: what a picture can show."""
    return float(f"{value:.4g}")


def _ceiling(name: str, rate: object) -> list[str]:
    unit = rate.unit
    spread = f"{amount(rate.min, unit)} to {amount(rate.max, unit)}"
    return [name, amount(rate.median, unit), spread, f"{rate.best.how}, {rate.best.size}"]


def _place(spot: "Placed") -> tuple:
    """Prefills by batch and length, then decodes by length and batch."""
    point = spot.point
    if point.phase == "prefill":
        return (0, point.batch, point.length)
    return (1, point.length, point.batch)
