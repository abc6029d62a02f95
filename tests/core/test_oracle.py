"""Traces recorded from vLLM 0.33.0's manager: the same answers, field by field."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
RECORDED = TESTS / "data" / "kv_manager_traces.json.gz"


def run(path):
    command = [sys.executable, str(TESTS / "replay_oracle.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_six_recorded_traces_have_no_mismatch(tmp_path):
    path = tmp_path / "traces.json"
    path.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    done = run(path)
    assert done.stdout.strip() == "traces 6 steps 3805 mismatches 0"
    assert done.returncode == 0


def test_a_wrong_answer_is_reported(tmp_path):
    traces = json.loads(gzip.decompress(RECORDED.read_bytes()))[:1]
    traces[0]["steps"] = traces[0]["steps"][:20]
    traces[0]["steps"][0]["expect"]["table"][0] += 1
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(traces))
    done = run(path)
    assert done.stdout.splitlines()[-1] == "traces 1 steps 20 mismatches 1"
    assert done.returncode == 1
