"""What a reader sees: a small box with a sign, a word and some lines, as HTML and as text.

Both forms are made of the same parts and are the same for the same parts. All texts are escaped.
"""

import re
from dataclasses import dataclass
from html import escape

STATES = {  # sign, word, colour (Okabe-Ito) of the bar at the left; the sign and word say it too
    "right": ("✓", "right", "#009E73"),
    "wrong": ("✗", "not yet", "#D55E00"),
    "open": ("…", "not answered yet", "#56B4E9"),
    "unreadable": ("?", "cannot read this answer", "#E69F00"),
    "elsewhere": ("?", "cannot be checked here", "#E69F00"),
    "question": ("?", "your prediction", "#56B4E9"),
    "kept": ("•", "kept", "#0072B2"),
    "changed": ("•", "changed after the run", "#E69F00"),
    "as predicted": ("✓", "as you said", "#009E73"),
    "other": ("✗", "not as you said", "#D55E00"),
    "run": ("•", "no prediction", "#0072B2"),
    "score": ("•", "score", "#0072B2"),
    "hint": ("→", "hint", "#CC79A7"),
    "solution": ("→", "solution", "#CC79A7"),
}
REVEALED = ("as predicted", "other", "run")
_COLLAPSED = "<!-- what the run found -->\n"  # what JupyterLab shows of a collapsed output
_BOX = (
    "margin:4px 3px;padding:.5em .8em;border-left:4px solid {colour};border-radius:0 6px 6px 0;"
    "color:var(--jp-content-font-color0,inherit);"
    "background:var(--jp-layout-color2,rgba(127,127,127,.12));line-height:1.45;max-width:52em"
)
_CODE = (
    "margin:.4em 0;padding:.4em .6em;overflow-x:auto;color:inherit;word-break:normal;"
    "background:var(--jp-layout-color0,transparent)"
)


@dataclass(frozen=True, repr=False)
class Box:
    """One answer to the reader.

    state: a key of STATES. name: the exercise's id. facts: (label, value) pairs that stand side by
    side. lines: sentences, or the items of a list. code: source, shown as it is.
    """

    state: str
    name: str
    lines: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    code: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the answer was found right."""
        return self.state in ("right", "as predicted")

    def __repr__(self) -> str:
        sign, word, _ = STATES[self.state]
        facts = "   ".join(f"{label}: {value}" for label, value in self.facts)
        below = [*([facts] if facts else []), *self.lines, *self.code.splitlines()]
        return "\n".join([f"{sign} {word}: {self.name}", *(f"  {line}".rstrip() for line in below)])

    def _repr_html_(self) -> str:
        """No blank line, which would end the element in a Markdown page.

        JupyterLab shows the first line of a collapsed output: it must not tell the answer.
        """
        sign, word, colour = STATES[self.state]
        head = f'<span aria-hidden="true">{sign}</span> <strong>{word}</strong>'
        parts = [f"<div>{head} <span>{escape(self.name)}</span></div>"]
        if self.facts:
            pairs = (
                f"<span>{escape(label)}: <strong>{escape(value)}</strong></span>"
                for label, value in self.facts
            )
            row = "display:flex;flex-wrap:wrap;gap:.2em 2em"
            parts.append(f'<div style="{row}">{" ".join(pairs)}</div>')
        parts += (f"<div>{_marked(line)}</div>" for line in self.lines)
        if self.code:
            parts.append(f'<pre style="{_CODE}"><code>{escape(self.code)}</code></pre>')
        style = _BOX.format(colour=colour)
        page = f'<div class="kvlab-box" data-state="{self.state}" style="{style}">'
        html = f"{page}{''.join(parts)}</div>".replace("\n", "&#10;")
        return f"{_COLLAPSED}{html}" if self.state in REVEALED else html


@dataclass(frozen=True, repr=False)
class Boxes:
    """Several boxes, one under the other."""

    boxes: tuple[Box, ...]

    def __repr__(self) -> str:
        return "\n".join(repr(box) for box in self.boxes)

    def _repr_html_(self) -> str:
        return "".join(box._repr_html_() for box in self.boxes)


def _marked(line: str) -> str:
    """The line escaped; what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))
