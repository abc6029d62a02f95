"""Which layers have windows: read from a config.json, kept in one form, written back."""

import json

import pytest
import torch
from builders import random_model
from hypothesis import given, settings
from hypothesis import strategies as st
from test_against_transformers import SIZES, save_random, set_config
from test_attention_ops import CONFIG
from test_sliding_window import FULL, SLIDING, logits_of, tokens_of, without_cache

from kvlab.core.spec import KVCacheSpec
from kvlab.tensors.checkpoint import CheckpointError, load_config, load_model
from kvlab.tensors.checkpoint_save import save_model
from kvlab.tensors.config import ModelConfig, config_from_hf
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import PagedCache

transformers = pytest.importorskip("transformers")


def drop_key(folder, key):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.pop(key, None)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("family", "changes", "window", "kinds"),
    [
        ("Mistral", {"sliding_window": 5}, 5, ()),
        ("Mistral", {"sliding_window": 5, "layer_types": [SLIDING] * 2}, 5, ()),
        ("Mistral", {"sliding_window": None, "layer_types": [FULL] * 2}, None, ()),
        ("Qwen2", {"sliding_window": 5}, None, ()),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": None}, None, ()),
        ("Qwen2", {"use_sliding_window": True, "max_window_layers": 0}, 4096, ()),
        ("Qwen2", {"use_sliding_window": True}, None, ()),  # from layer 28 on: none of two
        (
            "Qwen3",
            {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
            6,
            (FULL, SLIDING),
        ),
        ("Qwen3", {"layer_types": [FULL] * 2}, None, ()),
    ],
)
def test_what_is_read(tmp_path, family, changes, window, kinds):
    save_random(tmp_path, family, **({"sliding_window": None} if family == "Mistral" else {}))
    rest = {"layer_types": None, "max_window_layers": None, "use_sliding_window": None}
    set_config(tmp_path, **(({} if family == "Mistral" else rest) | changes))
    if family == "Qwen2" and "sliding_window" not in changes:
        drop_key(tmp_path, "sliding_window")
    config = load_config(tmp_path)
    assert (config.sliding_window, config.layer_types) == (window, kinds)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_three_readers_agree(data):
    """Ours, the memory calculator's, and the classes of transformers."""
    family = data.draw(st.sampled_from(["Mistral", "Qwen2", "Qwen3"]))
    keys = SIZES | {"num_hidden_layers": data.draw(st.integers(1, 4))}
    keys["sliding_window"] = data.draw(st.none() | st.integers(1, 9))
    if family != "Mistral":
        keys["use_sliding_window"] = data.draw(st.booleans())
        keys["max_window_layers"] = data.draw(st.integers(0, 5))
        words = [SLIDING, FULL] if keys["use_sliding_window"] and keys["sliding_window"] else [FULL]
        if data.draw(st.booleans()):
            count = keys["num_hidden_layers"]
            keys["layer_types"] = data.draw(
                st.lists(st.sampled_from(words), min_size=count, max_size=count)
            )
    theirs = getattr(transformers, f"{family}Config")(**keys)
    kinds = getattr(theirs, "layer_types", None) or [SLIDING] * keys["num_hidden_layers"]
    wanted = [theirs.sliding_window if kind == SLIDING else None for kind in kinds]
    named = {"architectures": [f"{family}ForCausalLM"], "model_type": family.lower()}
    for written in (keys | named, theirs.to_dict() | named):
        ours = config_from_hf(written)
        assert [ours.window_of(i) for i in range(ours.num_layers)] == wanted
        assert [layer.window for layer in KVCacheSpec.from_config(written).layers] == wanted


def test_mistral_without_the_key_has_a_window_of_4096(tmp_path):
    save_random(tmp_path, "Mistral")
    drop_key(tmp_path, "sliding_window")
    assert load_config(tmp_path).sliding_window == 4096


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("Mistral", {"sliding_window": 0}, "sliding_window is 0; .* at least 1"),
        ("Mistral", {"sliding_window": "8"}, "sliding_window is '8'"),
        ("Mistral", {"sliding_window": 8, "layer_types": [FULL] * 2}, "every layer"),
        ("Mistral", {"sliding_window": None, "layer_types": [SLIDING] * 2}, "no window is"),
        ("Mistral", {"sliding_window": 8, "use_sliding_window": False}, "keep one"),
        ("Qwen2", {"layer_types": [SLIDING] * 2}, "use_sliding_window true"),
        ("Qwen2", {"layer_types": [FULL] * 3}, "describes 3 layers.* is 2"),
        ("Qwen2", {"layer_types": ["chunked_attention"] * 2}, "'chunked_attention'"),
        ("Qwen2", {"layer_types": FULL}, "must be a list"),
        ("Qwen2", {"use_sliding_window": "yes"}, "use_sliding_window is 'yes'"),
        (
            "Qwen2",
            {"use_sliding_window": True, "layer_types": None, "max_window_layers": -1,
             "sliding_window": 4},
            "max_window_layers is -1",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, family, changes, words):
    save_random(tmp_path, family)
    set_config(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=words):
        load_model(tmp_path)


def test_one_form_for_one_computation():
    plain = ModelConfig(**CONFIG.__dict__)
    assert (
        ModelConfig(**{**CONFIG.__dict__, "sliding_window": 4, "layer_types": [FULL] * 2}) == plain
    )
    all_of_them = {**CONFIG.__dict__, "sliding_window": 4}
    assert ModelConfig(**{**all_of_them, "layer_types": [SLIDING] * 2}) == ModelConfig(
        **all_of_them
    )
    mixed = ModelConfig(**{**all_of_them, "layer_types": [SLIDING, FULL]})
    assert [mixed.window_of(i) for i in (0, 1)] == [4, None]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"sliding_window": True}, "sliding_window is True"),
        ({"layer_types": (SLIDING, FULL)}, "give sliding_window too"),
        ({"layer_types": (FULL,), "sliding_window": 3}, "each of 2 layers"),
    ],
)
def test_our_own_fields_are_checked(changes, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig(**{**CONFIG.__dict__, **changes})


def test_windows_enter_the_identity():
    def model_part(**changes):
        model = random_model(0, **changes)
        return configuration_of(model, PagedCache(model.config, 4, 4))["model"]

    parts = [
        model_part(),
        model_part(sliding_window=4),
        model_part(sliding_window=5),
        model_part(sliding_window=4, layer_types=(SLIDING, FULL)),
        model_part(sliding_window=4, layer_types=(FULL, SLIDING)),
    ]
    assert all(a != b for i, a in enumerate(parts) for b in parts[:i])


@pytest.mark.parametrize(
    ("architecture", "kinds"),
    [
        ("MistralForCausalLM", ()),
        ("Qwen2ForCausalLM", (SLIDING, FULL)),
        ("Qwen3ForCausalLM", ()),
    ],
)
def test_saved_and_loaded_again(tmp_path, architecture, kinds):
    more = {
        "Qwen2ForCausalLM": {"qkv_bias": True},
        "Qwen3ForCausalLM": {"qk_norm": True},
    }.get(architecture, {})
    model = random_model(1, architecture=architecture, sliding_window=3, layer_types=kinds, **more)
    save_model(model, tmp_path, dtype=torch.float32)
    again = load_model(tmp_path)
    found = (again.config.sliding_window, again.config.layer_types)
    assert found == (3, tuple(kinds))
    ids = tokens_of(30) % 61
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="eager"
    )
    want = logits_of(theirs.float(), ids)
    assert (without_cache(again, ids) - want).abs().max() < 1e-4


def test_a_llama_cannot_be_saved_with_a_window(tmp_path):
    with pytest.raises(ValueError, match=r"sliding_window is 3, which the config\.json of a Llama"):
        save_model(random_model(1, sliding_window=3), tmp_path)
