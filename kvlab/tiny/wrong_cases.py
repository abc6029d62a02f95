"""Which cases are asked over damaged caches, and what their counts depend on."""

from dataclasses import dataclass

from kvlab.core.hashing import root_hash, short
from kvlab.llm import LLM
from kvlab.tensors.identity import configuration_of
from kvlab.tiny.corpus import Case, cases

SEED = 6


def asked_cases(count: int, seed: int = SEED) -> list[Case]:
    """Six facts in the notes of each, the question in a turn of its own.

    Raises ValueError for a count below 1 and where either is no whole number.
    """
    if type(count) is not int or count < 1:
        raise ValueError(f"count is {count!r}; give a whole number of at least 1")
    if type(seed) is not int:
        raise ValueError(f"seed is {seed!r}; give a whole number")
    return cases(count, 6, seed, in_question=0)


@dataclass(frozen=True)
class Setting:
    """What counts depend on: only where it is the same can they stand beside each other.

    model: its name, and 8 hex digits of the identity of its weights and formats. seed, num_cases:
    which cases were asked.
    """

    model: str
    block_size: int
    seed: int
    num_cases: int

    def __str__(self) -> str:
        cases = "1 case" if self.num_cases == 1 else f"{self.num_cases} cases"
        return f"{cases} of seed {self.seed} in blocks of {self.block_size} (model {self.model})"


def setting_of(llm: LLM, seed: int, num_cases: int) -> Setting:
    """The setting of counts made with this engine."""
    identity = short(root_hash(configuration_of(llm.model, llm.cache)))
    return Setting(f"{llm.name} {identity}", llm.cache.block_size, seed, num_cases)


def checked_llm(llm: LLM) -> LLM:
    """The engine itself. Raises ValueError for what is none."""
    if not isinstance(llm, LLM):
        raise ValueError(f"llm has type {type(llm).__name__}; give an LLM, such as LLM('tiny')")
    return llm
