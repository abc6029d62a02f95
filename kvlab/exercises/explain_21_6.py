"""Section 21.6: how far a request has come, from the bytes of its cache."""

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.kinds import Number
from kvlab.exercises.runs_21_6 import config_of

PROMPT, PAYLOAD = 12, 34_816


def bytes_of_a_position() -> int:
    """Of the model below: keys and values of all layers and KV heads, in float32."""
    from kvlab.tensors.kv_cache import PagedCache

    return PagedCache(config_of(2, 4, 4, 32), num_blocks=1, block_size=1).bytes_per_position


def outputs_when_the_cache_holds(payload: int = PAYLOAD) -> int:
    """Serve one request, step by step, until so many bytes are stored; outputs selected by then."""
    from kvlab import LLM, Decoder, SamplingParams

    llm = LLM(Decoder.random(config_of(2, 4, 4, 32)), block_size=4, num_blocks=16)
    settings = SamplingParams(max_tokens=20, ignore_eos=True)
    (request,) = llm.engine.add_request([1 + t % 7 for t in range(PROMPT)], settings)
    while request.num_computed_tokens * llm.cache.bytes_per_position < payload:
        llm.engine.step()
    found = len(request.output_token_ids)
    llm.abort(request.request_id)
    return found


def positions() -> int:
    return PAYLOAD // bytes_of_a_position()


HOW_FAR = Exercise(
    id="21.6-7",
    question=(
        "Explain a measured number. Of a request with a prompt of 12 tokens a monitor shows "
        "34,816 bytes of payload, between two passes. A position takes 2,048. How many outputs "
        "have been selected so far?"
    ),
    kind=Number("outputs"),
    run=outputs_when_the_cache_holds,
    hints=(
        "The bytes say how many positions have been processed. Which of them are outputs, and "
        "which output is not among them?",
        "Take the prompt's positions off. What is left are outputs that a pass has read; one more "
        "has been selected after the last pass.",
        "34,816 / 2,048 are 17 positions, 12 of the prompt. Five outputs have been read.",
    ),
    mistakes=(
        Mistake(
            "That many outputs have been processed. The last pass has selected one more, which "
            "nobody has read.",
            lambda: positions() - PROMPT,
        ),
        Mistake("Those are the positions. The prompt's are among them.", positions),
        Mistake(
            "That counts the next one, too. It is selected after the next pass.",
            lambda: positions() - PROMPT + 2,
        ),
        Mistake(
            "A position holds keys and values: the 2,048 bytes are both, and nothing is to be "
            "doubled.",
            lambda: 2 * positions() - PROMPT + 1,
        ),
    ),
    why="The payload counts what was processed, and the text is one output ahead of it.",
)
