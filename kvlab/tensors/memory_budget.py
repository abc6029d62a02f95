"""What an engine's tensors take, held against what is free before any of them is made.

    | weights, there already |  K/V pool  | a step's temporaries |  left  |
                             |<------------- free on the device --------->|

    pool = 2 · L · H_kv · bytes a vector · block_size · num_blocks      (eq 21.2 in whole blocks)

Nobody has to choose `num_blocks`: four full contexts, 512 MiB at most (one block, if that is
more), and at most half of what is free; but one full context wherever that fits. Who asks for a
number may have more than half, and no more than is free. A CPU tier lies in the host's memory.
Sections 21.1 and 21.5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

import torch

from kvlab.core.sizes import in_units
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.free_memory import free_nbytes
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import GATHER_TOGETHER
from kvlab.tensors.out_of_memory import FREE_SOME, NotEnoughMemory
from kvlab.tensors.stored import CacheFormat

DEFAULT_CACHE_BYTES = 512 * 2**20
CONTEXTS = 4
CPU = torch.device("cpu")
BOOKKEEPING = 1024  # bytes of a block in Python's objects, with its identity, when it is cached
MARGIN = 16  # a number that a message gives leaves this part of what is free to others
FEWER_BYTES = f"Give a dtype of fewer bytes (torch.bfloat16 has 2), a smaller model, {FREE_SOME}"


@dataclass(frozen=True)
class Block:
    """What one block of the pool is made of. vector: bytes of the keys (or values) of one head at
    one position, its share of scales included."""

    layers: int
    kv_heads: int
    head_dim: int
    vector: int
    size: int  # positions
    stored: str

    @classmethod
    def of(cls, config: ModelConfig, stored: CacheFormat, block_size: int) -> "Block":
        vector = stored.vector_bytes(config.head_dim)
        sizes = (config.num_layers, config.num_kv_heads, config.head_dim, vector, block_size)
        return cls(*sizes, stored.name)

    @property
    def nbytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.vector * self.size

    def product(self, num_blocks: int) -> str:
        """The chapter's product with its numbers, and what it comes to."""
        return (
            f"2 x {self.layers} layers x {self.kv_heads} KV heads x {self.head_dim} numbers x "
            f"{self.vector / self.head_dim:g} bytes ({self.stored}) x {self.size} positions x "
            f"{counted(num_blocks, 'block')} = {in_units(num_blocks * self.nbytes)}"
        )


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one engine. free: on the device before the pool was made, the weights already
    there; None: the system does not tell. why: what decided `num_blocks`."""

    device: str
    weights: int
    block: Block
    num_blocks: int
    cpu_blocks: int
    temporaries: int
    free: int | None
    why: str

    @property
    def pool(self) -> int:
        return self.num_blocks * self.block.nbytes

    @property
    def tier(self) -> int:
        return self.cpu_blocks * self.block.nbytes

    @property
    def on_host(self) -> bool:
        """Whether the pool lies in the host's memory, as a tier does."""
        return self.device.startswith("cpu")

    def __str__(self) -> str:
        tier = f"; a CPU tier of {in_units(self.tier)}" if self.cpu_blocks else ""
        free = (
            "how much is free is not told" if self.free is None else f"{in_units(self.free)} free"
        )
        return (
            f"{counted(self.num_blocks, 'block')} of {self.block.size}, {in_units(self.pool)}: "
            f"{self.why}{tier}; weights {in_units(self.weights)}; a step's temporaries "
            f"{in_units(self.temporaries)} at most; {free} on {self.device} before the pool"
        )


def counted(number: int, noun: str) -> str:
    """ "1 block", "2 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def step_nbytes(c: ModelConfig, itemsize: int, tokens: int, rows: int, longest: int) -> int:
    """What one step needs for a moment, at most: an allowance, counted on the safe side.

    tokens: positions that it computes; rows: requests that select an output; longest: positions
    of a request. The keys and values of one request, or of a small batch, are gathered in one
    layer at a time, into buffers with room to grow. itemsize: bytes of a number as computed with.
    """
    gathered = c.num_kv_heads * c.head_dim * longest
    gathered = max(gathered, min(gathered * rows, GATHER_TOGETHER))
    heads = c.num_query_heads + 2 * c.num_kv_heads
    widths = 4 * c.hidden_size + 3 * c.intermediate_size + 3 * heads * c.head_dim
    # 2 for keys and values, 2 for room; logits are chosen from in float64
    return (tokens * widths + 2 * 2 * gathered) * itemsize + 8 * rows * c.vocab_size


def chosen_blocks(
    block_nbytes: int, context: int, free: int | None, temporaries: int, most: int
) -> tuple[int, str]:
    """How many blocks the pool has where nobody says, and what decided it.

    context: blocks of one full context. most: blocks that a pool may have. 0 blocks: not one fits.
    """
    cap = DEFAULT_CACHE_BYTES // block_nbytes
    wanted, why = min(
        (CONTEXTS * context, "four full contexts"),
        (cap, "512 MiB at most"),
        (most, "as many blocks as a pool may have"),
        key=itemgetter(0),
    )
    if cap == 0:
        wanted, why = 1, "one block, though that is more than 512 MiB"
    if free is None:
        return wanted, why
    half = free // 2 // block_nbytes
    room = max(free - temporaries, 0) // block_nbytes
    if wanted <= min(half, room):
        return wanted, why
    one = min(context, wanted)
    if half < one <= room:
        return one, "one full context, though that is more than half of what is free"
    return min(half, room), "half of what is free" if half <= room else "what a step leaves free"


def plan(
    block: Block,
    temporaries: Callable[[int], int],
    *,
    device: torch.device,
    weights: int,
    context: int,
    most: int,
    num_blocks: int | None = None,
    cpu_blocks: int = 0,
    free: Callable[[torch.device], int | None] = free_nbytes,
) -> MemoryPlan:
    """Decide on the pool, or refuse what cannot fit. Nothing is allocated.

    temporaries: of a step, as bytes over the number of blocks. num_blocks: what was asked for.
    Raises NotEnoughMemory, with the product and the remedies, where it does not fit.
    """
    here, tier = free(device), cpu_blocks * block.nbytes
    if tier and device.type != "cpu":  # the tier first: nobody has a default one
        _refuse_tier(block, cpu_blocks, free(CPU), 0)
    elif tier:
        least = min(context, most) if num_blocks is None else num_blocks
        _refuse_tier(block, cpu_blocks, here, least * block.nbytes + temporaries(least))
    if device.type == "cpu" and here is not None:
        here -= tier
    if num_blocks is None:
        spare = temporaries(min(CONTEXTS * context, most))
        num_blocks, why = chosen_blocks(block.nbytes, context, here, spare, most)
        if num_blocks == 0:  # a smaller pool bounds a step, too
            num_blocks = _fits(block.nbytes, temporaries, here, CONTEXTS * context)
    else:
        why = "asked for"
    found = MemoryPlan(
        str(device), weights, block, num_blocks, cpu_blocks, temporaries(num_blocks), here, why
    )
    if here is not None and (num_blocks < 1 or found.pool + found.temporaries > here):
        raise NotEnoughMemory(_refusal(found, _advised(found, temporaries)))
    return found


def _advised(found: MemoryPlan, temporaries: Callable[[int], int]) -> int:
    """Fewer blocks, as a message can promise them: bookkeeping counted, and something left over."""
    spare = found.free // MARGIN
    if found.on_host:
        spare += found.cpu_blocks * BOOKKEEPING
    nbytes = found.block.nbytes + BOOKKEEPING
    return _fits(nbytes, temporaries, found.free - spare, found.num_blocks)


def _fits(nbytes: int, temporaries: Callable[[int], int], free: int, too_many: int) -> int:
    """The most blocks that fit beside a step's temporaries. More blocks never need less."""
    low, high = 0, max(too_many - 1, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if middle * nbytes + temporaries(middle) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def _refuse_tier(block: Block, cpu_blocks: int, free: int | None, beside: int) -> None:
    """beside: bytes of a pool, and of a step, that want room in the same memory."""
    if free is None or cpu_blocks * block.nbytes <= free:
        return
    fits = max(free - free // MARGIN - beside, 0) // (block.nbytes + BOOKKEEPING)
    give = f"cpu_blocks={fits:,} at most" if fits else "cpu_blocks=None"
    raise NotEnoughMemory(
        f"cpu_blocks={cpu_blocks:,} does not fit into the host's memory: "
        f"{block.product(cpu_blocks)}, and {in_units(free)} are free. Give {give}, "
        f"a cache_dtype of fewer bytes, {FREE_SOME}"
    )


def _refusal(found: MemoryPlan, fits: int) -> str:
    pool = found.block.product(max(found.num_blocks, 1))
    beside = f"beside a CPU tier of {in_units(found.tier)}, " if found.tier else ""
    give = f"num_blocks={fits:,} at most" if fits else "a smaller max_num_batched_tokens"
    if found.tier and found.on_host:
        give += ", fewer cpu_blocks"
    return (
        f"the K/V pool does not fit on {found.device}: {pool}, and a step's temporaries up to "
        f"{in_units(found.temporaries)}; {beside}with {in_units(found.weights)} of weights already "
        f"there, {in_units(max(found.free, 0))} are free. Give {give}, a cache_dtype of fewer "
        f'bytes ("fp16", "int8", "q4_0"), a smaller max_model_len, {FREE_SOME}'
    )


def refuse_weights(parameters: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raises NotEnoughMemory, before any is read, for weights that are more than what is free."""
    free, nbytes = free_nbytes(device), parameters * dtype.itemsize
    if free is not None and nbytes > free:
        raise NotEnoughMemory(
            f"the weights do not fit on {device}: {parameters:,} parameters x {dtype.itemsize} "
            f"bytes = {in_units(nbytes)}, and {in_units(free)} are free. {FEWER_BYTES}"
        )


def weights_nbytes(model: Decoder) -> int:
    """Of the parameters; tied ones once."""
    return sum(parameter.nbytes for parameter in model.parameters())
