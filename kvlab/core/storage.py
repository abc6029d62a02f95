"""How many bytes a model's cache takes under stated choices: format, window policy, MLA, ranks.

    bytes(T, R) = R * (sum over layers of  kept positions(T) * bytes a position  +  fixed state)

Full attention keeps T positions. A window of W keeps, by policy: `capped`, the last min(T, W), as
transformers' StaticCache; `dynamic`, min(T, W - 1), as its DynamicCache between steps; and
`reserve_full`, all T, as engines without window support. `freed` is kvlab's own engine: one block
is one block in all layers, so blocks are given back where every layer has a window, by the widest
(core/windows.py), and otherwise all T stay. Integers throughout. Section 21.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from kvlab.core.formats import FORMATS, StoredFormat
from kvlab.core.spec import KVCacheSpec, LayerSpec
from kvlab.core.spec_heads import Vector
from kvlab.core.spec_read import short
from kvlab.core.spec_state import StateTensor

MOST = 2**200
POLICIES = {
    "capped": "a window of W keeps the last min(T, W) positions, as transformers' StaticCache",
    "dynamic": "a window of W keeps min(T, W - 1) positions, as transformers' DynamicCache",
    "reserve_full": "a window layer keeps all T positions, as engines without window support",
    "freed": "where every layer has a window, blocks out of the widest are freed, else all T stay",
}
MLA_FORMS = {
    "latent": "one latent a position and layer, for all heads together",
    "expanded": "keys and values of every head, decompressed",
}


@dataclass(frozen=True)
class Term:
    """Equal layers' share: layers * positions * bytes a position, + layers * state; R times."""

    layers: int
    what: str  # "full layers", "layers with a window of 128", "layers with a state", ...
    positions: int
    position_bytes: int
    state_bytes: int
    requests: int
    numbers: str  # "2 (K, V) × 8 heads × 128 values × 2 bytes"

    @property
    def nbytes(self) -> int:
        each = self.positions * self.position_bytes + self.state_bytes
        return self.requests * self.layers * each

    def __str__(self) -> str:
        """The term with its numbers filled in; ends in its bytes."""
        parts = []
        if self.position_bytes:
            plural = "" if self.positions == 1 else "s"
            parts.append(f"{self.positions:,} position{plural} × {self.numbers}")
        if self.state_bytes:
            parts.append(f"a state of {self.state_bytes:,} bytes")
        inside = " + ".join(parts) or "nothing of their own"
        inside = f"({inside})" if len(parts) > 1 else inside
        times = f"{self.requests:,} requests × " if self.requests != 1 else ""
        return f"{times}{self.layers} {self.what} × {inside} = {self.nbytes:,} bytes"


@dataclass(frozen=True)
class Storage:
    """A model's layers, stored in one format, under one policy, over so many ranks.

    Raises ValueError for a policy or form that does not exist, for MLA's expanded form where there
    is no MLA, for a format whose blocks a vector does not fill, and for ranks that cannot share
    the heads.
    """

    spec: KVCacheSpec
    stored: StoredFormat = field(default_factory=lambda: FORMATS["bf16"])
    policy: str = "capped"
    mla: str = "latent"
    ranks: int = 1

    def __post_init__(self) -> None:
        _choice("window policy", self.policy, POLICIES)
        _choice("mla", self.mla, MLA_FORMS)
        check_count("tp", self.ranks)
        if self.policy == "dynamic" and 1 in self.spec.windows:
            raise ValueError(
                "window policy is 'dynamic' and a window is 1: nothing is kept between steps; "
                "choose 'capped'"
            )
        if self.mla == "expanded":
            if not self.spec.is_latent:
                raise ValueError(
                    "mla is 'expanded', and this model stores plain keys and values; leave it out"
                )
            if any(x.vectors and not x.expanded for x, _ in self.spec.groups):
                raise ValueError(
                    "mla is 'expanded', and the configuration lacks qk_nope_head_dim, v_head_dim "
                    "or num_attention_heads; add them, or choose 'latent'"
                )
        _ = self.bytes_per_token, self.bytes_per_token_per_rank, self.state_bytes_per_rank

    # what one position and one request take

    def vectors(self, layer: LayerSpec) -> tuple[Vector, ...]:
        return layer.expanded if self.mla == "expanded" else layer.vectors

    def position_bytes(self, layer: LayerSpec, ranks: int = 1) -> int:
        """One position of one layer, on one of `ranks` ranks."""
        return sum(
            _share(v.heads, ranks, "KV heads") * self.stored.vector_bytes(v.width)
            for v in self.vectors(layer)
        )

    def layer_state_bytes(self, layer: LayerSpec, ranks: int = 1) -> int:
        """The fixed state of one request in one layer, on one of `ranks` ranks."""
        return sum(self._tensor_bytes(tensor, ranks) for tensor in layer.state)

    def _tensor_bytes(self, tensor: StateTensor, ranks: int) -> int:
        heads = _share(tensor.heads, ranks, f"parts of the {tensor.name}")
        return heads * tensor.width * (tensor.value_bytes or self.stored.state_bytes)

    @cached_property
    def bytes_per_token(self) -> int:
        """All layers, one request, no ranks, while no window is full."""
        return sum(n * self.position_bytes(layer) for layer, n in self.spec.groups)

    @cached_property
    def bytes_per_token_per_rank(self) -> int:
        return sum(n * self.position_bytes(layer, self.ranks) for layer, n in self.spec.groups)

    @property
    def group_total(self) -> int:
        """One position on all ranks together; above bytes_per_token where heads are replicated."""
        return self.ranks * self.bytes_per_token_per_rank

    @cached_property
    def state_bytes_per_request(self) -> int:
        return sum(n * self.layer_state_bytes(layer) for layer, n in self.spec.groups)

    @cached_property
    def state_bytes_per_rank(self) -> int:
        return sum(n * self.layer_state_bytes(layer, self.ranks) for layer, n in self.spec.groups)

    @property
    def heads_per_rank(self) -> int | list[int] | None:
        """KV heads on a rank (one latent counts as one); a list where layers differ."""
        heads = [
            _share(self.vectors(layer)[0].heads, self.ranks, "KV heads")
            for layer in self.spec.layers
            if layer.vectors
        ]
        return (heads[0] if len(set(heads)) == 1 else heads) if heads else None

    # over the length

    @cached_property
    def freeing_window(self) -> int | None:
        """The widest window (1 counts as 2) where each layer that keeps positions has one."""
        kept = [layer for layer, _ in self.spec.groups if layer.vectors]
        every = kept and all(layer.reach == "window" for layer in kept)
        return max(2, *(layer.window for layer in kept)) if every else None

    @property
    def bends(self) -> tuple[int, ...]:
        """Lengths from which a layer keeps no more positions, in order."""
        if self.policy == "freed":
            return () if self.freeing_window is None else (self.freeing_window - 1,)
        if self.policy == "reserve_full":
            return ()
        return tuple(window - (self.policy == "dynamic") for window in self.spec.windows)

    def positions(self, layer: LayerSpec, seq_len: int) -> int:
        """Positions that a layer keeps of a request with seq_len processed ones."""
        if not layer.vectors:
            return 0
        if self.policy == "freed":
            widest = self.freeing_window
            return seq_len if widest is None else min(seq_len, widest - 1)
        if layer.window is None or self.policy == "reserve_full":
            return seq_len
        return min(seq_len, layer.window - (self.policy == "dynamic"))

    def nbytes(self, seq_len: int, requests: int = 1) -> int:
        """Of `requests` requests with seq_len processed positions each, all ranks' shares once."""
        return self._nbytes(seq_len, requests, 1)

    def nbytes_per_rank(self, seq_len: int, requests: int = 1) -> int:
        return self._nbytes(seq_len, requests, self.ranks)

    def _nbytes(self, seq_len: int, requests: int, ranks: int) -> int:
        check_count("context", seq_len, at_least=0)
        check_count("requests", requests, at_least=0)
        return requests * sum(
            n * (self.positions(layer, seq_len) * position + state)
            for layer, n, position, state in self._sizes(ranks)
        )

    def _sizes(self, ranks: int) -> list[tuple[LayerSpec, int, int, int]]:
        return self._rank_sizes if ranks == self.ranks else self._whole_sizes

    @cached_property
    def _rank_sizes(self) -> list[tuple[LayerSpec, int, int, int]]:
        return list(self._measured(self.ranks))

    @cached_property
    def _whole_sizes(self) -> list[tuple[LayerSpec, int, int, int]]:
        return list(self._measured(1))

    def _measured(self, ranks: int) -> Iterable[tuple[LayerSpec, int, int, int]]:
        for layer, n in self.spec.groups:
            position = self.position_bytes(layer, ranks)
            yield layer, n, position, self.layer_state_bytes(layer, ranks)

    def growth(self, seq_len: int, requests: int = 1) -> int:
        """What one more position of each request adds (eq 21.3, windows included)."""
        return self.nbytes(seq_len + 1, requests) - self.nbytes(seq_len, requests)

    def terms(self, seq_len: int, requests: int = 1) -> tuple[Term, ...]:
        """The sum written out, equal layers together. Adds up to nbytes(seq_len, requests)."""
        check_count("context", seq_len, at_least=0)
        check_count("requests", requests, at_least=0)
        return tuple(
            Term(
                n,
                layers_in_words(layer),
                self.positions(layer, seq_len),
                position,
                state,
                requests,
                self._numbers(layer),
            )
            for layer, n, position, state in self._sizes(1)
        )

    def _numbers(self, layer: LayerSpec) -> str:
        vectors = self.vectors(layer)
        if len(vectors) == 2 and vectors[0].heads == vectors[1].heads:
            key, value = vectors
            if key.width == value.width:
                heads = f"{key.heads} head{'s' if key.heads > 1 else ''}"
                return f"2 (K, V) × {heads} × {self._of_vector(key.width)}"
        return " + ".join(
            f"{v.name} {v.heads} × {self._of_vector(v.width)}"
            if v.heads > 1
            else f"{v.name} {self._of_vector(v.width)}"
            for v in vectors
        )

    def _of_vector(self, width: int) -> str:
        if self.stored.block_values == 1 and not self.stored.scale_bytes:
            size = self.stored.block_bytes
            return f"{width} values × {size} byte{'s' if size > 1 else ''}"
        return f"({width} values in {self.stored.vector_bytes(width)} bytes)"


def layers_in_words(layer: LayerSpec) -> str:
    """`full layers`, `layers with a window of 1,024`: what equal layers are called."""
    if layer.shared:
        return "layers that read another layer's K/V"
    kind = {
        "full": "full layers",
        "window": f"layers with a window of {layer.window or 0:,}",
        "chunk": f"layers with chunks of {layer.window or 0:,}",
        None: "layers",
    }[layer.reach]
    if layer.reach and layer.vectors[0].name == "latent":
        kind = "layers with a latent"
    if layer.state:
        return f"{kind} and a state" if layer.reach else "layers with a state"
    return kind if layer.reach else "layers without attention"


def check_count(name: str, value: object, at_least: int = 1) -> None:
    """Raise ValueError unless value is an integer of at least so much, and below 2^200."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} is {short(value)}; give a whole number of at least {at_least}")
    if value >= MOST:
        raise ValueError(f"{name} is {short(value)}; give a whole number below 2^200")


def _share(heads: int, ranks: int, what: str) -> int:
    """Heads of one rank: an equal share, or one, replicated, where ranks outnumber heads."""
    if heads % ranks == 0:
        return heads // ranks
    if ranks % heads == 0:
        return 1
    near = [n for n in range(1, min(heads, 256) + 1) if heads % n == 0]
    raise ValueError(
        f"{heads} {what} cannot be shared out over {ranks} ranks: neither number divides the "
        f"other; choose --tp {', '.join(map(str, near))} or a multiple of {heads}"
    )


def _choice(name: str, value: object, choices: dict[str, str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
