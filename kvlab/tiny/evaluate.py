"""What the tiny model can do, and what becomes of its answers when its cache is damaged.

    python -m kvlab.tiny.evaluate --cases 100

`evaluate` counts right answers through the real engine; `wrong_cache.count_answers` counts what
becomes of them under each kind of damage.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.outputs import CompletionOutput
from kvlab.tiny.corpus import Case, cases
from kvlab.tiny.damage import MAX_TOKENS
from kvlab.tiny.wrong_cache import count_answers

FACTS = (1, 2, 4, 8)
DISTANCES = (100, 300, 700)


@dataclass(frozen=True)
class Score:
    """Cases of one setting and how many got the whole answer, its end included."""

    setting: str
    num_cases: int
    num_right: int
    mean_prompt_tokens: float


# ---- right answers


def evaluate(llm: LLM | None = None, count: int = 100, seed: int = 1) -> list[Score]:
    """Greedy answers to `count` cases of each setting: numbers of facts, then distances."""
    llm = llm or LLM("tiny")
    settings = {f"{n} fact{'s' if n > 1 else ''}": cases(count, n, seed) for n in FACTS}
    for gap in DISTANCES:
        settings[f"6 facts, then {gap} tokens of stories"] = cases(count, 6, seed, gap)
    return [_score(llm, setting, asked) for setting, asked in settings.items()]


def _score(llm: LLM, setting: str, asked: Sequence[Case]) -> Score:
    params = SamplingParams(max_tokens=MAX_TOKENS)
    outputs = llm.generate([case.prompt for case in asked], params)
    right = sum(is_right(o.outputs[0], case) for o, case in zip(outputs, asked, strict=True))
    tokens = sum(len(o.prompt_token_ids) for o in outputs)
    return Score(setting, len(asked), right, tokens / max(len(asked), 1))


def is_right(output: CompletionOutput, case: Case) -> bool:
    """Whether it says the answer's words and ends there."""
    return output.finish_reason == "stop" and output.text.strip() == case.answer


def answer(llm: LLM, case: Case) -> str:
    """The undisturbed answer."""
    (output,) = llm.generate(case.prompt, SamplingParams(max_tokens=MAX_TOKENS))
    return output.outputs[0].text.strip()


# ---- the table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.tiny.evaluate", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--cases", type=int, default=100, help="cases of each setting (default 100)"
    )
    count = parser.parse_args().cases
    if count < 1:
        parser.error(f"--cases is {count}; give at least 1")
    llm = LLM("tiny")
    print(f"{'notes and distance':36}{'cases':>6}{'right':>7}{'tokens':>8}")
    for s in evaluate(llm, count):
        print(f"{s.setting:36}{s.num_cases:6}{s.num_right:7}{s.mean_prompt_tokens:8.0f}")
    print(f"\n{count_answers(llm, count=count)}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # these tensors are too small to share between threads
    main()
