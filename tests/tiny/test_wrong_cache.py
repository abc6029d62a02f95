"""A spoilt cache shows in the answer, or in the logits alone; the engine stays clean."""

import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from kvlab import tiny
from kvlab.llm import LLM
from kvlab.tensors.kv_cache import ContiguousAttention
from kvlab.tiny import places
from kvlab.tiny import wrong_answers as results
from kvlab.tiny.corpus import Case, cases, other_request
from kvlab.tiny.damage import (
    Said,
    computed_context,
    over_contiguous,
    over_paged,
    turn_slots,
    zero,
)
from kvlab.tiny.evaluate import answer
from kvlab.tiny.wrong_answers import DamageCount, DamageTable
from kvlab.tiny.wrong_cache import (
    DAMAGES,
    asked_cases,
    count_answers,
    damaged_answer,
    exchanged,
)
from kvlab.tiny.wrong_cases import Setting

COUNT = 16
ADA = "Ada likes soup."
EXAMPLE = Case(
    prompt=tiny.prompt(f"Ben likes cake. {ADA}", "What does Ada like?"),
    answer=ADA,
    statement=ADA,
    question="What does Ada like?",
    subject="Ada",
    value="soup",
    notes=f"Ben likes cake. {ADA}",
)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", device="cpu")


@pytest.fixture(scope="module")
def small() -> LLM:
    """Blocks of four, so that notes span many."""
    return LLM("tiny", block_size=4, device="cpu")


@pytest.fixture(scope="module")
def table(llm: LLM) -> DamageTable:
    return count_answers(llm, count=COUNT)


@pytest.fixture
def clean(llm: LLM, small: LLM) -> Iterator[None]:
    """Whatever a test does, both engines end without requests and with all blocks free."""
    before = [each.engine.scheduler.config for each in (llm, small)]
    yield
    for each, config in zip((llm, small), before, strict=True):
        scheduler = each.engine.scheduler
        assert not each.engine.has_unfinished_requests()
        assert scheduler.config is config and each.runner.on_logits is None
        scheduler.check_invariants()
        assert scheduler.manager.pool.num_free_blocks == each.cache.num_blocks


# ---- where things lie


def test_where_a_fact_lies(small: LLM) -> None:
    """
    block 0: <|endoftext|> <|system|> Answer in   block 3: Ada likes soup .
    block 1: one short sentence .                 block 4: <|end|> <|user|> What does
    block 2: Ben likes cake .
    """
    assert places.fact_positions(small, EXAMPLE) == range(12, 16)
    assert places.fact_blocks(small, EXAMPLE) == [3]
    assert places.fact_block_positions(small, EXAMPLE) == [12, 13, 14, 15]
    assert places.value_position(small, EXAMPLE) == 14
    assert places.context_length(small, EXAMPLE) == 18
    assert places.unrelated_block(small, EXAMPLE) == 2
    assert places.mirrored_positions(small, EXAMPLE) == list(range(16))
    assert places.question_positions(small, EXAMPLE) == list(range(18, 25))


def test_of_an_odd_number_of_blocks_the_middle_one_stays_in_its_place() -> None:
    llm = LLM("tiny", block_size=6, device="cpu")  # 18 positions before the question
    assert places.mirrored_positions(llm, EXAMPLE) == [*range(6), *range(12, 18)]


# ---- what becomes of the answers


@pytest.mark.parametrize("name", ["nothing", "another block hidden", "table reversed"])
def test_what_the_question_does_not_need_can_be_spoilt(table: DamageTable, name: str) -> None:
    assert table[name].num_right == COUNT
    assert table[name].probability > 0.9


@pytest.mark.parametrize("name", ["fact hidden", "fact zeroed", "fact overwritten"])
def test_without_its_fact_an_answer_is_a_guess(table: DamageTable, name: str) -> None:
    assert table[name].num_right <= COUNT // 5
    assert table[name].probability < 0.3 and table[name].logit_change > 1


def test_another_requests_blocks_give_its_answer(table: DamageTable) -> None:
    assert table["fact exchanged"].num_other >= 0.95 * COUNT
    assert table["fact exchanged"].num_right == 0


def test_a_hidden_word_was_read_by_the_full_stop_before(table: DamageTable) -> None:
    """The trap: with the value's own position hidden, most answers stay right."""
    assert table["value's word hidden"].num_right >= 0.6 * COUNT
    assert table["fact hidden"].num_right < table["value's word hidden"].num_right
    assert table["value's block hidden"].num_right < COUNT


def test_slots_in_another_order_are_the_same_set_of_keys_and_values(table: DamageTable) -> None:
    for name in ("slots turned by one", "table reversed"):
        assert table[name].num_right == COUNT
        assert table[name].logit_change < 0.001  # only the order of sums differs
    assert table["keys turned by one"].num_right < COUNT // 2


def test_a_right_answer_can_hide_a_wrong_position(table: DamageTable) -> None:
    late = table["positions 1 late"]
    assert late.num_right >= 0.9 * COUNT and late.logit_change > 0.05
    assert table["positions 16 late"].logit_change > late.logit_change
    assert table["positions from 0"].num_right < late.num_right


def test_counts_add_up_and_repeat(llm: LLM, table: DamageTable) -> None:
    for row in table.rows:
        kinds = (row.num_other, row.num_declined, row.num_from_notes, row.num_made_up)
        assert row.num_right + sum(kinds) == row.num_cases == COUNT
    again = count_answers(llm, ["fact hidden", "positions from 0"], COUNT)
    assert again.rows == (table["fact hidden"], table["positions from 0"])


def test_every_damage_says_what_it_is() -> None:
    assert list(DAMAGES) == [damage.name for damage in DAMAGES.values()]
    for damage in DAMAGES.values():
        assert damage.done.endswith(".") and damage.bug.endswith(".") and damage.mark


# ---- the damage lands where it says, and nowhere else


def stored_before_and_after(
    monkeypatch: pytest.MonkeyPatch, llm: LLM, case: Case, name: str
) -> list[tuple[Tensor, Tensor]]:
    """K and V of the context through the request's own table: computed, and as the question
    finds them."""
    intact, execute = over_paged(llm, case), llm.runner.execute
    steps: list[tuple[int, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]] = []

    def watching(output):
        (row,) = output.requests
        before = llm.cache.read(list(row.block_ids), row.start)
        found = execute(output)
        steps.append((row.start, before, llm.cache.read(list(row.block_ids), row.end)))
        return found

    monkeypatch.setattr(llm.runner, "execute", watching)
    damaged_answer(llm, case, name, intact)
    own = max(i for i, (start, _, _) in enumerate(steps) if start == 0)
    return [steps[own][2], steps[own + 1][1]]


def differing(a: Tensor, b: Tensor) -> list[int]:
    """Positions at which [layers, heads, T, d] differ."""
    return (a != b).any(dim=-1).any(dim=1).any(dim=0).nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("name", "keys", "values"),
    [
        ("fact zeroed", lambda damage, value: damage, None),
        ("fact overwritten", lambda damage, value: damage, None),
        ("fact exchanged", lambda damage, value: [p for p in damage if p >= value], None),
        ("slots turned by one", lambda damage, value: damage, None),
        ("table reversed", lambda damage, value: damage, None),
        ("keys turned by one", lambda damage, value: damage, lambda damage, value: []),
    ],
    ids=lambda argument: argument if isinstance(argument, str) else "",
)
def test_exactly_the_stated_positions_change(
    monkeypatch: pytest.MonkeyPatch,
    clean: None,
    small: LLM,
    name: str,
    keys: Callable[[list[int], int], list[int]],
    values: Callable[[list[int], int], list[int]] | None,
) -> None:
    """In the exchanged blocks, what stands before the other value is the same in both requests."""
    case = asked_cases(1)[0]
    computed, found = stored_before_and_after(monkeypatch, small, case, name)
    stated, value = DAMAGES[name].positions(small, case), places.value_position(small, case)
    assert differing(computed[0], found[0]) == keys(stated, value)
    assert differing(computed[1], found[1]) == (values or keys)(stated, value)


def test_a_turned_slot_holds_what_the_one_before_held(
    monkeypatch: pytest.MonkeyPatch, clean: None, small: LLM
) -> None:
    case, size = asked_cases(1)[0], small.cache.block_size
    computed, found = stored_before_and_after(monkeypatch, small, case, "slots turned by one")
    for before, after in zip(computed, found, strict=True):  # K, then V
        assert torch.equal(after, before.roll(1, dims=2))
    computed, found = stored_before_and_after(monkeypatch, small, case, "table reversed")
    full = computed[0].shape[2] // size * size
    assert torch.equal(found[0][:, :, :size], computed[0][:, :, full - size : full])


def passes(llm: LLM, run: Callable[[], object]) -> list[tuple[list[int], Tensor]]:
    """Positions and mask [t, T] of each pass over a contiguous cache."""
    seen = []

    def note(module, arguments) -> None:
        _, positions, attention = arguments
        if isinstance(attention, ContiguousAttention):
            seen.append((positions.tolist(), attention.mask[0]))

    handle = llm.model.register_forward_pre_hook(note)
    try:
        run()
    finally:
        handle.remove()
    return seen


@pytest.mark.parametrize(
    "name", ["another block hidden", "fact hidden", "value's word hidden", "value's block hidden"]
)
def test_exactly_the_stated_positions_are_hidden(small: LLM, name: str) -> None:
    case = asked_cases(1)[0]
    length = places.context_length(small, case)
    _, (positions, mask), *decodes = passes(small, lambda: damaged_answer(small, case, name))
    assert positions == places.question_positions(small, case)
    for row in (mask, *(m for _, m in decodes)):
        hidden = (~row[:, :length]).nonzero()[:, 1].unique().tolist()
        assert hidden == DAMAGES[name].positions(small, case) != []


@pytest.mark.parametrize(
    ("name", "shift"), [("positions 1 late", 1), ("positions 16 late", 16), ("positions from 0", 0)]
)
def test_the_question_and_what_follows_are_moved(llm: LLM, name: str, shift: int) -> None:
    case = asked_cases(1)[0]
    start = places.context_length(llm, case) if shift else 0
    context, question, first, *_ = passes(llm, lambda: damaged_answer(llm, case, name))
    assert context[0] == places.context_positions(llm, case)
    assert question[0][0] == start + shift and first[0] == [question[0][-1] + 1]
    assert bool(question[1][:, : len(context[0])].all())


def test_padding_is_read_and_takes_no_position(llm: LLM) -> None:
    case = asked_cases(1)[0]
    context, padding, question, *_ = passes(llm, lambda: damaged_answer(llm, case, "padding read"))
    assert len(padding[0]) == 16
    assert question[0] == places.question_positions(llm, case)
    assert question[1].shape[1] == len(context[0]) + 16 + len(question[0])
    assert bool(question[1][:, : len(context[0]) + 16].all())


def test_an_intact_contiguous_cache_gives_the_engines_logits(llm: LLM) -> None:
    for case in cases(3, 6, seed=2, in_question=1):  # the notes stand in the question's turn
        paged, contiguous = over_paged(llm, case), over_contiguous(llm, case)
        assert paged.text == contiguous.text == answer(llm, case) == case.answer
        assert paged.token_ids == contiguous.token_ids
        torch.testing.assert_close(paged.logits, contiguous.logits, atol=1e-3, rtol=1e-3)


# ---- the engine afterwards


def test_spoilt_blocks_are_never_found_again(clean: None, llm: LLM) -> None:
    case = asked_cases(2)[1]
    for name in DAMAGES:
        damaged_answer(llm, case, name)
        for _ in range(2):
            (output,) = llm.generate(case.prompt)
            assert output.outputs[0].text.strip() == case.answer, name
        assert output.num_cached_tokens > 0  # prefix caching is on, and finds its own blocks


@pytest.mark.parametrize("name", ["fact zeroed", "fact exchanged", "positions 1 late"])
@pytest.mark.parametrize("passes_before", [0, 1, 2, 3])
def test_an_interrupted_run_leaves_nothing_behind(
    clean: None, llm: LLM, name: str, passes_before: int
) -> None:
    case = asked_cases(3)[2]
    intact, left = over_paged(llm, case), iter(range(passes_before))

    def interrupt(*_: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    handle = llm.model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        damaged_answer(llm, case, name, intact)
    handle.remove()
    assert answer(llm, case) == case.answer


def test_a_pool_that_is_too_small_is_refused() -> None:
    case = asked_cases(1)[0]
    need = -(-places.context_length(LLM("tiny", num_blocks=1), case) // 16)
    narrow = LLM("tiny", num_blocks=need + 1, device="cpu")  # one request fits, two do not
    assert damaged_answer(narrow, case, "fact zeroed").kind != results.RIGHT
    with pytest.raises(
        ValueError, match=r"the notes need \d+ blocks, \d+ are free; give more blocks"
    ):
        damaged_answer(narrow, case, "fact exchanged")
    assert narrow.engine.scheduler.manager.pool.num_free_blocks == need + 1


def test_what_cannot_be_done_is_refused(clean: None, llm: LLM) -> None:
    with pytest.raises(ValueError, match=r"'fact lost'; choose one of nothing, another block"):
        damaged_answer(llm, EXAMPLE, "fact lost")
    with pytest.raises(ValueError, match="'fact lost'"):
        count_answers(llm, ["nothing", "fact lost"])
    for count in (0, -1, 1.5, "3", None, True):
        with pytest.raises(ValueError, match=r"count is .*; give a whole number of at least 1"):
            count_answers(llm, count=count)
    for seed in (1.5, "6", None):
        with pytest.raises(ValueError, match=r"seed is .*; give a whole number"):
            count_answers(llm, ["nothing"], count=1, seed=seed)
    for names in ("nothing", 5):
        with pytest.raises(ValueError, match=r"names is .*; give a list of names, such as"):
            count_answers(llm, names)
    with pytest.raises(ValueError, match=r"damage is \['a'\]; choose one of nothing"):
        count_answers(llm, [["a"]])
    with pytest.raises(ValueError, match="llm has type str; give an LLM"):
        count_answers("tiny", count=1)
    with pytest.raises(ValueError, match="does not stand in the prompt"):
        damaged_answer(llm, Case("no", "x", "y", "z", "s", "v", "n"), "fact hidden")
    with pytest.raises(ValueError, match="no block of 16 tokens lies beside the fact"):
        damaged_answer(llm, EXAMPLE, "another block hidden")
    with pytest.raises(ValueError, match=r"this fact lies in blocks \[0\]"):
        exchanged(llm, EXAMPLE, asked_cases(1)[0])
    (request,) = llm.engine.add_request([1, 2, 3])
    with pytest.raises(RuntimeError, match="unfinished requests"):
        damaged_answer(llm, EXAMPLE, "fact zeroed")
    llm.engine.abort(request.request_id)


# ---- judging and showing


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Ada likes cake.", "from the notes"),
        ("Ada likes pears.", "made up"),
        ("Ada", "made up"),
        ("The notes do not say.", "says that the notes do not say"),
        (other_request(EXAMPLE).answer, "the other request's answer"),
    ],
)
def test_a_wrong_answer_has_a_kind(text: str, kind: str) -> None:
    said = Said(text, (), torch.empty(0))
    assert results.kind_of(said, EXAMPLE, False) == kind
    assert results.kind_of(said, EXAMPLE, True) == "right"


def test_probability_and_logit_change_follow_the_shared_words(llm: LLM) -> None:
    """The right words are Ada likes soup . <|end|>; the run goes wrong at the third."""
    right = [*llm.encode(ADA), 4]
    logits = torch.full((5, llm.model.config.vocab_size), -40.0)
    for i, token in enumerate(right):
        logits[i, token] = 40.0
    intact = Said(ADA, tuple(right), logits)
    wrong = logits.clone()
    (cake,) = llm.encode("cake")
    wrong[2, right[2]], wrong[2, cake] = 0.0, 3.0  # soup against cake
    wrong[3:] = 1000.0  # after another word nothing can be compared
    said = Said("Ada likes cake.", (*right[:2], cake, *right[3:]), wrong)
    found = results.judged(llm, EXAMPLE, "fact hidden", said, intact)
    assert found.kind == "from the notes" and not found.is_right
    assert found.probability == pytest.approx(1 / (1 + 2.718281828**3))
    assert found.logit_change == pytest.approx(43.0)
    same = results.judged(llm, EXAMPLE, "nothing", intact, intact)
    assert same.is_right and same.logit_change == 0 and same.probability == pytest.approx(1)


ROWS = DamageTable(
    Setting("tiny 8eccb781", block_size=16, seed=6, num_cases=40),
    (
        DamageCount("nothing", 40, 40, 0, 0, 0, 0, 0.9991, 0.0),
        DamageCount("fact hidden", 40, 2, 3, 4, 24, 7, 0.0523, 13.66),
    ),
)


def test_the_table_as_text() -> None:
    assert str(ROWS).splitlines() == [
        "6 facts, blocks of 16     cases  right  other  not said  notes  made up   prob.  logits",
        "nothing                      40     40      0         0      0        0    1.00     0.0",
        "fact hidden                  40      2      3         4     24        7    0.05    13.7",
    ]
    assert repr(ROWS) == str(ROWS)


def test_the_table_as_html() -> None:
    page = ROWS._repr_html_()
    cells = re.findall(r"<td>(.*?)</td>", page)
    assert cells[8:] == ["40", "2", "3", "4", "24", "7", "0.05", "13.7"]
    assert '<th scope="row">fact hidden</th>' in page and "<caption>Answers over" in page


def test_a_table_keeps_what_was_counted(small: LLM) -> None:
    found = count_answers(small, ["nothing"], 1, seed=99).setting
    assert (found.block_size, found.seed, found.num_cases) == (4, 99, 1)
    again = Setting(found.model, 4, 99, 1)
    assert count_answers(small, ["fact hidden"], 1, seed=99).setting == again
    assert str(ROWS.setting) == "40 cases of seed 6 in blocks of 16 (model tiny 8eccb781)"
    assert str(again).startswith("1 case of seed 99 in blocks of 4 (model tiny ")


def test_a_row_is_found_by_its_damage() -> None:
    assert ROWS["fact hidden"].num_from_notes == 24
    with pytest.raises(KeyError, match="'fact zeroed' was not counted; there are nothing, fact"):
        _ = ROWS["fact zeroed"]


@pytest.mark.parametrize("stored", ["int8", "q4_0"])
def test_codes_are_spoilt_as_numbers_are(stored: str) -> None:
    """Zeroed positions read as zeros, whatever a code of 0 stands for; turned ones are moved."""
    llm = LLM("tiny", block_size=4, cache_dtype=stored, device="cpu")
    with computed_context(llm, EXAMPLE) as request:
        table = llm.engine.scheduler.manager.blocks_of(request.request_id)
        ids = [block.block_id for block in table[:2]]
        before, _ = llm.cache.read(ids, 8)
        turn_slots(llm, table, 8, keys=True, values=False)
        turned, _ = llm.cache.read(ids, 8)
        zero(llm, table, [0])
        keys, values = llm.cache.read(ids, 8)
    assert torch.allclose(turned, before.roll(1, dims=2), atol=0.02 * float(before.abs().max()))
    assert float(keys[:, :, :4].abs().max()) == float(values[:, :, :4].abs().max()) == 0
    assert torch.equal(keys[:, :, 4:], turned[:, :, 4:])
