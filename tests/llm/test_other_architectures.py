"""A folder of a family that our decoder does not have: the error names the way that there is."""

import sys

import pytest

from kvlab import LLM, SamplingParams

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
SUPPORTED = "'Gemma2ForCausalLM' is not supported; supported are LlamaForCausalLM"


def refusal(folder) -> str:
    with pytest.raises(ValueError) as caught:
        LLM(folder)
    return str(caught.value)


@pytest.fixture
def gemma(tmp_path):
    model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SIZES))
    model.save_pretrained(tmp_path)
    return tmp_path


def test_the_way_that_is_named_leads_there(gemma):
    message = refusal(gemma)
    assert SUPPORTED in message
    assert f"transformers knows it: kvlab.hf.load_llm({str(gemma)!r}) runs its layers" in message

    from kvlab.hf import load_llm

    (output,) = load_llm(gemma, num_blocks=8).generate([3, 1, 4], SamplingParams(max_tokens=2))
    assert len(output.outputs[0].token_ids) == 2


def test_what_runs_neither_way_is_not_sent_there(tmp_path):
    transformers.MambaConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, architectures=["MambaForCausalLM"]
    ).save_pretrained(tmp_path)
    message = refusal(tmp_path)
    assert "'MambaForCausalLM' is not supported" in message and "load_llm" not in message
    assert "transformers' layers do not run here either: MambaForCausalLM does not" in message
    assert "running state per request" in message


def test_what_transformers_does_not_know_either(tmp_path):
    config = '{"architectures": ["OddForCausalLM"], "model_type": "odd"}'
    (tmp_path / "config.json").write_text(config)
    message = refusal(tmp_path)
    assert "'OddForCausalLM' is not supported; supported are LlamaForCausalLM" in message
    assert "has model type `odd` but Transformers does not recognize" in message
    assert "\n" not in message and "load_llm" not in message


def test_without_transformers_it_is_named_as_what_to_install(gemma, monkeypatch):
    for name in [n for n in sys.modules if n == "transformers" or n.startswith("kvlab.hf.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = refusal(gemma)
    assert SUPPORTED in message
    assert 'kvlab.hf.load_llm, with transformers installed (pip install "kvlab[models]")' in message


def test_another_fault_of_a_configuration_is_told_as_before(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    message = refusal(tmp_path)
    assert "num_attention_heads is missing" in message and "load_llm" not in message
