"""Tokens of one byte: shown by name where ids and texts make it sure."""

from growth_cases import example, with_vocab

from kvlab import LLM, SamplingParams, tiny
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.widgets import growth_html, growth_payload
from kvlab.widgets.byte_tokens import byte_name, with_named_bytes


def test_bytes_of_the_tiny_model_s_tokenizer_are_named() -> None:
    tokenizer = Tokenizer(tiny.FOLDER)
    for text in ("süß €.", "日本", "🙂\N{NO-BREAK SPACE}\N{SOFT HYPHEN}"):
        ids = tokenizer.encode(text)
        vocab = with_named_bytes({str(t): tokenizer.token_text(t) for t in ids})
        values = [vocab[str(t)] for t in ids]
        found = b"".join(
            bytes.fromhex(byte_name(v)[5:]) if byte_name(v) else v.encode() for v in values
        )
        assert found.lstrip() == text.encode()  # the tokenizer puts a space in front
        assert sum(byte_name(v) is not None for v in values) == sum(b >= 128 for b in found)


def test_a_letter_that_is_a_token_of_its_own_stays_a_letter() -> None:
    """GPT-2's order from id 0: '.' is 13, byte C3 is 127, byte A9 is 102; 'é' is a merge."""
    vocab = {"13": ".", "127": "Ã", "102": "©", "2634": "é", "40": "I", "300": "Ã"}
    named = {"127": "<0xC3>", "102": "<0xA9>"}
    assert with_named_bytes(vocab) == {**vocab, **named}
    assert with_named_bytes(with_named_bytes(vocab)) == {**vocab, **named}


def test_a_sign_in_doubt_stays() -> None:
    assert with_named_bytes({"127": "Ã", "900": " word"}) == {"127": "Ã", "900": " word"}


def test_bytes_have_a_name_in_sentences_and_in_the_table() -> None:
    page = growth_html(growth_payload(with_vocab(example(), ["<0xC3>"])))
    assert "<td>byte C3</td>" in page
    llm = LLM("tiny", block_size=4)
    llm.start_trace()
    llm.generate(tiny.prompt("ü.", "?", rules=""), SamplingParams(max_tokens=1))
    payload = growth_payload(llm.stop_trace())
    assert {"<0xC3>", "<0xBC>"} <= set(payload["trace"]["meta"]["vocab"].values())
