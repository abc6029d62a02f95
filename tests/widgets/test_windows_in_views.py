"""Blocks that are given back behind a window, as the views tell of them."""

import pytest

from kvlab import LLM, SamplingParams
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.widgets.blocks_story import block_table_payload
from kvlab.widgets.blocks_table import block_table_html, requests_table
from kvlab.widgets.growth_story import growth_payload
from kvlab.widgets.overview_read import busiest_moment


@pytest.fixture(scope="module")
def trace():
    """Window 8, block size 4: a prompt of 14 and 4 outputs; then a prompt that begins with both."""
    sizes = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 32)
    heads = {"num_layers": 1, "num_query_heads": 2, "num_kv_heads": 1, "head_dim": 8}
    model = Decoder.random(ModelConfig(**sizes, **heads, sliding_window=8), 0)
    llm = LLM(model, block_size=4, num_blocks=6)
    llm.start_trace()
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    (first,) = llm.generate([list(range(14))], params)
    llm.generate([[*range(14), *first.outputs[0].token_ids[:2], 9]], params)
    return llm.stop_trace()


def sentences(payload, kind):
    return [stop[3] for stop in payload["stops"] if stop[1] == kind]


def test_the_block_table_says_who_lets_go_and_why(trace):
    told = sentences(block_table_payload(trace), "out_of_window")
    assert told[0] == (
        "Every layer has a window, and none of A's coming queries reaches back into block 0: A "
        "gives up 1 reference. Block 0 is free to be taken too, but keeps its identity: until then "
        "a request with the same prefix can find it."
    )
    assert len(told) == 3  # A's blocks 0 and 1, then B's block 2


def test_a_prefix_is_told_from_where_it_is_read(trace):
    payload = block_table_payload(trace)
    (admitted,) = sentences(payload, "admitted")
    assert "Its tokens at positions 8 to 15 have the identities of blocks 2 and 3" in admitted
    assert "B's logical blocks 2 and 3 too" in admitted
    assert "No query reads logical blocks 0 and 1 any more." in admitted
    ended = sentences(payload, "finished")[0]
    assert ended.startswith("A ends (length) and gives up its 3 references, the last block's first")


def test_tables_and_panels_name_no_block_that_is_gone(trace):
    letters = {"r1": "A", "r2": "B"}
    moment = busiest_moment(trace, letters)
    assert None not in moment.owners and all(None not in table for table in moment.tables.values())
    payload = block_table_payload(trace)
    state = next(f.state for f in trace.frames() if f.event and f.event.kind == "out_of_window")
    assert "0 → given back, 1 → 1, 2 → 2, 3 → 3" in requests_table(payload, state, "Requests")
    assert block_table_html(payload).startswith('<div class="kvlab-view"')


def test_the_growth_of_a_request_may_shrink(trace):
    told = [sentence for _, sentence in growth_payload(trace, "r1")["stops"]]
    assert not any("adds -" in sentence for sentence in told)
    assert any("; the request now holds" in sentence for sentence in told)
