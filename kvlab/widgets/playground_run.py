"""The allocator playground without its widget: a script carried out by the real parts.

The pool, the manager, the prefix cache, the paged tensors and the runner are the engine's own.
Only the choice of who takes the next step is the reader's. The same script gives the same trace.
"""

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.recorder import Recorder
from kvlab.core.request import FinishReason, Request, RequestStatus, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.core.trace import Trace
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner
from kvlab.tensors.sampling import sample
from kvlab.tiny.word_lists import ANIMALS, FOODS, THINGS
from kvlab.widgets import playground_words as words
from kvlab.widgets.playground_check import Audit, Auditor
from kvlab.widgets.playground_script import MOST_ACTIONS, Action, follow, parse_script

VOCABULARY = tuple(dict.fromkeys((*THINGS, *ANIMALS, *FOODS)))  # one word a token
SHAPE = {"num_layers": 2, "num_query_heads": 4, "num_kv_heads": 2, "head_dim": 8}
NO_LIMIT = SchedulerConfig(max_num_seqs=MOST_ACTIONS + 1)


@functools.cache
def model() -> Decoder:
    """Two layers of random weights: keys and values depend on all tokens before, and that is all
    that is asked of it. What it selects means nothing."""
    sizes = {"vocab_size": len(VOCABULARY), "hidden_size": 32, "intermediate_size": 48}
    return Decoder.random(ModelConfig(**sizes, **SHAPE), seed=0)


class ByHand(Scheduler):
    """A scheduler that decides nothing: one request takes a step when it is told to.

    selected: the token that each running request's last logits select; logits: these [V].
    """

    def __init__(self, manager: KVCacheManager, runner: ModelRunner) -> None:
        super().__init__(manager, NO_LIMIT)
        self.runner = runner
        self.selected: dict[str, SampledToken] = {}
        self.logits: dict[str, torch.Tensor] = {}
        runner.on_logits = self.logits.update

    def admit(self, request: Request) -> None:
        """Find its cached prefix, take blocks for the rest, compute it. ValueError: no room."""
        self.add_request(request)
        self.step_index += 1
        hits, cached = self.manager.get_computed_blocks(request)
        self._take(request, request.num_tokens - cached, hits)
        self.waiting.remove(request)
        self.running.append(request)
        request.num_computed_tokens = request.num_cached_tokens = cached
        request.status = RequestStatus.RUNNING
        self._emit("admitted", request, cached=cached)
        self._compute(request)

    def append(self, request: Request) -> None:
        """Select one more token, then process it. ValueError where its position finds no room."""
        self._record_selected([request], self.selected)
        self.step_index += 1
        self._take(request, 1, ())
        self._compute(request)

    def fork(self, parent: Request, child: Request) -> None:
        """The child continues where the parent is; its own draw selects from the same logits."""
        self.step_index += 1
        child.status = RequestStatus.RUNNING
        child.num_cached_tokens = parent.num_cached_tokens
        self.manager.fork(parent, child)
        self.running.append(child)
        self.logits[child.request_id] = self.logits[parent.request_id]
        (self.selected[child.request_id],) = sample(self.logits[child.request_id][None], [child])

    def _take(self, request: Request, count: int, hits: Sequence) -> None:
        needed = self.manager.blocks_needed(request, count, hits)
        if self.manager.allocate_slots(request, count, hits) is None:
            raise ValueError(words.no_room(self, request, needed))

    def _compute(self, request: Request) -> None:
        """One row through the runner: copies, pass, kept logits, as in every step of the engine."""
        self._in_step = {}
        self._put_in_step(request, request.num_pending_tokens)
        kept = self.manager.step_logits([request])
        row = self._row(request, request.num_pending_tokens)
        copies = self.manager.step_copies()
        output = SchedulerOutput(self.step_index, (row,), copies, logits_to_keep=kept)
        self.selected.update(self.runner.execute(output))
        self.manager.commit_step()
        self._record_processed(output)


@dataclass(frozen=True)
class Done:
    """An action that was carried out. frame: index of the trace's frame after it."""

    action: Action
    note: str
    frame: int
    audit: Audit


@dataclass(frozen=True)
class Replay:
    """All that a script did. start: the audit of the empty pool; requests: by name, in order."""

    trace: Trace
    start: Audit
    done: tuple[Done, ...]
    requests: Mapping[str, Request]


class Table:
    """The things a script acts upon: pool, manager, tensors, requests by name."""

    def __init__(self, pool: Sequence[int], block_size: int, policy: PrefixCachePolicy) -> None:
        decoder = model()
        self.cache = PagedCache(decoder.config, max(pool) + 1, block_size)
        for tensor in (self.cache.key_cache, self.cache.value_cache):
            tensor.fill_(float("nan"))  # whatever is read before it is written shows
        named = {"weights": "random, seed 0", **SHAPE}
        manager = KVCacheManager(BlockPool(pool), block_size, configuration=named, policy=policy)
        self.scheduler = ByHand(manager, ModelRunner(decoder, self.cache))
        self.auditor = Auditor(decoder, self.cache, self.scheduler)
        self.recorder = Recorder(self.scheduler, meta={"model": "random, two layers"})
        self.requests: dict[str, Request] = {}

    def carry_out(self, action: Action) -> None:
        """Raises ValueError where the action is impossible; then this table is of no more use."""
        getattr(self, f"_{action.kind}")(action)

    def _admit(self, action: Action) -> None:
        self.scheduler.admit(self._new(action.name, own_tokens(action.name, action.count)))

    def _share(self, action: Action) -> None:
        source = self._known(action.source)
        if action.count > source.num_tokens:
            raise ValueError(words.too_few_tokens(source, action.count))
        tokens = [*source.all_token_ids[: action.count], *own_tokens(action.name, action.own)]
        self.scheduler.admit(self._new(action.name, tokens))

    def _append(self, action: Action) -> None:
        request = self._running(action.name)
        for _ in range(action.count):
            self.scheduler.append(request)

    def _fork(self, action: Action) -> None:
        parent = self._running(action.source)
        outputs = list(parent.output_token_ids)
        child = self._new(action.name, parent.prompt_token_ids, outputs, parent.request_id)
        self.scheduler.fork(parent, child)

    def _finish(self, action: Action) -> None:
        self.scheduler.finish(self._running(action.name), FinishReason.STOP)

    def _new(
        self,
        name: str,
        prompt: Sequence[int],
        outputs: Sequence[int] = (),
        parent: str | None = None,
    ) -> Request:
        """Each draws from a stream of its own, so a fork soon differs from its parent."""
        if name in self.requests:
            raise ValueError(words.name_taken(self.requests, name))
        number = len(self.requests)
        params = SamplingParams(max_tokens=MOST_ACTIONS, temperature=1.0, seed=0)
        self.requests[name] = Request(
            name, prompt, params, parent_id=parent, sample_index=number, output_token_ids=[*outputs]
        )
        return self.requests[name]

    def _known(self, name: str) -> Request:
        if name not in self.requests:
            raise ValueError(words.unknown(self.requests, name))
        return self.requests[name]

    def _running(self, name: str) -> Request:
        request = self._known(name)
        if request.is_finished:
            raise ValueError(words.ended(self.requests, name))
        return request


def own_tokens(name: str, count: int) -> list[int]:
    """Seeded by the name, so that a longer prompt of one name begins like a shorter one."""
    return random.Random(f"prompt of {name}").choices(range(len(VOCABULARY)), k=count)


def replay(
    script: str,
    pool: Sequence[int] = (7, 2, 9, 5),
    block_size: int = 4,
    *,
    retain_freed: bool = False,
    kept_logits: int = 2,
) -> Replay:
    """Carry out a script from an empty pool; every action is followed by an audit.

    pool: block ids in their free order. Raises ValueError naming line, value and remedy for an
    action that is impossible; nothing outside is changed by that. Section 21.5.
    """
    actions = parse_script(script)
    policy = PrefixCachePolicy(retain_freed=retain_freed, kept_logits=kept_logits)
    table = Table(pool, block_size, policy)
    lengths: dict[str, int] = {}  # what the script alone says of the running requests
    start, done = table.auditor.audit(lengths), []
    for action in actions:
        before = len(table.recorder.trace().events)
        try:
            table.carry_out(action)
        except ValueError as error:
            raise ValueError(f"line {action.line}, {action.text!r}: {error}") from None
        follow(lengths, action)
        events = table.recorder.trace().events
        note = words.note(table.scheduler, action, events[before:])
        done.append(Done(action, note, len(events), table.auditor.audit(lengths)))
    trace = _named(table.recorder.trace(), table.requests)
    return Replay(trace, start, tuple(done), table.requests)


def _named(trace: Trace, requests: Mapping[str, Request]) -> Trace:
    """The trace with a word for each token that occurs."""
    used = sorted({token for r in requests.values() for token in r.all_token_ids})
    vocab = {str(token): f" {VOCABULARY[token]}" for token in used}
    return Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)
