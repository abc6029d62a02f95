"""The names that a request's "model" may have: the model's own, and one for each LoRA adapter.

    {"model": "tiny"}     the model as it is
    {"model": "short"}    with the adapter that is loaded as "short"

Source: vLLM, --lora-modules, and its /v1/models: `parent` names the model that an adapter changes,
`root` where its weights came from.
"""

from collections.abc import Mapping
from pathlib import Path

from kvlab.core.checked import shown
from kvlab.llm import LLM
from kvlab.serve.errors import ApiError
from kvlab.tensors.lora import Adapter


class Models:
    """What is served. Adapters that are loaded or unloaded meanwhile come and go (`Server.call`).

    lora_modules: name -> folder of adapters to load now. Raises ValueError, loading none, for a
    folder or a name that does not fit.
    """

    def __init__(
        self, llm: LLM, base: str, created: int, lora_modules: Mapping[str, str | Path] | None
    ) -> None:
        folders = {} if lora_modules is None else lora_modules
        if not isinstance(folders, Mapping):
            raise ValueError(
                f"lora_modules is {shown(folders)}; give a mapping of names to folders"
            )
        if base in {**llm.adapters, **folders}:
            raise ValueError(
                f"adapter {base!r} cannot be asked for: {base!r} is the name of the model itself; "
                "give another"
            )
        read = {name: _read(llm, name, folder) for name, folder in folders.items()}
        made = {name: llm.load_adapter(name, adapter) for name, adapter in read.items()}
        self._llm, self._created, self._base = llm, created, base
        self._roots = {name: (made[name], str(path)) for name, path in folders.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The model's own name, then those of the adapters."""
        return (self._base, *(name for name in list(self._llm.adapters) if name != self._base))

    def adapter(self, name: str) -> str | None:
        """What `LLM.stream` takes for a request that names this model. None: no adapter."""
        return None if name == self._base else name

    def card(self, name: str) -> dict[str, object]:
        """An entry of /v1/models."""
        base = name == self._base
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "kvlab",
            "root": name if base else self._root(name),
            "parent": None if base else self._base,
            "max_model_len": self._llm.engine.scheduler.config.max_model_len,
        }

    def _root(self, name: str) -> str:
        """An adapter's folder, as long as these weights are loaded; else only its name is known."""
        identity, folder = self._roots.get(name, (None, name))
        return folder if self._llm.adapters.get(name) == identity else name


def _read(llm: LLM, name: str, folder: str | Path) -> Adapter:
    try:
        return llm.read_adapter(name, folder)
    except ValueError as error:
        raise ValueError(f"adapter {shown(name)} of lora_modules: {error}") from None


def not_served(name: str, names: tuple[str, ...]) -> ApiError:
    """What a request gets that asks for another model."""
    message = f"model {shown(name)} is not served here; {known(names)}"
    return ApiError(404, message, param="model", code="model_not_found")


def known(names: tuple[str, ...]) -> str:
    """The names, as an error tells them."""
    if len(names) == 1:
        return f"the model that is served has the name {names[0]!r}"
    return f"the models that are served have the names {', '.join(map(repr, names))}"
