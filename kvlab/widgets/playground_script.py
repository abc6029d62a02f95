"""The allocator playground's script: what the reader does with requests, one action a line.

    admit A 6        a new request with a prompt of six tokens of its own
    append A 2       select and process two more tokens
    share C A 4      a new request whose prompt is A's first four tokens
    share D A 4 2    the same, and two tokens of its own behind them
    fork E A         E continues from A: the same tokens, the same blocks
    finish A         A ends and gives its blocks back

A name with blanks stands in double quotes. A `#` at the start of a line or after a blank begins a
comment; within a word, as in A#1, it is a sign like any other. Section 21.5.
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
MOST_APPENDED = 2_000  # by all actions together: each is a step of its own, with events of its own
LONGEST_NAME = 60  # signs

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")


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
    actions, appended = [], 0
    for number, line in enumerate(script.split("\n"), 1):
        text = line.strip()
        try:
            words = _words(text)
            if not words:
                continue
            actions.append(_action(number, text, words))
            appended += actions[-1].count if actions[-1].kind == "append" else 0
            if appended > MOST_APPENDED:
                raise ValueError(
                    f"with this line {appended:,} tokens are appended one by one; append at most "
                    f"{MOST_APPENDED:,} in all, or admit a longer prompt"
                )
        except ValueError as error:
            raise ValueError(f"line {number}, {text!r}: {error}") from None
    if len(actions) > MOST_ACTIONS:
        raise ValueError(f"the script has {len(actions)} actions; give at most {MOST_ACTIONS}")
    return actions


def _words(text: str) -> list[str]:
    """The words of a line, without quotes and without a comment."""
    if alone := re.search("[\ud800-\udfff]", text):
        raise ValueError(
            f"{alone[0]!r} is half a character (a lone surrogate) and cannot be shown or saved; "
            "leave it out"
        )
    words, at = [], 0
    while at < len(text) and text[at] != "#":
        found = _WORD.match(text, at)
        at = found.end() if found else at
        if at < len(text) and not text[at].isspace():
            raise ValueError(
                "a quotation mark or a backslash has no partner; put a name with odd signs into "
                'double quotes, such as "my request"'
            )
        if found:
            words += shlex.split(found[0])
        at += 1
    return words


def follow(lengths: dict[str, int], action: Action) -> None:
    """Positions in the cache of each running request: what `lengths` holds after an action.

    Counted from the script alone, so that the scheduler's own counts can be compared with it.
    """
    if action.kind == "finish":
        del lengths[action.name]
    elif action.kind == "fork":
        lengths[action.name] = lengths[action.source]
    else:
        lengths[action.name] = lengths.get(action.name, 0) + action.count + action.own


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
