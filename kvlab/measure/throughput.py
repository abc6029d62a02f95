"""Tokens a second of kvlab beside three ways of transformers, in turns, on the same prompts.

Every round has prompts of its own, so that no prefix cache finds any of them; within a round all
competitors continue the same ones, and their greedy tokens have to agree.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from kvlab.measure import competitors as c
from kvlab.measure.agreement import MISMATCH, differences
from kvlab.measure.rounds import interleave, paired_ratio, summary
from kvlab.measure.subjects import Subject, random_prompts

WHOLE_CALL = "generate_batch, whole call"  # generate_batch with its set-up and tear-down
# kvlab's tokens/s over theirs
GOALS = {c.LOOP: 1.0, c.GENERATE: None, c.BATCHING: 2.0, WHOLE_CALL: 2.0}
QUICK = "left out of a quick run"


@dataclass(frozen=True)
class Workload:
    """rounds are kept; `warm_up` more come before them."""

    rounds: int
    warm_up: int
    batches: tuple[int, ...]
    prompt_tokens: int
    new_tokens: int


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch inside; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(subject: Subject, load: Workload, quick: bool) -> list[dict[str, object]]:
    """One row of figures for each batch size."""
    engines = {c.KVLAB: c.kvlab_engine(subject.folder)}
    absent = QUICK if quick else None
    if not quick:
        try:
            engines |= c.transformers_competitors(subject.folder)
        except ImportError as error:
            absent = f"{error.name or 'transformers'} is not installed"
    rows = []
    for batch in load.batches:
        prompts = [
            random_prompts(batch, load.prompt_tokens, vocab_size(subject), seed=1000 * batch + i)
            for i in range(load.warm_up + load.rounds)
        ]
        row = compare(subject, engines, prompts, load.new_tokens, load.warm_up, GOALS)
        rows.append({"model": subject.name, "batch": batch, "absent": absent, **row})
    return rows


def vocab_size(subject: Subject) -> int:
    return json.loads((subject.folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]


def compare(
    subject: Subject,
    engines: Mapping[str, c.Competitor],
    prompts: list[list[list[int]]],
    new_tokens: int,
    warm_up: int,
    goals: Mapping[str, float | None],
) -> dict[str, object]:
    """Figures of every engine, kvlab's ratios to the others, and whose tokens differ.

    prompts: of each round; the first `warm_up` rounds are not counted.
    """
    tasks = {name: lambda i, run=run: run(prompts[i], new_tokens) for name, run in engines.items()}
    runs = interleave(tasks, len(prompts))
    if c.BATCHING in runs:
        runs[WHOLE_CALL] = [replace(r, seconds=r.call_seconds) for r in runs[c.BATCHING]]
    figures = {name: _figures(done[warm_up:]) for name, done in runs.items()}
    return {
        "engines": figures,
        "ratios": _ratios(figures, goals),
        "agreement": _agreement(subject, prompts, runs),
    }


def _figures(runs: list[c.Run]) -> dict[str, object]:
    """cpu_share: CPU time over time; near 1 while one thread works undisturbed."""
    return {
        "tokens_per_second": summary([r.tokens_per_second for r in runs]),
        "seconds": summary([r.seconds for r in runs]),
        "cpu_share": summary([r.cpu_seconds / r.call_seconds for r in runs]),
    }


def _ratios(
    engines: Mapping[str, dict], goals: Mapping[str, float | None]
) -> dict[str, dict[str, object]]:
    """of_best: the ratio of the two best rounds, which others on the machine disturbed least."""
    rates = {name: e["tokens_per_second"]["repetitions"] for name, e in engines.items()}
    ours = rates.pop(c.KVLAB)
    return {
        name: {
            "goal": goals[name],
            "of_best": max(ours) / max(theirs),
            **paired_ratio(ours, theirs),
        }
        for name, theirs in rates.items()
    }


def _agreement(
    subject: Subject, prompts: list[list[list[int]]], runs: Mapping[str, list[c.Run]]
) -> dict[str, dict[str, object]]:
    """Warm-up rounds included: requests compared, near ties, mismatches."""
    found = {}
    for name in runs:
        if name in (c.KVLAB, WHOLE_CALL):
            continue
        said = [
            sentence
            for asked, ours, theirs in zip(prompts, runs[c.KVLAB], runs[name], strict=True)
            for sentence in differences(subject.folder, asked, ours.token_ids, theirs.token_ids)
        ]
        found[name] = {
            "requests": sum(map(len, prompts)),
            "near_ties": [s for s in said if not s.startswith(MISMATCH)],
            "mismatches": [s for s in said if s.startswith(MISMATCH)],
        }
    return found
