"""`kvlab generate` as a reader runs it."""

import json
import subprocess
import sys

from kvlab.core.trace import Trace


def kvlab(*arguments):
    code = "from kvlab.cli import app; app()"
    return subprocess.run(
        [sys.executable, "-c", code, "generate", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_text_streams_to_stdout():
    done = kvlab("Ada likes soup. What does Ada like?")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Ada likes soup.\n", "")


def test_json_and_trace(tmp_path):
    path = tmp_path / "trace.json"
    done = kvlab(
        "Ada likes soup. What does Ada like?", "--json", "--max-tokens", "3", "--trace", str(path)
    )
    report = json.loads(done.stdout)
    assert report["text"] == " Ada likes soup"
    assert report["output_token_ids"] == [261, 871, 518]
    assert report["cached_positions"] == [13, 14, 15]
    assert report["finish_reason"] == "length"
    assert report["times"]["ttft"] > 0
    trace = Trace.load(path)
    assert [e.data["token_id"] for e in trace.events if e.kind == "selected"] == [261, 871, 518]


def test_a_seed_repeats_a_draw():
    options = ("--temperature", "1.5", "--seed", "3", "--max-tokens", "12")
    one, two = (kvlab("Tell me a story about Ada.", *options).stdout for _ in range(2))
    assert one == two != ""


def test_unknown_words_are_told_on_stderr():
    done = kvlab("Ada likes soups. What does Ada like?", "--json")
    assert "'soups'" in done.stderr
    assert "'soups'" in json.loads(done.stdout)["notice"]


def test_mistakes_are_one_line_and_exit_code_2():
    for arguments, words in (
        (("hi", "--model", "nowhere"), "'nowhere' is neither 'tiny' nor a folder"),
        (("hi", "--max-tokens", "0"), "max_tokens is 0"),
        (("hi", "--trace", "/no/such/place/t.json"), "is not a file in a folder that exists"),
    ):
        done = kvlab(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
