"""Hits of the prefix cache over a span of time: two readings of its counters, and their difference.

A counter counts since the server started, so one reading says nothing of one run. Read before and
after, and subtract. Works with our own engine and with the `/metrics` page of any server that
gives vLLM's counters. Sections 21.2 and 21.4.
"""

import re
from dataclasses import dataclass

from kvlab.core.checked import number
from kvlab.core.prefix_cache import PrefixCacheStats

KNOWN_NAMES = (
    ("vllm:prefix_cache_queries", "vllm:prefix_cache_hits"),
    ("vllm:gpu_prefix_cache_queries", "vllm:gpu_prefix_cache_hits"),  # older vLLM
)
_LABELS = r'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}'  # a quoted value may hold brackets
# a time stamp and an exemplar ("# {...} 0.5") may follow; neither is the sample's value
_SAMPLE = re.compile(rf"(?P<name>[^\s{{]*+)\s*(?:{_LABELS})?\s*(?P<value>\S+)")


@dataclass(frozen=True)
class PrefixCacheCount:
    """Tokens looked for in the prefix cache, and tokens found. A reading, or a difference of two.

    created: when the counters began, where the server says so. Raises ValueError for counts that
    are negative or no numbers, and for more hits than queries.
    """

    queries: float
    hits: float
    created: float | None = None

    def __post_init__(self) -> None:
        number("prefix cache queries", self.queries)
        number("prefix cache hits", self.hits)
        if self.hits > self.queries:
            raise ValueError(
                f"prefix cache hits are {self.hits:g} of {self.queries:g} queries; read both "
                "counters in one scrape, of one server"
            )

    @property
    def hit_rate(self) -> float | None:
        """hits / queries; None without a query."""
        return self.hits / self.queries if self.queries else None

    def __sub__(self, before: "PrefixCacheCount") -> "PrefixCacheCount":
        """after - before: what was counted in between.

        Raises ValueError where the counters began anew between the two readings.
        """
        again = None not in (self.created, before.created) and self.created != before.created
        if again or self.queries < before.queries or self.hits < before.hits:
            raise ValueError(
                f"the prefix cache counters began anew: queries {before.queries:g} then "
                f"{self.queries:g}, hits {before.hits:g} then {self.hits:g}; the server was "
                "restarted or its counters reset, so measure again with both readings in one run"
            )
        return PrefixCacheCount(self.queries - before.queries, self.hits - before.hits)


def count_of(stats: PrefixCacheStats) -> PrefixCacheCount:
    """A reading of our own engine's counters, as they are now."""
    return PrefixCacheCount(stats.queries, stats.hits)


def read_prometheus(
    text: str, names: tuple[tuple[str, str], ...] = KNOWN_NAMES
) -> PrefixCacheCount:
    """A reading of a server's `/metrics` page, summed over its engines and other labels.

    names: pairs of (queries, hits), without the `_total` that the page adds; the first pair that
    stands there counts. Raises ValueError where none does, and for a value that is no number.
    """
    samples = _samples(text)
    for queries, hits in names:
        found = [_sum(samples, name) for name in (queries, hits)]
        if None not in found:
            return PrefixCacheCount(*found, max(samples.get(f"{queries}_created", [None])))
    raise ValueError(
        f"the page has no counters named {' and '.join(names[0])}; read the /metrics page of a "
        "server that runs with prefix caching, or give the names it uses"
    )


def _sum(samples: dict[str, list[float]], name: str) -> float | None:
    values = samples.get(f"{name}_total", samples.get(name))
    return None if values is None else sum(values)


def _samples(text: str) -> dict[str, list[float]]:
    """{metric name: its values, one a set of labels} of Prometheus's text format."""
    samples: dict[str, list[float]] = {}
    for number_, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _SAMPLE.match(line.strip())
        try:
            samples.setdefault(found["name"], []).append(float(found["value"]))
        except (ValueError, TypeError):  # TypeError: nothing was found
            raise ValueError(
                f"line {number_} of the page is {line.strip()[:60]!r}, no name with a number; "
                "give the text of a /metrics page"
            ) from None
    return samples
