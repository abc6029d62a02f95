"""Random runs for the overview, and a count of all its figures from frames and events alone."""

import random
from collections import defaultdict
from contextlib import suppress

from growth_cases import small_llm

from kvlab import SamplingParams, Trace
from kvlab.widgets.overview_read import letter_of

IN_STEP = {"scheduled", "computed", "preempted", "step_failed"}


def recorded(seed: int) -> tuple[Trace, int]:
    """A random run, and how many blocks its pool has."""
    draw = random.Random(seed)
    size, pool = draw.choice((2, 4)), draw.randint(5, 14)
    llm = small_llm(
        num_blocks=pool,
        block_size=size,
        max_num_seqs=draw.randint(3, 4),
        max_num_batched_tokens=draw.choice((3, 8, 32)),
        enable_prefix_caching=draw.random() < 0.5,
    )
    engine, execute = llm.engine, llm.runner.execute
    begin, fails = draw.choice((0, 0, 0, 2, 4)), draw.choice((None, None, draw.randint(1, 5)))

    def sometimes(output: object) -> object:
        if engine.scheduler.step_index == fails:
            raise RuntimeError("this step fails")
        return execute(output)

    llm.runner.execute = sometimes
    left, step = draw.randint(1, 5), 0
    while left or engine.has_unfinished_requests():
        if step == begin:
            llm.start_trace()
        for _ in range(draw.randint(0, 2)):
            if left:
                left -= 1
                n = draw.choice((1, 1, 1, 2, 3))
                prompt = [*range(5, 5 + draw.randint(1, 7)), draw.randint(20, 23)]
                tokens = draw.randint(1, 8)
                params = SamplingParams(
                    max_tokens=tokens,
                    n=n,
                    temperature=min(n - 1.0, 1.0),
                    seed=step,
                    ignore_eos=True,
                )
                engine.add_request(prompt, params)
        if engine.requests and draw.random() < 0.1:
            engine.abort(draw.choice(list(engine.requests)))
        with suppress(RuntimeError):
            engine.step()
        step += 1
    if step <= begin:
        llm.start_trace()
    return llm.stop_trace(), pool


class Count:
    """Everything the sentences name, counted from frames and events."""

    def __init__(self, trace: Trace) -> None:
        self.frames = list(trace.frames())
        self.last = self.frames[-1].state["requests"]
        self.letters = {name: letter_of(i) for i, name in enumerate(self.last)}
        self.ran: dict[tuple[str, int], tuple[int, int]] = {}
        self.failed, self.lost = set(), defaultdict(list)
        self.added, self.forks = {}, defaultdict(list)
        self.out_of_blocks = set()
        for e in trace.events:
            if e.kind == "computed":
                self.ran[e.request_id, e.clock] = (e.data["start"], e.data["end"])
            elif e.kind == "step_failed":
                self.failed.add((e.request_id, e.clock))
            elif e.kind == "preempted":
                self.lost[e.request_id].append(e.clock)
            elif e.kind == "added":
                self.added[e.request_id] = e.clock
            elif e.kind == "forked":
                self.forks[e.request_id].append((e.clock, e.data["parent"]))
            elif e.kind == "finished" and e.data["reason"] == "capacity":
                self.out_of_blocks.add((e.request_id, e.clock))
        clocks = [e.clock for e in trace.events if e.kind in IN_STEP]
        self.steps = range(min(clocks, default=1), max(clocks, default=0) + 1)

    def waits(self, name: str) -> list[int]:
        return [s for s in self.steps if self._could_run(name, s) and not self._is_dealt(name, s)]

    def _could_run(self, name: str, step: int) -> bool:
        """Unfinished in the last state before the step; a continuation only once it is one."""
        before = [f for f in self.frames if f.event is None or f.event.clock < step]
        request = before[-1].state["requests"].get(name)
        is_one = not self.forks[name] or self.forks[name][-1][0] < step
        return request is not None and request["status"] != "finished" and is_one

    def _is_dealt(self, name: str, step: int) -> bool:
        marks = (self.ran.keys(), self.failed, self.out_of_blocks)
        return any((name, step) in found for found in marks)

    def again(self, name: str) -> dict[int, int]:
        """By step: positions of a pass that the request had held in an earlier frame."""
        held: set[int] = set()
        found = {}
        for frame in self.frames:
            e = frame.event
            if e and e.kind == "computed" and e.request_id == name:
                mine = set(range(*self.ran[name, e.clock]))
                found[e.clock] = len(mine & held)
            if name in frame.state["requests"]:
                request = frame.state["requests"][name]
                outputs = len(request["token_ids"]) - request["num_prompt_tokens"]
                held |= set(range(request["num_computed_tokens"]))
                held |= set(range(len(request["token_ids"]) - 1)) if outputs else set()
        return found

    def cell(self, name: str, step: int) -> str:
        if (name, step) in self.ran:
            start, end = self.ran[name, step]
            kind = "P" if start < self.last[name]["num_prompt_tokens"] else "d"
            kind = "R" if self.again(name)[step] else kind
            return kind if kind == "d" else f"{kind} {end - start}"
        if (name, step) in self.failed:
            return "fails"
        return "waits" if step in self.waits(name) else ""

    def whole(self, name: str) -> bool:
        """Position 0, 1, 2, ... once each, prompt and outputs in passes of their own."""
        parts = [span for (who, _), span in self.ran.items() if who == name]
        prompt = self.last[name]["num_prompt_tokens"]
        flat = [position for part in parts for position in range(*part)]
        outputs = [part for part in parts if part[0] >= prompt]
        alone = all(part[1] <= prompt or part in outputs for part in parts)
        small = all(end - start == 1 for start, end in outputs)
        lost = any(self.again(name).values())
        return flat == list(range(len(flat))) and bool(outputs) and alone and small and not lost
