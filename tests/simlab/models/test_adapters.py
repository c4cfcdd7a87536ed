"""Adapters of PEFT: their layers and heads are those of PEFT's own pass, or they are refused."""

import json
import shutil

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from simlab import check
from simlab.errors import UserError
from simlab.models.checkpoint import Checkpoint
from simlab.models.load import load_classifier, load_encoder, load_switched, load_tokenizer
from simlab.models.sources import resolve
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, save_tiny_model

WEIGHTS = "adapter_model.safetensors"
ROUNDING = 1e-5  # of merged weights, in states of up to 5
CLASSES = {
    "SEQ_CLS": transformers.AutoModelForSequenceClassification,
    "CAUSAL_LM": transformers.AutoModelForCausalLM,
    "TOKEN_CLS": transformers.AutoModelForTokenClassification,
    "FEATURE_EXTRACTION": transformers.AutoModel,
}
TEXTS = ["the film is wonderful and bright", "a dull plot", "music"]


def adapt(base, folder, kind, *, config=None, **how):
    """Save an adapter of drawn weights, and return PEFT's own model with it."""
    model = CLASSES[kind].from_pretrained(base, **how)
    config = config or peft.LoraConfig(target_modules="all-linear", r=4, lora_alpha=16)
    config.task_type = kind
    torch.manual_seed(3)
    wrapped = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    wrapped.save_pretrained(folder)
    return wrapped.eval()


def tokens(source):
    return load_tokenizer(source)(TEXTS, return_tensors="pt", padding=True)


def states(model, batch):
    with torch.no_grad():
        return torch.stack(model(**batch, output_hidden_states=True).hidden_states)


@pytest.fixture
def base(tiny_bert):
    return tiny_bert.path


@pytest.mark.parametrize("kind", ["SEQ_CLS", "TOKEN_CLS", "FEATURE_EXTRACTION"])
def test_layers_are_those_of_the_adapted_encoder(kind, base, tmp_path):
    config = peft.LoraConfig(target_modules=["query", "value", "dense"], exclude_modules="pooler.*")
    own = adapt(base, tmp_path, kind, config=config)
    source = resolve(str(tmp_path))
    batch = tokens(source)
    got = states(load_encoder(source), batch)
    torch.testing.assert_close(got, states(own, batch), rtol=0, atol=ROUNDING)
    assert (got - states(load_encoder(resolve(str(base))), batch)).abs().max() > 0.1


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_layers_are_those_of_the_adapted_decoder(architecture, tmp_path):
    base = save_tiny_model(tmp_path / "base", architecture=architecture)
    own = adapt(base, tmp_path / "adapter", "CAUSAL_LM")
    source = resolve(str(tmp_path / "adapter"))
    batch = tokens(source)
    torch.testing.assert_close(
        states(load_encoder(source), batch), states(own, batch), rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_the_head_of_an_adapter_is_its_own(architecture, tmp_path):
    base = save_tiny_model(tmp_path / "base", architecture=architecture)
    own = adapt(base, tmp_path / "adapter", "SEQ_CLS", num_labels=3)
    source = resolve(str(tmp_path / "adapter"))
    batch = tokens(source)
    with torch.no_grad():
        got, want = load_classifier(source)(**batch).logits, own(**batch).logits
    assert got.shape == (3, 3)
    torch.testing.assert_close(got, want, rtol=0, atol=ROUNDING)


def test_an_adapter_is_a_model_of_its_own_on_a_known_base(base, tmp_path):
    adapt(base, tmp_path / "a", "SEQ_CLS")
    one = Checkpoint.open(tmp_path / "a")
    assert Checkpoint.open_classifier(tmp_path / "a") == one
    assert (one.base, one.original, one.has_head) == (str(base), str(base), True)
    assert (one.side("FT").stage, one.side("FT").base) == ("ft", resolve(str(base)).base_name)
    assert not one.is_tuned
    other = tmp_path / "b"
    shutil.copytree(tmp_path / "a", other)
    save_file({k: v + 1 for k, v in load_file(other / WEIGHTS).items()}, other / WEIGHTS)
    prints = [resolve(str(folder)).fingerprint for folder in (base, tmp_path / "a", other)]
    assert len({*prints}) == 3


def test_an_adapter_of_another_model_is_refused(base, tmp_path):
    wide = save_tiny_model(tmp_path / "roberta", architecture="roberta")
    adapt(base, tmp_path / "adapter", "SEQ_CLS")
    file = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"base_model_name_or_path": str(wide)}))
    with pytest.raises(
        UserError, match=r"adapter: wanted an encoder in .*roberta, found: No modules"
    ):
        load_encoder(resolve(str(tmp_path / "adapter")))
    file.write_text(json.dumps(config | {"base_model_name_or_path": str(tmp_path / "none")}))
    with pytest.raises(UserError, match=r"an adapter whose base is missing: model .*none"):
        resolve(str(tmp_path / "adapter"))


def test_a_weight_without_a_place_is_refused(base, tmp_path):
    adapt(base, tmp_path, "SEQ_CLS")
    weights = load_file(tmp_path / WEIGHTS)
    name = next(name for name in weights if "layer.1" in name)
    save_file({k: v for k, v in weights.items() if k != name}, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match=r"wanted the weights of an adapter of Bert.*layer.1"):
        load_encoder(resolve(str(tmp_path)))
    save_file(weights | {name: weights[name] * np.nan}, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match=r"wanted finite weights, found NaN in .*layer.1"):
        load_encoder(resolve(str(tmp_path)))


def test_a_quantised_base_is_refused(base, tmp_path):
    adapt(base, tmp_path / "adapter", "SEQ_CLS")
    quantised = tmp_path / "base"
    shutil.copytree(base, quantised)
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (quantised / "config.json").write_text(json.dumps(config))
    file = tmp_path / "adapter" / "adapter_config.json"
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"base_model_name_or_path": str(quantised)}))
    with pytest.raises(UserError, match="wanted an adapter of whole weights, found a quantised"):
        load_encoder(resolve(str(tmp_path / "adapter")))


def test_outputs_are_those_of_the_head_and_not_of_trained_embeddings(tmp_path):
    base = save_tiny_model(tmp_path / "base", architecture="roberta")
    saved = ["classifier", "word_embeddings"]
    config = peft.LoraConfig(target_modules=["query"], modules_to_save=saved)
    own = adapt(base, tmp_path / "adapter", "SEQ_CLS", config=config, num_labels=3)
    source = resolve(str(tmp_path / "adapter"))
    batch = tokens(source)
    with torch.no_grad():
        got, want = load_classifier(source)(**batch).logits, own(**batch).logits
    torch.testing.assert_close(got, want, rtol=0, atol=ROUNDING)


def test_an_adapter_beside_whole_weights_is_refused(base, tmp_path):
    shutil.copytree(base, tmp_path / "both")
    adapt(base, tmp_path / "both", "SEQ_CLS")
    with pytest.raises(UserError, match="wanted an adapter or whole weights, found both in"):
        resolve(str(tmp_path / "both"))


def test_what_adds_tokens_is_refused(base, tmp_path):
    adapt(base, tmp_path, "SEQ_CLS", config=peft.PromptTuningConfig(num_virtual_tokens=3))
    with pytest.raises(UserError, match="found PROMPT_TUNING, which adds tokens to each text"):
        load_encoder(resolve(str(tmp_path)))


def test_an_adapter_without_a_type_names_its_class(base, tmp_path):
    model = transformers.BertModel.from_pretrained(base)
    own = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear")).eval()
    own.save_pretrained(tmp_path)
    source = resolve(str(tmp_path))
    batch = tokens(source)
    got = states(load_encoder(source), batch)
    torch.testing.assert_close(got, states(own, batch), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("kind", ["SEQ_CLS", "FEATURE_EXTRACTION"])
def test_an_adapter_and_its_base_are_in_one_copy_of_the_weights(kind, base, tmp_path):
    own = adapt(base, tmp_path, kind)
    batch = tokens(resolve(str(base)))
    model, switch = load_switched(resolve(str(tmp_path)), "float32")
    assert torch.equal(states(model, batch), states(own, batch))
    with switch.disable_adapter():
        assert torch.equal(states(model, batch), states(load_encoder(resolve(str(base))), batch))
    assert torch.equal(states(model, batch), states(own, batch))


CHANGING = [{"bias": "all"}, {"bias": "lora_only"}]
CHANGING += [{"init_lora_weights": kind} for kind in ("pissa", "olora")]


@pytest.mark.parametrize("how", CHANGING, ids=str)
def test_an_adapter_that_changes_its_base_is_loaded_apart(how, base, tmp_path):
    """PEFT turns its matrices off, but not the biases and the weights that it has replaced."""
    adapt(base, tmp_path, "SEQ_CLS", config=peft.LoraConfig(target_modules=["query"], r=2, **how))
    weights = load_file(tmp_path / WEIGHTS)  # of a training
    save_file({name: weight + 0.1 for name, weight in weights.items()}, tmp_path / WEIGHTS)
    assert load_switched(resolve(str(tmp_path)), "float32") is None
    assert check(base, tmp_path, texts=TEXTS).verdict == "different"


def test_check_loads_an_adapter_and_its_base_once(base, tmp_path, monkeypatch):
    """The verdicts are those of two whole models."""
    adapt(base, tmp_path / "adapter", "FEATURE_EXTRACTION")
    merged = load_encoder(resolve(str(tmp_path / "adapter")))
    merged.save_pretrained(tmp_path / "merged")
    load_tokenizer(resolve(str(base))).save_pretrained(tmp_path / "merged")
    apart = check(base, tmp_path / "merged", texts=TEXTS)
    monkeypatch.delattr("simlab.answers.check.load_encoder")  # of a model on its own
    shared = check(base, tmp_path / "adapter", texts=TEXTS)
    assert [layer.verdict for layer in shared.layers] == [layer.verdict for layer in apart.layers]
    assert [one.difference for one in shared.layers] == pytest.approx(
        [one.difference for one in apart.layers], rel=1e-3, abs=1e-6
    )
    assert shared.verdict == "different"


def test_numbers_of_an_adapter_are_finite(base, tmp_path):
    adapt(base, tmp_path, "SEQ_CLS")
    weights = load_file(tmp_path / WEIGHTS)
    next(iter(weights.values()))[0] = torch.nan
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match="wanted finite weights, found NaN in"):
        load_switched(resolve(str(tmp_path)), "float32")


def test_commands_take_an_adapter(simcore, base, reviews, tmp_path):
    adapter = tmp_path / "adapter"
    adapt(base, adapter, "SEQ_CLS")
    where, texts = ("--device", "cpu"), tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS * 4))
    task = (adapter, reviews, *COLUMNS, "--out")
    for command in (
        ("extract", *task, tmp_path / "rows"),
        ("truncate", *task, tmp_path / "cut.parquet"),
        ("skip", *task, tmp_path / "skip.parquet"),
        ("compare", base, adapter, texts, "--out", tmp_path / "answer"),
    ):
        code, _, errors = simcore(*command, *where)
        assert code == 0, errors
    code, printed, _ = simcore("check", base, adapter, texts, *where)
    assert code == 1
    assert "different" in printed
    sweep = tmp_path / "study.toml"
    sweep.write_text(f'models = ["{adapter}"]\ntasks = ["rt"]\n')
    check_refused(simcore("sweep", sweep, "--plan"), "found an adapter", "merge_and_unload")
