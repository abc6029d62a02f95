"""Take a key line out of the engine, and the claims' cells that stand on it fail.

Each cut is made in a copy of the package, and the section's cells are run against that copy in a
process of their own. So a claim's cell shows more than a printed text: it depends on the line.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="the notebooks' sources are read with jupytext")

ROOT = Path(__file__).parents[2]
SECTIONS = {"21.0": "21_0_start", "21.1": "21_1_reuse", "21.6": "21_6_growth"}


@dataclass(frozen=True)
class Cut:
    """`old` stands in the file exactly once and becomes `new`; then the claims' cells fail."""

    what: str
    file: str
    old: str
    new: str
    claims: tuple[str, ...]


CUTS = (
    Cut(
        "new keys and values are not written to their slots",
        "tensors/kv_cache.py",
        "rows.index_copy_(0, slot_mapping, new.flatten(1).to(rows.dtype))",
        "pass",
        ("21.6-c", "21.1-c", "21.0-a"),
    ),
    Cut(
        "a pass does not append its keys",
        "tensors/kv_cache.py",
        "self.keys[layer] = torch.cat((self.keys[layer], key.to(self.keys[layer].dtype)), dim=2)",
        "self.keys[layer] = self.keys[layer] if self.width else key.to(self.keys[layer].dtype)",
        ("21.6-b", "21.1-l", "21.1-k", "21.1-e"),
    ),
    Cut(
        "no causal mask",
        "tensors/attention.py",
        "device=device).tril(past)",
        "device=device)",
        ("21.1-a",),
    ),
    Cut(
        "padding may be read",
        "tensors/kv_cache.py",
        "self.mask = mask & cache.valid[:, None, :]",
        "self.mask = mask & torch.ones_like(cache.valid)[:, None, :]",
        ("21.1-h",),
    ),
    Cut(
        "scores are not divided by the root of the width",
        "tensors/attention.py",
        "scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5",
        "scores = query @ key.transpose(-1, -2)",
        ("21.1-e",),
    ),
    Cut(
        "query heads take KV heads in turn, not in groups",
        "tensors/attention.py",
        "value.repeat_interleave(group, dim=-3)",
        "value.repeat(*[1] * (value.dim() - 3), group, 1, 1)",
        ("21.1-i",),
    ),
    Cut(
        "the first row of the logits decides instead of the last",
        "tensors/runner.py",
        "wanted = [ends[row.request_id] for row in rows for _ in row.samplers]",
        "wanted = [0 for row in rows for _ in row.samplers]",
        ("21.1-b", "21.1-d"),
    ),
    Cut(
        "logits of every position are computed, not of the last one alone",
        "tensors/runner.py",
        "self.model.compute_logits(hidden if every else hidden[wanted])",
        "self.model.compute_logits(hidden)[wanted]",
        ("21.1-d",),
    ),
    Cut(
        "a later pass counts its positions from 0 again",
        "tensors/kv_cache.py",
        "(past + offsets).flatten()",
        "offsets.expand(batch, -1).flatten()",
        ("21.1-f",),
    ),
    Cut(
        "keys and values are stored twice over",
        "tensors/kv_cache.py",
        "cache.append(layer, key, value)",
        "cache.append(layer, *(x.repeat_interleave(2, dim=1) for x in (key, value)))",
        ("21.1-g", "21.1-i", "21.1-k"),
    ),
    Cut(
        "query heads that no KV heads can be shared out to are accepted",
        "tensors/config.py",
        "if self.num_query_heads % self.num_kv_heads:",
        "if False:",
        ("21.1-i",),
    ),
    Cut(
        "the formula counts keys and forgets values",
        "core/memory.py",
        "total = 2 * math.prod",
        "total = math.prod",
        ("21.1-k", "21.1-m"),
    ),
    Cut(
        "what is stored has the type that computes",
        "tensors/kv_cache.py",
        "self.keys[layer] = torch.cat((self.keys[layer], key.to(self.keys[layer].dtype)), dim=2)",
        "self.keys[layer] = torch.cat((self.keys[layer].to(key.dtype), key), dim=2)",
        ("21.6-a", "21.1-k", "21.1-l"),
    ),
    Cut(
        "positions go to the next slot",
        "tensors/input_batch.py",
        "table[t // block_size] * block_size + t % block_size for t",
        "table[t // block_size] * block_size + (t + 1) % block_size for t",
        ("21.6-c",),
    ),
    Cut(
        "selecting an output counts as processing it",
        "core/scheduler.py",
        "r.num_computed_tokens = row.end",
        "r.num_computed_tokens = row.end + len(row.samplers)",
        ("21.6-b", "21.6-d", "21.6-c"),
    ),
    Cut(
        "probabilities that were cut off are not made up for",
        "tensors/sampling.py",
        "return kept / kept.sum()",
        "return kept",
        ("21.6-f",),
    ),
    Cut(
        "a request takes one block more than it needs",
        "core/kv_cache_manager.py",
        "while len(table) < cdiv(length, self.block_size):",
        "while len(table) <= cdiv(length, self.block_size):",
        ("21.1-n",),
    ),
    Cut(
        "the recorded weights are zeros",
        "tensors/runner.py",
        "[layer] = weights[:, 0]",
        "[layer] = 0 * weights[:, 0]",
        ("21.1-l",),
    ),
    Cut(
        "a request that has ended keeps its blocks",
        "core/kv_cache_manager.py",
        "released = self.pool.free_blocks(reversed(table))",
        "released = []",
        ("21.6-g",),
    ),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A copy of the package to cut in."""
    home = tmp_path_factory.mktemp("cut")
    shutil.copytree(ROOT / "kvlab", home / "kvlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "notebooks/source", home / "notebooks/source")
    return home


def outcome(home: Path, notebook: str, claims: Sequence[str] = ()) -> dict:
    """Which claims failed when the notebook's cells ran against the package under `home`."""
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            *(sys.executable, "-B", str(Path(__file__).with_name("run_cells.py"))),
            *(str(home / f"notebooks/source/{notebook}.py"), *claims),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("notebook", SECTIONS.values())
def test_without_a_cut_no_claim_fails(whole: Path, notebook: str) -> None:
    found = outcome(whole, notebook)
    failed = {claim: error for claim, error in found["claims"].items() if error}
    assert failed == {} and found["others"] == []


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.what)
def test_a_cut_makes_its_claims_fail(whole: Path, cut: Cut) -> None:
    path = whole / "kvlab" / cut.file
    text = path.read_text(encoding="utf-8")
    assert text.count(cut.old) == 1, f"{cut.old!r} stands {text.count(cut.old)} times"
    path.write_text(text.replace(cut.old, cut.new), encoding="utf-8")
    try:
        found = {}
        for section, notebook in SECTIONS.items():
            if claims := [claim for claim in cut.claims if claim.startswith(section)]:
                found |= outcome(whole, notebook, claims)["claims"]
    finally:
        path.write_text(text, encoding="utf-8")
    assert [claim for claim in cut.claims if found[claim] is None] == []


def test_the_list_is_long_enough() -> None:
    assert len(CUTS) >= 8 and len({cut.what for cut in CUTS}) == len(CUTS)
