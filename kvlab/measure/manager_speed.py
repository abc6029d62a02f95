"""How fast the bookkeeping is: admit, append one token, free, without any tensor.

The pool is measured in its steady state: full of blocks that other requests left cached, so that
every new block evicts one. A fresh request's block identities are hashed within its admission.
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.request import Request
from kvlab.measure.rounds import interleave, summary

BLOCK_SIZE = 16
PROMPT, POOL = 512, 2048  # tokens, blocks
APPENDS = 16  # one block's worth a request
PROMPT_LENGTHS = (64, 512, 4096, 16384)
POOL_SIZES = (256, 2048, 16384, 65536)


@dataclass(frozen=True)
class Case:
    """hits: all requests have the prompt that the first one left in the cache."""

    prompt_tokens: int = PROMPT
    pool_blocks: int = POOL
    hits: bool = False

    @property
    def requests(self) -> int:
        """Admitted together, half of the pool at most."""
        each = cdiv(self.prompt_tokens + APPENDS, BLOCK_SIZE)
        return max(1, min(32, self.pool_blocks // (2 * each)))


class Bench:
    """One manager and its case; `round` measures once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.manager = KVCacheManager(BlockPool(case.pool_blocks), BLOCK_SIZE)
        self._random = random.Random(0)
        self._names = 0
        for _ in range(
            cdiv(case.pool_blocks, case.requests * cdiv(case.prompt_tokens, BLOCK_SIZE))
        ):
            self.round(0)

    def round(self, _: int) -> dict[str, float]:
        """Seconds for one operation: admit, append, free."""
        requests = self._requests()
        count, clock = len(requests), time.perf_counter
        start = clock()
        for request in requests:
            self._admit(request)
        admitted = clock()
        for request in requests:
            for _ in range(APPENDS):
                self._append(request)
        appended = clock()
        for request in requests:
            self.manager.free(request)
        freed = clock()
        return {
            "admit": (admitted - start) / count,
            "append": (appended - admitted) / (count * APPENDS),
            "free": (freed - appended) / count,
        }

    def _requests(self) -> list[Request]:
        prompts = [self._prompt() for _ in range(self.case.requests)]
        if self.case.hits:
            prompts = [prompts[0]] * self.case.requests
            leader = self._request(prompts[0])
            self._admit(leader)
            self.manager.free(leader)
        return [self._request(prompt) for prompt in prompts]

    def _prompt(self) -> list[int]:
        return self._random.choices(range(32_000), k=self.case.prompt_tokens)

    def _request(self, prompt: list[int]) -> Request:
        self._names += 1
        return Request(f"r{self._names}", prompt)

    def _admit(self, request: Request) -> None:
        """What the scheduler does with a waiting request, and the end of the step that ran it."""
        hits, num_hit = self.manager.get_computed_blocks(request)
        if self.manager.allocate_slots(request, request.num_tokens - num_hit, hits) is None:
            raise RuntimeError("the pool is too small for this case")
        request.num_computed_tokens = request.num_tokens
        self.manager.commit_step()

    def _append(self, request: Request) -> None:
        request.append_output(7)
        if self.manager.allocate_slots(request, 1) is None:
            raise RuntimeError("the pool is too small for this case")
        request.num_computed_tokens += 1
        self.manager.commit_step()


def cases(quick: bool) -> dict[str, Case]:
    """By name. The first two give all operations, the others admission by length and pool."""
    found = {"without hits": Case(), "with hits": Case(hits=True)}
    lengths, pools = (PROMPT_LENGTHS[:2], POOL_SIZES[:2]) if quick else (PROMPT_LENGTHS, POOL_SIZES)
    for tokens in lengths:
        found[f"prompt {tokens}"] = Case(prompt_tokens=tokens, pool_blocks=max(POOL, tokens // 4))
    for blocks in pools:
        found[f"pool {blocks}"] = Case(pool_blocks=blocks)
    return found


def measure(rounds: int, quick: bool = False) -> dict[str, dict[str, object]]:
    """Operations a second and admitted tokens a second of every case."""
    chosen = cases(quick)
    taken = interleave({name: Bench(case).round for name, case in chosen.items()}, rounds)
    return {name: _figures(chosen[name], taken[name]) for name in chosen}


def _figures(case: Case, taken: list[dict[str, float]]) -> dict[str, object]:
    tokens = case.prompt_tokens
    return {
        "prompt_tokens": tokens,
        "pool_blocks": case.pool_blocks,
        "requests": case.requests,
        "hits": case.hits,
        "operations_per_second": {
            name: summary([1 / seconds[name] for seconds in taken])
            for name in ("admit", "append", "free")
        },
        "admitted_tokens_per_second": summary([tokens / seconds["admit"] for seconds in taken]),
    }


def growth(cases: Mapping[str, Mapping]) -> list[tuple[str, str, float, float]]:
    """From the smallest to the largest case: growth of the size, growth of the admission's time.

    Linear in the prompt: both are near each other. Not in the pool: the time stays near 1x.
    Of each case the best round counts: it was disturbed least.
    """
    found = []
    for what, word, key in (("prompt", "long", "prompt_tokens"), ("pool", "large", "pool_blocks")):
        group = [case for name, case in cases.items() if name.startswith(f"{what} ")]
        if len(group) > 1:
            least, most = group[0], group[-1]
            rates = [c["operations_per_second"]["admit"]["max"] for c in (least, most)]
            found.append((what, word, most[key] / least[key], rates[0] / rates[1]))
    return found
