"""Replay recorded block-manager traces: python tests/replay_oracle.py FILE

The file holds a list of traces as recorded from vLLM 0.33.0's KV-cache manager (one
full-attention group, prefix caching on). Each answer of kvlab's manager is held against the
recorded one, field by field. Prints `traces N steps M mismatches K`; exit status 1 if K > 0.
"""

import json
import sys
from pathlib import Path

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import Request


def free_order(recorded: str | list[int]) -> list[int]:
    """ "1..39" or the ids themselves."""
    if isinstance(recorded, list):
        return recorded
    first, last = (int(x) for x in recorded.split(".."))
    return list(range(first, last + 1))


class Replay:
    """One trace: the manager, its live requests, and the identities lost since the last state."""

    def __init__(self, trace: dict) -> None:
        self.pool = BlockPool(free_order(trace["initial_free_order"]))
        self.manager = KVCacheManager(self.pool, trace["block_size"])
        self.requests: dict[str, Request] = {}
        self.evicted: list[int] = []
        self.pool.on_evict = lambda block, _: self.evicted.append(block.block_id)

    def step(self, step: dict) -> dict:
        """Carry out one recorded operation; the answer has the fields of `expect` and `state`."""
        if step["op"] != "admit" and step["request"] not in self.requests:
            return {"expect": {"refused earlier": step["request"]}}
        answer = {"expect": getattr(self, step["op"])(step)}
        if "state" in step:
            blocks = self.pool.blocks.values()
            answer["state"] = {
                "free": self.pool.num_free_blocks,
                "evicted": self.evicted,
                "free_order": self.pool.free_block_ids,
                "refs": {str(b.block_id): b.ref_cnt for b in blocks if b.ref_cnt},
                "hashed": sorted(b.block_id for b in blocks if b.block_hash is not None),
            }
            self.evicted = []
        self.manager.check_invariants()
        return answer

    def admit(self, step: dict) -> dict:
        request = Request(
            step["request"], step["tokens"], adapter=step["adapter"], cache_salt=step["cache_salt"]
        )
        hits, num_hit = self.manager.get_computed_blocks(request)
        count = request.num_tokens - num_hit
        if step["max_new"] is not None:
            count = min(count, step["max_new"])
        new = self.manager.allocate_slots(request, count, hits)
        told = {"hit": num_hit, "hit_ids": [b.block_id for b in hits]}
        if new is None:
            return {"ok": False, **told}
        request.num_computed_tokens = num_hit + count
        self.requests[request.request_id] = request
        return {"ok": True, **told, **self._slots(request, new)}

    def prefill(self, step: dict) -> dict:
        return self._more(self.requests[step["request"]], step["n"])

    def append_and_compute(self, step: dict) -> dict:
        request = self.requests[step["request"]]
        request.append_output(step["token"])
        return self._more(request, 1)

    def free(self, step: dict) -> dict:
        self.manager.free(self.requests.pop(step["request"]))
        return {}

    def _more(self, request: Request, count: int) -> dict:
        new = self.manager.allocate_slots(request, count)
        if new is None:
            return {"ok": False}
        request.num_computed_tokens += count
        return {"ok": True, **self._slots(request, new)}

    def _slots(self, request: Request, new: list) -> dict:
        table = self.manager.block_table(request.request_id)
        return {"new": [b.block_id for b in new], "table": table}


def replay(traces: list[dict]) -> tuple[int, list[str]]:
    """Number of steps, and one line for each step whose answer differs."""
    steps, wrong = 0, []
    for t, trace in enumerate(traces):
        run = Replay(trace)
        for s, step in enumerate(trace["steps"]):
            steps += 1
            answer = run.step(step)
            wanted = {key: step[key] for key in answer if key in step}
            if answer != wanted:
                wrong.append(f"trace {t} step {s} {step['op']}: got {answer}, recorded {wanted}")
    return steps, wrong


def main(path: str) -> int:
    traces = json.loads(Path(path).read_text())
    steps, wrong = replay(traces)
    for line in wrong[:20]:
        print(line)
    print(f"traces {len(traces)} steps {steps} mismatches {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
