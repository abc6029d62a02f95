"""How keys and values become what a cache stores, and numbers again: fp8, int8, q4_0.

    bits of one value       what is shared              reads as
    fp8    s eeee mmm       one scale a tensor          code * scale
    int8   8, signed        one scale a vector, fp32    code * scale,        scale = amax / 127
    q4_0   4                one scale a block of 32,    (code - 8) * scale,  scale = extreme / -8
                            fp16; two codes a byte

A vector is the keys (or values) of one head at one position. What is read is computed with in
float32 or whatever the model computes in; only what lies in memory is small. Formats:
core/formats.py counts the same bytes; q4_0 is llama.cpp's (ggml-quants.c, quantize_row_q4_0_ref).
Section 21.5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.core.formats import FORMATS

FP8 = torch.float8_e4m3fn
LARGEST_FP8 = 448.0  # of e4m3fn, which has no infinity
LARGEST_FP16 = 65504.0
SMALLEST = 2.0**-126  # float32's smallest normal number: smaller ones have fewer digits
BLOCK = FORMATS["q4_0"].block_values
PLAIN = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
NAMES = (*PLAIN, "fp8", "int8", "q4_0")  # what a cache can hold
EVERYDAY = {"int4": "q4_0"}


def quantise_fp8(values: Tensor, scale: float = 1.0) -> Tensor:
    """values [...] as e4m3fn [...]: what lies beyond +-448 scales saturates, infinities too.

    A NaN stays one. Torch's own cast may make NaN of what is too large, so it is cut first. A scale
    below 2^-126 counts as 2^-126: float32 may hold it as 0, and 0 / 0 is NaN.
    """
    return (values.float() / max(scale, SMALLEST)).clamp(-LARGEST_FP8, LARGEST_FP8).to(FP8)


def dequantise_fp8(codes: Tensor, scale: float = 1.0) -> Tensor:
    """float32. A value between 2^-6 and 448 scales comes back within 1/16 of itself."""
    return codes.float() * scale


def calibrated_scale(values: Tensor) -> float:
    """The fp8 scale at which the largest of `values` becomes 448. 1.0 where there is nothing, or
    next to nothing: a scale below 2^-126 would lose its digits.

    Raises ValueError where one of them is not finite.
    """
    largest = float(values.float().abs().max()) if values.numel() else 0.0
    if not largest < float("inf"):
        raise ValueError(f"the largest value is {largest}; calibrate with finite keys and values")
    scale = largest / LARGEST_FP8
    return scale if scale >= SMALLEST else 1.0


def quantise_int8(values: Tensor) -> tuple[Tensor, Tensor]:
    """values [..., d] as codes [..., d] from -127 to 127 and scales [...] (float32).

    A vector of zeros has the scale 0 and the codes 0. So has one whose scale would be below 2^-126
    (its largest value below 1.5e-36): rounded so coarsely, it would give codes beyond 127. One that
    holds a NaN or an infinity reads as NaN throughout: its scale is NaN, and its codes are 0.
    """
    values = values.float()
    scale = values.abs().amax(-1) / 127
    scale = torch.where(scale < SMALLEST, 0.0, scale)
    scale = torch.where(scale.isfinite(), scale, torch.nan)
    codes = torch.where((scale > 0)[..., None], values / scale[..., None], 0.0).round()
    return codes.to(torch.int8), scale


def dequantise_int8(codes: Tensor, scale: Tensor) -> Tensor:
    """codes [..., d], scale [...]: float32 [..., d], each within half a scale of what it was, or
    0 for what was next to nothing.
    """
    return codes.float() * scale[..., None]


def quantise_q4_0(values: Tensor) -> tuple[Tensor, Tensor]:
    """values [..., d] as codes [..., d / 2] (uint8) and scales [..., d / 32] (float16).

    The value furthest from 0 gets the code 0, which reads as -8 scales: so the scale's sign is
    the opposite of its own. Byte j of a block holds value j below and value j + 16 above.
    A block whose values lie beyond 8 * 65504 saturates, one within 8 * 2^-25 reads as zeros (fp16
    has no such scale); one that holds a NaN or an infinity reads as NaN throughout. Raises
    ValueError for a width that blocks of 32 do not fill.
    """
    FORMATS["q4_0"].vector_bytes(values.shape[-1])
    blocks = values.float().unflatten(-1, (-1, BLOCK))
    extreme = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scale = (extreme / -8).clamp(-LARGEST_FP16, LARGEST_FP16)
    scale = torch.where(blocks.isfinite().all(-1, keepdim=True), scale, torch.nan)
    codes = torch.where(scale == 0, 8.5, blocks / scale + 8.5).nan_to_num(0.0).clamp(0, 15)
    low, high = codes.to(torch.uint8).chunk(2, dim=-1)  # the fraction is cut off
    return (low | high << 4).flatten(-2), scale[..., 0].half()


def dequantise_q4_0(codes: Tensor, scale: Tensor) -> Tensor:
    """codes [..., d / 2], scale [..., d / 32]: float32 [..., d].

    A value comes back within half a scale; one as far from 0 as the extreme, but on the other
    side, within one scale: 7 scales are the most there. On top of
    that comes what fp16 makes of the scale, times 8 at most: 2^-11 of it where it is above 2^-14,
    but up to 2^-25 below, where fp16 has fewer digits, and that may be more than the scale itself.
    """
    packed = codes.unflatten(-1, (-1, BLOCK // 2))
    numbers = torch.cat((packed & 15, packed >> 4), dim=-1).float() - 8
    return (numbers * scale.float()[..., None]).flatten(-2)


@dataclass(frozen=True)
class CacheFormat:
    """What a cache stores its numbers as. name: that of core/formats.py, or torch's for a plain
    dtype that has none there. dtype: of the stored codes."""

    name: str
    dtype: torch.dtype

    @property
    def is_plain(self) -> bool:
        """Stored as the numbers themselves, rounded to the dtype."""
        return self.name not in ("fp8", "int8", "q4_0")

    @property
    def asked(self) -> torch.dtype | str:
        """What to give to get this format: a dtype where that says all, else the name."""
        return self.dtype if self.is_plain or self.name == "fp8" else self.name

    def shapes(self, width: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Of one vector's codes, and of its scales (None: it has none of its own).

        Raises ValueError where blocks do not fill the vector.
        """
        if self.name == "int8":
            return (width,), ()
        if self.name == "q4_0":
            FORMATS["q4_0"].vector_bytes(width)
            return (width // 2,), (width // BLOCK,)
        return (width,), None

    @property
    def scale_dtype(self) -> torch.dtype:
        return torch.float16 if self.name == "q4_0" else torch.float32

    def vector_bytes(self, width: int) -> int:
        """Bytes of the keys (or values) of one head at one position."""
        if self.name in FORMATS:
            return FORMATS[self.name].vector_bytes(width)
        return width * self.dtype.itemsize

    def encode(self, values: Tensor, scale: float | None) -> tuple[Tensor, Tensor | None]:
        """values [..., d] as codes and each vector's scales. scale: of the whole tensor (fp8)."""
        if self.name == "fp8":
            return quantise_fp8(values, scale), None
        if self.is_plain:
            return values.to(self.dtype), None
        return quantise_int8(values) if self.name == "int8" else quantise_q4_0(values)

    def decode(self, codes: Tensor, scale: Tensor | float | None) -> Tensor:
        """The numbers again, [..., d]: float32, or as they are where the format is plain."""
        if self.is_plain:
            return codes
        numbers = {"fp8": dequantise_fp8, "int8": dequantise_int8, "q4_0": dequantise_q4_0}
        return numbers[self.name](codes, scale)


def cache_format(asked: torch.dtype | str, name: str = "dtype") -> CacheFormat:
    """The format of a name or a torch dtype. Raises ValueError, naming the choices.

    name: of the argument, for the message.
    """
    if isinstance(asked, str) and EVERYDAY.get(asked, asked) in NAMES:
        found = EVERYDAY.get(asked, asked)
        codes = {"fp8": FP8, "int8": torch.int8, "q4_0": torch.uint8}
        return CacheFormat(found, (PLAIN | codes)[found])
    known = {dtype: key for key, dtype in {**PLAIN, "fp8": FP8, "float64": torch.float64}.items()}
    if isinstance(asked, torch.dtype) and asked in known:
        return CacheFormat(known[asked], asked)
    choices = ", ".join((*NAMES, *EVERYDAY))
    raise ValueError(
        f"{name} is {asked!r:.60}; give one of {choices}, or a floating-point torch.dtype: "
        "float64, float32, float16, bfloat16, float8_e4m3fn"
    )


class StoredRows:
    """One layer's keys or values as rows that numbers are written to and read from.

    codes: [rows, vectors, bytes]; scale: [rows, vectors] or [rows, vectors, blocks], a float for
    the whole tensor. It offers those methods of a plain tensor [rows, vectors * width] that a
    cache's slots need: what is copied in is quantised, what is selected is numbers again.
    """

    dtype = torch.float32  # of what goes in and comes out

    def __init__(self, kind: CacheFormat, codes: Tensor, scale: Tensor | float, width: int) -> None:
        """width: numbers a vector. codes and scale are views; nothing is copied."""
        self.kind, self.codes, self.scale, self.width = kind, codes, scale, width
        self.bytes = codes.view(torch.uint8)  # float8 has no operation of every kind

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * self.width

    def view(self, rows: int, width: int) -> "StoredRows":
        """The same memory in longer rows: a block's slots as one."""
        vectors = width // self.width
        codes = self.codes.view(rows, vectors, self.codes.shape[-1])
        scale = self.scale
        if isinstance(scale, Tensor):
            scale = scale.view(rows, vectors, *scale.shape[2:])
        return StoredRows(self.kind, codes, scale, self.width)

    def index_copy_(self, dim: int, index: Tensor, values: Tensor) -> None:
        """Store values [N, vectors * width] at rows `index`."""
        new = values.unflatten(1, (-1, self.width))
        codes, scale = self.kind.encode(new, self.scale if self.kind.name == "fp8" else None)
        self.bytes.index_copy_(dim, index, codes.view(torch.uint8))
        if scale is not None:
            self.scale.index_copy_(dim, index, scale)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The numbers of rows `index`, [N, vectors * width] in float32."""
        codes = self.bytes.index_select(dim, index).view(self.codes.dtype)
        scale = self.scale
        if isinstance(scale, Tensor):
            scale = scale.index_select(dim, index)
        return self.kind.decode(codes, scale).flatten(1)
