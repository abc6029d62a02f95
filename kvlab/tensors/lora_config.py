"""PEFT's adapter_config.json: which matrices a LoRA adapter changes, how large, and refusals.

Source: `LoraConfig` of PEFT 0.21 (huggingface.co/docs/peft, package reference, LoRA). What would
make another sum than y = x W^T + scale * (x A^T) B^T is refused by name.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvlab.tensors.checkpoint_files import CheckpointError

# Keys that say how an adapter was trained or where it came from, not what it computes.
SAID_IN_PASSING = {
    "auto_mapping", "base_model_name_or_path", "revision", "peft_version", "inference_mode",
    "lora_dropout", "megatron_core", "qalora_group_size", "runtime_config", "eva_config",
    "ensure_weight_tying",
}  # fmt: skip
USED = {
    "peft_type", "task_type", "bias", "init_lora_weights", "r", "lora_alpha", "use_rslora",
    "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform",
    "layers_pattern",
}  # fmt: skip
REASONS = {
    "use_dora": "DoRA also scales each row of the sum",
    "fan_in_fan_out": "the base weights would be stored transposed, as GPT-2's are",
    "modules_to_save": "whole modules are replaced, not changed by B A",
    "lora_bias": "a bias would be added besides B A",
    "layer_replication": "layers would be used several times",
    "trainable_token_indices": "rows of the embedding are replaced",
    "target_parameters": "parameters that are no linear layers are changed",
    "alora_invocation_tokens": "an activated LoRA begins in the middle of a prompt",
}
# Initialisations that leave the base weights as they are. Others (PiSSA, OLoRA, LoftQ, CorDA)
# move a part of them into the adapter, which then needs a base of its own.
PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
LONGEST_PATTERN = 2000  # characters of a regular expression
MOST_REPEATS = 6  # its *, +, ? and {n}: matching can take time to this power of a name's length


@dataclass(frozen=True)
class AdapterConfig:
    """What a LoRA's configuration says of each projection, by PEFT's own rules.

    target_modules: ends of names ("q_proj"), a regular expression, or "all-linear". rank_pattern,
    alpha_pattern: expressions for names whose r or lora_alpha is another.
    """

    r: int
    lora_alpha: float
    target_modules: tuple[str, ...] | str
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] | None = None
    alpha_pattern: Mapping[str, float] | None = None
    exclude_modules: tuple[str, ...] | str = ()
    layers_to_transform: tuple[int, ...] = ()

    def rank(self, name: str) -> int:
        """r of a projection, by its name in the base model: "model.layers.0.self_attn.q_proj"."""
        return _of(self.rank_pattern, name, self.r)

    def scale(self, name: str) -> float:
        """lora_alpha / r; with use_rslora lora_alpha / sqrt(r)."""
        r, alpha = self.rank(name), _of(self.alpha_pattern, name, self.lora_alpha)
        return alpha / (math.sqrt(r) if self.use_rslora else r)

    def targets(self, name: str) -> bool:
        """Whether the adapter changes this projection. Layers count where ends of names do."""
        if _names(self.exclude_modules, name):
            return False
        if self.target_modules == "all-linear":
            return True
        if not _names(self.target_modules, name):
            return False
        whole = isinstance(self.target_modules, str) or name in self.target_modules
        return whole or not self.layers_to_transform or _layer(name) in self.layers_to_transform


def _names(asked: tuple[str, ...] | str, name: str) -> bool:
    if isinstance(asked, str):
        return re.fullmatch(asked, name) is not None
    return any(name == end or name.endswith(f".{end}") for end in asked)


def _of(pattern: Mapping[str, float] | None, name: str, usual: float) -> float:
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", name):
            return value
    return usual


def _layer(name: str) -> int:
    return int(name.split(".")[2])


# ---- reading it


def read_config(path: Path) -> AdapterConfig:
    """Read adapter_config.json. Raises CheckpointError for one that is missing, damaged, or of a
    kind that is not supported, with the reason."""
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing; give the folder of a LoRA adapter in PEFT's layout"
        ) from None
    except (ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(keys, dict):
        raise CheckpointError(f"{path} holds a {type(keys).__name__}, expected an object")
    try:
        _refuse(keys)
        return _config(keys)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _refuse(keys: dict[str, object]) -> None:
    """Raise ValueError for what this sum cannot express."""
    for name, allowed in (
        ("peft_type", ("LORA",)),
        ("task_type", ("CAUSAL_LM", None)),
        ("bias", ("none", None)),
        ("init_lora_weights", PLAIN_STARTS),
    ):
        found = keys.get(name)
        if not any(found is one or (isinstance(one, str) and found == one) for one in allowed):
            shown = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} is {found!r:.80}, which is not supported; supported: {shown}")
    for name, value in keys.items():
        if value and name not in SAID_IN_PASSING | USED:
            why = REASONS.get(name, "kvlab does not know what it changes")
            raise ValueError(f"{name} is {value!r:.80}, which is not supported: {why}")


def _config(keys: dict[str, object]) -> AdapterConfig:
    layers = keys.get("layers_to_transform")
    layers = [layers] if _is_count(layers, 0) else [] if layers is None else layers
    if not isinstance(layers, list) or not all(_is_count(n, 0) for n in layers):
        raise ValueError(f"layers_to_transform is {layers!r:.80}; expected layers' numbers")
    if keys.get("layers_pattern") not in (None, [], "", "layers", ["layers"]):
        raise ValueError(f"layers_pattern is {keys['layers_pattern']!r:.80}; only 'layers' is read")
    if not isinstance(keys.get("use_rslora", False), bool | None):
        raise ValueError(f"use_rslora is {keys['use_rslora']!r:.80}; expected true or false")
    ranks, alphas = (_pattern(keys, name) for name in ("rank_pattern", "alpha_pattern"))
    for name, value in (("r", keys.get("r")), *((f"rank_pattern[{k!r}]", v) for k, v in ranks)):
        if not _is_count(value, 1):
            raise ValueError(f"{name} is {value!r:.80}; expected an integer of at least 1")
    alpha = keys.get("lora_alpha")
    for name, value in (("lora_alpha", alpha), *((f"alpha_pattern[{k!r}]", v) for k, v in alphas)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
            raise ValueError(f"{name} is {value!r:.80}; expected a finite number")
    if not keys.get("target_modules"):
        raise ValueError("target_modules is missing or empty; expected names, or an expression")
    return AdapterConfig(
        keys["r"],
        alpha,
        _modules(keys, "target_modules"),
        bool(keys.get("use_rslora")),
        dict(ranks),
        dict(alphas),
        _modules(keys, "exclude_modules"),
        tuple(layers),
    )


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _modules(keys: dict[str, object], name: str) -> tuple[str, ...] | str:
    value = keys.get(name) or []
    if isinstance(value, str):
        return _expression(name, value)
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ValueError(f"{name} is {value!r:.80}; expected names, or one expression")
    return tuple(value)


def _pattern(keys: dict[str, object], name: str) -> list[tuple[str, object]]:
    value = keys.get(name) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r:.80}; expected an object")
    return [(_expression(name, key), number) for key, number in value.items()]


def _expression(name: str, pattern: str) -> str:
    try:
        if len(pattern) > LONGEST_PATTERN:
            raise re.error(f"longer than {LONGEST_PATTERN} characters")
        _check_repeats(pattern)
        re.compile(rf"(.*\.)?({pattern})$")
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} has {pattern!r:.80}, no regular expression: {error}") from None
    return pattern


def _check_repeats(pattern: str) -> None:
    """Raise re.error for an expression that could search for years, as (a+)+ does.

    Refused are more than `MOST_REPEATS` repeats, and a repeated group with a choice in it.
    """
    bare = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)  # escapes and classes: one character each
    bare = re.sub(r"\((\?[:=!]|\?<[=!]|\?P<\w+>)", "(", bare)  # what opens a group is no repeat
    bare = re.sub(r"([*+?}])[+?]", r"\1", bare)  # lazy or possessive: one repeat
    if len(re.findall(r"[*+?{]", bare)) > MOST_REPEATS:
        raise re.error(f"more than {MOST_REPEATS} repeats (list the names instead)")
    choices = [False]  # of the groups that are open
    for here, after in zip(bare, bare[1:] + " ", strict=True):
        if here == "(":
            choices.append(False)
        elif here == ")" and len(choices) > 1:
            inner = choices.pop()
            if inner and after in "*+{":
                raise re.error("a repeated group with repeats or alternatives in it")
            choices[-1] |= inner
        elif here in "*+?{|":
            choices[-1] = True
