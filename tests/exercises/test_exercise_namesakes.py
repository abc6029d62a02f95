"""Right and wrong code under one name: no check finds out by a name which it was given."""

import pytest

from kvlab.exercises import check
from kvlab.exercises.allocator import Allocator
from kvlab.exercises.errors_21_4 import chains
from kvlab.exercises.errors_21_5 import EVICTING, FORKING
from kvlab.exercises.namesakes import label_of, namesake
from kvlab.exercises.runs_21_5 import evicting, forking

NAMES = ("__name__", "__qualname__", "__module__", "__doc__")


def names(code):
    """All that can be said of code without running it: its names, its parts' and its bases'."""
    parts = [getattr(code, part) for part in ("Pool", "Manager") if hasattr(code, part)]
    made = [type(x) for x in (code(3).pool, code(3).manager)] if parts else []
    kinds = [code, *parts, *made, *(b for c in (code, *parts) for b in getattr(c, "__mro__", ()))]
    return repr(code).partition(" at 0x")[0], [[getattr(k, n) for n in NAMES] for k in kinds]


@pytest.mark.parametrize("cases", [chains, evicting, forking])
def test_code_under_test_cannot_be_told_apart_by_name(cases):
    given = [code for (code,) in cases()]
    assert all(names(code) == names(given[0]) for code in given)
    assert len({label_of(code) for code in given}) == len(given) >= 5
    again = [code for (code,) in cases()]
    assert not {id(code) for code in given} & {id(code) for code in again}


@pytest.mark.parametrize("exercise", ["21.4-4", "21.5-5", "21.5-6"])
@pytest.mark.parametrize("name", NAMES)
def test_a_check_that_decides_by_name_finds_nothing(exercise, name):
    """One that knows the right one's name, and one that knows every wrong one's."""
    right, *_ = {"21.4-4": chains, "21.5-5": evicting, "21.5-6": forking}[exercise]()
    wanted = getattr(right[0], name)
    box = check(exercise, lambda code: getattr(code, name) == wanted)
    assert "says True to all of them" in repr(box)
    wrong = {getattr(kind, name) for kind in (*FORKING[1:], *EVICTING[1:])}
    wrong -= {getattr(Allocator, name), wanted}
    box = check(exercise, lambda code: getattr(code, name) not in wrong)
    assert "says True to all of them" in repr(box)


def test_a_namesake_keeps_what_its_methods_do():
    class Right:
        def count(self, by=1, *, times=1):
            return by * times

    class Wrong(Right):
        off = 5

        def count(self, by=1, *, times=2):
            return super().count(by, times=times) + self.off

    made = namesake(Wrong, Right, off=7)
    assert (made().count(), made().count(3, times=1), Wrong().count()) == (9, 10, 7)
    assert (made.__name__, made.count.__qualname__) == ("Right", Right.count.__qualname__)
    assert made.__mro__[1:] == (Right, object) and not issubclass(made, Wrong)
