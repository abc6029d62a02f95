"""One request in several ways: errors of scores, tokens that changed, and what cannot be run."""

from itertools import pairwise

import pytest
import torch

from kvlab import LLM, tiny, triton_mode
from kvlab.measure import score_errors as module
from kvlab.measure.score_errors import FORMATS, changed_outputs, score_errors, upper_bound
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.tiny.corpus import cases

CONFIG = ModelConfig(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_layers=2,
    num_query_heads=4, num_kv_heads=2, head_dim=32, max_model_len=128,
)  # fmt: skip
MODEL = Decoder.random(CONFIG, 0)
PROMPT = [(7 * i) % 61 for i in range(20)]
ORDER = ("fp32", "fp16", "bf16", "int8", "fp8", "q4_0")
needs_triton = pytest.mark.skipif(
    not triton_mode.current().usable, reason="Triton's kernels cannot run here"
)


@pytest.fixture(scope="module")
def tale():
    """The notebook's request, without the kernel."""
    llm = LLM("tiny")
    text = tiny.prompt("", "Tell me a story about Ivan and a green saddle.", rules="")
    return llm, score_errors(llm.model, llm.encode(text), outputs=12, kernel=False)


def test_errors_grow_with_the_bits_that_are_saved(tale):
    _, found = tale
    errors = [found["torch", name].rms_error for name in ORDER]
    assert all(coarser > 2 * finer for finer, coarser in pairwise(errors))
    assert found["torch", "fp32"].max_error < 1e-4 < errors[1]
    assert all(way.rms_error < way.max_error for way in found.ways)
    sizes = [found["torch", name].bytes_per_position for name in ORDER]
    assert sizes == [2048, 1024, 1024, 576, 512, 288]


def test_which_token_changed_and_by_what_lead(tale):
    llm, found = tale
    four = found["torch", "q4_0"]
    assert [w.stored for w in found.ways if w.token_ids != found.token_ids] == ["q4_0"]
    assert (four.changed_at(found.token_ids), four.lead_lost) == (9, (9,))
    assert four.token_ids[:9] == found.token_ids[:9]
    word = llm.tokenizer.token_text
    assert (word(four.token_ids[9]), word(found.token_ids[9])) == (" In", " Ivan")
    assert 0.05 < found.leads[9] < 0.2 < 5 < found.leads[10]


def test_the_table_in_words(tale):
    llm, found = tale
    lines = found.table(llm.tokenizer.token_text).splitlines()
    assert len(lines) == 1 + len(ORDER) and lines[0].startswith("computed by  K/V stored as  bytes")
    assert " ".join(lines[1].split()) == "torch fp32 2,048 under 0.0001 under 0.0001 none"
    assert lines[6].endswith("output 9: ' In', not ' Ivan'")
    assert lines[6].split()[:3] == ["torch", "q4_0", "288"]


@pytest.mark.parametrize(
    ("error", "bound"),
    [
        (0.0, 1e-4), (3e-7, 1e-4), (1.2e-4, 2e-4), (0.0041, 0.005), (0.005, 0.005),
        (0.0051, 0.01), (0.2, 0.2), (2.04, 5.0), (7.0, 10.0),
    ],
)  # fmt: skip
def test_errors_are_rounded_up(error, bound):
    assert upper_bound(error) == bound


def test_a_run_that_changes_nothing_is_the_one_it_was_led_along():
    """Led along its own text, a run computes what it computes when it goes freely."""
    run = module._Run(MODEL, "int8", PROMPT, 6, "torch")
    tokens, logits = run.free()
    assert torch.equal(run.led(tokens), logits)
    others = [(t + 1) % 61 for t in tokens]
    led = run.led(others)
    assert torch.equal(led[0], logits[0]) and not torch.equal(led[1], logits[1])


@needs_triton
def test_the_kernel_beside_the_reference():
    found = score_errors(MODEL, PROMPT, outputs=3, formats=["fp32", "bf16"])
    assert [(w.computed_by, w.stored) for w in found.ways] == [
        ("torch", "fp32"), ("kernel", "fp32"), ("torch", "bf16")
    ]  # fmt: skip
    assert found["kernel", "fp32"].max_error < 1e-4 < found["torch", "bf16"].max_error
    assert found["kernel", "fp32"].token_ids == found.token_ids and found.notice == ""


@needs_triton
@pytest.mark.parametrize("stored", ["int8", "fp8", "bf16"])
def test_kernels_and_torch_read_one_format_alike(stored):
    """The same codes and scales, written and read by either: none stands in another place."""
    torch_run = module._Run(MODEL, stored, PROMPT, 3, "torch")
    tokens, wanted = torch_run.free()
    kernel_run = module._Run(MODEL, stored, PROMPT, 3, "triton")
    got = kernel_run.led(tokens)
    assert (got - wanted).abs().max() < 2e-3  # a code may turn where the last bit of a sum differs
    codes, *scales = zip(torch_run.cache.tensors, kernel_run.cache.tensors, strict=True)
    for one, other in zip(*codes, strict=True):  # of the first block, which is full
        assert float((one[:, 0].float() == other[:, 0].float()).float().mean()) > 0.99
    for one, other in ((x, y) for pair in scales for x, y in zip(*pair, strict=True)):
        torch.testing.assert_close(one[:, 0], other[:, 0], rtol=1e-4, atol=0)


def test_without_triton_a_notice_says_so(monkeypatch):
    nowhere = triton_mode.TritonMode(None, "it cannot be imported: no such thing", usable=False)
    monkeypatch.setattr(triton_mode, "current", lambda: nowhere)
    found = score_errors(MODEL, PROMPT, outputs=2, formats=["fp32"])
    assert [w.computed_by for w in found.ways] == ["torch"]
    assert found.notice == "no kernel: Triton cannot run: it cannot be imported: no such thing"
    assert found.table().splitlines()[-1] == found.notice


def test_the_specification_keeps_to_a_window():
    windowed = Decoder.random(
        ModelConfig(**{**CONFIG.__dict__, "sliding_window": 6,
                       "layer_types": ("sliding_attention",) * 2}), 0
    )  # fmt: skip
    fast = module._Run(windowed, "fp32", PROMPT, 4, "torch")
    tokens, wanted = fast.free()
    spec = module._Run(windowed, "fp32", PROMPT, 4, "reference")
    assert (spec.led(tokens) - wanted).abs().max() < 1e-4
    whole = module._Run(MODEL, "fp32", PROMPT, 4, "reference")
    assert (whole.led(tokens) - wanted).abs().max() > 1e-3


def test_prompts_whose_outputs_changed():
    llm = LLM("tiny")
    asked = [llm.encode(case.prompt) for case in cases(3, 4, seed=11)]
    tale = llm.encode(tiny.prompt("", "Tell me a story about Ivan and a green saddle.", rules=""))
    found = changed_outputs(llm.model, [*asked, tale], outputs=12, formats=["bf16", "int4"])
    assert found == {"bf16": [], "q4_0": [3]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "tiny"}, "model is 'tiny'; give a Decoder"),
        ({"model": Decoder(CONFIG)}, "model has no weights"),
        ({"prompt": [1, 61]}, "61"),
        ({"outputs": 0}, "outputs is 0"),
        ({"outputs": 109}, "outputs is 109"),
        ({"formats": ["int3"]}, "a format is 'int3'; give one of fp32, fp16, bf16, fp8, int8"),
    ],
)
def test_what_cannot_be_run_is_refused(change, said):
    asked = {"model": MODEL, "prompt": PROMPT, "outputs": 2, "kernel": False, **change}
    with pytest.raises(ValueError, match=said):
        score_errors(asked.pop("model"), asked.pop("prompt"), **asked)


def test_formats_are_those_that_a_cache_can_hold():
    assert set(FORMATS) == set(ORDER)
