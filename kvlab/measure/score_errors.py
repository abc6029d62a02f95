"""One request over several ways to compute and to store: by how much the scores differ.

    reference   everything in float64, attention by its specification
    torch       the engine's own attention, over a cache of each format
    kernel      Triton's kernels, over a float32 cache

Each is a run of a real engine. Scores are the logits from which outputs are selected. For their
errors every run is led along the reference's outputs, so that all compare the same positions. One
that would have selected another token on the way runs once more and goes where it leads itself.
Section 21.5.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10

import torch
from torch import Tensor

from kvlab.core.block_pool import BlockPool
from kvlab.core.checked import whole
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.engine import LLMEngine
from kvlab.prompts import token_ids
from kvlab.tensors.backends import why_no_kernels
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner
from kvlab.tensors.stored import cache_format

FORMATS = ("fp32", "fp16", "bf16", "int8", "fp8", "q4_0")
BLOCK_SIZE = 16
SMALLEST = 1e-4  # of a printed bound
HEAD = ("computed by", "K/V stored as", "bytes a position", "rms error", "largest", "changed")


@dataclass(frozen=True)
class Scored:
    """One way. Errors are differences of logits to the reference's, over all outputs and tokens.

    token_ids: what it selected by itself. lead_lost: outputs (from 0) at which another token than
    the reference's leads, over the reference's own text.
    """

    computed_by: str
    stored: str
    bytes_per_position: int
    rms_error: float
    max_error: float
    token_ids: tuple[int, ...]
    lead_lost: tuple[int, ...]

    def changed_at(self, reference: Sequence[int]) -> int | None:
        """The first output that it selected otherwise; None: it selected the same."""
        pairs = enumerate(zip(self.token_ids, reference, strict=True))
        return next((i for i, (mine, wanted) in pairs if mine != wanted), None)


@dataclass(frozen=True)
class ScoreErrors:
    """token_ids: the reference's outputs. leads: by how much each led in its logits.

    ways: the runs that were compared. notice: why one is missing, or nothing.
    """

    token_ids: tuple[int, ...]
    leads: tuple[float, ...]
    ways: tuple[Scored, ...]
    notice: str

    def __getitem__(self, key: tuple[str, str]) -> Scored:
        """By what computed and what was stored, such as ["torch", "int8"]."""
        return next(way for way in self.ways if (way.computed_by, way.stored) == key)

    def table(self, token_text: Callable[[int], str] = str) -> str:
        """Lines to print. Errors are rounded up to 1, 2 or 5 times a power of ten, and to 0.0001
        at least: below, the last bits of another processor show."""
        rows = [HEAD, *(self._row(way, token_text) for way in self.ways)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, *([self.notice] if self.notice else [])])

    def _row(self, way: Scored, token_text: Callable[[int], str]) -> tuple[str, ...]:
        at = way.changed_at(self.token_ids)
        changed = "none"
        if at is not None:
            texts = token_text(way.token_ids[at]), token_text(self.token_ids[at])
            changed = "output {}: {!r}, not {!r}".format(at, *texts)
        errors = (f"under {upper_bound(e):g}" for e in (way.rms_error, way.max_error))
        size = f"{way.bytes_per_position:,}"
        return way.computed_by, way.stored, size, *errors, changed


def score_errors(
    model: Decoder,
    prompt: Sequence[int],
    *,
    outputs: int = 16,
    formats: Sequence[str | torch.dtype] = FORMATS,
    kernel: bool = True,
) -> ScoreErrors:
    """Run one request in every way; greedy, and past an end token.

    prompt: token ids. kernel: also with Triton's kernels; where they cannot run, a notice says so.
    Raises ValueError for what is no Decoder, ids or counts that do not fit, and unknown formats.
    """
    _check_model(model)
    ids = token_ids(list(prompt), None, model.config.vocab_size)
    whole("outputs", outputs, 1, max(1, model.config.max_model_len - len(ids)))
    stored = [cache_format(f, "a format").asked for f in formats]
    exact = copy.deepcopy(model).double()
    run = _Run(exact, torch.float64, ids, outputs, "reference")
    tokens, wanted = run.free()
    ways = [("torch", format_, "torch") for format_ in stored]
    settings = model.config, cache_format(torch.float32), model.dtype, model.device
    reason = why_no_kernels(*settings) if kernel else None
    if kernel and reason is None:
        ways.insert(1, ("kernel", torch.float32, "triton"))
    notice = "" if reason is None else f"no kernel: {reason}"
    compared = tuple(
        _scored(name, _Run(model, kind, ids, outputs, backend), tokens, wanted)
        for name, kind, backend in ways
    )
    two = wanted.topk(2).values
    return ScoreErrors(tuple(tokens), tuple((two[:, 0] - two[:, 1]).tolist()), compared, notice)


def changed_outputs(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    outputs: int = 16,
    formats: Sequence[str | torch.dtype] = FORMATS[1:],
) -> dict[str, list[int]]:
    """Of each format: the prompts (from 0) whose greedy outputs differ from those over fp32.

    All prompts run together in one engine a format, up to `outputs` tokens or an end token.
    """
    _check_model(model)
    rows = [token_ids(list(prompt), None, model.config.vocab_size) for prompt in prompts]
    names = [cache_format(f, "a format").name for f in formats]
    wanted = _served(model, "fp32", rows, outputs)
    found = {name: _served(model, name, rows, outputs) for name in names}
    return {
        name: [i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
        for name, got in found.items()
    }


def upper_bound(error: float) -> float:
    """1, 2 or 5 times a power of ten, the next that is not below; 0.0001 at least."""
    power = floor(log10(max(error, SMALLEST)))
    bounds = (float(f"{n}e{power}") for n in (1, 2, 5, 10))
    return next(bound for bound in bounds if max(error, SMALLEST) <= bound)


class _Run:
    """Engines over one model, format and attention, for one prompt."""

    def __init__(
        self,
        model: Decoder,
        stored: torch.dtype | str,
        ids: Sequence[int],
        outputs: int,
        backend: str,
    ) -> None:
        self.model, self.stored, self.ids, self.outputs = model, stored, ids, outputs
        self.backend = backend
        self.cache: PagedCache | None = None

    def free(self) -> tuple[list[int], Tensor]:
        """The tokens that it selects by itself, and their logits [outputs, V] in float64."""
        return self._tokens_and_logits(None)

    def led(self, tokens: Sequence[int]) -> Tensor:
        """Its logits [outputs, V] where `tokens` go on, whatever it would select."""
        return self._tokens_and_logits(tokens)[1]

    def _tokens_and_logits(self, tokens: Sequence[int] | None) -> tuple[list[int], Tensor]:
        count = cdiv(len(self.ids) + self.outputs, BLOCK_SIZE)
        self.cache = PagedCache(
            self.model.config, count, BLOCK_SIZE, self.stored, self.model.device
        )
        self.cache.fill_with_nan()
        runner = ModelRunner(self.model, self.cache, attention_backend=self.backend)
        rows: list[Tensor] = []
        runner.on_logits = lambda step: rows.extend(row.double().cpu() for row in step.values())
        engine = _engine(runner if tokens is None else _Led(runner, tokens), count)
        params = SamplingParams(max_tokens=self.outputs, ignore_eos=True)
        (request,) = engine.add_request(self.ids, params)
        engine.run()
        return list(request.output_token_ids), torch.stack(rows)


class _Led:
    """A runner whose selected tokens are replaced by given ones, one after another."""

    def __init__(self, runner: ModelRunner, tokens: Sequence[int]) -> None:
        self.runner, self.tokens = runner, iter(tokens)

    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        sampled = self.runner.execute(output)
        return {name: SampledToken(next(self.tokens)) for name in sampled}


def _engine(runner: object, num_blocks: int, ends: Sequence[int] = ()) -> LLMEngine:
    manager = KVCacheManager(BlockPool(num_blocks), BLOCK_SIZE, enable_prefix_caching=False)
    return LLMEngine(Scheduler(manager), runner, eos_token_ids=tuple(ends))


def _scored(name: str, run: _Run, tokens: Sequence[int], wanted: Tensor) -> Scored:
    logits = run.led(tokens)
    error, leading = (logits - wanted).abs(), logits.argmax(-1).tolist()
    lost = tuple(i for i, (a, b) in enumerate(zip(leading, tokens, strict=True)) if a != b)
    return Scored(
        name,
        run.cache.format.name,
        run.cache.bytes_per_position,
        float(error.square().mean().sqrt()),
        float(error.max()),
        tuple(run.free()[0] if lost else tokens),
        lost,
    )


def _served(
    model: Decoder, stored: str, prompts: Sequence[list[int]], outputs: int
) -> list[list[int]]:
    count = sum(cdiv(len(ids) + outputs, BLOCK_SIZE) for ids in prompts)
    cache = PagedCache(model.config, count, BLOCK_SIZE, stored, model.device)
    runner = ModelRunner(model, cache, attention_backend="torch")
    engine = _engine(runner, count, model.config.eos_token_ids)
    params = SamplingParams(max_tokens=outputs)
    requests = [engine.add_request(ids, params)[0] for ids in prompts]
    engine.run()
    return [r.output_token_ids for r in requests]


def _check_model(model: Decoder) -> None:
    if not isinstance(model, Decoder):
        raise ValueError(f'model is {model!r:.60}; give a Decoder, such as LLM("tiny").model')
    if not model.has_weights:
        raise ValueError("model has no weights; give Decoder.random(config), or a loaded one")
    if hasattr(model, "attention_over"):
        raise ValueError(
            "this model's layers attend in ways of their own, which the specification does not "
            'have; give one whose layers all attend alike, such as LLM("tiny").model'
        )
