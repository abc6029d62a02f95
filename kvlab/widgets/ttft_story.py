"""The payload of the view "TTFT taken apart": parts on one axis, and what each boundary sums up."""

from collections.abc import Mapping

from kvlab.core.ttft import TERMS, FirstTokenStamps, Interval
from kvlab.widgets.growth_words import count

UNITS = ("s", "steps")
SCALES = (("µs", 1e6, 1e-3), ("ms", 1e3, 10.0), ("s", 1.0, float("inf")))  # up to which total
LETTERS = {
    "way there": "T",
    "preparation": "I",
    "queue": "Q",
    "prefill": "P",
    "selection": "S",
    "delivery": "D",
    "way back": "B",
}
BEGINS = {  # each part by the moment that begins it
    "way there": "the client sends the request",
    "preparation": "the server has read the request",
    "queue": "the engine takes the request",
    "prefill": "the model first works on it",
    "selection": "the scores of the first output are there",
    "delivery": "the step that selects the token ends",
    "way back": "the server hands over the first bytes with text",
}
RECEIVED = "the client has these bytes"


def ttft_payload(
    stamps: FirstTokenStamps,
    *,
    title: str | None = None,
    request_id: str | None = None,
    num_prompt_tokens: int | None = None,
    num_cached_tokens: int | None = None,
    unit: str = "s",
) -> dict:
    """What the view draws: plain data, the same for the same moments. See `ttft_parts`."""
    if not isinstance(stamps, FirstTokenStamps):
        raise ValueError(f"stamps has type {type(stamps).__name__}; give FirstTokenStamps")
    if unit not in UNITS:
        raise ValueError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
    ruler = Ruler(stamps, unit)
    parts = [_part(ruler, interval) for interval in stamps.intervals()]
    rows = [_row(ruler, boundary, parts) for boundary in stamps.boundaries]
    whole = _equation(ruler, parts)
    said = [_overview(ruler, rows), *(_boundary(ruler, row, rows, parts, whole) for row in rows)]
    return {
        "view": "ttft_parts",
        "title": "TTFT taken apart" if title is None else str(title),
        "about": _about(request_id, num_prompt_tokens, num_cached_tokens),
        "unit": ruler.unit,
        "length": ruler.at(max(stamps.noted().values())) / ruler.parts,
        "parts": parts,
        "rows": rows,
        "equation": whole,
        "said": said + [_said(ruler, part, rows, i) for i, part in enumerate(parts)],
    }


class Ruler:
    """Moments as whole numbers of the last shown digit, so that shown parts add up exactly."""

    def __init__(self, stamps: FirstTokenStamps, unit: str) -> None:
        moments = list(stamps.noted().values())
        self.start, total = moments[0], moments[-1] - moments[0]
        self.unit, self.scale, self.decimals = "steps", 1.0, 0
        if unit == "s":
            self.unit, self.scale, _ = next(s for s in SCALES if total < s[2])
            self.decimals = 1 if total * self.scale >= 100 else 2
        elif any(moment != int(moment) for moment in moments):
            self.decimals = 2
        self.parts = 10**self.decimals

    def at(self, moment: float) -> int:
        return round((moment - self.start) * self.scale * self.parts)

    def text(self, length: int) -> str:
        return f"{length / self.parts:,.{self.decimals}f}"

    def whole(self, length: int) -> str:
        """With its unit."""
        return f"{self.text(length)} {self.unit}"


def _part(ruler: Ruler, interval: Interval) -> dict:
    begin, end = ruler.at(interval.begin), ruler.at(interval.end)
    return {
        "name": interval.name,
        "letter": "".join(LETTERS[part] for part in interval.parts),
        "term": interval.is_term,
        "begin": begin / ruler.parts,
        "end": end / ruler.parts,
        "length": end - begin,
        "text": ruler.text(end - begin),
        "ends": [BEGINS[interval.parts[0]], _end_of(interval.parts[-1])],
    }


def _end_of(part: str) -> str:
    names = list(BEGINS)
    return [*BEGINS.values(), RECEIVED][names.index(part) + 1]


def _row(ruler: Ruler, boundary: str, parts: list[dict]) -> dict:
    """A boundary: which of the parts it holds, and their sums."""
    outer = {"engine": ("Q", "S"), "server": ("I", "D"), "client": ("T", "B")}[boundary]
    first = next(i for i, part in enumerate(parts) if part["letter"].startswith(outer[0]))
    last = next(i for i, part in enumerate(parts) if part["letter"].endswith(outer[1]))
    inside = parts[first : last + 1]
    beside = [part["length"] for part in inside if not part["term"]]
    return {
        "boundary": boundary,
        "first": first,
        "last": last,
        "length": sum(part["length"] for part in inside),
        "text": ruler.text(sum(part["length"] for part in inside)),
        "remainder": ruler.text(sum(beside)),
        "whole": not beside,
    }


def _equation(ruler: Ruler, parts: list[dict]) -> dict | None:
    """Equation 21.4's own sum, from the engine's taking the request to delivery at the server; None
    where delivery was not noted apart.
    """
    terms = [i for i, part in enumerate(parts) if part["term"]]
    if not parts[terms[-1]]["letter"].endswith("D"):
        return None
    length = sum(parts[i]["length"] for i in terms)
    return {"first": terms[0], "last": terms[-1], "text": ruler.text(length)}


def _about(request_id: str | None, prompt: int | None, cached: int | None) -> str:
    """The request in a few words."""
    parts = [] if request_id is None else [f"request {request_id}"]
    parts += [] if prompt is None else [f"prompt of {count(prompt, 'token')}"]
    if cached is not None:
        known = f"{cached:,} of them cached"
        parts.append(f"{count(cached, 'prompt token')} cached" if prompt is None else known)
    return ", ".join(parts)


# ---- the text line


def _overview(ruler: Ruler, rows: list[dict]) -> str:
    each = ", ".join(f"{row['boundary']} {ruler.whole(row['length'])}" for row in rows)
    if len(rows) == 1:
        return f"Timed at one boundary: {each}. What lies outside it was not noted."
    differ = len({row["length"] for row in rows}) == len(rows)
    seen = f"{len(rows)} different TTFTs" if differ else f"timed at {len(rows)} boundaries"
    return (
        f"One request, one first token, {seen}: {each}. "
        "A TTFT without its two ends cannot be compared."
    )


def _boundary(
    ruler: Ruler, row: Mapping, rows: list[dict], parts: list[dict], whole: Mapping | None
) -> str:
    inside = parts[row["first"] : row["last"] + 1]
    terms = [f"{part['name']} {part['text']}" for part in inside if part["term"]]
    beside = [part["name"] for part in inside if not part["term"]]
    rest = f" + remainder {row['remainder']}" if beside else ""
    terms_last = f"{whole['text']} {ruler.unit}" if whole else ""
    if beside:
        names = f"The remainder: {', '.join(beside)}."
        holds = f"Equation 21.4 is {terms_last} of it. {names}" if whole else names
    else:
        until = f"delivery: {terms_last}" if whole else "delivery"
        holds = f"All of it is in equation 21.4, which goes on until {until}."
    widest = rows[-1]
    unseen = widest["length"] - row["length"]
    misses = f" The {widest['boundary']} waits {ruler.whole(unseen)} more." if unseen else ""
    total = f"{' + '.join(terms)}{rest} = {ruler.whole(row['length'])}"
    return (
        f"{row['boundary'].capitalize()}: {total}. "
        f"It starts when {inside[0]['ends'][0]}, and ends when {inside[-1]['ends'][1]}. "
        f"{holds}{misses}"
    )


def _said(ruler: Ruler, part: Mapping, rows: list[dict], place: int) -> str:
    holders = [row["boundary"] for row in rows if row["first"] <= place <= row["last"]]
    where = "No TTFT that was timed here includes it"
    if len(holders) == 1 < len(rows):
        where = f"Only the {holders[0]}'s TTFT includes it"
    elif holders:
        where = f"The TTFT of {_listed(holders)} includes it"
    named = [name for name in part["name"].split(" + ") if name in TERMS]
    if part["term"]:
        term = "a term of equation 21.4"
    else:
        alone = f"of it, equation 21.4 names {_listed(named)} alone"
        term = alone if named else "remainder: equation 21.4 has no term for it"
    shared = (
        " It holds the same steps' work for other requests too." if "P" in part["letter"] else ""
    )
    return (
        f"{part['name'].capitalize()}, {ruler.whole(part['length'])}: "
        f"from when {part['ends'][0]} until {part['ends'][1]}. {where}; {term}.{shared}"
    )


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
