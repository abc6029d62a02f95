"""Training of the tiny model: the whole recipe, or a few steps on any decoder.

    python -m kvlab.tiny.train --out FOLDER                  from nothing, about 15 minutes
    python -m kvlab.tiny.train --out FOLDER --init shipped   on from the shipped weights

A run prints a line a minute, can be stopped and started again with the same command, and gives
the same weights for the same seed and number of threads. At the end stands its gate: what the
weights can do beside the shipped ones, and exit code 1 if any figure is worse.

`fine_tune` is the same training in short. Section 21.1 uses it to mend a model whose KV heads
were averaged (tensors/head_sharing.py).
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kvlab import tiny
from kvlab.llm import LLM
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tiny import gate
from kvlab.tiny.batches import Batch, Encoder, LossWeights
from kvlab.tiny.corpus import cases
from kvlab.tiny.documents import Mix, document
from kvlab.tiny.recipe import Settings, Stage, continued, from_scratch
from kvlab.tiny.trainer import Rates, Trainer, batch_loss
from kvlab.tiny.training_folder import TrainingFolder

Progress = Callable[[int, float], None]
REPORTED = 32  # cases of each number of facts in a line of progress


def fine_tune(
    model: Decoder,
    num_steps: int,
    *,
    seed: int = 0,
    context: int = 256,
    batch_tokens: int = 2048,
    muon_rate: float = 0.01,
    adam_rate: float = 1e-3,
    warm_up: int = 10,
    mix: Mix | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """Train a copy of the decoder on documents made on the fly; the given one stays as it is.

    Each of `num_steps` steps reads batch_tokens tokens in rows of `context`: mostly notes with
    questions (another mix: documents.Mix). The rates rise over `warm_up` steps, stay until half
    of the steps and then fall. progress(step, loss) is called after each step, from step 0 on,
    with the loss on that step's documents in nats. An exception of its own, or an interrupt,
    ends the training. Same arguments, seed and threads: same weights.

    Returns a decoder ready for inference. Raises ValueError for a decoder of another vocabulary,
    or numbers that cannot be. 60 steps take about 20 seconds on one core (section 21.1).
    """
    mix = mix or Mix(notes=0.9, chat=0.05)
    if not isinstance(num_steps, int) or num_steps < 1:
        raise ValueError(f"num_steps is {num_steps!r}; give an integer of at least 1")
    rates, stage = Rates(muon_rate, adam_rate), Stage(num_steps * batch_tokens, (context,), mix)
    settings = Settings((stage,), seed, rates, batch_tokens, warm_up)
    if context > (most := model.config.max_model_len):
        raise ValueError(f"context is {context}; the decoder has {most} positions")
    encoder = _encoder_for(model, Tokenizer(tiny.FOLDER), settings.weights)
    trainer = Trainer(model, settings.rates)
    for step in range(num_steps):
        seen = step * batch_tokens
        loss = trainer.step(batch_of(settings, encoder, step, seen), settings.factor(step, seen))
        if progress is not None:
            progress(step, loss)
    return trainer.trained()


def _encoder_for(model: Decoder, tokenizer: Tokenizer, weights: LossWeights) -> Encoder:
    if model.config.vocab_size != tokenizer.vocab_size:
        raise ValueError(
            f"the decoder knows {model.config.vocab_size} ids, the tokenizer in "
            f"{tokenizer.folder} {tokenizer.vocab_size}; give a decoder made from the tiny model"
        )
    return Encoder(tokenizer, weights)


def batch_of(settings: Settings, encoder: Encoder, step: int, seen: int) -> Batch:
    """The documents of one step. They depend on seed and step alone, so a run can be resumed."""
    stage, rng = settings.stage_at(seen), random.Random(f"{settings.seed}/{step}")
    context = rng.choice(stage.contexts)
    rows = max(1, settings.batch_tokens // context)
    return encoder.batch([document(rng, context, stage.mix) for _ in range(rows)], context)


@torch.no_grad()
def held_out_loss(
    model: Decoder, count: int = 32, seed: int = 0, tokenizer: Tokenizer | None = None
) -> float:
    """Mean cross entropy, in nats a token, of what the assistant should say in held-out cases.

    `count` cases of corpus.cases with 4 facts; every fact is a pair that no training document
    holds. Nothing but the answer and its end mark counts. The same for the same arguments.
    """
    if count < 1:
        raise ValueError(f"count is {count}; give at least 1 case")
    only_answers = LossWeights(value=1.0, read=0.0)
    encoder = _encoder_for(model, tokenizer or Tokenizer(tiny.FOLDER), only_answers)
    texts = [f"{case.prompt} {case.answer}<|end|>" for case in cases(count, 4, seed=seed)]
    longest = max(len(encoder.tokenizer.encode(text)) for text in texts)
    return batch_loss(model, encoder.batch(texts, longest - 1)).item()


# ---- a whole run


def run(folder: TrainingFolder, settings: Settings, seconds: float, report_every: float) -> bool:
    """Train until all tokens are seen or the time is up; whether all tokens are seen.

    The folder is brought up to date with every line of progress and at the end.
    """
    trainer = Trainer(folder.model(settings.seed), settings.rates)
    encoder = Encoder(folder.tokenizer, settings.weights)
    step, seen = folder.restore(trainer)
    start = reported = time.monotonic()
    losses: list[float] = []
    while seen < settings.num_tokens and time.monotonic() - start < seconds:
        batch = batch_of(settings, encoder, step, seen)
        losses.append(trainer.step(batch, settings.factor(step, seen)))
        step, seen = step + 1, seen + batch.inputs.numel()
        if time.monotonic() - reported >= report_every:
            _report(folder, trainer, step, seen, losses[-50:])
            reported = time.monotonic()
    _report(folder, trainer, step, seen, losses[-50:])
    return seen >= settings.num_tokens


def _report(
    folder: TrainingFolder, trainer: Trainer, step: int, seen: int, losses: list[float]
) -> None:
    folder.save(trainer, step, seen)
    llm, asked = LLM(folder.path), {n: cases(REPORTED, n, seed=7) for n in (1, 4, 8)}
    right = "  ".join(f"{n}: {gate.num_right(llm, of_n)}" for n, of_n in asked.items())
    print(
        f"step {step:5}  {seen / 1e6:.2f} M tokens  loss {sum(losses) / max(len(losses), 1):.3f}  "
        f"held-out {held_out_loss(llm.model, tokenizer=llm.tokenizer):.4f}  "
        f"right of {REPORTED} with facts {right}",
        flush=True,
    )


def pass_gate(folder: Path, count: int) -> bool:
    """Print every figure beside the shipped weights'; whether all of them pass."""
    print(f"\n{gate.HEADER}")
    passed = True
    for figure in gate.figures(LLM(folder), LLM("tiny"), count):
        print(figure, flush=True)
        passed = passed and figure.passes
    print("The gate is passed." if passed else "The gate is NOT passed; keep the shipped weights.")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.tiny.train", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; new or its own")
    parser.add_argument("--init", help="'shipped', or a folder with weights to go on from")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after that long")
    parser.add_argument("--every", type=float, default=60, help="seconds between lines (60)")
    parser.add_argument("--cases", type=int, default=100, help="of each figure of the gate (100)")
    asked = parser.parse_args()
    if asked.cases < 1 or not asked.minutes >= 0 or not asked.every > 0:
        parser.error("--cases and --every must be above 0, --minutes not below 0")
    settings = continued(asked.seed) if asked.init else from_scratch(asked.seed)
    try:
        folder = TrainingFolder(asked.out, settings, asked.init)
        done = run(folder, settings, asked.minutes * 60, asked.every)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from the last line of progress.")
        return 130
    if not done:
        print("The time is up. The same command goes on.")
        return 0
    return 0 if pass_gate(asked.out, asked.cases) else 1


if __name__ == "__main__":
    torch.set_num_threads(1)  # these tensors are too small to share between threads
    sys.exit(main())
