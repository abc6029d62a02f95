"""What a caller gets back: whole outputs, or text piece by piece."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvlab.core.metrics import RequestTimes
from kvlab.core.request import FinishReason, Request
from kvlab.tensors.tokenizer import TextStream, Tokenizer


@dataclass(frozen=True)
class CompletionOutput:
    """One continuation. finish_reason: "stop", "length", "abort" or "capacity"."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: tuple[dict[int, float], ...] | None
    times: RequestTimes = field(repr=False, compare=False)


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its continuations. num_cached_tokens: positions that its last
    admission took from the prefix cache.

    notice: what a reader should know before trusting the text (words the model never learned).
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    notice: str | None = None


@dataclass(frozen=True)
class TextDelta:
    """What one step added to a stream: certain new text, new token ids, and the end if it came."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    index: int = 0


class Sink:
    """One continuation on its way: its request, its text so far, deltas not yet handed out."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self.stream = TextStream(tokenizer, request.sampling_params.stop) if tokenizer else None
        self.deltas: list[TextDelta] = []
        self.done, self.taken = False, 0

    def take_new(self) -> str | None:
        """Take the request's tokens that are new here; returns the stop string they completed."""
        token_ids = self.request.output_token_ids[self.taken :]
        if not token_ids:
            return None
        self.taken += len(token_ids)
        text = "".join(self.stream.push(t) for t in token_ids) if self.stream else ""
        self.deltas.append(TextDelta(text, tuple(token_ids), None, self.request.sample_index))
        return self.stream.stopped_by if self.stream else None

    def end(self) -> None:
        held = self.stream.finish() if self.stream else ""
        if self.stream and self.stream.stopped_by is not None:
            self.request.finish_reason, self.request.stop_reason = (
                FinishReason.STOP,
                self.stream.stopped_by,
            )
        ended = self.request.finish_reason or FinishReason.ABORT  # asked for, not carried out yet
        reason = ended.value
        self.deltas.append(TextDelta(held, (), reason, self.request.sample_index))
        self.done = True

    def output(self) -> CompletionOutput:
        r = self.request
        text = self.stream.text if self.stream else ""
        logprobs = tuple(r.output_logprobs) if r.sampling_params.logprobs is not None else None
        reason = r.finish_reason.value if r.finish_reason else None
        return CompletionOutput(
            r.sample_index,
            text,
            tuple(r.output_token_ids),
            reason,
            r.stop_reason,
            logprobs,
            r.times,
        )


class TextDeltas:
    """An iterator over a stream's deltas. `close` (or dropping it) aborts what is unfinished."""

    def __init__(
        self, sinks: list[Sink], step: Callable[[], None], leave: Callable[[list[Sink]], None]
    ) -> None:
        """step: move the engine on by one step; leave: end what is unfinished."""
        self._sinks, self._step, self._leave = sinks, step, leave

    def __iter__(self) -> Iterator[TextDelta]:
        return self

    def __next__(self) -> TextDelta:
        while True:
            for sink in self._sinks:
                if sink.deltas:
                    return sink.deltas.pop(0)
            if self.done:
                raise StopIteration
            try:
                self._step()
            except BaseException:
                self.close()
                raise

    @property
    def requests(self) -> list[Request]:
        """The request behind each continuation, in order."""
        return [sink.request for sink in self._sinks]

    @property
    def done(self) -> bool:
        """Whether every continuation has ended; deltas may be left to take."""
        return all(sink.done for sink in self._sinks)

    def take(self) -> list[TextDelta]:
        """The deltas that are there already, for a caller that steps the engine itself."""
        taken = [delta for sink in self._sinks for delta in sink.deltas]
        for sink in self._sinks:
            sink.deltas.clear()
        return taken

    def close(self) -> None:
        """End the stream; a finished one is left as it is."""
        self._leave(self._sinks)

    def __del__(self) -> None:
        self.close()
