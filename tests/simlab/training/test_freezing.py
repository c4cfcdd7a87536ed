"""Freezing: frozen parameters do not change in any architecture, and the others learn."""

import pytest
import torch
from safetensors.torch import load_file

from simlab import finetune
from simlab.errors import UserError
from simlab.models.checkpoint import read_evaluation
from simlab.models.load import load_classifier
from simlab.models.recognise import architecture_of
from simlab.models.sources import resolve
from simlab.models.states import layer_states
from simlab.training.finetune import freeze_layers, parameter_counts
from simlab.training.recipes import Recipe, parse_freeze
from support.lab.commandline import check_refused
from support.lab.tinymodels import ARCHITECTURES, LAYERS, each, save_tiny_model

OWN_WEIGHTS = [name for name in ARCHITECTURES if name != "albert"]
BATCH = {"input_ids": torch.tensor([[2, 7, 9, 3], [2, 12, 8, 3]])}


def frozen_model(folder, architecture, task, freeze):
    source = resolve(str(save_tiny_model(folder / architecture, architecture)))
    model = load_classifier(source, task, seed=3)
    freeze_layers(model, parse_freeze(freeze), source.name)
    return model


def train_everything_allowed(model):
    """Move every parameter that is not frozen, as a step of training would at most."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))


@pytest.mark.parametrize("architecture", each(OWN_WEIGHTS))
def test_states_up_to_a_frozen_bottom_stay(tmp_path, review_task, architecture):
    model = frozen_model(tmp_path, architecture, review_task, "bottom:2")
    with torch.no_grad():
        before = layer_states(model, BATCH)
        train_everything_allowed(model)
        after = layer_states(model, BATCH)
    same = [torch.equal(x, y) for x, y in zip(before, after, strict=True)]
    assert same == [True] * 3 + [False] * (LAYERS - 2)
    assert all(p.requires_grad for p in architecture_of(model).layers(model)[2].parameters())


@pytest.mark.parametrize("architecture", each(OWN_WEIGHTS))
def test_a_frozen_top_is_the_top_layers_alone(tmp_path, review_task, architecture):
    model = frozen_model(tmp_path, architecture, review_task, "top:2")
    layers = architecture_of(model).layers(model)
    frozen = {id(p) for layer in layers[1:] for p in layer.parameters()}
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (id(parameter) not in frozen), name


def test_a_whole_frozen_bottom_leaves_the_head(tmp_path, review_task):
    model = frozen_model(tmp_path, "bert", review_task, f"bottom:{LAYERS}")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.split(".")[0] for name in trained} == {"bert", "classifier"}
    assert all("pooler" in name or "classifier" in name for name in trained)
    hidden, labels = model.config.hidden_size, model.config.num_labels
    counted, every = parameter_counts(model)
    assert counted == (hidden + 1) * hidden + (hidden + 1) * labels
    assert every == sum(p.numel() for p in model.parameters())


def test_fine_tuning_keeps_what_is_frozen_and_trains_the_rest(tmp_path, tiny_bert, review_task):
    recipe = Recipe(max_steps=3, learning_rate=1e-2, batch_size=8, freeze="bottom:1")
    finetune(tiny_bert, review_task, tmp_path / "ft", recipe)
    before, after = (load_file(f / "model.safetensors") for f in (tiny_bert.path, tmp_path / "ft"))
    for name, weights in before.items():
        stays = name.startswith(("embeddings.", "encoder.layer.0."))
        assert torch.equal(weights, after[f"bert.{name}"]) == stays, name
    evaluation = read_evaluation(tmp_path / "ft")
    assert evaluation["trained_parameters"] < evaluation["parameters"]
    assert evaluation["seconds_per_step"] > 0


def test_frozen_layers_are_checked_before_the_task_is_read(tmp_path, tiny_bert, simcore):
    freeze = "bottom:4"
    arguments = (tiny_bert.path, tmp_path / "none.csv", "--freeze", freeze, "--out", tmp_path / "x")
    check_refused(simcore("finetune", *arguments), f"--freeze {freeze}", "found 3")
    with pytest.raises(UserError, match=f"^freeze='{freeze}"):
        finetune(tiny_bert, tmp_path / "none.csv", tmp_path / "x", freeze=freeze)


@pytest.mark.parametrize(
    ("architecture", "freeze", "found"),
    [
        ("bert", "bottom:4", "wanted at least 4 layers, found 3"),
        ("bert", "top:9", "wanted at least 9 layers, found 3"),
        ("albert", "bottom:1", "found architecture ALBERT, whose layers share their weights"),
    ],
)
def test_what_cannot_be_frozen_is_refused(tmp_path, review_task, architecture, freeze, found):
    with pytest.raises(UserError, match=rf"^freeze='{freeze}': model .*{found}"):
        frozen_model(tmp_path, architecture, review_task, freeze)
