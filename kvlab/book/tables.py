"""Where long names in a table may be broken, so that the table fits its column.

Done on the pages as mdBook has written them: in the text that it searches, a name stays whole.
"""

import re

TABLE = re.compile(r'<div class="table-wrapper">.*?</div>', re.DOTALL)
NAME = re.compile(r"<code>(?!-)([^<]{13,})</code>")  # an --option stays whole, and a short name
PLACES = re.compile(r"[/_](?=\w)")


def with_breaks(html: str) -> str:
    """A page whose tables may break a path or name after each / and _ in it."""
    return TABLE.sub(lambda table: NAME.sub(_broken, table[0]), html)


def _broken(name: re.Match[str]) -> str:
    parts = PLACES.sub(r"\g<0><wbr>", name[1])
    return f'<code class="kvlab-long">{parts}</code>'
