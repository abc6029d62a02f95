"""check() with answers of every kind: it says what is the matter and never raises."""

import enum
import fractions
import json
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvlab.exercises import Box, check, hint, predict, reveal, solution
from kvlab.exercises.registry import load
from kvlab.exercises.solutions.s21_6 import append

HOSTILE = "<img src=x onerror=alert(1)>"


class Odd:
    """Everything that can be asked of it goes wrong."""

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __repr__(self):
        raise RuntimeError("no text")

    def __bool__(self):
        raise RuntimeError("no truth")

    def __getattr__(self, name):
        raise RuntimeError("no attribute")

    def __iter__(self):
        raise RuntimeError("no items")

    __hash__ = __len__ = __float__ = __int__ = __index__ = __str__ = __eq__


class Liar(int):
    """A number that claims to equal everything."""

    def __eq__(self, other):
        return True

    def __int__(self):
        return 10

    __hash__ = int.__hash__


class Quitting:
    @property
    def __class__(self):
        raise SystemExit("leaving")


class Color(enum.IntEnum):
    TEN = 10


def loop():
    items = []
    items.append(items)
    return items


def strange():
    """Answers that nobody should give, made afresh: looking at some of them raises."""
    return [
        Odd(),
        [Odd()],
        Quitting(),
        loop(),
        float("nan"),
        float("-inf"),
        10**5000,
        -(10**400),
        1j,
        b"10",
        object,
        {"a": 1},
        {1, 2},
        (x for x in "ab"),
        np.zeros((3, 200, 200)),
        np.array([None, object()], dtype=object),
        np.datetime64("2026-01-01"),
        torch.empty(3, device="meta"),
        torch.zeros(0),
        torch.tensor([1j]),
        "32 bytes",
        "\ud800",
        HOSTILE,
        [[[[[[[[[[[[1]]]]]]]]]]]],
        lambda: 1 / 0,
        lambda *a: Odd(),
        lambda *a: (_ for _ in a),
        lambda *a: sys.exit(3),
        lambda *a: loop(),
        max,
    ]


ANY = st.recursive(
    st.builds(lambda place: strange()[place], st.sampled_from(range(30)))
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)
SECTIONS = ("21.1", "21.3", "21.4", "21.5", "21.6", "21.7")
IDS = [name for s in SECTIONS for name in load(s) if "p" not in name]


@given(name=st.sampled_from(IDS), answer=ANY)
def test_any_answer_gets_a_verdict(name, answer):
    found = check(name, answer)
    assert found.state in ("wrong", "open", "unreadable", "right")
    assert "<img" not in found._repr_html_() and "\n" not in found._repr_html_()


@pytest.mark.parametrize(("turn", "name"), list(enumerate(IDS)), ids=IDS)
def test_no_strange_answer_is_right(turn, name):
    """Each as the answer, and each fifth one as what a function returns, which all exercises read
    in the same way."""
    for place in range(30):
        answers = [strange()[place]]
        if place % 5 == turn % 5:
            answers.append(lambda *a, place=place: strange()[place])
        for answer in answers:
            found = check(name, answer)
            assert found.state in ("wrong", "unreadable"), (place, found)
            assert repr(found) == repr(check(name, answer)) and "0x" not in repr(found), place


@pytest.mark.parametrize(
    "answer",
    [
        10,
        10.0,
        Color.TEN,
        fractions.Fraction(10),
        Decimal(10),
        np.uint8(10),
        [10],
        torch.tensor(10),
        torch.tensor([10.0], requires_grad=True),
        np.array(10),
    ],
)
def test_a_number_may_be_written_in_many_ways(answer):
    assert check("21.6-1", answer).is_right


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("10", "You gave a text, '10'; give one number (positions), without quotes and unit."),
        ("32 bytes", "You gave a text, '32 bytes'"),
        (True, "You gave True, which answers a yes-or-no question"),
        ([10, 11], "You gave a list of 2; give one number (positions)."),
        (float("nan"), "You gave nan, which is no number to compare with"),
        (lambda: 10, "You gave a function; give one number (positions). If you meant what it"),
        ({1: 2}, "You gave a dictionary"),
        ([Odd()], "You gave an object of type Odd; give one number"),
    ],
)
def test_what_is_no_number_is_named(answer, said):
    found = check("21.6-1", answer)
    assert found.state == "unreadable" and said in found.lines[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (288, "You gave 288 alone; give a list of 3 numbers (bytes)"),
        ([288, 288], "You gave a list of 2"),
        ([288, None, 384], "Entry 2 of your list is empty"),
        ("288, 288, 384", "You gave a text"),
        ([288, "288", 384], "entry 2, without quotes"),
    ],
)
def test_what_is_no_list_of_numbers_is_named(answer, said):
    found = check("21.1-1", answer)
    assert found.state == "unreadable" and said in found.lines[0]


def test_a_number_that_lies_about_itself_is_read_as_what_it_is():
    assert check("21.6-1", Liar(3)).state == "wrong"
    assert check("21.6-1", Liar(10)).is_right


def test_a_called_function_is_told_apart_from_the_function():
    found = check("21.6-4", 8)
    assert found.state == "unreadable"
    assert found.lines == ("You gave 8; give the function slot itself, without brackets.",)


def test_an_exception_is_shown_with_its_line_and_its_input():
    def slot(t, block_table, block_size):
        entry = t // block_size
        return block_table[entry + 1] * block_size

    found = check("21.6-4", slot)
    line = slot.__code__.co_firstlineno + 2
    assert found.lines[0] == (
        "slot(t=0, block_table=[2], block_size=4) raised IndexError: list index out of range in "
        f"line {line} (return block_table[entry + 1] * block_size); the real pool has it in slot 8."
    )


def test_an_exception_inside_a_library_points_at_the_reader_s_own_line():
    def slot(t, block_table, block_size):
        return json.loads("no number")

    line = slot.__code__.co_firstlineno + 1
    found = check("21.6-4", slot).lines[0]
    assert "raised JSONDecodeError: Expecting value" in found
    assert f'in line {line} (return json.loads("no number"));' in found


def test_an_exception_that_cannot_speak_is_named_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise self

    def slot(*args):
        raise Mute

    assert "raised Mute in line" in check("21.6-4", slot).lines[0]


def test_an_endless_function_can_be_interrupted():
    def slot(*args):
        raise KeyboardInterrupt  # what the stop button raises inside the loop

    with pytest.raises(KeyboardInterrupt):
        check("21.6-4", slot)


def test_changing_the_arguments_does_no_harm():
    def right_and_rude(keys, values, k, v):
        result = append(keys.clone(), values.clone(), k.clone(), v.clone())
        for tensor in (keys, values, k, v):
            tensor.zero_()
        return result

    def slot(t, block_table, block_size):
        block = block_table[t // block_size]
        block_table.clear()
        return block * block_size + t % block_size

    for _twice in range(2):
        assert check("21.6-5", right_and_rude).is_right and check("21.6-4", slot).is_right
    shown = check("21.6-5", lambda K, V, k, v: (K.zero_(), V.zero_())).lines
    assert (
        "keys=[[[[0, 1]]]], values=[[[[2, 3]]]]" in shown[0] and "[[[[[0, 1], [4, 5]]]]" in shown[0]
    )


def test_the_smallest_failing_case_is_shown():
    found = check("21.1-3", lambda h, queries, heads: 0 if queries < 8 else 1)
    assert "my_kv_head(h=1, num_query_heads=2, num_kv_heads=2) gives 0" in found.lines[0]
    assert "the real attention reads KV head 1" in found.lines[0]


def test_a_function_that_answers_only_sometimes_is_no_stub():
    found = check("21.6-4", lambda t, table, size: None if t else table[0] * size)
    assert found.state == "wrong" and "t=3" in found.lines[0] and "gives None" in found.lines[0]
    later = check("21.6-4", lambda t, table, size: table[0] * size if t else None)
    assert later.state == "wrong" and "t=0" in later.lines[0] and "gives None" in later.lines[0]


def test_whole_numbers_are_compared_exactly():
    assert check("21.6-1", 10.0005).state == "wrong"
    assert "entry 1 and entry 2" in repr(check("21.1-1", [288, 288, 384.01]))
    assert check("21.1-6", 0.75001).is_right and not check("21.1-6", 0.751).is_right


@pytest.mark.parametrize("ask", [check, hint, solution, predict, reveal])
def test_an_unknown_id_lists_those_of_the_section(ask):
    with pytest.raises(ValueError, match=r"no exercise '21.1-99'; there are 21.1-1, 21.1-2, .*p1"):
        ask("21.1-99")
    with pytest.raises(
        ValueError, match=r"no section '9.9' with exercises; there are 21.0, 21.1, .*21.6"
    ):
        ask("9.9-1")
    for name in (None, 21.1, ""):
        with pytest.raises(ValueError, match="exercise"):
            ask(name)
    for name in ("21.1", "os", "21.1-", "../x-1"):
        with pytest.raises(ValueError, match=r"no (exercise|section)"):
            ask(name)


def test_predictions_and_exercises_are_told_apart():
    with pytest.raises(ValueError, match="is a prediction; use predict"):
        check("21.6-p1", [1, 2, 3])
    with pytest.raises(ValueError, match="is an exercise; use check"):
        predict("21.6-1", 10)


def test_several_exercises_in_one_cell():
    shown = check({"21.6-1": 10, "21.6-2": None, "21.6-4": lambda *a: 0})
    assert [box.state for box in shown.boxes] == ["right", "open", "wrong"]
    assert shown._repr_html_().count('class="kvlab-box"') == 3


# ---- forms


def test_a_verdict_has_a_text_and_an_html_form():
    found = check("21.6-1", 11)
    assert isinstance(found, Box)
    assert (
        str(found)
        == repr(found)
        == (
            "✗ not yet: 21.6-1\n"
            "  your answer: 11 positions\n"
            "  That counts the last output. It was selected, and no pass has read it.\n"
            '  hint("21.6-1") helps.'
        )
    )
    page = found._repr_html_()
    assert page == check("21.6-1", 11)._repr_html_()
    assert ">✗</span> <strong>not yet</strong>" in page and "hint(&quot;21.6-1&quot;)" in page
    assert "var(--jp-layout-color2," in page and "#D55E00" in page


def test_words_between_backticks_are_code_on_a_page_and_stay_text_elsewhere():
    asked = check("21.2-2", None)
    assert "`events` are [time, num_tokens]" in repr(asked)
    assert "<code>events</code> are [time, num_tokens]" in asked._repr_html_()


def test_text_of_users_is_never_markup():
    hostile = type(HOSTILE, (), {})
    error = type(HOSTILE, (Exception,), {})

    def slot(*args):
        raise error(HOSTILE)

    answers = [("21.6-1", HOSTILE), ("21.6-1", hostile()), ("21.6-4", lambda *a: HOSTILE)]
    answers += [("21.6-4", slot), ("21.6-4", lambda *a: hostile())]
    for name, answer in answers:
        page = check(name, answer)._repr_html_()
        assert "&lt;img" in page and "<img" not in page
    assert "&lt;img" in predict("21.6-p2", HOSTILE)._repr_html_()


def test_code_keeps_its_lines_without_breaking_a_page():
    shown = solution("21.1-4")
    assert "\n" not in shown._repr_html_() and "&#10;&#10;" in shown._repr_html_()
    assert "    return [[[may_read(" in repr(shown)


def test_ipython_shows_both_forms():
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(check("21.6-1", 10))
    assert data["text/plain"].startswith("✓ right: 21.6-1")
    assert data["text/html"].startswith('<div class="kvlab-box" data-state="right"')


# ---- fresh interpreters


def run(code, **options):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_importing_the_package_loads_neither_torch_nor_a_section():
    loaded = run("import sys, kvlab.exercises; print(*sys.modules, sep='\\n')")
    assert "kvlab.exercises.checking" in loaded
    for name in ("torch", "numpy", "IPython", "ipywidgets", "anywidget"):
        assert name not in loaded
    assert not any("exercises.section" in n or "exercises.solutions" in n for n in loaded)


def test_questions_and_hints_need_no_torch():
    code = (
        "import sys; from kvlab.exercises import check, hint, predict, reveal\n"
        "for s in ('21.1', '21.6'):\n"
        "    check(s + '-1'); hint(s + '-1'); predict(s + '-p2', 4); reveal(s + '-p2', 4)\n"
        "print('torch' in sys.modules)"
    )
    assert run(code)[0] == "False"


def test_a_set_without_solutions_works(tmp_path):
    import shutil
    from pathlib import Path

    import kvlab

    left_out = shutil.ignore_patterns("solutions", "__pycache__", "static")
    shutil.copytree(Path(kvlab.__file__).parent, tmp_path / "kvlab", ignore=left_out)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import kvlab; from kvlab.exercises import check, hint, predict, reveal, solution\n"
        "print(kvlab.__file__)\n"
        "slot = lambda t, table, n: table[t // n] * n + t % n\n"
        "print(check('21.6-1', 10).state, check('21.6-4', slot).state)\n"
        "print(hint('21.1-2', 3).state, predict('21.6-p2', 4).state, reveal('21.6-p2', 4).state)\n"
        "print(solution('21.1-2'))"
    )
    where, checked, others, *shown = run(code, cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    assert checked == "right right" and others == "hint kept as predicted"
    assert "This set comes without solutions" in shown[1]


def test_check_does_not_look_at_solutions():
    code = (
        "import sys; from kvlab.exercises import check\n"
        "sys.modules['kvlab.exercises.solutions'] = None\n"
        "print(check('21.6-1', 10).state, check('21.1-3', lambda h, q, g: h // (q // g)).state)\n"
        "print(*[n for n in sys.modules if 'exercises.solutions.' in n])"
    )
    assert run(code)[:2] == ["right right", ""]
