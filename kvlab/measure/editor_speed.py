"""How long the memory calculator takes for one redraw: controls in, figures and picture out.

What the browser adds is not counted. Section 21.1.
"""

import json
import time

from kvlab.core import presets
from kvlab.measure.rounds import interleave, summary

REDRAW_GOAL = 1e-3  # seconds
CONTEXTS = tuple(2**power for power in range(21))  # a drag of the slider from end to end


def measure(rounds: int) -> dict[str, dict]:
    """{preset: {"seconds": of one redraw, a repetition for each round}}."""
    tasks = {name: lambda _, name=name: drag(name) for name in presets.names()}
    for name in presets.names():
        drag(name)  # a model's configuration is read once
    return {name: {"seconds": summary(found)} for name, found in interleave(tasks, rounds).items()}


def drag(name: str) -> float:
    """Seconds for one redraw, the mean over all contexts."""
    from kvlab.widgets.memory_story import calculate

    inputs = {"model": name, "config": "", "requests": 8, "dtype": "bf16", "ranks": 1}
    inputs |= {"block_size": 16, "gpu": 80, "other": 2, "window_policy": "capped", "mla": "latent"}
    start = time.perf_counter()
    for context in CONTEXTS:
        json.dumps(calculate(context=context, **inputs))
    return (time.perf_counter() - start) / len(CONTEXTS)
