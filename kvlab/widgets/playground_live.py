"""The allocator playground: the reader admits, appends, shares, forks and finishes requests."""

from collections.abc import Iterable
from pathlib import Path

from kvlab.core.trace import Trace
from kvlab.widgets.controls import Choice, Script, Slider, TextLine
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.growth_words import count
from kvlab.widgets.playground_pool import parse_pool, pool_text
from kvlab.widgets.playground_run import Done, Replay, replay
from kvlab.widgets.playground_script import parse_script
from kvlab.widgets.playground_story import playground_payload
from kvlab.widgets.playground_words import told

TABLE_21_1 = "admit A 6\nadmit B 4"
STEPS = "append A\nappend A\nappend A\nshare C A 4\nfinish A\nfinish C\nfinish B"
RELEASE, KEEP = "release its blocks at once", "keep full blocks, evictable"
CHAPTER = {"pool": "7 2 9 5", "block_size": 4, "after_finish": RELEASE, "kept_logits": 2}
PRESETS = {
    "Table 21.1": {"script": TABLE_21_1, **CHAPTER},
    "Table 21.1 and steps 1 to 5": {"script": f"{TABLE_21_1}\n{STEPS}", **CHAPTER},
    "the same, finished blocks kept": {
        "script": f"{TABLE_21_1}\n{STEPS}\nshare D A 9",
        **CHAPTER,
        "after_finish": KEEP,
    },
    "fork and copy-on-write": {
        "script": "admit A 6\nfork D A\nappend D\nappend A\nappend D",
        **CHAPTER,
    },
    "a partly filled block is not shared": {"script": "admit A 6\nshare C A 6", **CHAPTER},
    "an evicted prefix": {
        "script": "admit A 8\nfinish A\nadmit B 12\nfinish B\nshare C A 8",
        **CHAPTER,
        "after_finish": KEEP,
    },
    "an empty pool of 12 blocks": {"script": "", **CHAPTER, "pool": "0-11"},
}


class AllocatorPlayground(LiveEditor):
    """A `LiveEditor` whose script can be continued from a cell as well, and saved as a trace."""

    def __init__(self, **inputs: object) -> None:
        controls = [
            TextLine("pool", "Free blocks, next first", inputs["pool"]),
            Slider("block_size", "Slots a block", inputs["block_size"], 1, 16),
            Choice("after_finish", "When a request ends", inputs["after_finish"], (RELEASE, KEEP)),
            Slider("kept_logits", "Blocks with kept logits", inputs["kept_logits"], 0, 8),
            Script("script", "Script", inputs["script"]),
        ]
        super().__init__(_compute, controls, "Allocator playground", PRESETS, "your own")
        self._undone: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The actions that made the picture, one a line."""
        return self.inputs["script"]

    @property
    def replay(self) -> Replay:
        """The last good script, carried out once more: trace, requests, and an audit an action."""
        return _replay(**self.inputs)

    @property
    def trace(self) -> Trace:
        """All that happened, as a trace that `block_table` and the other views show."""
        return self.replay.trace

    @property
    def actions(self) -> tuple[Done, ...]:
        """The actions with what each did and the audit after it."""
        return self.replay.done

    def save_trace(self, path: str | Path) -> None:
        """Write the trace as JSON; `Trace.load` reads it."""
        self.trace.save(path)

    def do(self, *actions: str) -> str:
        """Add actions such as "append A". Returns what each did, a line each.

        Raises ValueError, changing nothing, if one cannot be.
        """
        for action in actions:
            if not isinstance(action, str):
                raise ValueError(f'do() has {action!r}; give actions as text, such as "append A"')
        lines = [*self.script.rstrip().split("\n"), *actions]
        known = len(self._told())
        self._set_script("\n".join(line for line in lines if line.strip()))
        return "\n".join(self._told()[known:])

    def undo(self) -> str | None:
        """Take the last action back. Returns its line; None where there is none."""
        actions = parse_script(self.script)
        if not actions:
            return None
        lines, undone = self.script.split("\n"), self._undone
        self._set_script("\n".join(lines[: actions[-1].line - 1]))
        self._undone = (*undone, actions[-1].text)
        return actions[-1].text

    def redo(self) -> str | None:
        """Put back what `undo` took. Returns its line; None where nothing was taken back, or
        the script was changed in another way since."""
        if not self._undone:
            return None
        *rest, action = self._undone
        self.do(action)
        self._undone = tuple(rest)
        return action

    def _told(self) -> list[str]:
        """A line for each action: itself, and what it did."""
        _, *actions = self.result["view"]["actions"]  # the first is the start
        return [f"{action['text']}: {action['note']}" for action in actions]

    def __repr__(self) -> str:
        told = self._told()
        last = f", the last is {told[-1]}" if told else ""
        state = f"; not carried out, {self.result['error']}" if self.error else ""
        return f"AllocatorPlayground({count(len(told), 'action')}{last}{state})"

    def _update(self, inputs: object, answers: object) -> None:
        """Also for a browser: another script has nothing to put back."""
        before = self.script
        super()._update(inputs, answers)
        if self.script != before:
            self._undone = ()

    def _set_script(self, script: str) -> None:
        self.set(script=script)
        self.check()


def allocator_playground(
    pool: Iterable[int] | int | str = (7, 2, 9, 5),
    block_size: int = 4,
    retain_freed: bool = False,
    kept_logits: int = 2,
    script: str = TABLE_21_1,
) -> AllocatorPlayground:
    """Buttons for a request's life over a real pool, manager and tensors, with undo and a script.

    pool: block ids in their free order, or their number, or a text as in the field, "7 2 9 5";
    block_size: positions a block holds;
    retain_freed: full blocks of a finished request stay findable until they are taken;
    kept_logits: of so many prompt blocks the last position's logits are kept, so that a prompt
    which is cached whole computes nothing (section 21.4); script: see `playground_script.py`.
    The defaults are Table 21.1. Raises ValueError for a value or an action that is impossible.
    Section 21.5.
    """
    if not isinstance(retain_freed, bool):
        raise ValueError(f"retain_freed is {retain_freed!r}; give True or False")
    return AllocatorPlayground(
        pool=pool_text(pool),
        block_size=block_size,
        after_finish=KEEP if retain_freed else RELEASE,
        kept_logits=kept_logits,
        script=script,
    )


def _replay(script: str, pool: str, block_size: int, after_finish: str, kept_logits: int) -> Replay:
    keep = after_finish == KEEP
    return replay(script, parse_pool(pool), block_size, retain_freed=keep, kept_logits=kept_logits)


def _compute(**inputs: object) -> dict:
    done = _replay(**inputs)
    lines = [
        ["Broken invariant", f"after {d.action.text}: {finding}", "notice"]
        for d in done.done
        for _, finding, state in told(d.audit)
        if state == "bad"
    ]
    return {"lines": lines, "view": playground_payload(done)}
