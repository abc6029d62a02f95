"""Exercises and questions: predict, then run; answer, then check; ask for a hint, or the solution.

    predict("21.6-p1", None)      the reader commits to an answer before the run shows it
    reveal("21.6-p1", actual)     in the cell of the run: the real value beside the reader's
    check("21.1-2", answer)       right, not yet (and which mistake), or not answered yet
    score("21.7")                 how many predictions were as the run showed; stays in this kernel
    hint("21.1-2", 1)             three hints, each saying more than the one before
    solution("21.1-2")            a worked solution

Each returns a `Box`, which a notebook shows as the value of its cell. Nothing right or wrong is
stored: what is expected comes from a run of kvlab's own code.

A section's exercises stand in a module of their own, `section_21_1.py` for section 21.1; its name
registers it. Its solutions stand in `solutions/s21_1.py`, read by `solution` alone, and may be left
out. Importing this package loads neither torch nor any section.
"""

from kvlab.exercises.box import Box, Boxes
from kvlab.exercises.checking import check
from kvlab.exercises.exercise import Exercise, Mistake, Prediction
from kvlab.exercises.helping import hint, solution
from kvlab.exercises.predicting import predict, reveal
from kvlab.exercises.registry import ids, sections
from kvlab.exercises.scoring import score

__all__ = [
    "Box",
    "Boxes",
    "Exercise",
    "Mistake",
    "Prediction",
    "check",
    "hint",
    "ids",
    "predict",
    "reveal",
    "score",
    "sections",
    "solution",
]
