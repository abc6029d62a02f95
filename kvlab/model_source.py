"""Where an `LLM` takes its model from: the embedded one, a folder, or a decoder made in place."""

from pathlib import Path

import torch

from kvlab import tiny
from kvlab.tensors.checkpoint import load_model
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer


def load(
    model: str | Path | Decoder,
    tokenizer: str | Path | None,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[str, Tokenizer | None, Decoder]:
    """The model's name, its tokenizer (None: token ids only) and its decoder.

    Raises ValueError for what is neither "tiny" nor a folder, and for a tokenizer that does not
    belong to the model.
    """
    if isinstance(model, Decoder):
        words = None if tokenizer is None else Tokenizer(_folder("tokenizer", tokenizer))
        if words is not None and words.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"tokenizer {str(tokenizer)!r} has {words.vocab_size} ids, "
                f"the model only {model.config.vocab_size}"
            )
        return "decoder", words, model.converted(dtype, device)
    if tokenizer is not None:
        raise ValueError(
            f"tokenizer is {str(tokenizer)!r}; model {str(model)!r} has its own, leave it out"
        )
    folder = _folder("model", model)
    name = "tiny" if folder == tiny.FOLDER else folder.name
    return name, Tokenizer(folder), load_model(folder, dtype, device)


def _folder(what: str, asked: str | Path) -> Path:
    if asked == "tiny":
        return tiny.FOLDER
    folder = Path(asked) if isinstance(asked, str | Path) and str(asked) else None
    if folder is None or not folder.is_dir():
        raise ValueError(f"{what} {str(asked)!r} is neither 'tiny' nor a folder")
    return folder
