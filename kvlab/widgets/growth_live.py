"""A live editor over a real run: type notes and a question, and watch the cache of that request."""

from kvlab import tiny
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.widgets.controls import Slider, TextArea
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.growth_story import growth_payload

NOTES = "Ada likes soup. The key is red."
QUESTION = "What colour is the key?"
MOST_TOKENS = 32


def growth_editor(
    llm: LLM, notes: str = NOTES, question: str = QUESTION, max_tokens: int = 8
) -> LiveEditor:
    """Notes, question and max_tokens on one side, answer and cache growth on the other.

    Each update is a run of its own with an empty cache, so the same inputs always give the same
    picture; the blocks of `llm` are left alone.
    """

    drawn = range(min(llm.model.config.num_layers, 2))  # leaves room for the controls

    def compute(notes: str, question: str, max_tokens: int) -> dict:
        prompt = tiny.prompt(notes, question)
        fresh = beside(llm)
        fresh.start_trace()
        (output,) = fresh.generate(prompt, SamplingParams(max_tokens=max_tokens))
        (answer,) = output.outputs
        lines = [["Answer", answer.text.strip() or "(no text)", "answer"]]
        if output.notice:
            lines.append(["Please note", output.notice, "notice"])
        return {"lines": lines, "view": growth_payload(fresh.stop_trace(), layers=drawn)}

    controls = [
        TextArea("notes", "Notes", notes),
        TextArea("question", "Question", question, rows=1),
        Slider("max_tokens", "Most outputs", max_tokens, 1, MOST_TOKENS),
    ]
    return LiveEditor(compute, controls, "Grow a cache")


def beside(llm: LLM) -> LLM:
    """Another engine over the same weights, with a cache of its own for one request."""
    size, length = llm.cache.block_size, llm.model.config.max_model_len
    fresh = LLM(
        llm.model,
        block_size=size,
        num_blocks=cdiv(length, size),
        dtype=llm.model.dtype,
        cache_dtype=llm.cache.dtype,
        device=llm.device,
    )
    fresh.name, fresh.tokenizer = llm.name, llm.tokenizer
    return fresh
