"""Every experiment stores every metric of the task, and figures choose one of them."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from simlab import TaskOptions, finetune, load_task, read_results, skip, truncate
from simlab.commands.models import _describe_undefined
from simlab.experiments.freeze_study import summary
from simlab.experiments.skip import all_skip_logits
from simlab.models.checkpoint import read_evaluation
from simlab.models.evaluate import metric_columns
from simlab.results.results import (
    BASELINE,
    INJECTION,
    SECONDS,
    TRAINED,
    TRUNCATION,
    ResultRow,
    to_frame,
    unpack_draws,
)
from simlab.tasks.task import BELOW_ZERO, of_metric
from support.lab.commandline import check_refused
from support.lab.taskrows import write_published
from support.lab.tinyclassifiers import save_classifier
from support.lab.tinymodels import LETTERS, save_tiny_model

LIBRARY = {"f1": f1_score, "accuracy": accuracy_score}  # the main metric of MRPC first
INTERVALS = (TRUNCATION, "skipping", "freezing", INJECTION)
CELL = ["experiment", "label_x", "layer_x", "layer_y", "options"]


@pytest.fixture(scope="module")
def mrpc(tmp_path_factory):
    """The name of a task whose files are in the format of the hub."""
    return f"mrpc:{write_published(tmp_path_factory.mktemp('tasks') / 'mrpc', 'mrpc')}"


@pytest.fixture(scope="module")
def source(tmp_path_factory, mrpc):
    """A checkpoint of random weights, whose predictions differ from span to span."""
    return save_classifier(tmp_path_factory.mktemp("models") / "ft", "bert", load_task(mrpc))


@pytest.fixture(scope="module")
def results(tmp_path_factory, source, mrpc, tiny_bert):
    """A folder with the results of truncation, skipping, injection and freezing."""
    from simlab import cli

    folder = tmp_path_factory.mktemp("study")
    (out := folder / "results").mkdir()
    for arguments in (
        ("truncate", source.path, mrpc, "--out", out / "truncation.parquet"),
        ("skip", source.path, mrpc, "--out", out / "skipping.parquet"),
        (
            *("inject", source.path, source.path, mrpc, "--method", "itself"),
            *("--method", "random-labels", "--out", out / "injection.parquet"),
        ),
        ("freeze-study", tiny_bert.path, mrpc, "--max-steps", 1, "--top", 1, "--out", folder),
    ):
        assert cli.run([str(part) for part in arguments]) == 0
    return out


def test_every_cell_has_every_metric_the_main_one_first(results):
    frame = read_results(results)
    frame = frame[~frame["measure"].isin((TRAINED, SECONDS))]
    assert frame["experiment"].nunique() == 5  # with the majority class
    for _, rows in frame.groupby(CELL, dropna=False):
        assert list(rows["measure"]) == list(LIBRARY)


def test_metrics_have_intervals_over_the_heldout_examples(results):
    frame = read_results(results)
    frame = frame[frame["experiment"].isin(INTERVALS) & frame["measure"].isin(list(LIBRARY))]
    assert set(frame["experiment"]) == set(INTERVALS)
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert (frame["low"] < frame["high"]).any()
    drawn = frame[frame["low"].notna()]
    examples, draws = zip(*map(unpack_draws, drawn["draws"]), strict=True)
    assert set(examples) == set(drawn["n"])
    # Intervals end where the range of their metric does.
    least = np.where(drawn["measure"].isin(BELOW_ZERO), -1.0, 0.0)
    low = np.maximum(drawn["value"] - 1.959964 * np.std(draws, axis=1, ddof=1), least)
    np.testing.assert_allclose(low, drawn["low"], atol=1e-6)


def test_the_interval_of_an_accuracy_is_that_of_a_share():
    labels = np.zeros(400, int)
    found = metric_columns("accuracy", 0.8, np.arange(400) // 320, labels)  # 80 % are right
    half = 1.96 * np.sqrt(0.8 * 0.2 / 400)
    assert found["high"] - 0.8 == pytest.approx(half, rel=0.25)  # 100 draws: 7 % by chance
    assert 0.8 - found["low"] == pytest.approx(found["high"] - 0.8)
    sure = metric_columns("accuracy", 1.0, labels, labels)
    assert (sure["low"], sure["high"]) == (1.0, 1.0)
    nothing = metric_columns("spearman", float("nan"), labels, labels)
    assert np.isnan([nothing["low"], nothing["high"]]).all()


def test_skipping_scores_the_same_predictions_by_every_metric(results, source, mrpc):
    frame, task = read_results(results / "skipping.parquet"), load_task(mrpc)
    values = frame.set_index(["layer_x", "layer_y", "measure"])["value"]
    for (start, end), logits in all_skip_logits(source, task, 64).items():
        for metric, score in LIBRARY.items():
            wanted = score(task.heldout.labels, logits.argmax(axis=1))
            assert values[start, end, metric] == pytest.approx(wanted)
    assert values.nunique() > 2


def test_a_method_without_a_value_is_noted_once_for_all_metrics():
    common = {"experiment": INJECTION, "label_x": "A", "layer_x": 0, "n": 6, "task": "mrpc"}
    rows = [
        ResultRow(measure=metric, value=np.nan, options=json.dumps(options), **common)
        for options in (
            {"method": "cca", "undefined": "why"},
            {"method": "pwcca", "undefined": "why"},
        )
        for metric in LIBRARY
    ]
    assert _describe_undefined(to_frame(rows)) == ["cca, pwcca: no value at layer 0: why"]


def test_the_majority_class_is_scored_by_every_metric(results, mrpc):
    frame, labels = read_results(results), load_task(mrpc).heldout.labels
    rows = frame[frame["experiment"] == BASELINE].set_index("measure")["value"]
    constant = np.full(len(labels), np.bincount(labels).argmax())
    for metric, score in LIBRARY.items():
        assert rows[metric] == score(labels, constant)


def test_the_freezing_table_has_a_row_for_each_way_and_metric(results):
    table = summary(read_results(results))
    assert list(zip(table["freeze"], table["metric"], strict=True)) == [
        (freeze, metric) for freeze in ("none", "top:1") for metric in LIBRARY
    ]
    stored = read_evaluation(results.parent / "checkpoints" / "none-seed-1")["scores"]
    assert dict(zip(table["metric"][:2], table["mean"][:2], strict=True)) == stored


def test_figures_show_one_metric(simcore, results, tmp_path):
    for options, shown, other in (
        ((), "held-out f1", "accuracy"),
        (("--metric", "accuracy"), "held-out accuracy", "f1"),
    ):
        out = tmp_path / "figures"
        code, printed, _ = simcore("plot", results, *options, "--format", "svg", "--out", out)
        files = [*out.iterdir()]
        assert code == 0
        assert len(printed.split()) == len(files) == 4
        for file in files:
            assert shown in file.read_text()
            assert f"held-out {other}" not in file.read_text()
    check_refused(
        simcore("plot", results, "--metric", "pearson", "--out", tmp_path / "none"),
        "--metric pearson: wanted a metric in the results, found f1, accuracy",
    )


@pytest.mark.assets
def test_stsb_has_both_correlations(tmp_path):
    task = load_task("stsb", TaskOptions(train_size=32, heldout_size=64))
    encoder = save_tiny_model(tmp_path / "bert", pieces=LETTERS)
    model = finetune(encoder, task, tmp_path / "ft", max_steps=1).path
    scores = read_evaluation(model)["scores"]
    assert list(scores) == ["spearman", "pearson"]
    assert scores["spearman"] != scores["pearson"]
    frame = read_results(skip(model, task, tmp_path / "skipping.parquet").path)
    whole = frame[frame["layer_y"] == 0].set_index("measure")["value"]
    assert dict(whole) == scores
    curve = read_results(truncate(model, task, tmp_path / "truncation.parquet").path)
    undefined = curve[curve["value"].isna()]
    assert list(undefined["measure"]) == list(scores)
    assert set(undefined["layer_x"]) == {0}


def test_figures_of_results_without_metrics_take_any_metric():
    """`plot --paper wu2020` chooses accuracy, also for grids alone."""
    rows = ResultRow(experiment="grid", measure="cka", label_x="A", value=1.0, n=9, task="rt")
    assert len(of_metric(to_frame([rows]), "accuracy")) == 1


def test_bounds_stay_within_the_range_of_a_metric():
    labels = np.arange(40) % 2
    nearly = np.where(np.arange(40) < 1, labels, 1 - labels)  # one is right
    found = metric_columns("accuracy", 1 / 40, nearly, labels)
    assert 0 == found["low"] < found["high"] < 1
    found = metric_columns("matthews", matthews_corrcoef(labels, nearly), nearly, labels)
    assert -1 == found["low"] < found["high"] < 0
