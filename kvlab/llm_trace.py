"""The part of `LLM` that records traces: what the engine did, and what the tensors held."""

from collections.abc import Iterable

from kvlab.core.request import Request
from kvlab.core.trace import Trace
from kvlab.engine import LLMEngine
from kvlab.llm_arguments import checked_layers
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner, rounded_weights
from kvlab.tensors.tokenizer import Tokenizer


class RecordsTraces:
    """`start_trace` and `stop_trace` of an `LLM`, which has the engine, runner and cache."""

    name: str
    model: Decoder
    cache: PagedCache
    runner: ModelRunner
    engine: LLMEngine
    tokenizer: Tokenizer | None

    def start_trace(
        self, *, real_clock: bool = False, attention_layers: Iterable[int] | None = None
    ) -> None:
        """Record every event from now on.

        attention_layers: of these layers, each pass also keeps the weights of a request's last
        query, in the event's data: {"attention": {"0": [num_query_heads][keys], ...}}.
        Raises ValueError for a layer that the model does not have.
        """
        cache, config = self.cache, self.model.config
        watched = checked_layers(attention_layers, config.num_layers)
        meta = {
            "model": self.name,
            "num_layers": config.num_layers,
            "num_kv_heads": config.num_kv_heads,
            "num_query_heads": config.num_query_heads,
            "head_dim": config.head_dim,
            "bytes_per_value": cache.bytes_per_value,
            "bytes_per_position": cache.bytes_per_position,
        }
        self.engine.start_trace(real_clock=real_clock, meta=meta, probe=self._probe)
        self.runner.watch_layers = watched

    def _probe(self, request: Request) -> dict[str, object]:
        """What the tensors hold for a request: bytes, and attention weights if they are watched."""
        table = self.engine.scheduler.manager.block_table(request.request_id)
        out = table.count(None)  # blocks that fell out of the window lead the table
        held = request.num_computed_tokens - out * self.cache.block_size
        found: dict[str, object] = {"nbytes": self.cache.stored_nbytes(table[out:], held)}
        if self.runner.watch_layers:
            layers = self.runner.watched[request.request_id]
            found["attention"] = {str(n): rounded_weights(w) for n, w in layers.items()}
        return found

    def stop_trace(self) -> Trace:
        """Stop recording. The trace's `vocab` names the tokens that occur in it."""
        self.runner.watch_layers = frozenset()
        trace = self.engine.stop_trace()
        requests = trace.last_state()["requests"].values()
        used = sorted({t for r in requests for t in r["token_ids"]})
        vocab = {str(t): self.tokenizer.token_text(t) for t in used} if self.tokenizer else {}
        return Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)
