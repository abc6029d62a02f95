"""Text to token ids and back, through the tokenizer.json of the model's folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer as _Tokenizer


class Tokenizer:
    """A thin view of the `tokenizers` library. Raises ValueError if the file cannot be read.

    backend, settings: a tokenizer made elsewhere and what a tokenizer_config.json would say of it;
    `folder` is then where it came from, and no file is read.
    """

    def __init__(
        self,
        folder: str | Path,
        backend: _Tokenizer | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder, self._settings = Path(folder), settings
        self.backend = _from_file(self.folder / "tokenizer.json") if backend is None else backend
        self.backend.no_truncation()  # a prompt is neither cut nor filled up behind one's back
        self.backend.no_padding()

    @property
    def settings(self) -> Mapping[str, object]:
        """What the folder's tokenizer_config.json holds; empty if there is none to be read."""
        if self._settings is None:
            self._settings = _json_object(self.folder / "tokenizer_config.json")
        return self._settings

    @property
    def vocab_size(self) -> int:
        """Ids in all, special tokens included."""
        return self.backend.get_vocab_size()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids, with the special tokens that the tokenizer itself adds, or without."""
        try:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:
            raise ValueError(f"{text!r} holds characters that are no valid Unicode") from None

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """One token as it would stand in a text, special tokens by name.

        A model may have more ids than its tokenizer has words; such an id is "token 1500".
        """
        if token_id >= 0 and self.backend.id_to_token(token_id) is None:
            return f"token {token_id}"
        text = self.decode([token_id], skip_special_tokens=False)
        return text if "\ufffd" not in text else (self.backend.id_to_token(token_id) or text)


def _from_file(path: Path) -> _Tokenizer:
    if not path.is_file():
        raise ValueError(
            f"{path} is missing; give a folder with a tokenizer.json (save_pretrained of "
            "transformers' AutoTokenizer writes one), or, for token ids instead of text, "
            "LLM(kvlab.tensors.checkpoint.load_model(FOLDER))"
        )
    try:
        return _Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise ValueError(f"{path} cannot be read: {error}") from None


def _json_object(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class TextStream:
    """Turns an output's tokens into text as they come, and finds stop strings.

    Text is held back while it may still become part of a stop string, or while its last
    character is not complete (one character can take several tokens).
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._token_ids: list[int] = []
        self._start = self._done = 0  # a few tokens of context; tokens whose text has been added
        self._given = 0
        self.text = ""  # decoded so far; cut at the stop string once one is found
        self.stopped_by: str | None = None

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is now certain. Empty once stopped."""
        if self.stopped_by is not None:
            return ""
        self._token_ids.append(token_id)
        new = self._new_text()
        if new == "" or new.endswith("\ufffd"):  # perhaps a character that is not complete
            return ""
        self._start, self._done = self._done, len(self._token_ids)
        return self._add(new)

    def _new_text(self) -> str:
        """Text of the tokens not added yet, decoded after some context: spaces depend on it."""
        context = self._tokenizer.decode(self._token_ids[self._start : self._done])
        return self._tokenizer.decode(self._token_ids[self._start :])[len(context) :]

    def finish(self) -> str:
        """No more tokens: returns what was held back."""
        before = self._given
        if self.stopped_by is None:
            self._add(self._new_text())  # bytes of an unfinished character
            self._done = len(self._token_ids)
        self._given = len(self.text)
        return self.text[before:]

    def _add(self, new: str) -> str:
        begin = max(0, len(self.text) - max(map(len, self._stop), default=1) + 1)
        self.text += new
        found = [(self.text.find(s, begin), i) for i, s in enumerate(self._stop)]
        found = [hit for hit in found if hit[0] >= 0]
        if found:
            at, which = min(found)
            self.text, self.stopped_by = self.text[:at], self._stop[which]
        certain = len(self.text) if found else len(self.text) - self._possible_start()
        certain = max(certain, self._given)
        out, self._given = self.text[self._given : certain], certain
        return out

    def _possible_start(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for n in range(min(len(stop) - 1, len(self.text)), longest, -1):
                if self.text.endswith(stop[:n]):
                    longest = n
                    break
        return longest
