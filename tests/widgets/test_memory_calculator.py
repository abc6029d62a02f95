"""The memory calculator: worked examples to the byte, the picture's rules, errors that stay."""

import json
import subprocess
import sys
from itertools import pairwise

import comm
import pytest
from comm.base_comm import BaseComm
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core import presets
from kvlab.core.formats import FORMATS
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.widgets import LiveEditor, memory_calculator
from kvlab.widgets.memory_models import EXAMPLE, PASTED, TINY, model_choices, model_named
from kvlab.widgets.memory_story import calculate, ticks

GIB = 2**30
HOSTILE = "<img src=x onerror=alert(1)>"
BASE = {
    "model": "llama-3.1-8b", "config": EXAMPLE, "context": 8192, "requests": 8, "dtype": "bf16",
    "ranks": 1, "block_size": 16, "gpu": 80, "other": 2, "window_policy": "capped",
    "mla": "latent",
}  # fmt: skip


@pytest.fixture
def calculator(monkeypatch: pytest.MonkeyPatch) -> LiveEditor:
    class SilentComm(BaseComm):
        def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
            pass

    monkeypatch.setattr(comm, "create_comm", SilentComm)
    return memory_calculator()


def view(**changes: object) -> dict:
    return calculate(**{**BASE, **changes})["view"]


def figures(**changes: object) -> dict[str, str]:
    return {name: value for name, value, _ in view(**changes)["figures"]}


def parts(**changes: object) -> dict[str, int]:
    return {letter: size for letter, _, size, _ in view(**changes)["bar"]["parts"]}


def at(curve: dict, length: int) -> int:
    """The curve's bytes at a length: straight between two corners."""
    corners = curve["points"]
    for (a, low), (b, high) in pairwise(corners):
        if a <= length <= b:
            return low + (high - low) * (length - a) // (b - a)
    raise AssertionError(f"{length} is outside of the curve")


def pasted(**keys: object) -> dict[str, object]:
    return {"model": PASTED, "config": json.dumps(keys)}


# ---- worked examples


def test_llama_8b_takes_131072_bytes_a_token() -> None:
    found = figures()
    assert found["a token"] == "131,072 bytes"
    assert found["whole cache"] == "8.00 GiB (8.59 GB)"
    assert found["next position"] == "1,048,576 bytes"
    assert view()["formula"] == [
        "8 requests × 32 full layers × 8,192 positions × 2 (K, V) × 8 heads × 128 values × 2 bytes "
        "= 8,589,934,592 bytes"
    ]


def test_the_bar_of_llama_8b_on_80_gib() -> None:
    weights = 16_060_522_496
    assert parts() == {
        "W": weights,
        "K": 8 * GIB,
        "T": 0,
        "S": 0,
        "O": 2 * GIB,
        "F": 70 * GIB - weights,
    }
    lines = calculate(**BASE)["lines"]
    assert lines[0] == [
        "One GPU",
        "✓ fits: 24.96 GiB of 80.00 GiB (85.90 GB) used, 55.04 GiB (59.10 GB) free",
        "answer",
    ]
    assert lines[1][1] == "32 of 32 layers keep K/V · bf16: 2 bytes a value"


def test_tokens_and_requests_that_fit_in_whole_blocks() -> None:
    room = 78 * GIB - 16_060_522_496
    blocks = room // (16 * 131072)
    found = figures()
    assert found["blocks in it"] == f"{blocks:,}" == "32,277"
    assert found["tokens that fit"] == f"{16 * blocks:,}" == "516,432"
    assert found["requests in it"] == "63.04"  # 32,277 blocks, 512 a request
    assert found["longest context"] == f"{room // (8 * 131072):,}" == "64,555"


def test_block_tails_are_the_empty_slots_of_the_last_blocks() -> None:
    """1,000 positions take 63 blocks of 16: 8 slots of each request stay empty."""
    assert parts(context=1000)["T"] == 8 * 8 * 131072
    assert parts(context=1000, block_size=8)["T"] == 0
    assert parts(context=1000, block_size=256)["T"] == 8 * 24 * 131072


def test_what_does_not_fit_is_missing_and_the_curve_says_from_where() -> None:
    shown = view(context=65536)
    assert shown["bar"]["missing"] == 66 * GIB + 16_060_522_496 - 80 * GIB == 1_028_136_960
    assert dict((p[0], p[2]) for p in shown["bar"]["parts"])["F"] == 0
    assert shown["curve"]["limit"] == 64555
    assert at(shown["curve"], 64555) <= shown["curve"]["room"] < at(shown["curve"], 64556)
    assert "✗ does not fit: 980.51 MiB (1,028.14 MB) missing" in str(
        calculate(**{**BASE, "context": 65536})["lines"]
    )
    assert shown["sentence"].endswith("; the room is full after 64,555 positions.")


def test_weights_that_leave_no_room() -> None:
    shown = view(model="llama-3.1-70b")
    assert (shown["curve"]["room"], shown["curve"]["limit"]) == (0, 0)
    assert figures(model="llama-3.1-70b")["requests in it"] == "0.00"
    assert shown["curve"]["end"] == "there is no room for it"


def test_ranks_share_weights_and_heads() -> None:
    alone, shared = parts(model="llama-3.1-70b"), parts(model="llama-3.1-70b", ranks=4)
    assert 4 * shared["W"] == alone["W"] == 141_107_412_992
    assert 4 * shared["K"] == alone["K"] == 8 * 8192 * 327680
    found = {name: row for name, *row in view(model="llama-3.1-70b", ranks=4)["figures"]}
    assert found["on this GPU"] == ["5.00 GiB (5.37 GB)", "one of 4 ranks: 2 KV heads each"]


# ---- the curve


@pytest.mark.parametrize(
    ("model", "window", "policy", "bend", "before", "after"),
    [
        ("mistral-7b-v0.1", 4096, "capped", 4096, 131072, 0),
        ("mistral-7b-v0.1", 4096, "dynamic", 4095, 131072, 0),
        ("gpt-oss-20b", 128, "capped", 128, 49152, 24576),
        ("gemma-3-27b", 1024, "capped", 1024, 507904, 81920),
    ],
)
def test_a_window_bends_the_curve_where_it_is_full(
    model: str, window: int, policy: str, bend: int, before: int, after: int
) -> None:
    curve = view(model=model, window_policy=policy, requests=1, context=window)["curve"]
    assert curve["bends"] == [bend]
    assert at(curve, bend) - at(curve, bend - 1) == before
    assert at(curve, bend + 1) - at(curve, bend) == after
    assert [length for length, _ in curve["points"]][1] == bend


def test_without_window_support_nothing_bends() -> None:
    curve = view(model="mistral-7b-v0.1", window_policy="reserve_full", requests=1)["curve"]
    assert curve["bends"] == []
    assert all(size == length * 131072 for length, size in curve["points"])


def test_a_state_is_flat_and_takes_any_number_of_tokens() -> None:
    shown = view(model="mamba-2.8b")
    assert {size for _, size in shown["curve"]["points"]} == {8 * 23_592_960}
    assert parts(model="mamba-2.8b")["S"] == 8 * 23_592_960
    assert figures(model="mamba-2.8b")["tokens that fit"] == "any number"
    assert "The curve is flat: a state does not grow; no length" in shown["sentence"]


def test_a_hybrid_keeps_a_state_below_a_straight_line() -> None:
    shown = view(model="qwen3-next-80b-a3b", requests=1)
    (zero, state), *_ = shown["curve"]["points"]
    assert zero == 0 and at(shown["curve"], 1) - state == 24576
    lines = calculate(**{**BASE, "model": "qwen3-next-80b-a3b"})["lines"]
    assert lines[1][1].startswith("12 of 48 layers keep K/V · 36 keep a fixed state")


def test_a_short_context_is_shown_among_its_windows_and_a_long_one_to_the_end() -> None:
    reach = [view(model="gpt-oss-20b", context=n)["curve"]["longest"] for n in (128, 2048, 2049)]
    assert reach == [2048, 2048, 131072]


@pytest.mark.parametrize(
    ("top", "texts"),
    [
        (8 * GIB, ["4 GiB", "8 GiB"]),
        (3 * GIB, ["1 GiB", "2 GiB", "3 GiB"]),
        (GIB, ["512 MiB", "1,024 MiB"]),
        (1000, ["256 bytes", "512 bytes", "768 bytes"]),
        (1, ["1 bytes"]),
    ],
)
def test_the_axis_has_round_sizes(top: int, texts: list[str]) -> None:
    assert [text for _, text in ticks(top)] == texts


# ---- MLA and formats


def test_a_latent_its_expanded_form_and_a_choice_without_effect() -> None:
    found = figures(model="deepseek-v3")
    assert (found["a token"], found["MLA expanded"]) == ("70,272 bytes", "4,997,120 bytes")
    assert figures(model="deepseek-v3", mla="expanded")["a token"] == "4,997,120 bytes"
    assert view(mla="expanded")["notices"] == [
        "this model has no latent: the choice of an MLA form changes nothing"
    ]
    assert {**view(mla="expanded"), "notices": []} == view()


@pytest.mark.parametrize(
    ("dtype", "each"),
    [("fp32", 262144), ("fp8", 65536), ("int8", 67584), ("q8_0", 69632), ("q4_0", 36864)],
)
def test_formats_with_their_scales(dtype: str, each: int) -> None:
    """Llama-3.1-8B has 512 vectors of 128 a token; int8 adds 4 bytes to each."""
    assert figures(dtype=dtype)["a token"] == f"{each:,} bytes"


# ---- a pasted configuration


def test_a_pasted_configuration_is_the_same_model_without_weights() -> None:
    shown = view(model=PASTED)
    assert figures(model=PASTED)["a token"] == "131,072 bytes"
    assert parts(model=PASTED)["W"] == 0
    assert shown["bar"]["parts"][0][1] == "weights, unknown"
    assert shown["notices"][-1].startswith("a config.json does not say how large the weights are")


def test_a_pasted_text_that_is_not_chosen_is_told() -> None:
    assert view(config="{}")["notices"] == [
        "your config.json is not used; choose 'pasted config' as the model"
    ]
    assert view(config="")["notices"] == view()["notices"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no config.json is pasted; paste one"),
        ("{", "config.json is no JSON text: Expecting property name"),
        ("[1]", "config.json holds no keys and values"),
        ('"/etc/passwd"', "config.json holds no keys and values"),
        ("[" * 9000, "config.json is nested too deeply"),
        ('{"model_type": "llama"}', "config.json: num_hidden_layers is missing"),
        (EXAMPLE.replace("4096", '"many"'), "hidden_size is 'many'"),
        (EXAMPLE.replace("8}", "7}"), "num_key_value_heads"),
    ],
)
def test_an_error_names_what_is_wrong_and_the_last_state_stays(
    calculator: LiveEditor, text: str, said: str
) -> None:
    before = calculator.result
    calculator.set(model=PASTED, config=text)
    assert calculator.result["error"].startswith("ValueError: ")
    assert said in calculator.result["error"]
    assert calculator.result["view"] == before["view"]
    assert calculator.result["lines"] == before["lines"]
    with pytest.raises(ValueError, match="config"):
        calculator.check()
    calculator.set(model="mamba-2.8b")
    calculator.check()
    assert calculator.result["view"]["title"] == "Mamba 2.8B: one GPU's memory"


def test_heads_that_ranks_cannot_share_are_an_error(calculator: LiveEditor) -> None:
    keys = {**json.loads(EXAMPLE), "num_attention_heads": 40, "num_key_value_heads": 10}
    keys["hidden_size"] = 5120
    calculator.set(model=PASTED, config=json.dumps(keys), ranks=4)
    assert "10 KV heads cannot be shared out over 4 ranks" in calculator.result["error"]


def test_a_huge_context_of_the_configuration_is_no_trouble() -> None:
    keys = {**json.loads(EXAMPLE), "max_position_embeddings": 10**300}
    assert view(**pasted(**keys))["curve"]["longest"] == 2**40


def test_many_kinds_of_layers_are_cut_to_a_few_terms() -> None:
    keys = {"model_type": "openelm", "num_transformer_layers": 40, "head_dim": 64}
    heads = list(range(1, 41))
    keys |= {"model_dim": 1280, "num_query_heads": heads, "num_kv_heads": heads}
    formula = view(**pasted(**keys))["formula"]
    assert len(formula) == 7 and formula[-1] == "… and 34 more kinds of layers"


# ---- the editor and its forms


def test_the_function_asks_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = memory_calculator("gemma-3-27b", context=1234, requests=5, gpu_gib=141, other_gib=5)
    assert asked.inputs == {
        **BASE,
        "model": "gemma-3-27b",
        "context": 1234,
        "requests": 5,
        "gpu": 141,
        "other": 5,
    }
    assert 1234 in asked.controls["context"].values
    own = memory_calculator(config=json.loads(EXAMPLE), weights="15GiB")
    assert own.inputs["model"] == PASTED
    assert own.result["view"]["bar"]["parts"][0][2] == 15 * GIB
    assert memory_calculator(config=presets.TINY).result["error"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "gpt-5"}, "model is 'gpt-5'; choose one of deepseek-v3, "),
        ({"context": 0}, "context is 0; give a whole number from 1"),
        ({"requests": 2.5}, "requests is 2.5; give a whole number"),
        ({"dtype": "fp7"}, "dtype is 'fp7'; choose one of bf16"),
        ({"model": TINY, "config": {}}, "model and config both say"),
        ({"weights": "15GiB"}, "weights belong to a config"),
        ({"config": {"model_type": "llama"}}, "num_hidden_layers is missing"),
        ({"config": "nowhere.json"}, "nowhere.json"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        memory_calculator(**wrong)


def test_the_html_form_holds_every_figure_and_repeats(calculator: LiveEditor) -> None:
    page = calculator.html()
    assert len(page) < 40_000 and page == memory_calculator().html()
    assert page.count("<table>") == 4
    for _, value, reason in calculator.result["view"]["figures"]:
        assert f"<td>{value}</td>" in page and reason.split("'")[0] in page
    assert "<td>16,060,522,496</td><td>14.96 GiB (16.06 GB)</td>" in page
    assert repr(calculator).startswith("LiveEditor('Memory calculator: what fits on one GPU', ")


def test_hostile_text_is_escaped_in_the_html_form(calculator: LiveEditor) -> None:
    calculator.set(config=HOSTILE)
    calculator.check()  # another model is chosen, so that the text is only shown
    calculator.set(model=PASTED, config=json.dumps({"num_hidden_layers": HOSTILE}))
    assert HOSTILE in calculator.result["error"]
    assert "<img" not in calculator.html()


def test_it_needs_no_torch() -> None:
    program = (
        "import sys; from kvlab.widgets import memory_calculator; memory_calculator().html()\n"
        "print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


# ---- what holds for all inputs

INPUTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from([name for name in model_choices() if name != PASTED]),
        "config": st.just(""),
        "context": st.integers(1, 2**20),
        "requests": st.integers(1, 1024),
        "dtype": st.sampled_from(sorted(FORMATS)),
        "ranks": st.sampled_from([1, 2, 4, 8]),
        "block_size": st.sampled_from([1, 16, 100, 256]),
        "gpu": st.integers(1, 192),
        "other": st.integers(0, 32),
        "window_policy": st.sampled_from(["capped", "dynamic", "reserve_full"]),
        "mla": st.sampled_from(["latent", "expanded"]),
    }
)


@given(INPUTS)
def test_the_bar_adds_up_and_the_curve_is_what_the_core_computes(inputs: dict) -> None:
    shown, spec = calculate(**inputs)["view"], model_named(inputs["model"]).spec
    bar, curve = shown["bar"], shown["curve"]
    assert sum(size for _, _, size, _ in bar["parts"]) == bar["total"] + bar["missing"]
    assert bar["total"] == inputs["gpu"] * GIB and min(p[2] for p in bar["parts"]) >= 0
    form = inputs["mla"] if spec.is_latent else "latent"
    policy, ranks = inputs["window_policy"], inputs["ranks"]
    storage = Storage(spec, FORMATS[inputs["dtype"]], policy, form, ranks)
    lengths = {*(length for length, _ in curve["points"]), curve["longest"] // 3, 1}
    for length in lengths:
        exact = storage.nbytes_per_rank(length, inputs["requests"])
        assert at(curve, length) == exact
        assert ranks > 1 or exact == storage.nbytes(length, inputs["requests"])
    assert dict(map(tuple, curve["points"]))[inputs["context"]] == curve["nbytes"]
    assert max(size for _, size in curve["points"]) <= curve["top"]
    if curve["limit"] is not None and curve["room"]:
        assert storage.nbytes_per_rank(curve["limit"] + 1, inputs["requests"]) > curve["room"]


@given(INPUTS)
def test_the_same_inputs_give_the_same_small_payload(inputs: dict) -> None:
    first = json.dumps(calculate(**inputs))
    assert first == json.dumps(calculate(**inputs)) and len(first) < 12_000


@given(st.sampled_from(presets.names()), st.integers(1, 2**18))
def test_the_figures_agree_with_a_specification_of_its_own(name: str, context: int) -> None:
    storage = Storage(KVCacheSpec.from_config(presets.preset(name).config))
    found = figures(model=name, context=context, requests=1)
    assert found["a token"] == f"{storage.bytes_per_token:,} bytes"
    assert found["next position"] == f"{storage.growth(context):,} bytes"
    split = parts(model=name, context=context, requests=1)
    assert split["K"] + split["S"] == storage.nbytes(context)
