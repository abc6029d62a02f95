"""Adapters of an engine: requests with different ones in a step, against merged weights, alone."""

import pytest
import torch

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, tiny
from kvlab.tensors.lora import PROJECTIONS, merge, random_adapter

CONFIG = ModelConfig(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_layers=3,
    num_query_heads=4, num_kv_heads=2, head_dim=8,
)  # fmt: skip
BASE = Decoder.random(CONFIG, 1)
ADAPTERS = {
    "x": random_adapter(CONFIG, 3, names=PROJECTIONS, size=0.6, seed=1),
    "y": random_adapter(CONFIG, 5, names=("k_proj", "v_proj", "down_proj"), size=0.6, seed=2),
}
MODELS = {None: BASE, **{name: merge(BASE, adapter) for name, adapter in ADAPTERS.items()}}
PROMPT = [7, 3, 9, 1, 4, 4, 8, 2, 30, 31, 5, 50, 6, 6, 12, 13]  # four blocks of 4
TOLERANCE = 1e-5
FREE = SamplingParams(max_tokens=9, ignore_eos=True)


def engine(model=BASE, *, load=True, **settings):
    llm = LLM(model, **{"block_size": 4, "num_blocks": 64} | settings)
    if load:
        for name, adapter in ADAPTERS.items():
            llm.load_adapter(name, adapter)
    return llm


def watched(llm):
    """{request_id: its selections' logits}, filled as the engine runs."""
    rows = {}

    def keep(found):
        for request_id, row in found.items():
            rows.setdefault(request_id, []).append(row.clone())

    llm.runner.on_logits = keep
    return rows


def alone(name, prompt, params=FREE):
    """(token ids, logits) of a prompt on merged weights, one request in the engine."""
    llm = engine(MODELS[name], load=False)
    rows = watched(llm)
    (out,) = llm.generate([prompt], params)
    return out.outputs[0].token_ids, torch.stack(rows[out.request_id])


def assert_as_if_alone(llm, asked, params=FREE):
    """Serve (adapter, prompt) pairs together; each as on its own merged weights."""
    rows = watched(llm)
    outs = llm.generate([p for _, p in asked], params, adapter=[name for name, _ in asked])
    for (name, prompt), out in zip(asked, outs, strict=True):
        tokens, logits = alone(name, prompt, params)
        assert out.outputs[0].token_ids == tokens
        assert (torch.stack(rows[out.request_id]) - logits).abs().max() < TOLERANCE
    llm.engine.scheduler.check_invariants()
    return outs


MIXED = [(None, PROMPT), ("x", PROMPT), ("y", PROMPT[:5]), ("x", PROMPT[:11]), (None, PROMPT[:3])]


def test_the_adapters_change_what_is_said():
    said = [alone(name, PROMPT)[0] for name in (None, "x", "y")]
    assert len(set(said)) == 3


class TestServedTogether:
    def test_in_one_step(self):
        assert_as_if_alone(engine(), MIXED)

    def test_all_with_the_same(self):
        assert_as_if_alone(engine(), [("x", PROMPT), ("x", PROMPT[:7])])

    @pytest.mark.parametrize("budget", [1, 3, 7])
    def test_in_chunks(self, budget):
        assert_as_if_alone(engine(max_num_batched_tokens=budget, max_num_seqs=8), MIXED)

    def test_preempted(self):
        llm = engine(num_blocks=9)
        llm.start_trace()
        assert_as_if_alone(llm, [(None, PROMPT), ("x", PROMPT), ("y", PROMPT)])
        assert "preempted" in {e.kind for e in llm.stop_trace().events}

    def test_preempted_into_the_cpu_tier(self):
        llm = engine(num_blocks=9, cpu_blocks=32, preempt_by="offload")
        assert_as_if_alone(llm, [(None, PROMPT), ("x", PROMPT), ("y", PROMPT)])
        assert llm.offload_stats.requests_offloaded > 0

    def test_found_again_in_the_cpu_tier(self):
        llm = engine(num_blocks=8, cpu_blocks=64)
        for _ in range(2):
            outs = [assert_as_if_alone(llm, [(name, PROMPT)])[0] for name in (None, "x", "y")]
        assert [out.num_cached_tokens for out in outs] == [12, 12, 12]
        assert llm.offload_stats.blocks_loaded > 0

    def test_several_continuations(self):
        llm, params = engine(), SamplingParams(max_tokens=6, n=3, temperature=1.0, seed=5)
        outs = llm.generate([PROMPT, PROMPT], params, adapter=["x", None])
        for name, out in zip(("x", None), outs, strict=True):
            (wanted,) = engine(MODELS[name], load=False).generate([PROMPT], params)
            assert [o.token_ids for o in out.outputs] == [o.token_ids for o in wanted.outputs]

    def test_kept_logits_are_the_adapters_own(self):
        from kvlab import PrefixCachePolicy

        llm = engine(prefix_cache_policy=PrefixCachePolicy(kept_logits=8))
        for _ in range(2):
            outs = assert_as_if_alone(llm, [("x", PROMPT), (None, PROMPT)])
        assert [out.num_cached_tokens for out in outs] == [16, 16]


class TestPrefixes:
    def hits(self, llm, name):
        (out,) = llm.generate([PROMPT], FREE, adapter=name)
        return out.num_cached_tokens

    def test_only_requests_of_one_adapter_share(self):
        llm = engine()
        assert [self.hits(llm, name) for name in (None, "x", "y", "x", None, "y")] == [
            0, 0, 0, 12, 12, 12,
        ]  # fmt: skip

    def test_other_weights_under_the_same_name(self):
        llm = engine()
        assert [self.hits(llm, "x"), self.hits(llm, "x")] == [0, 12]
        old = llm.adapters["x"]
        new = llm.load_adapter("x", random_adapter(CONFIG, 3, names=PROJECTIONS, seed=9))
        assert new != old and set(llm.adapters) == {"x", "y"}
        assert [self.hits(llm, "x"), self.hits(llm, "x")] == [0, 12]

    def test_the_same_weights_under_another_name_or_loaded_again(self):
        llm = engine()
        assert self.hits(llm, "x") == 0
        assert llm.load_adapter("z", ADAPTERS["x"]) == llm.adapters["x"]
        assert self.hits(llm, "z") == 12
        llm.unload_adapter("x")
        assert self.hits(llm, "z") == 12
        llm.unload_adapter("z")
        assert llm.adapters.keys() == {"y"} and len(llm.runner.adapters) == 1
        llm.load_adapter("x", ADAPTERS["x"])
        assert self.hits(llm, "x") == 12

    def test_merged_weights_are_another_configuration(self):
        llm = engine()
        roots = {
            m.engine.scheduler.manager.prefix.root
            for m in (llm, engine(llm.merge_adapter("x")), engine(BASE, load=False))
        }
        assert len(roots) == 2


class TestRefusals:
    def test_a_name_that_is_not_loaded(self):
        llm = engine()
        for call in (
            lambda: llm.generate([PROMPT], FREE, adapter="poet"),
            lambda: llm.generate([PROMPT, PROMPT], FREE, adapter=["x", "poet"]),
            lambda: llm.stream(PROMPT, FREE, adapter="poet"),
            lambda: llm.unload_adapter("poet"),
            lambda: llm.merge_adapter("poet"),
        ):
            with pytest.raises(ValueError, match="'poet' is not loaded; loaded: 'x', 'y'"):
                call()
        assert not llm.engine.requests and list(llm.adapters) == ["x", "y"]
        with pytest.raises(ValueError, match=r"loaded: none; load_adapter\(\) loads one"):
            engine(load=False).generate([PROMPT], FREE, adapter="x")

    @pytest.mark.parametrize("bad", [5, "", b"x", {"x": 1}, True])
    def test_a_name_that_is_none(self, bad):
        with pytest.raises(ValueError, match="is not loaded"):
            engine().generate([PROMPT], FREE, adapter=bad)
        with pytest.raises(ValueError, match=r"name is|give a folder or an Adapter"):
            engine().load_adapter("" if isinstance(bad, str) else bad, ADAPTERS["x"])

    def test_too_few_names(self):
        with pytest.raises(ValueError, match="2 prompts and 1 adapters"):
            engine().generate([PROMPT, PROMPT], FREE, adapter=["x"])

    def test_the_engine_takes_identities_that_are_loaded(self):
        llm = engine()
        llm.engine.add_request(PROMPT, FREE, adapter=llm.adapters["x"])
        with pytest.raises(ValueError, match=r"adapter 'x' is not loaded; .*LLM.load_adapter"):
            llm.engine.add_request(PROMPT, FREE, adapter="x")
        assert len(llm.engine.requests) == 1
        llm.engine.run()

    def test_in_use(self):
        llm = engine()
        (request,) = llm.engine.add_request(PROMPT, FREE, adapter=llm.adapters["x"])
        llm.step()
        for call in (
            lambda: llm.unload_adapter("x"),
            lambda: llm.load_adapter("x", random_adapter(CONFIG, seed=8)),
        ):
            with pytest.raises(ValueError, match="adapter 'x' is in use by r1"):
                call()
        llm.load_adapter("x", ADAPTERS["x"])  # the same weights: nothing to replace
        llm.engine.run()
        assert request.output_token_ids == list(alone("x", PROMPT)[0])
        llm.unload_adapter("x")
        assert list(llm.adapters) == ["y"]

    def test_what_is_no_adapter(self):
        llm = engine()
        for source, words in (
            (3, "give a folder or an Adapter"),
            ("nowhere", "is not a folder"),
            (random_adapter(Decoder.random(CONFIG, 1).config, 3, names=("q_proj",)), None),
        ):
            if words is None:
                assert len(llm.load_adapter("z", source)) == 64
                continue
            with pytest.raises(ValueError, match=words):
                llm.load_adapter("z", source)
            assert "z" not in llm.adapters


def test_streamed():
    llm = LLM("tiny")
    llm.load_adapter("short", tiny.SHORT_ANSWERS)
    prompt = tiny.prompt("The key is red. Ada likes soup.", "What colour is the key?")
    params = SamplingParams(max_tokens=8)
    said = {
        name: "".join(delta.text for delta in llm.stream(prompt, params, adapter=name))
        for name in (None, "short")
    }
    assert said == {None: " The key is red.", "short": " red."}


def test_without_adapters_the_model_is_called_as_ever():
    llm, seen = engine(), []
    bound = llm.model.forward
    llm.model.forward = lambda *args: seen.append(len(args)) or bound(*args)
    try:
        llm.generate([PROMPT], FREE)
        llm.generate([PROMPT], FREE, adapter="x")
    finally:
        del llm.model.forward
    assert set(seen[:9]) == {3} and set(seen[9:]) == {4}
