"""The same load twice, with prompts that share a beginning and with prompts that share none.

A prefix cache shows in the difference: the words to compute are as many in both, unless some are
found. Runs of another engine that were recorded come with the package, so that the page has
something to show where the reader has none. Section 21.2.
"""

import importlib.resources

from kvlab.core.arrivals import Poisson
from kvlab.core.workload import SharedPrefix, Workload
from kvlab.measure.load import load
from kvlab.measure.load_requests import random_requests
from kvlab.measure.load_result import LoadResult

NAMES = ("prompts share 640 of 704 words", "prompts share nothing")
FILES = ("other_engine_shared.jsonl", "other_engine_apart.jsonl")
SHARED, OWN, OUTPUTS = 640, 64, 24


def workloads(num_requests: int = 40, seed: int = 0) -> dict[str, Workload]:
    """Two of equal lengths: all prompts begin alike, or no two of them do."""
    shared = random_requests(
        num_requests,
        prompt_tokens=OWN,
        output_tokens=OUTPUTS,
        shared=SharedPrefix(1.0, SHARED),
        seed=seed,
    )
    apart = random_requests(
        num_requests,
        prompt_tokens=SHARED + OWN,
        output_tokens=OUTPUTS,
        seed=seed,
    )
    return dict(zip(NAMES, (shared, apart), strict=True))


def measure_both(
    url: str, num_requests: int = 40, rate: float = 4.0, **options: object
) -> dict[str, LoadResult]:
    """Ask a server twice; `options` go to `load` (api, model, api_key, hardware, ...).

    rate: requests a second. Raises what `load` raises.
    """
    given = {"words": True, "warmups": 2, "arrivals": Poisson(rate), **options}
    loads = workloads(num_requests)
    return {name: load(url, requests, **given) for name, requests in loads.items()}


def recorded_both() -> dict[str, LoadResult]:
    """Such a measurement of another engine, as it was recorded; its setting says of which."""
    folder = importlib.resources.files("kvlab.measure").joinpath("recorded")
    with importlib.resources.as_file(folder) as path:
        return {name: LoadResult.read(path / file) for name, file in zip(NAMES, FILES, strict=True)}
