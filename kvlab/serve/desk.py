"""The server's desk: checks requests against the model, takes them in or sends them away."""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping

from kvlab.llm import LLM
from kvlab.serve import protocol
from kvlab.serve.answers import Answer
from kvlab.serve.chat import chat_form
from kvlab.serve.engine_loop import EngineLoop
from kvlab.serve.errors import ApiError, stopping
from kvlab.serve.job import Job
from kvlab.serve.models import Models
from kvlab.serve.times import ServerTimes

LONG_TEXT = 20_000  # characters from which a text is tokenised outside the event loop
KEPT_TIMES = 1_000
RETRY_SECONDS = 1


class Desk:
    """Used by the event loop alone, `times` apart.

    A sequence takes a place from its acceptance until its handler has ended. There are as many
    places as seats in the engine (max_num_seqs) and in the queue (max_queue).
    """

    def __init__(
        self,
        llm: LLM,
        engine: EngineLoop,
        models: Models,
        max_queue: int,
        early_role: bool = False,
    ) -> None:
        self.llm, self.engine, self.models = llm, engine, models
        self.early_role = early_role
        self.stopping = False
        self._limit = llm.engine.scheduler.config.max_model_len
        self._places = llm.engine.scheduler.config.max_num_seqs + max_queue
        self._taken = 0
        self._times: OrderedDict[str, ServerTimes] = OrderedDict()
        self._chat_ids = chat_form(llm)

    async def take_in(self, values: Mapping[str, object], chat: bool, arrival: float) -> Job:
        """A body becomes a job in the engine's inbox. Raises ApiError, taking no place."""
        asked = (protocol.chat if chat else protocol.completion)(values, self.models.names)
        self._check_places(asked.num_sequences)
        if asked.priority and self.llm.engine.scheduler.config.order != "priority":
            raise ApiError(
                400,
                f"priority is {asked.priority} and this server serves in order of arrival; leave "
                'it out, or start the server with order "priority"',
                param="priority",
                code="unsupported_parameter",
            )
        job = await self._prepare(asked, arrival)
        self._check_places(asked.num_sequences)  # again: others may have come meanwhile
        self._taken += asked.num_sequences
        self.engine.submit(job)
        return job

    def leave(self, job: Job) -> None:
        """A handler has ended: the place is free, and what still runs is ended."""
        self._taken -= job.asked.num_sequences
        self.engine.abort(job)
        self.note_times(job)

    def answer(self, job: Job) -> Answer:
        return Answer(self.llm, job, int(time.time()))

    def note_times(self, job: Job) -> None:
        self._times[job.request_id] = job.times
        while len(self._times) > KEPT_TIMES:
            self._times.popitem(last=False)

    def times(self, request_id: str) -> ServerTimes | None:
        return self._times.get(request_id)

    # ---- checks

    def _check_places(self, count: int) -> None:
        if self.stopping or not self.engine.is_alive:
            raise stopping()
        if count > self._places:
            raise ApiError(
                400,
                f"{count} sequences (prompts times n) are asked for at once and this server has "
                f"{self._places} places in all; send fewer",
                param="n",
                code="invalid_value",
            )
        if self._taken + count > self._places:
            raise ApiError(
                429,
                f"all {self._places} places of this server are taken; send it again later",
                code="queue_full",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )

    async def _prepare(self, asked: protocol.Asked, arrival: float) -> Job:
        """Token ids of all prompts, checked against the context's length."""
        size = sum(len(p) for p in asked.prompts if isinstance(p, str))
        size += sum(len(text) for _, text in asked.messages)
        try:
            if size > LONG_TEXT:
                prompts = await asyncio.to_thread(self._encode, asked)
            else:
                prompts = self._encode(asked)
        except ValueError as error:
            param = "messages" if asked.chat else "prompt"
            raise ApiError(400, str(error)[:300], param=param, code="invalid_value") from None
        for prompt in prompts:
            self._check_length(len(prompt), asked)
        request_id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid.uuid4().hex}"
        clock, adapter = self.llm.engine.clock, self.models.adapter(asked.model)
        return Job(request_id, asked, prompts, arrival, clock, adapter)

    def _encode(self, asked: protocol.Asked) -> list[list[int]]:
        if asked.chat:
            return [self._chat_ids(asked.messages)]
        return [self.llm.encode(prompt) for prompt in asked.prompts]

    def _check_length(self, length: int, asked: protocol.Asked) -> None:
        """The prompt and what is asked for must fit, as with OpenAI and vLLM."""
        wanted = asked.max_tokens or 1
        if length + wanted <= self._limit:
            return
        content = "messages" if asked.chat else "prompt"
        what = f"and {wanted} output tokens are asked for" if asked.max_tokens else "and no output"
        raise ApiError(
            400,
            f"this model's context has {self._limit} positions; the prompt has {length} tokens "
            f"{what}: shorten the prompt or ask for fewer tokens",
            param=content if length >= self._limit else "max_tokens",
            code="context_length_exceeded",
        )
