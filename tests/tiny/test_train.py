"""Training of the tiny model: documents, weights of the loss, steps, runs and the gate."""

import json
import random
import re
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import tiny
from kvlab.llm import LLM
from kvlab.tensors.checkpoint import load_model
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.head_sharing import mean_pool_kv_heads
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import NoCache
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tiny import gate, recipe, train, vocabulary
from kvlab.tiny.batches import Batch, Encoder, LossWeights
from kvlab.tiny.corpus import RELATIONS, cases, is_held_out, num_tokens
from kvlab.tiny.documents import NOT_SAID, Mix, absent_question, document
from kvlab.tiny.muon import Muon, orthogonal
from kvlab.tiny.trainer import Rates, Trainer, batch_logits, batch_loss, parameter_groups
from kvlab.tiny.training_folder import TrainingFolder

ALL_KINDS = Mix(notes=0.4, chat=0.3, drills=0.2, reworded=0.3, absent=0.2, chapter=0.3)


@pytest.fixture(scope="module")
def shipped() -> Decoder:
    return load_model(tiny.FOLDER)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The shipped tokenizer with every word that the documents need."""
    folder = tmp_path_factory.mktemp("words")
    vocabulary.write_tokenizer(tiny.FOLDER, folder, vocabulary.missing_words(tiny.FOLDER))
    return Tokenizer(folder)


def state_of(model: Decoder) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def small_batch(rows: int = 4, context: int = 96, seed: int = 0) -> Batch:
    rng = random.Random(seed)
    encoder = Encoder(Tokenizer(tiny.FOLDER))
    return encoder.batch([document(rng, context, Mix(max_facts=3)) for _ in range(rows)], context)


# ---- documents


def test_a_document_of_one_kind_repeats_with_its_seed() -> None:
    mix = Mix(notes=1, chat=0, max_facts=2, reworded=0)
    text = document(random.Random(2), 64, mix)
    assert text == document(random.Random(2), 64, mix)
    assert text != document(random.Random(3), 64, mix)
    assert text.startswith("<|endoftext|><|") and text.endswith(".<|end|>")


@given(seed=st.integers(0, 10**9), length=st.sampled_from([64, 100, 128, 256, 700]))
@settings(max_examples=40)
def test_every_document_fits_its_context_in_known_words(
    words: Tokenizer, seed: int, length: int
) -> None:
    text = document(random.Random(seed), length, ALL_KINDS)
    ids = words.encode(text)
    assert len(ids) == num_tokens(text) <= length
    full_stop, comma, question = (words.backend.token_to_id(sign) for sign in ".,?")
    assert {i for i in ids if 5 <= i < 261} <= {full_stop, comma, question}


@given(seed=st.integers(0, 10**9), length=st.sampled_from([128, 400]))
@settings(max_examples=40)
def test_no_held_out_pair_is_ever_stated_or_answered(seed: int, length: int) -> None:
    text = document(random.Random(seed), length, ALL_KINDS)
    assert not [fact for fact in facts_in(text) if is_held_out(*fact[1:])]


def facts_in(text: str) -> list[tuple[str, str, str]]:
    """(sentence, subject, value) of each sentence that states a fact in a wording of RELATIONS."""
    found = []
    for sentence in re.findall(r"[^.?>|]+\.", text):
        for relation in RELATIONS:
            for wording in (relation.answer, relation.other_wording):
                form = re.escape(wording).replace(r"\{s\}", r"(\w+)").replace(r"\{v\}", r"(\w+)")
                match = re.fullmatch(form, sentence.strip())
                swapped = wording.index("{v}") < wording.index("{s}")
                if not match:
                    continue
                subject, value = reversed(match.groups()) if swapped else match.groups()
                if subject in relation.subjects and value in relation.values:
                    found.append((sentence, subject, value))
    return found


def test_facts_are_found_where_they_stand() -> None:
    text = (
        "<|system|> Ada likes soup. The job of Ben is a cook. The owner of the hat is Ida.<|end|>"
    )
    assert [fact[1:] for fact in facts_in(text)] == [("Ada", "soup"), ("hat", "Ida")]


@given(seed=st.integers(0, 10**9))
@settings(max_examples=40)
def test_the_notes_say_what_is_answered_and_nothing_of_what_is_declined(seed: int) -> None:
    mix = Mix(notes=0.6, chat=0.4, reworded=0.3, absent=0.3, chapter=0.3)
    text = document(random.Random(seed), 400, mix)
    turns = re.findall(r"<\|user\|> (.*?)<\|end\|><\|assistant\|> (.*?)<\|end\|>", text)
    for question, answer in turns:
        before = text[: text.index(f"{question}<|end|><|assistant|> {answer}")] + question
        stated = {fact[1:] for fact in facts_in(before)}
        if answer == NOT_SAID:
            asked = question_asked(question)
            assert asked is not None
            relation, subject = asked
            assert not [v for s, v in stated if s == subject and v in relation.values]
        else:
            assert all(fact[1:] in stated for fact in facts_in(f" {answer}"))


def question_asked(turn: str):
    for relation in RELATIONS:
        form = re.escape(relation.question).replace(r"\{s\}", r"(\w+)")
        match = re.search(rf"(?:^|[.?] ){form}$", turn)
        if match and match.group(1) in relation.subjects:
            return relation, match.group(1)
    return None


def test_absent_questions_come_near_the_facts() -> None:
    (case,) = cases(1, 2, seed=0, num_sentences=1, num_rules=(1, 1), in_question=0)
    lines = [gate.asked_fact(case)]  # The mirror costs 68 coins.
    rng = random.Random(0)
    asked = [absent_question(rng, case.prompt, lines) for _ in range(200)]
    assert case.question not in asked
    assert any(question.startswith("How much is the ") for question in asked)
    assert "What colour is the mirror?" in asked and "Where is the mirror?" in asked
    assert "What does George play?" not in asked  # the notes say it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"absent": 1.5}, "absent is 1.5; a share is from 0 to 1"),
        ({"notes": 0.8, "chat": 0.3}, r"notes 0\.8 and chat 0\.3 are more than 1"),
        ({"max_facts": 0}, "max_facts is 0; give 1 to 64"),
    ],
)
def test_a_mix_that_cannot_be(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mix(**change)
    with pytest.raises(ValueError, match="length is 63; a document needs at least 64"):
        document(random.Random(0), 63, Mix())


# ---- vocabulary


def test_one_word_is_one_token_and_old_ids_keep_their_meaning(words: Tokenizer) -> None:
    needed = vocabulary.needed_words()
    old = Tokenizer(tiny.FOLDER)
    assert len(needed) == len(set(needed)) == len(words.encode(" ".join(needed)))
    for i in range(old.vocab_size):
        assert words.backend.id_to_token(i) == old.backend.id_to_token(i)
    for sentence in ("You are a helpful AI writer.", NOT_SAID, "the flags as children laughed"):
        assert len(words.encode(f" {sentence}")) == num_tokens(sentence)


def test_new_words_leave_the_logits_of_old_ones(shipped: Decoder) -> None:
    wider = vocabulary.with_new_words(shipped, 3)
    ids, positions = torch.tensor([0, 1, 300, 4]), torch.arange(4)
    old, new = (m.compute_logits(m(ids, positions, NoCache())) for m in (shipped, wider))
    torch.testing.assert_close(new[:, :-3], old)
    assert wider.config.vocab_size == shipped.config.vocab_size + 3
    assert wider.lm_head.weight is wider.embed_tokens.weight
    assert (new[:, -3:] < new.max(dim=1, keepdim=True).values).all()


# ---- weights of the loss


def test_values_weigh_three_what_is_only_read_a_tenth() -> None:
    text = (
        "<|endoftext|><|system|> Ada likes soup.<|end|><|user|> What does Ada like?<|end|>"
        "<|assistant|> Ada likes soup.<|end|>"
    )
    batch = Encoder(Tokenizer(tiny.FOLDER)).batch([text], 24)
    tokens = [Tokenizer(tiny.FOLDER).token_text(i).strip() for i in batch.targets[0].tolist()]
    pairs = list(zip(tokens, [round(w, 6) for w in batch.weights[0].tolist()], strict=True))
    read = ["<|system|>", "Ada", "likes", "soup", ".", "<|end|>", "<|user|>", "What", "does"]
    read += ["Ada", "like", "?", "<|end|>", "<|assistant|>"]
    assert pairs == [
        *((token, 0.1) for token in read),
        *(("Ada", 3.0), ("likes", 1.0), ("soup", 3.0), (".", 1.0), ("<|end|>", 1.0)),
        *[("<|endoftext|>", 0.0)] * 5,
    ]
    assert batch.inputs[0, 1:].tolist() == batch.targets[0, :-1].tolist()


def test_a_story_decides_nothing_and_declining_decides_from_its_first_word(
    words: Tokenizer,
) -> None:
    encoder = Encoder(words, LossWeights(value=5.0, said=1.0, told=2.0, read=0.5))
    story = words.encode("<|assistant|> Ada had a red hat. Ben saw soup.<|end|>")
    assert encoder.token_weights(story) == [0.5] + [2.0] * 11
    declined = words.encode(f"<|user|> Who?<|end|><|assistant|> {NOT_SAID}<|end|><|user|> Who?")
    assert encoder.token_weights(declined) == [0.5] * 5 + [5.0] * 7 + [0.5] * 3


def test_a_document_that_is_too_long_for_its_row() -> None:
    with pytest.raises(ValueError, match="a document has 8 tokens; a row of context 6 holds 7"):
        Encoder(Tokenizer(tiny.FOLDER)).batch(["<|user|> Ada likes soup and honey.<|end|>"], 6)


def test_padding_and_weights_of_zero_count_nothing(shipped: Decoder) -> None:
    batch = small_batch(rows=1)
    alone = batch_loss(shipped, batch)
    padded = Batch(*(torch.cat((x, x.new_zeros(1, 7)), dim=1) for x in vars(batch).values()))
    torch.testing.assert_close(batch_loss(shipped, padded), alone)
    empty = Batch(batch.inputs, batch.targets, torch.zeros_like(batch.weights))
    with pytest.raises(ValueError, match="every weight of the batch is 0"):
        batch_loss(shipped, empty)


# ---- steps


def test_rows_of_a_batch_are_sequences_of_their_own(shipped: Decoder) -> None:
    inputs = small_batch(rows=3).inputs
    together = batch_logits(shipped, inputs).unflatten(0, inputs.shape)
    for row, logits in zip(inputs, together, strict=True):
        alone = shipped.compute_logits(shipped(row, torch.arange(len(row)), NoCache()))
        torch.testing.assert_close(logits, alone, atol=1e-4, rtol=1e-4)


def test_training_attends_within_the_windows_that_a_layer_has() -> None:
    sizes = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 32)
    heads = {"num_layers": 2, "num_query_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    model = Decoder.random(ModelConfig(**sizes, **heads, sliding_window=3), 0)
    inputs = torch.randint(0, 32, (2, 9), generator=torch.Generator().manual_seed(1))
    for row, logits in zip(inputs, batch_logits(model, inputs).unflatten(0, (2, 9)), strict=True):
        alone = model.compute_logits(model(row, torch.arange(9), NoCache()))
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-4)


def test_gradients_reach_every_parameter(shipped: Decoder) -> None:
    trainer = Trainer(shipped, Rates())
    batch_loss(trainer.model, small_batch()).backward()
    names = [name for name, parameter in trainer.model.named_parameters()]
    for name, parameter in trainer.model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    muon, adam = parameter_groups(trainer.model)
    assert sum(len(group["params"]) for group in (*muon, *adam)) == len(names)
    assert [group["splits"] for group in muon] == [[128, 64, 64], [384, 384], None]


def test_a_few_steps_lower_the_loss_and_the_given_model_stays(shipped: Decoder) -> None:
    before, batch = state_of(shipped), small_batch()
    trainer = Trainer(mean_pool_kv_heads(shipped, 1), Rates(muon=0.01, adam=1e-3))
    losses = [trainer.step(batch) for _ in range(8)]
    assert losses[-1] < 0.6 * losses[0]
    own = Trainer(shipped, Rates())
    own.step(batch)
    assert same(state_of(shipped), before)
    assert not same(state_of(own.model), before)
    assert not any(parameter.requires_grad for parameter in shipped.parameters())


def test_orthogonal_keeps_directions_and_evens_sizes() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((2, 24, 16), (2, 16, 24)):
        matrices = torch.randn(shape, generator=generator)
        got = orthogonal(matrices)
        left, _, right = torch.linalg.svd(matrices, full_matrices=False)
        assert (torch.linalg.svdvals(got) - 1).abs().max() < 0.35
        inner = left.mT @ got @ right.mT  # diagonal if the singular vectors are kept
        assert (inner - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-4


def test_stacked_matrices_step_as_they_would_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, 8, generator=generator) for n in (8, 4, 4)]
    gradients = [torch.randn(p.shape, generator=generator) * 10**i for i, p in enumerate(parts)]

    def stepped(weights, grads, splits):
        parameters = [torch.nn.Parameter(w.clone()) for w in weights]
        muon = Muon([{"params": parameters, "splits": splits}])
        for _ in range(2):
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad = grad.clone()
            muon.step()
        return torch.cat([p.data for p in parameters])

    whole = stepped([torch.cat(parts)], [torch.cat(gradients)], [8, 4, 4])
    torch.testing.assert_close(whole, stepped(parts, gradients, None))
    merged = stepped([torch.cat(parts)], [torch.cat(gradients)], None)
    assert (merged - whole).abs().max() > 0.005


# ---- fine_tune


def test_fine_tuning_repeats_and_leaves_the_given_model(shipped: Decoder) -> None:
    before, seen = state_of(shipped), []
    short = {"context": 64, "batch_tokens": 128}
    first = train.fine_tune(
        shipped, 2, seed=3, **short, progress=lambda step, loss: seen.append((step, loss))
    )
    again = train.fine_tune(shipped, 2, seed=3, **short)
    other = train.fine_tune(shipped, 2, seed=4, **short)
    assert same(state_of(first), state_of(again))
    assert not same(state_of(first), state_of(other))
    assert same(state_of(shipped), before)
    assert [step for step, _ in seen] == [0, 1] and all(loss > 0 for _, loss in seen)
    assert first.has_weights and not first.training
    assert not any(parameter.requires_grad for parameter in first.parameters())


def test_a_pooled_model_forgets_and_a_few_steps_begin_to_mend_it(shipped: Decoder) -> None:
    pooled = mean_pool_kv_heads(shipped, 1)
    intact, hurt = (train.held_out_loss(m, count=8) for m in (shipped, pooled))
    mended = train.held_out_loss(train.fine_tune(pooled, 6), count=8)
    assert intact < 0.05 and hurt > 2 and mended < 0.8 * hurt
    assert train.held_out_loss(pooled, count=8) == hurt
    assert train.held_out_loss(pooled, count=8, seed=1) != hurt


def test_an_interrupt_ends_the_training_and_harms_nothing(shipped: Decoder) -> None:
    before = state_of(shipped)

    def interrupt(step: int, loss: float) -> None:
        if step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train.fine_tune(shipped, 5, context=64, batch_tokens=64, progress=interrupt)
    assert same(state_of(shipped), before)
    assert not any(parameter.requires_grad for parameter in shipped.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_steps": 0}, "num_steps is 0; give an integer of at least 1"),
        ({"num_steps": 2.5}, "num_steps is 2.5"),
        ({"num_steps": 1, "context": 32}, r"contexts are \(32,\); give lengths of at least 64"),
        ({"num_steps": 1, "context": 1025, "batch_tokens": 2048}, "the decoder has 1024 positions"),
        ({"num_steps": 1, "context": 128, "batch_tokens": 64}, "batch_tokens is 64"),
        ({"num_steps": 1, "warm_up": 0}, "warm_up is 0"),
        ({"num_steps": 1, "muon_rate": -1.0}, "muon is -1.0; a learning rate is above 0"),
    ],
)
def test_fine_tuning_that_cannot_be(shipped: Decoder, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train.fine_tune(shipped, **arguments)


def test_a_decoder_of_another_vocabulary_is_refused(shipped: Decoder) -> None:
    wider = vocabulary.with_new_words(shipped, 50)
    with pytest.raises(ValueError, match=r"the decoder knows \d+ ids, the tokenizer in"):
        train.fine_tune(wider, 1)
    with pytest.raises(ValueError, match="the decoder knows"):
        train.held_out_loss(wider)
    with pytest.raises(ValueError, match="count is 0"):
        train.held_out_loss(shipped, count=0)


# ---- recipes and runs


def test_rates_rise_stay_and_fall() -> None:
    mix = Mix()
    plan = recipe.Settings(
        (recipe.Stage(600, (64,), mix), recipe.Stage(400, (128,), mix)),
        batch_tokens=128, warm_up=4, constant=0.5, final=0.1,
    )  # fmt: skip
    assert plan.num_tokens == 1000
    assert [plan.factor(step, 0) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [round(plan.factor(9, seen), 6) for seen in (500, 750, 1000)] == [1.0, 0.55, 0.1]
    assert plan.stage_at(599).contexts == (64,) and plan.stage_at(600).contexts == (128,)
    assert plan.stage_at(5000).contexts == (128,)


def short_settings(seed: int = 0, tokens: int = 384) -> recipe.Settings:
    mix = Mix(notes=0.9, chat=0.0, max_facts=2, absent=0.2)
    stages = (recipe.Stage(tokens, (64, 96), mix),)
    return recipe.Settings(stages, seed, Rates(0.01, 1e-3), batch_tokens=96, warm_up=2)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path) -> None:
    plan = short_settings()

    def steps(name: str, stops: list[int]) -> dict[str, torch.Tensor]:
        for stop in [*stops, 5]:
            folder = TrainingFolder(tmp_path / name, plan, "shipped")
            trainer, encoder = Trainer(folder.model(0), plan.rates), Encoder(folder.tokenizer)
            step, seen = folder.restore(trainer)
            while step < stop:
                trainer.step(train.batch_of(plan, encoder, step, seen), plan.factor(step, seen))
                step, seen = step + 1, seen + 96
            folder.save(trainer, step, seen)
        return state_of(trainer.model)

    assert same(steps("through", []), steps("stopped", [1, 3]))
    assert LLM(tmp_path / "stopped").model.config.eos_token_ids == (4,)


def test_a_start_from_nothing_looks_a_few_tokens_back(tmp_path) -> None:
    folder = TrainingFolder(tmp_path / "run", short_settings(), None)
    model = folder.model(seed=0)
    assert same(state_of(model), state_of(folder.model(seed=0)))
    assert not same(state_of(model), state_of(folder.model(seed=1)))
    seen = {}

    class Watch(NoCache):
        def __call__(self, layer, query, key, value):
            seen.setdefault(layer, (query, key))
            return super().__call__(layer, query, key, value)

    ids = torch.randint(261, 958, (300,), generator=torch.Generator().manual_seed(0))
    model(ids, torch.arange(300), Watch())
    query, key = (x.transpose(0, 1) for x in seen[0])  # [4, t, d], [2, t, d]
    scores = query @ key.repeat_interleave(2, dim=0).transpose(1, 2)  # [4, t, t]
    by_distance = torch.stack([scores.diagonal(-j, 1, 2).mean(dim=1) for j in range(12)])
    assert by_distance.argmax(dim=0).tolist() == [1, 2, 3, 4]


def test_a_folder_with_something_else_is_left_alone(tmp_path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(ValueError, match="holds something else than a training run"):
        TrainingFolder(tmp_path, short_settings(), "shipped")
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(ValueError, match=r"letter.txt is a file; give a folder"):
        TrainingFolder(tmp_path / "letter.txt", short_settings(), "shipped")
    with pytest.raises(ValueError, match="missing; give a folder in Hugging Face layout"):
        TrainingFolder(tmp_path / "new", short_settings(), str(tmp_path))
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny.FOLDER / name).read_bytes())
    merging = {"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(merging))
    with pytest.raises(ValueError, match="no tokenizer of whole words; start from the tiny"):
        TrainingFolder(tmp_path / "new", short_settings(), str(tmp_path))
    assert not (tmp_path / "new").exists()
    TrainingFolder(tmp_path / "run", short_settings(), "shipped")
    with pytest.raises(ValueError, match="holds a run with other settings"):
        TrainingFolder(tmp_path / "run", short_settings(seed=1), "shipped")


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    return train.main()


def test_the_command_trains_and_its_gate_refuses_weights_that_know_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setattr(train, "from_scratch", lambda seed: short_settings(seed, 192))
    monkeypatch.setattr(train, "REPORTED", 2)
    monkeypatch.setattr(gate, "FACTS", {"4 facts": {"num_facts": 4}})
    monkeypatch.setattr(gate, "DAMAGES", ("nothing", "fact exchanged"))
    assert run_command(monkeypatch, "--out", str(tmp_path / "run"), "--cases", "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step     2  0.00 M tokens  loss ")
    assert re.search(r"^4 facts +0 of 2 +2  >= 2 +FAIL$", "\n".join(lines), flags=re.MULTILINE)
    assert lines[-1] == "The gate is NOT passed; keep the shipped weights."
    assert json.loads((tmp_path / "run" / "run.json").read_text())["step"] == 2
    assert run_command(monkeypatch, "--out", str(tmp_path / "other"), "--minutes", "0") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "The time is up. The same command goes on."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "-1"], "--minutes not below 0"),
        (["--cases", "0"], "--cases and --every must be above 0"),
        (["--init", "nowhere"], "missing; give a folder in Hugging Face layout"),
    ],
)
def test_a_command_that_cannot_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys, tmp_path, arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_command(monkeypatch, "--out", str(tmp_path / "run"), *arguments)
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


# ---- the gate


def test_the_shipped_weights_pass_what_compares_them_with_themselves(monkeypatch) -> None:
    monkeypatch.setattr(gate, "FACTS", {"2 facts": {"num_facts": 2}})
    llm = LLM("tiny", device="cpu")
    found = {figure.name: figure for figure in gate.figures(llm, llm, count=3)}
    assert found["2 facts"].count == found["2 facts"].shipped == 3
    assert found["fact exchanged: the other value"].count == 3
    assert found["one fact of each form, alone"].of == 15
    assert all(f.passes for name, f in found.items() if not name.startswith("absent"))


def test_a_figure_says_its_bound_and_whether_it_holds() -> None:
    worse = gate.Figure("4 facts", 99, 100, shipped=100, at_least=100)
    assert str(worse).split() == ["4", "facts", "99", "of", "100", "100", ">=", "100", "FAIL"]
    assert gate.Figure("lost", 10, 100, at_most=10).passes
    assert not gate.Figure("lost", 11, 100, at_most=10).passes


def test_absent_cases_hold_no_answer() -> None:
    kinds = gate.absent_cases(12)
    assert len(kinds) == 6
    for name, asked in kinds.items():
        for case in asked:
            assert case.answer == NOT_SAID
            relation, subject = question_asked(case.question)
            said = [(s, v) for _, s, v in facts_in(case.prompt) if s == subject]
            assert not [v for _, v in said if v in relation.values], (name, case.prompt)
            assert case.prompt.endswith(f"{case.question}<|end|><|assistant|>")
