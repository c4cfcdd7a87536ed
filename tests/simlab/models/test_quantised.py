"""Quantised checkpoints: their layers are those of the model that transformers loads."""

import pytest
import torch
import transformers

from simlab.models.classes import is_quantised
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, save_tiny_model

# Not a package of the tests: its import writes lines to the terminal.
torchao = pytest.importorskip("torchao.quantization", reason="pip install torchao")
LABELS = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}


def quantise(base, folder):
    """Save a classifier whose linear layers have eight bits, as torchao stores them."""
    how = {
        "quantization_config": transformers.TorchAoConfig(torchao.Int8WeightOnlyConfig()),
        **LABELS,
    }
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, **how)
    model.save_pretrained(folder)
    load_tokenizer(resolve(str(base))).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_layers_are_those_of_transformers(architecture, tmp_path):
    base = save_tiny_model(tmp_path / "base", architecture=architecture)
    source = resolve(str(quantise(base, tmp_path / "int8")))
    batch = load_tokenizer(source)(["the film is dull", "music"], return_tensors="pt", padding=True)
    encoder = load_encoder(source)
    assert any(is_quantised(weight) for weight in encoder.parameters())
    own = transformers.AutoModelForSequenceClassification.from_pretrained(source.path).base_model
    whole = load_encoder(resolve(str(base)))
    with torch.no_grad():
        got, want, before = (
            torch.stack(model(**batch, output_hidden_states=True).hidden_states)
            for model in (encoder, own, whole)
        )
    kept = batch["attention_mask"].bool()
    torch.testing.assert_close(got[:, kept], want[:, kept], rtol=0, atol=0)
    assert (got - before)[:, kept].abs().max() > 1e-4


def test_commands_take_a_quantised_model(simcore, tmp_path, reviews):
    base = save_tiny_model(tmp_path / "base", architecture="llama")
    int8 = quantise(base, tmp_path / "int8")
    for command in (
        ("extract", int8, reviews, *COLUMNS, "--out", tmp_path / "rows"),
        ("truncate", int8, reviews, *COLUMNS, "--out", tmp_path / "cut.parquet"),
        ("skip", int8, reviews, *COLUMNS, "--out", tmp_path / "skip.parquet"),
    ):
        code, _, errors = simcore(*command)
        assert code == 0, errors
    assert simcore("check", base, int8, reviews, *COLUMNS[:2])[0] == 1


def test_a_quantised_head_is_not_trained(simcore, tiny_bert, reviews, tmp_path):
    int8 = quantise(tiny_bert.path, tmp_path / "int8")
    out = ("--mode", "tuned", "--out", tmp_path / "cut.parquet")
    outcome = simcore("truncate", int8, reviews, *COLUMNS, *out)
    check_refused(outcome, "found quantised ones in bert.pooler", "modules_to_not_convert")
