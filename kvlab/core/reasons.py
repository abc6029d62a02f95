"""Why a model's figures are what they are, in short sentences, and what a reader should beware of.

Section 21.1.
"""

from kvlab.core.storage import MLA_FORMS, POLICIES, Storage


def reasons(storage: Storage) -> list[str]:
    """Which layers keep what, in which format, under which policy; one short sentence each."""
    said = [*layer_reasons(storage)]
    if storage.spec.is_latent:
        said.append(f"MLA: {MLA_FORMS[storage.mla]}")
    said.append(storage.stored.description)
    if storage.spec.sliding_layers:
        said.append(f"policy {storage.policy}: {POLICIES[storage.policy]}")
    return said


def layer_reasons(storage: Storage) -> list[str]:
    """Which layers keep what: `12 of 48 layers keep K/V`, then windows, states, shared layers."""
    spec, total = storage.spec, len(storage.spec.layers)
    stores = "a latent" if spec.is_latent and storage.mla == "latent" else "K/V"
    said = [f"{spec.attending_layers} of {total} layers keep {stores}"]
    if spec.sliding_layers:
        lengths = " and ".join(f"{window:,}" for window in spec.windows)
        said.append(f"{spec.sliding_layers} of these have a window of {lengths}")
    if spec.state_layers:
        said.append(f"{spec.state_layers} keep a fixed state, whatever the length")
    if spec.shared_layers:
        said.append(f"{spec.shared_layers} read another layer's K/V and keep none")
    return said


def rank_notices(storage: Storage) -> list[str]:
    """What tensor parallelism does to this model."""
    heads, notices = storage.spec.num_query_heads, []
    if storage.group_total > storage.bytes_per_token:
        notices.append(
            f"{storage.ranks} ranks hold copies: together {storage.group_total:,} bytes a token "
            f"instead of {storage.bytes_per_token:,}"
        )
    if heads and heads % storage.ranks:
        notices.append(
            f"{heads} query heads cannot be shared out over {storage.ranks} ranks: vLLM refuses it"
        )
    return notices


def pool_notices(
    blocks: int | None, groups: int, block_bytes: int, each: int | None, longest: int | None
) -> list[str]:
    """What a pool of `blocks` blocks is too small for; None: no pool is asked about.

    groups: of layers, each of which needs a block for one token. each: blocks of one request,
    longest: the context that fits; None where neither is known.
    """
    notices = []
    if blocks is not None and blocks < groups:
        notices.append(
            f"blocks in the pool: {blocks:,} of {block_bytes:,} bytes, while one token needs "
            f"{groups:,}, so none fits"
        )
    elif blocks is not None and each is not None and blocks < each:
        notices.append(f"a request needs {each:,} blocks and the pool has {blocks:,}: none fits")
    if longest == 0:
        notices.append("not even one position of each request fits")
    return notices


def length_notices(limit: int | None, *lengths: int | None) -> list[str]:
    """Whether a length is beyond what the configuration says the model was made for."""
    longest = max((length for length in lengths if length), default=0)
    if limit is None or longest <= limit:
        return []
    return [f"the configuration gives the model at most {limit:,} positions, fewer than shown here"]
