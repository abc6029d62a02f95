"""A LoRA adapter from and to a folder in PEFT's layout.

    adapter_config.json            r, lora_alpha, target_modules ...
    adapter_model.safetensors      base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight

Everything is checked before an adapter is made: the configuration and the tensors name the same
projections, both halves of each are there, and their shapes are the model's. As with models,
nothing of a folder is executed: pickle files are refused.
"""

import json
import os
import re
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from kvlab.tensors.checkpoint import FLOATS
from kvlab.tensors.checkpoint_files import NO_PICKLE, PICKLES, CheckpointError, is_inside, opened
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.lora import Adapter, LowRank, check_shapes, projections
from kvlab.tensors.lora_config import AdapterConfig, read_config

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Before the projection's name stands PEFT's wrapper and the causal LM's own "model.". Older
# versions wrote the adapter's name, "default", into the key.
KEY = re.compile(
    r"base_model\.model\.model\.(layers\.\d+\.\w+\.\w+)\.(lora_A|lora_B)(?:\.default)?\.weight"
)
Halves = dict[str, dict[str, str]]  # projection -> {"lora_A": key, "lora_B": key}


def load_adapter(folder: str | Path, config: ModelConfig) -> Adapter:
    """Read an adapter for a model of this configuration, in the dtype that it is stored in.

    Raises CheckpointError, naming the file and the key, for a folder that is incomplete, damaged,
    does not fit the model, or holds an adapter of a kind that is not supported.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{str(folder)!r} is not a folder; give one with {CONFIG}")
    for name in (CONFIG, WEIGHTS):
        _check_file(folder, name)
    said, path = read_config(folder / CONFIG), folder / WEIGHTS
    with opened(path) as handle:
        found = _halves(path, list(handle.keys()))
        _check_targets(path, found, said, config)
        changes = {}
        for name, keys in found.items():
            parts = [handle.get_slice(keys[half]) for half in ("lora_A", "lora_B")]
            for key, part in zip(keys.values(), parts, strict=True):
                if part.get_dtype() not in FLOATS:
                    raise CheckpointError(
                        f"{path}: {key} is stored as {part.get_dtype()}, expected one of "
                        f"{', '.join(FLOATS)}"
                    )
            _check_shapes(path, name, [tuple(p.get_shape()) for p in parts], said, config)
            changes[name] = LowRank(parts[0][:], parts[1][:], said.scale(f"model.{name}"))
    try:
        return Adapter(changes, config)
    except ValueError as error:
        raise CheckpointError(f"{path}: base_model.model.model.{error}") from None


def _check_file(folder: Path, name: str) -> None:
    path = folder / name
    if not path.is_file():
        pickles = sorted(p.name for p in folder.glob("adapter_*") if p.suffix in PICKLES)
        more = f"; {pickles[0]} is {NO_PICKLE}" if pickles and name == WEIGHTS else ""
        raise CheckpointError(f"{path} is missing{more}")
    if not is_inside(path, folder):
        raise CheckpointError(f"{path} is a link to {path.resolve()}, outside the folder")


def _halves(path: Path, keys: list[str]) -> Halves:
    """The tensors by projection. Raises CheckpointError for a key without a place, or a half."""
    found: Halves = {}
    for key in sorted(keys):
        match = KEY.fullmatch(key)
        if match is None:
            raise CheckpointError(
                f"{path}: {key} has no place; supported keys are like base_model.model.model."
                "layers.0.self_attn.q_proj.lora_A.weight"
            )
        name, half = match.groups()
        if half in found.setdefault(name, {}):
            raise CheckpointError(f"{path}: {key} is there twice, as {found[name][half]} too")
        found[name][half] = key
    for keys_of in found.values():
        for half, other in (("lora_A", "lora_B"), ("lora_B", "lora_A")):
            if half not in keys_of:
                missing = keys_of[other].replace(other, half)
                raise CheckpointError(f"{path}: {missing} is missing, {keys_of[other]} is there")
    return found


def _check_targets(path: Path, found: Halves, said: AdapterConfig, config: ModelConfig) -> None:
    """The configuration's projections, and no others, are in the file."""
    known = projections(config)
    for name, keys in found.items():
        if name not in known:
            raise CheckpointError(f"{path}: {keys['lora_A']} has no place in this model")
        if not said.targets(f"model.{name}"):
            raise CheckpointError(
                f"{path}: {keys['lora_A']} is there, but {CONFIG} does not name it as a target"
            )
    wanted = [name for name in known if said.targets(f"model.{name}")]
    if missing := [name for name in wanted if name not in found]:
        raise CheckpointError(
            f"{path}: base_model.model.model.{missing[0]}.lora_A.weight is missing, which {CONFIG} "
            "names as a target"
        )
    if not found:
        raise CheckpointError(f"{path} changes nothing: {CONFIG} names no matrix of this model")


def _check_shapes(
    path: Path,
    name: str,
    shapes: list[tuple[int, ...]],
    said: AdapterConfig,
    config: ModelConfig,
) -> None:
    try:
        check_shapes(name, *shapes, config, said.rank(f"model.{name}"))
    except ValueError as error:
        raise CheckpointError(f"{path}: base_model.model.model.{error}") from None


def save_adapter(adapter: Adapter, folder: str | Path) -> None:
    """Write an adapter as PEFT does, in the dtype that it has; the folder is made if missing."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, change in adapter.changes.items():
        key = f"base_model.model.model.{name}"
        tensors[f"{key}.lora_A.weight"] = change.a.detach().cpu().contiguous()
        tensors[f"{key}.lora_B.weight"] = change.b.detach().cpu().contiguous()
    save_file(tensors, folder / f"{WEIGHTS}.part", metadata={"format": "pt"})
    text = json.dumps(config_of(adapter), indent=1) + "\n"
    (folder / f"{CONFIG}.part").write_text(text, encoding="utf-8")
    for name in (WEIGHTS, CONFIG):
        os.replace(folder / f"{name}.part", folder / name)


def config_of(adapter: Adapter) -> dict[str, object]:
    """The keys of its adapter_config.json: what differs from the first matrix stands as pattern."""
    ranks = {f"model.{name}": len(change.a) for name, change in adapter.changes.items()}
    alphas = {f"model.{n}": c.scale * len(c.a) for n, c in adapter.changes.items()}
    r, alpha = next(iter(ranks.values())), next(iter(alphas.values()))
    ends = sorted({name.rpartition(".")[2] for name in ranks})
    every = len(ranks) == len(ends) * adapter.config.num_layers
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": r,
        "lora_alpha": alpha,
        "target_modules": ends if every else sorted(ranks),
        "rank_pattern": {re.escape(n): rank for n, rank in ranks.items() if rank != r},
        "alpha_pattern": {re.escape(n): a for n, a in alphas.items() if a != alpha},
        "bias": "none",
        "init_lora_weights": True,
        "inference_mode": True,
    }
