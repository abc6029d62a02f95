"""A live editor over real runs: choose a way to spoil the cache, and read what the model says."""

from kvlab.llm import LLM
from kvlab.tiny import places
from kvlab.tiny.corpus import Case
from kvlab.tiny.damage import over_paged
from kvlab.tiny.wrong_answers import RIGHT, DamageCount, DamagedAnswer, DamageTable
from kvlab.tiny.wrong_cache import DAMAGES, Damage, count_one, damage_named
from kvlab.tiny.wrong_cache import damaged_answer as answer_over
from kvlab.tiny.wrong_cases import SEED, asked_cases, checked_llm, setting_of
from kvlab.widgets.controls import Choice, Slider
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.growth_live import beside
from kvlab.widgets.wrong_cache_strip import strip_payload, where


def wrong_cache_lab(
    llm: LLM,
    damage: str = "fact exchanged",
    case: int = 1,
    count: int = 20,
    table: DamageTable | None = None,
) -> LiveEditor:
    """A damage and the number of a case on one side, both answers and the changed blocks below.

    count: cases to choose from. Of a damage that is chosen for the first time, all of them are
    counted, and the count is kept. table: counts that `count_answers` of these cases made before.
    Each update is a run in an engine of its own; that of `llm` is left alone. Raises ValueError
    for an unknown damage, a case that is not among 1 to `count`, and counts of something else.
    Sections 21.4 and 21.5.
    """
    damage_named(damage)
    asked, own = asked_cases(count), beside(checked_llm(llm))
    counts = {} if table is None else _counts(table, own, count)
    intact = [over_paged(own, each) for each in asked]

    def compute(damage: str, case: int) -> dict:
        this, before = asked[case - 1], intact[case - 1]
        if damage not in counts:
            counts[damage] = count_one(own, damage, asked, intact)
        found = answer_over(own, this, damage, before)
        good = answer_over(own, this, "nothing", before)
        lines = _lines(this, good, found, counts[damage])
        return {"lines": lines, "view": _picture(own, this, DAMAGES[damage], good, found)}

    controls = [
        Choice("damage", "What happens to the cache", damage, tuple(DAMAGES)),
        Slider("case", "Case", case, 1, count),
    ]
    return LiveEditor(compute, controls, "A wrong cache, and what the model says over it")


def _counts(table: DamageTable, llm: LLM, count: int) -> dict[str, DamageCount]:
    """Its rows by damage, if it has counted the cases that the laboratory asks."""
    if not isinstance(table, DamageTable):
        raise ValueError(f"table is {table!r}; give what count_answers returns")
    wanted = setting_of(llm, SEED, count)
    if table.setting != wanted:
        raise ValueError(
            f"table counts {table.setting}, and the laboratory asks {wanted}; "
            f"give count_answers(llm, count={count}) of the same llm, or leave table out"
        )
    return {row.damage: row for row in table.rows}


def verdict(found: DamagedAnswer) -> str:
    """The answer in quotes with a sign and its kind."""
    return f"{found.text or '(no text)'}  {'✓' if found.kind == RIGHT else '✗'} {found.kind}"


def _lines(
    case: Case, intact: DamagedAnswer, found: DamagedAnswer, row: DamageCount
) -> list[list[str]]:
    """Always four: the question with its fact, both answers, and the count."""
    counted = (
        f"{row.num_right} right · {row.num_other} the other request's answer · "
        f"{row.num_from_notes} from the notes · {row.num_made_up} made up"
    )
    if row.num_declined:
        counted += f" · {row.num_declined} times “The notes do not say.”"
    return [
        ["Question", f"{case.question}  The notes say: {case.statement}", "plain"],
        ["Intact cache", verdict(intact), "plain"],
        ["Damaged cache", verdict(found), "answer"],
        [f"All {row.num_cases} cases", counted, "plain"],
    ]


def _picture(
    llm: LLM, case: Case, damage: Damage, intact: DamagedAnswer, found: DamagedAnswer
) -> dict:
    ids, changed = llm.encode(case.prompt), damage.positions(llm, case)
    return strip_payload(
        [llm.tokenizer.token_text(i).strip() for i in ids],
        llm.cache.block_size,
        places.context_length(llm, case),
        changed,
        places.fact_positions(llm, case),
        damage.mark,
        _sentence(damage, where(changed, llm.cache.block_size), intact, found),
        damage.padding,
    )


def _sentence(damage: Damage, place: str, intact: DamagedAnswer, found: DamagedAnswer) -> str:
    """What was done and where, what it did to the answer, and whose bug it is."""
    if found.damage == "nothing":
        return f"{damage.done} The model says “{found.text}”: {found.kind}."
    at = f" Changed: {place}." if place else ""
    moved = "No logit moved by 0.01 or more"
    if found.logit_change >= 0.01:
        moved = f"Logits moved by up to {found.logit_change:.1f}"
    return (
        f"{damage.done}{at} The model says “{found.text}”: {found.kind}. {moved}; the least likely "
        f"word of the right answer has a probability of {found.probability:.3f} "
        f"(intact cache: {intact.probability:.3f}). In a real engine: "
        f"{damage.bug[0].lower()}{damage.bug[1:]}"
    )
