"""One sentence or two for each stop of the view "cache growth"."""

from collections.abc import Mapping

from kvlab.core.trace import Event, State
from kvlab.widgets.byte_tokens import byte_name, with_named_bytes

ORDINALS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


class Teller:
    """Puts a request's events into words. It remembers how far passes have come."""

    def __init__(self, vocab: Mapping[str, str], block_size: int) -> None:
        """vocab: texts of the token ids that occur, as in a trace's meta."""
        self.vocab, self.block_size = with_named_bytes(vocab), block_size
        self.reached = 0  # positions that were computed at some time

    def tell(
        self, event: Event, now: State, before: State | None, nbytes: int | None
    ) -> str | None:
        """Any event but a pass; None for one that is no stop.

        now, before: the request after and before it, `before` with the last table that it held.
        """
        if event.kind == "forked":
            return self._forked(event, now)
        if before is None:
            return self._start(now)
        if event.kind == "admitted":
            return self._admitted(now) if now["num_cached_tokens"] else None
        if event.kind == "selected":
            return self._selected(event, now, nbytes)
        if event.kind == "finished":
            return self._finished(event, now, before)
        if event.kind == "copied":
            return self._copied(event)
        if event.kind in ("preempted", "step_failed"):
            return self._lost(event, now, before)
        return None

    def computed(
        self, event: Event, now: State, before: int | None, nbytes: int | None, own: bool
    ) -> str:
        """A pass. before, nbytes: bytes measured before and after; own: not a parent's pass."""
        start, end, prompt = event.data["start"], event.data["end"], now["num_prompt_tokens"]
        again, self.reached = start < self.reached, max(self.reached, end)
        where, adds = span(start, end), added(0 if start == 0 else before, nbytes)
        reads = f"It has {count(end, 'key')} to read."
        if not own:
            parent = event.request_id
            return f"A pass of {parent} processes {where}, which this request shares. {reads}"
        if again:
            return f"A pass processes {where} again, after the blocks were given up{adds}. {reads}"
        if start < prompt:
            return self._prompt_pass(start, end, prompt, adds, reads)
        if end - start > 1:
            return f"A pass processes {where}{adds}. {reads}"
        nth, text = start - prompt + 1, self.text(now, start)
        which = f"the {ordinal(nth)} output {text} at {where}"
        return f"Pass {nth} processes {which}{adds}. {reads}"

    def _prompt_pass(self, start: int, end: int, prompt: int, adds: str, reads: str) -> str:
        where = span(start, end)
        if start == 0 and end >= prompt:
            each = "in each layer, a key and a value of each token"
            return f"The prompt pass processes {where}{adds}: {each}."
        adds = adds.replace(" and", ", and", 1)
        if end < prompt:
            left = count(prompt - end, "prompt token")
            return f"The prompt pass takes a part, {where}{adds}. {left} left. {reads}"
        return f"The prompt pass processes the rest of the prompt, {where}{adds}. {reads}"

    def _start(self, now: State) -> str:
        if now["num_computed_tokens"]:
            there = count(now["num_computed_tokens"], "position")
            return f"The recording starts here: {there} of the request are in the cache already."
        prompt = count(now["num_prompt_tokens"], "token")
        return (
            f"The request arrives with a prompt of {prompt}. Nothing is in the cache yet: 0 bytes."
        )

    def _admitted(self, now: State) -> str:
        cached = now["num_cached_tokens"]
        left = count(len(now["token_ids"]) - cached, "token")
        blocks = count(cached // self.block_size, "block")
        return (
            f"The prefix cache already holds {span(0, cached)} ({blocks}): reused, not computed. "
            f"{left} left to process."
        )

    def _forked(self, event: Event, now: State) -> str:
        blocks, parent = count(len(now["block_table"]), "block"), event.data["parent"]
        return f"This request continues from {parent} and shares its {blocks}; nothing is copied."

    def _copied(self, event: Event) -> str:
        src, dst = event.data["src"], event.data["dst"]
        return (
            f"Copy-on-write: block {src} is shared, so its content is copied to block {dst} "
            "before this request writes there."
        )

    def _selected(self, event: Event, now: State, nbytes: int | None) -> str:
        position = event.data["position"]
        nth = ordinal(position - now["num_prompt_tokens"] + 1)
        still = "" if nbytes is None else f": still {nbytes:,} bytes"
        return (
            f"The logits of position {position - 1} select {self.text(now, position)}. "
            f"It is the {nth} output and has no cache entry yet{still}."
        )

    def _finished(self, event: Event, now: State, before: State) -> str:
        selected = len(now["token_ids"]) - now["num_prompt_tokens"]
        processed = max(now["num_computed_tokens"] - now["num_prompt_tokens"], 0)
        told = f"{count(selected, 'output')} selected, {processed} processed"
        if selected == processed + 1:
            last = self.text(now, len(now["token_ids"]) - 1)
            told += f": the last one, {last}, never gets a cache entry"
        blocks = count(len(before["block_table"]), "block")
        reason = event.data["reason"]
        return f"The request ends ({reason}). {told}. It gives up its {blocks} and holds 0 bytes."

    def _lost(self, event: Event, now: State, before: State) -> str:
        why = "Preempted" if event.kind == "preempted" else "The step failed and is undone"
        blocks = count(len(before["block_table"]), "block")
        tokens = count(len(now["token_ids"]), "token")
        return (
            f"{why}: the request gives up its {blocks} and waits. "
            f"Its {tokens} are kept, its cache is gone: 0 bytes."
        )

    def text(self, now: State, position: int) -> str:
        """The token at a position, in quotes, with line breaks made visible; a byte by name."""
        token = now["token_ids"][position]
        text = self.vocab.get(str(token))
        if text is None:
            return f"token {token}"
        return byte_name(text) or f"'{visible(text)}'"


def added(before: int | None, nbytes: int | None) -> str:
    """What a pass added, or all that is held where a reused prefix was not measured before it."""
    if nbytes is None:
        return ""
    if before is None:
        return f"; the request now holds {nbytes:,} bytes"
    if nbytes < before:  # blocks behind the window were given back
        return f"; the request now holds {nbytes:,} bytes"
    return f" and adds {nbytes - before:,} bytes"


def visible(text: str) -> str:
    """Line breaks and tabs as backslash signs."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def count(n: int, one: str) -> str:
    """1 block, 2 blocks."""
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


def ordinal(n: int) -> str:
    """First to tenth in words, then 11th."""
    if n <= len(ORDINALS):
        return ORDINALS[n - 1]
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def span(start: int, end: int) -> str:
    """Positions of a half-open range, in words."""
    return f"position {start}" if end - start == 1 else f"positions {start} to {end - 1}"
