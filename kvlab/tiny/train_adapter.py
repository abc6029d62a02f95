"""Training of the adapter that ships with the tiny model: answers in one word.

    python -m kvlab.tiny.train_adapter --out FOLDER      about 4 minutes on one core

The base model says "The key is red."; with the adapter it says "red.". Nothing but the adapter's A
and B is trained, 7,168 numbers beside the model's 0.9 million, on the model's own documents with
shortened answers. B starts at zero, so that training starts at the base model (Hu et al. 2021,
section 4.1). Same seed, steps and threads: same weights.
"""

import argparse
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from kvlab import tiny
from kvlab.tensors.lora import AdaptedRows, Adapter, LowRank, random_adapter
from kvlab.tensors.lora_files import save_adapter
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tiny.batches import Batch, Encoder, LossWeights
from kvlab.tiny.documents import Mix, document
from kvlab.tiny.trainer import BatchAttention, trainable_copy

RANK, ALPHA = 4, 8.0
NAMES = ("q_proj", "v_proj")  # what the paper changes in its largest model (section 7.1)
ROWS, CONTEXT = 16, 128  # of a step
RATE, WARM_UP = 5e-3, 10
ANSWER = re.compile(r"[^<.]*?(\w+(?: coins)?)\.")  # one sentence


def shortened(answer: str) -> str:
    """What is asked for, alone: "red." of "The key is red.", "52 coins." of a price."""
    match = ANSWER.fullmatch(answer)
    return f"{match[1]}." if match else answer


def short_document(rng: random.Random) -> str:
    """A training document of the tiny model's whose assistant gives short answers."""
    text = document(rng, CONTEXT, Mix(notes=1.0, chat=0.0))
    said = re.compile(r"(?<=<\|assistant\|> )[^<]*(?=<\|end\|>)")
    return said.sub(lambda found: shortened(found[0]), text)


def train(
    base: Decoder,
    num_steps: int,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Adapter:
    """An adapter trained on `num_steps` batches; the base model stays as it is.

    progress(step, loss): called after each step with the loss on its answers, in nats a token.
    """
    started = random_adapter(base.config, RANK, names=NAMES, size=1.0, seed=seed)
    changes = {
        name: LowRank(c.a.requires_grad_(), torch.zeros_like(c.b).requires_grad_(), ALPHA / RANK)
        for name, c in started.changes.items()
    }
    adapter, model = Adapter(changes, base.config), trainable_copy(base).requires_grad_(False)
    trained = [half for c in changes.values() for half in (c.a, c.b)]
    optimiser = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    encoder = Encoder(Tokenizer(tiny.FOLDER), LossWeights(said=1.0, value=1.0, told=0.0, read=0.0))
    rng = random.Random(seed)
    for step in range(num_steps):
        for group in optimiser.param_groups:  # it rises, then falls along a line
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / num_steps)
        batch = encoder.batch([short_document(rng) for _ in range(ROWS)], CONTEXT)
        loss = _loss(model, adapter, batch)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if progress is not None:
            progress(step, loss.item())
    return adapter.fitted(base)


def _loss(model: Decoder, adapter: Adapter, batch: Batch) -> torch.Tensor:
    """Mean cross entropy of what the assistant says, in nats a token."""
    rows, length = batch.inputs.shape
    positions = torch.arange(length).repeat(rows)
    attention, adapted = BatchAttention(rows, length), AdaptedRows([(adapter, None)])
    hidden = model(batch.inputs.flatten(), positions, attention, adapted)
    said = batch.weights.flatten() > 0
    return F.cross_entropy(model.compute_logits(hidden[said]), batch.targets.flatten()[said])


def main() -> int:
    from kvlab.llm import LLM

    parser = argparse.ArgumentParser(
        prog="python -m kvlab.tiny.train_adapter", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write it into")
    parser.add_argument("--steps", type=int, default=400, help="default 400")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    asked = parser.parse_args()
    if asked.steps < 1:
        parser.error(f"--steps is {asked.steps}; give at least 1")

    def report(step: int, loss: float) -> None:
        if step % 20 == 0 or step == asked.steps - 1:
            print(f"step {step:4}  loss {loss:.3f}", flush=True)

    save_adapter(train(LLM("tiny").model, asked.steps, asked.seed, report), asked.out)
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)  # these tensors are too small to share between threads
    sys.exit(main())
