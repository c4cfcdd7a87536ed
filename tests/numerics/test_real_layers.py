"""The contract on layers of real models: MiniLM's tokens, and decoders with a sink token."""

import numpy as np
import pytest
import torch

from numerics.cases import CASES
from numerics.contract import assert_kept, judge
from numerics.layer import Layer
from numerics.test_values import SLOW_CASES

WORDS = (
    "the a of in and film story actor plot music slow bright cold house river who walks reads "
    "never often about was is with old new two"
)
# Rotations of MiniLM's layers leave the directions of their null dimensions open.
AGAIN_ON_MINILM = {"aligned-cosine"}
QUICK = (
    *("cka", "cka kernel=linear estimator=unbiased", "cca", "svcca", "linreg", "mixedsim"),
    *("procrustes-distance", "size-and-shape", "rsm-difference", "gulp ridge=0.01", "knn-mutual"),
)
QUICK_CASES = [case for case in CASES if str(case) in QUICK]
ALL_CASES = [case for case in CASES if case.record.name not in SLOW_CASES]


def texts(count):
    """Return texts of 4 to 40 words of a small vocabulary, so that tokens repeat."""
    rng, words = np.random.default_rng(0), WORDS.split()
    return [" ".join(rng.choice(words, rng.integers(4, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def minilm():
    """Return the token rows of layers 0, 3 and 6, as many as are asked for."""
    from transformers import AutoModel, AutoTokenizer

    from simlab.store.assets import fetch

    folder = fetch("minilm")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    def rows(count):
        batch = tokenizer(texts(count), return_tensors="pt", padding=True)
        with torch.no_grad():
            states = model(**batch, output_hidden_states=True).hidden_states
        tokens = batch["attention_mask"].bool()
        return [states[layer][tokens] for layer in (0, 3, 6)]

    return rows


def decoder(architecture, length=160):
    """Return the states of one text before and after the last block; its first token is a sink.

    In LLaMA the token's embedding is huge. In GPT-2 a perceptron writes a massive column where the
    first position's embedding opens it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {"llama": {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}}
    sizes["llama"] |= {"intermediate_size": 96, "num_key_value_heads": 2}
    sizes["gpt2"] = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": length}
    config = AutoConfig.for_model(
        architecture, vocab_size=60, bos_token_id=1, eos_token_id=2, **sizes[architecture]
    )
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        if architecture == "llama":
            model.model.embed_tokens.weight[1, 5] = 1e4 * model.model.embed_tokens.weight.std()
        else:
            block = model.transformer.h[0].mlp
            model.transformer.wpe.weight[0, 7] = 30.0
            block.c_fc.weight[:, 0], block.c_fc.weight[7, 0], block.c_fc.bias[0] = 0.0, 10.0, -20.0
            block.c_proj.weight[0] = 0.0
            block.c_proj.weight[0, 5] = 60.0
        tokens = torch.randint(3, 60, (1, length))
        tokens[0, 0] = 1
        states = model(tokens, output_hidden_states=True).hidden_states
    return states[1][0], states[2][0]


def found(cases, place, x, y):
    """Yield the verdict of each case on two float32 layers."""
    a, b = (Layer(layer.double().numpy(), "float32") for layer in (x, y))
    for case in cases:
        if case.takes(a, b):
            yield judge(case, place, x, y, a, b)


def assert_plain(verdicts):
    """Fail where a value is wrong, warned of, or computed again without need.

    Tokens that stand at one place of two texts are equal rows of layer 0, whose neighbours tie.
    """
    verdicts = list(verdicts)
    assert_kept(verdicts)
    loud = [
        v
        for v in verdicts
        if v.case not in AGAIN_ON_MINILM
        and (v.again or any("equal distances" not in message for message in v.messages))
    ]
    assert not loud, "\n".join(f"{v.case}: {v.again} {v.messages}" for v in loud)


@pytest.mark.assets
def test_tokens_of_minilm_are_plain(minilm):
    first, _, last = minilm(20)
    assert_plain(found(QUICK_CASES, "MiniLM, layers 0 and 6", first, last))


@pytest.mark.slow
@pytest.mark.assets
def test_tokens_of_minilm_are_plain_for_every_measure(minilm):
    first, _, last = minilm(20)
    assert_plain(found(ALL_CASES, "MiniLM, layers 0 and 6", first, last))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_decoder_with_a_sink_token(architecture):
    x, y = decoder(architecture)
    assert float(x[0].norm() / x[1:].norm(dim=1).median()) > 300  # the sink is there
    assert_kept(found(QUICK_CASES, architecture, x, y))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_decoder_with_a_sink_token_for_every_measure(architecture):
    assert_kept(found(ALL_CASES, architecture, *decoder(architecture, 400)))
