"""LoRA adapters: the sum itself against merged weights, which rows get which, and identities."""

import pytest
import torch
from builders import random_model

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.tensors.lora import (
    PROJECTIONS,
    AdaptedRows,
    Adapter,
    LowRank,
    adapted_rows,
    merge,
    projections,
    random_adapter,
)

MODEL = random_model(3)
CONFIG = MODEL.config  # 2 layers, hidden 32, heads 4 and 2 of 8, inner 48


def one_change(name="layers.0.self_attn.q_proj", scale=2.0):
    place = projections(CONFIG)[name]
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(3, place.num_inputs, generator=generator)
    b = torch.randn(place.num_outputs, 3, generator=generator)
    return LowRank(a, b, scale)


def test_where_the_projections_lie():
    found = {name: (p.matrix, p.rows.start, p.rows.stop) for name, p in projections(CONFIG).items()}
    assert len(found) == 14
    attn, mlp = "layers.1.self_attn", "layers.1.mlp"
    assert found[f"{attn}.q_proj"] == (f"{attn}.qkv_proj", 0, 32)
    assert found[f"{attn}.k_proj"] == (f"{attn}.qkv_proj", 32, 48)
    assert found[f"{attn}.v_proj"] == (f"{attn}.qkv_proj", 48, 64)
    assert found[f"{attn}.o_proj"] == (f"{attn}.o_proj", 0, 32)
    assert found[f"{mlp}.gate_proj"] == (f"{mlp}.gate_up_proj", 0, 48)
    assert found[f"{mlp}.up_proj"] == (f"{mlp}.gate_up_proj", 48, 96)
    assert found[f"{mlp}.down_proj"] == (f"{mlp}.down_proj", 0, 32)


@pytest.mark.parametrize("name", sorted(projections(CONFIG)))
def test_each_projection_is_the_sum_of_equation_3(name):
    change, place = one_change(name), projections(CONFIG)[name]
    matrix = MODEL.get_submodule(place.matrix)
    x = torch.randn(5, place.num_inputs, generator=torch.Generator().manual_seed(2))
    got = matrix(x, AdaptedRows([(Adapter({name: change}, CONFIG), None)]))
    wanted = x @ matrix.weight.T
    wanted[:, place.rows] += 2.0 * x @ (change.b @ change.a).T
    assert (got - wanted).abs().max() < 1e-4
    outside = torch.ones(got.shape[1], dtype=torch.bool)
    outside[place.rows] = False
    assert torch.equal(got[:, outside], matrix(x)[:, outside])


def logits(model, ids, adapted=None):
    cache = ContiguousCache(CONFIG)
    if adapted is None:
        return contiguous_forward(model, torch.tensor([ids]), cache)[0]
    bound = model.forward
    model.forward = lambda *args: bound(*args, adapted)
    try:
        return contiguous_forward(model, torch.tensor([ids]), cache)[0]
    finally:
        del model.forward


def test_merged_and_applied_are_the_same_model():
    adapter = random_adapter(CONFIG, names=PROJECTIONS, size=0.8, seed=4)
    before = {name: p.clone() for name, p in MODEL.named_parameters()}
    merged, ids = merge(MODEL, adapter), list(range(2, 40))
    applied = logits(MODEL, ids, AdaptedRows([(adapter, None)]))
    assert (applied - logits(merged, ids)).abs().max() < 1e-4
    assert (applied - logits(MODEL, ids)).abs().max() > 0.5
    assert all(torch.equal(p, before[name]) for name, p in MODEL.named_parameters())


def rows_of(*asked):
    """Scheduled requests of so many tokens with an adapter each."""
    return [
        ScheduledRequest(str(i), 0, [0] * n, (0,), (), adapter=name)
        for i, (n, name) in enumerate(asked)
    ]


def test_rows_by_adapter():
    x, y = random_adapter(CONFIG, seed=1), random_adapter(CONFIG, seed=2)
    loaded, cpu = {"x": x, "y": y}, torch.device("cpu")
    mixed = adapted_rows(rows_of((3, "x"), (1, None), (2, "x"), (1, "y")), loaded, cpu)
    assert [(adapter, rows.tolist()) for adapter, rows in mixed.uses] == [
        (x, [0, 1, 2, 4, 5]),
        (y, [6]),
    ]
    assert adapted_rows(rows_of((3, "x"), (2, "x")), loaded, cpu).uses == ((x, None),)
    assert adapted_rows(rows_of((3, None), (2, None)), loaded, cpu) is None


class TestIdentity:
    def test_it_is_made_of_the_content(self):
        same = [random_adapter(CONFIG, seed=5).identity for _ in range(2)]
        assert same[0] == same[1] and len(same[0]) == 64
        assert random_adapter(CONFIG, seed=6).identity != same[0]

    @pytest.mark.parametrize("half", ["a", "b", "scale"])
    def test_a_change_of_any_part_changes_it(self, half):
        name = "layers.1.mlp.up_proj"
        one, other = one_change(name), vars(one_change(name)).copy()
        if half == "scale":
            other["scale"] = 2.0000001
        else:
            other[half][1, 2] += 1e-6
        pair = [Adapter({name: change}, CONFIG).identity for change in (one, LowRank(**other))]
        assert pair[0] != pair[1]

    def test_the_same_numbers_in_another_place(self):
        pair = [
            Adapter({f"layers.{n}.self_attn.{p}_proj": one_change()}, CONFIG).identity
            for n, p in ((0, "q"), (1, "q"), (0, "o"))
        ]
        assert len(set(pair)) == 3

    def test_what_is_computed_with_counts_not_what_was_stored(self):
        adapter = random_adapter(CONFIG)
        assert adapter.fitted(MODEL).identity == adapter.identity
        half = MODEL.converted(torch.bfloat16, "cpu")
        assert adapter.fitted(half).identity != adapter.identity


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "a", "b", "words"),
        [
            ("q_proj", (3, 31), (32, 3), r"q_proj.lora_A has shape \[3, 31\], expected \[3, 32\]"),
            ("q_proj", (3, 32), (32, 2), r"q_proj.lora_B has shape \[32, 2\], expected \[32, 3\]"),
            ("k_proj", (3, 32), (32, 3), r"k_proj.lora_B has shape \[32, 3\], expected \[16, 3\]"),
            ("q_proj", (0, 32), (32, 0), r"q_proj.lora_A has shape \[0, 32\]"),
            ("w_proj", (3, 32), (32, 3), "w_proj is not a matrix that an adapter can change"),
        ],
    )
    def test_shapes_and_places(self, name, a, b, words):
        changes = {f"layers.0.self_attn.{name}": LowRank(torch.zeros(a), torch.zeros(b), 1.0)}
        with pytest.raises(ValueError, match=words):
            Adapter(changes, CONFIG)

    @pytest.mark.parametrize("name", ["layers.2.mlp.up_proj", "lm_head", "embed_tokens"])
    def test_what_the_model_does_not_have(self, name):
        with pytest.raises(ValueError, match=f"{name} is not .* 2 layers with q_proj"):
            Adapter({name: LowRank(torch.zeros(3, 32), torch.zeros(48, 3), 1.0)}, CONFIG)

    def test_what_is_no_finite_number(self):
        adapter, name = random_adapter(CONFIG, 2), "layers.0.self_attn.q_proj"
        change, where = adapter.changes[name], rf"{name}.lora_B holds "
        spoiled = change.b.clone()
        spoiled[3, 1] = torch.nan
        with pytest.raises(ValueError, match=where + r"nan at \[3, 1\], in torch.float32"):
            adapter.with_change(name, b=spoiled)
        large = adapter.with_change(name, b=change.b.abs() + 1e5)  # float16 ends at 65504
        with pytest.raises(ValueError, match=where + r"inf at \[0, 0\], in torch.float16"):
            large.fitted(MODEL.converted(torch.float16, "cpu"))
        with pytest.raises(ValueError, match=f"{name}: the scale is inf"):
            type(adapter)({name: LowRank(change.a, change.b, float("inf"))}, CONFIG)

    def test_another_models_adapter(self):
        other = random_model(0, num_kv_heads=1)
        with pytest.raises(ValueError, match=r"v_proj.lora_B has shape \[16, 4\], .*\[8, 4\]"):
            random_adapter(CONFIG).fitted(other)

    def test_a_projection_that_is_none(self):
        with pytest.raises(ValueError, match="names has 'w1'; projections are q_proj"):
            random_adapter(CONFIG, names=("w1",))
