"""Documents as rows of token ids, with a weight for each token that the model should say."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tiny.corpus import RELATIONS
from kvlab.tiny.documents import NOT_SAID

END_OF_TEXT, SYSTEM, USER, ASSISTANT, END = range(5)


@dataclass(frozen=True)
class LossWeights:
    """value: words that decide an answer. said: the rest of answers. told: stories. read: what
    the assistant does not say.

    What is only read is weighed little: notes are random, and guessing them teaches nothing.
    """

    value: float = 3.0
    said: float = 1.0
    told: float = 1.0
    read: float = 0.1


@dataclass(frozen=True)
class Batch:
    """inputs, targets [B, t]: token ids, targets one position ahead. weights [B, t]: of the
    targets' losses; 0 for padding."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(tensor.to(device) for tensor in vars(self).values()))


class Encoder:
    """Turns documents into batches, in the words of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, weights: LossWeights | None = None) -> None:
        self.tokenizer, self.weights = tokenizer, weights or LossWeights()
        words = {word for r in RELATIONS for word in (*r.subjects, *r.values)}
        ids = (tokenizer.backend.token_to_id(f"\u0120{word}") for word in words)
        self.decisive = frozenset(i for i in ids if i is not None)
        self.not_said = tokenizer.encode(f" {NOT_SAID}")
        self.full_stop = tokenizer.backend.token_to_id(".")

    def batch(self, documents: Sequence[str], length: int) -> Batch:
        """One document a row, filled up to length + 1 ids. Raises ValueError for a longer one."""
        ids = torch.full((len(documents), length + 1), END_OF_TEXT)
        weights = torch.zeros(len(documents), length + 1)
        encoded = self.tokenizer.backend.encode_batch(list(documents))
        for row, tokens in enumerate(e.ids for e in encoded):
            if len(tokens) > length + 1:
                raise ValueError(
                    f"a document has {len(tokens)} tokens; a row of context {length} holds "
                    f"{length + 1}: make it with document(rng, {length}, mix)"
                )
            ids[row, : len(tokens)] = torch.tensor(tokens)
            weights[row, : len(tokens)] = torch.tensor(self.token_weights(tokens))
        return Batch(ids[:, :-1], ids[:, 1:], weights[:, 1:])

    def token_weights(self, ids: Sequence[int]) -> list[float]:
        """A weight for each token of a document.

        An answer is what the assistant says in one sentence; its subject and value decide. That
        the notes do not say decides from its first word on. A story has more sentences, and the
        colours and names in it decide nothing.
        """
        weights = [self.weights.read] * len(ids)
        for start, end in _spoken(ids):
            said = list(ids[start : end - 1])
            is_answer, declines = said.count(self.full_stop) == 1, said == self.not_said
            plain = self.weights.said if is_answer else self.weights.told
            for i in range(start, end):
                decides = declines or (is_answer and ids[i] in self.decisive)
                weights[i] = self.weights.value if decides else plain
        return weights


def _spoken(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """[start, end) of what the assistant says: after its tag, the end mark included."""
    start = None
    for i, token in enumerate(ids):
        if token == ASSISTANT:
            start = i + 1
        elif token == END and start is not None:
            yield start, i + 1
            start = None
