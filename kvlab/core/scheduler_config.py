"""The limits and policies a scheduler works with, and what can never run within them.

Section 21.3.
"""

from dataclasses import dataclass

from kvlab.core.checked import shown
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import Request
from kvlab.core.windows import SlidingWindow

CHOICES = {
    "policy": ("mixed", "static", "continuous", "alternating"),
    "order": ("fcfs", "priority"),
    "admission": ("current", "reserved"),
    "preempt_by": ("recompute", "offload"),
}
LEAST = {  # of each integer; None stands beside it where the default is None
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_model_len": 1,
    "prefill_chunk": 1,
    "max_bypass": 0,
    "max_decode_gap": 2,
    "max_prefill_gap": 2,
    "priority_ageing": 1,
}


@dataclass(frozen=True)
class SchedulerConfig:
    """max_num_batched_tokens: positions a step may compute; max_num_seqs: requests running at once.

    enable_chunked_prefill: a prompt may be spread over steps. max_model_len: longest sequence.
    policy: how steps are shared between prompts and decodes (core/policies.py): "mixed", "static",
    "continuous" (computes prompts whole) or "alternating".
    prefill_chunk: positions of one prompt in a step at most; None: as many as the budget has.
    order: "fcfs", or "priority" (a request's, the lower first). priority_ageing: steps of waiting
    that weigh as much as one level of priority; None: waiting never counts, and some may starve.
    max_bypass: how often a waiting request that does not fit may be overtaken by later ones that
    do; 0: nobody passes the head of the queue.
    admission: what a newcomer must find free, the blocks of its first chunk ("current"), or all
    that it and the running requests can grow to ("reserved"). watermark: share of the pool's
    blocks that an admission leaves free; neither binds while nothing runs (core/admission.py).
    preempt_by: a preempted request's K/V are computed again ("recompute") or kept in a CPU tier
    ("offload"). max_decode_gap, max_prefill_gap: the longest wait in steps (core/policies.py).
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    enable_chunked_prefill: bool = True
    max_model_len: int = 1 << 20
    policy: str = "mixed"
    prefill_chunk: int | None = None
    order: str = "fcfs"
    priority_ageing: int | None = 64
    max_bypass: int = 0
    admission: str = "current"
    watermark: float = 0.0
    preempt_by: str = "recompute"
    max_decode_gap: int = 8
    max_prefill_gap: int = 8

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value, maybe = getattr(self, name), name in ("prefill_chunk", "priority_ageing")
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not whole and not (maybe and value is None):
                wanted = f"an integer of at least {least}{', or None' if maybe else ''}"
                raise ValueError(f"SchedulerConfig: {name} is {shown(value)}; give {wanted}")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                wanted = " or ".join(repr(choice) for choice in allowed)
                raise ValueError(f"SchedulerConfig: {name} is {shown(value)}; give {wanted}")
        if not isinstance(self.enable_chunked_prefill, bool):
            value = shown(self.enable_chunked_prefill)
            raise ValueError(f"SchedulerConfig: enable_chunked_prefill is {value}; give a bool")
        share = self.watermark
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise ValueError(
                f"SchedulerConfig: watermark is {shown(share)}; give a share of the pool, from 0 "
                "to below 1"
            )
        if self.prefill_chunk is not None and not self.splits_prompts:
            raise ValueError(
                f"SchedulerConfig: prefill_chunk is {self.prefill_chunk} and {self._whole}, so "
                "prompts are computed whole; leave it None, or use policy 'alternating' or "
                "'mixed' with chunked prefill on"
            )

    @property
    def splits_prompts(self) -> bool:
        """Whether a prompt may be spread over steps."""
        return self.enable_chunked_prefill and self.policy != "continuous"

    @property
    def _whole(self) -> str:
        """Why it may not."""
        if not self.enable_chunked_prefill:
            return "enable_chunked_prefill is False"
        return f"the policy is {self.policy!r}"

    def check_can_run(
        self,
        request: Request,
        count: int,
        num_blocks: int,
        block_size: int,
        window: SlidingWindow | None = None,
    ) -> None:
        """Refuse a prompt (with `count` continuations) that no schedule could ever run.

        window: behind it blocks come free, so a prompt in parts may be longer than the pool.
        Raises ValueError naming both numbers.
        """
        prompt, blocks = request.num_prompt_tokens, cdiv(request.num_prompt_tokens, block_size)
        if window is not None and self.splits_prompts:
            blocks = window.most_blocks(prompt)
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
        if not self.splits_prompts and prompt > self.max_num_batched_tokens:
            remedies = [] if self.enable_chunked_prefill else ["turn chunked prefill on"]
            if self.policy == "continuous":
                remedies.append("use another policy than 'continuous'")
            raise ValueError(
                f"{who}: the prompt has {prompt} tokens and a step computes at most "
                f"{self.max_num_batched_tokens}; {' and '.join(remedies)} or raise "
                "max_num_batched_tokens"
            )
        if count > self.max_num_seqs:
            raise ValueError(
                f"{who}: n is {count} and at most {self.max_num_seqs} requests run at "
                "once; lower n or raise max_num_seqs"
            )
