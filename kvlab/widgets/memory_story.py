"""The memory calculator's pure function: choices in, figures, bar and curve out."""

from dataclasses import dataclass
from functools import cached_property

from kvlab.core import budget as fit
from kvlab.core.budget import Budget, cdiv
from kvlab.core.formats import FORMATS
from kvlab.core.sizes import BINARY, both_units
from kvlab.core.storage import Storage
from kvlab.widgets import memory_models as models
from kvlab.widgets import memory_words as words

GIB = BINARY["GiB"]
USUAL_LENGTH = 32_768  # how far the curve reaches where a configuration gives no longest context
FARTHEST = 2**40  # more than any model's longest context
NEAR = 16  # windows' lengths that the curve shows while the chosen context is among them
MOST_TERMS = 6  # of the sum written out


@dataclass(frozen=True)
class Question:
    """One model and a reader's choices. total, other: bytes of one GPU."""

    title: str
    storage: Storage
    weights: int | None
    context: int
    requests: int
    block_size: int
    total: int
    other: int
    mla_asked: str = "latent"
    unused_text: bool = False  # a configuration is pasted, and another model is chosen

    @property
    def rank_weights(self) -> int:
        """One rank's share of the weights."""
        return cdiv(self.weights or 0, self.storage.ranks)

    @cached_property
    def budget(self) -> Budget:
        return fit.whole_budget(
            self.storage,
            self.total,
            weights=self.rank_weights,
            other=self.other,
            seq_len=self.context,
            requests=self.requests,
            block_size=self.block_size,
        )

    @property
    def room(self) -> int:
        """Bytes of one GPU that are left for the cache; 0 where weights and other fill it."""
        return max(self.total - self.rank_weights - self.other, 0)

    @cached_property
    def layout(self) -> fit.BlockLayout:
        return fit.block_layout(self.storage, self.block_size)

    @cached_property
    def capacity(self) -> fit.Capacity:
        blocks = fit.blocks_from_budget(self.layout, self.room)
        return fit.capacity(self.layout, blocks, self.context)

    @cached_property
    def limit(self) -> int | None:
        """The longest context whose keys, values and states fit; None: every length."""
        return fit.context_that_fits(self.storage, self.room, self.requests)

    @cached_property
    def nbytes(self) -> int:
        """The cache's part on one GPU."""
        return self.storage.nbytes_per_rank(self.context, self.requests)

    @cached_property
    def bends(self) -> tuple[int, ...]:
        """Lengths at which a window is full and the curve bends."""
        return self.storage.bends


def question(
    model: str,
    config: str,
    context: int,
    requests: int,
    dtype: str,
    ranks: int,
    block_size: int,
    gpu: int,
    other: int,
    window_policy: str,
    mla: str,
    pasted_weights: int | None = None,
) -> Question:
    """What the controls ask. gpu, other: GiB. Raises ValueError for what cannot be."""
    if model == models.PASTED:
        title, spec, weights = "The pasted model", models.pasted_spec(config), pasted_weights
    else:
        found = models.model_named(model)
        title, spec, weights = found.title, found.spec, found.weights
    form = mla if spec.is_latent else "latent"
    storage = Storage(spec, FORMATS[dtype], window_policy, form, ranks)
    sizes = (context, requests, block_size, gpu * GIB, other * GIB)
    unused = model != models.PASTED and config.strip() not in ("", models.EXAMPLE)
    return Question(title, storage, weights, *sizes, mla, unused)


def calculate(pasted_weights: int | None = None, **inputs: object) -> dict:
    """An editor's lines and view for the values of its controls; see `question`."""
    asked = question(**inputs, pasted_weights=pasted_weights)
    return {"lines": words.lines(asked), "view": budget_payload(asked)}


def budget_payload(asked: Question) -> dict:
    """Plain data for the view: texts are made here, numbers are for drawing."""
    terms = [str(term) for term in asked.storage.terms(asked.context, asked.requests)]
    if len(terms) > MOST_TERMS:
        left = len(terms) - MOST_TERMS
        terms = [*terms[:MOST_TERMS], f"… and {left} more kinds of layers"]
    return {
        "view": "memory_budget",
        "title": f"{asked.title}: one GPU's memory",
        "sentence": words.sentence(asked),
        "bar": bar(asked),
        "curve": curve(asked),
        "figures": words.figures(asked),
        "formula": terms,
        "notices": words.notices(asked),
    }


def bar(asked: Question) -> dict:
    """The GPU's bytes as parts, [letter, name, bytes, text]; used and free add up to the total."""
    found = asked.budget
    parts = (
        ("W", words.weights_name(asked), found.weights),
        ("K", words.payload_name(asked), found.payload),
        ("T", "block tails", found.tails),
        ("S", "states", found.state),
        ("O", "other, your estimate", found.other),
        ("F", "free", found.free),
    )
    return {
        "total": found.total,
        "total_text": both_units(found.total),
        "used": found.used,
        "missing": found.missing,
        "missing_text": both_units(found.missing),
        "parts": [[letter, name, size, both_units(size)] for letter, name, size in parts],
    }


def curve(asked: Question) -> dict:
    """Corners of the curve, [length, bytes on one GPU]; between them it is a straight line."""
    storage, longest = asked.storage, reach(asked)
    corners = dict(fit.curve(storage, longest, asked.requests, points=1))
    corners[asked.context] = asked.nbytes
    if asked.limit is not None and asked.limit < longest:
        corners[asked.limit] = storage.nbytes_per_rank(asked.limit, asked.requests)
    most = max(corners.values())
    top = 2 * most if corners[0] == most else max(most, asked.room * (2 * asked.room <= 3 * most))
    return {
        "points": [list(corner) for corner in sorted(corners.items())],
        "longest": longest,
        "top": top,
        "ticks": ticks(top),
        "context": asked.context,
        "nbytes": asked.nbytes,
        "text": both_units(asked.nbytes).partition(" (")[0],
        "bends": [bend for bend in asked.bends if bend <= longest],
        "room": asked.room,
        "room_text": both_units(asked.room).partition(" (")[0],
        "limit": asked.limit,
        "caption": words.caption(asked),
        "end": words.end_of_room(asked),
    }


def reach(asked: Question) -> int:
    """How far the curve is drawn: the model's longest context, or a few windows of a short one."""
    far = min(asked.storage.spec.max_model_len or USUAL_LENGTH, FARTHEST)
    far = max(far, asked.context)
    near = NEAR * max(asked.bends, default=far)
    return near if asked.context <= near < far else far


def ticks(top: int) -> list[list]:
    """Two to four round sizes below `top`, [bytes, text]: multiples of a power of two."""
    step = 1 << max((top // 4).bit_length(), 0)
    names = {"bytes": 1, **BINARY}
    name, unit = max(((n, u) for n, u in names.items() if u <= step), key=lambda item: item[1])
    return [[at, f"{at // unit:,} {name}"] for at in range(step, top + 1, step)]
