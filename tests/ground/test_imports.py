"""Which part of the house may import what, looked at in fresh interpreters."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "triton", "numpy", "tokenizers", "safetensors", "transformers"}
JUPYTER = {"IPython", "ipywidgets", "anywidget", "jupyterlab", "plotly", "matplotlib"}
CORE = [
    "admission",
    "arrivals",
    "attention_read",
    "bench_serve",
    "block_pool",
    "budget",
    "checked",
    "counters",
    "formats",
    "goodput",
    "hashing",
    "json_lines",
    "kept_logits",
    "kernel_log",
    "kv_cache_manager",
    "latency_record",
    "latency_summary",
    "layouts",
    "lengths",
    "memory",
    "metrics",
    "offload",
    "offload_queues",
    "offload_records",
    "offload_tier",
    "played",
    "policies",
    "prefix_cache",
    "prefix_lookup",
    "presets",
    "public_trace",
    "queues",
    "reasons",
    "recorder",
    "request",
    "schedule_log",
    "schedule_spans",
    "scheduler",
    "scheduler_config",
    "scheduler_output",
    "simulator",
    "sizes",
    "spec",
    "spec_families",
    "spec_heads",
    "spec_layers",
    "spec_read",
    "spec_state",
    "step_cost",
    "storage",
    "table_invariants",
    "trace",
    "transfers",
    "ttft",
    "whole_file",
    "windows",
    "workload",
]


def modules_after(statement):
    code = (
        f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_core_needs_the_standard_library_alone():
    loaded = modules_after("import " + ", ".join(f"kvlab.core.{name}" for name in CORE))
    assert loaded - set(sys.stdlib_module_names) == {"kvlab"}


def test_the_list_of_core_modules_is_complete():
    import pkgutil

    import kvlab.core

    assert [m.name for m in pkgutil.iter_modules(kvlab.core.__path__)] == CORE


def test_the_engine_and_its_plays_need_no_torch():
    loaded = modules_after("import kvlab.engine, kvlab.playing, kvlab.simulated_engine")
    assert loaded - set(sys.stdlib_module_names) == {"kvlab"}


@pytest.mark.parametrize(
    "statement", ["import kvlab", "from kvlab import SamplingParams, LLMEngine, Trace"]
)
def test_names_load_when_they_are_used(statement):
    assert not modules_after(statement) & (HEAVY | JUPYTER)


def test_a_whole_generation_needs_no_jupyter_package_and_no_transformers():
    loaded = modules_after("import kvlab; kvlab.LLM('tiny').generate([0, 2, 3])")
    assert "torch" in loaded
    assert not loaded & (JUPYTER | {"transformers"})
    assert "triton" not in loaded  # its mode must still be open, for kernels that are watched


def test_every_promised_name_is_there():
    import kvlab

    for name in kvlab.__all__:
        assert getattr(kvlab, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kvlab.no_such_name
