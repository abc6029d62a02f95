"""Models of transformers on the paged cache: the same logits as transformers' own eager forward."""

import pytest
import torch
from families import FAMILIES, WINDOW, model_of, own_logits, paged_logits, tokens

from kvlab.hf import open_decoder

LIMIT = 1e-4
ALL = [*FAMILIES, "GPT2"]


@pytest.fixture(scope="module", params=ALL)
def case(request):
    model = model_of(request.param)
    ids = tokens(37)
    return open_decoder(model), ids, own_logits(model, ids)


@pytest.mark.parametrize("chunk", [37, 1, 2, 3, 4, 5, 6, 7])
def test_prefill_whole_and_in_chunks(case, chunk):
    decoder, ids, wanted = case
    (found,) = paged_logits(decoder, [ids], chunk)
    assert found.shape == wanted.shape == (37, 97)
    assert float((found - wanted).abs().max()) < LIMIT
    assert float(wanted.std()) > 0.1  # far from a model whose logits are all alike


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_prompts_of_unequal_lengths_in_one_batch(case, chunk):
    decoder, ids, wanted = case
    prompts = [ids[:3], ids, ids[:20], ids[:1]]
    for found, prompt in zip(paged_logits(decoder, prompts, chunk), prompts, strict=True):
        assert float((found - wanted[: len(prompt)]).abs().max()) < LIMIT


@pytest.mark.parametrize("family", ["Mistral", "Gemma2", "Gemma3", "GptOss"])
def test_far_beyond_the_window_and_beyond_a_tile_of_queries(family):
    model = model_of(family, max_position_embeddings=1024)
    ids = tokens(700)
    (found,) = paged_logits(open_decoder(model), [ids], 700, block_size=16)
    assert float((found - own_logits(model, ids)).abs().max()) < LIMIT


@pytest.mark.parametrize(
    ("family", "windows"),
    [
        ("Llama", [None] * 4),
        ("Mistral", [WINDOW] * 4),
        ("Phi3", [WINDOW] * 4),
        ("Gemma2", [WINDOW, None, WINDOW, None]),
        ("Gemma3", [WINDOW, WINDOW, None] * 2),
        ("GPT2", [None] * 3),
    ],
)
def test_windows_are_read_from_the_models_own_masks(family, windows):
    assert [own.window for own in open_decoder(model_of(family)).attentions] == windows


@pytest.mark.parametrize(
    ("family", "changed"),
    [
        ("Mistral", {"sliding_window": None}),
        ("Gemma2", {"sliding_window": WINDOW - 1}),
        ("Gemma2", {"attn_logit_softcapping": None}),
        ("Gemma2", {"final_logit_softcapping": None}),
        ("Gemma3", {"rope_parameters": None}),
        ("Granite", {"attention_multiplier": 0.3}),
        ("Granite", {"logits_scaling": 1.0}),
    ],
)
def test_each_setting_matters(family, changed):
    """The same weights with one setting changed give other logits: these tests would notice."""
    ids = tokens(37)
    (found,) = paged_logits(open_decoder(model_of(family)), [ids], 37)
    assert float((found - own_logits(model_of(family, **changed), ids)).abs().max()) > 1e-2


def test_sinks_matter():
    model, ids = model_of("GptOss"), tokens(37)
    (found,) = paged_logits(open_decoder(model), [ids], 37)
    for layer in model.model.layers:
        layer.self_attn.sinks.data.fill_(-1e4)  # takes no share
    assert float((found - own_logits(model, ids)).abs().max()) > 1e-2
    (found,) = paged_logits(open_decoder(model), [ids], 37)
    assert float((found - own_logits(model, ids)).abs().max()) < LIMIT


def test_a_layer_that_changes_how_it_attends_is_noticed():
    decoder = open_decoder(model_of("Granite"))
    decoder.lm.model.layers[2].self_attn.scaling = 0.5
    with pytest.raises(RuntimeError, match="layer 2 changed how it attends"):
        paged_logits(decoder, [tokens(5)], 5)


def test_the_model_itself_is_left_as_it_was():
    model, ids = model_of("Gemma2"), tokens(20)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        before = model(input_ids=torch.tensor([ids])).logits
    decoder = open_decoder(model)
    paged_logits(decoder, [ids], 7)
    assert decoder.lm is model and model.config._attn_implementation == "eager"
    with torch.no_grad():
        assert torch.equal(model(input_ids=torch.tensor([ids])).logits, before)


def test_a_forward_that_others_put_in_place_stays():
    model, calls = model_of("Llama"), []
    own = model.model.forward

    def counted(*args, **kwargs):
        calls.append(True)
        return own(*args, **kwargs)

    model.model.forward = counted
    paged_logits(open_decoder(model), [tokens(5)], 5)
    assert model.model.forward is counted and calls


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_bfloat16_is_computed_in_bfloat16(family):
    decoder = open_decoder(model_of(family), torch.bfloat16)
    assert decoder.dtype is torch.bfloat16
    ids = tokens(20)
    (found,) = paged_logits(decoder, [ids], 5)
    wanted = own_logits(decoder.lm, ids)
    assert found.dtype is torch.bfloat16
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 0.1
