"""The same requests stored twice: what a padded rectangle and blocks hold after each pass.

    rectangle, one row a request         blocks of 4, taken as positions come
    A | P P P P P O |                    A | P P P P |  | O . . . |
    B | P P P - - O |  - padding         B | P P P O |  . empty slot of a taken block

A row of the rectangle is as wide as the longest request and is held until all have ended. A
request's blocks go back to the pool when it ends (section 21.1). Everything here is plain data
that a run has measured; kvlab/widgets/layouts_run.py makes it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

FORMAT, VERSION = "kvlab.layouts", 1
PADDING = "-"  # a slot that holds no position; "P" holds one of the prompt, "O" an output's


@dataclass(frozen=True)
class LayoutRequest:
    """A letter, and the tokens. The last output is selected and never processed."""

    name: str
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class LayoutPass:
    """What one pass over all requests did; each tuple has one entry a request, bytes count K, V
    and all layers and are read off the tensors.

    columns: the rectangle's new slots, one letter each. rectangle_nbytes: the whole rectangle.
    row_nbytes: processed positions in each row. num_computed_tokens, block_nbytes, payload_nbytes:
    processed positions, bytes of the taken blocks and of the positions in them; 0 for a request
    that had ended. new_block_ids: blocks taken for the pass. ended: indices of the requests that
    got their last output from it.
    """

    columns: tuple[str, ...]
    rectangle_nbytes: int
    row_nbytes: tuple[int, ...]
    num_computed_tokens: tuple[int, ...]
    new_block_ids: tuple[tuple[int, ...], ...]
    block_nbytes: tuple[int, ...]
    payload_nbytes: tuple[int, ...]
    ended: tuple[int, ...] = ()


@dataclass(frozen=True)
class LayoutState:
    """Both layouts at one moment, one entry a request.

    rows: the rectangle, a letter a slot. block_tables: physical blocks in the request's order,
    empty for one that has ended. running: whether it still has outputs to come.
    """

    block_size: int
    rows: tuple[str, ...]
    block_tables: tuple[tuple[int, ...], ...]
    num_computed_tokens: tuple[int, ...]
    running: tuple[bool, ...]
    rectangle_nbytes: int = 0
    row_nbytes: tuple[int, ...] = ()
    block_nbytes: tuple[int, ...] = ()
    payload_nbytes: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """T, the slots of a row."""
        return len(self.rows[0])

    @property
    def rectangle_slots(self) -> int:
        return len(self.rows) * self.width

    @property
    def padding(self) -> int:
        """Slots of the rectangle that hold no position."""
        return sum(row.count(PADDING) for row in self.rows)

    @property
    def in_use(self) -> int:
        """Processed positions of requests that still run: what either layout is there for."""
        return sum(self.num_computed_tokens)

    @property
    def left_over(self) -> int:
        """Positions of ended requests that the rectangle still holds."""
        return self.rectangle_slots - self.padding - self.in_use

    @property
    def num_blocks(self) -> int:
        return sum(len(table) for table in self.block_tables)

    @property
    def block_slots(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def tails(self) -> tuple[int, ...]:
        """Empty slots at the end of each request's last block."""
        pairs = zip(self.block_tables, self.num_computed_tokens, strict=True)
        return tuple(len(table) * self.block_size - done for table, done in pairs)

    def given_back(self, ended: tuple[int, ...]) -> "LayoutState":
        """The state once `ended` have given up their blocks; the rectangle stays as it is."""
        out = set(ended)

        def cleared(values: tuple, nothing: object) -> tuple:
            return tuple(nothing if i in out else value for i, value in enumerate(values))

        return replace(
            self,
            block_tables=cleared(self.block_tables, ()),
            num_computed_tokens=cleared(self.num_computed_tokens, 0),
            running=cleared(self.running, False),
            block_nbytes=cleared(self.block_nbytes, 0),
            payload_nbytes=cleared(self.payload_nbytes, 0),
        )


@dataclass(frozen=True)
class LayoutRun:
    """A run in both layouts. meta: model, block_size, num_layers, num_kv_heads, head_dim,
    bytes_per_value, vocab (texts of the tokens that occur, by id as a string)."""

    meta: Mapping[str, object]
    requests: tuple[LayoutRequest, ...]
    passes: tuple[LayoutPass, ...]

    def __repr__(self) -> str:
        blocks = f"blocks of {self.meta['block_size']}"
        return f"LayoutRun({len(self.requests)} requests, {len(self.passes)} passes, {blocks})"

    def states(self) -> Iterator[tuple[int, str, LayoutState]]:
        """(passes so far, kind, state): "start", then a "pass" each and an "ended" where a request
        ends with it."""
        count = len(self.requests)
        none = (0,) * count
        state = LayoutState(
            self.meta["block_size"], ("",) * count, ((),) * count, none, (True,) * count,
            0, none, none, none,
        )  # fmt: skip
        yield 0, "start", state
        for done, step in enumerate(self.passes, 1):
            state = _after(state, step)
            yield done, "pass", state
            if step.ended:
                state = state.given_back(step.ended)
                yield done, "ended", state

    # ---- JSON

    def to_dict(self) -> dict:
        requests, passes = [asdict(r) for r in self.requests], [asdict(p) for p in self.passes]
        plain = {"meta": dict(self.meta), "requests": requests, "passes": passes}
        return {"format": FORMAT, "version": VERSION, **json.loads(json.dumps(plain))}

    @classmethod
    def from_dict(cls, document: Mapping) -> "LayoutRun":
        """Raises ValueError for another format or version."""
        found = (document.get("format"), document.get("version"))
        if found != (FORMAT, VERSION):
            raise ValueError(
                f"not layouts that this kvlab reads: {found[0]!r} version {found[1]!r}; "
                f"wanted {FORMAT!r} version {VERSION}"
            )
        requests = (LayoutRequest(**_frozen(r)) for r in document["requests"])
        passes = (LayoutPass(**_frozen(p)) for p in document["passes"])
        return cls(document["meta"], tuple(requests), tuple(passes))


def _after(state: LayoutState, step: LayoutPass) -> LayoutState:
    """A pass appends: columns to the rectangle, blocks to the tables."""
    return replace(
        state,
        rows=tuple(a + b for a, b in zip(state.rows, step.columns, strict=True)),
        block_tables=tuple(
            a + b for a, b in zip(state.block_tables, step.new_block_ids, strict=True)
        ),
        num_computed_tokens=step.num_computed_tokens,
        rectangle_nbytes=step.rectangle_nbytes,
        row_nbytes=step.row_nbytes,
        block_nbytes=step.block_nbytes,
        payload_nbytes=step.payload_nbytes,
    )


def _frozen(value: object) -> object:
    """Lists as tuples, at any depth; a dict keeps its keys."""
    if isinstance(value, Mapping):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value
