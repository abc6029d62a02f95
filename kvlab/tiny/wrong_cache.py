"""Wrong caches, by name: what a bug of an engine does to keys and values, and to the answer.

    damaged_answer(llm, case, "fact exchanged").text     one case
    count_answers(llm, count=40)                         how many of forty stay right, for each

Every damage is done to the cache of a real run, after the notes are computed and before the
question is. A right answer does not prove a right cache, so each run also says how far the logits
moved and how sure the model still was (sections 21.4 and 21.5).
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvlab.core.block_pool import KVCacheBlock
from kvlab.llm import LLM
from kvlab.tiny import damage, places
from kvlab.tiny.corpus import Case, cases, other_request
from kvlab.tiny.damage import Said, Table, over_contiguous, over_paged
from kvlab.tiny.wrong_answers import DamageCount, DamagedAnswer, DamageTable, counted, judged
from kvlab.tiny.wrong_cases import SEED, asked_cases, checked_llm, setting_of

PADDING = 16  # slots that fill up the batch

Places = Callable[[LLM, Case], list[int]]
Run = Callable[[LLM, Case], Said]


@dataclass(frozen=True)
class Damage:
    """One way to spoil a cache.

    done: what is done to it. bug: what does the same in a real engine. mark: one word for a
    changed position. positions(llm, case): those whose keys and values, mask or numbers are no
    longer right. answer(llm, case): the run. padding: slots added between notes and question.
    """

    name: str
    done: str
    bug: str
    mark: str
    positions: Places
    answer: Run
    padding: int = 0


def no_positions(llm: LLM, case: Case) -> list[int]:
    return []


# ---- runs


def hidden(positions: Places) -> Run:
    """A run whose question cannot read these positions."""
    return lambda llm, case: over_contiguous(llm, case, hidden=positions(llm, case))


def late(shift: int) -> Run:
    """A run whose question counts its positions from `shift` too far on."""
    return lambda llm, case: over_contiguous(llm, case, shift=shift)


def from_zero(llm: LLM, case: Case) -> Said:
    return over_contiguous(llm, case, shift=-places.context_length(llm, case))


def padding_read(llm: LLM, case: Case) -> Said:
    return over_contiguous(llm, case, padding=PADDING)


def zeroed(llm: LLM, case: Case) -> Said:
    """A key of zeros scores 0, and exp(0) = 1 is a share of the softmax like any other."""
    return over_paged(llm, case, lambda t: damage.zero(llm, t, places.fact_blocks(llm, case)))


def exchanged(llm: LLM, case: Case, other: Case | None = None) -> Said:
    """other: a prompt with its fact in the same blocks; None: `other_request`."""
    other = other_request(case) if other is None else other
    blocks, theirs = places.fact_blocks(llm, case), places.fact_blocks(llm, other)
    if theirs != blocks:
        raise ValueError(f"this fact lies in blocks {blocks}, the other request's in {theirs}")
    with damage.blocks_of_another(llm, other) as found:
        return _reading(llm, case, {i: found[i] for i in blocks})


def overwritten(llm: LLM, case: Case) -> Said:
    """The newcomer fills the blocks it is given from its own first position on."""
    (newcomer,) = cases(1, 6, zlib.crc32(case.prompt.encode()), in_question=0)
    with damage.blocks_of_another(llm, newcomer) as found:
        blocks = places.fact_blocks(llm, case)
        return _reading(llm, case, dict(zip(blocks, found, strict=False)))


def _reading(llm: LLM, case: Case, foreign: dict[int, KVCacheBlock]) -> Said:
    """The run whose table names foreign blocks at these logical ones."""
    pool = llm.engine.scheduler.manager.pool

    def change(table: Table) -> None:
        for logical, block in foreign.items():
            damage.point_at(pool, table, logical, block)

    return over_paged(llm, case, change)


def turned(*, values: bool) -> Run:
    """Keys, and values if wished, of the whole context one slot further on."""

    def run(llm: LLM, case: Case) -> Said:
        n = places.context_length(llm, case)
        turn = damage.turn_slots
        return over_paged(llm, case, lambda t: turn(llm, t, n, keys=True, values=values))

    return run


def table_reversed(llm: LLM, case: Case) -> Said:
    full = places.context_length(llm, case) // llm.cache.block_size

    def change(table: Table) -> None:
        table[:full] = reversed(table[:full])

    return over_paged(llm, case, change)


# ---- the list

_ALL = (
    Damage("nothing", "The cache is left as it is.", "No bug.", "intact", no_positions, over_paged),
    Damage(
        "another block hidden",
        "Attention cannot see a block that has nothing to do with the question.",
        "A block is evicted, or left out of the table, that this question does not need.",
        "hidden",
        places.unrelated_positions,
        hidden(places.unrelated_positions),
    ),
    Damage(
        "fact hidden",
        "Attention cannot see the blocks that hold the fact's sentence.",
        "A block is evicted that is still needed, and reads skip it.",
        "hidden",
        places.fact_block_positions,
        hidden(places.fact_block_positions),
    ),
    Damage(
        "fact zeroed",
        "Keys and values of the fact's blocks are zeros.",
        "A block is evicted and cleared, but still read.",
        "zeros",
        places.fact_block_positions,
        zeroed,
    ),
    Damage(
        "fact exchanged",
        "The table names another request's blocks in place of the fact's: the same text, "
        "another value.",
        "A wrong entry in the block table, or two prompts taken for the same prefix.",
        "foreign",
        places.fact_block_positions,
        exchanged,
    ),
    Damage(
        "fact overwritten",
        "The fact's blocks hold the first positions of another request.",
        "A block is freed too early and given to the next request, which writes its own start.",
        "overwritten",
        places.fact_block_positions,
        overwritten,
    ),
    Damage(
        "value's word hidden",
        "Attention cannot see the one position of the value's word.",
        "A mask that leaves out too little: later positions have read the word already.",
        "hidden",
        places.value_alone,
        hidden(places.value_alone),
    ),
    Damage(
        "value's block hidden",
        "Attention cannot see the block that holds the value's word; the rest of the sentence may "
        "lie in a neighbour.",
        "One block of a sentence that spans two is lost.",
        "hidden",
        places.value_block_positions,
        hidden(places.value_block_positions),
    ),
    Damage(
        "positions 1 late",
        "The question and all that follows are rotated as if they stood one position further on.",
        "The count of computed positions is off by one after a prefix hit.",
        "moved",
        places.question_positions,
        late(1),
    ),
    Damage(
        "positions 16 late",
        "The question and all that follows are rotated as if they stood 16 positions further on.",
        "Positions are counted in whole blocks, or padding is counted as text.",
        "moved",
        places.question_positions,
        late(16),
    ),
    Damage(
        "positions from 0",
        "The question is rotated as if it began the prompt.",
        "After a prefix hit, positions count the new tokens alone.",
        "moved",
        places.question_positions,
        from_zero,
    ),
    Damage(
        "padding read",
        f"{PADDING} slots of padding after the notes are read as if they were text.",
        "The mask of a padded batch does not exclude the padding.",
        "padding",
        no_positions,
        padding_read,
        padding=PADDING,
    ),
    Damage(
        "slots turned by one",
        "Keys and values of the notes lie one slot further on, the last ones in slot 0.",
        "Slots are numbered in another way than intended, but K and V agree on it.",
        "turned",
        places.context_positions,
        turned(values=True),
    ),
    Damage(
        "table reversed",
        "The full blocks of the notes stand in the table in reverse order.",
        "A block table is sorted in the wrong way after the notes were computed.",
        "reversed",
        places.mirrored_positions,
        table_reversed,
    ),
    Damage(
        "keys turned by one",
        "The keys of the notes lie one slot further on, their values stay.",
        "Slot arithmetic is off by one in one of two kernels: each key is paired with a "
        "neighbour's value.",
        "keys turned",
        places.context_positions,
        turned(values=False),
    ),
)
DAMAGES: dict[str, Damage] = {d.name: d for d in _ALL}


# ---- asking


def damage_named(name: str) -> Damage:
    """Raises ValueError with all names for one that is not among them."""
    if not isinstance(name, str) or name not in DAMAGES:
        raise ValueError(f"damage is {name!r}; choose one of {', '.join(DAMAGES)}")
    return DAMAGES[name]


def damaged_answer(llm: LLM, case: Case, name: str, intact: Said | None = None) -> DamagedAnswer:
    """What the model answers over a cache damaged in the way called `name`.

    intact: the same case's run over an intact cache, where there is one already.
    Raises ValueError for an unknown name or a case whose fact is not in its prompt, and
    RuntimeError while the engine has unfinished requests.
    """
    chosen = damage_named(name)
    intact = over_paged(llm, case) if intact is None else intact
    said = intact if chosen.answer is over_paged else chosen.answer(llm, case)
    return judged(llm, case, name, said, intact)


def count_answers(
    llm: LLM | None = None, names: Iterable[str] | None = None, count: int = 40, seed: int = SEED
) -> DamageTable:
    """The same `count` cases under each damage (None: all). Half a second a damage of 40 cases.

    Raises ValueError for an unknown name, and for a count below 1.
    """
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        raise ValueError(f"names is {names!r}; give a list of names, such as ['fact hidden']")
    chosen = [damage_named(name).name for name in (DAMAGES if names is None else names)]
    asked = asked_cases(count, seed)
    llm = checked_llm(LLM("tiny") if llm is None else llm)
    intact = [over_paged(llm, case) for case in asked]
    rows = tuple(count_one(llm, name, asked, intact) for name in chosen)
    return DamageTable(setting_of(llm, seed, count), rows)


def count_one(llm: LLM, name: str, asked: Sequence[Case], intact: Sequence[Said]) -> DamageCount:
    """One row: these cases under one damage. intact: their runs over an intact cache."""
    pairs = zip(asked, intact, strict=True)
    return counted([damaged_answer(llm, case, name, before) for case, before in pairs])
