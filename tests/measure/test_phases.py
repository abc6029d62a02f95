"""Work is counted as on paper and as torch counts it; budgets and interrupts keep what there is."""

import json
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kvlab import LLM, SamplingParams
from kvlab.measure import devices, phase_steps, phases, random_decoder, step_parts, step_work
from kvlab.measure.phases import PhaseRun, cases_of, default_cases, measure_phases
from kvlab.measure.roofline_records import Case, Phases
from kvlab.tensors import weight_counts
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

SMALL = ModelConfig(
    vocab_size=10,
    hidden_size=8,
    intermediate_size=12,
    num_layers=2,
    num_query_heads=4,
    num_kv_heads=2,
    head_dim=4,
    max_model_len=64,
)
CASES = (Case("prefill", 1, 8), Case("decode", 1, 8), Case("decode", 3, 20))


@pytest.fixture(scope="module")
def model() -> Decoder:
    return Decoder.random(SMALL)


# ---- counted work


def test_weights_of_a_layer_counted_by_hand():
    """q and o 4 heads, k and v 2, of 4 values from 8: 12 * 4 * 8 = 384; three of 8 x 12: 288."""
    assert weight_counts.layer_weights(SMALL) == 384 + 288
    assert weight_counts.head_weights(SMALL) == 80
    assert weight_counts.small_weights(SMALL) == 2 * 2 * 8 + 8


@pytest.mark.parametrize(
    ("query_len", "seq_len", "pairs"), [(1, 1, 1), (1, 6, 6), (3, 3, 6), (2, 5, 9), (4, 10, 34)]
)
def test_pairs_of_a_query_and_a_key_it_may_see(query_len, seq_len, pairs):
    assert step_work.causal_pairs(query_len, seq_len) == pairs
    mask = torch.ones(query_len, seq_len).tril(seq_len - query_len)
    assert int(mask.sum()) == pairs


def test_flops_of_a_mixed_step_counted_by_hand():
    """3 prompt positions and one decode over 6: 2 * 2 layers * 672 * 4 positions; two rows of
    logits; (1 + 2 + 3) + 6 pairs of 4 heads * 4 values * 4 in 2 layers."""
    found = step_work.step_flops(SMALL, [3, 1], [3, 6], logits_rows=2)
    assert found == {"weights": 10_752, "head": 320, "attention": 1_536}


def test_bytes_of_a_mixed_step_counted_by_hand():
    """Weights once, whatever the batch; 64 bytes a stored position in half precision."""
    found = step_work.step_nbytes(SMALL, [3, 1], [3, 6], 2, weight_itemsize=4, cache_itemsize=2)
    assert found == {
        "weights": (2 * 672 + 40 + 80) * 4,
        "embeddings": 4 * 8 * 4,
        "keys and values read": 9 * 64,
        "keys and values written": 4 * 64,
    }


def test_without_logits_the_head_is_neither_read_nor_multiplied():
    assert step_work.step_flops(SMALL, [3], [3], 0)["head"] == 0
    read = step_work.step_nbytes(SMALL, [3], [3], 0, 4, 4)["weights"]
    assert read == (2 * 672 + 40) * 4


def test_2n_flops_a_token_of_the_50_million():
    """N = 37,748,736 in the layers and, for a position with logits, 12,582,912 in the head."""
    config = random_decoder.CONFIG_50M
    found = step_work.case_flops(config, Case("decode", 1, 512))
    assert found["weights"] + found["head"] == 2 * 50_331_648
    assert found["attention"] == 4 * 16 * 64 * 3 * 513
    nbytes = step_work.case_nbytes(config, Case("decode", 1, 512), 4, 4)
    assert nbytes["weights"] == 4 * 50_338_816  # norms are read too
    assert nbytes["keys and values read"] == 513 * 2 * 3 * 8 * 64 * 4


def test_a_batch_reads_the_weights_once():
    one, four = (step_work.case_nbytes(SMALL, Case("decode", batch, 20), 4, 4) for batch in (1, 4))
    assert one["weights"] == four["weights"]
    assert 4 * one["keys and values read"] == four["keys and values read"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
        {"qk_norm": True, "num_kv_heads": 4},
    ],
)
def test_counted_weights_are_those_of_the_tensors(changes):
    config = ModelConfig(**{**vars(SMALL), **changes})
    built = Decoder(config)
    assert weight_counts.num_parameters(config) == built.num_parameters
    embedding = 0 if config.tie_word_embeddings else built.embed_tokens.weight.nbytes
    read = step_work.case_nbytes(config, Case("decode", 1, 3), 4, 4)["weights"]
    assert read == 4 * built.num_parameters - embedding


@pytest.mark.parametrize("case", [*CASES, Case("prefill", 3, 7), Case("prefill", 1, 64)])
def test_torch_counts_the_same_flops_in_the_real_step(model, case):
    """Its products are our weights and head. Its attention is the whole rectangle of queries and
    keys, ours the part that may be seen: equal in a decode, in a prefill (T + 1) / 2T of it. It
    counts attention where that is written out, so the plain form of it is asked for."""
    steps = phase_steps.Steps(model, [case])
    steps.prepare(case)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        steps.run(steps.output(case))
    counts = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    ours = step_work.case_flops(SMALL, case)
    products = sum(n for op, n in counts.items() if op in ("aten.mm", "aten.addmm"))
    assert products == ours["weights"] + ours["head"]
    attention = sum(counts.values()) - products
    seen = step_work.causal_pairs(case.query_len, case.seq_len)
    assert attention * seen == ours["attention"] * case.query_len * case.seq_len


# ---- steps


def test_a_step_computes_what_the_engine_computes(model):
    """The token that a decode over 20 positions selects is the engine's next one."""
    case = Case("decode", 3, 20)
    steps = phase_steps.Steps(model, [case])
    steps.prepare(case)
    found = {token.token_id for token in steps.run(steps.output(case)).values()}
    prompt = [(7 * position + 3) % 10 for position in range(21)]
    out = LLM(model, device="cpu").generate([prompt], SamplingParams(max_tokens=1))
    assert found == set(out[0].outputs[0].token_ids)


def test_a_context_filled_in_two_chunks_is_the_same(model, monkeypatch):
    case = Case("decode", 2, 21)
    whole, parts = phase_steps.Steps(model, [case]), phase_steps.Steps(model, [case])
    whole.prepare(case)
    monkeypatch.setattr(phase_steps, "CHUNK", 8)
    parts.prepare(Case("decode", 1, 5))  # another case came before
    parts.prepare(case)
    torch.testing.assert_close(parts.runner.cache.key_cache, whole.runner.cache.key_cache)
    first, second = whole.runner.cache.key_cache[:, :2], whole.runner.cache.key_cache[:, 2:4]
    assert torch.equal(first.flatten(1, 2)[:, :21], second.flatten(1, 2)[:, :21])
    assert first.abs().sum() > 0


def test_requests_of_a_batch_have_blocks_of_their_own(model):
    steps = phase_steps.Steps(model, [Case("decode", 3, 20), Case("prefill", 1, 40)])
    rows = steps.output(Case("decode", 3, 20)).requests
    assert [list(row.block_ids) for row in rows] == [[0, 1], [3, 4], [6, 7]]
    assert [(row.start, row.end) for row in rows] == [(20, 21)] * 3


# ---- measuring


def test_points_carry_counted_work_and_measured_seconds(model):
    found = measure_phases(model, CASES, repetitions=2, name="small")
    assert [str(p.case) for p in found.points] == ["prefill 1 x 8", "decode 1 x 8", "decode 3 x 20"]
    assert found.left_out == () and found.why_left_out == "" and not found.interrupted
    for point in found.points:
        assert len(point.seconds.repetitions) == 2
        assert 0 < point.seconds.min <= point.seconds.median <= point.seconds.max
        assert point.flops == sum(step_work.case_flops(SMALL, point.case).values())
        assert point.intensity == point.flops / point.nbytes
        assert point.flops_per_second == point.flops / point.seconds.median
        assert point.bytes_per_second == point.nbytes / point.seconds.median
    assert [p.num_tokens for p in found.points] == [8, 1, 3]
    assert (found.model, found.device, found.dtype) == ("small", "cpu", "float32")
    assert found.elapsed > sum(sum(p.seconds.repetitions) for p in found.points)


def test_bytes_are_those_of_the_weights_as_computed_and_of_the_cache_as_stored(model):
    (point,) = PhaseRun(model, CASES[1:2], repetitions=1, cache_dtype=torch.float16)
    assert point.nbytes_parts == step_work.case_nbytes(SMALL, CASES[1], 4, 2)


def test_a_cache_of_int8_is_measured_with_its_scales(model):
    """4 values and a scale of 4 bytes: 2 bytes a value. As a dtype it is no format of a cache."""
    run = PhaseRun(model, CASES[1:2], repetitions=1, cache_dtype="int8")
    (point,) = run
    assert run.result().cache_dtype == "int8"
    assert point.nbytes_parts == step_work.case_nbytes(SMALL, CASES[1], 4, 2)
    with pytest.raises(ValueError, match=r"cache_dtype is torch\.int8; give one of fp32"):
        PhaseRun(model, CASES[1:2], cache_dtype=torch.int8)


def test_a_prefill_does_more_flops_a_byte_than_a_decode(model):
    prefill, decode = measure_phases(model, CASES[:2], repetitions=1).points
    assert prefill.intensity > 4 * decode.intensity


def test_json_and_back(model):
    found = measure_phases(model, CASES, repetitions=1, seconds=1e-9)
    assert Phases.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_progress_names_the_case_before_it_is_measured(model):
    seen = []
    measure_phases(model, CASES, repetitions=1, progress=lambda *told: seen.append(told))
    assert seen == [(0, 3, CASES[0]), (1, 3, CASES[1]), (2, 3, CASES[2]), (3, 3, None)]


def test_a_spent_budget_keeps_the_first_point_and_lists_what_was_left_out(model):
    found = measure_phases(model, CASES, repetitions=5, seconds=1e-9)
    assert [p.case for p in found.points] == [CASES[0]]
    assert len(found.points[0].seconds.repetitions) == 1
    assert found.left_out == CASES[1:] and found.why_left_out == "time"
    assert found.budget == 1e-9


def test_a_case_that_would_not_fit_into_the_time_is_not_begun():
    """The first point says what a FLOP costs; 50 times what is left of the budget is not begun."""
    config = ModelConfig(**{**vars(SMALL), "max_model_len": 1 << 20})
    run = PhaseRun(Decoder.random(config), [Case("prefill", 1, 64), Case("prefill", 1, 1 << 17)])
    points = iter(run)
    first = next(points)
    work = sum(step_work.case_flops(config, run.cases[1]).values())
    run.budget = run.result().elapsed + work / first.flops_per_second / 50
    assert list(points) == []
    assert run.result().why_left_out == "time" and run.result().left_out == run.cases[1:]


def test_an_interrupt_keeps_what_was_measured(model):
    def interrupt(done, of, case):
        if done == 2:
            raise KeyboardInterrupt

    found = measure_phases(model, CASES, repetitions=1, progress=interrupt)
    assert found.interrupted and found.why_left_out == "interrupted"
    assert [p.case for p in found.points] == list(CASES[:2]) and found.left_out == CASES[2:]


def test_an_interrupt_within_a_step_ends_the_run_quietly(model):
    run = PhaseRun(model, CASES, repetitions=1)
    execute, calls = run.steps.runner.execute, []

    def interrupted(output):
        calls.append(output)
        if len(calls) == 4:  # the second case: after its warm-up
            raise KeyboardInterrupt
        return execute(output)

    run.steps.runner.execute = interrupted
    assert [p.case for p in run] == [CASES[0]]
    assert run.result().interrupted and run.result().left_out == CASES[1:]


def test_a_real_signal_interrupts_a_measurement():
    """Ctrl-C in a process of its own: it ends by itself and prints what it had."""
    program = (
        "import signal, sys\n"
        "from kvlab.measure.phases import measure_phases, cases_of\n"
        "from kvlab.measure.random_decoder import random_50m\n"
        "def at(done, of, case):\n"
        "    if done == 1 and case: signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
        "found = measure_phases(random_50m(), cases_of(((1,), (1, 2000))), progress=at)\n"
        "print(len(found.points), found.interrupted, found.why_left_out)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "True", "interrupted"]


def test_a_consumer_stops_a_run_between_points(model):
    run = PhaseRun(model, CASES, repetitions=1)
    seen = []
    for point in run:
        seen.append(point.case)
        run.stop()
    assert seen == [CASES[0]] and run.result().why_left_out == "stopped"
    assert run.result().left_out == CASES[1:] and not run.result().interrupted
    with pytest.raises(ValueError, match="iterated already"):
        list(run)


def test_cases_by_batch_sizes_and_lengths_and_the_default_ones(model):
    found = cases_of(prefill=((1, 2), (4, 8)), decode=((3,), (5,)))
    assert [str(case) for case in found] == [
        *("prefill 1 x 4", "prefill 1 x 8", "prefill 2 x 4", "prefill 2 x 8", "decode 3 x 5"),
    ]
    assert max(case.seq_len for case in default_cases(model)) == 64
    fifty = Decoder(random_decoder.CONFIG_50M)
    assert default_cases(fifty) == phases.DEFAULT
    assert {case.phase for case in default_cases(fifty)[:2]} == {"prefill", "decode"}


# ---- what a step's time goes to


def test_the_parts_of_a_step_sum_to_it(model):
    found = step_parts.step_parts(model, Case("decode", 2, 20), repetitions=2)
    assert list(found.parts) == [
        *("matrix products", "attention", "keys and values"),
        *("element by element", "views and buffers", "outside torch"),
    ]
    assert min(found.parts.values()) >= 0
    assert found.parts["matrix products"] > 0 and found.parts["keys and values"] > 0
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    shares = found.shares
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert str(found).startswith("decode 2 x 20: ")


def test_operations_fall_into_groups():
    names = ("mm", "_scaled_dot_product_flash_attention_for_cpu", "index_copy_", "silu", "view")
    assert [step_parts.group_of(f"aten::{name}") for name in names] == [
        *("matrix products", "attention", "keys and values"),
        *("element by element", "views and buffers"),
    ]


# ---- the random model


def test_the_random_model_has_50_million_parameters_and_repeats():
    one, two = random_decoder.random_50m(), random_decoder.random_50m()
    assert one.num_parameters == 50_338_816
    assert weight_counts.num_parameters(one.config) == 50_338_816
    weights = [m.layers[2].mlp.down_proj.weight for m in (one, two)]
    assert torch.equal(*weights)
    assert weights[0].std() > 0


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prompt", 1, 4), "phase is 'prompt'"),
        (("prefill", 0, 4), "batch is 0; give a whole number of at least 1"),
        (("decode", 1, -1), "length is -1"),
        (("decode", True, 4), "batch is True"),
        (("decode", 1, 2.5), "length is 2.5"),
    ],
)
def test_no_case(arguments, said):
    with pytest.raises(ValueError, match=said):
        Case(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cases": ()}, "there are no cases"),
        ({"cases": ["prefill"]}, "is no case"),
        ({"cases": 5}, r"cases is 5; give a list, such as \[Case"),
        ({"cases": [Case("prefill", 1, 65)]}, "needs 65 positions and this model has 64"),
        ({"cases": [Case("decode", 1, 64)]}, "decode 1 x 64 needs 65 positions"),
        ({"repetitions": 0}, "repetitions is 0"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": True}, "seconds is True"),
        ({"seconds": "20"}, "seconds is '20'; give a number above 0"),
        ({"block_size": 0}, "block_size is 0"),
    ],
)
def test_a_run_refuses_by_name(model, options, said):
    with pytest.raises(ValueError, match=said):
        PhaseRun(model, **{"cases": CASES, **options})


@pytest.mark.parametrize("sizes", [(1, 64), ((1,),), 5, ((1,), 64)])
def test_sizes_are_two_sequences(model, sizes):
    with pytest.raises(ValueError, match=r"prefill is .*; give batch sizes and lengths"):
        measure_phases(model, prefill=sizes)


def test_other_things_than_a_ready_decoder_are_refused(model):
    with pytest.raises(ValueError, match="model has type LLM; give a Decoder"):
        measure_phases(LLM(model, device="cpu"), CASES)
    with pytest.raises(ValueError, match="no weights"):
        measure_phases(Decoder(SMALL), CASES)
    with pytest.raises(ValueError, match="bfloat16 on a CPU; give float32"):
        measure_phases(model.converted(torch.bfloat16, "cpu"), CASES)


def test_what_exceeds_the_memory_is_refused_before_it_is_allocated():
    config = ModelConfig(**{**vars(SMALL), "max_model_len": 1 << 30})
    with pytest.raises(ValueError, match="give shorter prompts or smaller batches"):
        PhaseRun(Decoder.random(config), [Case("decode", 1 << 20, 1 << 25)])
    huge = ModelConfig(**{**vars(SMALL), "hidden_size": 1 << 20, "vocab_size": 1 << 30})
    with pytest.raises(ValueError, match=r"a decoder of .* parameters takes .* GiB"):
        random_decoder.random_decoder(huge)


def test_a_memory_that_is_not_told_refuses_nothing(monkeypatch):
    monkeypatch.setattr(devices, "free_nbytes", lambda _: None)
    assert devices.refuse_too_large(1 << 60, torch.device("cpu"), "this", "none") is None
