"""Folders that hold no complete checkpoint, or name what lies elsewhere: refused, nothing run."""

import json
import math
import os
import pickle
import re
import struct

import pytest
import torch
from builders import random_model
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from kvlab.tensors import checkpoint_files
from kvlab.tensors.checkpoint import CheckpointError, load_model
from kvlab.tensors.checkpoint_files import slices
from kvlab.tensors.checkpoint_save import save_model

MODEL = random_model(1)


@pytest.fixture
def folder(tmp_path):
    """A whole checkpoint in a folder that has a neighbour."""
    save_model(MODEL, tmp_path / "model", dtype=torch.float32)
    return tmp_path / "model"


def refused(folder, *words):
    """Whether loading fails with an error that has all these words."""
    with pytest.raises(CheckpointError) as error:
        load_model(folder)
    return [word for word in words if word not in str(error.value)] == []


def shard(folder, names=("one.safetensors", "two.safetensors")):
    """Split the folder's file in two and write the index; returns the paths."""
    whole = folder / "model.safetensors"
    tensors = sorted(load_file(whole).items())
    half, weight_map = len(tensors) // 2, {}
    for name, part in zip(names, (tensors[:half], tensors[half:]), strict=True):
        save_file(dict(part), folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(dict(part), name)
    whole.unlink()
    write_index(folder, weight_map)
    return [folder / name for name in names]


def write_index(folder, weight_map):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def same_weights(folder):
    found = load_model(folder).state_dict()
    return all(torch.equal(found[name], want) for name, want in MODEL.state_dict().items())


def test_one_file_and_two_are_the_same_model(folder):
    assert same_weights(folder)
    shard(folder)
    assert same_weights(folder)


def test_read_in_slices_of_any_size(folder, monkeypatch):
    shard(folder)
    for nbytes in (1, 500, 3000):
        monkeypatch.setattr(checkpoint_files, "SLICE_NBYTES", nbytes)
        assert same_weights(folder)


def test_no_slice_is_larger_than_said(folder, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "SLICE_NBYTES", 2048)
    path = folder / "model.safetensors"
    parts = list(slices(path, "model.embed_tokens.weight"))  # [61, 32], float32
    assert [len(part) for part in parts] == [8] * 7 + [5]
    assert torch.equal(torch.cat(parts), load_file(path)["model.embed_tokens.weight"])


class TestTheIndex:
    @pytest.mark.parametrize(
        "name",
        ["../other/one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..", "",
         "..\\one.safetensors", "./one.safetensors"],
    )  # fmt: skip
    def test_paths_are_no_file_names(self, folder, name):
        (one, _) = shard(folder)
        (folder.parent / "other").mkdir()
        one.rename(folder.parent / "other" / "one.safetensors")
        write_index(folder, {"a": name, "b": "two.safetensors"})
        assert refused(folder, repr(name), "not a file name inside the folder")

    def test_a_link_out_of_the_folder(self, folder):
        one, _ = shard(folder)
        outside = folder.parent / "elsewhere.safetensors"
        one.rename(outside)
        one.symlink_to(outside)
        assert refused(folder, "'one.safetensors'", "elsewhere.safetensors", "outside the folder")

    def test_a_link_within_the_folder(self, folder):
        one, _ = shard(folder)
        one.rename(folder / "real.safetensors")
        one.symlink_to("real.safetensors")
        assert same_weights(folder)

    def test_the_links_of_a_hub_cache(self, folder):
        shard(folder)
        blobs = folder.parent / "models--a--b" / "blobs"
        revision = folder.parent / "models--a--b" / "snapshots" / "0123abcd"
        blobs.mkdir(parents=True)
        revision.mkdir(parents=True)
        for i, path in enumerate(sorted(folder.iterdir())):
            path.rename(blobs / f"{i}")
            (revision / path.name).symlink_to(os.path.join("..", "..", "blobs", f"{i}"))
        assert same_weights(revision)
        (blobs / "9").symlink_to("/etc/hostname")
        (revision / "two.safetensors").unlink()
        (revision / "two.safetensors").symlink_to(blobs / "9")
        assert refused(revision, "two.safetensors", "outside the folder")

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 3}}',
         '{"weight_map": {"a": null}}', '{"weight_map": ["a"]}', '{"weight_map": {"a": ["b"]}}',
         "[" * 100_000],
    )  # fmt: skip
    def test_a_damaged_one(self, folder, text):
        (folder / "model.safetensors.index.json").write_text(text)
        assert refused(folder, "model.safetensors.index.json is not a weight index")

    def test_it_names_a_file_that_is_not_there(self, folder):
        shard(folder)[1].unlink()
        assert refused(folder, "two.safetensors is missing")

    def test_it_names_a_pickle_file(self, folder):
        shard(folder)
        write_index(folder, {"a": "pytorch_model-00001-of-00002.bin"})
        assert refused(folder, "pytorch_model-00001-of-00002.bin", "a pickle file", "safetensors")


class Marks:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


class TestNothingIsExecuted:
    @pytest.mark.parametrize(
        "name",
        ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "model.ckpt", "model.safetensors"],
    )
    def test_a_pickle_file_under_any_name(self, folder, tmp_path, name):
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(pickle.dumps(Marks(tmp_path / "mark")))
        words = ["cannot be read"] if name == "model.safetensors" else [name, "a pickle file"]
        assert refused(folder, "model.safetensors", *words)
        assert not (tmp_path / "mark").exists()
        pickle.loads((folder / name).read_bytes()).close()  # it would have
        assert (tmp_path / "mark").exists()

    def test_code_beside_the_weights(self, folder, tmp_path):
        mark = tmp_path / "mark"
        for name in ("modeling_own.py", "configuration_own.py", "__init__.py", "conftest.py"):
            (folder / name).write_text(f"open({str(mark)!r}, 'w')\n")
        config = json.loads((folder / "config.json").read_text())
        own = {"AutoModelForCausalLM": "modeling_own.Own", "AutoConfig": "configuration_own.Own"}
        (folder / "config.json").write_text(json.dumps(config | {"auto_map": own}))
        assert same_weights(folder)
        config |= {"auto_map": own, "architectures": ["OwnForCausalLM"], "model_type": "own"}
        (folder / "config.json").write_text(json.dumps(config))
        assert refused(folder, "'OwnForCausalLM' is not supported", "LlamaForCausalLM")
        assert not mark.exists()


class TestDamagedFiles:
    def test_cut_at_any_place(self, folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        for keep in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:keep])
            assert refused(folder, "model.safetensors", "truncated or damaged")

    @pytest.mark.parametrize(
        "header",
        [
            b"",
            b"not json",
            b"[]",
            b'{"a": 3}',
            b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 999]}}',
            b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}',
            b'{"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}',
        ],
    )
    def test_a_header_that_lies(self, folder, header):
        data = struct.pack("<Q", len(header)) + header + bytes(16)
        (folder / "model.safetensors").write_bytes(data)
        assert refused(folder, "model.safetensors", "truncated or damaged")

    def test_a_header_without_end(self, folder):
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + bytes(100))
        assert refused(folder, "model.safetensors", "truncated or damaged")

    def test_a_folder_in_the_place_of_the_file(self, folder):
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").mkdir()
        assert refused(folder, "model.safetensors is missing")

    def test_integers_in_the_place_of_weights(self, folder):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors["model.norm.weight"] = torch.ones(32, dtype=torch.int32)
        save_file(tensors, path)
        assert refused(folder, "model.norm.weight is stored as I32", "BF16")

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("model.norm.weight", [31]),
            ("model.embed_tokens.weight", [0, 5]),
            ("model.layers.1.self_attn.k_proj.weight", [3, 31]),  # in the middle of ours
            ("model.layers.0.mlp.up_proj.weight", [40, 0]),
        ],
    )
    def test_a_weight_that_is_not_finite(self, folder, monkeypatch, name, place, value):
        monkeypatch.setattr(checkpoint_files, "SLICE_NBYTES", 3 * 32 * 8)  # three rows at a time
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors[name][tuple(place)] = value
        save_file(tensors, path)
        assert refused(folder, f"{path}: {name} holds {value} at {place}; get the file again")

    def test_a_weight_that_the_dtype_cannot_hold(self, folder):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors["model.norm.weight"][7] = 70_000.0  # float16 ends at 65,504
        save_file(tensors, path)
        says = "holds 70000.0 at [7]; torch.float16 cannot hold it: give dtype=torch.float32"
        with pytest.raises(CheckpointError, match=re.escape(says)):
            load_model(folder, dtype=torch.float16)
        assert load_model(folder).norm.weight[7] == 70_000.0

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def test_any_damage_to_the_header_is_found_or_harmless(self, tmp_path_factory, data):
        folder = tmp_path_factory.mktemp("damaged")
        save_model(MODEL, folder, dtype=torch.float32)
        path = folder / "model.safetensors"
        stored = bytearray(path.read_bytes())
        end = 8 + struct.unpack("<Q", stored[:8])[0]
        stored[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(stored)
        try:
            harmless = same_weights(folder)
        except CheckpointError as error:
            assert str(folder) in str(error)
        else:
            assert harmless


def test_a_configuration_that_is_a_folder(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert refused(folder, "config.json")
