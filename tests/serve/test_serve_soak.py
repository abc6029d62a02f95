"""64 concurrent streams whose clients go away at random: nothing is left, nobody is stuck."""

import asyncio
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serve_cases import settled

from kvlab import LLM, tiny
from kvlab.serve import Server

STREAMS = 64
NAMES = ("Ada", "Tom", "Karl", "Vera", "Nils", "Grace")
THINGS = ("pears", "tea", "chocolate", "apples", "bread")


def resident_bytes() -> int | None:
    """Memory of this process that is in use; None where the system does not say."""
    status = Path("/proc/self/statm")
    if not status.is_file():
        return None
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Crowd:
    """So many clients, each asking again and again until the time is up."""

    def __init__(self, url: str, seconds: float, seed: int) -> None:
        self.url, self.seconds, self.random = url, seconds, random.Random(seed)
        self.whole = self.left = self.refused = 0
        self.memory: list[int] = []

    def body(self) -> dict:
        rng = self.random
        notes = " ".join(f"{rng.choice(NAMES)} likes {rng.choice(THINGS)}." for _ in range(8))
        return {
            "prompt": tiny.prompt(notes, f"What does {rng.choice(NAMES)} like?"),
            "max_tokens": rng.choice((1, 8, 64, 400)),
            "ignore_eos": rng.random() < 0.5,
            "n": rng.choice((1, 1, 1, 2)),
            "temperature": rng.choice((0, 1)),
            "logprobs": rng.choice((None, None, 2)),
            "stop": rng.choice((None, ".")),
            "stream": rng.random() < 0.9,
        }

    async def ask(self, http: httpx.AsyncClient) -> None:
        """One request: to its end, or until the client has had enough."""
        chunks = self.random.choice((0, 1, 2, 5, 20, 10_000))
        async with http.stream("POST", "/v1/completions", json=self.body()) as response:
            if response.status_code == 429:
                self.refused += 1
                await response.aread()
                await asyncio.sleep(0.05)
                return
            assert response.status_code == 200, await response.aread()
            last = b""
            async for part in response.aiter_raw():
                chunks -= 1
                last = part
                if chunks < 0:
                    self.left += 1
                    return
            assert last.endswith(b"data: [DONE]\n\n") or last.endswith(b"}")
            self.whole += 1

    async def client(self, end: float) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=120) as http:
            while time.monotonic() < end:
                await self.ask(http)

    async def watch(self, end: float) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(self.seconds / 20)
            self.memory.append(resident_bytes() or 0)

    async def run(self) -> None:
        end = time.monotonic() + self.seconds
        await asyncio.gather(self.watch(end), *(self.client(end) for _ in range(STREAMS)))


def crowd(seconds: float, seed: int, **engine) -> Crowd:
    """Let a crowd loose on a server, then look at what is left."""
    llm = LLM("tiny", **engine)
    with Server(llm) as server:
        found = Crowd(server.url, seconds, seed)
        with ThreadPoolExecutor(1) as pool:  # a browser's test leaves a loop in the main thread
            pool.submit(lambda: asyncio.run(found.run())).result()
        assert settled(server) == (0, 0)
        server.call(lambda llm: llm.engine.scheduler.check_invariants())
        page = httpx.get(f"{server.url}/metrics").text
    assert llm.engine.requests == {} and llm._sinks == {}
    llm.engine.scheduler.manager.pool.check_invariants()
    quarter = max(1, len(found.memory) // 4)
    early, late = max(found.memory[:quarter]) / 2**20, max(found.memory[-quarter:]) / 2**20
    preempted = [x for x in page.splitlines() if x.startswith("vllm:num_preemptions_total{")]
    print(
        f"\n{STREAMS} clients, {seconds:g} s: {found.whole} answered, {found.left} left by their "
        f"clients, {found.refused} refused; preemptions {preempted[0].split()[-1]}; memory "
        f"{early:.0f} MiB early, {late:.0f} MiB late"
    )
    return found


def test_64_streams_with_random_disconnects():
    found = crowd(10, seed=1, num_blocks=96)
    assert found.whole > 0 and found.left > 0


@pytest.mark.soak
def test_64_streams_with_random_disconnects_for_a_minute():
    found = crowd(60, seed=2, num_blocks=96)
    assert found.whole > 0 and found.left > 0
    if all(found.memory):
        half = len(found.memory) // 2
        growth = max(found.memory[half:]) - max(found.memory[:half])
        assert growth < 32 * 2**20


def test_the_same_with_a_small_queue_and_a_tier():
    found = crowd(3, seed=3, num_blocks=96, cpu_blocks=64, max_num_seqs=8, preempt_by="offload")
    assert found.whole + found.left > 0
