"""The demo from end to end on a tiny model, and again, and after a kill."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from simlab.commands import demo_steps
from simlab.commands.demo_steps import JOINT_COMPARISON, JOINT_MEASURES
from simlab.models.checkpoint import read_evaluation
from simlab.representations.folder import load_representations
from simlab.store.joint import joint_table
from simlab.store.results import LOCALIZATION, MAJORITY, TRUNCATION, read_results
from support.lab.pages import Parts
from support.lab.tinymodels import COLUMNS, LAYERS
from support.tolerance import FLOAT32_SELF, FLOAT64_RELATIVE

RECIPE = ("--epochs", "5", "--learning-rate", "5e-3", "--batch-size", "8", "--max-length", "24")
REPRESENTATIONS = ("orig", "ft-1", "ft-2", "random")
MODELS = REPRESENTATIONS[:3]
OF_WORDS = tuple(f"{name}-{kind}" for name in MODELS for kind in ("word-last", "attention"))
# Three checkpoints, all representations, and the results: two of CLS, truncation, localization.
STEPS = 3 + len(REPRESENTATIONS + OF_WORDS) + len(JOINT_MEASURES) + 4


def command(model, reviews, out):
    arguments = ["--model", model.path, "--task", reviews, *COLUMNS, *RECIPE, "--out", out]
    return ["demo", *map(str, arguments)]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_bert, reviews):
    """The folder of one finished demo."""
    from simlab import cli

    out = tmp_path_factory.mktemp("runs") / "demo"
    assert cli.run(command(tiny_bert, reviews, out)) == 0
    return out


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the figures, most of the time of a demo; `test_everything_is_there` has them."""
    monkeypatch.setattr(demo_steps, "_plot_all", lambda run: [])
    monkeypatch.setattr(demo_steps, "_write_report", lambda run: None)


def test_everything_is_there(run):
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["seeds"] == [1, 2]
    assert manifest["configuration"]["recipe"]["epochs"] == 5
    assert set(manifest["inputs"]) >= {"model_sha256", "train_sha256", "heldout_sha256"}
    assert {path.name for path in (run / "representations").iterdir()} == {
        *REPRESENTATIONS,
        *OF_WORDS,
    }
    assert {path.name for path in (run / "checkpoints").iterdir()} == {
        "ft-1",
        "ft-2",
        "random-init",
    }
    figures = {path.name for path in (run / "figures").iterdir()}
    assert figures >= {
        "reviews-cka-biased.png",
        "reviews-cka-unbiased.pdf",
        "reviews-truncation.png",
        "reviews-models.png",
    }
    assert not list(run.rglob("*.partial*"))
    page = Parts((run / "report.html").read_text())
    assert len(page.data["grids"]) == 2 * len(demo_steps.GRIDS) + len(JOINT_MEASURES)
    assert page.data["manifests"][0]["status"] == "finished"
    assert page.data["jobs"] == 3 + len(REPRESENTATIONS + OF_WORDS)


def test_results_hold_every_grid_and_the_truncation_ends_at_the_model(run):
    frame = read_results(run / "results")
    grids = frame[frame["measure"] == "cka"]
    assert set(grids["estimator"]) == {"biased", "unbiased"}
    assert {"ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]"} <= set(grids["comparison"])
    sizes = grids.groupby(["comparison", "estimator", "label_x"]).size()
    assert (sizes == (LAYERS + 1) ** 2).all()
    last = frame[(frame["experiment"] == TRUNCATION) & (frame["layer_x"] == LAYERS)]
    for seed, value in zip(last["seed_x"], last["value"], strict=True):
        assert value == read_evaluation(run / "checkpoints" / f"ft-{seed}")["value"]
    baselines = frame[frame["experiment"] == "baseline"].set_index("label_x")["value"]
    assert baselines["FT[1]"] > baselines[MAJORITY]


def test_joint_grids_hold_all_layers_of_all_models(run):
    frame = read_results(run / "results")
    joint = frame[frame["comparison"] == JOINT_COMPARISON]
    assert set(joint["measure"]) == set(JOINT_MEASURES)
    for measure, rows in joint.groupby("measure"):
        layers, values = joint_table(rows)
        first = 1 if measure == "attention-js" else 0
        names = [(layer.model, layer.seed, layer.number) for layer in layers]
        assert names == [
            (model, seed, number)
            for model, seed in (("ORIG", None), ("FT[1]", 1), ("FT[2]", 2))
            for number in range(first, LAYERS + 1)
        ]
        np.testing.assert_allclose(np.diagonal(values), 1, rtol=0, atol=FLOAT32_SELF)


def test_localization_is_neuronsim_minus_svcca_of_the_other_layers(run):
    frame = read_results(run / "results")
    grids = [joint_table(frame[frame["measure"] == name]) for name in ("neuronsim", "svcca")]
    (layers, neuronsim), (_, svcca) = grids
    difference = neuronsim - svcca
    np.fill_diagonal(difference, 0)
    wanted = difference.sum(axis=0) / (len(layers) - 1)
    scores = frame[frame["experiment"] == LOCALIZATION]
    assert list(scores["layer_x"]) == [layer.number for layer in layers]
    np.testing.assert_allclose(scores["value"], wanted, rtol=FLOAT64_RELATIVE)


def test_all_representations_have_the_same_examples(run):
    ids = [load_representations(run / "representations" / name).ids for name in REPRESENTATIONS]
    assert len(ids[0]) == 32
    assert all(other == ids[0] for other in ids)


@pytest.mark.usefixtures("undrawn")
def test_running_again_does_nothing_but_say_so(run, simcore, tiny_bert, reviews):
    results = {path: path.stat().st_mtime_ns for path in (run / "results").iterdir()}
    weights = run / "checkpoints" / "ft-1" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    code, printed, _ = simcore(*command(tiny_bert, reviews, run))
    assert code == 0
    assert printed.count("done before") == STEPS
    assert weights.stat().st_mtime_ns == written
    assert results == {path: path.stat().st_mtime_ns for path in (run / "results").iterdir()}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_killed_demo_continues(tmp_path, run, simcore, tiny_bert, reviews):
    out = tmp_path / "demo"
    arguments = command(tiny_bert, reviews, out)
    process = subprocess.Popen(
        [sys.executable, "-m", "simlab.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 300
    while not (out / "checkpoints" / "ft-1").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=60)
    code, printed, _ = simcore(*arguments)
    assert code == 0
    assert "checkpoints/ft-1 (done before)" in printed
    wanted, found = read_results(run / "results"), read_results(out / "results")
    assert found.equals(wanted)  # as if the demo had never been killed


def test_two_demos_do_not_share_a_folder(run, simcore, tiny_bert, reviews):
    from filelock import FileLock

    with FileLock(run / ".lock"):
        code, _, errors = simcore(*command(tiny_bert, reviews, run))
    assert code == 2
    assert "another process" in errors[-1]
