"""Adapters as PEFT writes them: read, written, and refused with the file and the key named."""

import json
import pickle

import pytest
import torch
from builders import random_model
from safetensors.torch import load_file, save_file

from kvlab.tensors.checkpoint_files import CheckpointError
from kvlab.tensors.lora import projections, random_adapter
from kvlab.tensors.lora_config import AdapterConfig, read_config
from kvlab.tensors.lora_files import load_adapter, save_adapter

CONFIG = random_model(3).config  # 2 layers, hidden 32, heads 4 and 2 of 8, inner 48
Q0 = "base_model.model.model.layers.0.self_attn.q_proj"
EVERY = "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"


@pytest.fixture
def folder(tmp_path):
    save_adapter(random_adapter(CONFIG, 3, names=EVERY), tmp_path / "adapter")
    return tmp_path / "adapter"


def edit(folder, **keys):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def tensors(folder, change):
    """Rewrite the weights after `change` has edited them."""
    path = folder / "adapter_model.safetensors"
    held = load_file(path)
    change(held)
    save_file(held, path)


def refused(folder, *words):
    """Whether loading fails with an error that has all these words."""
    with pytest.raises(CheckpointError) as error:
        load_adapter(folder, CONFIG)
    return [word for word in words if word not in str(error.value)] == []


def test_written_and_read_again(folder):
    adapter = load_adapter(folder, CONFIG)
    assert adapter.identity == random_adapter(CONFIG, 3, names=EVERY).identity
    keys = json.loads((folder / "adapter_config.json").read_text())
    assert (keys["r"], keys["lora_alpha"]) == (3, 3.0)
    assert keys["target_modules"] == sorted(EVERY)


def test_what_is_not_in_every_layer_or_not_alike_is_written_too(tmp_path):
    whole = random_adapter(CONFIG, 3, names=("q_proj", "up_proj"))
    other = random_adapter(CONFIG, 2, names=("q_proj",))
    name, left_out = "layers.1.self_attn.q_proj", "layers.0.mlp.up_proj"
    changes = dict(whole.changes) | {name: other.changes[name]}
    del changes[left_out]
    adapter = type(whole)(changes, CONFIG)
    save_adapter(adapter, tmp_path)
    again = load_adapter(tmp_path, CONFIG)
    assert again.identity == adapter.identity and len(again.changes) == 3
    assert len(again.changes[name].a) == 2


def test_older_keys_with_the_adapters_name(folder):
    def rename(held):
        for key in list(held):
            held[key.replace(".weight", ".default.weight")] = held.pop(key)

    before = load_adapter(folder, CONFIG).identity
    tensors(folder, rename)
    assert load_adapter(folder, CONFIG).identity == before


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({}, 1.0),
        ({"lora_alpha": 12}, 4.0),
        ({"lora_alpha": 12, "use_rslora": True}, 12 / 3**0.5),
        ({"alpha_pattern": {"q_proj": 6}}, 2.0),
        ({"alpha_pattern": {"layers.0.self_attn.q_proj": 6}}, 2.0),
        ({"alpha_pattern": {"layers.1.self_attn.q_proj": 6}}, 1.0),
        ({"alpha_pattern": {r"^model\.layers\.[01]\..*": 6, "q_proj": 9}}, 2.0),
        ({"alpha_pattern": {"proj": 6}}, 1.0),
    ],
)
def test_scales(folder, keys, scale):
    edit(folder, **keys)
    found = load_adapter(folder, CONFIG).changes["layers.0.self_attn.q_proj"].scale
    assert found == pytest.approx(scale)


def test_another_rank_by_pattern(folder):
    def shorter(held):
        held[f"{Q0}.lora_A.weight"] = torch.ones(2, 32)
        held[f"{Q0}.lora_B.weight"] = torch.ones(32, 2)

    tensors(folder, shorter)
    assert refused(folder, f"{Q0}.lora_A has shape [2, 32], expected [3, 32]")
    edit(folder, rank_pattern={"layers.0.self_attn.q_proj": 2})
    assert load_adapter(folder, CONFIG).changes["layers.0.self_attn.q_proj"].scale == 1.5


NAMES = [f"model.{name}" for name in projections(CONFIG)]


@pytest.mark.parametrize(
    ("keys", "targets"),
    [
        ({"target_modules": "all-linear"}, 14),
        ({"target_modules": ("q_proj", "v_proj")}, 4),
        ({"target_modules": ("self_attn.q_proj",)}, 2),
        ({"target_modules": ("model.layers.1.mlp.up_proj",)}, 1),
        ({"target_modules": ("proj",)}, 0),
        ({"target_modules": r".*\.layers\.1\.self_attn\.[qkvo]_proj"}, 4),
        ({"target_modules": "q_proj"}, 0),  # an expression has to match the whole name
        ({"target_modules": ("q_proj", "o_proj"), "layers_to_transform": (1,)}, 2),
        ({"target_modules": r".*q_proj", "layers_to_transform": (1,)}, 2),
        ({"target_modules": ("q_proj", "o_proj"), "exclude_modules": ("o_proj",)}, 2),
        ({"target_modules": "all-linear", "exclude_modules": r".*mlp.*"}, 8),
    ],
)
def test_targets_by_pefts_rules(keys, targets):
    said = AdapterConfig(4, 8, **keys)
    assert sum(said.targets(name) for name in NAMES) == targets


class TestTensorsThatDoNotFit:
    @pytest.mark.parametrize(
        ("key", "shape", "words"),
        [
            (f"{Q0}.lora_A.weight", (3, 31), f"{Q0}.lora_A has shape [3, 31], expected [3, 32]"),
            (f"{Q0}.lora_B.weight", (16, 3), f"{Q0}.lora_B has shape [16, 3], expected [32, 3]"),
            (f"{Q0}.lora_A.weight", (3,), f"{Q0}.lora_A has shape [3], expected [3, 32]"),
        ],
    )
    def test_shapes(self, folder, key, shape, words):
        tensors(folder, lambda held: held.update({key: torch.zeros(shape)}))
        assert refused(folder, "adapter_model.safetensors", words)

    def test_integers(self, folder):
        key = f"{Q0}.lora_B.weight"
        tensors(folder, lambda held: held.update({key: torch.zeros(32, 3, dtype=torch.int8)}))
        assert refused(folder, f"{key} is stored as I8", "BF16")

    @pytest.mark.parametrize("half", ["lora_A", "lora_B"])
    @pytest.mark.parametrize(("value", "told"), [(torch.nan, "nan"), (-torch.inf, "-inf")])
    def test_what_is_no_finite_number(self, folder, half, value, told):
        key = f"{Q0}.{half}.weight"
        tensors(folder, lambda held: held[key][2:3, 1:2].fill_(value))
        assert refused(folder, "adapter_model.safetensors", f"{Q0}.{half} holds {told} at [2, 1]")
        assert refused(folder, "look at the training")

    @pytest.mark.parametrize("half", ["lora_A", "lora_B"])
    def test_a_missing_half(self, folder, half):
        tensors(folder, lambda held: held.pop(f"{Q0}.{half}.weight"))
        assert refused(folder, f"{Q0}.{half}.weight is missing")

    def test_a_target_without_tensors(self, folder):
        tensors(folder, lambda held: [held.pop(f"{Q0}.lora_{x}.weight") for x in "AB"])
        assert refused(folder, f"{Q0}.lora_A.weight is missing", "adapter_config.json names")

    def test_tensors_that_are_no_target(self, folder):
        edit(folder, target_modules=["k_proj"])
        assert refused(folder, "lora_A.weight is there, but adapter_config.json does not name it")

    @pytest.mark.parametrize(
        "key",
        [
            "base_model.model.lm_head.lora_A.weight",
            "base_model.model.model.embed_tokens.lora_embedding_A",
            f"{Q0}.lora_magnitude_vector",
            f"{Q0}.lora_B.bias",
            f"{Q0}.lora_A.other.weight",
            "model.layers.0.self_attn.q_proj.lora_A.weight",
        ],
    )
    def test_keys_without_a_place(self, folder, key):
        tensors(folder, lambda held: held.update({key: torch.zeros(3, 32)}))
        assert refused(folder, f"{key} has no place")

    def test_a_layer_too_many(self, folder):
        key = Q0.replace("layers.0", "layers.7")
        more = {
            f"{key}.lora_A.weight": torch.ones(3, 32),
            f"{key}.lora_B.weight": torch.ones(32, 3),
        }
        tensors(folder, lambda held: held.update(more))
        assert refused(folder, f"{key}.lora_A.weight has no place in this model")

    def test_both_spellings_at_once(self, folder):
        key = f"{Q0}.lora_A.default.weight"
        tensors(folder, lambda held: held.update({key: torch.zeros(3, 32)}))
        assert refused(folder, f"{Q0}.lora_A.weight is there twice")

    def test_nothing_at_all(self, folder):
        edit(folder, target_modules=["c_attn"])
        save_file({}, folder / "adapter_model.safetensors")
        assert refused(folder, "changes nothing")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is None"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"use_dora": True}, "DoRA also scales each row"),
        ({"fan_in_fan_out": True}, "stored transposed"),
        ({"modules_to_save": ["lm_head"]}, "whole modules are replaced"),
        ({"lora_bias": True}, "a bias would be added"),
        ({"layer_replication": [[0, 1]]}, "layers would be used several times"),
        ({"trainable_token_indices": [3]}, "rows of the embedding"),
        ({"target_parameters": ["experts"]}, "no linear layers"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": 1}, "init_lora_weights is 1"),
        ({"a_key_of_tomorrow": True}, "a_key_of_tomorrow is True, which is not supported"),
        ({"r": 0}, "r is 0"),
        ({"r": True}, "r is True"),
        ({"r": None}, "r is None"),
        ({"rank_pattern": {"q_proj": 1.5}}, "rank_pattern['q_proj'] is 1.5"),
        ({"rank_pattern": ["q_proj"]}, "rank_pattern is ['q_proj']; expected an object"),
        ({"alpha_pattern": {"(": 3}}, "no regular expression"),
        ({"lora_alpha": "8"}, "lora_alpha is '8'"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"lora_alpha": 1e300}, "lora_alpha is 1e+300"),
        ({"use_rslora": "yes"}, "use_rslora is 'yes'"),
        ({"target_modules": None}, "target_modules is missing or empty"),
        ({"target_modules": "("}, "no regular expression"),
        ({"target_modules": "a" * 5000}, "no regular expression: longer than 2000"),
        ({"target_modules": [3]}, "target_modules is [3]"),
        ({"layers_to_transform": [-1]}, "layers_to_transform is [-1]"),
        ({"layers_to_transform": "0"}, "layers_to_transform is '0'"),
        ({"layers_pattern": "h"}, "layers_pattern is 'h'"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(folder, keys, words):
    edit(folder, **keys)
    assert refused(folder, "adapter_config.json", words)


def test_keys_that_change_nothing_are_read_over(folder):
    before = load_adapter(folder, CONFIG).identity
    edit(
        folder, base_model_name_or_path="a/b", peft_version="0.21.2", lora_dropout=0.1,
        revision="1", use_dora=False, modules_to_save=None, loftq_config={}, auto_mapping=None,
        megatron_core="megatron.core", qalora_group_size=16, layers_pattern=None,
        exclude_modules=None,
    )  # fmt: skip
    assert load_adapter(folder, CONFIG).identity == before


class TestDamagedFolders:
    @pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
    def test_a_damaged_configuration(self, folder, text):
        (folder / "adapter_config.json").write_text(text)
        assert refused(folder, "adapter_config.json")

    def test_missing_files(self, folder):
        (folder / "adapter_config.json").unlink()
        assert refused(folder, "adapter_config.json is missing")
        assert refused(folder / "nowhere", "is not a folder")
        with pytest.raises(CheckpointError, match="missing; give the folder of a LoRA adapter"):
            read_config(folder / "adapter_config.json")

    def test_cut_at_any_place(self, folder):
        path = folder / "adapter_model.safetensors"
        data = path.read_bytes()
        for keep in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:keep])
            assert refused(folder, "adapter_model.safetensors", "truncated or damaged")

    def test_a_link_out_of_the_folder(self, folder):
        path = folder / "adapter_model.safetensors"
        path.rename(folder.parent / "elsewhere.safetensors")
        path.symlink_to(folder.parent / "elsewhere.safetensors")
        assert refused(folder, "elsewhere.safetensors, outside the folder")

    def test_a_pickle_file_is_never_opened(self, folder, tmp_path):
        class Marks:
            def __reduce__(self):
                return (open, (str(tmp_path / "mark"), "w"))

        (folder / "adapter_model.safetensors").unlink()
        assert refused(folder, "adapter_model.safetensors is missing")
        (folder / "adapter_model.bin").write_bytes(pickle.dumps(Marks()))
        assert refused(folder, "adapter_model.bin is a pickle file")
        assert not (tmp_path / "mark").exists()
