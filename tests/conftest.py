"""Settings for all tests: seeded hypothesis, one torch thread, small builders."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvlab",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kvlab")


def pytest_configure(config) -> None:
    try:
        import torch
    except ImportError:  # bookkeeping is tested without torch too
        return
    torch.set_num_threads(1)
    from kvlab import triton_mode

    triton_mode.choose()  # the interpreter, where there is no GPU, before a test imports triton
