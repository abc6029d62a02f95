"""The prefix cache's rules, which can be chosen, and its counters (section 21.4)."""

from dataclasses import dataclass

from kvlab.core.hashing import HashFunction, sha256


@dataclass(frozen=True)
class PrefixCachePolicy:
    """What counts as a hit, and what stays when a request has ended.

    hash_function: bytes -> bytes, makes identities out of contents.
    exact_match: where identities are equal, compare the contents (tokens, extras, everything
    before them) before a block counts as a hit. False trusts the hash: with a weak one a request
    may be given another's K/V.
    retain_freed: a full block that nobody holds any more stays findable until it is taken for
    something else (an evictable prefix). False: its identity goes with its last reference.
    kept_logits: of so many prompt blocks, also keep the logits of the last position. A prompt
    that ends with such a block and is cached whole selects its first output without computing a
    position. 0 keeps none: then the last position is always computed, since K/V give no logits.

    Raises ValueError for a value that does not fit.
    """

    hash_function: HashFunction = sha256
    exact_match: bool = True
    retain_freed: bool = True
    kept_logits: int = 0

    def __post_init__(self) -> None:
        for name in ("exact_match", "retain_freed"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"PrefixCachePolicy: {name} is {getattr(self, name)!r}; give a bool"
                )
        if type(self.kept_logits) is not int or self.kept_logits < 0:
            raise ValueError(
                f"PrefixCachePolicy: kept_logits is {self.kept_logits!r}; "
                "give a number of blocks, 0 for none"
            )
        if not callable(self.hash_function) or not isinstance(self.hash_function(b""), bytes):
            raise ValueError(
                f"PrefixCachePolicy: hash_function is {self.hash_function!r}; "
                "give a function from bytes to bytes"
            )


@dataclass
class PrefixCacheStats:
    """Counts since the start or the last reset, in tokens: `queries` looked for, `hits` found.

    Counted where a request is admitted, not at each lookup of one that still waits. A request
    that comes back after a preemption finds its own blocks; it is counted apart, so that it does
    not raise the hit rate. Continuations that begin by a fork look nothing up.
    Source: vLLM, v1/metrics/stats.py, PrefixCacheStats.
    """

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    @property
    def hit_rate(self) -> float | None:
        """hits / queries; None before the first query."""
        return self.hits / self.queries if self.queries else None

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """One admission. preempted: it had been admitted before and lost its blocks."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits
