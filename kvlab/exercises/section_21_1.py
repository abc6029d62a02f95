"""Section 21.1: what the cache keeps, heads that share it, and its bytes."""

from kvlab.core.memory import kv_cache_bytes, kv_cache_gib
from kvlab.exercises import runs_21_1 as runs
from kvlab.exercises.break_21_1 import PADDING_CHECK
from kvlab.exercises.errors_21_1 import FIND_THE_ERROR
from kvlab.exercises.exercise import Exercise, Mistake, Prediction
from kvlab.exercises.kinds import Function, Number, Numbers, YesNo
from kvlab.exercises.wrong_21_1 import (
    BYTES,
    DECODE_STEP,
    KEY_MASK,
    KV_HEAD,
    pattern_of_three_moments,
)

LAYERS, KV_HEADS, WIDTH, VALUE = runs.LAYERS, runs.KV_HEADS, runs.WIDTH, runs.BYTES_PER_VALUE


def _bytes_at(*lengths: int, layers: int = LAYERS, heads: int = KV_HEADS, value: int = VALUE):
    """The bytes of three moments, from the positions in the cache at each."""
    return [kv_cache_bytes(layers, 1, heads, length, WIDTH, value) for length in lengths]


def _gib(**other: float) -> float:
    return kv_cache_gib(**(runs.LARGE | other))


THREE_MOMENTS = Exercise(
    id="21.1-1",
    question=(
        "A model has 3 layers, 6 query heads, 2 KV heads of width 2, and stores 4 bytes a number. "
        "One request has a prompt of 3 tokens. How many bytes do its keys and values take: after "
        "the prompt's pass; once the fourth token has been selected; once a further pass has "
        "processed that token?"
    ),
    kind=Numbers(3, "bytes"),
    run=runs.bytes_at_three_moments,
    hints=(
        "Before you think of bytes, write down for each of the three moments how many positions "
        "have keys and values.",
        "A position has them once a pass has processed it. It takes: keys and values, in each "
        "layer, for each KV head, as many numbers as that is wide, of 4 bytes each.",
        "bytes = 2 * layers * requests * KV heads * positions * width * bytes a number, with "
        "positions 3, then 3, then 4.",
    ),
    mistakes=(
        Mistake(
            "That lets the selection of token four fill the cache. Selecting computes no keys and "
            "values; the pass that reads the token does.",
            lambda: _bytes_at(3, 4, 4),
        ),
        Mistake(
            "That counts keys only (or values only): the factor 2 is missing.",
            lambda: [n // 2 for n in _bytes_at(3, 3, 4)],
        ),
        Mistake(
            "You used the query heads. Keys and values are stored for each KV head.",
            lambda: _bytes_at(3, 3, 4, heads=runs.QUERY_HEADS),
        ),
        Mistake(
            "That is one layer. Every layer has keys and values of its own.",
            lambda: _bytes_at(3, 3, 4, layers=1),
        ),
        Mistake(
            "That adds a pass over all positions. Earlier keys and values are kept, and the pass "
            "adds those of the one token that it reads.",
            lambda: _bytes_at(3, 3, 7),
        ),
        Mistake(
            "That counts numbers. Each of them takes 4 bytes.",
            lambda: _bytes_at(3, 3, 4, value=1),
        ),
    ),
    why="Selecting leaves the cache as it is; the pass that reads the token makes it grow.",
    pattern=pattern_of_three_moments,
)

BYTES_FUNCTION = Exercise(
    id="21.1-2",
    question=(
        "Write my_kv_cache_bytes: the bytes of the keys and values that batch requests of seq_len "
        "processed positions keep (eq 21.2)."
    ),
    kind=Function(
        "my_kv_cache_bytes",
        ("layers", "batch", "kv_heads", "seq_len", "head_dim", "bytes_per_value"),
    ),
    run=runs.bytes_of_a_real_cache,
    cases=runs.cache_shapes,
    truth="the arrays of a real cache hold",
    hints=(
        "Start from one number that is stored and ask how often it is there: along which "
        "directions does the cache extend?",
        "Eq 21.1 gives the shape of one array of one layer, [B, H_kv, T, d_h]. How many such "
        "arrays does a layer keep, and how many layers are there?",
        "It is a plain product of all six arguments and the number of arrays in a layer, "
        "one of keys and one of values.",
    ),
    mistakes=BYTES,
    why="Every stored number is counted once, for keys and for values.",
)

KV_HEAD_FUNCTION = Exercise(
    id="21.1-3",
    question=(
        "Write my_kv_head: the number of the KV head that query head h reads, when "
        "num_query_heads query heads share num_kv_heads KV heads in equal groups."
    ),
    kind=Function("my_kv_head", ("h", "num_query_heads", "num_kv_heads")),
    run=runs.kv_head_that_attention_reads,
    cases=runs.head_cases,
    truth="the real attention reads KV head",
    hints=(
        "All query heads of a group share one KV head. How large is a group, and which heads are "
        "in the first?",
        "Neighbours form a group, of num_query_heads / num_kv_heads query heads: with 8 and 2 "
        "these are heads 0 to 3, and 4 to 7.",
        "Divide h by the size of a group and drop the fraction: the operator is //.",
    ),
    mistakes=KV_HEAD,
    why="h // group: MHA has groups of one, MQA has one group of all.",
)

KEY_MASK_FUNCTION = Exercise(
    id="21.1-4",
    question=(
        "Prompts of unequal lengths stand in one rectangle, padded at the right to the longest. "
        "The next pass appends new tokens to every request, in the columns after it. Write "
        "key_mask: for each request and each new token, a row of True (its query may read the key "
        "in this column) or False; a nested list or a tensor, [requests, new, max(lengths) + new]."
    ),
    kind=Function("key_mask", ("lengths", "new")),
    run=runs.mask_of_the_real_pass,
    cases=runs.mask_cases,
    truth="the real pass has",
    hints=(
        "For which two reasons may a query not read a key? Each of them concerns one part of the "
        "columns.",
        "Columns below max(lengths) are the prompt's: the real ones are those below the request's "
        "own length, the others padding. The columns after them are new: there the causal rule "
        "counts.",
        "For column j and new token i, with width = max(lengths): j < length where j < width, "
        "and j - width <= i elsewhere.",
    ),
    mistakes=KEY_MASK,
    why="Padding costs bytes and is never read; among the new tokens the causal rule holds.",
)

DECODE_STEP_FUNCTION = Exercise(
    id="21.1-5",
    question=(
        "Write decode_step for one head: append the new token's key k and value v, [d], to the "
        "cached keys and values, [T, d] (all are tensors), and return the mixture that its query "
        "q, [d], reads: the values, weighted with softmax(q . K / sqrt(d))."
    ),
    kind=Function("decode_step", ("q", "k", "v", "keys", "values")),
    run=runs.attention_over_a_real_cache,
    cases=runs.decode_cases,
    truth="the real attention gives",
    hints=(
        "Which positions does the new token's query read? Count the scores there must be.",
        "It reads its own, too: append first. torch.cat((keys, k[None])) appends one row. One "
        "score a position is keys @ q; what is it divided by?",
        "weights = torch.softmax(keys @ q / len(q) ** 0.5, dim=0), over all T + 1 positions; the "
        "mixture is weights @ values.",
    ),
    mistakes=DECODE_STEP,
    why="One query, T + 1 keys: all but one of them came out of the cache.",
)

GIB = Exercise(
    id="21.1-6",
    question=(
        "How many GiB do keys and values take for 3 requests of 4,096 positions each, in a model "
        "of 32 layers with 32 query heads and 4 KV heads of width 128, at 2 bytes a number?"
    ),
    kind=Number("GiB"),
    run=runs.gib_of_large_arrays,
    hints=(
        "Multiply the powers of two by adding their exponents; you need no calculator.",
        "32 layers are 2^5, 4,096 positions 2^12, width 128 2^7, and so on. One GiB is 2^30 bytes.",
        "2 * 2^5 * 3 * 2^2 * 2^12 * 2^7 * 2 bytes are 3 * 2^28 bytes. Divide by 2^30.",
    ),
    mistakes=(
        Mistake(
            "That is GB, units of 10^9 bytes. GiB divides by 2^30.",
            lambda: _gib() * 2**30 / 10**9,
        ),
        Mistake("That is MiB. A GiB is 1,024 of them.", lambda: _gib() * 2**10),
        Mistake("That is bytes. Divide by 2^30.", lambda: int(_gib() * 2**30)),
        Mistake(
            "That counts keys only (or values only): the factor 2 is missing.", lambda: _gib() / 2
        ),
        Mistake(
            "You used the query heads. Keys and values are stored for each KV head.",
            lambda: _gib(kv_heads=32),
        ),
        Mistake("That is one of the three requests.", lambda: _gib(batch=1)),
        Mistake("That is for 4 bytes a number; here it is 2.", lambda: _gib(bytes_per_value=4)),
    ),
    why="Eq 21.2 divided by 2^30: the query heads do not occur in it.",
)

EXERCISES = (
    THREE_MOMENTS,
    BYTES_FUNCTION,
    KV_HEAD_FUNCTION,
    KEY_MASK_FUNCTION,
    DECODE_STEP_FUNCTION,
    GIB,
    *FIND_THE_ERROR,
    PADDING_CHECK,
)

PREDICTIONS = (
    Prediction(
        id="21.1-p1",
        question=(
            "The prompt's pass can give a row of logits for each position. How many of these rows "
            "decide the first output?"
        ),
        kind=Number(),
        mistakes=(
            Mistake(
                "The text goes on after the last position, and that position has a row.",
                lambda rows: rows - 1,
            ),
        ),
        why="The row of the last position says what follows the prompt; the others look back.",
    ),
    Prediction(
        id="21.1-p2",
        question=(
            "One request, one layer, one KV head of width 2, a prompt of 3 tokens, 2 bytes a "
            "number. The prompt has been processed, and token four has just been selected. How "
            "many bytes do keys and values take at this moment?"
        ),
        kind=Number("bytes"),
        mistakes=(
            Mistake(
                "That is the size once token four has been processed.",
                lambda nbytes: nbytes // 3 * 4,
            ),
            Mistake("That counts keys only (or values only).", lambda nbytes: nbytes // 2),
        ),
        why="Selecting computes no keys and values. The pass that reads the token will.",
    ),
    Prediction(
        id="21.1-p3",
        question=(
            "Two KV heads of the trained model become one, the mean of the two. Nothing is "
            "trained afterwards. Does it answer as well as before?"
        ),
        kind=YesNo(),
        mistakes=(),
        why="Sharing heads makes another model, not another way to store the same one.",
    ),
    Prediction(
        id="21.1-p4",
        question=(
            "Two models differ in one thing: one has 8 KV heads, the other 2. How many times as "
            "many bytes do the first one's keys and values take?"
        ),
        kind=Number(),
        mistakes=(
            Mistake("That is the smaller part of the larger one.", lambda ratio: 1 / ratio),
            Mistake("Keys and values both shrink, by the same factor.", lambda ratio: ratio**2),
        ),
        why="The number of KV heads is one factor of eq 21.2, and nothing else in it changes.",
    ),
)
