"""kvlab: the LLM KV cache as a textbook that runs. Names load when they are first used."""

import importlib

__version__ = "0.1.0"

_HOME = {
    "LLM": "kvlab.llm",
    "use": "kvlab.model_source",
    "chat_prompt": "kvlab.chat",
    "RequestOutput": "kvlab.outputs",
    "LLMEngine": "kvlab.engine",
    "SamplingParams": "kvlab.core.request",
    "Request": "kvlab.core.request",
    "BlockPool": "kvlab.core.block_pool",
    "KVCacheManager": "kvlab.core.kv_cache_manager",
    "PrefixCachePolicy": "kvlab.core.prefix_cache",
    "Scheduler": "kvlab.core.scheduler",
    "SchedulerConfig": "kvlab.core.scheduler_config",
    "Trace": "kvlab.core.trace",
    "Workload": "kvlab.core.workload",
    "play": "kvlab.playing",
    "SimulatedEngine": "kvlab.simulated_engine",
    "CostModel": "kvlab.core.step_cost",
    "kv_cache_bytes": "kvlab.core.memory",
    "growth_bytes": "kvlab.core.memory",
    "kv_cache_gib": "kvlab.core.memory",
    "ContiguousCache": "kvlab.tensors.kv_cache",
    "PagedCache": "kvlab.tensors.kv_cache",
    "Decoder": "kvlab.tensors.model",
    "NotEnoughMemory": "kvlab.tensors.out_of_memory",
    "ModelConfig": "kvlab.tensors.config",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kvlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
