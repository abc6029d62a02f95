"""Text in, text out: a tokenizer and stop strings around an engine.

    LLM("tiny").generate("...", SamplingParams(max_tokens=8))

Requests of several calls share one engine; each call steps it until its own are done.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from kvlab import tiny
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_tier import CPUTier
from kvlab.core.prefix_cache import PrefixCachePolicy, PrefixCacheStats
from kvlab.core.request import FinishReason, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.transfers import OffloadStats
from kvlab.engine import LLMEngine
from kvlab.llm_adapters import TakesAdapters
from kvlab.llm_arguments import (
    checked_blocks,
    checked_dtype,
    checked_flag,
    checked_length,
    computing_device,
    computing_dtype,
    memory_plan,
    scheduler_config,
)
from kvlab.llm_trace import RecordsTraces
from kvlab.model_source import load
from kvlab.outputs import RequestOutput, Sink, TextDeltas
from kvlab.prompts import Prompt, as_list, one_each, token_ids
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.memory_told import making_told
from kvlab.tensors.model import Decoder
from kvlab.tensors.out_of_memory import explained, nothing_kept
from kvlab.tensors.runner import ModelRunner


class LLM(RecordsTraces, TakesAdapters):
    """A model with its engine.

    model: "tiny", "smollm2", a folder, a .gguf file, a hub id or a `Decoder`; "default": kvlab.use.
    tokenizer: for a `Decoder`, "tiny" or the folder whose words it reads; without, it takes ids.
    num_blocks: size of the paged cache; None takes four full contexts, 512 MiB and half of what is
    free at most, `memory` says which of them decided.
    cpu_blocks: size of a second tier in host memory, for evicted prefixes, requests put aside and,
    with preempt_by="offload", preempted ones (section 21.3). None: there is none.
    dtype computes, cache_dtype is stored (None: the same), also by name: "fp32", "fp16", "bf16",
    "fp8", "int8", "q4_0" ("int4"). device None: CUDA if there is one.
    prefix_cache_policy: hash, comparison, retention and kept logits; None takes the safe ones.
    attention_backend: "torch", "triton" or "reference" (slow, float64); None takes the kernels on
    CUDA, torch elsewhere. enforce_eager: no CUDA graphs. `kvlab doctor` says what is taken and why.
    scheduling: policy, order, admission and the like by name, as SchedulerConfig takes them.
    Raises ValueError for arguments that do not fit, naming the value; NotEnoughMemory for what is
    more than there is, before it is made. One thread at a time.

    Parts of it are in files of their own: adapters in llm_adapters.py, traces in llm_trace.py.
    """

    adapters: dict[str, str]  # name -> identity
    _sinks: dict[str, Sink]

    def __init__(
        self,
        model: str | Path | Decoder = "default",
        *,
        tokenizer: str | Path | None = None,
        block_size: int = 16,
        num_blocks: int | None = None,
        cpu_blocks: int | None = None,
        dtype: torch.dtype = torch.float32,
        cache_dtype: torch.dtype | str | None = None,
        device: str | torch.device | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 2048,
        enable_chunked_prefill: bool = True,
        enable_prefix_caching: bool = True,
        prefix_cache_policy: PrefixCachePolicy | None = None,
        attention_backend: str | None = None,
        enforce_eager: bool = False,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        **scheduling: object,
    ) -> None:
        self.device = computing_device(device)
        with nothing_kept(self), explained(self._why_not_made):
            dtype = computing_dtype(dtype)
            self.name, self.tokenizer, self.model = load(model, tokenizer, dtype, self.device)
            config = self.model.config
            length = checked_length(max_model_len, config.max_model_len)
            limits = (max_num_seqs, max_num_batched_tokens, enable_chunked_prefill, length)
            limits = scheduler_config(limits, scheduling)
            stored = checked_dtype(cache_dtype, config, self.model.dtype)
            sizes = (checked_blocks(num_blocks, block_size), block_size, cpu_blocks)
            self.memory = memory_plan(self.model, stored, sizes, limits)
            tier = None if cpu_blocks is None else CPUTier(cpu_blocks)
            self.cache = PagedCache(config, self.memory.num_blocks, block_size, stored, self.device)
            manager = self._manager(enable_prefix_caching, prefix_cache_policy)
            eager = checked_flag("enforce_eager", enforce_eager)
            kinds = {"attention_backend": attention_backend, "enforce_eager": eager}
            self.runner = ModelRunner(self.model, self.cache, self._host(tier), clock, **kinds)
            scheduler = Scheduler(manager, limits, tier)
        self.engine = LLMEngine(scheduler, self.runner, clock, config.eos_token_ids, seed)
        self.adapters, self._sinks = {}, {}

    def _manager(self, caching: bool, policy: PrefixCachePolicy | None) -> KVCacheManager:
        checked_flag("enable_prefix_caching", caching)
        return KVCacheManager(
            BlockPool(self.cache.num_blocks),
            self.cache.block_size,
            enable_prefix_caching=caching,
            configuration=configuration_of(self.model, self.cache) if caching else None,
            policy=policy,
            window=self.model.config.widest_window,
        )

    def _host(self, tier: CPUTier | None) -> HostTier | None:
        return None if tier is None else HostTier(self.cache, tier.pool.num_blocks)

    def _why_not_made(self, asked: str) -> str:
        return making_told(self.device, getattr(self, "memory", None), asked)

    def __repr__(self) -> str:
        blocks = f"{self.cache.num_blocks} blocks of {self.cache.block_size}"
        return f"LLM({self.name!r}, {self.model.num_parameters:,} parameters, {blocks})"

    # ---- generating

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        adapter: str | Sequence[str | None] | None = None,
        cache_salt: str | None = None,
        priority: int = 0,
    ) -> list[RequestOutput]:
        """Run prompts to their end, together. Returns one output a prompt, in order.

        prompts: a text, a list of token ids, or a list of either; sampling_params: one for all
        or one each; adapter: names of loaded ones, likewise; priority: of all of them, the lower
        first. Interrupted or refused, it leaves no request behind.
        """
        several = as_list(prompts)
        params = one_each(sampling_params, len(several))
        adapters = self._identities(adapter, len(several))
        groups: list[list[Sink]] = []
        try:
            for prompt, p, one in zip(several, params, adapters, strict=True):
                extras = {"adapter": one, "cache_salt": cache_salt, "priority": priority}
                groups.append(self._submit(prompt, p, **extras))
            while not all(sink.done for group in groups for sink in group):
                self.step()
        finally:
            self._leave(sink for group in groups for sink in group)
        return [self._output(prompt, group) for prompt, group in zip(several, groups, strict=True)]

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        adapter: str | None = None,
        cache_salt: str | None = None,
        priority: int = 0,
    ) -> TextDeltas:
        """Text as it becomes certain. Closed or dropped early, the request is aborted."""
        (identity,) = self._identities(adapter, 1)
        extras = {"adapter": identity, "cache_salt": cache_salt, "priority": priority}
        sinks = self._submit(prompt, sampling_params, request_id=request_id, **extras)
        return TextDeltas(sinks, self.step, self._leave)

    def abort(self, request_id: str) -> bool:
        """End a request and its continuations. False if none of them is unfinished."""
        mine = self._names(request_id)
        ended = [self.engine.abort(name) for name in mine]
        for sink in [self._sinks[name] for name in mine if name in self._sinks]:
            self._close(sink)
        return any(ended)

    def suspend(self, request_id: str) -> bool:
        """Put a request and its continuations aside, into the CPU tier if there is one."""
        return any([self.engine.suspend(name) for name in self._names(request_id)])

    def resume(self, request_id: str) -> bool:
        """Let a request and its continuations go on. False if none of them was put aside."""
        return any([self.engine.resume(name) for name in self._names(request_id)])

    def _names(self, request_id: str) -> list[str]:
        requests = self.engine.requests.values()
        return [r.request_id for r in requests if request_id in (r.request_id, r.parent_id)]

    @property
    def offload_stats(self) -> OffloadStats | None:
        """Blocks, bytes and seconds between the tiers; None without a CPU tier."""
        offload = self.engine.scheduler.offload
        return None if offload is None else offload.stats

    @property
    def prefix_cache_stats(self) -> PrefixCacheStats:
        """Prompt tokens looked for and found since the start or the last reset."""
        return self.engine.scheduler.manager.stats

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes and their counts, as after a change of weights in place.

        False, changing nothing, while a request holds blocks.
        """
        return self.engine.reset_prefix_cache()

    # ---- requests on their way

    def _submit(
        self, prompt: Prompt, params: SamplingParams | None, **extras: object
    ) -> list[Sink]:
        """extras: what `LLMEngine.add_request` takes besides; adapter is an identity."""
        ids = self.encode(prompt)
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling_params is {params!r}; give a SamplingParams")
        if params.stop and self.tokenizer is None:
            raise ValueError(
                f"stop strings {params.stop!r} need a tokenizer; use stop_token_ids "
                "with a model given as a Decoder"
            )
        requests = self.engine.add_request(ids, params, **extras)
        sinks = [Sink(r, self.tokenizer) for r in requests]
        self._sinks.update({s.request.request_id: s for s in sinks})
        return sinks

    def step(self) -> None:
        """One step of the engine; every request's new tokens go to its own stream."""
        aside = self.engine.scheduler.suspended
        if aside.keys() >= self._sinks.keys() and not self.engine.has_unfinished_requests():
            raise RuntimeError(f"only {', '.join(aside)} is left, put aside; call resume() first")
        self.engine.step()
        for sink in list(self._sinks.values()):
            stop = sink.take_new()
            if stop is not None:
                self.engine.finish(sink.request.request_id, FinishReason.STOP, stop)
            if sink.request.is_finished:
                self._close(sink)

    def _close(self, sink: Sink) -> None:
        if not sink.done:
            sink.end()
            self._sinks.pop(sink.request.request_id, None)

    def _leave(self, sinks: Iterable[Sink]) -> None:
        for sink in sinks:
            if not sink.done:
                self.engine.abort(sink.request.request_id)
                self._close(sink)

    def _output(self, prompt: Prompt, group: list[Sink]) -> RequestOutput:
        leader = group[0].request
        return RequestOutput(
            leader.request_id,
            prompt if isinstance(prompt, str) else None,
            tuple(leader.prompt_token_ids),
            tuple(sink.output() for sink in group),
            leader.num_cached_tokens,
            self.notice(prompt),
        )

    # ---- text

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt; ids are checked against the vocabulary."""
        return token_ids(prompt, self.tokenizer, self.model.config.vocab_size)

    def notice(self, prompt: Prompt) -> str | None:
        """For the tiny model: which words of the prompt it never learned, and what to do."""
        mine = self.tokenizer is not None and self.tokenizer.folder == tiny.FOLDER
        return tiny.notice(prompt) if mine and isinstance(prompt, str) else None
