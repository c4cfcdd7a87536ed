"""Extraction: what the model says, whatever the batches; ids travel with the rows."""

import numpy as np
import pytest

from simlab.batches import encode
from simlab.errors import UserError
from simlab.extract import (
    ExtractOptions,
    extract,
    load_representations,
    require_same_examples,
)
from simlab.files import read_json, write_json
from simlab.models import load_encoder, load_tokenizer
from simlab.tasks import TaskOptions, load_task

CLOSE = {"rtol": 0, "atol": 2e-6}


def one_by_one(source, examples, max_length, random_init_seed=None):
    """Every layer's position 0, one unpadded example at a time, straight from the model."""
    import torch

    tokenizer = load_tokenizer(source)
    model = load_encoder(source, random_init_seed)
    rows = []
    with torch.inference_mode():
        for example in encode(tokenizer, examples, max_length):
            batch = tokenizer.pad([example], return_tensors="pt")
            hidden = model(**batch, output_hidden_states=True).hidden_states
            rows.append([states[0, 0].numpy() for states in hidden])
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def test_layers_equal_the_models_hidden_states(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps", ExtractOptions(max_length=16))
    found = load_representations(tmp_path / "reps")
    expected = one_by_one(tiny_bert, review_task.heldout, 16)
    assert len(found.layers) == 4  # embedding output and three blocks
    assert found.ids == list(review_task.heldout.ids)
    for layer, wanted in zip(found.layers, expected, strict=True):
        np.testing.assert_allclose(layer, wanted, **CLOSE)


@pytest.mark.assets
def test_real_minilm_has_seven_layers_that_padding_does_not_change(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=24))
    extract(minilm, task, tmp_path / "reps", ExtractOptions(batch_size=24))
    found = load_representations(tmp_path / "reps")
    assert [layer.shape for layer in found.layers] == [(24, 384)] * 7
    for layer, wanted in zip(found.layers, one_by_one(minilm, task.heldout, 128), strict=True):
        np.testing.assert_allclose(layer, wanted, rtol=0, atol=5e-6)


def test_batch_size_does_not_change_rows(tmp_path, tiny_bert, review_task):
    for size in (1, 5, 64):
        extract(tiny_bert, review_task, tmp_path / str(size), ExtractOptions(batch_size=size))
    one, *others = [load_representations(tmp_path / str(size)) for size in (1, 5, 64)]
    for other in others:
        for layer, wanted in zip(other.layers, one.layers, strict=True):
            np.testing.assert_allclose(layer, wanted, **CLOSE)


def test_random_twin_is_seeded_and_unlike_the_model(tmp_path, tiny_bert, review_task):
    for name, seed in {"a": 0, "again": 0, "b": 1, "model": None}.items():
        options = ExtractOptions(random_init_seed=seed)
        extract(tiny_bert, review_task, tmp_path / name, options)
    last = {
        name: load_representations(tmp_path / name).layers[-1]
        for name in ("a", "again", "b", "model")
    }
    assert np.array_equal(last["a"], last["again"])
    assert not np.allclose(last["a"], last["b"])
    assert not np.allclose(last["a"], last["model"])


def test_manifest_says_where_the_rows_come_from(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps", label="ORIG", seed=3)
    manifest = load_representations(tmp_path / "reps").manifest
    assert manifest["label"] == "ORIG"
    assert manifest["seed"] == 3
    assert manifest["model_sha256"] == tiny_bert.fingerprint
    assert manifest["examples_sha256"] == review_task.heldout.text_fingerprint
    assert manifest["widths"] == [24] * 4
    assert "torch" in manifest["versions"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest["ids"].reverse(), "same ids in another order, first at row 0"),
        (lambda manifest: manifest["ids"].__setitem__(4, "other"), "different ids, first at row 4"),
        (lambda manifest: manifest["ids"].pop(), "found 32 and 31"),
        (lambda manifest: manifest.update(examples_sha256="0"), "other texts under the same ids"),
    ],
)
def test_other_examples_fail_loudly(tmp_path, tiny_bert, review_task, change, message):
    for name in ("x", "y"):
        extract(tiny_bert, review_task, tmp_path / name)
    manifest = read_json(tmp_path / "y" / "manifest.json")
    change(manifest)
    write_json(tmp_path / "y" / "manifest.json", manifest)
    x, y = load_representations(tmp_path / "x"), load_representations(tmp_path / "y")
    require_same_examples(x, x)
    with pytest.raises(UserError, match=message):
        require_same_examples(x, y)


def test_a_damaged_data_file_is_refused(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps")
    data = tmp_path / "reps" / "cls.safetensors"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    with pytest.raises(UserError, match=r"cls\.safetensors"):
        load_representations(tmp_path / "reps")


def test_a_model_without_cls_is_refused_and_leaves_nothing(tmp_path, review_task):
    from tinymodels import save_tiny_model
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    from simlab.models import resolve

    folder = save_tiny_model(tmp_path / "gpt2")
    for file in folder.glob("*"):
        if file.name != "tokenizer.json":
            file.unlink()
    PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
    ).save_pretrained(folder)
    config = GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=2, n_positions=64)
    GPT2Model(config).save_pretrained(folder)
    with pytest.raises(UserError, match="CLS"):
        extract(resolve(str(folder)), review_task, tmp_path / "reps")
    assert not list(tmp_path.glob("reps*"))
