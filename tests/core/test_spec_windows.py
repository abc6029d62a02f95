"""Whose sliding_window counts: that of classes that have windows, as in transformers."""

import pytest

from kvlab.core.budget import block_layout
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage

SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def spec_of(model_type, **keys):
    return KVCacheSpec.from_config({**SIZES, "model_type": model_type, **keys})


@pytest.mark.parametrize("model_type", ["llama", "granite", "olmo2", "glm4", "falcon", "gpt_neox"])
def test_a_stray_window_of_a_class_without_windows_is_ignored_and_told(model_type):
    spec = spec_of(model_type, sliding_window=8)
    assert spec.windows == () and spec.full_layers == 2
    assert f"sliding_window 8 is ignored: the {model_type} class has no windows" in spec.notices
    assert Storage(spec).nbytes(100) == 100 * Storage(spec).bytes_per_token
    assert not any("ignored" in text for text in spec_of(model_type).notices)
    assert not any("ignored" in text for text in spec_of(model_type, sliding_window=None).notices)


@pytest.mark.parametrize(
    ("model_type", "keys"),
    [
        ("mistral", {}), ("mixtral", {}), ("ministral3", {}), ("phi3", {}), ("starcoder2", {}),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}),
    ],
)  # fmt: skip
def test_classes_with_windows_keep_theirs(model_type, keys):
    spec = spec_of(model_type, sliding_window=8, **keys)
    assert spec.windows == (8,) and spec.sliding_layers == 2
    assert not any("ignored" in text for text in spec.notices)


def test_an_unknown_class_is_taken_at_its_word():
    spec = spec_of("something_new", sliding_window=8)
    assert spec.windows == (8,) and any("taken to hold" in text for text in spec.notices)


def test_the_layers_own_list_is_read_in_any_case():
    kinds = ["sliding_attention", "full_attention"]
    assert spec_of("llama", sliding_window=8, layer_types=kinds).sliding_layers == 1


def test_the_classes_of_transformers_agree():
    """Each known class that is not in our list of windowed ones lacks the key in transformers."""
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    from kvlab.core.spec_families import FAMILIES, PLAIN, has_no_windows

    unread = {"iquestcoder", "nemotron_h", "qwen3_vl_moe"}  # they have the key, no layer reads it
    compared = 0
    for name in sorted({*FAMILIES, *PLAIN} - unread):
        for known in (f"{name}_text", name):  # the language part, where there are pictures too
            if known in auto.CONFIG_MAPPING:
                keys = dir(auto.CONFIG_MAPPING[known]())
                windowed = {"sliding_window", "attention_window_size"} & {*keys}
                assert has_no_windows(name) == (not windowed), name
                compared += 1
                break
    assert compared > 100


def test_freed_is_the_policy_of_blocks_that_come_back():
    """Window 8, block size 4, 30 positions: 7 are kept for the next query, in 3 blocks of 8."""
    spec = spec_of("mistral", sliding_window=8)
    by = {p: Storage(spec, policy=p) for p in ("capped", "dynamic", "freed", "reserve_full")}
    token = by["freed"].bytes_per_token
    assert {p: s.nbytes(30) // token for p, s in by.items()} == {
        "capped": 8, "dynamic": 7, "freed": 7, "reserve_full": 30,
    }  # fmt: skip
    freed, reserved = (block_layout(by[p], 4) for p in ("freed", "reserve_full"))
    assert (freed.blocks_at(30), reserved.blocks_at(30)) == (3, 8)
    assert (freed.blocks(30, 1), freed.blocks(30, 6), freed.blocks(30, 2048)) == (3, 4, 8)
    assert by["freed"].freeing_window == 8 and by["freed"].bends == (7,)
    alone = Storage(spec_of("mistral", sliding_window=1), policy="freed")
    assert alone.nbytes(30) == alone.bytes_per_token  # the last position stays
