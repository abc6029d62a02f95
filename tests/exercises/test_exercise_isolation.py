"""A reader's function changes nothing for the page, and the page changes nothing for an answer."""

import random
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from kvlab.exercises import check
from kvlab.exercises.isolation import standard_settings
from kvlab.exercises.solutions.s21_1 import decode_step
from kvlab.exercises.solutions.s21_6 import slot

THREADS = torch.get_num_threads()


def settings():
    """What a page has set, in a form that can be compared."""
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    )


@pytest.fixture(autouse=True)
def as_it_was():
    """If a test fails, the next one begins as this one did."""
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_num_threads(THREADS)


def enter_inference_mode():
    enter_inference_mode.kept = torch.inference_mode()
    enter_inference_mode.kept.__enter__()


CHANGES = {
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "a device of another machine": lambda: torch.set_default_device("xpu"),
    "gradients": lambda: torch.set_grad_enabled(False),
    "inference": enter_inference_mode,
    "threads": lambda: torch.set_num_threads(THREADS + 1),
    "seeds": lambda: (torch.manual_seed(5), random.seed(5), np.random.seed(5)),
    "draws": lambda: (torch.rand(3), random.random(), np.random.rand()),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@each_change
def test_what_a_function_sets_is_put_back(change):
    def rude_step(q, k, v, keys, values):
        result = decode_step(q, k, v, keys, values)
        change()
        return result

    def failing_step(*args):
        change()
        raise ValueError("after the change")

    before = settings()
    assert check("21.1-5", rude_step).is_right
    assert settings() == before
    assert "raised ValueError: after the change" in check("21.1-5", failing_step).lines[0]
    assert settings() == before


@each_change
def test_what_a_function_sets_is_put_back_when_it_is_interrupted(change):
    def endless(*args):
        change()
        raise KeyboardInterrupt

    before = settings()
    with pytest.raises(KeyboardInterrupt):
        check("21.6-4", endless)
    assert settings() == before


def test_one_call_does_not_meet_what_the_last_one_set():
    seen = []

    def step(*args):
        seen.append((torch.get_default_dtype(), torch.tensor([]).device.type))
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        return decode_step(*args)

    check("21.1-5", step)
    assert len(seen) == 4 and set(seen) == {(torch.float32, "cpu")}


@pytest.mark.parametrize("name", ["dtype", "device", "gradients", "threads", "seeds", "draws"])
def test_what_the_page_has_set_changes_no_answer_and_stays(name):
    CHANGES[name]()
    before = settings()
    assert check("21.1-5", decode_step).is_right and check("21.6-4", slot).is_right
    assert check("21.1-1", [288, 288, 384]).is_right
    assert settings() == before


def test_a_default_device_that_is_missing_harms_no_answer():
    if torch.xpu.is_available():
        pytest.skip("this machine has the device")
    CHANGES["a device of another machine"]()
    assert check("21.1-5", decode_step).is_right


def test_a_default_device_of_the_page_stays():
    torch.set_default_device("meta")
    assert check("21.1-5", decode_step).is_right
    assert torch.empty(1).device.type == "meta"
    torch.set_default_device(None)
    with torch.device("meta"):
        assert check("21.1-5", decode_step).is_right
        assert torch.empty(1).device.type == "meta"
    assert torch.empty(1).device.type == "cpu"


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_inside_a_mode_of_the_page(mode):
    with mode():
        with standard_settings():
            assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
        assert check("21.1-5", decode_step).is_right
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


# ---- numbers that take long to write out


HUGE = (
    'Decimal("1e3000000")',
    'Decimal("-1e900000000")',
    'Decimal("1e-3000000")',
    'Decimal("1" * 10**6)',
    'Decimal("0." + "1" * 10**6)',
    "1 << 33_000_000",  # 10^7 digits
    "Fraction(1 << 33_000_000, 3)",
    "Fraction(3, 1 << 33_000_000)",
    '"1" * 10**6',
)


def test_a_huge_number_gets_a_verdict():
    """In an interpreter of its own, which is ended: a loop inside C hears no interruption."""
    code = (
        "from decimal import Decimal; from fractions import Fraction\n"
        "from kvlab.exercises import check, predict\n"
        f"for huge in ({', '.join(HUGE)}):\n"
        "    answers = {'21.1-6': huge, '21.6-1': huge, '21.1-1': [huge] * 3,\n"
        "               '21.6-4': lambda *a: huge}\n"
        "    print(*(box.state for box in check(answers).boxes)); predict('21.1-p2', huge)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert len(words) == 4 * len(HUGE) and set(words) == {"wrong", "unreadable"}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Decimal(10), "right"),
        (Decimal("1e1"), "right"),
        (Decimal("10.000"), "right"),
        (Fraction(20, 2), "right"),
        (Decimal("10.5"), "wrong"),
        (Fraction(21, 2), "wrong"),
        (Decimal("1e400"), "wrong"),
        (Decimal("1e401"), "unreadable"),
        (Decimal("nan"), "unreadable"),
        (Decimal("snan"), "unreadable"),
        (Decimal("-inf"), "unreadable"),
    ],
)
def test_decimals_and_fractions_are_read_exactly(answer, state):
    assert check("21.6-1", answer).state == state
