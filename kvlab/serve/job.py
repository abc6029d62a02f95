"""One HTTP request on its way: handed to the engine's thread, answered piece by piece."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kvlab.core.request import Request, SamplingParams
from kvlab.outputs import TextDeltas
from kvlab.serve.errors import ApiError
from kvlab.serve.protocol import Asked
from kvlab.serve.times import ServerTimes, times_of


@dataclass(frozen=True)
class Piece:
    """What one step gave one continuation: certain new text, its tokens, and the end if it came.

    logprobs: one a token, where asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None


Item = list[Piece] | ApiError | None  # None: the client is gone


@dataclass(eq=False)
class Job:
    """A checked request with its prompts as token ids; adapter: the loaded one's name, or None.

    The event loop makes it and reads `items`; the engine's thread fills `requests`, once, and
    `items`, through the event loop. Continuation i of prompt p has the index p * n + i.
    """

    request_id: str
    asked: Asked
    prompts: list[list[int]]
    server_arrival: float
    clock: Callable[[], float]
    adapter: str | None = None
    submitted: float | None = None
    server_sent: float | None = None
    requests: list[Request] = field(default_factory=list)
    items: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    event_loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def params(self, prompt: Sequence[int], max_model_len: int) -> SamplingParams:
        """max_tokens None: as many as the context has room for."""
        asked = self.asked.max_tokens
        room = max(1, max_model_len - len(prompt))
        return replace(self.asked.params, max_tokens=room if asked is None else asked)

    def put(self, item: Item) -> None:
        """In the event loop: something for the handler."""
        self.items.put_nowait(item)

    async def next(self) -> list[Piece] | None:
        """The next pieces; None once the client is gone. Raises ApiError where the job failed."""
        item = await self.items.get()
        if isinstance(item, ApiError):
            raise item
        return item

    def note_sent(self) -> None:
        """The first text is about to be handed to the socket."""
        if self.server_sent is None:
            self.server_sent = self.clock()

    @property
    def times(self) -> ServerTimes:
        first = self.requests[0] if self.requests else None
        return times_of(self.request_id, self.server_arrival, self.server_sent, first)


class Running:
    """A job in the engine: its streams. Lives in the engine's thread alone.

    interval: tokens to a piece; the first goes out alone, and the end takes what is left.
    """

    def __init__(self, job: Job, streams: list[TextDeltas], interval: int = 1) -> None:
        self.job, self.streams, self.interval = job, streams, interval
        self._held: dict[int, Piece] = {}  # of each continuation: what has not gone out yet
        self._given = [0] * len(job.requests)  # tokens whose log-probabilities were handed over

    @property
    def done(self) -> bool:
        return all(stream.done for stream in self.streams)

    def took_part(self, step: int) -> bool:
        """Whether a step worked on it."""
        return any(r.last_step == step and not r.is_finished for r in self.job.requests)

    def take(self) -> list[Piece]:
        """What is to go out now, at most one piece a continuation."""
        found = self._held
        for number, stream in enumerate(self.streams):
            for delta in stream.take():
                index = number * self.job.asked.params.n + delta.index
                before = found.get(index, Piece(index, "", ()))
                found[index] = replace(
                    before,
                    text=before.text + delta.text,
                    token_ids=before.token_ids + delta.token_ids,
                    finish_reason=delta.finish_reason,
                )
        ready = [piece for piece in found.values() if self._goes_out(piece)]
        gone = {piece.index for piece in ready}
        self._held = {i: piece for i, piece in found.items() if i not in gone}
        return [self._completed(piece) for piece in ready]

    def _goes_out(self, piece: Piece) -> bool:
        first = self._given[piece.index] == 0
        whole = len(piece.token_ids) >= self.interval
        return first or whole or piece.finish_reason is not None

    def _completed(self, piece: Piece) -> Piece:
        """With log-probabilities and the reason of the end."""
        request = self.job.requests[piece.index]
        begin = self._given[piece.index]
        self._given[piece.index] = end = begin + len(piece.token_ids)
        if request.sampling_params.logprobs is not None:
            piece = replace(piece, logprobs=tuple(request.output_logprobs[begin:end]))
        if piece.finish_reason is not None:
            piece = replace(piece, stop_reason=request.stop_reason)
        return piece

    def close(self) -> None:
        """End what is unfinished; blocks are given back."""
        for stream in self.streams:
            stream.close()
