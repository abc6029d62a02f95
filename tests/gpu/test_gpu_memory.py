"""Memory of a CUDA device: PyTorch's share is respected, and what fails comes free again."""

import pytest
import torch
from builders import random_model

from kvlab import LLM, NotEnoughMemory, SamplingParams
from kvlab.tensors.free_memory import free_nbytes

MIB = 2**20
DEVICE = torch.device("cuda")
WIDE = {"hidden_size": 512, "intermediate_size": 8192, "max_model_len": 8192}
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
LONG = [i % 61 for i in range(6000)]


@pytest.fixture
def share():
    """share(more): from now on this process may take `more` bytes beyond what it uses."""
    total = torch.cuda.mem_get_info()[1]

    def allow(more: int) -> None:
        torch.cuda.empty_cache()
        used = torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction((used + more) / total)

    yield allow
    torch.cuda.set_per_process_memory_fraction(1.0)


def tokens(llm, prompt):
    return llm.generate(prompt, PARAMS)[0].outputs[0].token_ids


def test_a_share_is_what_can_be_taken(share):
    share(256 * MIB)
    free = free_nbytes(DEVICE)
    assert 200 * MIB < free <= 258 * MIB
    held = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    assert free - free_nbytes(DEVICE) == held.nbytes
    del held
    assert free_nbytes(DEVICE) == free  # PyTorch kept it, and gives it out again


def test_a_pool_is_chosen_within_the_share(share):
    model = random_model(1, **WIDE).to(DEVICE)
    whole = LLM(model, device=DEVICE).memory
    share(4 * whole.temporaries)
    block = whole.block.nbytes
    assert (
        LLM(model, device=DEVICE, num_blocks=whole.temporaries // block).memory.why == "asked for"
    )
    with pytest.raises(NotEnoughMemory, match="the K/V pool does not fit on cuda"):
        LLM(model, device=DEVICE, num_blocks=4 * whole.temporaries // block + 64)


def test_a_step_that_runs_out_leaves_an_engine_that_answers(share):
    model = random_model(1, **WIDE).to(DEVICE)
    options = {"device": DEVICE, "num_blocks": 600, "enable_prefix_caching": False}
    llm = LLM(model, max_num_batched_tokens=8192, **options)
    in_parts = LLM(model, max_num_batched_tokens=128, **options)
    want_short, want_long = tokens(llm, [1, 2, 3]), tokens(in_parts, LONG)
    share(128 * MIB)  # gate and up alone are 6,000 x 16,384 x 4 bytes = 375 MiB
    before = torch.cuda.memory_allocated()
    with pytest.raises(NotEnoughMemory, match=r"out of memory in a step that computes 6,000 posi"):
        tokens(llm, LONG)
    assert torch.cuda.memory_allocated() - before < MIB  # while the exception is still there
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 64 * MIB
    assert tokens(llm, [1, 2, 3]) == want_short
    assert tokens(in_parts, LONG) == want_long
    share(4096 * MIB)
    assert len(tokens(llm, LONG)) == 4


def test_an_llm_that_was_not_made_gives_all_back(share):
    model = random_model(1, **WIDE).to(DEVICE)
    before = torch.cuda.memory_allocated()
    share(256 * MIB)
    with pytest.raises(NotEnoughMemory, match="GiB"):
        LLM(model, device=DEVICE, num_blocks=1 << 20, block_size=64)
    assert torch.cuda.memory_allocated() == before
