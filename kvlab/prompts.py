"""What a caller may give as prompts and parameters, made into lists of equal length."""

from collections.abc import Sequence

from kvlab.core.request import SamplingParams

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
