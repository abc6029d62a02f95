"""SmolLM2-135M-Instruct from its GGUF file, beside transformers reading the same file."""

import copy
import time
import types

import pytest
import torch

from kvlab import LLM, SamplingParams, chat_prompt
from kvlab.model_source import smollm2_file
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward

transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")
try:
    FILE = smollm2_file()
except ValueError as error:
    pytest.skip(str(error), allow_module_level=True)

QUESTION = "What is the capital of France?"
STORY = (
    "In 1857 a Frenchman, Édouard-Léon Scott, wrote sound down:  12 lines of soot on paper.\n"
    "    for line in range(3):\n\t\tprint(line * 7)  # isn't it naïve?\n"
)
PROSE = (
    "The harbour was quiet when the last of the boats came in. A man on the quay counted boxes, "
    "wrote the number into a green book, and went home to read about the price of cod in 1931. "
)
TEXTS = [
    QUESTION,
    STORY,
    "",
    " ",
    "   \n\n\t ",
    "a  12\n\n 3,456.78 ² ½ ٣",
    "don't I'LL we've 's",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><repo_name>x<|im_",
    "東京で🚀 e\u0301 \u200d\u202e кот Ω",
    "\x00\x07\x7f\r\n\r",
    "x" * 300,
    "".join(map(chr, range(32, 1200))),
    "def f(x: int) -> str:\n        return f'{x:>10}'  # 1984\n",
]


@pytest.fixture(scope="module")
def llm():
    return LLM("smollm2", num_blocks=64, device="cpu")


@pytest.fixture(scope="module")
def words():
    return transformers.AutoTokenizer.from_pretrained(FILE.parent, gguf_file=FILE.name)


@pytest.fixture(scope="module")
def theirs():
    return transformers.AutoModelForCausalLM.from_pretrained(
        FILE.parent, gguf_file=FILE.name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="module")
def exact(llm, theirs):
    """Both in float64. transformers' norm computes in float32 whatever it is given: here it does
    not."""

    def norm(self, x):
        return (
            self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        )

    model = copy.deepcopy(theirs).double()
    rotary = model.model.rotary_emb  # its frequencies are float32's in both programs
    rotary.inv_freq = theirs.model.rotary_emb.inv_freq
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = types.MethodType(norm, module)
    return llm.model.converted(torch.float64, "cpu"), model


@pytest.mark.parametrize("text", TEXTS)
def test_token_ids_and_texts_are_transformers(llm, words, text):
    ids = llm.encode(text)
    assert ids == words(text).input_ids
    assert llm.tokenizer.decode(ids) == words.decode(ids, skip_special_tokens=True)
    assert llm.tokenizer.decode(ids, False) == words.decode(ids)


def test_the_chat_template_is_the_files(llm, words):
    chat = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    wanted = words.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert chat_prompt(llm, chat) == wanted
    assert len(chat_prompt(llm, QUESTION)) == 37  # 30 of them are the template's


def test_it_knows_the_capital_of_france(llm):
    (answer,) = llm.generate([chat_prompt(llm, QUESTION)], SamplingParams(max_tokens=16))
    assert answer.outputs[0].text == "The capital of France is Paris."
    assert answer.outputs[0].finish_reason == "stop"


@pytest.mark.parametrize("text", [QUESTION, STORY * 2], ids=["question", "story"])
@torch.inference_mode()
def test_logits_are_transformers(llm, theirs, text):
    """On longer texts float32 alone makes 1e-4 of difference, see the next test."""
    ids = torch.tensor([llm.encode(text)])
    ours = contiguous_forward(llm.model, ids, ContiguousCache(llm.model.config))
    assert (ours - theirs(ids).logits).abs().max() < 1e-4


@pytest.mark.parametrize("text", [STORY * 4, PROSE * 3], ids=["story", "prose"])
@torch.inference_mode()
def test_long_texts_differ_by_float32s_rounding_alone(llm, theirs, exact, text):
    """Logits reach 46. Both programs in float64 agree within 1e-9, so both compute the same thing.

    In float32 each is about 1e-4 away from that at its worst logit, and so are transformers' two
    kinds of attention from each other (1.02e-4 on the story). Ours is no further away than the
    further of those two; a tenth is left for libraries that add in another order.
    """
    ours64, theirs64 = exact
    ids = torch.tensor([llm.encode(text)])
    ours = contiguous_forward(llm.model, ids, ContiguousCache(llm.model.config))
    want = contiguous_forward(ours64, ids, ContiguousCache(ours64.config, dtype=torch.float64))
    assert (want - theirs64(ids).logits).abs().max() < 1e-9

    def error(logits):
        return float((logits.double() - want).square().mean().sqrt())

    errors = []
    for attention in ("eager", "sdpa"):
        theirs.set_attn_implementation(attention)
        errors.append(error(theirs(ids).logits))
    assert error(ours) < 1.1 * max(errors)


def test_the_weights_are_held_once(llm):
    model = llm.model
    assert model.lm_head.weight is model.embed_tokens.weight
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage() for p in model.parameters()}
    assert sum(s.nbytes() for s in storages.values()) == 4 * 134_515_008


def test_greedy_tokens_and_speed_beside_transformers(llm, theirs, capsys):
    """The speeds are printed for people; which is ahead depends on the machine's load."""
    count, prompt = 24, chat_prompt(llm, "Tell me a long story about a fox.")
    start = time.perf_counter()
    whole = theirs.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=count)
    middle = time.perf_counter()
    llm.reset_prefix_cache()
    (ours,) = llm.generate([prompt], SamplingParams(max_tokens=count))
    end = time.perf_counter()
    with capsys.disabled():
        print(
            f"\nsmollm2, {count} tokens: kvlab {count / (end - middle):.1f} tokens/s, "
            f"transformers generate {count / (middle - start):.1f} tokens/s, "
            f"ratio {(middle - start) / (end - middle):.2f}"
        )
    tokens = list(ours.outputs[0].token_ids)
    assert len(tokens) == count
    assert tokens == whole[0, len(prompt) :].tolist()
