"""The allocator playground's script: what the reader does with requests, one action a line.

    admit A 6        a new request with a prompt of six tokens of its own
    append A 2       select and process two more tokens
    share C A 4      a new request whose prompt is A's first four tokens
    share D A 4 2    the same, and two tokens of its own behind them
    fork E A         E continues from A: the same tokens, the same blocks
    finish A         A ends and gives its blocks back

A name with blanks stands in double quotes; what follows `#` is a comment. Section 21.5.
"""

import re
import shlex
from dataclasses import dataclass

from kvlab.widgets.growth_words import count

FORMS = {
    "admit": "admit NAME TOKENS",
    "append": "append NAME [TOKENS]",
    "share": "share NAME FROM TOKENS [OWN]",
    "fork": "fork NAME FROM",
    "finish": "finish NAME",
}
WORDS = {"admit": (3, 3), "append": (2, 3), "share": (4, 5), "fork": (3, 3), "finish": (2, 2)}
MOST_ACTIONS = 200
MOST_TOKENS = 512  # that one action may bring
LONGEST_NAME = 60  # signs
MOST_BLOCKS, LARGEST_ID = 200, 999


@dataclass(frozen=True)
class Action:
    """One line. name: the request it is about; source: the one whose tokens it begins with.

    count: tokens admitted, appended or shared; own: tokens behind the shared ones.
    """

    line: int
    text: str
    kind: str
    name: str
    source: str | None = None
    count: int = 1
    own: int = 0


def parse_script(script: str) -> list[Action]:
    """The actions of a script. Raises ValueError with line, text and remedy for one it cannot be.

    Whether an action is possible shows when it is carried out (playground_run.py).
    """
    actions = []
    for number, line in enumerate(script.split("\n"), 1):
        text = line.strip()
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            raise ValueError(
                f"line {number}, {text!r}: a quotation mark or a backslash has no partner; "
                'put a name with odd signs into double quotes, such as "my request"'
            ) from None
        if words:
            try:
                actions.append(_action(number, text, words))
            except ValueError as error:
                raise ValueError(f"line {number}, {text!r}: {error}") from None
    if len(actions) > MOST_ACTIONS:
        raise ValueError(f"the script has {len(actions)} actions; give at most {MOST_ACTIONS}")
    return actions


def _action(number: int, text: str, words: list[str]) -> Action:
    kind, *rest = words
    if kind not in FORMS:
        raise ValueError(f"no action is called {kind!r}; use {', '.join(FORMS)}")
    fewest, most = WORDS[kind]
    if not fewest <= len(words) <= most:
        raise ValueError(f"{kind} has {count(len(rest), 'word')} behind it; write {FORMS[kind]}")
    names = rest[:2] if kind in ("share", "fork") else rest[:1]
    for name in names:
        if not name or len(name) > LONGEST_NAME:
            raise ValueError(
                f"the name {name!r} has {len(name)} signs; give 1 to {LONGEST_NAME} signs"
            )
    numbers = [_number(word, int(i == 0)) for i, word in enumerate(rest[len(names) :])]
    return Action(number, text, kind, names[0], *(names[1:] or [None]), *numbers)


def _number(word: str, least: int) -> int:
    value = int(word) if re.fullmatch("[0-9]{1,9}", word) else -1
    if not least <= value <= MOST_TOKENS:
        raise ValueError(
            f"{word!r} is no number of tokens; give a whole number from {least} to {MOST_TOKENS}"
        )
    return value


def parse_pool(text: str) -> list[int]:
    """Block ids in their free order, next to be taken first: `7 2 9 5`, or `0-15`.

    Raises ValueError for what is no id, for one that stands twice, and for too many.
    """
    ids: list[int] = []
    for word in re.split(r"[\s,]+", text.strip()) if text.strip() else []:
        found = re.fullmatch("([0-9]{1,6})(?:-([0-9]{1,6}))?", word)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last <= LARGEST_ID:
            raise ValueError(
                f"the pool has {word!r}; give block ids from 0 to {LARGEST_ID} in their free "
                "order, such as 7 2 9 5, or a range, such as 0-15"
            )
        ids += range(first, last + 1)
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise ValueError(f"the pool has block {twice} twice; give each block id once")
    if not 1 <= len(ids) <= MOST_BLOCKS:
        raise ValueError(f"the pool has {len(ids)} blocks; give 1 to {MOST_BLOCKS} block ids")
    return ids
