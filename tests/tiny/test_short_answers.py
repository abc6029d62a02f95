"""The adapter that ships with the tiny model: it answers in a word; and how it was trained."""

import json
import random

from kvlab import LLM, SamplingParams, tiny
from kvlab.tiny import train_adapter
from kvlab.tiny.corpus import cases
from kvlab.tiny.train_adapter import short_document, shortened


def test_what_is_asked_for_alone():
    for answer, wanted in (
        ("The key is red.", "red."),
        ("Jane has 33 coins.", "33 coins."),
        ("Mia is in the garden.", "garden."),
        ("red.", "red."),
        ("a story. It goes on.", "a story. It goes on."),
    ):
        assert shortened(answer) == wanted


def test_documents_differ_in_what_the_assistant_says_alone():
    text = short_document(random.Random(3))
    said = [turn.split("<|end|>")[0] for turn in text.split("<|assistant|> ")[1:]]
    assert said and all(answer == shortened(answer) for answer in said)
    assert len(text.split("<|user|>")[0].split()) > 20


def test_it_answers_in_a_word_and_the_base_model_in_a_sentence():
    llm, asked = LLM("tiny"), cases(40, 4, seed=11)
    llm.load_adapter("short", tiny.SHORT_ANSWERS)
    prompts, params = [c.prompt for c in asked], SamplingParams(max_tokens=12)
    outs = llm.generate(prompts * 2, params, adapter=["short"] * 40 + [None] * 40)
    said = [out.outputs[0].text.strip() for out in outs]
    right = sum(a == shortened(c.answer) for a, c in zip(said[:40], asked, strict=True))
    base = sum(a == c.answer for a, c in zip(said[40:], asked, strict=True))
    assert right >= 36 and base >= 38


def test_it_is_small_and_says_what_it_is():
    config = json.loads((tiny.SHORT_ANSWERS / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (train_adapter.RANK, train_adapter.ALPHA)
    assert config["target_modules"] == list(train_adapter.NAMES)
    assert sum(path.stat().st_size for path in tiny.SHORT_ANSWERS.iterdir()) < 40_000


def test_training_begins_at_the_base_model_and_lowers_the_loss():
    base, losses = LLM("tiny").model, []
    before = base.layers[0].self_attn.qkv_proj.weight.clone()
    train_adapter.train(base, 14, progress=lambda step, loss: losses.append(loss))
    adapter, again = (train_adapter.train(base, 2) for _ in range(2))
    assert losses[0] > 8 and min(losses) < losses[0] - 2
    assert adapter.identity == again.identity and adapter.projections == {"q_proj", "v_proj"}
    assert not any(c.a.requires_grad for c in adapter.changes.values())
    assert (base.layers[0].self_attn.qkv_proj.weight == before).all()
