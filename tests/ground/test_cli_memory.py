"""`kvlab memory`, run as a user runs it."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kvlab import cli

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32,
}  # fmt: skip


def run(*arguments: str):
    return CliRunner().invoke(cli.app, ["memory", *arguments])


def figures(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("kvlab: ") and result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def llama(tmp_path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


def test_a_file_its_folder_a_preset_and_the_tiny_model(llama, tmp_path):
    from_file, from_folder = figures(llama), figures(str(tmp_path))
    assert from_file["bytes_per_token"] == from_folder["bytes_per_token"] == 131072
    assert figures("llama-3.1-8b")["bytes_per_token"] == 131072
    assert figures("tiny", "--context", "10")["bytes"] == 4 * 2 * 2 * 32 * 2 * 10


def test_a_folder_without_a_configuration_hides_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "llama-3.1-8b", "other"):
        (tmp_path / name).mkdir()
    assert figures("tiny")["bytes_per_token"] == 1024
    assert figures("llama-3.1-8b")["bytes_per_token"] == 131072
    assert "config.json' is not a file" in refused("other")
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(LLAMA))
    assert figures("tiny")["bytes_per_token"] == 131072


def test_the_keys_that_are_promised(llama):
    found = figures(llama, "--context", "20000", "--requests", "2", "--blocks", "1952")
    promised = {
        "bytes_per_token": 131072, "bytes": 2 * 20000 * 131072, "sliding_layers": 0,
        "full_layers": 32, "state_bytes_per_request": 0, "bytes_per_token_per_rank": 131072,
        "heads_per_rank": 8, "group_total": 131072, "tokens": 31232, "concurrency": 1.5616,
        "context_that_fits": 15616, "policy": "capped", "pool_bytes": 4093640704,
        "expanded_bytes_per_token": None,
    }  # fmt: skip
    assert {key: found[key] for key in promised} == promised


def test_a_budget_gives_the_blocks(llama):
    found = figures(llama, "--budget", "4093640704")
    assert (found["blocks"], found["tokens"], found["concurrency"]) == (1952, 31232, None)
    assert found["bytes"] == 4093640704  # without a context, the whole pool's
    left = figures(llama, "--budget", "24GiB", "--weights", "15GiB", "--other", "1GiB")
    assert (left["blocks"], left["context_that_fits"]) == (4096, 65536)


def test_windows_ranks_and_mla():
    gemma = figures("gemma-3-27b", "--context", "131072")
    assert (gemma["bytes"], gemma["sliding_layers"]) == (11173625856, 52)
    oss = ["gpt-oss-20b", "--context", "8192", "--requests", "32"]
    assert figures(*oss)["bytes"] == 6543114240
    reserved = figures(*oss, "--window-policy", "reserve_full")
    assert (reserved["bytes"], reserved["policy"]) == (12884901888, "reserve_full")
    ranks = figures("llama-3.1-70b", "--tp", "16")
    assert (ranks["heads_per_rank"], ranks["bytes_per_token_per_rank"]) == (1, 40960)
    assert ranks["group_total"] == 655360
    latent, expanded = figures("deepseek-v3"), figures("deepseek-v3", "--mla", "expanded")
    assert (latent["bytes_per_token"], latent["expanded_bytes_per_token"]) == (70272, 4997120)
    assert expanded["bytes_per_token"] == 4997120


def test_a_latent_that_fills_blocks_needs_no_heads_that_do(tmp_path):
    """The latent's 576 numbers are 18 blocks; a head's 164 would fill none."""
    path = tmp_path / "mla.json"
    path.write_text(json.dumps({
        "model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16,
        "num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 100, "v_head_dim": 100,
    }))  # fmt: skip
    found = figures(str(path), "--dtype", "q8_0")
    assert (found["bytes_per_token"], found["expanded_bytes_per_token"]) == (2 * 18 * 34, None)
    assert figures(str(path))["expanded_bytes_per_token"] == 2 * 16 * (164 + 100) * 2
    assert "packs 32 values" in refused(str(path), "--dtype", "q8_0", "--mla", "expanded")


def test_a_window_in_every_layer_with_the_steps_tokens(tmp_path):
    path = tmp_path / "starcoder2.json"
    path.write_text(json.dumps({
        "model_type": "starcoder2", "hidden_size": 3072, "num_attention_heads": 24,
        "num_key_value_heads": 2, "num_hidden_layers": 30, "sliding_window": 4096,
    }))  # fmt: skip
    pool = ["--blocks", "137407", "--context", "16384", "--max-num-batched-tokens", "8192"]
    found = figures(str(path), *pool)
    assert (found["tokens"], round(found["concurrency"], 2)) == (2198512, 178.68)
    half = figures(str(path), *pool, "--block-size", "32")
    assert (half["tokens"], half["blocks_per_request"]) == (2 * 2198512, 385)


def test_formats(llama):
    shares = {
        dtype: figures(llama, "--dtype", dtype)["share_of_2_byte_payload"]
        for dtype in ("bf16", "fp32", "fp8", "int8", "q8_0", "q4_0")
    }
    assert shares == {
        "bf16": 1, "fp32": 2, "fp8": 0.5, "int8": 0.515625, "q8_0": 0.53125, "q4_0": 0.28125,
    }  # fmt: skip
    two = figures(llama, "--dtype", "int8", "--scale-bytes", "2")
    assert two["bytes_per_token"] == 32 * 2 * 8 * 130


def test_a_table_gives_the_reason_for_each_figure():
    result = run("qwen3-next-80b-a3b", "--context", "32768", "--budget", "80GiB")
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    for words in (
        "24,576 bytes", "12 of 48 layers keep K/V", "36 keep a fixed state", "74.25 MiB (77.86 MB)",
        "longest context", "block_size is raised from 16 to 1056",
        "12 full layers × 32,768 positions × 2 (K, V) × 2 heads × 256 values × 2 bytes",
    ):  # fmt: skip
        assert words in text or words.replace(" ", "") in text.replace(" │ ", "").replace(" ", "")


def test_an_unknown_type_is_computed_and_told(tmp_path):
    path = tmp_path / "new.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "llama_9"}))
    found = figures(str(path))
    assert found["bytes_per_token"] == 131072
    assert "model_type 'llama_9' is unknown here" in found["notices"][0]
    assert "note: model_type 'llama_9' is unknown here" in run(str(path)).stdout


def test_lengths_beyond_the_models_own_are_told():
    notice = "the configuration gives the model at most 131,072 positions, fewer than shown here"
    assert figures("llama-3.1-8b", "--context", "131073")["notices"] == [notice]
    assert figures("llama-3.1-8b", "--budget", "80GiB")["notices"] == [notice]
    assert figures("llama-3.1-8b", "--context", "131072")["notices"] == []


def test_a_pool_that_holds_nothing_is_told(llama):
    small = figures(llama, "--budget", "131071")
    assert (small["bytes"], small["tokens"], small["context_that_fits"]) == (0, 0, 0)
    assert small["notices"] == [
        "blocks in the pool: 0 of 2,097,152 bytes, while one token needs 1, so none fits",
        "not even one position of each request fits",
    ]
    two_groups = figures("gpt-oss-20b", "--blocks", "1")
    assert two_groups["tokens"] == 0
    told = "blocks in the pool: 1 of 393,216 bytes, while one token needs 2, so none fits"
    assert told in two_groups["notices"]
    long = figures(llama, "--blocks", "10", "--context", "161")
    assert long["concurrency"] == 10 / 11
    assert long["notices"] == ["a request needs 11 blocks and the pool has 10: none fits"]
    assert figures(llama, "--blocks", "10", "--context", "160")["notices"] == []


def test_json_is_ascii_for_every_terminal(llama):
    """Another program may read it in an encoding without our multiplication sign."""
    program = "from kvlab.cli import app; app()"
    shown = subprocess.run(
        [sys.executable, "-c", program, "memory", llama, "--json"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert shown.returncode == 0, shown.stderr
    formula = json.loads(shown.stdout.decode("ascii"))["formula"]
    assert formula[0].startswith("32 full layers × 1 position")


def test_what_does_not_fit_is_one_line(llama, tmp_path):
    assert "'gpt-5' is no file, and no preset" in refused("gpt-5")
    assert "8 KV heads cannot be shared out over 3 ranks" in refused(llama, "--tp", "3")
    assert "--context is 0" in refused(llama, "--context", "0")
    assert "below 2^200" in refused(llama, "--context", "9" * 400)
    assert "give one of them" in refused(llama, "--blocks", "1", "--budget", "1GiB")
    assert "give it as well" in refused(llama, "--weights", "1GiB")
    assert "'1G' is no size" in refused(llama, "--budget", "1G")
    assert "less than --weights" in refused(llama, "--budget", "1GiB", "--weights", "2GiB")
    assert "0 to 1,024" in refused(llama, "--dtype", "int8", "--scale-bytes", "9" * 400)
    assert "dtype is 'int3'" in refused(llama, "--dtype", "int3")
    assert "window policy is 'some'" in refused(llama, "--window-policy", "some")
    assert "leave it out" in refused(llama, "--mla", "expanded")
    assert "is no file" in refused("x" * 5000)
    broken = tmp_path / "broken.json"
    broken.write_text('{"model_type": "llama", "num_hidden_layers": ')
    assert "broken.json is no JSON text" in refused(str(broken))
    broken.write_text('{"model_type": "llama"}')
    assert "broken.json: num_hidden_layers is missing" in refused(str(broken))


def test_it_needs_neither_torch_nor_numpy():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from kvlab import cli\n"
        "print(CliRunner().invoke(cli.app, ['memory', 'tiny', '--json']).exit_code)\n"
        "print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.split("\n")[:2] == ["0", "[]"], shown.stderr
