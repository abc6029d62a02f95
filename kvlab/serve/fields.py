"""A request's JSON object, read field by field. What nobody read at the end is unknown.

A field that is left out and one that is null are the same, as with OpenAI.
"""

import json
import math
from collections.abc import Collection, Mapping

from kvlab.core.checked import shown
from kvlab.serve.errors import ApiError


def parse(body: bytes) -> dict[str, object]:
    """The body as a JSON object. Raises ApiError(400) for anything else, NaN included."""
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(
            400, f"the body is no JSON object: {reason[:200]}", code="invalid_json"
        ) from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is {shown(found)}; give a JSON object", code="invalid_json")
    return found


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


class Fields:
    """The object with a note of what has been read. Each reader raises ApiError(400) by name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values, self._read = values, set()

    def get(self, name: str) -> object:
        self._read.add(name)
        return self._values.get(name)

    def whole(
        self, name: str, default: int | None, least: int | None = None, most: int | None = None
    ) -> int | None:
        value = self.get(name)
        if value is None:
            return default
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or (least is not None and value < least) or (most is not None and value > most):
            ends = [f"of at least {least}"] if least is not None else []
            ends += [f"of at most {most}"] if most is not None else []
            raise bad(name, value, f"an integer {' and '.join(ends)}".rstrip())
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self.get(name)
        if value is None:
            return default
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not least <= value <= most or not math.isfinite(value):
            raise bad(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise bad(name, value, "true or false")
        return default if value is None else value

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and (not isinstance(value, str) or value == ""):
            raise bad(name, value, "a text that is not empty")
        return value

    def texts(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.get(name)
        several = [value] if isinstance(value, str) else [] if value is None else value
        fits = isinstance(several, list) and len(several) <= most
        if not fits or not all(isinstance(t, str) and 0 < len(t) <= longest for t in several):
            wanted = f"a text or up to {most} texts, each of 1 to {longest} characters"
            raise bad(name, value, wanted)
        return tuple(several)

    def integers(self, name: str, most: int) -> tuple[int, ...]:
        value = self.get(name)
        several = [] if value is None else value
        fits = isinstance(several, list) and len(several) <= most
        if not fits or not all(isinstance(t, int) and not isinstance(t, bool) for t in several):
            raise bad(name, value, f"a list of up to {most} integers")
        return tuple(several)

    def ignore(self, names: Collection[str]) -> None:
        """These may be there and change nothing."""
        self._read.update(names)

    def refuse(
        self, neutral: Mapping[str, tuple[object, ...]], remedies: Mapping[str, str]
    ) -> None:
        """These are not offered; only the values that ask for nothing are taken."""
        for name, harmless in neutral.items():
            value = self.get(name)
            if value is not None and not any(_same(value, other) for other in harmless):
                remedy = remedies.get(name, "leave it out")
                raise ApiError(
                    400,
                    f"{name} is not offered by this server; {remedy}",
                    param=name,
                    code="unsupported_parameter",
                )

    def finish(self) -> None:
        """Raises ApiError(400) for a field that nobody read: a typing error would go unseen."""
        if unknown := [name for name in self._values if name not in self._read]:
            raise ApiError(
                400,
                f"{shown(unknown[0])} is no field of this request; leave it out",
                param=unknown[0][:60],
                code="unknown_parameter",
            )


def _same(value: object, other: object) -> bool:
    """Equal, and of one kind: true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def bad(name: str, value: object, wanted: str) -> ApiError:
    """A field's value does not fit."""
    return ApiError(
        400, f"{name} is {shown(value)}; give {wanted}", param=name, code="invalid_value"
    )
