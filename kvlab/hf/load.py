"""`load_llm`: kvlab's `LLM` around any causal language model of transformers."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import cached_file

from kvlab import tiny
from kvlab.hf.decoder import TransformersDecoder
from kvlab.hf.family import refuse_early
from kvlab.llm import LLM
from kvlab.llm_arguments import computing_device
from kvlab.tensors.checkpoint_files import check_finite, opened, weight_files
from kvlab.tensors.tokenizer import Tokenizer


def load_llm(
    model: str | Path | PreTrainedModel | TransformersDecoder,
    *,
    tokenizer: str | Path | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    **arguments: object,
) -> LLM:
    """An `LLM` whose layers are transformers' own and whose cache and engine are kvlab's.

    model: a folder in Hugging Face layout, a hub id, "tiny" (ships with kvlab), or a model that
    is loaded already; that one stays what it is, in evaluation mode.
    tokenizer: a folder with a tokenizer.json; a folder or hub id has its own if it has one.
    dtype, device: None takes those of a model that is loaded already; else float32, and CUDA if
    there is one. Everything else is as for `LLM`: prefix caching, chunked prefill, preemption,
    offload, traces and views work as with kvlab's own decoder.

    Raises ValueError, before any request runs, for families that attend by other means (Mamba,
    latent attention, encoder-decoders), with the name and the reason. No code and no pickle of a
    checkpoint is executed.
    """
    model = tiny.FOLDER if model == "tiny" else model
    decoder = open_decoder(model, dtype, device)
    where = {"dtype": decoder.dtype, "device": decoder.device}
    llm = LLM(decoder, tokenizer=tokenizer, **where, **arguments)
    named = isinstance(model, str | Path)
    if named and tokenizer is None and (folder := _tokenizer_folder(model)) is not None:
        llm.tokenizer = Tokenizer(folder)  # it may have ids that the model lacks, as Gemma-3's has
    llm.name = Path(model).name if named else decoder.config.architecture
    return llm


def open_decoder(
    model: str | Path | PreTrainedModel | TransformersDecoder,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> TransformersDecoder:
    """The model as a decoder that `LLM` takes: arguments and errors as of `load_llm`."""
    if device is not None or isinstance(model, str | Path):
        device = computing_device(device)  # refused before weights are read
    if isinstance(model, str | Path):
        model = _loaded(model, dtype or torch.float32).to(device)
    decoder = model if isinstance(model, TransformersDecoder) else TransformersDecoder(model)
    return decoder.converted(dtype or decoder.dtype, device or decoder.device)


def checked_config(source: str | Path) -> PretrainedConfig:
    """A folder's or hub id's configuration. Raises ValueError for a model that does not run here,
    as far as configuration and class tell.
    """
    try:
        config = AutoConfig.from_pretrained(str(source), **_where(source))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"model {str(source)!r} has no configuration to read: {error}") from error
    named = (config.architectures or [type(config).__name__])[0]
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] if known else None
    refuse_early(config, found[0] if isinstance(found, tuple) else found, named)
    return config


def _where(source: str | Path) -> dict[str, bool]:
    return {"trust_remote_code": False, "local_files_only": Path(source).is_dir()}


def _loaded(source: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    """Weights in the computing dtype; refused by configuration and class before they are read."""
    config = checked_config(source)
    if Path(source).is_dir():
        _check_files(Path(source))
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            str(source),
            config=config,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **_where(source),
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"model {str(source)!r} cannot be loaded: {error}") from error
    if missing := sorted(found["missing_keys"]):  # transformers would leave them random
        raise ValueError(f"model {str(source)!r} has no weights for {', '.join(missing[:3])}")
    advice = "" if dtype == torch.float32 else "give dtype=torch.float32, "
    for name, weight in model.named_parameters():
        check_finite(weight.data, dtype, f"model {str(source)!r}: {name}", advice=advice)
    return model


def _check_files(folder: Path) -> None:
    """Raises ValueError for weights that are missing, damaged, pickled or outside the folder."""
    for path in weight_files(folder):
        with opened(path):
            pass


def _tokenizer_folder(source: str | Path) -> Path | None:
    found = cached_file(str(source), "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found).parent
