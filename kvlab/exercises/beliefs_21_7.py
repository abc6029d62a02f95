"""Section 21.7's twelve beliefs: each asked as a question, and settled by a run of the page."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Choice, Number, YesNo


def _never(says: str, *letters: str) -> tuple[Mistake, ...]:
    """The same words for each of these options."""
    return tuple(Mistake(says, lambda actual, letter=letter: letter) for letter in letters)


A_LONGER_TEXT = Prediction(
    id="21.7-p5",
    question=(
        "A decode pass reads one token. Once 64 positions are in the cache, once 320. How does the "
        "arithmetic of the pass grow from the one to the other?"
    ),
    kind=Choice(
        (
            ("a", "five-fold, as the text"),
            ("b", "not at all, since everything is cached"),
            ("c", "by attention to 256 more positions, and by nothing else"),
        )
    ),
    mistakes=(
        *_never(
            "The weights multiply one position, however long the text is. Attention alone grows.",
            "a",
        ),
        *_never(
            "Cached keys and values are not computed again. But they are read, and the new query "
            "scores each of them and mixes its value.",
            "b",
        ),
    ),
    why="A cache saves what belongs to earlier positions, not the reading of them.",
)

FEWER_KV_HEADS = Prediction(
    id="21.7-p6",
    question=(
        "Two models have 8 query heads; one has 8 KV heads, the other 2 (GQA). The cache of the "
        "second is a quarter as large. In a decode pass, what is its attention's arithmetic over "
        "each cached position (scores, and mixing the values), against the first model's?"
    ),
    kind=Choice((("a", "a quarter"), ("b", "a half"), ("c", "the same"))),
    mistakes=(
        *_never(
            "Fewer heads are stored and read. Each of the 8 query heads still scores every "
            "position and mixes values.",
            "a",
        ),
        *_never(
            "Neither half is saved: each of the 8 query heads scores every position, and mixes "
            "values with it.",
            "b",
        ),
    ),
    why="GQA saves memory and reads; arithmetic goes by query heads.",
)

OTHER_BLOCK_SIZE = Prediction(
    id="21.7-p7",
    question=(
        "One prompt is served over blocks of 1, 4 and 16 positions, always taking the token of the "
        "largest score. Does the answer depend on the block size?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "Blocks say where a position is stored. What is read, and in which order, is the same.",
            lambda answer: True,
        ),
    ),
    why="A block size moves keys and values about; it does not change them.",
)

BLOCKS_HELD = Prediction(
    id="21.7-p8",
    question=(
        "Blocks of four. A prompt of four tokens has been processed, and its first output "
        "selected: the text has five tokens. How many blocks does the request hold at that moment?"
    ),
    kind=Number("blocks"),
    mistakes=(
        Mistake(
            "The fifth token has no keys and values yet. Its block is taken for the pass that "
            "reads it.",
            lambda held: held + 1,
        ),
        Mistake("Four positions are stored, and somewhere they must lie.", lambda held: 0),
        Mistake("A block has room for four positions.", lambda held: held + 3),
        Mistake("A block has room for four positions.", lambda held: held + 4),
    ),
    why="Blocks follow what is processed, not the length of the text.",
)

CACHED_WHOLE = Prediction(
    id="21.7-p9",
    question=(
        "Blocks of 16. A prompt of 64 tokens was served a moment ago and comes again, word for "
        "word. How many of its positions come from the cache?"
    ),
    kind=Number("positions"),
    mistakes=(
        Mistake(
            "All 64 are stored. But the first output needs logits, keys and values give none, and "
            "only whole blocks are shared: the last one is computed again.",
            lambda hits: hits + 16,
        ),
        Mistake(
            "One position has to be computed, that is right. But blocks are shared whole, so its "
            "15 neighbours are computed with it.",
            lambda hits: hits + 15,
        ),
        Mistake("Nothing has changed in the first three blocks.", lambda hits: 0),
    ),
    why="At least one position is computed, and blocks are shared whole.",
)

EQUAL_TEXT = Prediction(
    id="21.7-p10",
    question=(
        "One engine, and nothing is evicted. Two prompts of several full blocks read exactly "
        "alike, letter for letter. Is it certain that the second one finds the first one's blocks?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "Blocks are found by token ids. One text can be cut into tokens in several ways: the "
            "tokenizer cuts equal text alike, but a part of it may have been selected by the "
            "model, or cut on its own.",
            lambda answer: True,
        ),
    ),
    why="Equal token ids are needed; equal text does not guarantee them.",
)

AFTER_A_PREEMPTION = Prediction(
    id="21.7-p11",
    question=(
        "An engine always selects the token of the largest score. Its pool runs out, and a request "
        "that has given some outputs already is preempted: it loses all its blocks. Later it is "
        "admitted again. What does its reader get?"
    ),
    kind=Choice(
        (
            ("a", "the same text as without it, a little later"),
            ("b", "a text that begins anew after the preemption"),
            ("c", "a text without the outputs it had given"),
        )
    ),
    mistakes=(
        *_never(
            "The outputs are kept as token ids. Their keys and values are computed again; they are "
            "not selected again.",
            "b",
        ),
        *_never("Blocks hold keys and values. The text is not in them, and stays.", "c"),
    ),
    why="What is lost is computed again from the tokens, which were never lost.",
)

EVICTION = Prediction(
    id="21.7-p12",
    question=(
        "Prefixes are cached and the pool is full, so cached blocks are evicted. Can one of them "
        "be a block that a running request still reads?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "Evicted are blocks that no table names any more. Those in a table are not in the free "
            "queue, from which blocks are taken.",
            lambda answer: True,
        ),
    ),
    why="Only blocks without a reference can be taken.",
)

COPY_ON_WRITE = Prediction(
    id="21.7-p13",
    question=(
        "Blocks of four. A prompt of eight tokens gets three continuations, which share its "
        "blocks. Each then processes one token of its own. How many blocks are copied?"
    ),
    kind=Number("blocks"),
    mistakes=(
        Mistake(
            "That would be so with a partly filled last block. These two are full, and nobody "
            "writes to them any more: each continuation goes on in a new, empty block.",
            lambda copied: copied + 2,
        ),
        Mistake(
            "Sharing a block does not copy it. Each continuation goes on in a new, empty block.",
            lambda copied: copied + 3,
        ),
        Mistake(
            "No table's blocks are copied as a whole. Copied is what somebody writes to while "
            "others hold it, and both blocks are full.",
            lambda copied: copied + 4,
        ),
        Mistake(
            "No table's blocks are copied as a whole. Copied is what somebody writes to while "
            "others hold it, and both blocks are full.",
            lambda copied: copied + 6,
        ),
    ),
    why="A full block is never written to, so it never has to be copied.",
)

FEWER_BITS = Prediction(
    id="21.7-p14",
    question=(
        "An engine is started once more with an fp8 cache in place of a single-precision one; the "
        "number of blocks is the same. What takes fewer bytes?"
    ),
    kind=Choice(
        (
            ("a", "the cache and the weights"),
            ("b", "the cache alone"),
            ("c", "the weights alone"),
        )
    ),
    mistakes=(
        *_never(
            "The weights are the model's and stay as they are. The format is that of stored keys "
            "and values.",
            "a",
            "c",
        ),
    ),
    why="A cache format says how keys and values are stored, and nothing about weights.",
)

FORTY_IN_SIXTEENS = Prediction(
    id="21.7-p15",
    question=(
        "An engine has max_num_batched_tokens=16, and a prompt of 40 tokens arrives. What happens?"
    ),
    kind=Choice(
        (
            ("a", "it is refused"),
            ("b", "its last 16 tokens are read"),
            ("c", "it is read in several steps"),
        )
    ),
    mistakes=(
        *_never(
            "Nothing is refused: what a step has no room for waits for the next. How long a text "
            "may be is another setting, max_model_len.",
            "a",
        ),
        *_never("No token is dropped: what a step has no room for, the next one reads.", "b"),
    ),
    why="The limit is one of a step: positions that it computes, of all requests together.",
)

TWO_MEANS = Prediction(
    id="21.7-p16",
    question=(
        "Request A gives 2 tokens, 100 ms apart; request B gives 101, each 10 ms after the one "
        "before. The mean of their two TPOTs is 55 ms. And the mean inter-token latency (ITL), "
        "over all their gaps?"
    ),
    kind=Choice((("a", "55 ms"), ("b", "about 11 ms"), ("c", "about 100 ms"))),
    mistakes=(
        *_never("A mean over requests weighs A and B equally. B has 100 of the 101 gaps.", "a"),
        *_never("That is A's one gap. B has a hundred others.", "c"),
    ),
    why="One mean is over requests, the other over gaps; both are right.",
)

BELIEFS = (
    A_LONGER_TEXT,
    FEWER_KV_HEADS,
    OTHER_BLOCK_SIZE,
    BLOCKS_HELD,
    CACHED_WHOLE,
    EQUAL_TEXT,
    AFTER_A_PREEMPTION,
    EVICTION,
    COPY_ON_WRITE,
    FEWER_BITS,
    FORTY_IN_SIXTEENS,
    TWO_MEANS,
)
