"""Code and weights of a model's files that are not used are noted."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from simlab import extract, load_representations
from simlab.errors import UserError
from simlab.models.load import load_classifier, load_encoder, load_tokenizer
from simlab.models.sources import resolve
from support.lab.commandline import check_refused
from support.lab.tinymodels import save_tiny_classifier, save_tiny_model

RUNS = "raise AssertionError('code of a repository ran')\n"
CONFIG = "config.json"


@pytest.fixture
def folder(tmp_path, tiny_bert):
    return shutil.copytree(tiny_bert.path, tmp_path / "bert")


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def add_code(folder, model_type):
    edit(
        folder / CONFIG,
        model_type=model_type,
        auto_map={"AutoConfig": "configuration_own.Own", "AutoModel": "other/place--modeling.Own"},
    )
    for name in ("configuration_own.py", "modeling.py"):
        (folder / name).write_text(RUNS)


def test_an_architecture_in_code_of_its_own_is_refused(folder, simcore, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("transformers asked"))
    add_code(folder, "own")
    check_refused(simcore("models", folder), f"model {folder}: wanted a configuration, found: ")


def test_code_beside_an_architecture_of_the_library_is_noted_once(folder, tiny_bert, capsys):
    add_code(folder, "bert")
    for _ in range(2):
        found = load_encoder(resolve(folder))
    note = capsys.readouterr().err
    words = "its own code (configuration_own.Own, other/place--modeling.Own) is not run; trans"
    assert note.count(words) == 1
    assert "transformers' 'bert' is in its place" in note
    assert type(found) is type(load_encoder(tiny_bert))


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_weights_that_the_configuration_has_no_place_for_are_noted(folder, capsys, prefix):
    file = folder / "model.safetensors"
    weights = {f"{prefix}{name}": value for name, value in load_file(file).items()}
    heads = {
        "cls.predictions.bias": torch.zeros(3),
        f"{prefix}embeddings.position_ids": torch.ones(1),
    }
    save_file(weights | heads, file, {"format": "pt"})
    load_encoder(resolve(folder))
    assert capsys.readouterr().err == ""
    adapter = f"{prefix}encoder.layer.0.attention.self.query.lora_A"
    save_file(weights | heads | {adapter: torch.zeros(2, 24)}, file, {"format": "pt"})
    load_encoder(resolve(folder))
    assert "weights of its files are left out, because its " in capsys.readouterr().err
    save_file(weights | heads, file, {"format": "pt"})
    edit(folder / CONFIG, num_hidden_layers=2)
    load_encoder(resolve(folder))
    error = capsys.readouterr().err
    assert "describes a model without them: " in error
    assert "encoder.layer.2." in error
    assert error.rstrip().endswith(" and 15 more")


def test_the_head_of_a_classifier_is_no_left_weight(tmp_path, review_task, capsys):
    for architecture in ("bert", "roberta", "deberta-v2", "xlnet", "gpt2"):
        source = save_tiny_classifier(tmp_path / architecture, architecture, review_task)
        load_encoder(source)
        load_classifier(source)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("setting", [{"return_dict": False}, {"torchscript": True}])
def test_outputs_are_read_by_their_names(folder, tiny_bert, tmp_path, setting, review_task):
    edit(folder / CONFIG, **setting)
    found, wanted = (
        load_representations(extract(one, review_task, tmp_path / name, limit=4).path).layers
        for name, one in (("a", resolve(folder)), ("b", tiny_bert))
    )
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))


def test_pairs_of_a_model_with_one_type_of_text(tmp_path):
    """A RoBERTa beside a tokenizer of BERT, which numbers the texts of a pair."""
    folder = save_tiny_model(tmp_path / "model", "roberta")
    edit(folder / CONFIG, type_vocab_size=1)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "token_type" in name)
    save_file(
        weights | {name: weights[name][:1].clone()}, folder / "model.safetensors", {"format": "pt"}
    )
    source = resolve(folder)
    tokenizer, model = load_tokenizer(source), load_encoder(source)
    batch = tokenizer("the film", "the plot", return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    with torch.inference_mode():
        assert model(**batch).last_hidden_state.isfinite().all()


def test_attention_that_is_not_installed_is_one_line(folder):
    edit(folder / CONFIG, _attn_implementation="flash_attention_2")
    with pytest.raises(UserError, match="wanted an encoder, found: FlashAttention2"):
        load_encoder(resolve(folder))
