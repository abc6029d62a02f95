"""The allocator playground's limits: pools, long scripts, redo, signs in names, a damaged table."""

import itertools
import tracemalloc
import weakref
from collections.abc import Callable

import pytest
import torch

from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.widgets import allocator_playground
from kvlab.widgets.playground_check import Audit
from kvlab.widgets.playground_fresh import Recomputed, stacked
from kvlab.widgets.playground_live import TABLE_21_1
from kvlab.widgets.playground_pool import parse_pool
from kvlab.widgets.playground_run import Table, model, replay
from kvlab.widgets.playground_script import parse_script
from kvlab.widgets.playground_words import told

# ---- the pool as an argument


@pytest.mark.parametrize(
    ("pool", "ids"),
    [
        ("7 2 9", [7, 2, 9]),
        ("0-2, 7", [0, 1, 2, 7]),
        (3, [0, 1, 2]),
        (range(4, 0, -2), [4, 2]),
        ((i * i for i in range(3)), [0, 1, 4]),
        (torch.arange(3).numpy(), [0, 1, 2]),
    ],
)
def test_a_pool_is_a_number_ids_or_the_text_of_the_field(pool: object, ids: list[int]) -> None:
    widget = allocator_playground(pool, script="")
    assert parse_pool(widget.inputs["pool"]) == ids
    assert widget.trace.last_state()["free"] == ids


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (10**9, "pool is 1000000000; give 1 to 200 blocks, or their ids"),
        (10**30, "pool is 10{30}; give 1 to 200 blocks"),
        (0, "pool is 0; give 1 to 200 blocks"),
        (range(10**9), r"range\(0, 1000000000\) has more than 200 blocks; give 1 to 200 ids"),
        (range(10**30), "has more than 200 blocks"),
        (itertools.count(), "the pool has more than 200 blocks"),
        (True, r"pool is True; give block ids in their free order, such as \[7, 2, 9, 5\]"),
        (None, "pool is None; give block ids in their free order"),
        (3.5, "pool is 3.5; give block ids"),
        ({7, 2}, r"pool is \{.*\}; give block ids in their free order"),
        (b"72", "pool is b'72'"),
        ([7, True], "the pool has True; give whole numbers from 0 to 999"),
        ([1.5, 2], "the pool has 1.5; give whole numbers"),
        (["0-5"], "the pool has '0-5'; give whole numbers"),
        ([], "the pool has 0 blocks"),
        ("7 2 7", "block 7 twice"),
        ("7\n2", "give one line"),
    ],
)
def test_another_pool_is_refused_before_it_is_counted_out(pool: object, message: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=message):
        allocator_playground(pool)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000_000  # 10^9 ids would be 10^10 bytes


def test_a_range_that_stands_again_and_again_in_the_field_is_not_counted_out() -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="the pool has block 0 twice"):
        parse_pool("0-999 " * 3000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3_000_000


# ---- long scripts


def test_no_read_tensor_is_kept_and_a_table_that_many_share_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[weakref.ref] = []
    alive: list[int] = []
    real = PagedCache.read

    def watched(self: PagedCache, block_ids: list[int], length: int) -> tuple:
        alive.append(sum(ref() is not None for ref in reads))
        pair = real(self, block_ids, length)
        reads.extend(map(weakref.ref, pair))
        return pair

    monkeypatch.setattr(PagedCache, "read", watched)
    forks = "\n".join(f"fork F{i} A" for i in range(20))
    done = replay(f"admit A 100\n{forks}\nappend F3\nappend A", range(12), 16)
    assert all(action.audit.ok for action in done.done)
    assert [action.audit.positions for action in done.done[::10]] == [100, 1100, 2100]
    assert len(alive) == 21 + 2 + 3  # one table for all, then F3's too, then A's as well
    assert max(alive) <= 2 and all(ref() is None for ref in reads)


def test_a_script_may_append_2_000_tokens_one_by_one_and_no_more() -> None:
    script = ["admit A 6", *["append A 500"] * 4]
    assert sum(action.count for action in parse_script("\n".join(script))[1:]) == 2000
    message = (
        "line 6, 'append A # the last': with this line 2,001 tokens are appended one by one; "
        "append at most 2,000 in all, or admit a longer prompt"
    )
    with pytest.raises(ValueError, match=message):
        replay("\n".join([*script, "append A # the last"]))


# ---- redo, and actions from a cell


@pytest.mark.parametrize(
    "change",
    [
        lambda widget: widget.set(script="admit A 2\nadmit B 2"),
        lambda widget: widget._update({**widget.inputs, "script": "admit A 1"}, ["browser", 1]),
        lambda widget: widget.do("finish B"),
        lambda widget: widget.set(**widget.presets["fork and copy-on-write"]),
    ],
)
def test_nothing_is_put_back_into_a_script_that_was_changed_in_between(change: Callable) -> None:
    widget = allocator_playground()
    widget.do("append A")
    assert widget.undo() == "append A"
    change(widget)
    script = widget.script
    assert widget.redo() is None and widget.script == script
    widget.set(script=TABLE_21_1)  # not even where the old one comes back
    assert widget.redo() is None


def test_what_was_taken_back_stays_where_the_script_is_the_same() -> None:
    widget = allocator_playground()
    widget.do("append A", "append B")
    assert (widget.undo(), widget.undo()) == ("append B", "append A")
    widget.set(pool="0-9")
    widget.set(script="admit A")  # refused
    with pytest.raises(ValueError, match="no request 'Z'"):
        widget.do("append Z")
    assert (widget.redo(), widget.redo(), widget.redo()) == ("append A", "append B", None)
    assert widget.script == f"{TABLE_21_1}\nappend A\nappend B"


@pytest.mark.parametrize("action", [3, None, b"append A", ["append A"]])
def test_an_action_that_is_no_text_is_refused(action: object) -> None:
    widget = allocator_playground()
    with pytest.raises(ValueError, match='give actions as text, such as "append A"'):
        widget.do("append A", action)
    assert widget.script == TABLE_21_1


# ---- signs


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("admit A#1 3", "A#1"),
        ('admit "#1" 3', "#1"),
        ("admit '# 1' 3", "# 1"),
        ("admit A 3 # it's \"A", "A"),
        ("admit A 3\t#4", "A"),
        ('admit "A # B" 3 # C', "A # B"),
        (r"admit A\#\ B 3", "A# B"),
        (r'admit "say \"A\"" 3', 'say "A"'),
        ("admit\u00a0A 3", "A"),
    ],
)
def test_a_hash_begins_a_comment_only_after_a_blank(line: str, name: str) -> None:
    (action,) = parse_script(f"# admit X 1\n  #it's\n{line}")
    assert (action.kind, action.name, action.count, action.line) == ("admit", name, 3, 3)


def test_a_name_with_a_hash_is_not_taken_for_another() -> None:
    widget = allocator_playground(script="admit A 6\nadmit A#1 3")
    assert widget.do("append A#1") == "append A#1: position 3 goes to block 9, slot 3"
    with pytest.raises(ValueError, match="there is no request 'A#2'"):
        widget.do("append A#2")


def test_half_a_character_is_told_in_words() -> None:
    told_so = r"line 1, 'admit \\ud800 3': '\\ud800' is half a character .* leave it out"
    with pytest.raises(ValueError, match=told_so):
        replay("admit \ud800 3")
    with pytest.raises(ValueError, match="half a character"):
        allocator_playground(script="# \udfff")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("admit A 8\nadmit B 8\nadmit C 1", "1 token needs 1 free block, and none of the pool's 4"),
        ("admit A 1\nshare B A 2", "'A' has 1 token, not 2; share that one"),
        ("admit A 2\nshare B A 3", "'A' has 2 tokens, not 3; share 1 to 2 of them"),
    ],
)
def test_one_is_not_many(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(script)


# ---- an audit of damaged data


def damage_identity(table: Table) -> None:
    table.scheduler.manager.pool.blocks[2].block_hash = b"x" * 32


def damage_index(table: Table) -> None:
    table.scheduler.manager.pool._cached.clear()


def damage_count(table: Table) -> None:
    table.requests["A"].num_computed_tokens -= 1  # within its last block


def damage_queue(table: Table) -> None:
    table.scheduler.manager.pool._free[99] = None


def damage_table(table: Table) -> None:
    table.scheduler.manager._tables["A"] = [None]


def damage_length(table: Table) -> None:
    table.scheduler.manager._tables["A"].pop()


def damage_running(table: Table) -> None:
    table.scheduler.running.pop(0)


def damage_tokens(table: Table) -> None:
    table.requests["A"].all_token_ids[0] = 1 - table.requests["A"].all_token_ids[0] % 2


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (damage_identity, "block 2: identity not indexed"),
        (damage_index, "block 7: identity not indexed"),
        (damage_count, "request 'A': num_computed_tokens is 5, and 6 positions were processed"),
        (damage_queue, "the blocks could not be checked: KeyError: 99"),
        (damage_table, "K/V of 'A' could not be checked: AttributeError: "),
        (damage_length, "request 'A': 6 positions were processed; its table has room for 4"),
        (damage_running, "request 'A': it should be running, and the scheduler does not have it"),
        (damage_tokens, "≠ recomputed"),
    ],
)
def test_whatever_is_damaged_is_told_and_nothing_is_raised(
    damage: Callable[[Table], None], finding: str
) -> None:
    table = Table([7, 2, 9, 5], 4, PrefixCachePolicy())
    for action in parse_script(TABLE_21_1):
        table.carry_out(action)
    sound = table.auditor.audit({"A": 6, "B": 4})
    assert sound.ok and sound.positions == 10
    damage(table)
    audit = table.auditor.audit({"A": 6, "B": 4})
    assert not audit.ok
    assert any(finding in text for _, text, state in told(audit) if state == "bad")


def test_a_failed_audit_stands_in_the_editor_s_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = Table.carry_out

    def damaging(self: Table, action: object) -> None:
        carry_out(self, action)
        self.cache.key_cache[0, 7, 0] += 0.5

    monkeypatch.setattr(Table, "carry_out", damaging)
    widget = allocator_playground(script="admit A 4")
    assert widget.result["lines"] == [
        [
            "Broken invariant",
            "after admit A 4: K/V of 4 positions through the tables ≠ recomputed (apart by 0.5)",
            "notice",
        ]
    ]
    assert isinstance(widget.actions[0].audit, Audit)


def test_what_is_recomputed_is_one_pass_over_all_tokens_and_follows_a_change() -> None:
    def whole(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        cache = ContiguousCache(model().config)
        contiguous_forward(model(), torch.tensor([tokens]), cache)
        return stacked(cache)

    found = Recomputed(model())
    request = Request("A", [3, 1, 4])
    first = found.of(request, 3)
    for token in (1, 5, 9):
        request.append_output(token)
    child = Request("B", [3, 1, 4], parent_id="A")
    assert found.of(child, 3) is first  # a fork's tokens are its parent's
    torch.testing.assert_close(stacked(found.of(request, 6)), whole([3, 1, 4, 1, 5, 9]))
    assert found.of(child, 3) is first and first.width == 3
    request.all_token_ids[1] = 2
    torch.testing.assert_close(stacked(found.of(request, 6)), whole([3, 2, 4, 1, 5, 9]))
