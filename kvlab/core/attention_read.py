"""What one query of a padded batch reads, with the padding masked and with it readable.

Requests of unequal length share one rectangle of slots. A slot beyond a request's own tokens holds
the keys and values of a filler token, and only the mask keeps a query from reading them:

slots of request 0    | its 5 tokens | 4 slots of padding | tokens processed later |

Recorded by tensors/reads.py, drawn by the view "attention read". Section 21.1.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

Weights = Mapping[str, Sequence[Sequence[float]]]  # layer -> [num_query_heads][slots up to `query`]


def whole_number(value: object) -> int | None:
    """`value` as an int, None if it is none: 0.0 and False equal 0 and number no layer or row.

    The integers of numpy are whole numbers too, and become ints that JSON can hold.
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


@dataclass(frozen=True)
class PaddedPass:
    """One pass of the batch, as seen by the last real query of the request.

    query: the slot that this query's token stands in; it may read slots 0 to query.
    masked, unmasked: its weights of each slot, per layer and head.
    masked_token, unmasked_token: the likeliest next token. logit_difference: max |difference|
    of the two rows of logits.
    """

    query: int
    masked: Weights
    unmasked: Weights
    masked_token: int
    unmasked_token: int
    logit_difference: float


@dataclass(frozen=True)
class PaddedReads:
    """The reads of one request of a padded batch, pass by pass.

    request: its row in the rectangle; lengths: prompt tokens of every row. slots: the token id in
    each slot of the request's row, None for padding. vocab: texts of ids, as in a trace's meta.
    """

    request: int
    lengths: Sequence[int]
    slots: Sequence[int | None]
    num_query_heads: int
    num_kv_heads: int
    passes: Sequence[PaddedPass]
    vocab: Mapping[str, str]

    def __repr__(self) -> str:
        rows = f"request {self.request} of {len(self.lengths)}, {len(self.passes)} passes"
        return f"PaddedReads({rows}, {self.slots.count(None)} padded slots)"

    def to_dict(self) -> dict:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping) -> "PaddedReads":
        """The inverse of `to_dict`. Raises ValueError for anything else."""
        try:
            passes = [PaddedPass(**one) for one in document["passes"]]
            return cls(**{**document, "passes": passes})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not padded reads: {type(error).__name__} {error}") from None
