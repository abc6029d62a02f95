"""What the tiny model can do, and what becomes of its answer when the fact's blocks are damaged.

    python -m kvlab.tiny.evaluate --cases 100

`evaluate` counts right answers through the real engine. The `answer_...` functions compute a
prompt up to its question, change the cache, and let the model answer: a lost or wrong block then
shows in the words it says (section 21.5).
"""

import argparse
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.outputs import CompletionOutput
from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache
from kvlab.tiny.corpus import Case, cases, other_request

MAX_TOKENS = 24  # the longest right answer has 8
FACTS = (1, 2, 4, 8)
DISTANCES = (100, 300, 700)


@dataclass(frozen=True)
class Score:
    """Cases of one setting and how many got the whole answer, its end included."""

    setting: str
    num_cases: int
    num_right: int
    mean_prompt_tokens: float


@dataclass(frozen=True)
class BlockScore:
    """What was done to which blocks. num_other: answers that were the other request's."""

    done: str
    num_cases: int
    num_right: int
    num_other: int


# ---- right answers


def evaluate(llm: LLM | None = None, count: int = 100, seed: int = 1) -> list[Score]:
    """Greedy answers to `count` cases of each setting: numbers of facts, then distances."""
    llm = llm or LLM("tiny")
    settings = {f"{n} fact{'s' if n > 1 else ''}": cases(count, n, seed) for n in FACTS}
    for gap in DISTANCES:
        settings[f"6 facts, then {gap} tokens of stories"] = cases(count, 6, seed, gap)
    return [_score(llm, setting, asked) for setting, asked in settings.items()]


def _score(llm: LLM, setting: str, asked: Sequence[Case]) -> Score:
    params = SamplingParams(max_tokens=MAX_TOKENS)
    outputs = llm.generate([case.prompt for case in asked], params)
    right = sum(is_right(o.outputs[0], case) for o, case in zip(outputs, asked, strict=True))
    tokens = sum(len(o.prompt_token_ids) for o in outputs)
    return Score(setting, len(asked), right, tokens / max(len(asked), 1))


def is_right(output: CompletionOutput, case: Case) -> bool:
    """Whether it says the answer's words and ends there."""
    return output.finish_reason == "stop" and output.text.strip() == case.answer


def answer(llm: LLM, case: Case) -> str:
    """The undisturbed answer."""
    (output,) = llm.generate(case.prompt, SamplingParams(max_tokens=MAX_TOKENS))
    return output.outputs[0].text.strip()


# ---- where a fact lies


def context_length(llm: LLM, case: Case) -> int:
    """Positions of a prompt before its question: what is computed before anything is damaged."""
    return _places(llm, case, case.question)[-1].start


def fact_positions(llm: LLM, case: Case) -> range:
    """Positions of the sentence that holds the answer."""
    return _places(llm, case, case.statement)[0]


def _places(llm: LLM, case: Case, sentence: str) -> list[range]:
    ids, part = llm.encode(case.prompt), llm.encode(sentence)
    n = len(part)
    found = [range(i, i + n) for i in range(len(ids) - n + 1) if ids[i : i + n] == part]
    if not found:
        raise ValueError(f"{sentence!r} does not stand in the prompt {case.prompt!r}")
    return found


def fact_blocks(llm: LLM, case: Case) -> list[int]:
    """Logical blocks that hold any of these positions.

    The whole sentence counts, not the value's word alone: the positions after it have read the
    value too, and the full stop is enough for a right answer.
    """
    return sorted({position // llm.cache.block_size for position in fact_positions(llm, case)})


def unrelated_block(llm: LLM, case: Case) -> int:
    """A full logical block in the middle of what neither holds the fact nor begins the prompt."""
    full = range(1, context_length(llm, case) // llm.cache.block_size)
    others = [block for block in full if block not in fact_blocks(llm, case)]
    return others[len(others) // 2]


# ---- damage


@torch.inference_mode()
def answer_without_block(llm: LLM, case: Case, blocks: Collection[int] | None = None) -> str:
    """The answer when attention cannot see some logical blocks; None: the fact's.

    Taken away properly: over a `ContiguousCache` these positions are masked, so their weight is
    zero and all others keep their places. The model is the one that the engine runs.
    """
    ids, length = llm.encode(case.prompt), context_length(llm, case)
    blocks = fact_blocks(llm, case) if blocks is None else blocks
    size, config = llm.cache.block_size, llm.model.config
    cache = ContiguousCache(config, 1, llm.cache.dtype, llm.device)
    _process(llm, cache, ids[:length])
    hidden = [t for t in range(length) if t // size in blocks]
    cache.valid[:, hidden] = False
    output: list[int] = []
    pending = ids[length:]
    while len(output) < MAX_TOKENS:
        token = int(_process(llm, cache, pending).argmax())
        if token in config.eos_token_ids:
            break
        output.append(token)
        pending = [token]
    return llm.tokenizer.decode(output).strip()


def _process(llm: LLM, cache: ContiguousCache, token_ids: list[int]) -> Tensor:
    """Append these tokens' K/V to the cache. Returns the logits of the last one, [V]."""
    start, count = cache.width, len(token_ids)
    cache.valid = torch.cat((cache.valid, cache.valid.new_ones(1, count)), dim=1)
    positions = torch.arange(start, start + count, device=llm.device)
    input_ids = torch.tensor(token_ids, device=llm.device)
    hidden = llm.model(input_ids, positions, ContiguousAttention(cache, count))
    return llm.model.compute_logits(hidden[-1])


def answer_with_zeroed_block(llm: LLM, case: Case, blocks: Collection[int] | None = None) -> str:
    """The answer when some logical blocks of the paged cache are overwritten with zeros.

    Lost, yet still read. A key of zeros scores 0, and exp(0) = 1 is a share of the softmax like
    any other: the query spends weight on values of zero, and what it reads from the other
    positions shrinks. Taking the positions away (`answer_without_block`) does not do that.
    """
    blocks = fact_blocks(llm, case) if blocks is None else blocks

    def overwrite(table: list[int]) -> None:
        for cache in (llm.cache.key_cache, llm.cache.value_cache):
            cache[:, [table[block] for block in blocks]] = 0

    return _answer_after(llm, case, overwrite)


def answer_with_other_block(llm: LLM, case: Case, other: Case | None = None) -> str:
    """The answer when the fact's blocks hold the K/V that another request computed.

    What a wrong entry in a block table does: here the K/V are copied into the request's own
    slots instead. other: a prompt with the fact at the same positions; None: `other_request`.
    """
    other = other_request(case) if other is None else other
    blocks = fact_blocks(llm, case)
    theirs = fact_blocks(llm, other)
    if theirs != blocks:
        raise ValueError(f"this fact lies in blocks {blocks}, the other request's in {theirs}")
    caches = (llm.cache.key_cache, llm.cache.value_cache)
    taken: list[Tensor] = []

    def take(table: list[int]) -> None:
        taken.extend(cache[:, [table[block] for block in blocks]].clone() for cache in caches)

    def give(table: list[int]) -> None:
        for cache, foreign in zip(caches, taken, strict=True):
            cache[:, [table[block] for block in blocks]] = foreign

    _answer_after(llm, other, take)
    return _answer_after(llm, case, give)


def _answer_after(llm: LLM, case: Case, change: Callable[[list[int]], None]) -> str:
    """The engine's answer, with `change(block_table)` between the notes and the question.

    The first step's budget is exactly the context, so the prompt is computed in two chunks. The
    request has a salt of its own: no later request can find the changed blocks in the prefix
    cache. Raises RuntimeError while the engine has other requests, whose steps would differ.
    """
    engine, scheduler = llm.engine, llm.engine.scheduler
    if engine.has_unfinished_requests():
        raise RuntimeError("the engine has unfinished requests; let them end or abort them first")
    params, salt = SamplingParams(max_tokens=MAX_TOKENS), f"changed at step {scheduler.step_index}"
    (request,) = engine.add_request(llm.encode(case.prompt), params, cache_salt=salt)
    config = scheduler.config
    first = replace(config, max_num_batched_tokens=context_length(llm, case))
    try:
        scheduler.config = replace(first, enable_chunked_prefill=True)
        engine.step()
        scheduler.config = config
        change(scheduler.manager.block_table(request.request_id))
        engine.run()
    finally:
        scheduler.config = config
        engine.abort(request.request_id)
    return llm.tokenizer.decode(request.output_token_ids).strip()


def evaluate_blocks(llm: LLM | None = None, count: int = 40, seed: int = 6) -> list[BlockScore]:
    """Six facts, the question in its own turn: answers after each kind of damage."""
    llm = llm or LLM("tiny")

    def without_another(llm: LLM, case: Case) -> str:
        return answer_without_block(llm, case, [unrelated_block(llm, case)])

    kinds: dict[str, Callable[[LLM, Case], str]] = {
        "nothing": answer,
        "another block masked": without_another,
        "the fact's blocks masked": answer_without_block,
        "the fact's blocks zeroed": answer_with_zeroed_block,
        "the fact's blocks exchanged": answer_with_other_block,
    }
    asked = cases(count, 6, seed, in_question=0)
    scores = []
    for done, ask in kinds.items():
        answers = [(ask(llm, case), case) for case in asked]
        right = sum(said == case.answer for said, case in answers)
        other = sum(said == other_request(case).answer for said, case in answers)
        scores.append(BlockScore(done, count, right, other))
    return scores


# ---- the table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.tiny.evaluate", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--cases", type=int, default=100, help="cases of each setting (default 100)"
    )
    count = parser.parse_args().cases
    if count < 1:
        parser.error(f"--cases is {count}; give at least 1")
    llm = LLM("tiny")
    print(f"{'notes and distance':36}{'cases':>6}{'right':>7}{'tokens':>8}")
    for s in evaluate(llm, count):
        print(f"{s.setting:36}{s.num_cases:6}{s.num_right:7}{s.mean_prompt_tokens:8.0f}")
    print(
        f"\n{f'6 facts, blocks of {llm.cache.block_size}':36}{'cases':>6}{'right':>7}{'other':>8}"
    )
    for b in evaluate_blocks(llm, count):
        print(f"{b.done:36}{b.num_cases:6}{b.num_right:7}{b.num_other:8}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # these tensors are too small to share between threads
    main()
