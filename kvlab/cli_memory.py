"""`kvlab memory`: what a model's cache takes, with the reason for each figure."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from kvlab.core import budget as fit
from kvlab.core import presets
from kvlab.core.formats import stored_format
from kvlab.core.reasons import length_notices, pool_notices, rank_notices, reasons
from kvlab.core.sizes import both_units, gb, gib, parse_size
from kvlab.core.spec import KVCacheSpec
from kvlab.core.spec_read import short
from kvlab.core.storage import MLA_FORMS, POLICIES, Storage, check_count


@dataclass(frozen=True)
class Asked:
    """The command's choices, as given. Sizes are bytes; None: not asked for."""

    context: int | None = None
    requests: int = 1
    block_size: int = 16
    blocks: int | None = None
    budget: int | None = None
    weights: int = 0
    other: int = 0
    step_tokens: int = fit.STEP_TOKENS

    def __post_init__(self) -> None:
        for name, value in (("--context", self.context), ("--blocks", self.blocks)):
            if value is not None:
                check_count(name, value)
        check_count("--requests", self.requests)
        check_count("--max-num-batched-tokens", self.step_tokens)

    @property
    def for_cache(self) -> int | None:
        """The budget less what is not the cache. Raises ValueError where nothing remains."""
        if self.budget is None:
            return None
        rest = self.budget - self.weights - self.other
        if rest < 0:
            raise ValueError(
                f"--budget {both_units(self.budget)} is less than --weights and --other together, "
                f"{both_units(self.weights + self.other)}; raise the budget or --tp"
            )
        return rest


def run(
    config: str,
    *,
    context: int | None = None,
    requests: int = 1,
    dtype: str = "bf16",
    scale_bytes: int | None = None,
    tp: int = 1,
    block_size: int = 16,
    blocks: int | None = None,
    budget: str | None = None,
    max_num_batched_tokens: int = fit.STEP_TOKENS,
    window_policy: str = "capped",
    mla: str = "latent",
    weights: str | None = None,
    other: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the figures as a table, or as one JSON object. Returns the exit code.

    Raises ValueError for a configuration or an option that does not fit.
    """
    if blocks is not None and budget is not None:
        raise ValueError("--blocks and --budget both say how large the pool is; give one of them")
    if budget is None and (weights or other):
        raise ValueError("--weights and --other are taken from --budget; give it as well")
    sizes = (
        None if size is None else parse_size(size) for size in (budget, weights or 0, other or 0)
    )
    asked = Asked(context, requests, block_size, blocks, *sizes, max_num_batched_tokens)
    spec = read_spec(config)
    storage = Storage(spec, stored_format(dtype, scale_bytes), window_policy, mla, tp)
    found = figures(storage, asked)
    if as_json:
        print(json.dumps({"model": config, **found}))  # ASCII, whatever the reader's encoding
    else:
        show(config, storage, asked, found)
    return 0


def read_spec(config: str) -> KVCacheSpec:
    """A configuration by its path, the name of a preset, or `tiny`."""
    if any(map(os.path.isfile, (config, os.path.join(config, "config.json")))):
        return KVCacheSpec.from_config(config)
    if config == "tiny":
        return KVCacheSpec.from_config(presets.TINY)
    if config in presets.names():
        return KVCacheSpec.from_config(presets.preset(config).config, config)
    if os.path.exists(config):
        return KVCacheSpec.from_config(config)  # which says what is wrong with it
    raise ValueError(
        f"{short(config)} is no file, and no preset; give the path of a config.json, 'tiny', or "
        f"one of {', '.join(presets.names())}"
    )


def figures(storage: Storage, asked: Asked) -> dict:
    """Every figure under its JSON key; None where nothing asked for it, or there is none."""
    layout = fit.block_layout(storage, asked.block_size)
    pool = pool_figures(storage, asked, layout)
    nbytes, per_rank = pool["pool_bytes"], None
    if asked.context is not None:
        nbytes = storage.nbytes(asked.context, asked.requests)
        per_rank = storage.nbytes_per_rank(asked.context, asked.requests)
    return {
        "bytes_per_token": storage.bytes_per_token,
        "bytes": nbytes,
        "gib": None if nbytes is None else gib(nbytes),
        "gb": None if nbytes is None else gb(nbytes),
        **layer_figures(storage),
        "tp": storage.ranks,
        "heads_per_rank": storage.heads_per_rank,
        "bytes_per_token_per_rank": storage.bytes_per_token_per_rank,
        "group_total": storage.group_total,
        "bytes_per_rank": per_rank,
        **pool,
        "context": asked.context,
        "requests": asked.requests,
        "dtype": storage.stored.name,
        "policy": storage.policy,
        "policy_means": POLICIES[storage.policy],
        "formula": [str(term) for term in storage.terms(asked.context or 1, asked.requests)],
        "reasons": reasons(storage),
        "notices": [
            *storage.spec.notices,
            *layout.notices,
            *rank_notices(storage),
            *pool_notices(
                pool["blocks"],
                pool["block_groups"],
                pool["block_bytes"],
                pool["blocks_per_request"],
                pool["context_that_fits"],
            ),
            *length_notices(storage.spec.max_model_len, asked.context, pool["context_that_fits"]),
        ],
    }


def layer_figures(storage: Storage) -> dict:
    """What kinds of layers there are, and what they store beside plain keys and values."""
    spec, expanded = storage.spec, None
    if spec.is_latent:
        with suppress(ValueError):  # sizes are missing, or fill no whole blocks of the format
            expanded = Storage(spec, storage.stored, storage.policy, "expanded").bytes_per_token
    plain = Storage(spec, stored_format("bf16"), mla=storage.mla).bytes_per_token
    return {
        "expanded_bytes_per_token": expanded,
        "mla": storage.mla if spec.is_latent else None,
        "layers": len(spec.layers),
        "full_layers": spec.full_layers,
        "sliding_layers": spec.sliding_layers,
        "state_layers": spec.state_layers,
        "shared_layers": spec.shared_layers,
        "windows": list(spec.windows),
        "state_bytes_per_request": storage.state_bytes_per_request if spec.state_is_known else None,
        "share_of_2_byte_payload": storage.bytes_per_token / plain if plain else None,
    }


def pool_figures(storage: Storage, asked: Asked, layout: fit.BlockLayout) -> dict:
    """What the pool holds that --blocks or --budget describe; None without either."""
    blocks, budget, room, longest = asked.blocks, asked.for_cache, None, None
    if budget is not None:
        blocks = fit.blocks_from_budget(layout, budget)
    elif blocks is not None:
        budget = blocks * layout.block_bytes
    if blocks is not None:
        room = fit.capacity(layout, blocks, asked.context, asked.step_tokens)
        longest = fit.context_that_fits(storage, budget, asked.requests)
    at_once = room.concurrency if room else None
    return {
        "block_size": layout.block_size,
        "block_bytes": layout.block_bytes,
        "block_groups": len(layout.groups),
        "blocks": blocks,
        "pool_bytes": room.pool_bytes if room else None,
        "tokens": room.tokens if room else None,
        "blocks_per_request": room.blocks_per_request if room else None,
        "concurrency": None if at_once is None else float(at_once),
        "max_num_batched_tokens": asked.step_tokens,
        "context_that_fits": longest,
        "any_context_fits": room is not None and longest is None,
    }


def show(config: str, storage: Storage, asked: Asked, found: dict) -> None:
    """A table of figure and reason, then the formula with its numbers, then notices."""
    table = Table(title=f"KV cache of {config}", title_justify="left", show_edge=False)
    for column in ("figure", "value", "reason"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for row in _rows(storage, asked, found):
        table.add_row(*row)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    at = f"{asked.context:,} positions" if asked.context else "one position"
    print(f"\nThe sum at {at}, {asked.requests:,} request{'s' * (asked.requests != 1)}:")
    for line in found["formula"]:
        print(f"  {line}")
    for line in found["notices"]:
        print(f"note: {line}")


def _rows(storage: Storage, asked: Asked, found: dict) -> list[tuple[str, str, str]]:
    """The table's rows, as far as they were asked for."""
    why = found["reasons"]
    token = "a token, no window full yet" if found["windows"] else "a token"
    rows = [(token, f"{found['bytes_per_token']:,} bytes", why[0])]
    rows += [("", "", reason) for reason in why[1:]]
    if found["expanded_bytes_per_token"] is not None:
        expanded = f"{found['expanded_bytes_per_token']:,} bytes"
        rows.append(("a token, MLA expanded", expanded, MLA_FORMS["expanded"]))
    state = found["state_bytes_per_request"]
    if state:
        rows.append(("fixed state a request", both_units(state), "it does not grow"))
    elif state is None:
        rows.append(("fixed state a request", "unknown", "see the note below"))
    if asked.context:
        at = f"{asked.requests:,} × {asked.context:,} positions"
        rows.append(("cache", both_units(found["bytes"]), at))
    if storage.ranks > 1:
        heads = found["heads_per_rank"]
        each = f"{found['bytes_per_token_per_rank']:,} bytes"
        rows.append(("a token on one rank", each, f"{heads} KV heads on each of {storage.ranks}"))
        rows.append(("a token on all ranks", f"{found['group_total']:,} bytes", "copies included"))
        if asked.context:
            rows.append(("cache on one rank", both_units(found["bytes_per_rank"]), "one GPU's"))
    return rows + _pool_rows(asked, found)


def _pool_rows(asked: Asked, found: dict) -> list[tuple[str, str, str]]:
    if found["blocks"] is None:
        return []
    rank = " of one rank" if found["tp"] > 1 else ""
    blocks = f"{found['block_bytes']:,} bytes each"
    if found["tokens"] is not None:
        blocks += f", {found['block_size']} positions"
    rows = [(f"blocks{rank}", f"{found['blocks']:,}", blocks)]
    rows.append((f"pool{rank}", both_units(found["pool_bytes"]), "whole blocks"))
    tokens = "any number" if found["tokens"] is None else f"{found['tokens']:,}"
    groups = found["block_groups"]
    held = "a position takes a slot" + (f" in each of {groups} groups" if groups > 1 else "")
    held = "no position takes memory" if found["tokens"] is None else held
    rows.append(("tokens", tokens, held))
    if found["concurrency"] is not None:
        each = f"{found['blocks_per_request']:,}"
        each = "1 block" if each == "1" else f"{each} blocks"
        each += f" for each request of {asked.context:,}"
        steps = f", {asked.step_tokens:,} tokens a step" if found["sliding_layers"] else ""
        rows.append(("requests at once", f"{found['concurrency']:,.2f}", each + steps))
    longest = found["context_that_fits"]
    who = f"for {asked.requests:,} request{'s' * (asked.requests != 1)} at once"
    rows.append(("longest context", "any" if longest is None else f"{longest:,}", who))
    return rows
