"""The tokenizer that a GGUF file describes: tokens, merges and special tokens are its metadata."""

from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as _Tokenizer

from kvlab.tensors.checkpoint import CheckpointError
from kvlab.tensors.tokenizer import Tokenizer

# Which split into words the merges were learned with. "smollm" also set each digit apart before;
# transformers reads such a file without that step, and so do we, so that ids are equal: they differ
# from the original tokenizer's only where two or more spaces or line breaks precede a digit.
SPLITS = ("gpt-2", "smollm")
CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type


def tokenizer_from(values: Mapping[str, object], path: Path) -> Tokenizer:
    """A byte-level BPE from a GGUF file's metadata, with its chat template.

    Raises CheckpointError for other kinds of tokenizer, naming what the file says.
    """
    kind, split = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in SPLITS:
        raise CheckpointError(
            f"{path}: tokenizer {kind!r} with the split {split!r} is not read from GGUF; "
            f"supported is 'gpt2' with {' or '.join(map(repr, SPLITS))}"
        )
    tokens = values.get("tokenizer.ggml.tokens")
    merges = values.get("tokenizer.ggml.merges")
    if not isinstance(tokens, list) or not isinstance(merges, list):
        raise CheckpointError(f"{path} lacks tokenizer.ggml.tokens or tokenizer.ggml.merges")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        bpe = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs)
    except Exception as error:  # the library raises bare Exceptions
        raise CheckpointError(f"{path}: the tokenizer's merges do not fit: {error}") from None
    backend = _Tokenizer(bpe)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    _add_special(backend, tokens, values.get("tokenizer.ggml.token_type") or [])
    names = _named_tokens(values, tokens)
    if values.get("tokenizer.ggml.add_bos_token") and names["bos_token"]:
        bos = names["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokens.index(bos))]
        )
    settings = {"chat_template": values.get("tokenizer.chat_template"), **names}
    return Tokenizer(path, backend, settings)


def _add_special(backend: _Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Tokens that are never cut into pieces: control tokens, which decoding may leave out, and
    others that the model's makers added."""
    letters = set(pre_tokenizers.ByteLevel.alphabet())
    marked = list(zip(tokens, types, strict=False))
    control = [t for t, kind in marked if kind == CONTROL and set(t) <= letters]
    backend.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    added = [t for t, kind in marked if kind == USER_DEFINED]
    backend.add_tokens([AddedToken(t, normalized=False) for t in added])


def _named_tokens(values: Mapping[str, object], tokens: list[str]) -> dict[str, str | None]:
    """bos_token and the like, as a tokenizer_config.json names them."""
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {name: values.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {
        name: tokens[i] if isinstance(i, int) and 0 <= i < len(tokens) else None
        for name, i in found.items()
    }
