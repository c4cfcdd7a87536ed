"""`extract` with blocks on the disk: the folder of the whole model."""

import pytest
import torch

from simlab import extract, load_representations
from simlab.models.hub import WEIGHTS
from simlab.models.load import load_encoder
from simlab.models.sources import resolve
from simlab.representations.kinds import ATTENTION, KINDS
from support.lab.tinymodels import each, save_tiny_classifier, save_tiny_model

SMALL = {"batch_size": 5, "max_length": 24}


def both(model, task, folder, device="offload", **options):
    """Return the representations of the whole model, and of its blocks on the disk."""
    found = []
    for where in ("cpu", device):
        extract(model, task, folder / where, device=where, **SMALL, **options)
        found.append(load_representations(folder / where))
        assert [file.name for file in found[-1].folder.iterdir() if file.name[0] == "."] == []
    return found


@pytest.mark.parametrize("architecture", each(quick=("bert", "albert", "llama")))
def test_folder_is_that_of_the_whole_model(architecture, tmp_path, review_task):
    folder = save_tiny_model(tmp_path / architecture, architecture)
    whole, on_disk = both(folder, review_task, tmp_path, kind="mean")
    assert len(on_disk.layers) == 4
    assert on_disk.manifest == whole.manifest  # it has the hash of all layers


@pytest.mark.parametrize("kind", each([k for k in KINDS if k != "mean"], ("cls", ATTENTION)))
@pytest.mark.parametrize("architecture", each(["bert", "xlnet"], ("xlnet",)))
def test_every_kind(kind, architecture, tmp_path, review_task):
    folder = save_tiny_model(tmp_path / architecture, architecture)
    whole, on_disk = both(folder, review_task, tmp_path, kind=kind)
    assert on_disk.manifest == whole.manifest
    assert len(on_disk.layers) == 4 - (kind == ATTENTION)


@pytest.mark.parametrize("device", ["spread", "offload"])
def test_modules(device, tmp_path, review_task):
    folder = save_tiny_model(tmp_path / "llama", "llama")
    how = {"modules": "layers.*", "pool": "mean", "device": device}
    whole, on_disk = both(folder, review_task, tmp_path, **how)
    assert on_disk.manifest == whole.manifest


def test_fine_tuned_checkpoint_and_other_precision(tmp_path, review_task):
    """A prefix before the names of the encoder's weights, and weights that are converted."""
    source = save_tiny_classifier(tmp_path / "bert", "bert", review_task)
    for weights in ("bfloat16", "auto"):
        whole, on_disk = both(source.path, review_task, tmp_path / weights, weights=weights)
        assert on_disk.manifest == whole.manifest


def test_pickled_weights_are_written_anew(tmp_path, review_task):
    folder = save_tiny_model(tmp_path / "bert")
    weights = load_encoder(resolve(str(folder))).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / WEIGHTS[1])
    whole, on_disk = both(folder, review_task, tmp_path)
    assert on_disk.manifest == whole.manifest


def test_the_device_does_not_make_another_output(tmp_path, tiny_bert, review_task):
    first = extract(tiny_bert, review_task, tmp_path / "reps", device="offload", **SMALL)
    again = extract(tiny_bert, review_task, tmp_path / "reps", device="cpu", **SMALL)
    assert not first.skipped
    assert again.skipped
