"""The limits a scheduler works within, and what can never run within them."""

from dataclasses import dataclass

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import Request


@dataclass(frozen=True)
class SchedulerConfig:
    """max_num_batched_tokens: positions a step may compute; max_num_seqs: requests running at once.

    enable_chunked_prefill: a prompt may be spread over steps. max_model_len: longest sequence.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    enable_chunked_prefill: bool = True
    max_model_len: int = 1 << 20

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"SchedulerConfig: {name} is {value!r}; give an integer of at least 1"
                )

        if not isinstance(self.enable_chunked_prefill, bool):
            value = self.enable_chunked_prefill
            raise ValueError(f"SchedulerConfig: enable_chunked_prefill is {value!r}; give a bool")

    def check_can_run(self, request: Request, count: int, num_blocks: int, block_size: int) -> None:
        """Refuse a prompt (with `count` continuations) that no schedule could ever run.

        Raises ValueError naming both numbers.
        """
        prompt, blocks = request.num_prompt_tokens, cdiv(request.num_prompt_tokens, block_size)
        who = f"request {request.request_id!r}"
        if prompt >= self.max_model_len:
            raise ValueError(
                f"{who}: the prompt has {prompt} tokens and the longest sequence is "
                f"{self.max_model_len}; shorten it to {self.max_model_len - 1} or "
                "fewer, so that one output fits"
            )
        if blocks > num_blocks:
            raise ValueError(
                f"{who}: the prompt needs {blocks} blocks of {block_size} "
                f"tokens and the whole pool has {num_blocks}; shorten it or give more blocks"
            )
        if not self.enable_chunked_prefill and prompt > self.max_num_batched_tokens:
            raise ValueError(
                f"{who}: the prompt has {prompt} tokens and a step computes at most "
                f"{self.max_num_batched_tokens}; turn chunked prefill on or raise "
                "max_num_batched_tokens"
            )
        if count > self.max_num_seqs:
            raise ValueError(
                f"{who}: n is {count} and at most {self.max_num_seqs} requests run at "
                "once; lower n or raise max_num_seqs"
            )
