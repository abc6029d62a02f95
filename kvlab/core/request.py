"""What a request is: its tokens, how far the model has processed them, and how it ends.

    |<------------- num_tokens ------------->|
    |  prompt_token_ids   | output_token_ids |
    |<-- num_computed_tokens -->|  pending   |

K/V exist for the first `num_computed_tokens` positions. A freshly selected output counts in
`num_tokens` at once and is *pending* until a later pass processes it (section 21.6).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvlab.core.metrics import RequestTimes


class RequestStatus(enum.Enum):
    """Where a request stands between its arrival and its end. Section 21.3."""

    WAITING = "waiting"  # not admitted yet, holds no block
    RUNNING = "running"  # admitted: holds blocks and takes part in steps
    PREEMPTED = "preempted"  # was running, lost its blocks, waits to be computed again
    OFFLOADED = "offloaded"  # was running, its blocks lie in the CPU tier, waits to be loaded
    LOADING = "loading"  # holds blocks into which its keys and values are being copied
    SUSPENDED = "suspended"  # put aside by the caller, holds no block, waits to be resumed
    FINISHED = "finished"


class FinishReason(enum.Enum):
    """Why a request ended. Section 21.6."""

    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens or the model's longest context
    ABORT = "abort"  # the caller ended it
    CAPACITY = "capacity"  # alone in the engine, and the block pool has no block left for it


@dataclass(frozen=True)
class SamplingParams:
    """How outputs are selected and when they end.

    temperature: 0 selects the largest logit (greedy); above 0 divides the logits.
    top_k: keep the k largest logits; None keeps all. top_p: keep the smallest set of tokens
    whose probabilities reach top_p; 1.0 keeps all.
    seed: start of this request's own stream of random numbers; None takes one from the engine.
    n: continuations of one prompt; they share the prompt's blocks (section 21.5).
    stop: strings that end the output (they are cut off); stop_token_ids: token ids that do.
    logprobs: report the log-probability of each output and of the `logprobs` likeliest tokens.

    Raises ValueError for a value outside its range.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        ids, whole, number = self.stop_token_ids, _is_int, _is_number
        checks = (
            ("max_tokens", whole(self.max_tokens, 1), "an integer of at least 1"),
            ("temperature", number(self.temperature, 0), "a number of at least 0"),
            ("top_k", self.top_k is None or whole(self.top_k, 1), "an integer from 1, or None"),
            ("top_p", number(self.top_p, 0) and 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", self.seed is None or whole(self.seed), "an integer, or None"),
            ("n", whole(self.n, 1), "an integer of at least 1"),
            ("logprobs", self.logprobs is None or whole(self.logprobs, 0), "an integer, or None"),
            ("stop", _is_list(stop) and all(_is_text(s) for s in stop), "non-empty strings"),
            ("stop_token_ids", _is_list(ids) and all(whole(t) for t in ids), "token ids"),
        )
        for name, ok, wanted in checks:
            if not ok:
                raise ValueError(
                    f"SamplingParams: {name} is {getattr(self, name)!r}; give {wanted}"
                )
        object.__setattr__(self, "stop", tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(ids))


def _is_int(value: object, least: int | None = None) -> bool:
    number = isinstance(value, int) and not isinstance(value, bool)
    return number and (least is None or value >= least)


def _is_number(value: object, least: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and least <= value < float("inf")


def _is_list(value: object) -> bool:
    return isinstance(value, tuple | list)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


@dataclass(eq=False)
class Request:
    """One sequence of tokens on its way through the engine.

    num_computed_tokens: positions whose K/V exist. num_cached_tokens: of these, the positions
    that came from the prefix cache at the (last) admission instead of being computed.
    adapter and cache_salt enter the identity of its blocks (core/hashing.py).
    priority: the lower is served first where the scheduler orders by priority.
    parent_id and sample_index: set on the 2nd, 3rd ... continuation of a prompt (n > 1).
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling_params: SamplingParams = field(default_factory=SamplingParams)
    arrival_time: float = 0.0
    adapter: str | None = None
    cache_salt: str | None = None
    parent_id: str | None = None
    sample_index: int = 0
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0

    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the token id, the string or the sentence that ended it
    output_token_ids: list[int] = field(default_factory=list)
    output_logprobs: list[dict[int, float]] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    last_step: int = 0  # the step it last took part in; the longest-waiting decode goes first
    arrival_index: int = 0  # place among all submissions
    arrival_step: int = 0  # steps that lay behind the scheduler when it was submitted
    num_bypassed: int = 0  # how often it did not fit and a later request was admitted instead
    block_hashes: list[bytes] = field(default_factory=list)  # identities of its full blocks so far
    block_contents: list[bytes] = field(default_factory=list, repr=False)  # the hashes' inputs

    def __post_init__(self) -> None:
        self.prompt_token_ids = tuple(self.prompt_token_ids)
        if not self.prompt_token_ids:
            raise ValueError(
                f"request {self.request_id!r}: the prompt has no tokens; give at least one"
            )
        if not _is_int(self.priority):
            raise ValueError(
                f"request {self.request_id!r}: priority is {self.priority!r}; give an integer"
            )
        for name in ("adapter", "cache_salt"):  # they enter identities, so a typo would separate
            value = getattr(self, name)
            if value is not None and not _is_text(value):
                raise ValueError(
                    f"request {self.request_id!r}: {name} is {value!r}; give a text that is not "
                    "empty, or None for none"
                )
        self.times = RequestTimes(self.arrival_time)
        self.all_token_ids = [*self.prompt_token_ids, *self.output_token_ids]

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Positions that are known but whose K/V do not exist yet."""
        return len(self.all_token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Only its last output is pending: one position gives the next one."""
        computed = self.num_computed_tokens
        return len(self.all_token_ids) - computed == 1 and computed >= len(self.prompt_token_ids)

    @property
    def is_finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    def append_output(self, token_id: int) -> None:
        self.output_token_ids.append(token_id)
        self.all_token_ids.append(token_id)

    def reset_to_recompute(self) -> None:
        """Its blocks are gone: every position has to be computed again, outputs included."""
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0

    def check_stop(self, max_model_len: int) -> FinishReason | None:
        """Whether the last selected output ends the request (stop strings: see kvlab/llm.py)."""
        params, last = self.sampling_params, self.output_token_ids[-1]
        if (last in self.eos_token_ids and not params.ignore_eos) or last in params.stop_token_ids:
            self.stop_reason = last
            return FinishReason.STOP
        if len(self.output_token_ids) >= params.max_tokens or self.num_tokens >= max_model_len:
            return FinishReason.LENGTH
        return None
