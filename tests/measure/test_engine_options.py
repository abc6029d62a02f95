"""The table of engines' options: complete, and true where the engine is installed."""

import inspect

import pytest

from kvlab import LLM
from kvlab.measure.engine_options import MECHANISMS, PREFIX, ROWS, UNIT, markdown, rows

NAMED = ["kvlab", "transformers, generate", "transformers, generate_batch", "vLLM", "SGLang"]
NAMED += ["TensorRT-LLM", "llama.cpp"]


def test_the_historical_example_and_todays_spelling():
    old, new = (
        next(r for r in rows("vLLM", version) if r.mechanism == PREFIX)
        for version in ("0.10.2", "0.33.0")
    )
    assert old.option == new.option == "--enable-prefix-caching, --no-enable-prefix-caching"
    assert (old.default, new.default) == ("on in V1", "on")


def test_every_engine_has_one_row_a_mechanism_with_its_source():
    assert list(dict.fromkeys(r.engine for r in ROWS)) == NAMED
    versions = {(r.engine, r.version) for r in ROWS}
    assert len(ROWS) == len(versions) * len(MECHANISMS) == 48
    for engine, version in versions:
        assert {r.mechanism for r in rows(engine, version)} == set(MECHANISMS)
    assert all(r.name and r.option and r.source for r in ROWS)


def test_the_rows_of_kvlab_are_its_signature():
    parameters = inspect.signature(LLM).parameters
    named = {r.option: r.default for r in rows("kvlab") if r.option != "none"}
    assert set(named) < set(parameters)
    assert {name: parameters[name].default for name in named} == {
        "block_size": 16,
        "num_blocks": None,
        "enable_prefix_caching": True,
        "cache_dtype": None,
        "cpu_blocks": None,
    }
    assert (named["block_size"], named["enable_prefix_caching"]) == ("16", "True")


def test_the_rows_of_transformers_are_those_of_the_installed_one():
    transformers = pytest.importorskip("transformers")
    batching = transformers.ContinuousBatchingConfig()
    named = {r.option: r.default for r in rows("transformers, generate_batch")}
    del named["none"]
    assert set(named) == {"page_size", "num_blocks", "allow_block_sharing", "cpu_offload_space"}
    for option, default in named.items():
        assert default.startswith(str(getattr(batching, option)))
    (version,) = {r.version for r in rows("transformers, generate")}
    assert transformers.GenerationConfig().cache_implementation is None
    assert version.split(".")[0] == transformers.__version__.split(".")[0]


def test_the_table_has_a_line_an_engine_and_a_column_a_mechanism():
    lines = markdown([UNIT], sources=True).splitlines()
    assert lines[:3] == [
        "| engine | unit of memory | looked up in |",
        "| --- | --- | --- |",
        "| **kvlab** this package | block: `block_size` (16) | `kvlab/llm.py` |",
    ]
    assert lines[-1] == "| **llama.cpp** b11434 | cell of one token | `src/llama-kv-cells.h` |"
    assert len(lines) == 2 + 8
    assert "`--ctx-size`, `--parallel`, `--kv-unified`" in markdown()


def test_what_is_not_there_is_refused_with_what_is():
    with pytest.raises(ValueError, match=r"no row of 'vLLM' 0\.1; there are .*'vLLM 0\.10\.2'"):
        rows("vLLM", "0.1")
    with pytest.raises(ValueError, match="no mechanism 'speed'; there are unit of memory"):
        markdown(["speed"])
