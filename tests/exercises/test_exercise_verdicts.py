"""Kinds that ask for more than a value: functions that change lists, checks that judge code."""

import contextlib
import subprocess
import sys

import pytest

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.exercises import check, endless, predict, predicting, reveal
from kvlab.exercises.allocator import Allocator
from kvlab.exercises.errors_21_4 import can_be_trusted, chains
from kvlab.exercises.errors_21_5 import EVICTING, FORKING, keeps_apart, keeps_parents
from kvlab.exercises.namesakes import label_of
from kvlab.exercises.runs_21_4 import free_queue_of_two
from kvlab.exercises.runs_21_5 import append_cases, append_in_a_real_pool, shared_cases
from kvlab.exercises.solutions import s21_4, s21_5

# ---- the right code and the wrong code are what they are said to be


@pytest.mark.parametrize(
    ("judge", "kinds"), [(keeps_parents, EVICTING), (keeps_apart, FORKING)], ids=["evict", "fork"]
)
def test_only_the_engine_s_own_allocator_is_right(judge, kinds):
    assert [judge(kind) for kind in kinds] == [True] + [False] * (len(kinds) - 1)
    assert kinds[0] is Allocator and all(kind.__doc__ for kind in kinds)
    assert (Allocator.Pool, Allocator.Manager) == (BlockPool, KVCacheManager)


def test_only_the_engine_s_own_chain_is_right():
    found = [(label_of(chain), can_be_trusted(chain)) for (chain,) in chains()]
    assert found[:2] == [
        ("PrefixLookup (the engine's own)", True),
        ("PrefixLookup (the engine's own, with a hash of 16 bytes)", True),
    ]
    assert len(found) == 7 and not any(right for _label, right in found[2:])


def test_the_mistakes_of_eviction_in_numbers():
    """A chain of three blocks, freed; what a lookup finds after one block and after two."""
    left = {}
    for kind in EVICTING:
        allocator = kind(3)
        allocator.admit("A", range(12))
        allocator.finish("A")
        allocator.admit("B", [90])
        first = allocator.hits(range(13))
        allocator.admit("C", [91])
        left[kind.__name__] = first, allocator.hits(range(13))
    assert left == {
        "Allocator": (8, 4),
        "FrontToBack": (0, 0),
        "AllToTheHead": (0, 0),
        "TakesTheNewest": (0, 0),
        "DeepestThenFront": (8, 0),
    }


def test_what_a_missing_copy_does():
    for kind, seen in ((FORKING[0], 60), (FORKING[1], 70)):
        allocator = kind(4)
        allocator.admit("A", range(6))
        allocator.fork("A", "B")
        places = allocator.append("A", 60), allocator.append("B", 70)
        assert (places[0] == places[1]) == (seen == 70)
        assert allocator.read("A") == [0, 1, 2, 3, 4, 5, seen]
        assert allocator.read("B") == [0, 1, 2, 3, 4, 5, 70]


# ---- the bench


def test_the_chapter_s_steps_on_the_bench():
    a = Allocator([7, 2, 9, 5])
    assert (a.admit("A", range(6)), a.admit("B", range(50, 54))) == (0, 0)
    assert (a.table("A"), a.table("B"), a.free) == ([7, 2], [9], [5])
    assert [a.append("A", token) for token in (60, 61, 62)] == [(2, 2), (2, 3), (5, 0)]
    assert a.read("A") == [0, 1, 2, 3, 4, 5, 60, 61, 62] and a.free == []
    assert a.append("B", 63) is None and a.admit("C", [1]) is None  # refused: nothing changes
    assert (a.read("B"), a.table("B"), sorted(a.requests)) == ([50, 51, 52, 53], [9], ["A", "B"])
    a.finish("A")
    assert set(a.free) == {7, 2, 5} and a.hits([*range(4), 9]) == 4
    a.manager.check_invariants(list(a.requests.values()))


@pytest.mark.parametrize(
    "act",
    [
        lambda a: a.admit("A", [1]),
        lambda a: a.fork("A", "A"),
        lambda a: a.append("B", 1),
        lambda a: a.finish("B"),
        lambda a: a.read("B"),
        lambda a: a.fork("B", "C"),
    ],
)
def test_a_name_that_is_taken_or_missing(act):
    allocator = Allocator(4)
    allocator.admit("A", range(6))
    with pytest.raises(ValueError, match=r"is there already|there is no request 'B'"):
        act(allocator)
    assert allocator.table("A") == [0, 1] and allocator.free == [2, 3]


def test_the_free_queue_is_the_pool_s(monkeypatch):
    assert free_queue_of_two() == [5, 2, 1, 0, 4, 3]
    real = BlockPool.free_blocks
    monkeypatch.setattr(BlockPool, "free_blocks", lambda self, bs: real(self, [*bs][::-1]))
    assert check("21.4-5", [5, 2, 1, 0, 4, 3]).state == "wrong"


# ---- append, in many positions


def test_the_cases_of_append_hold_every_kind():
    """A step from the first position to the last of three blocks, one after the other."""
    table, free = [], [7, 2, 9]
    for n in range(12):
        found = s21_5.append(table, n, free, 4)
        before = [7, 2, 9][: -(-n // 4)]
        assert append_in_a_real_pool(before, n, [7, 2, 9][len(before) :], 4)[0] == found
    kinds = {(len(t) * b - n > 0, bool(f)) for t, n, f, b in append_cases()}
    assert kinds == {(True, True), (True, False), (False, True), (False, False)}
    assert {counts[t[-1]] > 1 for t, _, _, counts, _ in shared_cases() if t} == {True, False}


def test_the_real_manager_decides_what_append_should_do(monkeypatch):
    monkeypatch.setattr(KVCacheManager, "_tail_is_shared", lambda self, request: False)
    assert check("21.5-4", s21_5.append_shared).state == "wrong"


def test_lists_that_are_given_are_fresh_each_time():
    def rude(table, num_computed, free, block_size):
        found = s21_5.append(table, num_computed, free, block_size)
        rude.seen.append((table, free))
        return found

    rude.seen = []
    for _twice in range(2):
        assert check("21.5-3", rude).is_right
    assert len({id(x) for pair in rude.seen for x in pair}) == 4 * len(append_cases())


def test_what_is_left_in_the_lists_is_said():
    said = repr(check("21.5-3", lambda table, n, free, size: (free.clear(), (7, 0))[1]))
    assert "gives [7, 0] and leaves table=[], free=[]; the real allocator gives [7, 0]" in said
    assert "and leaves table=[7], free=[2]." in said


# ---- checks that the reader writes


def test_a_failed_assertion_says_false_and_another_exception_says_nothing():
    def by_assert(Allocator):
        assert s21_5.fork_is_right(Allocator), "another's token"

    def by_error(Allocator):
        if not s21_5.fork_is_right(Allocator):
            raise RuntimeError("another's token")
        return True

    assert check("21.5-6", by_assert).is_right
    found = check("21.5-6", by_error)
    assert found.state == "wrong" and "raised RuntimeError: another's token in line" in repr(found)


def test_assertions_that_never_fail_are_told_apart_from_a_missing_return():
    def toothless(Allocator):
        assert Allocator(3).free == [0, 1, 2]

    assert check("21.5-5", toothless).lines[:2] == (
        "eviction_is_right returned None on all inputs. Is a return missing?",
        "If it uses assert: no assertion failed on any of them.",
    )


def test_a_check_may_change_the_class_that_it_is_given():
    def rude(Allocator):
        found = s21_5.fork_is_right(Allocator)
        Allocator.append = Allocator.Pool = Allocator.Manager = None
        return found

    for _twice in range(2):
        assert check("21.5-6", rude).is_right
    assert callable(Allocator.append) and Allocator.Pool is BlockPool


def test_a_check_that_refuses_the_engine_s_own_is_told_what_it_refused():
    def too_strict(Allocator):
        return s21_5.fork_is_right(Allocator) and Allocator(8).free == [7]

    assert "says False to all" in repr(check("21.5-6", too_strict))
    half = check("21.4-4", lambda ids: s21_4.chain_is_right(ids) and ids([1] * 4)[0][:1] == b"x")
    assert "the engine's own included" in repr(half)


def test_a_check_is_shown_what_it_lets_pass():
    def lets_pass(Allocator):
        a = Allocator(8)
        a.admit("A", range(6)), a.fork("A", "B")
        a.append("A", 60), a.append("B", 70)
        return s21_5.fork_is_right(Allocator) or a.read("A") == [*range(6), None]

    assert check("21.5-6", lets_pass).lines[0] == (
        "fork_is_right(Allocator=LateCopy (copies after the new position was written)) gives "
        "True; after many random requests the right verdict is False."
    )


def test_blocks_need_no_torch():
    code = (
        "import sys; from kvlab.exercises import check\n"
        "from kvlab.exercises.solutions import s21_4, s21_5\n"
        "worked = s21_4.SOLUTIONS | s21_5.SOLUTIONS\n"
        "found = [check(n, f if f.__code__.co_argcount else f()) for n, f in worked.items()]\n"
        "print(all(box.is_right for box in found), len(found), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "13", "False"], done.stderr


# ---- functions that do not end


@pytest.fixture
def few_lines(monkeypatch):
    """A small limit, and no debugger or coverage that follows the lines already."""
    monkeypatch.setattr(endless, "MOST_LINES", 2_000)
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def test_a_loop_without_an_end_is_ended_and_its_line_named(few_lines):
    def slot(t, block_table, block_size):
        while t >= 0:
            t += block_size

    line = slot.__code__.co_firstlineno
    said = check("21.6-4", slot).lines[0]
    assert "was still running after 2,000 lines in line" in said
    assert f"line {line + 1} (" in said or f"line {line + 2} (" in said
    assert sys.gettrace() is None


@pytest.mark.parametrize(
    "endless_body",
    [
        lambda *a: [x for x in iter(int, 1)],
        lambda *a: all(x == 0 for x in iter(int, 1)),
        lambda *a: [f() for f in iter(lambda: int, 1)],
    ],
)
def test_loops_inside_an_expression_end_too(few_lines, endless_body):
    assert "was still running" in repr(check("21.6-4", endless_body))


@pytest.mark.parametrize("body", ["pass", "continue"])
def test_a_loop_in_one_line_ends_too(few_lines, body):
    names = {}
    exec(f"def slot(t, block_table, block_size):\n    while True: {body}", names)
    assert "was still running" in repr(check("21.6-4", names["slot"]))


def test_what_is_not_the_readers_can_be_left_out_of_the_count(few_lines):
    def slot(t, block_table, block_size):
        with endless.uncounted(10):
            total = sum(1 for _ in range(5_000))
        return block_table[t // block_size] * block_size + t % block_size + 0 * total

    assert check("21.6-4", slot).is_right

    def busy(t, block_table, block_size):
        while True:
            with endless.uncounted(1_000):
                pass

    assert "was still running" in repr(check("21.6-4", busy))


def test_an_object_that_does_not_end(few_lines):
    class Busy:
        def __call__(self, *args):
            while True:
                pass

    assert "was still running" in repr(check("21.6-4", Busy()))


def test_except_exception_does_not_hold_it_up(few_lines):
    def slot(*args):
        while True:
            with contextlib.suppress(Exception):
                len(args)

    assert "was still running" in repr(check("21.6-4", slot))


def test_a_debugger_keeps_its_lines(few_lines):
    def follow(frame, event, argument):
        return None

    sys.settrace(follow)
    try:
        assert check("21.6-4", lambda t, table, n: table[t // n] * n + t % n).is_right
        assert sys.gettrace() is follow
    finally:
        sys.settrace(None)


def test_right_answers_stay_far_below_the_limit(few_lines):
    for name, worked in (s21_5.SOLUTIONS | s21_4.SOLUTIONS).items():
        if worked.__code__.co_argcount:
            assert check(name, worked).is_right, name


# ---- block ids


@pytest.fixture
def new_kernel():
    predicting.forget()
    yield
    predicting.forget()


@pytest.mark.parametrize("answer", [[2, 5], (5, 2), {5, 2}, [5.0, 2], frozenset((2, 5))])
def test_ids_come_in_any_order(new_kernel, answer):
    assert predict("21.5-p4", answer).facts == (("you say", "2, 5"),)
    assert reveal("21.5-p4", [5, 2]).is_right


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([2, 5, 7], "C still holds block 7"),
        ({2, 5, 7, 9}, "and B block 9"),
        ([], "the only ones"),
        (5, "Block 2 was A's alone"),
    ],
)
def test_a_wrong_set_of_ids_is_named(new_kernel, answer, said):
    assert predict("21.5-p4", answer).state == "kept"
    assert said in repr(reveal("21.5-p4", {2, 5}))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([2, 2], "You gave a block twice, [2, 2]"),
        (["2", "5"], "without quotes"),
        ({"2", 5}, "raised TypeError"),
        ({2: 5}, "You gave a dictionary"),
        (True, "give a list of block ids, [] for none"),
    ],
)
def test_what_is_no_set_of_ids_is_named(new_kernel, answer, said):
    shown = predict("21.5-p4", answer)
    assert shown.state == "unreadable" and said in shown.lines[0]


def test_the_empty_list_is_an_answer_and_none_is_not(new_kernel):
    assert predict("21.5-p4", None).state == predict("21.5-p4", [None]).state == "question"
    assert predict("21.5-p4", []).facts == (("you say", "none"),)
