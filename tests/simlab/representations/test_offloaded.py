"""`extract --device offload`: the folder of the whole model, bit by bit, in less memory."""

import numpy as np
import pytest
import torch

from simlab.errors import UserError
from simlab.models.files import WEIGHTS
from simlab.models.load import load_encoder
from simlab.models.place import place, weight_bytes
from simlab.models.sources import ModelSource, resolve
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
from simlab.representations.kinds import ATTENTION, KINDS
from support.lab.commandline import check_refused
from support.lab.tinymodels import (
    ARCHITECTURES,
    COLUMNS,
    save_tiny_classifier,
    save_tiny_model,
)
from support.tolerance import assert_same_forward

SMALL = {"batch_size": 5, "max_length": 24}


def both(model, task, folder, **options):
    """Return the representations of the whole model, and those of the model block by block."""
    found = []
    for device in ("cpu", "offload"):
        extract(model, task, folder / device, device=device, **SMALL, **options)
        found.append(load_representations(folder / device))
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_folder_is_that_of_the_whole_model(architecture, tmp_path, review_task):
    folder = save_tiny_model(tmp_path / architecture, architecture)
    whole, by_block = both(folder, review_task, tmp_path, kind="mean")
    assert len(by_block.layers) == 4
    assert by_block.manifest == whole.manifest  # it has the hash of all layers
    assert [file.name for file in by_block.folder.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mean"])
@pytest.mark.parametrize("architecture", ["bert", "llama", "xlnet"])
def test_every_kind(kind, architecture, tmp_path, review_task):
    folder = save_tiny_model(tmp_path / architecture, architecture)
    whole, by_block = both(folder, review_task, tmp_path, kind=kind)
    assert by_block.manifest == whole.manifest
    assert len(by_block.layers) == 4 - (kind == ATTENTION)


def test_texts_go_in_groups_where_the_disk_has_no_room(tmp_path, tiny_bert, review_task, no_room):
    for kind in ("mean", "attention"):
        whole, by_block = both(tiny_bert.path, review_task, tmp_path / kind, kind=kind)
        assert by_block.manifest == whole.manifest


def test_fine_tuned_checkpoint_and_other_precision(tmp_path, review_task):
    """A prefix before the names of the encoder's weights, and weights that are converted."""
    source = save_tiny_classifier(tmp_path / "bert", "bert", review_task)
    for weights in ("float32", "bfloat16", "auto"):
        whole, by_block = both(source.path, review_task, tmp_path / weights, weights=weights)
        assert by_block.manifest == whole.manifest


def test_precision_auto_is_that_of_the_files(tmp_path, review_task):
    folder = save_tiny_model(tmp_path / "llama", "llama")
    load_encoder(resolve(str(folder))).bfloat16().save_pretrained(folder)
    whole, by_block = both(folder, review_task, tmp_path, weights="auto")
    other, _ = both(folder, review_task, tmp_path / "float32", weights="float32")
    assert by_block.manifest == whole.manifest
    assert not np.array_equal(whole.layers[-1], other.layers[-1])


def test_the_device_does_not_make_another_output(tmp_path, tiny_bert, review_task):
    first = extract(tiny_bert, review_task, tmp_path / "reps", device="offload", **SMALL)
    again = extract(tiny_bert, review_task, tmp_path / "reps", device="cpu", **SMALL)
    assert not first.skipped
    assert again.skipped


def test_equals_the_disk_offloading_of_accelerate(tmp_path, review_task):
    from accelerate import disk_offload

    folder = save_tiny_model(tmp_path / "llama", "llama")
    extract(folder, review_task, tmp_path / "reps", kind="token", device="offload", **SMALL)
    layers = load_representations(tmp_path / "reps").layers
    source = resolve(str(folder))
    model = load_encoder(source)
    disk_offload(model, tmp_path / "offloaded")
    from simlab.models.load import load_tokenizer

    tokenizer, rows = load_tokenizer(source), [[] for _ in layers]
    with torch.inference_mode():
        for text in review_task.heldout.texts:
            ids = tokenizer(text, truncation=True, max_length=24, return_tensors="pt")
            states = model(**ids, output_hidden_states=True).hidden_states
            for layer, one in zip(rows, states, strict=True):
                layer.append(one[0])
    for found, wanted in zip(layers, rows, strict=True):
        assert_same_forward(torch.from_numpy(np.array(found)), torch.cat(wanted))


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "offloaded"])
def test_unknown_devices(device, tmp_path, tiny_bert, review_task):
    with pytest.raises(UserError, match=f"device='{device}': wanted "):
        extract(tiny_bert, review_task, tmp_path / "reps", device=device)


def test_models_that_cannot_be_offloaded(tmp_path, tiny_bert, review_task):
    with pytest.raises(UserError, match="found random_init_seed=1"):
        extract(tiny_bert, review_task, tmp_path / "a", device="offload", random_init_seed=1)
    with pytest.raises(UserError, match="wanted none with modules"):
        extract(tiny_bert, review_task, tmp_path / "a", device="offload", modules="encoder.layer.*")


def test_a_model_larger_than_memory_is_one_line(simcore, monkeypatch, tmp_path, tiny_bert, reviews):
    """The bytes are read from headers; nothing is loaded."""
    monkeypatch.setattr("simcore.free_memory", lambda *_: 1_000)
    outcome = simcore("extract", tiny_bert.path, reviews, *COLUMNS, "--out", tmp_path / "reps")
    size = sum(4 * p.numel() for p in load_encoder(tiny_bert).parameters())
    check_refused(outcome, f"wanted {size / 1e9:.1f} GB of weights, found 0.0 GB of memory free on")
    assert "use --device offload" in outcome[2][0]
    assert place(tiny_bert, "float32", "offload") == "cpu"


def test_bytes_of_weights(tiny_bert):
    count = sum(p.numel() for p in load_encoder(tiny_bert).parameters())
    sizes = [weight_bytes(tiny_bert, one) for one in ("float32", "bfloat16", "auto")]
    assert sizes == [4 * count, 2 * count, 4 * count]


def test_bytes_of_a_random_twin_are_drawn_in_float32(monkeypatch, tiny_bert):
    """Its weights are rounded after they were drawn; the files of the model are not read."""
    size = 4 * sum(p.numel() for p in load_encoder(tiny_bert).parameters())
    monkeypatch.setattr("simcore.free_memory", lambda *_: size - 1)
    assert place(tiny_bert, "bfloat16", "cpu") == "cpu"
    with pytest.raises(UserError, match="a random twin is drawn in float32"):
        place(tiny_bert, "bfloat16", "cpu", random_init=True)
    monkeypatch.setattr("simcore.free_memory", lambda *_: size)
    assert place(tiny_bert, "bfloat16", "cpu", random_init=True) == "cpu"


@pytest.mark.parametrize("zipped", [True, False])
def test_bytes_of_pickled_weights_are_those_of_the_precision(zipped, monkeypatch, tmp_path):
    """The format before torch 1.6 is read whole beside the model."""
    folder = save_tiny_model(tmp_path / "bert")
    source = ModelSource("bert", folder)
    weights = load_encoder(source).bfloat16().state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / WEIGHTS[1], _use_new_zipfile_serialization=zipped)
    count = sum(one.numel() for one in weights.values())
    assert weight_bytes(source, "float32") == 4 * count
    assert weight_bytes(source, "auto") == 2 * count
    wanted = 4 * count + (0 if zipped else (folder / WEIGHTS[1]).stat().st_size)
    monkeypatch.setattr("simcore.free_memory", lambda *_: wanted)
    assert place(source, "float32", "cpu") == "cpu"
    monkeypatch.setattr("simcore.free_memory", lambda *_: wanted - 1)
    with pytest.raises(UserError, match=r"offload' needs safetensors files, which .* and not pyt"):
        place(source, "float32", "cpu")
    with pytest.raises(UserError, match="; use weights='bfloat16'"):
        place(source, "float32", "cpu", in_blocks=False)
