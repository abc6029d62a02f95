"""The live editor of eq 21.2 and 21.3: numbers, the real allocation, the guard, the picture."""

import re

import pytest

from kvlab.measure import allocation
from kvlab.widgets import LiveEditor, Slider, Steps, grow_a_cache
from kvlab.widgets.grow_cache_live import PRESETS, VALUE_SIZES
from kvlab.widgets.nested import CONTENT, nested_content

HOSTILE = "<img src=x onerror=alert(1)>"


def lines(widget: LiveEditor) -> list[str]:
    return [f"{label}: {text}" for label, text, _ in widget.result["lines"]]


def test_it_opens_on_section_21_6_s_example_allocated_and_in_agreement() -> None:
    assert lines(grow_a_cache()) == [
        "Payload: 1,280 bytes = 1.25 KiB",
        "(21.2) Formula: 2 · 2 layers · 1 request · 4 KV heads · 5 positions · 8 wide · 2 B"
        " = 1,280 B",
        "Allocated here: 4 tensors of [1, 4, 5, 8], sum of nbytes 1,280: they agree ✓",
        "(21.3) +1 position for one: 2·L·B·H_kv·d_h·s = 2 · 2 · 1 · 4 · 8 · 2 = 256 B;"
        " appending it added 256: they agree ✓",
        "(21.3) +1 position for all: the same: one request is all there is",
    ]


def test_the_chapter_s_smallest_example() -> None:
    widget = grow_a_cache(layers=1, kv_heads=1, seq_len=3, head_dim=2)
    assert lines(widget)[0] == "Payload: 24 bytes"
    widget.set(seq_len=4)
    widget.check()
    assert lines(widget)[0] == "Payload: 32 bytes"
    assert "2 tensors of [1, 1, 4, 2], sum of nbytes 32: they agree" in lines(widget)[2]


def test_one_request_and_all_requests_grow_differently() -> None:
    alone, together = lines(grow_a_cache(batch=3))[3:]
    assert "= 256 B; appending it added 256: they agree" in alone
    assert "2 · 2 · 3 · 4 · 8 · 2 = 768 B; appending it added 768: they agree" in together


@pytest.mark.parametrize(("heads", "told"), [(8, "1 GiB"), (2, "256 MiB"), (1, "128 MiB")])
def test_the_8b_model_s_presets_give_the_chapter_s_sizes(heads: int, told: str) -> None:
    (inputs,) = [p for p in PRESETS.values() if p["kv_heads"] == heads and p["layers"] == 32][:1]
    widget = grow_a_cache(limit=0)
    widget.set(**inputs)
    widget.check()
    assert lines(widget)[0].endswith(f"bytes = {told}")


def test_above_the_limit_the_formula_stands_alone_and_says_so() -> None:
    widget = grow_a_cache(batch=32, limit=1000)
    label, text, kind = widget.result["lines"][2]
    assert (label, kind) == ("Allocated here", "notice")
    assert text == (
        "not allocated: 40 KiB is more than the limit of 1,000 bytes; "
        "what you read is the formula alone"
    )
    assert all("appending" not in line for line in lines(widget))
    assert len(lines(widget)) == 5  # as many lines as ever: nothing moves


def test_the_limit_is_256_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(allocation, "ContiguousCache", lambda *a: made.append(a))
    widget = grow_a_cache(32, 40 // 5 * 4, 8, 8192, 128)
    assert "32 GiB is more than the limit of 256 MiB" in lines(widget)[2]
    assert made == []


def test_an_impossible_allocation_is_an_error_of_the_widget_and_keeps_the_last_picture() -> None:
    widget = grow_a_cache(limit=2**60)
    before = widget.result["view"]
    widget.set(layers=80, batch=128, kv_heads=64, seq_len=131_072, head_dim=256)
    assert widget.result["error"].startswith("MemoryError: this machine has no memory for 80 TiB")
    assert widget.result["view"] == before and lines(widget)[0] == "Payload: 1,280 bytes = 1.25 KiB"
    with pytest.raises(MemoryError, match="no memory for 80 TiB"):
        widget.check()
    assert "MemoryError: this machine has no memory" in widget.html()
    widget.set(layers=1)
    widget.check()
    assert lines(widget)[0] == "Payload: 640 bytes"


def test_sizes_that_disagree_would_be_told() -> None:
    from kvlab.widgets.grow_cache_words import Sizes, allocated_line, growth_line

    sizes = Sizes(1, 1, 1, 3, 2, 2)
    _, text, kind = allocated_line(sizes, 2, 25)
    assert text.endswith("25, the formula gives 24: THEY DISAGREE") and kind == "notice"
    _, text, kind = growth_line(sizes, False, 7)
    assert text.endswith("added 7, the formula gives 8: THEY DISAGREE") and kind == "notice"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"head_dim": 100}, "head_dim is 100; give one of 2, 4, 8, 16"),
        ({"seq_len": True}, "seq_len is True; give one of 0, 1, 2"),
        ({"layers": 0}, "layers is 0; give a whole number from 1 to 128"),
        ({"value_size": HOSTILE}, "value_size is '<img"),
    ],
)
def test_what_no_control_offers_is_refused(inputs: dict, message: str) -> None:
    widget = grow_a_cache()
    widget.set(**inputs)
    assert message in widget.result["error"] and "<img" not in widget.html()


def test_a_first_value_that_no_control_offers_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="head_dim is 7; give one of"):
        grow_a_cache(head_dim=7)


@pytest.mark.parametrize("size", [3, True, 2.0, [2], "2", None])
def test_a_size_of_numbers_without_a_dtype_is_refused(size: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"bytes_per_value is {size!r}; give 4, 2 or")):
        grow_a_cache(bytes_per_value=size)


@pytest.mark.parametrize("limit", [-1, float("nan"), "5", True, 2.5])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"limit is {limit!r}; give a whole number")):
        grow_a_cache(limit=limit)


def test_the_limit_counts_what_exists_while_the_cache_grows() -> None:
    """1,280 bytes would fit; a position more and a tensor in both its forms do not."""
    assert lines(grow_a_cache(limit=1919))[2] == (
        "Allocated here: not allocated: while it grows by a position, 1.88 KiB at once are more "
        "than the limit of 1.87 KiB; what you read is the formula alone"
    )
    assert "they agree" in lines(grow_a_cache(limit=1920))[2]


def test_the_picture_carries_the_shape_and_its_sentence() -> None:
    view = grow_a_cache(batch=3, bytes_per_value=4).result["view"]
    assert (view["view"], view["layers"], view["shape"]) == ("cache_shape", 2, [3, 4, 5, 8])
    assert view["sentence"] == (
        "Each of 2 layers keeps one tensor of keys (K) and one of values (V), both [3, 4, 5, 8]: "
        "3 requests with 4 KV heads, 5 positions in each, 8 numbers a position. "
        "That is 480 numbers or 1.88 KiB a tensor, and 7.5 KiB in all 4."
    )


def test_the_html_form_has_both_tables_and_is_the_same_for_the_same_sizes() -> None:
    one, other = grow_a_cache(), grow_a_cache()
    page = one.html()
    assert page == other.html() and page.count("<table>") == 2
    assert "1,280 bytes = 1.25 KiB" in page and '<th scope="row">positions</th>' in page
    assert repr(one) == (
        "LiveEditor('Grow a cache, and allocate it', "
        "layers, batch, kv_heads, seq_len, head_dim, value_size: ok)"
    )


def test_every_preset_can_be_chosen() -> None:
    widget = grow_a_cache(limit=2**20)
    offered = [preset["name"] for preset in widget.payload["presets"]]
    assert offered == list(PRESETS) and len(offered) == 6
    for inputs in widget.presets.values():
        widget.set(**inputs)
        widget.check()
        assert widget.inputs == inputs
    assert set(VALUE_SIZES.values()) == {1, 2, 4}


def test_a_preset_that_does_not_fit_its_controls_is_refused() -> None:
    def compute(count: int) -> dict:
        return {"lines": []}

    control = Slider("count", "Count", 1, 1, 5)
    with pytest.raises(ValueError, match="count is 9; give a whole number from 1 to 5"):
        LiveEditor(compute, [control], "x", {"large": {"count": 9}})
    with pytest.raises(ValueError, match="preset 'odd' sets size; the controls are count"):
        LiveEditor(compute, [control], "x", {"odd": {"size": 1}})
    assert "presets" not in LiveEditor(compute, [control], "x").payload


def test_steps_offer_their_numbers_alone() -> None:
    control = Steps("n", "N", 4, (1, 2, 4))
    assert [control.check(n) for n in (1, 2, 4)] == [1, 2, 4]
    for wrong in (3, True, 2.0, "2", None):
        with pytest.raises(ValueError, match=f"n is {wrong!r}; give one of 1, 2, 4"):
            control.check(wrong)


def test_views_inside_an_editor_are_registered() -> None:
    assert {"cache_growth", "cache_shape"} <= set(CONTENT)
    with pytest.raises(ValueError, match="no view 'x' stands inside an editor; there are cache"):
        nested_content({"view": "x"})
