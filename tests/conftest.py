"""Settings for all tests: seeded hypothesis, one torch thread, small builders."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvlab",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kvlab")


def pytest_configure(config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background job: tests
        signal.signal(signal.SIGINT, signal.default_int_handler)  # that interrupt would never end
    try:
        import torch
    except ImportError:  # bookkeeping is tested without torch too
        return
    torch.set_num_threads(1)
    from kvlab import triton_mode

    triton_mode.choose()  # the interpreter, where there is no GPU, before a test imports triton
