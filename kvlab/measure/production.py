"""One workload on several engines: requests whose prompts share a prefix of many blocks.

    print(production_table(production_rows()))
    production_rows("http://127.0.0.1:8000")  # and on a server of yours, of any engine

The first request arrives alone, the others together when it is done. What an engine kept of the
first it need not compute for them. kvlab and transformers run here; vLLM, SGLang, TensorRT-LLM,
llama.cpp and others are asked over OpenAI's API. Section 21.5, claim 21.5-i.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab import tiny
from kvlab.core.checked import whole
from kvlab.measure import production_engines as engines
from kvlab.measure.production_engines import Ran
from kvlab.measure.report import aligned
from kvlab.tiny import corpus

URL_VARIABLE = "KVLAB_ENGINE_URL"
KVLAB, GENERATE, BATCHING = "kvlab", "transformers, generate", "transformers, generate_batch"
MODELS = ("tiny", "smollm2")


@dataclass(frozen=True)
class SharedWorkload:
    """Prompts as texts: the first is sent alone, the rest together. max_tokens: outputs of each."""

    prompts: tuple[str, ...]
    max_tokens: int


@dataclass(frozen=True)
class ProductionRow:
    """What one engine did. ran is None where it could not run; note says why, or what to mind.

    equal: requests whose answer is kvlab's, None where the engine may have another model.
    """

    engine: str
    ran: Ran | None
    note: str = ""
    equal: int | None = None


def shared_workload(
    num_requests: int = 12, max_tokens: int = 24, num_stories: int = 5, seed: int = 25
) -> SharedWorkload:
    """Requests of equal length that share their notes: 12 facts and stories, a few hundred tokens.

    Raises ValueError for fewer than 2 requests, and for more than there are names.
    """
    whole("num_requests", num_requests, 2, len(corpus.NAMES))
    whole("max_tokens", max_tokens, 1)
    whole("num_stories", num_stories, 0, 8)  # the tiny model has 1,024 positions
    rng = random.Random(seed)
    told = [fact.statement for fact in corpus.facts(rng, 12)]
    told += [sentence for _ in range(num_stories) for sentence in corpus.story(rng)]
    notes, heroes = " ".join(told), rng.sample(corpus.NAMES, num_requests)
    asked = [f"Tell me a story about {hero} and a {_thing(rng)}." for hero in heroes]
    return SharedWorkload(tuple(tiny.prompt(notes, text) for text in asked), max_tokens)


def _thing(rng: random.Random) -> str:
    return " ".join(rng.choice(corpus.STORY_SLOTS[slot]) for slot in ("colour", "thing"))


def production_rows(
    url: str | None = None,
    *,
    model: str = "tiny",
    workload: SharedWorkload | None = None,
    block_size: int = 16,
    **load_options: object,
) -> list[ProductionRow]:
    """The workload on kvlab, on transformers by `generate` and by continuous batching, and on url.

    url: of a server with OpenAI's API; None takes the environment's KVLAB_ENGINE_URL, "" takes
    none. model: "tiny" or "smollm2", for the engines that run here; a server has its own.
    block_size: of kvlab's blocks and transformers' pages. load_options: what `measure.load.load`
    takes besides (api, model's name as served_model, api_key, timeout).

    An engine that is missing, or a server that does not answer, has a row that says so; the others
    are measured all the same. Raises ValueError for another model.
    """
    if model not in MODELS:
        raise ValueError(f"model is {model!r:.60}; give one of {', '.join(MODELS)}")
    chosen = shared_workload() if workload is None else workload
    url = os.environ.get(URL_VARIABLE, "") if url is None else url
    llm = engines.kvlab_engine(model, block_size)
    ids = tuple(tuple(llm.encode(prompt)) for prompt in chosen.prompts)
    found = [ProductionRow(KVLAB, engines.on_kvlab(llm, ids, chosen))]
    try:
        theirs = engines.transformers_model(model)
    except ImportError as error:
        missing = f"{error.name or 'transformers'} is not installed: pip install kvlab[models]"
        found += [ProductionRow(name, None, missing) for name in (GENERATE, BATCHING)]
    else:
        found.append(ProductionRow(GENERATE, engines.on_generate(theirs, ids, chosen)))
        found.append(ProductionRow(BATCHING, engines.on_batching(theirs, ids, chosen, block_size)))
    if url:
        found.append(_served(url, chosen, load_options))
    return [found[0], *(_compared(row, found[0].ran) for row in found[1:])]


def _served(url: str, workload: SharedWorkload, options: dict[str, object]) -> ProductionRow:
    """A server's row. What goes wrong on the way is its note."""
    try:
        name, ran, note = engines.on_server(url, workload, **options)
        return ProductionRow(name, ran, note)
    except (ValueError, ConnectionError) as error:
        return ProductionRow(f"server {url:.60}", None, str(error))


def _compared(row: ProductionRow, ours: Ran) -> ProductionRow:
    """With the count of equal answers, unless another model may have given them."""
    if row.ran is None:
        return row
    by_ids = row.ran.token_ids is not None
    pairs = zip(*((r.token_ids if by_ids else r.texts) for r in (row.ran, ours)), strict=True)
    equal = sum(one == other for one, other in pairs)
    return ProductionRow(row.engine, row.ran, row.note, equal if by_ids or equal else None)


def production_table(rows: Sequence[ProductionRow]) -> str:
    """The rows as aligned text; notes below it.

    prompts: tokens of all prompts. found: of these, in the engine's cache. processed: positions
    that went through its model, counted at its embedding (padding is among them); both are empty
    where nobody tells. as kvlab: answers that are kvlab's, token by token.
    """
    table = [["engine", "prompts", "found", "processed", "outputs", "outputs/s", "as kvlab"]]
    for row in rows:
        table.append([row.engine, *_figures(row)])
    notes = [f"  {row.engine}: {row.note}" for row in rows if row.note]
    return "\n".join([aligned(table), *notes])


def _figures(row: ProductionRow) -> list[str]:
    ran, told = row.ran, _or_empty("{:,}".format)
    if ran is None:
        return ["did not run", *[""] * 5]
    counts = [told(n) for n in (ran.num_prompt_tokens, ran.num_found, ran.num_processed)]
    rate = ran.num_output_tokens / ran.seconds
    same = "" if row.equal is None else f"{row.equal} of {len(ran.token_ids or ran.texts)}"
    return [*counts, f"{ran.num_output_tokens:,}", f"{rate:,.0f}", same]


def _or_empty(shown: Callable[[int], str]) -> Callable[[int | None], str]:
    return lambda value: "" if value is None else shown(value)
