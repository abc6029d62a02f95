"""Steps of a real engine's runner to be timed: prefill and decode of one shape (section 21.2).

    request 0   | block  0 | block  1 | ...          all requests of a batch have the same prompt,
    request 1   | block  w | block w+1 | ...         and each has blocks of its own: what they read
    ...           w blocks a request                 is as much as that of different prompts

A prefill computes a whole prompt in one step. Before a decode the prompt is computed for request
0 and its blocks are copied to the others; the step itself can be repeated, since it computes the
same position again and stores the same keys and values.
"""

from collections.abc import Sequence

import torch

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler_output import SampledToken, ScheduledRequest, SchedulerOutput
from kvlab.core.transfers import BlockCopy
from kvlab.measure import devices
from kvlab.measure.roofline_records import Case
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.memory_budget import step_nbytes
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner
from kvlab.tensors.stored import cache_format

CHUNK = 512  # positions computed at once when a context is filled


class Steps:
    """A model with a pool for the largest of `cases`: `prepare` one, then `run` it.

    cache_dtype: as `PagedCache` takes it; None: the model's. Raises ValueError, before it
    allocates, for what is no Decoder, half precision on a CPU, a format that a cache cannot hold, a
    prompt longer than the model takes, and a pool larger than the memory.
    """

    def __init__(
        self,
        model: Decoder,
        cases: Sequence[Case],
        *,
        block_size: int = 16,
        cache_dtype: torch.dtype | str | None = None,
    ) -> None:
        check_model(model)
        check_cases(model, cases)
        if type(block_size) is not int or block_size < 1:
            raise ValueError(f"block_size is {block_size!r}; give a whole number of at least 1")
        self.model, self.block_size = model, block_size
        asked = model.dtype if cache_dtype is None else cache_dtype
        self.format = cache_format(asked, "cache_dtype")
        self.cache_dtype = self.format.asked
        self.width = max(cdiv(case.seq_len, block_size) for case in cases)
        self.requests = max(case.batch for case in cases)
        self._refuse_too_large(cases)
        count = self.requests * self.width
        cache = PagedCache(model.config, count, block_size, self.cache_dtype, model.device)
        self.runner = ModelRunner(model, cache)
        self.filled = [0] * self.requests  # positions of each request whose K/V are stored

    def prepare(self, case: Case) -> None:
        """Store what the case's step finds in the cache."""
        if case.seq_len == case.query_len:
            return
        while self.filled[0] < case.length:
            start = self.filled[0]
            end = min(start + CHUNK, case.length)
            self.runner.execute(SchedulerOutput(0, (self._row(0, start, end, selects=False),)))
            self.filled[0] = end
        copies = [
            BlockCopy(i, request * self.width + i)
            for request in range(1, case.batch)
            if self.filled[request] < case.length
            for i in range(cdiv(case.length, self.block_size))
        ]
        copy_blocks(self.runner.cache, copies)
        for request in range(1, case.batch):
            self.filled[request] = max(self.filled[request], case.length)

    def output(self, case: Case) -> SchedulerOutput:
        """The message that a scheduler would send for this step."""
        start = case.seq_len - case.query_len
        rows = [self._row(r, start, case.seq_len, selects=True) for r in range(case.batch)]
        return SchedulerOutput(0, tuple(rows))

    def run(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        """One step: lay out the batch, compute, store, select a token for each request."""
        return self.runner.execute(output)

    def _row(self, request: int, start: int, end: int, selects: bool) -> ScheduledRequest:
        name, vocab = str(request), self.model.config.vocab_size
        ids = [(7 * position + 3) % vocab for position in range(start, end)]
        first = request * self.width
        blocks = range(first, first + cdiv(end, self.block_size))
        sampler = Request(name, [0], SamplingParams(temperature=0.0))
        return ScheduledRequest(name, start, ids, blocks, (sampler,) if selects else ())

    def _refuse_too_large(self, cases: Sequence[Case]) -> None:
        c, size = self.model.config, self.model.dtype.itemsize
        position = 2 * c.num_layers * c.num_kv_heads * self.format.vector_bytes(c.head_dim)
        pool = self.requests * self.width * self.block_size * position
        tokens = max(case.batch * case.query_len for case in cases)
        longest = self.width * self.block_size
        devices.refuse_too_large(
            pool + step_nbytes(c, size, tokens, self.requests, longest),
            self.model.device,
            f"a cache of {self.requests} requests of {self.width * self.block_size:,} positions",
            "give shorter prompts or smaller batches",
        )


def check_model(model: Decoder) -> None:
    """Raises ValueError for what cannot be timed."""
    if not isinstance(model, Decoder):
        raise ValueError(
            f"model has type {type(model).__name__}; give a Decoder, such as llm.model"
        )
    if not model.has_weights:
        raise ValueError("this Decoder has no weights; use random_50m() or load_model")
    devices.checked_dtype(model.dtype, model.device)


def check_cases(model: Decoder, cases: Sequence[Case]) -> None:
    """Raises ValueError where there are none, or for one that the model has no positions for."""
    if not cases:
        raise ValueError("there are no cases; give at least one, such as Case('prefill', 1, 64)")
    longest = model.config.max_model_len
    for case in cases:
        if not isinstance(case, Case):
            raise ValueError(f"{case!r} is no case; give Case('prefill', 1, 64) or the like")
        if case.seq_len > longest:
            raise ValueError(
                f"{case} needs {case.seq_len:,} positions and this model has {longest:,}; "
                "give a shorter length"
            )
