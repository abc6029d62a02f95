"""A program for a process of its own: an engine that runs out of memory for real, and goes on.

`resource` limits what the process may take; torch's allocator then fails as it would on a full
machine. Prints what happened as JSON; test_out_of_memory.py looks at it.
"""

import gc
import json
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from kvlab import LLM, NotEnoughMemory, SamplingParams, tiny
from kvlab.tensors.checkpoint_save import save_model
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.memory_budget import step_nbytes
from kvlab.tensors.model import Decoder

MIB = 2**20
WIDE = ModelConfig(
    vocab_size=960, hidden_size=128, intermediate_size=4096, num_layers=2,
    num_query_heads=4, num_kv_heads=2, head_dim=32, max_model_len=2048,
)  # fmt: skip
LONG, SHORT = [7 * i % 512 for i in range(1500)], [1, 2, 3]
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)


def limit(kind: int, more: int | None) -> None:
    """From now on the process may take `more` bytes; None: as many as there are."""
    lines = Path("/proc/self/status").read_text().splitlines()
    name = "VmSize:" if kind == resource.RLIMIT_AS else "VmData:"
    used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    most = resource.RLIM_INFINITY
    resource.setrlimit(kind, (most if more is None else used + more, most))


def told(work) -> str | None:
    """What `work` said when it ran out; None: it did not."""
    try:
        work()
    except NotEnoughMemory as error:
        return str(error)
    return None


def tokens(llm: LLM, prompt: list[int]) -> list[int]:
    return list(llm.generate(prompt, PARAMS)[0].outputs[0].token_ids)


def steps() -> dict[str, object]:
    """A step whose values are 80 MiB, where 16 can be taken."""
    model = Decoder.random(WIDE)
    options = {"enable_prefix_caching": False, "num_blocks": 128}
    llm = LLM(model, **options)
    in_parts = LLM(model, max_num_batched_tokens=64, **options)
    wanted = {"long": tokens(in_parts, LONG), "short": tokens(llm, SHORT)}
    limit(resource.RLIMIT_AS, 16 * MIB)
    found = {"wanted": wanted, "said": told(lambda: tokens(llm, LONG))}
    found["left"] = len(llm.engine.requests)
    found["short"], found["in_parts"] = tokens(llm, SHORT), tokens(in_parts, LONG)
    (kept,) = llm.engine.add_request(LONG, PARAMS, request_id="kept")
    llm.engine.add_request(LONG[::-1], PARAMS, request_id="ended")
    found["again"] = [told(llm.engine.step) is not None for _ in range(2)]
    llm.engine.scheduler.check_invariants()
    found["waiting"], found["aborted"] = sorted(llm.engine.requests), llm.abort("ended")
    limit(resource.RLIMIT_AS, step_nbytes(WIDE, 4, 1500, 1, 1500))  # what the budget allows a step
    llm.engine.run()
    pool = llm.engine.scheduler.manager.pool
    return found | {"kept": kept.output_token_ids, "free": pool.num_free_blocks}


def decoders() -> int:
    gc.collect()
    return sum(type(one) is Decoder for one in gc.get_objects())


def making() -> dict[str, object]:
    """LLMs that cannot be made: seen before, or, where the budget does not know the limit, late."""
    space, data = resource.RLIMIT_AS, resource.RLIMIT_DATA
    with tempfile.TemporaryDirectory() as folder:
        save_model(Decoder.random(WIDE), folder)  # 12.88 MiB, and twice as much as float64
        shutil.copy(tiny.FOLDER / "tokenizer.json", folder)
        LLM(folder, max_num_batched_tokens=8).generate([SHORT], PARAMS)
        attempts = {
            "weights": (space, 20 * MIB, {"dtype": torch.float64}),
            "pool": (space, 48 * MIB, {"num_blocks": 4096, "max_num_batched_tokens": 8}),
            "weights, late": (data, 8 * MIB, {"dtype": torch.float64}),
            "pool, late": (data, 40 * MIB, {"num_blocks": 4096}),
            "tier, late": (data, 40 * MIB, {"num_blocks": 8, "cpu_blocks": 4096}),
        }
        found = {}
        for name, (kind, more, options) in attempts.items():
            limit(kind, more)
            try:
                LLM(folder, **options)
            except NotEnoughMemory as error:
                found[name] = [str(error), decoders()]  # while the exception is still there
            limit(kind, None)
        limit(space, 64 * MIB)
        small = LLM(folder, max_num_batched_tokens=8)
        found["small"] = [small.memory.num_blocks, small.memory.why, tokens(small, SHORT)]
    return found


def following() -> dict[str, object]:
    """Who gives what the message says gets an engine that answers; blocks of one position."""
    model, found = Decoder.random(WIDE), {}
    options = {"block_size": 1, "max_num_batched_tokens": 64, "max_model_len": 256}
    tokens(LLM(model, num_blocks=64, **options), SHORT)
    for name, others in {"num_blocks": {}, "cpu_blocks": {"num_blocks": 512}}.items():
        limit(resource.RLIMIT_AS, 128 * MIB)
        said = told(
            lambda name=name, others=others: LLM(model, **options, **others, **{name: 10**6})
        )
        number = int(re.search(f"Give {name}=([0-9,]+) at most", said)[1].replace(",", ""))
        llm = LLM(model, **options, **others, **{name: number})
        found[name] = [number, len(tokens(llm, SHORT))]
        del llm
        limit(resource.RLIMIT_AS, None)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    work = {"steps": steps, "making": making, "following": following}[sys.argv[1]]
    print(json.dumps(work()))
