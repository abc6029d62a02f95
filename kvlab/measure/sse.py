r"""Server-sent events out of a byte stream, wherever the network cut it (section 21.2, case T12).

    data: {"choices": ...}\n     a field of the event
    \n                           an empty line: the event is complete

A read gives whatever bytes are there: half an event, half a letter, or three events at once. The
decoder keeps what is unfinished, so the same bytes give the same events, however they were cut.

Source: the HTML standard, "server-sent events". One thing differs: a last event without its empty
line is given when the stream is closed, and its reader decides whether it is whole.
"""

from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LARGEST_LINE = 64 << 20  # bytes


class Event(NamedTuple):
    """data: its data lines, joined by line feeds. name: its event field, "message" without one."""

    data: str
    name: str = "message"


class EventDecoder:
    """Feed it bytes as they come. States: the unfinished line, and the fields of the open event.

    Lines end in LF, CR or CRLF. A CR ends its line at once; a LF that follows it, perhaps in a
    later read, belongs to it. Comments (": ping"), other fields and events without data are
    dropped.
    """

    def __init__(self) -> None:
        self._line = bytearray()  # an unfinished line
        self._data: list[str] = []
        self._name = ""
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes. Raises ValueError for a line over 64 MiB."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = []
        for end in lines[:-1]:
            self._line += end
            event = self._field(self._take_line())
            found += [] if event is None else [event]
        self._line += lines[-1]
        if len(self._line) > LARGEST_LINE:
            raise ValueError(
                f"a line of the stream is longer than {LARGEST_LINE >> 20} MiB; "
                "ask for fewer tokens, or for no log-probabilities"
            )
        return found

    def close(self) -> list[Event]:
        """The stream ended: an event that still lacks its empty line, if there is one."""
        if self._line:
            self._field(self._take_line())
        event = self._dispatch()
        return [] if event is None else [event]

    def _take_line(self) -> bytes:
        line, self._line = bytes(self._line), bytearray()
        if self._at_start:
            line = line.removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        return line

    def _field(self, line: bytes) -> Event | None:
        """Take one line in; an empty one completes the event."""
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        return Event("\n".join(data), name or "message") if data else None
