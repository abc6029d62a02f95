"""Right and wrong code under one name: a check has to run it to find out which it was given.

A name, a docstring or a place in a file would give the answer away. What the code really is stands
in a label that only the text for the reader shows, after the check has said what it thinks.
"""

from collections.abc import Callable
from types import CellType, FunctionType
from typing import TypeVar
from weakref import WeakKeyDictionary

Code = TypeVar("Code", bound=Callable[..., object])
_LABELS: WeakKeyDictionary[Callable[..., object], str] = WeakKeyDictionary()


def labelled(code: Code, label: str) -> Code:
    """The same code; `label_of` knows from now on what to call it."""
    _LABELS[code] = label
    return code


def label_of(code: Callable[..., object]) -> str | None:
    """What to call the code, or None if nothing was said of it."""
    return _LABELS.get(code)


def namesake(kind: type, right: type, **parts: object) -> type:
    """A new class with what `kind` changes in `right`, and with the names of `right`.

    kind: `right` itself, or a class derived from it and nothing else. parts: attributes that are
    put in the place of kind's, among them another docstring, as `__doc__`.
    """
    assert kind is right or kind.__bases__ == (right,)
    changed = {} if kind is right else vars(kind)
    names = {name: getattr(right, name) for name in ("__module__", "__qualname__", "__doc__")}
    made = type(right.__name__, (right,), {**names, **parts})
    for name, value in changed.items():
        if not name.startswith("__") and name not in parts:
            is_method = isinstance(value, FunctionType)
            setattr(made, name, _moved(value, made) if is_method else value)
    return made


def _moved(method: FunctionType, home: type) -> FunctionType:
    """The method in another class: `super()` looks for its own class in a cell of the closure."""
    code, cells = method.__code__, method.__closure__ or ()
    own = [
        CellType(home) if name == "__class__" else cell
        for name, cell in zip(code.co_freevars, cells, strict=True)
    ]
    name, defaults = method.__name__, method.__defaults__
    moved = FunctionType(code, method.__globals__, name, defaults, tuple(own))
    moved.__kwdefaults__, moved.__doc__ = method.__kwdefaults__, method.__doc__
    moved.__module__, moved.__qualname__ = home.__module__, f"{home.__qualname__}.{name}"
    return moved
