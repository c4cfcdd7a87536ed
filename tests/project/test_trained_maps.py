"""The study of maps between trained BERTs: its tables on constructed rows, and its page."""

import importlib
import json
import re
import sys
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest

from simlab.results.results import ALIGNMENT, INJECTION, ResultRow, Side, to_frame

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "examples" / "studies"
sys.path.append(str(STUDIES))  # where studies find one another
trained_maps = importlib.import_module("trained_maps")

MODELS = [Side(f"bert-FT[{seed}]", seed, "bert", "ft") for seed in range(3)]
MORE = {"linear": 0.0, "inn": 0.2}


def row(x, y, value, experiment, layer, kind, **options):
    return ResultRow(
        experiment=experiment,
        comparison="table 4, FT" if experiment == ALIGNMENT else None,
        measure="alignment-error" if experiment == ALIGNMENT else "accuracy",
        kind=kind,
        options=json.dumps(options),
        **x.columns("x"),
        **y.columns("y"),
        layer_x=layer,
        layer_y=layer,
        value=value,
        n=100,
        task="rt",
    )


def error(x, y, layer, method, training="ours"):
    """An error of .1 by layer, and by the sum of both seeds; the network errs more."""
    more = MORE[method] + (1.0 if training != "ours" else 0.0)
    chosen = {} if training == "ours" and method == "linear" else {"hidden": 64}
    options = {"method": method, "rows": "heldout", "chosen": chosen}
    if training != "ours":
        options |= {"training": training}
        del options["chosen"]
    value = 0.1 * layer + 0.1 * (x.seed + y.seed) + more
    return row(x, y, value, ALIGNMENT, layer, "mean-all", **options)


@pytest.fixture(scope="module")
def frame():
    pairs = list(combinations(MODELS, 2))
    rows = [error(*pair, layer, m) for pair in pairs for layer in range(3) for m in MORE]
    rows += [error(*pair, layer, "inn", "ren2023") for pair in pairs for layer in range(3)]
    accuracies = {"identity": 0.5, "linear": 0.6, "inn": 0.65}
    way = {"fit_on": "mean-all", "continue_with": "model"}
    rows += [
        row(*pair, value, INJECTION, 4, "all", method=method, **way)
        for pair in pairs
        for method, value in accuracies.items()
    ]
    return to_frame(rows)


def found(table, **wanted):
    for column, value in wanted.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_errors_are_means_over_the_layers_above_the_embedding_output(frame):
    errors = trained_maps.summary(frame)
    errors = errors[errors["experiment"] == ALIGNMENT]
    linear = found(errors, method="linear", minus="")
    # Layers 1 and 2, and sums of seeds of 1, 2 and 3.
    assert linear["mean"] == pytest.approx(0.15 + 0.2)
    assert (linear["models"], linear["pairs"]) == (3, 3)
    assert linear["low"] < linear["mean"] < linear["high"]


def test_methods_are_compared_with_the_linear_map_pair_by_pair(frame):
    errors = trained_maps.summary(frame)
    errors = errors[errors["experiment"] == ALIGNMENT]
    ours = found(errors, method="inn", training="ours", minus="linear")
    assert ours["mean"] == pytest.approx(0.2)
    assert found(errors, training="ren2023", minus="linear")["mean"] == pytest.approx(1.2)
    assert not ((errors["method"] == "linear") & (errors["minus"] == "linear")).any()


def test_accuracies_are_compared_with_the_states_as_they_are(frame):
    accuracies = trained_maps.summary(frame)
    accuracies = accuracies[accuracies["experiment"] == INJECTION]
    assert set(accuracies["protocol"]) == {"mean-all, model"}
    assert found(accuracies, method="inn", minus="identity")["mean"] == pytest.approx(0.15)
    assert found(accuracies, method="identity", minus="linear")["mean"] == pytest.approx(-0.1)


def test_chosen_settings_are_counted_once_for_a_pair(frame):
    table = trained_maps.settings(frame)
    assert table[["method", "chosen", "pairs"]].to_numpy().tolist() == [
        ["inn", '{"hidden": 64}', 3],
        ["linear", "{}", 3],
    ]


# The page.

NAMES = {
    "itself": "B's own states",
    "identity": "A's states as they are",
    "linear": "least squares",
    "inn": "INN",
    "mlp": "MLP",
    "pwcca": "PWCCA",
    "svcca": "SVCCA",
    "cca": "CCA",
    "linear-gd": "linear by gradient descent",
    "random-classifier": "random classifier",
    "random-labels": "random labels",
}
NONE = "–"
NAMED = {  # on the rows of the fit
    "linear": "",
    "mlp": "its error minus least squares' is",
    "inn": "the network's",
}
ATTENTION = (
    "linear maps of attention as a share of that of hidden states, minus 1, pretrained models"
)
TOP = "the top third of the layers as a share of that below, minus 1"
PERCENT = [
    ("relative error of inn as a share", 1, "the network then errs {} % more [{}, {}]"),
    ("relative error of linear maps of hidden states", 0, "({} % more [{}, {}])"),
    (f"relative error of {ATTENTION}", 0, "by {} % [{}, {}]"),
    (f"nuclear norm of {TOP}, pretrained models", 0, "by {} % before and"),
    (f"nuclear norm of {TOP}, fine-tuned models", 0, "and {} % after"),
]


def shown(number, digits=3):
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:.{digits}f}")


def cell(table, *, minus="", **wanted):
    """A mean, or a difference with its interval, as the page shows it."""
    for column, value in (wanted | {"minus": minus}).items():
        table = table[table[column] == value]
    if table.empty:
        return NONE
    row = table.iloc[0]
    if not minus:
        return shown(row["mean"])
    return f"{shown(row['mean'])} ({shown(row['low'])} to {shown(row['high'])})"


def line(*cells):
    return f"| {' | '.join(cells)} |"


def errors_line(table, method):
    chosen = {"kind": "mean-all", "measure": "alignment-error", "rows": "heldout"}
    cells = [
        cell(table, method=method, stage=stage, minus=minus, **chosen)
        for stage in ("orig", "ft")
        for minus in ("", "linear")
    ]
    return line(NAMES[method], *cells)


def injection_line(table, method):
    cells = [
        cell(table, method=method, training=training, minus=minus)
        for training in ("ours", "ren2023")
        for minus in ("", "linear", "identity")
    ]
    return line(NAMES[method], *cells)


@pytest.fixture(scope="module")
def committed():
    file = STUDIES / "results" / "ren2023-trained-maps.csv"
    return pd.read_csv(file, keep_default_na=False, na_values=["nan"])


@pytest.fixture(scope="module")
def section():
    page = (ROOT / "docs" / "results" / "experiments.md").read_text()
    return page.partition("## Five trained BERTs\n")[2].partition("\n## ")[0]


def test_the_page_has_the_committed_errors(committed, section):
    errors = committed[committed["experiment"] == ALIGNMENT]
    for method in errors.loc[errors["kind"] == "mean-all", "method"].unique():
        assert errors_line(errors, method) in section


def test_the_page_has_the_committed_accuracies(committed, section):
    accuracies = committed[committed["experiment"] == INJECTION]
    for method in accuracies["method"].unique():
        assert injection_line(accuracies, method) in section


def test_the_page_has_the_committed_errors_on_the_rows_of_the_fit(committed, section):
    chosen = {"kind": "mean-all", "stage": "orig", "measure": "alignment-error", "rows": "train"}
    some = committed[committed["experiment"] == ALIGNMENT]
    means = {method: found(some, method=method, minus="", **chosen)["mean"] for method in NAMED}
    assert sorted(means, key=means.get) == ["mlp", "inn", "linear"]
    text = " ".join(section.split())
    for method, words in NAMED.items():
        if method != "linear":
            row = found(some, method=method, minus="linear", **chosen)
            mean, low, high = (shown(row[name], 4) for name in ("mean", "low", "high"))
            assert f"{words} {mean} ({low} to {high})" in text


def test_the_page_has_the_committed_errors_of_attention(committed, section):
    text = " ".join(section.split())
    chosen = {"kind": "attention", "measure": "alignment-error", "rows": "heldout"}
    for stage, words in (("orig", "before and"), ("ft", "after")):
        row = found(committed, stage=stage, **chosen)
        mean, low, high = (shown(row[name]) for name in ("mean", "low", "high"))
        assert f"{mean} ({low} to {high}) {words}" in text


def test_the_page_has_the_committed_verdicts_in_percent(section):
    verdicts = pd.read_csv(STUDIES / "results" / "claims-ren2023-trained.csv")
    share = (
        verdicts.dropna(subset="quantity").set_index("quantity")[["estimate", "low", "high"]] * 100
    )
    text = " ".join(section.split())
    for quantity, digits, words in PERCENT:
        mean, low, high = share[share.index.str.startswith(quantity)].iloc[0]
        assert words.format(*(f"{one:.{digits}f}" for one in (mean, low, high))) in text


def test_the_page_says_which_searches_end_at_a_border(section):
    table = pd.read_csv(STUDIES / "results" / "ren2023-trained-settings.csv")
    pairs = table.groupby(["experiment", "method", "chosen"])["pairs"].sum()
    text = " ".join(section.split())
    least = {"pwcca": '{"weight_share": 0.9}', "svcca": '{"truncation": 0.9}'}
    fits = {method: pairs[ALIGNMENT, method, setting] for method, setting in least.items()}
    of = {method: pairs[ALIGNMENT, method].sum() for method in (*least, "mlp")}
    injected = pairs[INJECTION]
    pwcca = (injected["pwcca", least["pwcca"]], injected["pwcca"].sum())
    assert f"(.9) in {fits['pwcca']} of {of['pwcca']} fits and {pwcca[0]} of {pwcca[1]} inj" in text
    assert f"(.9) in {fits['svcca']} of {of['svcca']} fits" in text
    mlp = pairs[ALIGNMENT, "mlp", '{"hidden": 128}']
    assert f"(128 hidden units) in {mlp} of {of['mlp']} fits" in text
    wide, narrow = '{"hidden": 1024}', '{"hidden": 64}'
    assert f"it takes the widest (1,024) for {injected['mlp', wide]} pairs" in text
    words = f"(64) for {injected['inn', narrow]} pairs and its widest (1,024) for"
    assert f"{words} {injected['inn', wide]}." in text
