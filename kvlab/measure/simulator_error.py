"""How far the simulator is from the machine it was calibrated on (section 21.3).

A workload is played against the tiny model on the real clock, a cost model is fitted to its steps,
and the same workload is played against the simulator. The held-out workload has other lengths and
comes in bursts, and the fit has not seen it. Arrivals are as far apart as this machine needs to
be at work for half of the time: near its limit a queue grows without end, and no figure means much.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.arrivals import OnOff, Poisson
from kvlab.core.lengths import LogNormal, Uniform
from kvlab.core.played import Played, median_error
from kvlab.core.workload import SharedPrefix, Workload, generate
from kvlab.llm import LLM
from kvlab.measure.calibrate import Calibration, calibrate
from kvlab.measure.report import aligned
from kvlab.measure.rounds import summary
from kvlab.measure.throughput import one_thread
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine

GOAL = 0.15  # median error of the end-to-end time, on the run that was calibrated on
ROUNDS, REQUESTS, QUICK_REQUESTS = 3, 80, 12
AT_WORK = 0.5  # share of the time
LATENCIES = ("e2el", "ttft", "tpot")


@dataclass(frozen=True)
class Comparison:
    """One round: the fit, and both workloads played on the machine and in the simulator."""

    calibration: Calibration
    real: dict[str, Played]
    simulated: dict[str, Played]

    def errors(self, name: str) -> dict[str, float]:
        """{latency: median over the requests of one workload}."""
        real, simulated = self.real[name], self.simulated[name]
        return {latency: median_error(real, simulated, latency) for latency in LATENCIES}


def workloads(num_requests: int, vocab_size: int, seed: int = 0) -> dict[str, Workload]:
    """ "calibrated" and "held out": different lengths, rates, and only one shares prefixes."""
    return {
        "calibrated": generate(
            num_requests,
            arrivals=Poisson(1.0),
            prompt_tokens=Uniform(8, 300),
            output_tokens=Uniform(4, 60),
            vocab_size=vocab_size,
            seed=seed,
        ),
        "held out": generate(
            num_requests,
            arrivals=OnOff(1.5, on=20.0, off=10.0),
            prompt_tokens=LogNormal(60, 0.8, 8, 400),
            output_tokens=Uniform(8, 80),
            vocab_size=vocab_size,
            shared=SharedPrefix(0.5, 64, groups=3),
            seed=seed + 1,
        ),
    }


def half_at_work(llm: LLM, load: Workload) -> float:
    """By how much to stretch a request a second so that the engine works half of the time."""
    llm.reset_prefix_cache()
    played = play(llm.engine, load, stretch=1e-6)  # all at once
    return played.duration / len(load) / AT_WORK


def compare(llm: LLM, loads: Mapping[str, Workload], stretch: float = 1.0) -> Comparison:
    """Play all workloads really, calibrate on the first, play all again simulated."""
    real = {}
    for name, load in loads.items():
        llm.reset_prefix_cache()
        real[name] = play(llm.engine, load, stretch=stretch)
    nbytes = llm.cache.bytes_per_position * llm.cache.block_size
    calibration = calibrate(next(iter(real.values())), block_nbytes=nbytes)
    simulated = {
        name: play(SimulatedEngine.like(llm.engine, calibration.cost), load, stretch=stretch)
        for name, load in loads.items()
    }
    return Comparison(calibration, real, simulated)


def measure(quick: bool = False) -> dict[str, object]:
    """Errors of every latency on both workloads, a repetition a round; the last round's costs."""
    rounds, count = (1, QUICK_REQUESTS) if quick else (ROUNDS, REQUESTS)
    with one_thread():
        llm = LLM("tiny", num_blocks=512, max_num_seqs=16, max_num_batched_tokens=256)
        vocab_size = llm.model.config.vocab_size
        first = workloads(count, vocab_size, seed=99)["calibrated"]
        half_at_work(llm, first)  # the first time also warms up
        done = [
            compare(llm, workloads(count, vocab_size, seed=10 * i), half_at_work(llm, first))
            for i in range(rounds)
        ]
    errors = {name: [c.errors(name) for c in done] for name in done[0].real}
    return {
        "requests": count,
        "cost": done[-1].calibration.cost.to_dict(),
        "steps": summary([c.calibration.step_error for c in done]),
        "errors": {
            name: {latency: summary([e[latency] for e in found]) for latency in LATENCIES}
            for name, found in errors.items()
        },
        "medians": {name: _medians(done[-1], name) for name in errors},
    }


def _medians(comparison: Comparison, name: str) -> dict[str, float]:
    """Median end-to-end times in seconds."""
    real, simulated = comparison.real[name], comparison.simulated[name]
    return {
        "real": statistics.median(real.latencies("e2el").values()),
        "simulated": statistics.median(simulated.latencies("e2el").values()),
    }


def table(found: Mapping) -> str:
    """The errors as a table for a terminal."""
    rows = [["workload", "end to end", "", "first token", "per token", "goal"]]
    for name, errors in found["errors"].items():
        e2el = errors["e2el"]
        met = "met" if e2el["median"] < GOAL else "MISSED"
        goal = f"{GOAL:.0%} {met}" if name == "calibrated" else ""
        span = f"[{e2el['min']:.1%} .. {e2el['max']:.1%}]"
        ttft, tpot = (f"{errors[n]['median']:.1%}" for n in ("ttft", "tpot"))
        rows.append([name, f"{e2el['median']:.1%}", span, ttft, tpot, goal])
    title = (
        f"Simulator against the machine: {found['requests']} requests on the tiny model, "
        "median error of a request's latency"
    )
    cost = found["cost"]
    terms = [f"{1e6 * cost[f'per_{n}']:.3g} a {n}" for n in ("step", "row", "token", "pair", "key")]
    costs = f"  fitted costs in microseconds: {', '.join(terms)}; median error of one step's time "
    return f"{title}\n{aligned(rows)}\n{costs}{found['steps']['median']:.1%}"
