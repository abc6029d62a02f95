"""kvlab beside transformers at 135 million parameters: 1 request, 16, and 16 that begin alike.

Here the products of a step take the time, no longer the calls around them. Nothing is set by hand
for kvlab; transformers' continuous batching gets its fastest settings (see `competitors`). Its
`generate` has no cache that outlives a call, and computes a shared prefix once a request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvlab.measure import competitors as c
from kvlab.measure.report import aligned, beside
from kvlab.measure.subjects import Subject, random_prompts, write_135m
from kvlab.measure.throughput import WHOLE_CALL, compare, vocab_size

GOALS = {c.GENERATE: 1.0, c.BATCHING: 1.0, WHOLE_CALL: 1.0}  # kvlab's tokens/s over theirs


@dataclass(frozen=True)
class Case:
    """Prompts of `shared` common tokens, then `own` random ones each. rounds: all are counted."""

    name: str
    batch: int
    shared: int
    own: int
    new_tokens: int
    rounds: int

    def prompts(self, round_number: int, vocabulary: int) -> list[list[int]]:
        """Of one round; no prefix cache has seen any of them."""
        seed = 10_000 * (self.batch + self.shared) + 2 * round_number
        (prefix,) = random_prompts(1, self.shared, vocabulary, seed)
        return [
            [*prefix, *own] for own in random_prompts(self.batch, self.own, vocabulary, seed + 1)
        ]


CASES = (
    Case("1 request", 1, 0, 64, 32, 5),
    Case("16 requests", 16, 0, 64, 32, 3),
    Case("16 sharing 512", 16, 512, 32, 16, 2),
)


def measure(folder: Path, cases: Sequence[Case] = CASES) -> list[dict[str, object]]:
    """A row for each case. folder: where the weights are written, half a gigabyte."""
    return measure_subject(write_135m(folder), cases)


def measure_subject(subject: Subject, cases: Sequence[Case]) -> list[dict[str, object]]:
    engines, absent = {c.KVLAB: c.kvlab_engine(subject.folder)}, None
    try:
        engines |= c.transformers_competitors(subject.folder)
        del engines[c.LOOP]  # `generate` is the same loop
    except ImportError as error:
        absent = f"{error.name or 'transformers'} is not installed"
    rows = []
    for case in cases:
        prompts = [case.prompts(i, vocab_size(subject)) for i in range(case.rounds)]
        row = compare(subject, engines, prompts, case.new_tokens, 0, GOALS)
        rows.append({"model": subject.name, "work": case.name, "absent": absent, **row})
    return rows


def table(rows: Sequence[Mapping] | str) -> str:
    """rows: those of `measure`, or why there are none."""
    title = (
        "Tokens a second at 135 million parameters: one thread, float32, greedy; in turns, medians"
    )
    if isinstance(rows, str):
        return f"{title}\n  {rows}"
    lines = [["work", "engine", "tokens/s", "", "kvlab / it", "at best", "goal", "same tokens"]]
    for row in rows:
        for name, figures in row["engines"].items():
            rate = figures["tokens_per_second"]
            cells = [f"{rate['median']:,.1f}", f"[{rate['min']:,.1f} .. {rate['max']:,.1f}]"]
            lines.append([row["work"], name, *cells, *beside(row, name)])
    notes = [f"  the model: {rows[0]['model']}"]
    if rows[0]["absent"]:
        notes.append(f"  the engines of transformers: {rows[0]['absent']}")
    return "\n".join([title, aligned(lines), *notes])
