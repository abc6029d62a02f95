"""When each part of a request's way through the server happened (claims 21.2-a and 21.2-b).

    server_arrival  submitted  first_scheduled  first_logits  selected  server_sent
          |  preparation  | queue  |    prefill     | selection | delivery  |

All on one clock, the engine's: time.perf_counter, which processes of one Linux machine share, so
that a client can put its own stamps beside these (kvlab/core/ttft.py).
"""

from dataclasses import asdict, dataclass

from kvlab.core.request import Request


@dataclass(frozen=True)
class ServerTimes:
    """Seconds on the engine's clock; None for what has not happened.

    server_arrival: the request's body was read. submitted: checked, tokenised and handed to the
    engine. first_scheduled: the first step that works on it began. first_logits: the scores of its
    first output were there. selected: that step ended. server_sent: the first bytes with text were
    handed to the socket. Of several continuations: the first one's.
    """

    request_id: str
    server_arrival: float
    submitted: float | None = None
    first_scheduled: float | None = None
    first_logits: float | None = None
    selected: float | None = None
    server_sent: float | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None

    def to_dict(self) -> dict[str, float | int | str | None]:
        return asdict(self)


def times_of(
    request_id: str, arrival: float, sent: float | None, request: Request | None
) -> ServerTimes:
    """What is known of a request by now. request: the engine's, None before it has one."""
    if request is None:
        return ServerTimes(request_id, arrival, server_sent=sent)
    times = request.times
    return ServerTimes(
        request_id,
        arrival,
        times.arrival,
        times.first_scheduled,
        times.first_logits,
        times.first_token,
        sent,
        request.num_prompt_tokens,
        request.num_cached_tokens,
    )
