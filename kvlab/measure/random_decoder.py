"""A decoder of 50 million random weights: for costs, not for answers (section 21.2).

Large enough that its weights exceed a processor's cache, small enough for any laptop:

    a layer    q and o 1024 x 1024, k and v 512 x 1024, three matrices of 3072 x 1024   12,582,912
    3 layers                                                                            37,748,736
    embedding  12,288 x 1024, tied to the head                                          12,582,912
    7 norms of 1024                                                                          7,168

Wide rather than deep: a wide matrix is read nearer the copy rate than a narrow one, and each
layer brings some forty calls, however small. The same weights as 7 layers of 768 decode slower.
"""

import torch

from kvlab.measure import devices
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.tensors.weight_counts import num_parameters

CONFIG_50M = ModelConfig(
    vocab_size=12288,
    hidden_size=1024,
    intermediate_size=3072,
    num_layers=3,
    num_query_heads=16,
    num_kv_heads=8,
    head_dim=64,
    max_model_len=4096,
    tie_word_embeddings=True,
)


def random_50m(
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
    seed: int = 0,
) -> Decoder:
    """The decoder of 50,338,816 parameters. Equal seeds give equal weights.

    dtype, device None: what suits the device, the fastest device. Raises ValueError for what is
    not here, see `devices`.
    """
    return random_decoder(CONFIG_50M, dtype, device, seed)


def random_decoder(
    config: ModelConfig,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
    seed: int = 0,
) -> Decoder:
    """A decoder of any shape. Raises ValueError, before it allocates, if memory is too small."""
    place = devices.checked_device(device)
    kind = devices.checked_dtype(dtype, place)
    count = num_parameters(config)
    remedy = "give a smaller configuration"
    what = f"a decoder of {count:,} parameters"
    devices.refuse_too_large(2 * 4 * count, torch.device("cpu"), f"drawing {what}", remedy)
    devices.refuse_too_large(count * kind.itemsize, place, what, remedy)
    return Decoder.random(config, seed).converted(kind, place)
