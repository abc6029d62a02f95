"""The part of `LLM` that holds LoRA adapters: by name for callers, by identity for the engine."""

from collections.abc import Sequence
from pathlib import Path

from kvlab.engine import LLMEngine
from kvlab.tensors import lora_files
from kvlab.tensors.lora import Adapter, check_takes_adapters, merge
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner


class TakesAdapters:
    """Adapters of an `LLM`, which has the model, the runner and the engine.

    `adapters` maps names to identities. Blocks carry the identity, which is made from the
    adapter's content: other weights under an old name find none of the old blocks, and the same
    weights under another name, or loaded again, find them.
    """

    model: Decoder
    runner: ModelRunner
    engine: LLMEngine
    adapters: dict[str, str]

    def load_adapter(self, name: str, source: str | Path | Adapter) -> str:
        """Load a LoRA adapter for requests to use: `generate(..., adapter=name)`.

        source: a folder in PEFT's layout, or an Adapter. Returns the adapter's identity. A name
        that is loaded gets the new weights.

        Raises ValueError, changing nothing, for a folder or an adapter that does not fit, and
        where unfinished requests use the old weights of this name.
        """
        loaded = self.read_adapter(name, source)
        if name in self.adapters and self.adapters[name] != loaded.identity:
            self.unload_adapter(name)
        self.runner.adapters.setdefault(loaded.identity, loaded)
        self.adapters[name] = loaded.identity
        return loaded.identity

    def read_adapter(self, name: str, source: str | Path | Adapter) -> Adapter:
        """What `load_adapter` would load, checked. Raises its ValueErrors; changes nothing."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"the adapter's name is {name!r}; give a text that is not empty")
        if not isinstance(source, str | Path | Adapter):
            raise ValueError(f"adapter {name!r} is {source!r:.80}; give a folder or an Adapter")
        check_takes_adapters(self.model)
        if not isinstance(source, Adapter):
            source = lora_files.load_adapter(source, self.model.config)
        return source.fitted(self.model)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Its blocks stay findable, should the same weights be loaded again.

        Raises ValueError, changing nothing, for a name that is not loaded, and while unfinished
        requests use it.
        """
        identity = self._identity(name)
        users = [r.request_id for r in self.engine.requests.values() if r.adapter == identity]
        others = [one for one, same in self.adapters.items() if same == identity and one != name]
        if users and not others:
            raise ValueError(
                f"adapter {name!r} is in use by {', '.join(users[:5])}; let them end, or abort them"
            )
        del self.adapters[name]
        if not others:
            del self.runner.adapters[identity]

    def merge_adapter(self, name: str) -> Decoder:
        """A copy of the model with an adapter added into its weights, for an `LLM` of its own.

        This one goes on as it is. Raises ValueError for a name that is not loaded.
        """
        return merge(self.model, self.runner.adapters[self._identity(name)])

    def _identity(self, name: object) -> str:
        if not isinstance(name, str) or name not in self.adapters:
            known = ", ".join(map(repr, self.adapters)) or "none; load_adapter() loads one"
            raise ValueError(f"adapter {name!r} is not loaded; loaded: {known}")
        return self.adapters[name]

    def _identities(self, asked: str | Sequence[str | None] | None, count: int) -> list[str | None]:
        """One for each of `count` prompts, from one name for all or one each."""
        names = list(asked) if isinstance(asked, list | tuple) else [asked] * count
        if len(names) != count:
            raise ValueError(
                f"{count} prompts and {len(names)} adapters; give one for all or one each"
            )
        return [None if name is None else self._identity(name) for name in names]
