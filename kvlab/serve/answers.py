"""Answers in OpenAI's form, whole and in chunks."""

from collections.abc import Sequence

from kvlab.llm import LLM
from kvlab.serve.job import Job, Piece

NAMES = {  # chat? -> object of a whole answer, of a chunk
    False: ("text_completion", "text_completion"),
    True: ("chat.completion", "chat.completion.chunk"),
}


class Answer:
    """One job's answer. `created`: seconds since 1970, as OpenAI gives it."""

    def __init__(self, llm: LLM, job: Job, created: int) -> None:
        self._llm, self._job, self._asked = llm, job, job.asked
        self._head = {"id": job.request_id, "created": created, "model": job.asked.model}
        self._offsets: dict[int, int] = {}  # characters of each choice's token texts so far
        self._begun: set[int] = set()

    # ---- whole

    def whole(self, pieces: Sequence[Piece]) -> dict[str, object]:
        """All pieces of all choices, joined."""
        count = len(self._job.requests)
        joined = [join([p for p in pieces if p.index == i]) for i in range(count)]
        return {
            **self._head,
            "object": NAMES[self._asked.chat][0],
            "choices": [self._choice(piece, "message") for piece in joined],
            "usage": self.usage(),
            "kvlab": self.stamps(),
        }

    # ---- in chunks

    def opening(self, index: int) -> dict[str, object] | None:
        """A chat's first chunk of a choice: who speaks, and no text. None where there is none."""
        if not self._asked.chat or index in self._begun:
            return None
        self._begun.add(index)
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._chunk([choice])

    def chunk(self, piece: Piece) -> dict[str, object] | None:
        """None for a piece that says nothing: its text is not certain yet."""
        tokens = bool(piece.logprobs) or (self._asked.return_token_ids and piece.token_ids)
        echo = self._asked.echo and piece.index not in self._begun
        if not (piece.text or tokens or piece.finish_reason or echo):
            return None
        return self._chunk([self._choice(piece, "delta")])

    def usage_chunk(self) -> dict[str, object]:
        return self._chunk([]) | {"usage": self.usage()}

    def _chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        chunk = {**self._head, "object": NAMES[self._asked.chat][1], "choices": choices}
        return chunk | {"usage": None} if self._asked.include_usage else chunk

    # ---- parts

    def _choice(self, piece: Piece, holder: str) -> dict[str, object]:
        """holder: a chat's text stands in "message", or in the "delta" of a chunk."""
        choice: dict[str, object] = {"index": piece.index}
        if self._asked.chat:
            said = {"content": piece.text}
            choice[holder] = said if holder == "delta" else {"role": "assistant", **said}
        else:
            choice["text"] = self._echoed(piece.index) + piece.text
        choice["logprobs"] = self._logprobs(piece) if piece.logprobs else None
        choice["finish_reason"] = end_of(piece)
        choice["stop_reason"] = piece.stop_reason
        if self._asked.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice

    def _echoed(self, index: int) -> str:
        """The prompt's text before the first piece of a choice, where asked for."""
        if not self._asked.echo or index in self._begun:
            return ""
        self._begun.add(index)
        number = index // self._asked.params.n
        prompt = self._asked.prompts[number]
        if isinstance(prompt, str) or self._llm.tokenizer is None:
            return prompt if isinstance(prompt, str) else ""
        return self._llm.tokenizer.decode(prompt, skip_special_tokens=False)

    def _logprobs(self, piece: Piece) -> dict[str, object]:
        pairs = list(zip(piece.token_ids, piece.logprobs, strict=True))
        if self._asked.chat:
            return {"content": [self._chat_logprob(token, found) for token, found in pairs]}
        texts = [self._text(token) for token, _ in pairs]
        return {
            "tokens": texts,
            "token_logprobs": [found[token] for token, found in pairs],
            "top_logprobs": [self._best(token, found) for token, found in pairs],
            "text_offset": self._text_offsets(piece.index, texts),
        }

    def _best(self, token: int, found: dict[int, float]) -> dict[str, float]:
        return {self._text(t): value for t, value in found.items()}

    def _chat_logprob(self, token: int, found: dict[int, float]) -> dict[str, object]:
        count = self._asked.params.logprobs or 0
        best = sorted(found.items(), key=lambda pair: -pair[1])[:count]
        top = [self._named(t, value) for t, value in best]
        return {**self._named(token, found[token]), "top_logprobs": top}

    def _named(self, token: int, logprob: float) -> dict[str, object]:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8"))}

    def _text_offsets(self, index: int, texts: Sequence[str]) -> list[int]:
        offsets = []
        for text in texts:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(text)
        return offsets

    def _text(self, token: int) -> str:
        tokenizer = self._llm.tokenizer
        return f"token {token}" if tokenizer is None else tokenizer.token_text(token)

    def usage(self) -> dict[str, object]:
        """A prompt counts once, however many continuations it has."""
        requests, n = self._job.requests, self._asked.params.n
        prompt = sum(len(ids) for ids in self._job.prompts)
        output = sum(len(r.output_token_ids) for r in requests)
        cached = sum(r.num_cached_tokens for r in requests[::n])
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def stamps(self) -> dict[str, object]:
        """When each part happened; the id stands above."""
        return {k: v for k, v in self._job.times.to_dict().items() if k != "request_id"}


def join(pieces: Sequence[Piece]) -> Piece:
    """A choice's pieces as one."""
    last = pieces[-1]
    return Piece(
        last.index,
        "".join(p.text for p in pieces),
        tuple(t for p in pieces for t in p.token_ids),
        tuple(x for p in pieces for x in p.logprobs),
        last.finish_reason,
        last.stop_reason,
    )


def end_of(piece: Piece) -> str | None:
    """OpenAI's word for the end: a pool without a free block cuts an output like a length does."""
    return "length" if piece.finish_reason == "capacity" else piece.finish_reason
