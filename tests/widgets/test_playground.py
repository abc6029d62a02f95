"""The allocator playground: section 21.5's example, random scripts, errors, undo, and its forms."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import Trace
from kvlab.widgets import allocator_playground, block_table
from kvlab.widgets.nested import nested_content
from kvlab.widgets.playground_live import KEEP, PRESETS, RELEASE, STEPS, TABLE_21_1
from kvlab.widgets.playground_run import replay
from kvlab.widgets.playground_story import playground_payload

HOSTILE = "<img src=x onerror=alert(1)>"
CHAPTER = f"{TABLE_21_1}\n{STEPS}"


def after(script: str, **options: object) -> dict:
    """The state of the trace's last frame."""
    return replay(script, **options).trace.last_state()


def tables(state: dict) -> dict[str, list[int]]:
    return {name: r["block_table"] for name, r in state["requests"].items()}


def counts(state: dict) -> dict[int, int]:
    return {int(i): b["ref_cnt"] for i, b in state["blocks"].items() if b["ref_cnt"]}


# ---- section 21.5's example, by its own numbers


def test_table_21_1() -> None:
    state = after(TABLE_21_1)
    assert tables(state) == {"A": [7, 2], "B": [9]}
    assert {i: state["blocks"][i]["filled"] for i in ("7", "2", "9")} == {"7": 4, "2": 2, "9": 4}
    logical, slot = divmod(5, 4)
    assert (tables(state)["A"][logical], slot) == (2, 1)  # token 5
    assert state["free"] == [5]


def test_steps_1_to_5() -> None:
    states = {}
    done = replay(CHAPTER)
    frames = [frame.state for frame in done.trace.frames()]
    for number, action in enumerate(done.done, 1):
        states[number] = frames[action.frame]
    # 1: positions 6 and 7
    assert [done.done[i].note for i in (2, 3)] == [
        "position 6 goes to block 2, slot 2",
        "position 7 goes to block 2, slot 3",
    ]
    assert (tables(states[4])["A"], states[4]["free"]) == ([7, 2], [5])
    # 2: position 8
    assert done.done[4].note == "takes block 5; position 8 goes to block 5, slot 0"
    assert (tables(states[5])["A"], states[5]["free"]) == ([7, 2, 5], [])
    # 3: C shares block 7
    assert (tables(states[6])["C"], counts(states[6])) == ([7], {7: 2, 2: 1, 5: 1, 9: 1})
    assert done.done[5].note.startswith("finds block 7; computes nothing")
    # 4: A finishes
    assert (set(states[7]["free"]), counts(states[7])) == ({2, 5}, {7: 1, 9: 1})
    # 5: C, then B
    assert (set(states[8]["free"]), counts(states[8])) == ({2, 5, 7}, {9: 1})
    assert (set(states[9]["free"]), counts(states[9])) == ({2, 5, 7, 9}, {})
    assert all(action.audit.ok for action in done.done)


def test_selecting_a_token_takes_no_slot_and_processing_it_does() -> None:
    done = replay(f"{TABLE_21_1}\nappend A")
    kinds = [event.kind for event in done.trace.events[-3:]]
    assert kinds == ["selected", "scheduled", "computed"]
    frames = [frame.state for frame in done.trace.frames()]
    assert [f["blocks"]["2"]["filled"] for f in frames[-4:]] == [2, 2, 2, 3]


def test_with_retention_a_finished_request_s_blocks_are_found_again() -> None:
    script = "admit A 8\nfinish A\nshare C A 8 1"
    assert tables(after(script, retain_freed=True))["C"][:2] == [7, 2]
    assert after(script, retain_freed=True)["requests"]["C"]["num_cached_tokens"] == 8
    assert after(script)["requests"]["C"]["num_cached_tokens"] == 0  # released at once


@pytest.mark.parametrize(("kept_logits", "cached"), [(0, 0), (2, 4)])
def test_a_hit_covers_a_whole_prompt_with_kept_logits_alone(kept_logits: int, cached: int) -> None:
    state = after("admit A 6\nshare C A 4", kept_logits=kept_logits)
    assert state["requests"]["C"]["num_cached_tokens"] == cached
    assert tables(state)["C"] == ([7] if cached else [9])


def test_a_partly_filled_block_is_never_found() -> None:
    assert tables(after("admit A 6\nshare C A 6"))["C"] == [7, 9]


def test_a_fork_shares_all_blocks_and_copies_before_it_writes() -> None:
    script = "admit A 6\nfork D A"
    assert (tables(after(script))["D"], counts(after(script))) == ([7, 2], {7: 2, 2: 2})
    done = replay(f"{script}\nappend D\nappend A")
    assert [a.note for a in done.done[2:]] == [
        "copies block 2 to block 9; position 6 goes to block 9, slot 2",
        "position 6 goes to block 2, slot 2",
    ]
    state = done.trace.last_state()
    assert (tables(state)["A"], tables(state)["D"]) == ([7, 2], [7, 9])
    one, other = (done.requests[name].all_token_ids for name in "AD")
    assert one[:6] == other[:6] and one[6] != other[6]  # each draws for itself


# ---- the audit can fail


def test_the_audit_notices_a_damaged_slot_a_wrong_count_and_a_lost_block() -> None:
    from kvlab.core.prefix_cache import PrefixCachePolicy
    from kvlab.widgets.playground_check import Audit
    from kvlab.widgets.playground_run import Table
    from kvlab.widgets.playground_script import parse_script
    from kvlab.widgets.playground_words import told

    def audited() -> Audit:
        return table.auditor.audit({"A": 6, "B": 4})

    table = Table([7, 2, 9, 5], 4, PrefixCachePolicy())
    for action in parse_script(TABLE_21_1):
        table.carry_out(action)
    assert audited().ok
    slot = table.cache.key_cache[1, 2, 1]
    kept = slot.clone()
    slot += 0.5
    assert not audited().recomputed and "≠ recomputed (apart by 0.5)" in told(audited())[2][1]
    slot.fill_(float("nan"))
    assert not audited().recomputed
    slot.copy_(kept)
    pool = table.scheduler.manager.pool
    pool.blocks[7].ref_cnt = 2
    assert not audited().referenced and audited().broken
    assert told(audited())[1][1:] == ["block 7: 2 counted, 1 table", "bad"]
    pool.blocks[7].ref_cnt = 1
    del pool._free[5]
    assert not audited().balanced and "≠ 4 usable blocks" in told(audited())[0][1]


# ---- random scripts


def random_script(seed: int, actions: int) -> list[str]:
    """Lines that make sense by name; some of them find no room."""
    rnd, lengths, running = random.Random(seed), {}, []
    lines = []
    for number in range(actions):
        name, kind = (
            f"r{number}",
            rnd.choice(["admit", "append", "append", "share", "fork", "finish"]),
        )
        if kind == "admit" or not running:
            lengths[name] = rnd.randint(1, 9)
            lines.append(f"admit {name} {lengths[name]}")
            running.append(name)
        elif kind == "append":
            who, by = rnd.choice(running), rnd.randint(1, 3)
            lengths[who] += by
            lines.append(f"append {who} {by}")
        elif kind == "share":
            source, own = rnd.choice(sorted(lengths)), rnd.randint(0, 3)
            shared = rnd.randint(1, lengths[source])
            lengths[name] = shared + own
            lines.append(f"share {name} {source} {shared} {own}")
            running.append(name)
        elif kind == "fork":
            parent = rnd.choice(running)
            lengths[name] = lengths[parent]
            lines.append(f"fork {name} {parent}")
            running.append(name)
        else:
            lines.append(f"finish {running.pop(rnd.randrange(len(running)))}")
    return lines


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    block_size=st.integers(1, 6),
    blocks=st.integers(3, 24),
    retain_freed=st.booleans(),
    kept_logits=st.integers(0, 3),
)
def test_every_action_keeps_the_invariants_and_undo_gives_the_state_before(
    seed: int, block_size: int, blocks: int, retain_freed: bool, kept_logits: int
) -> None:
    order = random.Random(seed).sample(range(60), blocks)
    widget = allocator_playground(order, block_size, retain_freed, kept_logits, script="")
    running, pictures = [], [widget.result]
    for line in random_script(seed, 14):
        kind, name, *_ = line.split()
        before = widget.result
        try:
            widget.do(line)
        except ValueError as error:
            assert line in str(error) and repr(line) in widget.result["error"]
            for part in ("inputs", "view", "lines"):
                assert widget.result[part] == before[part]  # nothing is changed
            break
        assert widget.actions[-1].audit.ok
        if kind in ("admit", "share", "fork"):
            running.append(name)
        elif kind == "finish":
            running.remove(name)
        pictures.append(widget.result)
    for before in reversed(pictures[:-1]):
        line = widget.undo()
        assert line is not None
        assert (widget.result["view"], widget.script) == (
            before["view"],
            before["inputs"]["script"],
        )
    assert widget.undo() is None and widget.trace.last_state()["requests"] == {}
    for picture in pictures[1:]:
        widget.redo()
        assert widget.result["view"] == picture["view"]
    widget.do(*(f"finish {name}" for name in running))
    state = widget.trace.last_state()
    assert sorted(state["free"]) == sorted(order) and not any(tables(state).values())


# ---- what is impossible


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("append X", "line 1, 'append X': there is no request 'X'; admit it first"),
        ("admit A 4\n\nfork B C", "line 3, 'fork B C': there is no request 'C'.*there is 'A'"),
        (
            "admit A 4\nadmit A 2",
            "there is a request 'A' already, which is running; give .* another",
        ),
        ("admit A 4\nfinish A\nfinish A", "line 3.*'A' has finished and holds no block"),
        ("admit A 4\nfinish A\nappend A", "none is running.* or write `share`"),
        ("admit A 4\nfinish A\nfork B A", "line 3, 'fork B A': request 'A' has finished"),
        ("admit A 4\nshare B A 5", "'A' has 4 tokens, not 5; share 1 to 4 of them"),
        ("admit A 17", "needs 5 blocks of 4 tokens and the whole pool has 4; shorten it"),
        ("admit A 6\nadmit B 9", "9 tokens need 3 free blocks, and 2 of the pool's 4 are free: A"),
        (
            "admit A 9\nadmit B 4\nappend A 4",
            "position 12 begins a new block, and none of the pool's 4 is free: A holds 7, 2 and 9; "
            "B holds 5. A scheduler would preempt a running request here",
        ),
        (
            "admit A 6\nadmit B 8\nfork C A\nappend C",
            "position 6 goes into block 2, which another request holds too: its copy needs a free",
        ),
        ("take A 4", "line 1, 'take A 4': no action is called 'take'; use admit, append, share"),
        ("admit A", "admit has 1 word behind it; write admit NAME TOKENS"),
        ("admit A 4 4", "admit has 3 words behind it"),
        ("admit A x", "'x' is no number of tokens; give a whole number from 1 to 512"),
        ("admit A 0", "'0' is no number of tokens"),
        ("admit A -3", "'-3' is no number of tokens"),
        ("admit A 513", "'513' is no number of tokens"),
        ("admit A ４", "'４' is no number of tokens"),
        ('admit "A 4', "a quotation mark or a backslash has no partner"),
        ('admit "" 4', "the name '' has 0 signs; give 1 to 60"),
        (f"admit {'n' * 61} 4", "has 61 signs; give 1 to 60"),
        ("# nothing\n" * 3 + "\n".join(["admit A 1"] * 201), "has 201 actions; give at most 200"),
    ],
)
def test_an_impossible_action_names_line_value_and_remedy(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(script)
    widget = allocator_playground()
    before = widget.result
    widget.set(script=script)
    assert widget.result["view"] == before["view"] and widget.script == TABLE_21_1
    with pytest.raises(ValueError, match=message):
        widget.check()


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ("7 2 7", "the pool has block 7 twice; give each block id once"),
        ("0-3 0", "block 0 twice"),
        ("", "the pool has 0 blocks; give 1 to 200 block ids"),
        ("0-250", "the pool has 251 blocks"),
        ("7 two", "the pool has 'two'; give block ids from 0 to 999"),
        ("3-1", "the pool has '3-1'; give block ids"),
        ("1000", "the pool has '1000'"),
        ("7 -2", "the pool has '-2'"),
        (HOSTILE, "the pool has '<img'"),
    ],
)
def test_a_pool_that_cannot_be_is_told(pool: str, message: str) -> None:
    widget = allocator_playground()
    widget.set(pool=pool)
    with pytest.raises(ValueError, match=message):
        widget.check()
    assert widget.inputs["pool"] == "7 2 9 5"


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="retain_freed is 1; give True or False"):
        allocator_playground(retain_freed=1)
    with pytest.raises(ValueError, match="block_size is 0; give a whole number from 1 to 16"):
        allocator_playground(block_size=0)
    with pytest.raises(ValueError, match="the pool has block 3 twice"):
        allocator_playground([3, 3])
    assert allocator_playground(6, script="").inputs["pool"] == "0 1 2 3 4 5"
    with pytest.raises(ValueError, match=r"pool is 'a\\nb'; give one line"):
        allocator_playground().controls["pool"].check("a\nb")


# ---- from a cell; export; forms


def test_do_undo_and_redo_from_a_cell() -> None:
    widget = allocator_playground()
    assert widget.do("append A", "fork D A") == (
        "append A: position 6 goes to block 2, slot 2\n"
        "fork D A: shares blocks 7 and 2; copies nothing"
    )
    assert repr(widget).startswith("AllocatorPlayground(4 actions, the last is fork D A: shares")
    assert widget.script == f"{TABLE_21_1}\nappend A\nfork D A"
    assert (widget.undo(), widget.undo()) == ("fork D A", "append A")
    assert widget.redo() == "append A" and widget.script.endswith("append A")
    widget.do("finish B")
    assert widget.redo() is None  # another action was done instead
    with pytest.raises(ValueError, match="line 5, 'finish B'"):
        widget.do("finish B")
    assert "; not carried out, ValueError: line 5, 'finish B': request 'B'" in repr(widget)
    widget.do("append A")  # the refused line is gone
    assert widget.result["error"] is None and len(widget.actions) == 5
    widget.set(script="admit A 4 # four\n\n# the end\n")
    assert widget.undo() == "admit A 4 # four" and widget.actions == ()
    assert repr(widget) == "AllocatorPlayground(0 actions)"


def test_the_trace_can_be_saved_loaded_and_shown(tmp_path) -> None:
    widget = allocator_playground(script=CHAPTER)
    widget.save_trace(tmp_path / "trace.json")
    loaded = Trace.load(tmp_path / "trace.json")
    assert loaded.to_dict() == widget.trace.to_dict()
    assert widget.result["view"]["table"]["trace"] == loaded.to_dict()  # what the button saves
    assert repr(block_table(loaded)) == "BlockTable(19 stops, 3 requests, at most 4 blocks in use)"
    words = set(loaded.meta["vocab"].values())
    assert all(word.strip().isalpha() for word in words)


def test_every_preset_runs_and_says_what_it_shows() -> None:
    widget = allocator_playground()
    for name, inputs in widget.presets.items():
        widget.set(**inputs)
        widget.check()
        assert all(action.audit.ok for action in widget.actions), name
    assert widget.payload["own"] == "your own" and list(widget.presets) == list(PRESETS)
    notes = {n: [a.note for a in _run(PRESETS[n])] for n in PRESETS}
    assert notes["the same, finished blocks kept"][-1].startswith("finds blocks 7 and 2; takes")
    assert "evicts what block 2 kept" in notes["an evicted prefix"][2]
    assert notes["an evicted prefix"][4].startswith("finds block 7; takes block 2")
    assert any("copies block 2 to block 9" in note for note in notes["fork and copy-on-write"])
    assert RELEASE != KEEP


def _run(inputs: dict) -> tuple:
    widget = allocator_playground()
    widget.set(**inputs)
    return widget.actions


def test_the_same_script_gives_the_same_page_and_text_is_text() -> None:
    script = f'admit "{HOSTILE}" 5\nfork D "{HOSTILE}"\nappend D'
    one, other = allocator_playground(script=script), allocator_playground(script=script)
    page = one.html()
    assert page == other.html() and "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "all hold ✓" in page and "copies block 2 to block 9" in page
    one.set(pool=HOSTILE)
    assert "<img" not in one.html() and "the pool has" in one.html()
    assert repr(other) == (
        "AllocatorPlayground(3 actions, the last is append D: "
        "copies block 2 to block 9; position 5 goes to block 9, slot 1)"
    )


def test_the_payload_says_which_stop_ends_an_action_and_what_can_be_offered() -> None:
    payload = playground_payload(replay(CHAPTER))
    stops = payload["table"]["stops"]
    assert [a["text"] for a in payload["actions"]][:3] == ["start", "admit A 6", "admit B 4"]
    ends = [a["stop"] for a in payload["actions"]]
    assert ends == sorted(set(ends)) and ends[-1] == len(stops) - 1
    assert stops[ends[6]][2] == "C" and stops[ends[5]][3].startswith("A processes position 8.")
    assert payload["fullest"] == ends[6]  # four blocks in use, one of them shared
    assert payload["offers"]["next"] == "D"
    assert payload["offers"]["requests"][0] == {"name": "A", "tokens": 9, "running": False}
    assert payload["actions"][5]["audit"][0] == [
        "blocks",
        "4 in use + 0 evictable + 0 free = 4 usable blocks",
        "ok",
    ]
    assert "3 references" in nested_content(payload) and "<script" not in nested_content(payload)
