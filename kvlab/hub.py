"""A model by its name on the Hugging Face Hub, kept in the hub's own cache on this machine."""

import re
from pathlib import Path

from kvlab.tensors.checkpoint import CheckpointError, load_config

FILES = ["*.safetensors", "*.json", "*.jinja"]  # weights, configuration, tokenizer, chat template
INSTALL = "pip install huggingface_hub"
SECONDS = 10  # to wait for the hub


def is_hub_id(name: str) -> bool:
    """Whether it reads as "owner/model"."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None


def download(name: str) -> Path:
    """The folder of a model on the hub: fetched with a progress bar, or as it was fetched before.

    Only safetensors, JSON and template files of the top folder are taken; its configuration comes
    first, so that a model which kvlab does not run is refused before its weights are fetched.
    Raises ValueError, naming the remedy: no such model, one that asks for a login, no network.
    """
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
    except ImportError:
        raise ValueError(
            f"model {name!r} is no folder here, and to fetch it from the hub needs "
            f"huggingface_hub: {INSTALL}"
        ) from None
    local = not _reachable(name)
    try:
        config = Path(hf_hub_download(name, "config.json", local_files_only=local))
        load_config(config.parent)
        folder = snapshot_download(
            name, allow_patterns=FILES, ignore_patterns=["*/*"], local_files_only=local
        )
    except CheckpointError:
        raise
    except Exception as error:  # of requests, of the hub, of the network, of the disk
        raise ValueError(_reason(name, error)) from None
    return Path(folder)


def _reachable(name: str) -> bool:
    """Asked once: the downloads themselves try a silent hub again and again. Raises ValueError for
    a model that the hub does not have."""
    from huggingface_hub import HfApi, errors

    try:
        HfApi().model_info(name, timeout=SECONDS)
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ValueError(_reason(name, error)) from None
    except Exception:  # offline, by setting or in fact
        return False
    return True


def _reason(name: str, error: Exception) -> str:
    from huggingface_hub import errors

    start = f"model {name!r} is no folder here, and the hub "
    if isinstance(error, errors.GatedRepoError):
        return f"{start}asks for a login: accept its terms on its page, then run `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{start}has none of that name that it shows you; see https://huggingface.co/models"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return f"{start}has it without a config.json; take one in Hugging Face layout"
    if isinstance(error, errors.HFValidationError):
        return f"{start}takes no such name: {error}"
    if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError):
        return (
            f"{start}cannot be reached, nor was it fetched before; connect (and unset "
            "HF_HUB_OFFLINE if it is set), or give a folder, 'tiny' or 'smollm2'"
        )
    first = str(error).strip().splitlines() or [""]
    return f"{start}failed with {type(error).__name__}: {first[0][:200]}"
