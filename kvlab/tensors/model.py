"""The Llama-family decoder: RMSNorm, rotary positions, grouped query heads, SwiGLU.

Tokens of all requests of a step stand in one flat list of N rows; only attention knows which
rows belong together. It is handed in as `attention`, so the same layers run over a paged cache,
a contiguous one, or none. Section 21.1.
"""

import copy
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvlab.tensors.config import ModelConfig
from kvlab.tensors.linear import linear
from kvlab.tensors.rope import cos_sin, inverse_frequencies, rotate


class Attention(Protocol):
    """Stores a layer's new keys and values, then lets each query read what it may see."""

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        """query [N, num_query_heads, head_dim]; key, value [N, num_kv_heads, head_dim]. window:
        the keys that a query reads at most, its own among them; only layers with a window give
        one. Returns [N, num_query_heads, head_dim]."""
        ...


class Adapted(Protocol):
    """What adapters add to the matrices of a pass (tensors/lora.py has the one that does)."""

    def __call__(self, place: str, x: Tensor, y: Tensor) -> Tensor:
        """place: the matrix, as "layers.0.self_attn.qkv_proj"; x [N, in] its input, y [N, out] its
        output without adapters, which may be changed in place. Returns y with them."""
        ...


class Linear(nn.Linear):
    """Weights are given later, by a checkpoint or `Decoder.random`: nothing is drawn here.

    place: the matrix's name in the model.
    """

    place = ""

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor, adapted: Adapted | None = None) -> Tensor:
        y = linear(x, self.weight, self.bias)
        return y if adapted is None else adapted(self.place, x, y)


class Embedding(nn.Embedding):
    """As `Linear`, its weights are given later."""

    def reset_parameters(self) -> None:
        pass


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + eps).

    Written with the length |x| of the row: sqrt(D) * x / hypot(|x|, sqrt(D * eps)) is the same,
    and takes half the time for the short rows of a decode step.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.scale, self.eps = size**0.5, eps
        self.register_buffer("floor", torch.tensor((size * eps) ** 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:  # squares overflow in half precision; this one is careful
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * (self.weight * self.scale)).div_(torch.hypot(length, self.floor))


class SelfAttention(nn.Module):
    """Projections around the attention that is handed in. qkv_proj is q, k and v in one matrix."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.head_dim = layer, config.head_dim
        window = config.window_of(layer)
        self.reach = {} if window is None else {"window": window}
        self.num_query_heads, self.num_kv_heads = config.num_query_heads, config.num_kv_heads
        heads = config.num_query_heads + 2 * config.num_kv_heads
        self.qkv_proj = Linear(config.hidden_size, heads * config.head_dim, bias=config.qkv_bias)
        self.o_proj = Linear(
            config.num_query_heads * config.head_dim, config.hidden_size, bias=config.o_bias
        )
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> Tensor:
        n, hq, hkv = x.shape[0], self.num_query_heads, self.num_kv_heads
        heads = self.qkv_proj(x, adapted).view(n, hq + 2 * hkv, self.head_dim)  # [N, Hq + 2 Hkv, d]
        query_key, value = heads[:, : hq + hkv], heads[:, hq + hkv :]
        if self.q_norm is not None:
            query_key = torch.cat(
                (self.q_norm(query_key[:, :hq]), self.k_norm(query_key[:, hq:])), dim=1
            )
        query_key = rotate(query_key, cos, sin)
        mixed = attention(self.layer, query_key[:, :hq], query_key[:, hq:], value, **self.reach)
        return self.o_proj(mixed.reshape(n, hq * self.head_dim), adapted)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)). gate_up_proj is gate and up in one matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up_proj = Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Tensor, adapted: Adapted | None) -> Tensor:
        gate, up = self.gate_up_proj(x, adapted).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate).mul_(up), adapted)


class DecoderLayer(nn.Module):
    """x + attention(norm(x)), and to that again its MLP: rows [N, D] in, rows [N, D] out."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attention: Attention, adapted: Adapted | None
    ) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + self.self_attn(normed, cos, sin, attention, adapted=adapted)
        return x + self.mlp(self.post_attention_layernorm(x), adapted)


class Decoder(nn.Module):
    """input_ids, positions -> hidden states -> logits.

    A new instance has no weights yet and refuses to run: `Decoder.random` or
    checkpoint.load_model give one that has.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.has_weights = config, False
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens.weight
        for name, module in self.named_modules():
            if isinstance(module, Linear):
                module.place = name
        inv_freq = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @classmethod
    def random(cls, config: ModelConfig, seed: int = 0) -> "Decoder":
        """A decoder of any shape with seeded weights: for shapes and costs, not for answers."""
        model, generator = cls(config), torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(
                    parameter, std=0.8 * parameter.shape[1] ** -0.5, generator=generator
                )
            elif name.endswith("bias"):
                nn.init.normal_(parameter, std=0.1, generator=generator)
        return model.ready()

    def ready(self) -> "Decoder":
        """For inference alone. On a CPU the matrices are laid out column after column: products
        with few rows, as in a decode step, read them faster that way."""
        if self.device.type == "cpu":
            used_by_rows = () if self.config.tie_word_embeddings else (self.embed_tokens.weight,)
            for parameter in self.parameters():
                if parameter.dim() == 2 and not any(parameter is p for p in used_by_rows):
                    parameter.data = parameter.data.t().contiguous().t()
        self.has_weights = True
        return self.eval().requires_grad_(False)

    def converted(self, dtype: torch.dtype, device: str | torch.device) -> "Decoder":
        """This decoder if it fits, else a copy. Rotary frequencies stay in float32."""
        if self.dtype == dtype and self.device == torch.device(device):
            return self
        model = copy.deepcopy(self).to(device)
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return model

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.weight.dtype

    @property
    def num_parameters(self) -> int:
        """Tied weights are counted once."""
        return sum(p.numel() for p in self.parameters())

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> Tensor:
        """input_ids, positions: [N] integers. Returns hidden states after the last norm, [N, D].

        adapted: where some of the tokens belong to requests with an adapter.
        """
        if not self.has_weights:
            raise ValueError(
                "this Decoder has no weights; use Decoder.random(config) or load_model"
            )
        assert input_ids.shape == positions.shape and input_ids.dim() == 1
        x = self.embed_tokens(input_ids)  # [N, D]
        cos, sin = cos_sin(positions, self.inv_freq, x.dtype)  # [N, 1, d]
        for layer in self.layers:
            x = layer(x, cos, sin, attention, adapted)
        return self.norm(x)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, D] -> logits [R, V]: scores, not probabilities."""
        return self.lm_head(hidden)
