"""Section 21.5b: pieces of a kernel. Right ones pass, wrong ones are refused and named."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvlab import triton_mode
from kvlab.exercises import Exercise, Prediction, check, hint, predict, reveal, sections, solution
from kvlab.exercises import loads_21_5b as loads
from kvlab.exercises import runs_21_5b as runs
from kvlab.exercises.kernel_kind import ROUNDS, KernelPiece
from kvlab.exercises.registry import load

if not triton_mode.current().usable:
    pytest.skip(triton_mode.current().reason, allow_module_level=True)

import exercise_cases_21_5b as cases
import triton.language as tl

from kvlab.exercises.solutions.s21_5b import SOLUTIONS

ROOT = Path(__file__).parents[2]
ALL = load("21.5b")
# The two others are in plain torch, and stand with the other sections' in test_exercise_sets.py.
EXERCISES = [e for e in ALL.values() if isinstance(e, Exercise) and isinstance(e.kind, KernelPiece)]
PREDICTIONS = [item for item in ALL.values() if isinstance(item, Prediction)]


# A GPU may give 0 at a masked place, and what lies behind a table may be read there.
ONLY_INTERPRETED = ("The look-up in the table has no mask", "The load of the cache has a mask, and")


def named(exercises):
    return pytest.mark.parametrize("exercise", exercises, ids=lambda e: e.id)


def test_the_section_stands_after_21_5() -> None:
    names = sections()
    assert names[names.index("21.5") : names.index("21.6") + 1] == ("21.5", "21.5b", "21.6")
    assert list(cases.RIGHT) == list(cases.WRONG) == [e.id for e in EXERCISES]
    assert len(PREDICTIONS) == 3


@pytest.mark.parametrize(
    ("name", "piece"), [(name, piece) for name, found in cases.RIGHT.items() for piece in found]
)
def test_a_right_piece_is_right(name, piece) -> None:
    found = check(name, piece)
    assert found.is_right, found
    assert ALL[name].why in found.lines


@pytest.mark.parametrize(
    ("name", "piece", "said"), [(name, *pair) for name, ps in cases.WRONG.items() for pair in ps]
)
def test_a_wrong_piece_is_refused_and_the_mistake_named(name, piece, said) -> None:
    found = check(name, piece)
    assert found.state == "wrong"
    assert said in repr(found), found


@named(EXERCISES)
def test_each_known_mistake_is_recognised_and_no_two_are_alike(exercise) -> None:
    assert len(exercise.mistakes) >= 3
    compiled = triton_mode.current().mode == "compiled"
    for mistake in exercise.mistakes:
        if compiled and mistake.says.startswith(ONLY_INTERPRETED):
            continue
        found = check(exercise.id, mistake.gives)
        assert (found.state, found.lines[0]) == ("wrong", mistake.says)


@named(EXERCISES)
def test_a_worked_solution_is_there_and_right(exercise) -> None:
    worked = SOLUTIONS[exercise.id]
    shown = solution(exercise.id)
    assert ("check says", "right") in shown.facts
    assert shown.code.startswith(f"def {worked.__name__}(")
    assert worked.__name__ == exercise.kind.name
    assert worked.__code__.co_varnames[: len(exercise.kind.arguments)] == exercise.kind.arguments


def test_the_solutions_lines_are_those_of_the_package_s_kernels() -> None:
    kernels = (ROOT / "kvlab/tensors/kernels.py").read_text(encoding="utf-8")
    same = {"load_tile": 6, "tile_scores": 1, "add_tile": 5, "merge_splits": 4}
    for name, worked in ((e.id, SOLUTIONS[e.id]) for e in EXERCISES):
        lines = [line.strip() for line in solution(name).code.splitlines()]
        shared = [line for line in lines if len(line) > 20 and f"    {line}\n" in kernels]
        assert len(shared) >= same[worked.__name__], shared


@named(EXERCISES)
def test_three_hints_of_growing_help(exercise) -> None:
    assert len(set(exercise.hints)) == 3 and exercise.hints[2] in hint(exercise.id, 3).lines
    assert not re.search(r"//|%|\*|tl\.|\d =", exercise.hints[0])


@named(EXERCISES)
def test_a_stub_is_not_an_answer(exercise) -> None:
    def stub(*arguments):
        """What it will do."""
        ...

    for answer in (None, ..., stub, cases.triton.jit(stub), lambda *a: None):
        assert check(exercise.id, answer).state == "open"
    assert check(exercise.id, 5).state == "unreadable"


@named(EXERCISES)
def test_a_piece_that_calls_itself_is_never_launched(exercise) -> None:
    names: dict[str, object] = {}
    exec("def piece(*given):\n    return piece(*given)", names)
    found = check(exercise.id, names["piece"])
    assert not found.is_right
    assert "calls itself; Triton knows no recursion" in repr(found), found


@named(EXERCISES)
def test_a_piece_that_forgets_to_return_is_told_so(exercise) -> None:
    found = check(exercise.id, lambda *a: print(end=""))
    assert "returned None on all inputs. Is a return missing?" in found.lines[0]


@named(EXERCISES)
def test_the_expectation_is_what_torch_gives_and_nothing_else(exercise, monkeypatch) -> None:
    broken = dataclasses.replace(exercise, run=exercise.mistakes[0].gives)
    monkeypatch.setitem(ALL, exercise.id, broken)
    for piece in cases.RIGHT[exercise.id]:
        assert check(exercise.id, piece).state == "wrong"


def test_the_smallest_cases_by_hand() -> None:
    (tile,) = loads.tile_by_indexing(loads.load_cases()[0][0])
    numbers = [round(row[0], 3) for row in tile]
    assert numbers == [0, 1, 2, 3, 4, 5, *[0] * 10]
    assert [round(x, 3) for x in tile[5][:5]] == [5, 5.001, 5.002, 5.003, 0]
    (scores,) = runs.scores_by_formula(runs.score_cases()[0][0])
    assert [round(x, 4) for x in scores[0][:3]] == [0.7213, 2.164, 3.6067]
    assert scores[0][3:] == ["-inf"] * 13
    max2, total, acc = runs.state_at_once(runs.state_cases()[0][0])
    assert (max2[0], total[0], acc[0][0]) == (2, 1.75, 0.25 * 1 + 0.5 * 2 + 1 * 2)
    merged = [runs.merged_by_softmax(case)[0][0] for (case,) in runs.merge_cases()[:3]]
    assert [round(x, 6) for x in merged] == [4, 5, 0]


def test_the_cases_have_what_is_hard() -> None:
    found = [case for (case,) in loads.load_cases()]
    assert {case.length for case in found} >= {0, 1, 15, 16, 17, 33}
    assert {case.block_size for case in found} == {1, 4, 16}
    assert {case.num_kv_heads for case in found} == {1, 2, 3}
    assert any(case.head_dim == 80 for case in found)
    assert all(torch.isnan(case.cache()[0]).all() for case in found)  # block 0 is nobody's


def test_a_refused_load_leaves_the_interpreter_as_it_was() -> None:
    builder = sys.modules["triton.runtime.interpreter"].InterpreterBuilder
    before = builder.create_masked_load, builder.create_masked_store
    assert "IndexError" in repr(check("21.5b-1", cases.load_wild))
    assert (builder.create_masked_load, builder.create_masked_store) == before


def test_a_product_that_a_gpu_may_round_is_right_with_a_remark() -> None:
    def scores(query, key, position, length, scale2):
        score2 = tl.dot(query, tl.trans(key)) * scale2
        return tl.where((position < length)[None, :], score2, float("-inf"))

    found = check("21.5b-2", scores)
    agrees, remark, why = found.lines
    assert found.is_right and (remark, why) == (ROUNDS, ALL["21.5b-2"].why)
    assert agrees == "Agrees with the specification on 6 inputs."
    for said in cases.RIGHT["21.5b-2"]:
        assert ROUNDS not in check("21.5b-2", said).lines


def test_a_piece_may_load_and_clear() -> None:
    def load(*given):
        cache, tables, stride, request, head, position, length, dim, size, heads, width = given
        there = position < length
        block = tl.load(tables + request * stride + position // size, mask=there, other=0)
        row = (block * size + position % size) * heads + head
        found = tl.load(cache + row[:, None] * width + dim[None, :])
        return tl.where(there[:, None] & (dim < width)[None, :], found, 0.0)

    assert check("21.5b-1", load).lines == (
        "Agrees with the specification on 10 inputs.",
        "Position, block, slot, row; and 0 where the request has written nothing.",
    )


def test_where_no_kernel_can_run_the_box_says_so(monkeypatch) -> None:
    nowhere = triton_mode.TritonMode(None, "it cannot be imported: there is none", usable=False)
    monkeypatch.setattr(triton_mode, "current", lambda: nowhere)
    found = check("21.5b-4", SOLUTIONS["21.5b-4"])
    assert found.state == "elsewhere"
    assert found.lines == (
        "Triton cannot run a kernel here: it cannot be imported: there is none.",
    )
    assert check("21.5b-4", lambda *a: None).state == "open"


ACTUAL = {"21.5b-p1": "c", "21.5b-p2": False, "21.5b-p3": 4}


@named(PREDICTIONS)
def test_the_mistakes_of_a_prediction_are_named(exercise) -> None:
    actual = exercise.kind.read(ACTUAL[exercise.id])
    answers = [exercise.kind.read(mistake.gives(actual)) for mistake in exercise.mistakes]
    assert actual not in answers and len({str(a) for a in answers}) == len(answers)
    predict(exercise.id, answers[0])
    shown = reveal(exercise.id, ACTUAL[exercise.id])
    assert shown.lines == (exercise.mistakes[0].says, exercise.why)


def test_questions_need_neither_torch_nor_triton() -> None:
    code = (
        "import sys; from kvlab.exercises import check, hint, predict\n"
        "check('21.5b-1'); hint('21.5b-1'); predict('21.5b-p1', 'a')\n"
        "print(*[name for name in ('torch', 'triton') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


WITHOUT_TRITON = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "triton" or name.startswith("triton."):
            raise ModuleNotFoundError("No module named 'triton'", name="triton")
sys.meta_path.insert(0, Missing())
import jupytext
names = {"__name__": "__main__"}
for cell in jupytext.read(sys.argv[1], fmt={"extension": ".py", "format_name": "percent"}).cells:
    if cell.cell_type == "code":
        exec(compile(cell.source, "a cell", "exec"), names)
print(names["log"].recorded, names["check"]("21.5b-1", names["tile_spec"]).state)
"""


def test_the_page_runs_where_there_is_no_triton() -> None:
    pytest.importorskip("jupytext")
    source = ROOT / "notebooks/source/21_5b_kernel.py"
    command = [sys.executable, "-c", WITHOUT_TRITON, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=source.parents[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("no kernel can run here")
    assert done.stdout.splitlines()[-1] == "True elsewhere"
