"""Every step scores a checkpoint whose outputs have another order as the same checkpoint."""

import json
import shutil

import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from simlab import inject, load_task, read_results, shorten, skip, truncate
from simlab.models.checkpoint import Checkpoint
from simlab.models.load import load_classifier
from simlab.models.sources import resolve
from support.lab.tinymodels import save_tiny_model

NAMES = ("2", "0", "1")  # of outputs 0, 1 and 2


@pytest.fixture(scope="module")
def task(tmp_path_factory, reviews):
    """Reviews of three classes, which are numbers."""
    path = tmp_path_factory.mktemp("data") / "three.csv"
    frame = pd.read_csv(reviews)
    pd.DataFrame({"text": frame["body"], "label": frame.index % 3}).to_csv(path, index=False)
    return load_task(str(path))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, task):
    """A checkpoint, and the same one with its outputs in another order."""
    root = tmp_path_factory.mktemp("models")
    save_tiny_model(root / "bert", initializer_range=1.0)
    source = resolve(str(root / "bert"))
    load_classifier(source, task, seed=3).save_pretrained(root / "bert")
    (root / "bert" / "evaluation.json").write_text(json.dumps({"model": str(root), "splits": []}))
    shutil.copytree(root / "bert", root / "turned")
    model = AutoModelForSequenceClassification.from_pretrained(root / "bert")
    order = [int(name) for name in NAMES]
    with torch.no_grad():
        for weight in (model.classifier.weight, model.classifier.bias):
            weight.copy_(weight[order])
    model.config.id2label = dict(enumerate(NAMES))
    model.config.label2id = {name: index for index, name in enumerate(NAMES)}
    model.save_pretrained(root / "turned")
    return root / "bert", root / "turned"


STEPS = {
    "untuned": lambda folder, *how: truncate(folder, *how),
    "tuned": lambda folder, *how: truncate(folder, *how, modes=("tuned",), head_most_steps=3),
    "skip": skip,
    "inject": lambda model, *how: inject([model] * 2, *how, methods=("itself", "identity"))[0],
}


@pytest.mark.parametrize("step", STEPS)
def test_the_order_of_outputs_does_not_change_a_score(tmp_path, folders, task, step):
    frames = []
    for number, folder in enumerate(folders):
        out = tmp_path / f"{number}.parquet"
        frames.append(read_results(STEPS[step](Checkpoint.open(folder), task, out).path))
    assert frames[0]["value"].nunique() > (step == "untuned")
    pd.testing.assert_series_equal(frames[0]["value"], frames[1]["value"])


@pytest.mark.parametrize("mode", ["untuned", "tuned"])
def test_an_export_keeps_the_order_of_its_checkpoint(tmp_path, folders, task, mode):
    heads = [tmp_path / "plain", tmp_path / "turned"]
    scores = []
    for folder, out in zip(folders, heads, strict=True):
        shorten(Checkpoint.open(folder), task, 2, out, modes=(mode,), head_most_steps=3)
        scores.append(json.loads((out / "evaluation.json").read_text())["value"])
    plain, turned = (AutoModelForSequenceClassification.from_pretrained(one) for one in heads)
    assert scores[0] == scores[1]
    assert tuple(turned.config.id2label.values()) == NAMES
    order = [int(name) for name in NAMES]
    torch.testing.assert_close(turned.classifier.weight, plain.classifier.weight[order])


def test_a_head_for_several_classes_a_text_is_told(folders, tmp_path, task, capsys):
    folder = shutil.copytree(folders[0], tmp_path / "several")
    config = json.loads((folder / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    truncate(Checkpoint.open(folder), task, tmp_path / "out.parquet")
    assert "the class with the largest output is taken" in capsys.readouterr().err
