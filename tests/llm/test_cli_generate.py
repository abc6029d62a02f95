"""`kvlab generate` as a reader runs it."""

import json
import os
import subprocess
import sys

import pytest
from full_disk import files_end_at

from kvlab import cli_generate
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


@pytest.mark.parametrize("text", ["mytext\n", "", '{"a": 1}', '{"a":' * 200_000, "[" * 200_000])
def test_a_file_that_is_no_trace_is_not_written_over(tmp_path, text):
    mine, link = tmp_path / "mine.txt", tmp_path / "link"
    mine.write_text(text, encoding="utf-8")
    link.symlink_to(mine)
    for place in (mine, link):
        with pytest.raises(ValueError, match=f"{place.name}', which is there and no trace; name a"):
            cli_generate.run("hi", max_tokens=2, trace=place)
    assert mine.read_text(encoding="utf-8") == text and link.is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_and_a_device_are_refused_before_the_model_answers(tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path / "fifo", "/dev/null"):
        with pytest.raises(ValueError, match="which is there and no trace"):
            cli_generate.run("hi", max_tokens=2, trace=tmp_path / place)
    assert capsys.readouterr().out == ""


def test_an_old_trace_is_replaced_or_kept_whole_and_the_answer_is_shown(tmp_path, capsys):
    path = tmp_path / "trace.json"
    for count in (2, 1):
        cli_generate.run("Ada likes", max_tokens=count, trace=path)
    kept = path.read_bytes()
    assert sum(event.kind == "selected" for event in Trace.load(path).events) == 1
    capsys.readouterr()
    with files_end_at(4096), pytest.raises(OSError, match="File too large") as caught:
        cli_generate.run("Ada likes soup. What does Ada like?", trace=path)
    assert caught.value.filename == str(path)
    assert capsys.readouterr().out == "Ada likes soup.\n"
    assert path.read_bytes() == kept and [each.name for each in tmp_path.iterdir()] == [path.name]
