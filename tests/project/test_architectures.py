"""The study of two architectures: its table on constructed rows, and the numbers of its page."""

import importlib
import json
import re
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from simlab.results.results import JOINT, LOCALIZATION, ResultRow, Side, to_frame

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "examples" / "studies"
sys.path.append(str(STUDIES))  # where studies find one another
architectures = importlib.import_module("architectures")
LAYERS = 3


def model(base, seed, stage="orig"):
    return Side(f"{base}-{stage.upper()}[{seed}]", seed, base, stage)


def cells(models, comparison, similarity, measure="cka"):
    """Rows of a joint grid of all layers of the models."""
    layers = list(product(models, range(LAYERS)))
    return [
        ResultRow(
            experiment=JOINT,
            comparison=comparison,
            measure=measure,
            kind="word-last",
            **x.columns("x"),
            **y.columns("y"),
            layer_x=a,
            layer_y=b,
            value=similarity(x, a, y, b),
            n=100,
            task="rt",
        )
        for (x, a), (y, b) in product(layers, layers)
    ]


def similarity(x, a, y, b):
    """Layer 2 of a GPT-2 is as layer 1 of a BERT; one direction has .02 more than the other."""
    more = 0.02 * (x.label < y.label)
    if x.base != y.base:
        bert, gpt = (a, b) if x.base == "bert" else (b, a)
        return more + (0.7 if (bert, gpt) == (1, 2) else 0.1)
    return more + {"bert": 0.6, "gpt2": 0.4}[x.base] + 0.1 * (a == b)


@pytest.fixture(scope="module")
def summary():
    models = [model(base, seed) for seed in range(3) for base in ("gpt2", "bert")]
    tuned = [model("bert", seed, stage) for seed in range(3) for stage in ("orig", "ft")]
    rows = cells(models, "ORIG", similarity)
    rows += cells(tuned, "bert ORIG + FT", lambda x, a, y, b: 0.9 - 0.2 * a * (x.stage != y.stage))
    rows += [
        ResultRow(
            experiment=LOCALIZATION,
            comparison="ORIG",
            measure=LOCALIZATION,
            kind="word-last",
            **one.columns("x"),
            layer_x=layer,
            value=0.1 * layer + 0.01 * one.seed,
            n=100,
            task="rt",
        )
        for one in models
        for layer in range(LAYERS)
    ]
    return architectures.summary(to_frame(rows))


def value(summary, what, x, y, column="mean"):
    found = summary[(summary["what"] == what) & (summary["layer_x"] == x)]
    found = found[found["layer_y"].isna() if y is None else found["layer_y"] == y]
    assert len(found) == 1
    return found[column].item()


def test_pairs_are_told_apart_by_their_architectures(summary):
    assert value(summary, "two BERTs", 1, 1) == pytest.approx(0.71)
    assert value(summary, "two BERTs", 1, 2) == pytest.approx(0.61)
    assert value(summary, "two GPT-2s", 1, 1) == pytest.approx(0.51)
    assert value(summary, "two GPT-2s", 1, 1, "models") == 3
    assert value(summary, "different architectures", 0, 0, "models") == 6
    # The first layer is the BERT's.
    assert value(summary, "different architectures", 1, 2) == pytest.approx(0.71)
    assert value(summary, "different architectures", 2, 1) == pytest.approx(0.11)
    less = "same architecture minus different architectures"
    assert value(summary, less, 1, 1) == pytest.approx(0.6 - 0.1)


def test_seeds_give_the_intervals(summary):
    assert value(summary, "bert after and before fine-tuning", 2, 2) == pytest.approx(0.5)
    assert value(summary, "bert after and before fine-tuning", 0, 0) == pytest.approx(0.9)
    what = "gpt2 orig in the grid ORIG"
    assert value(summary, what, 2, None) == pytest.approx(0.21)
    half = 4.302653 * 0.01 / 3**0.5  # Student's t of two degrees of freedom
    assert value(summary, what, 2, None, "low") == pytest.approx(0.21 - half, abs=1e-4)
    assert value(summary, what, 2, None, "high") == pytest.approx(0.21 + half, abs=1e-4)


def test_losses_stand_beside_accuracies(tmp_path):
    for number, objective in enumerate(("causal", "masked")):
        folder = tmp_path / f"model-{number}"
        folder.mkdir()
        recipe = {"objective": objective, "seed": 4}
        measured = {"recipe": recipe, "steps": 9, "loss": 4.5, "unigram_loss": 6.0}
        (folder / "pretraining.json").write_text(json.dumps(measured))
    row = ResultRow(
        experiment="baseline",
        measure="accuracy",
        **model("bert", 4, "ft").columns("x"),
        value=0.75,
        n=100,
        task="rt",
    )
    frame = architectures.trained(tmp_path, to_frame([row]))
    assert frame["model"].tolist() == ["bert", "gpt2"]
    assert frame["below"].tolist() == [1.5, 1.5]
    assert frame["tuned_accuracy"].tolist()[0] == 0.75
    assert frame["tuned_accuracy"].isna().tolist() == [False, True]


def shown(number):
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:.2f}")


def test_the_page_has_the_committed_numbers():
    page = (ROOT / "docs" / "results" / "experiments.md").read_text()
    page = page.partition("## Two architectures from scratch")[2]
    table = pd.read_csv(STUDIES / "results" / "two-architectures-offline.csv")
    equal = table[table["layer_x"] == table["layer_y"]].sort_values("layer_x")
    for measure in ("cka", "svcca", "pwcca", "neuronsim"):
        name = measure.upper() if measure != "neuronsim" else measure
        for what in architectures.GROUPS:
            rows = equal[(equal["measure"] == measure) & (equal["what"] == what)]
            ends = rows[["low", "high"]].iloc[-1].map(shown)
            cells = [name, what, *rows["mean"].map(shown), " to ".join(ends)]
            assert f"| {' | '.join(cells)} |" in page
    for one in pd.read_csv(STUDIES / "results" / "two-architectures-models.csv").itertuples():
        name = {"bert": "BERT", "gpt2": "GPT-2"}[one.model]
        losses = f"{one.heldout_loss:.2f} | {one.below:.2f} | {shown(one.tuned_accuracy)}"
        assert f"| {name} {one.seed} | {one.steps:,} | {losses} |" in page
    gpts = table[table["what"] == "gpt2 orig in the grid gpt2 ORIG + FT"].set_index("layer_x")[
        "mean"
    ]
    rise = f"{shown(gpts[1])} at layer 1 to {shown(gpts[4])} at layer 4"
    assert f"GPT-2s rises from {rise}" in " ".join(page.split())
