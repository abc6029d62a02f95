"""Time to first token, taken apart on one real request (eq 21.4; sections 21.2 and 21.4).

    |<-------------------------------- total -------------------------------->|
    |  remainder  |  queue  |  prefill  |     selection      |    delivery    |
    start      arrival    first       logits             token known      text handed over
                          scheduled   ready

Each boundary is where something really happens, read from the engine's own clock:

- start: the caller asks `llm.stream(...)` for an answer
- arrival: the prompt is tokenised and checked, and the engine has the request
- first scheduled: the first pass that works on it begins
- logits ready: the runner hands over the scores of the first output
- token known: the step that selected it has ended
- text handed over: the caller's stream gives the first piece of text

Ask for the same prompt with and without a prefix hit: only `prefill` has a reason to differ.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvlab.core.request import Request, SamplingParams
from kvlab.llm import LLM


@dataclass(frozen=True)
class FirstToken:
    """The parts of one time to first token, in the unit of the engine's clock (seconds).

    queue: waiting, and the scheduler's own work, the prefix lookup included. prefill: passes over
    the prompt's positions that no hit covers. selection: from scores to a token, and the step's
    bookkeeping. delivery: from the token to text in the caller's hands. remainder: what eq 21.4
    leaves out because it begins at arrival, here tokenising and checking the prompt.
    """

    queue: float
    prefill: float
    selection: float
    delivery: float
    remainder: float
    total: float
    num_prompt_tokens: int
    num_cached_tokens: int

    @property
    def ttft(self) -> float:
        """Arrival to text, the sum of eq 21.4."""
        return self.queue + self.prefill + self.selection + self.delivery

    @property
    def num_prefill_tokens(self) -> int:
        """Positions of the prompt that were not found in the cache."""
        return self.num_prompt_tokens - self.num_cached_tokens

    def parts(self) -> dict[str, float]:
        """By name, in the order of time; they add up to `total`."""
        names = ("remainder", "queue", "prefill", "selection", "delivery")
        return {name: getattr(self, name) for name in names}


def first_token(
    llm: LLM,
    prompt: str | list[int],
    sampling_params: SamplingParams | None = None,
    *,
    cache_salt: str | None = None,
) -> FirstToken:
    """Serve a prompt up to its first text and say where the time went. What follows is not run.

    Other unfinished requests of the engine are served in the same steps, as always.
    Where the first tokens make no text yet (half a letter, the start of a stop string), delivery
    lasts until there is some. Raises ValueError, leaving the engine as it was, for several
    continuations, n > 1, and for what `LLM.stream` refuses.
    """
    if not isinstance(llm, LLM):
        raise ValueError(f'llm is {llm!r:.60}; give an LLM, such as LLM("tiny")')
    params = SamplingParams() if sampling_params is None else sampling_params
    if not isinstance(params, SamplingParams):
        raise ValueError(f"sampling_params is {params!r:.60}; give one SamplingParams, or None")
    if params.n != 1:
        raise ValueError(f"sampling_params has n={params.n}; a first token needs n=1")
    clock = llm.engine.clock
    start = clock()
    stream = llm.stream(prompt, params, cache_salt=cache_salt)
    request = stream.requests[0]
    try:
        next((delta for delta in stream if delta.text), None)
        handed_over = clock()
    finally:
        stream.close()
    times = request.times
    if times.first_logits is None:
        raise RuntimeError(f"the request ended without a token: {request.stop_reason}")
    return _split(request, start, handed_over)


def _split(request: Request, start: float, handed_over: float) -> FirstToken:
    """The times between the call, the engine's own stamps, and the text's being there."""
    times = request.times
    ready = times.first_logits
    return FirstToken(
        queue=times.first_scheduled - times.arrival,
        prefill=ready - times.first_scheduled,
        selection=times.first_token - ready,
        delivery=handed_over - times.first_token,
        remainder=times.arrival - start,
        total=handed_over - start,
        num_prompt_tokens=request.num_prompt_tokens,
        num_cached_tokens=request.num_cached_tokens,
    )


def least_disturbed(runs: Iterable[FirstToken]) -> FirstToken:
    """The run with the smallest total: what else the machine did took least of its time.

    Give it runs of the same prompt with the same hits. One run's parts add up; medians of each part
    would not. Raises ValueError for no runs, and for what is no run.
    """
    found = list(runs) if isinstance(runs, Iterable) else [runs]
    if not isinstance(runs, Iterable) or not all(isinstance(run, FirstToken) for run in found):
        raise ValueError(f"runs is {runs!r:.60}; give a list of what first_token returns")
    if not found:
        raise ValueError("there are no runs to choose from; measure at least one")
    return min(found, key=lambda run: run.total)
