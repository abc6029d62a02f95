"""What happens to one request, in the order in which it happened (section 21.3).

    prefill -> logits -> selection -> decode -> logits -> selection -> decode -> ... -> end
                             |___________^            the token selected is what the next call reads

Nothing of this is known here. A call of the model, a row of logits and a selection are noted where
they happen, so that a loop which goes another way is drawn another way.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from kvlab.core.request import Request, SamplingParams
from kvlab.llm import LLM
from kvlab.prompts import Prompt

STAGES = ("prefill", "decode", "logits", "selection", "end")


@dataclass(frozen=True)
class Stage:
    """name: one of STAGES. token_ids: of a model call the tokens that it read, of a selection the
    one selected, else none."""

    name: str
    token_ids: tuple[int, ...] = ()


@dataclass
class _Ear:
    """Hears the model, its logits and the scheduler of one engine."""

    stages: list[Stage] = field(default_factory=list)
    num_selected: int = 0

    def called(self, _module: object, arguments: Sequence[Tensor]) -> None:
        name = "decode" if self.num_selected else "prefill"
        self.stages.append(Stage(name, tuple(arguments[0].tolist())))

    def logits(self, _rows: object) -> None:
        self.stages.append(Stage("logits"))

    def event(self, kind: str, _request: Request | None, **data: object) -> None:
        if kind == "selected":
            self.num_selected += 1
            self.stages.append(Stage("selection", (data["token_id"],)))
        elif kind == "finished":
            self.stages.append(Stage("end"))


def follow(llm: LLM, prompt: Prompt, params: SamplingParams) -> list[Stage]:
    """Serve one request to its end and note its stages.

    Raises ValueError for continuations (n above 1), and where the engine has other requests;
    RuntimeError where something listens to its scheduler already.
    """
    if params.n > 1:
        raise ValueError(f"n is {params.n}; give 1, so that there is one way to follow")
    if llm.engine.has_unfinished_requests():
        raise ValueError("the engine has unfinished requests; run them to their end first")
    ear = _Ear()
    with _listening(llm, ear.called, ear.logits, ear.event):
        llm.generate(prompt, params)
    return ear.stages


@contextmanager
def _listening(llm: LLM, called: Callable, logits: Callable, event: Callable) -> Iterator[None]:
    scheduler = llm.engine.scheduler
    if scheduler.observer is not None:
        raise RuntimeError("the scheduler has an observer; stop its trace or log first")
    before, llm.runner.on_logits, scheduler.observer = llm.runner.on_logits, logits, event
    hook = llm.model.register_forward_pre_hook(called)
    try:
        yield
    finally:
        hook.remove()
        llm.runner.on_logits, scheduler.observer = before, None


def arrows(stages: Sequence[Stage]) -> dict[tuple[str, str], int]:
    """{(a stage, the one after it): how often}, in the order in which they first came."""
    return dict(Counter(pairwise(stage.name for stage in stages)))
