"""Where things lie in a prompt's cache: the context, the fact, its value, a block beside them.

|<---------------- context_length ---------------->|
| <|endoftext|> ... Ada likes soup . ... <|user|>  | What does Ada like ? <|end|> ...
|                   |fact_positions|               | the question
|   block 0   |    block 1   |    block 2   | ...
"""

from collections.abc import Iterable

from kvlab.llm import LLM
from kvlab.tiny.corpus import Case


def context_length(llm: LLM, case: Case) -> int:
    """Positions of a prompt before its question: what is computed before anything is damaged.

    Raises ValueError, as all functions here, for a case whose sentences are not in its prompt.
    """
    return _places(llm, case.prompt, case.question)[-1].start


def fact_positions(llm: LLM, case: Case) -> range:
    """Positions of the sentence that holds the answer."""
    return _places(llm, case.prompt, case.statement)[0]


def value_position(llm: LLM, case: Case) -> int:
    """Position of the word, within this sentence, that the question asks for."""
    value = llm.encode(case.value)
    ids, where = llm.encode(case.prompt), fact_positions(llm, case)
    found = [p for p in where if ids[p : p + 1] == value]
    if not found:
        raise ValueError(f"{case.value!r} is no word of the fact {case.statement!r}")
    return found[-1]


def _places(llm: LLM, prompt: str, sentence: str) -> list[range]:
    ids, part = llm.encode(prompt), llm.encode(sentence)
    n = len(part)
    found = [range(i, i + n) for i in range(len(ids) - n + 1) if ids[i : i + n] == part]
    if not found:
        raise ValueError(
            f"{sentence!r} does not stand in the prompt {prompt!r}; "
            "take cases from kvlab.tiny.corpus.cases"
        )
    return found


def blocks_of(llm: LLM, positions: Iterable[int]) -> list[int]:
    """Logical blocks that hold any of these positions."""
    return sorted({position // llm.cache.block_size for position in positions})


def fact_blocks(llm: LLM, case: Case) -> list[int]:
    """Logical blocks of the fact's sentence.

    The whole sentence counts, not the value's word alone: the positions after it have read the
    value too, and the full stop is enough for a right answer.
    """
    return blocks_of(llm, fact_positions(llm, case))


def unrelated_block(llm: LLM, case: Case) -> int:
    """A full logical block in the middle of what neither holds the fact nor begins the prompt.

    Raises ValueError where the notes are too short to have one.
    """
    full = range(1, context_length(llm, case) // llm.cache.block_size)
    others = [block for block in full if block not in fact_blocks(llm, case)]
    if not others:
        raise ValueError(
            f"no block of {llm.cache.block_size} tokens lies beside the fact {case.statement!r}; "
            "take a smaller block_size or longer notes"
        )
    return others[len(others) // 2]


# ---- positions of the context, by what lies there


def positions_in(llm: LLM, case: Case, blocks: Iterable[int]) -> list[int]:
    """Those that lie in these logical blocks."""
    length, wanted = context_length(llm, case), set(blocks)
    return [p for p in range(length) if p // llm.cache.block_size in wanted]


def fact_block_positions(llm: LLM, case: Case) -> list[int]:
    return positions_in(llm, case, fact_blocks(llm, case))


def unrelated_positions(llm: LLM, case: Case) -> list[int]:
    return positions_in(llm, case, [unrelated_block(llm, case)])


def value_alone(llm: LLM, case: Case) -> list[int]:
    return [value_position(llm, case)]


def value_block_positions(llm: LLM, case: Case) -> list[int]:
    return positions_in(llm, case, blocks_of(llm, value_alone(llm, case)))


def context_positions(llm: LLM, case: Case) -> list[int]:
    return list(range(context_length(llm, case)))


def question_positions(llm: LLM, case: Case) -> list[int]:
    """The question's and the tags' after it: what follows the context."""
    return list(range(context_length(llm, case), len(llm.encode(case.prompt))))


def mirrored_positions(llm: LLM, case: Case) -> list[int]:
    """Those that move when the full blocks are put in reverse order.

    Of an odd number of blocks, the middle one stays in its place.
    """
    full = context_length(llm, case) // llm.cache.block_size
    return positions_in(llm, case, [i for i in range(full) if i != full - 1 - i])
