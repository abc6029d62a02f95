"""What the view "playground" draws: the block table of a replay, its actions, their audits."""

from collections.abc import Mapping
from html import escape
from string import ascii_uppercase

from kvlab.core.request import Request
from kvlab.widgets.blocks_story import block_table_payload
from kvlab.widgets.blocks_table import blocks_content
from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.html import table
from kvlab.widgets.playground_run import Replay
from kvlab.widgets.playground_words import told


def playground_payload(replay: Replay) -> dict:
    """Plain data, the same for the same replay. Section 21.5.

    actions: the empty pool as number 0, then each action, with the last stop that belongs to it;
    fullest: the stop to open with; offers: what the buttons need to know; table.trace is the
    whole trace, so that it can be saved.
    """
    blocks = block_table_payload(replay.trace)
    blocks["trace"] = replay.trace.to_dict()
    frames = [stop[0] for stop in blocks["stops"]]
    start = {"text": "start", "note": "the empty pool", "stop": 0, "audit": told(replay.start)}
    actions = [
        {
            "text": done.action.text,
            "note": done.note,
            "stop": sum(frame <= done.frame for frame in frames) - 1,
            "audit": told(done.audit),
        }
        for done in replay.done
    ]
    return {
        "view": "playground",
        "title": "Allocator playground",
        "table": blocks,
        "actions": [start, *actions],
        "fullest": _fullest(replay, actions),
        "offers": {"next": next_name(replay.requests), "requests": _requests(replay.requests)},
    }


def _fullest(replay: Replay, actions: list[dict]) -> int:
    """The stop after the last action with most blocks in use: what there is most to see of."""
    if not actions:
        return 0
    used = [done.audit.in_use for done in replay.done]
    return max(zip(used, (action["stop"] for action in actions), strict=True))[1]


def _requests(requests: Mapping[str, Request]) -> list[dict]:
    return [
        {"name": name, "tokens": r.num_tokens, "running": not r.is_finished}
        for name, r in requests.items()
    ]


def next_name(requests: Mapping[str, Request]) -> str:
    """The first of A, B, ... Z, A1, B1 ... that nobody has."""
    turns = ("", *range(1, len(requests) // 26 + 2))
    names = (f"{letter}{turn}" for turn in turns for letter in ascii_uppercase)
    return next(name for name in names if name not in requests)


def playground_content(payload: Mapping) -> str:
    """The view without scripts: what each action did and whether all held, then the blocks."""
    rows = [
        (number, action["text"], action["note"], _verdict(action["audit"]))
        for number, action in enumerate(payload["actions"])
    ]
    last = "".join(f"<li>{escape(text)}</li>" for _, text, _ in payload["actions"][-1]["audit"])
    head = ("number", "action", "what it did", "checks after it")
    return "\n".join(
        [
            f"<div {SCROLLS}>{table('Actions', head, rows)}</div>",
            f"<p>After the last action:</p><ul>{last}</ul>",
            blocks_content(payload["table"]),
        ]
    )


def _verdict(audit: list) -> str:
    wrong = [text for _, text, state in audit if state == "bad"]
    return f"WRONG: {'; '.join(wrong)}" if wrong else "all hold ✓"
