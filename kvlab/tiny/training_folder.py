"""The folder of a training run: weights in Hugging Face layout, and what is needed to go on.

    config.json, model.safetensors, tokenizer.json   the model, for LLM(folder)
    run.json                                         settings and how far the run is
    state-STEP.safetensors                           float32 weights and the optimisers' means

Nothing in it is ever executed when it is read.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kvlab import tiny
from kvlab.tensors.checkpoint import load_config, load_model
from kvlab.tensors.checkpoint_save import save_model
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tiny.batches import END_OF_TEXT
from kvlab.tiny.recipe import Settings
from kvlab.tiny.trainer import Trainer
from kvlab.tiny.vocabulary import missing_words, with_new_words, write_tokenizer

HEAD_SHARPNESS = 1.0  # of the heads that start as "look h + 1 tokens back"
CONSTANT = 0.08  # the one coordinate of the embedding that starts equal for all tokens


class TrainingFolder:
    """A new folder, or the folder of the same run, with its progress."""

    def __init__(self, path: str | Path, settings: Settings, init: str | None = None) -> None:
        """init: "shipped" or a folder to start from; None: from nothing.

        Raises ValueError, and writes nothing, if the folder holds anything but this run.
        """
        self.path = Path(path)
        self.source = tiny.FOLDER if init in (None, "shipped") else Path(init)
        self.from_scratch = init is None
        settled = {"settings": asdict(settings), "init": init}
        self.run = json.loads(json.dumps(settled))  # as it will be read
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; give a folder")
        if self.path.is_dir() and any(self.path.iterdir()):
            self._check_own()
            return
        config = load_config(self.source)  # a wrong folder is told before a new one is made
        words, known = missing_words(self.source), Tokenizer(self.source).vocab_size
        if config.vocab_size != known:
            raise ValueError(f"{self.source}: the model has {config.vocab_size} ids, not {known}")
        self.path.mkdir(parents=True, exist_ok=True)
        write_tokenizer(self.source, self.path, words)
        self._write_run(step=0, seen=0)

    def _check_own(self) -> None:
        try:
            found = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ValueError(
                f"{self.path} holds something else than a training run; give a new folder"
            ) from None
        if {key: found.get(key) for key in self.run} != self.run:
            raise ValueError(
                f"{self.path} holds a run with other settings; give them again or a new folder"
            )

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.path)

    def model(self, seed: int) -> Decoder:
        """The decoder that the run starts from; its vocabulary is the folder's tokenizer's."""
        count = self.tokenizer.vocab_size
        config = load_config(self.source)
        if self.from_scratch:
            return started_decoder(ModelConfig(**{**vars(config), "vocab_size": count}), seed)
        return with_new_words(load_model(self.source), count - config.vocab_size, seed)

    def restore(self, trainer: Trainer) -> tuple[int, int]:
        """Put weights and optimisers back where the run was. Returns (steps done, tokens seen)."""
        run = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        if run["step"]:
            _load_state(trainer, load_file(self.path / f"state-{run['step']}.safetensors"))
        return run["step"], run["seen"]

    def save(self, trainer: Trainer, step: int, seen: int) -> None:
        """The model for use and the state for going on. An interrupt leaves the older state."""
        more = {"bos_token_id": END_OF_TEXT, "pad_token_id": END_OF_TEXT}
        save_model(trainer.trained(), self.path, more=more)
        state = self.path / f"state-{step}.safetensors"
        save_file(_state(trainer), f"{state}.part")
        os.replace(f"{state}.part", state)
        self._write_run(step, seen)
        for older in self.path.glob("state-*.safetensors"):
            if older != state:
                older.unlink()

    def _write_run(self, step: int, seen: int) -> None:
        text = json.dumps({**self.run, "step": step, "seen": seen}, indent=1)
        part = self.path / "run.json.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.path / "run.json")


def _state(trainer: Trainer) -> dict[str, Tensor]:
    """Weights and optimisers by name: "weight/NAME", "state/NAME/KEY"."""
    tensors = {}
    for name, parameter in trainer.model.named_parameters():
        tensors[f"weight/{name}"] = parameter.data
        for optimiser in trainer.optimisers:
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"state/{name}/{key}"] = value
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def _load_state(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    names = dict(trainer.model.named_parameters())
    for name, parameter in names.items():
        parameter.data.copy_(tensors[f"weight/{name}"])
    for optimiser in trainer.optimisers:
        own = {id(p) for group in optimiser.param_groups for p in group["params"]}
        for name, parameter in names.items():
            if id(parameter) in own:
                prefix = f"state/{name}/"
                state = {
                    k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
                }
                optimiser.state[parameter] = state


# ---- a start from nothing


def started_decoder(config: ModelConfig, seed: int) -> Decoder:
    """Seeded weights, with first-layer heads that start by looking a few tokens back."""
    model, generator = Decoder.random(config, seed), torch.Generator().manual_seed(seed)
    model.embed_tokens.weight.normal_(std=0.02, generator=generator)
    for layer in model.layers:
        for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
            matrix.weight /= (2 * config.num_layers) ** 0.5
    start_heads(model)
    return model


@torch.no_grad()
def start_heads(model: Decoder) -> None:
    """Query head h of the first layer starts looking h + 1 tokens back.

    One coordinate of the embedding is the same for all tokens; through it every key has the same
    direction, every query that direction turned back by h + 1 positions, and rotary positions
    make the score largest at exactly that distance. Without it, right answers come later.
    """
    c, attention = model.config, model.layers[0].self_attn
    model.embed_tokens.weight[:, 0] = CONSTANT
    pairs = c.head_dim // 2
    size = (torch.arange(pairs) < 8).float() * HEAD_SHARPNESS  # the 8 fastest pairs
    rows = attention.qkv_proj.weight.unflatten(0, (-1, c.head_dim))  # [heads, d, D]
    for head in range(c.num_query_heads):
        phase = -model.inv_freq * (head + 1)
        rows[head, :, 0] = torch.cat((size * phase.cos(), size * phase.sin()))
    keys = slice(c.num_query_heads, c.num_query_heads + c.num_kv_heads)
    rows[keys, :, 0] = torch.cat((size, torch.zeros(pairs)))
