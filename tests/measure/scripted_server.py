"""A real HTTP server on 127.0.0.1 that sends exactly the bytes of a script, for the load client.

Each POST is answered by a function of ours, which writes raw bytes whenever it likes. With a
`HeldClock` the server says what time it is, and moves it on only when the client has read it.
"""

import json
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PATIENCE = 20  # seconds until a test that hangs is given up


def chunk(text=None, *, finish=None, usage=None, chat=False, **delta):
    """One server-sent event of an answer, as bytes."""
    choice = {"index": 0, "finish_reason": finish}
    if chat:
        choice["delta"] = delta | ({} if text is None else {"content": text})
    else:
        choice["text"] = text
    return event({"choices": [choice]} | ({} if usage is None else {"usage": usage}))


def usage(completion, prompt=5, **details):
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts | details})


def event(value):
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class HeldClock:
    """A clock that stands still until the server moves it, and that counts how often it is read."""

    def __init__(self):
        self.now, self.reads = 0.0, 0
        self._changed = threading.Condition()

    def __call__(self):
        with self._changed:
            self.reads += 1
            self._changed.notify_all()
            return self.now

    def wait_for_read(self, before):
        with self._changed:
            assert self._changed.wait_for(lambda: self.reads > before, PATIENCE)


@dataclass
class Reply:
    """The server's side of one request."""

    number: int  # 0 for the first POST, and so on
    body: dict
    headers: dict
    connection: socket.socket
    clock: HeldClock | None = None

    def start(self, status="200 OK", kind="text/event-stream", headers=()):
        """The head of a chunked answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Transfer-Encoding: chunked"]
        self._read_by_client("\r\n".join([*lines, *headers, "", ""]).encode())

    def send(self, data):
        """Some bytes of the body, which the client reads by themselves."""
        self._read_by_client(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self):
        self.raw(b"0\r\n\r\n")

    def whole(self, status, body, kind="application/json", headers=()):
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        self.raw("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    def raw(self, data):
        self.connection.sendall(data)

    def hang_up(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def stream(self, *parts):
        self.start()
        for part in parts:
            self.send(part)
        self.end()

    def _read_by_client(self, data):
        before = None if self.clock is None else self.clock.reads
        self.raw(data)
        if before is not None:
            self.clock.wait_for_read(before)


@dataclass
class ScriptedServer:
    answer: object  # Reply -> None
    clock: HeldClock | None = None
    pages: dict = field(default_factory=dict)  # path -> text of a GET
    asked: list = field(default_factory=list)  # the Replies so far, by number

    def __post_init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()

    def serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(PATIENCE)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _talk(self, connection):
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            while (first := lines.readline()).strip():
                method, path, _ = first.decode().split()
                headers = {}
                while line := lines.readline().decode().strip():
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = lines.read(int(headers.get("content-length", 0)))
                if method == "GET":
                    self._page(Reply(-1, {}, headers, connection), path)
                else:
                    self.answer(self._noted(json.loads(body), headers, connection))

    def _noted(self, body, headers, connection):
        with self._lock:
            reply = Reply(len(self.asked), body, headers, connection, self.clock)
            self.asked.append(reply)
        return reply

    def _page(self, reply, path):
        models = json.dumps({"data": [{"id": "scripted", "owned_by": "a script"}]})
        found = {"/v1/models": models, **self.pages}.get(path)
        if callable(found):
            found = found()
        reply.whole("404 Not Found" if found is None else "200 OK", (found or "").encode())


@contextmanager
def serving(answer, **options):
    """A server for the time of a test."""
    server = ScriptedServer(answer, **options)
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield server
    finally:
        server.close()


def at_times(clock, reply, parts, *, begin=0.0, then=None, cut=None):
    """Send (time, bytes) of a script on a held clock, cut in two at one offset of all the bytes.

    then: what the clock shows when the answer is over.
    """
    reply.start()
    place = 0
    for time, data in parts:
        clock.now = begin + time
        inside = None if cut is None else cut - place
        pieces = [data] if inside is None or not 0 < inside < len(data) else None
        for piece in pieces or (data[:inside], data[inside:]):
            reply.send(piece)
        place += len(data)
    if then is not None:
        clock.now = then
    reply.end()
