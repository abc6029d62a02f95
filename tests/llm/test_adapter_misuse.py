"""Adapters' folders that are made to harm, and what people do with adapters by mistake."""

import json
import re

import pytest

from kvlab import LLM, SamplingParams, tiny
from kvlab.tensors.checkpoint import CheckpointError, load_config
from kvlab.tensors.lora import random_adapter
from kvlab.tensors.lora_config import read_config
from kvlab.tensors.lora_files import load_adapter, save_adapter

CONFIG = load_config(tiny.FOLDER)
NAME = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path):
    save_adapter(random_adapter(CONFIG, seed=1), tmp_path)
    return tmp_path


def change(folder, **keys):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


ENDLESS = [
    "(a+)+$|(.*.*.*.*)*x",
    "(([a-z0-9_.]+)+)+!",
    "(?:a|[a-z._0-9])*!",
    "(?P<x>.+){9,}!",
    "((.|x)y?)+!",
    r"(.*)*?!",
    ".*" * 7 + "!",
    "a?" * 30 + "a" * 30,
]


@pytest.mark.parametrize("key", ["target_modules", "exclude_modules", "rank_pattern"])
@pytest.mark.parametrize("pattern", ENDLESS)
def test_an_expression_that_would_search_for_years(folder, pattern, key):
    change(folder, **{key: {pattern: 4} if key == "rank_pattern" else pattern})
    with pytest.raises(CheckpointError, match=f"{key} has .*(repeats|repeated group)"):
        load_adapter(folder, CONFIG)


@pytest.mark.parametrize(
    ("pattern", "whether"),
    [
        (r".*(q_proj|v_proj)$", True),
        (r"model\.layers\.(0|1|2)\.self_attn\.(q|v)_proj", True),
        (r"(model\.)?layers\.[0-9]+\.mlp\.(up|down)_proj", False),
        (r"^(?!.*patch_embed).*(?:linear|self_attn\.q_proj)$", True),
        (r"[\w.*+?{(|]+", True),  # in a class they stand for themselves
        (
            r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|down_proj).*?)|"
            r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|down_proj)))",
            True,
        ),
    ],
)
def test_expressions_that_people_write(folder, pattern, whether):
    change(folder, target_modules=pattern)
    said = read_config(folder / "adapter_config.json")
    assert said.targets(NAME) is whether is (re.fullmatch(pattern, NAME) is not None)


def test_a_name_stays_while_a_request_that_was_put_aside_uses_it(folder):
    llm = LLM("tiny", num_blocks=32, block_size=4, cpu_blocks=32)
    llm.load_adapter("a", folder)
    deltas = llm.stream([5, 6, 7], SamplingParams(max_tokens=6), adapter="a", request_id="r")
    next(iter(deltas))
    llm.suspend("r")
    with pytest.raises(ValueError, match="in use by r"):
        llm.unload_adapter("a")
    llm.resume("r")
    rest = sum(len(delta.token_ids) for delta in deltas)
    llm.unload_adapter("a")
    assert rest > 0 and llm.adapters == {} and llm.runner.adapters == {}


def test_two_names_for_the_same_weights(folder):
    llm = LLM("tiny", num_blocks=32, block_size=4)
    assert llm.load_adapter("a", folder) == llm.load_adapter("b", folder)
    deltas = llm.stream([5, 6, 7], SamplingParams(max_tokens=4), adapter="a")
    next(iter(deltas))
    llm.unload_adapter("a")  # the request goes on under the other
    with pytest.raises(ValueError, match="'b' is in use"):
        llm.unload_adapter("b")
    assert [*deltas] and llm.adapters.keys() == {"b"}
