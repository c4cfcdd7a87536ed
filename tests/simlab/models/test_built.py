"""Models of timm and torchvision: recorded as hand-written hooks see them, extracted by name."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from simlab import extract, load_representations, load_task
from simlab.errors import UserError
from simlab.models import built
from simlab.models.built import build_model, is_built
from support.nets import taped
from support.tolerance import assert_same_forward

FOLDER = Path(sys.prefix) / "vision"  # `make` puts them there (requirements/vision.txt)
NAMES = ("timm", "torchvision")
# Operators that torchvision describes when it is imported, whether it could load them or not. Those
# of a build for another torch cannot be loaded; no model here needs them.
OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # a library ends with its object
# Modules, the pool, the size of images, and the rows of an output.
MODELS = {
    "resnet18": ("layer?", "spatial-mean", 64, lambda states: states.mean((2, 3))),
    "vit_tiny_patch16_224": ("blocks.*", "first", 224, lambda states: states[:, 0]),
}


@pytest.fixture(scope="module")
def libraries():
    """Let timm and torchvision be imported, here or from their folder; once in a process."""
    if not all(find_spec(name) or (FOLDER / name).is_dir() for name in NAMES):
        pytest.skip("no timm and torchvision on this machine")
    if all(find_spec(name) for name in NAMES):
        yield
        return
    sys.path.append(str(FOLDER))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    yield
    sys.path.remove(str(FOLDER))
    for name in [*sys.modules]:
        if name.partition(".")[0] in NAMES:
            del sys.modules[name]


def hooked(model, names, batches):
    """Return the outputs of modules, batch after batch, by hooks of our own."""
    outputs = {name: [] for name in names}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, name=name: outputs[name].append(output.clone())
        )
        for name in names
    ]
    with torch.no_grad():
        for batch in batches:
            model(batch)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(parts) for name, parts in outputs.items()}


@pytest.mark.parametrize("name", MODELS)
def test_recorded_values_are_those_of_hooks_bit_by_bit(libraries, name):
    modules, pool, size, rows_of = MODELS[name]
    model = build_model(f"timm:{name}", 0).model
    batches = list(torch.randn(2, 2, 3, size, size, generator=torch.Generator().manual_seed(0)))
    tape = taped(model, modules, batches, pool=pool, mask=False)
    whole = taped(model, modules, batches, pool="flatten", mask=False).layers()
    wanted = hooked(model, tape.names, batches)
    assert len(wanted) == (4 if name == "resnet18" else 12)
    for layer, states in wanted.items():
        assert torch.equal(whole[layer], states.flatten(1))
        by_batch = torch.cat([rows_of(part) for part in states.split(2)])
        assert torch.equal(tape.layers()[layer], by_batch)


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_extract_takes_a_model_by_name_with_its_own_transform(tmp_path, libraries, name):
    how = {"modules": "layer?", "pool": "spatial-mean", "limit": 2, "random_init_seed": 3}
    step = extract(name, "digits", tmp_path / "reps", **how)
    found = load_representations(step.path)
    assert found.manifest["names"] == [f"layer{number}" for number in range(1, 5)]
    assert [layer.shape for layer in found.layers] == [(2, width) for width in (64, 128, 256, 512)]
    again = build_model(name, 3)
    assert found.manifest["model_sha256"] == again.fingerprint
    images = [again.prepare(one.image()) for one in load_task("digits").heldout.images[:2]]
    assert images[0].shape == (3, 224, 224)
    states = hooked(again.model, ["layer4"], [torch.stack(images)])["layer4"]
    assert_same_forward(found.layers[-1], states.mean((2, 3)))
    assert np.ptp(found.layers[-1], axis=0).max() > 0  # two images


def test_a_name_that_no_library_has_is_refused(libraries, monkeypatch):
    for name, message in (
        (
            "timm:resnet180",
            "timm:resnet180: wanted a name of timm.list_models.., found none like it",
        ),
        (
            "torchvision:resnet1",
            "wanted a name of torchvision.models, found .*resnet101, resnet152",
        ),
    ):
        with pytest.raises(UserError, match=message):
            build_model(name)
    import timm

    def offline(*_arguments, **_options):
        raise OSError("no connection\nat all")

    monkeypatch.setattr(timm, "create_model", offline)
    message = "wanted its pretrained weights, found: no connection; random_init_seed draws"
    with pytest.raises(UserError, match=message):
        build_model("timm:resnet18")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("timm"),
            "wanted timm, found: timm; `pip install torch==.* timm torchvision`",
        ),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "wanted timm, found: operator torchvision::nms does not exist; `pip install torch==",
        ),
    ],
)
def test_a_library_that_cannot_be_imported_is_named(monkeypatch, error, message):
    def fail(_name):
        raise error

    monkeypatch.setattr(built.importlib, "import_module", fail)
    with pytest.raises(UserError, match=message):
        build_model("timm:resnet18")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("timm:resnet18", True),
        ("timm:hf-hub:timm/resnet18.a1_in1k", True),
        ("torchvision:resnet18", True),
        ("package.module:function", True),
        ("minilm", False),
        ("google/multiberts-seed_0", False),
        ("./folder:name", False),
    ],
)
def test_names_of_built_models(name, known):
    assert is_built(name) is known
