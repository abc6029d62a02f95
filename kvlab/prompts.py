"""What a caller may give as prompts and parameters, made into lists of equal length."""

from collections.abc import Sequence

from kvlab.core.request import SamplingParams
from kvlab.tensors.tokenizer import Tokenizer

Prompt = str | Sequence[int]


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, list | tuple | range):
        raise ValueError(f"prompts is {prompts!r}; give a text, token ids, or a list of either")
    several = all(isinstance(p, str | list | tuple | range) for p in prompts)
    return list(prompts) if several else [prompts]


def one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, list | tuple):
        raise ValueError(f"sampling_params is {params!r}; give a SamplingParams or a list of them")
    if len(params) != count:
        raise ValueError(
            f"{count} prompts and {len(params)} sampling_params; give one for all or one each"
        )
    return list(params)


def token_ids(prompt: Prompt, tokenizer: Tokenizer | None, vocab_size: int) -> list[int]:
    """A prompt as token ids, checked against the vocabulary. Raises ValueError for a bad one."""
    if isinstance(prompt, str):
        if tokenizer is None:
            raise ValueError(
                "a model given as a Decoder has no tokenizer; give token ids instead of text"
            )
        ids = tokenizer.encode(prompt)
    elif isinstance(prompt, list | tuple | range):
        ids = list(prompt)
    else:
        raise ValueError(f"prompt is {prompt!r}; give a text, or a list of token ids")
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab_size:
            raise ValueError(
                f"prompt token {token!r} is not an id of this vocabulary (0 to {vocab_size - 1})"
            )
    return ids
