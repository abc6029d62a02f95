"""One process whose peak memory is read at its end: `python -m kvlab.measure.memory_subject NAME`.

NAME: "torch" imports torch and no more; "kvlab" and "plain loop" continue 16 prompts of 64 tokens
with the tiny model. Prints one line of JSON: bytes, or a string that says why there are none.
"""

import json
import sys

BATCH, PROMPT = 16, 64


def main(subject: str, new_tokens: int) -> None:
    try:
        import resource
    except ImportError:
        print(json.dumps("this system does not report it"))
        return
    try:
        _work(subject, new_tokens)
    except ImportError as error:
        print(json.dumps(f"{error.name} is not installed"))
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(peak if sys.platform == "darwin" else peak * 1024))


def _work(subject: str, new_tokens: int) -> None:
    import torch

    torch.set_num_threads(1)
    if subject == "torch":
        return
    from kvlab.measure import competitors, subjects

    model = subjects.tiny_model()
    prompts = subjects.random_prompts(BATCH, PROMPT, 900, seed=1)
    if subject == competitors.KVLAB:
        competitors.kvlab_engine(model.folder)(prompts, new_tokens)
    else:
        loaded = competitors.load_transformers(model.folder)
        competitors.plain_loop(loaded, prompts, new_tokens)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
