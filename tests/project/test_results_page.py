"""Tables and sentences of docs/results/experiments.md have the numbers of the committed rows."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simlab.similarity.blocks import find_blocks

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples" / "studies" / "results"
PAGE = (ROOT / "docs" / "results" / "experiments.md").read_text()
TEXT = " ".join(PAGE.split())
NAMES = {
    "linear": "linear",
    "linear by gradient descent": "linear-gd",
    "CCA": "cca",
    "SVCCA": "svcca",
    "PWCCA": "pwcca",
    "MLP": "mlp",
    "INN": "inn",
}
OURS = "as here"
AUTHORS = "as in the authors' code, 150 of its 3,000 batches"


def shown(number, decimals):
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:.{decimals}f}")


def table(words):
    """Return the header and the rows of the first table of the page below `words`."""
    _, found, rest = PAGE.partition(words)
    assert found
    block = re.search(r"^\|.*?(?=\n\n)", rest, re.MULTILINE | re.DOTALL)[0]
    lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
    return lines[0], lines[2:]


def check(words, heads, expected):
    """Compare a table of methods with what `expected` gives for the heads of a row and a method."""
    header, rows = table(words)
    for row in rows:
        for name, cell in zip(header[heads:], row[heads:], strict=True):
            assert cell == expected(*row[:heads], NAMES[name]), (words, row[:heads], name)
    return [tuple(row[:heads]) for row in rows]


def with_options(name, *choices):
    """Return committed rows with columns for these names of their options."""
    frame = pd.read_csv(RESULTS / f"{name}.csv")
    options = frame["options"].fillna("{}").map(json.loads)
    return frame.assign(**{one: options.map(lambda o, one=one: o.get(one, "")) for one in choices})


@pytest.fixture(scope="module")
def protocols():
    """Mean errors by data, kind of map, training and method, on rows that were held out."""
    frame = pd.read_csv(RESULTS / "protocols-rt.csv")
    frame = frame[frame["rows"] == "heldout"]
    keys = ["data", "map", "training", "method"]
    return frame.groupby(keys)[["mse", "relative"]].mean()


def mean_error(protocols, data, kind, trained, measure, method):
    """Return the cell of a method: fewer decimals where the maps are far off."""
    key = (data, kind, "ours" if trained == OURS else "ren2023", method)
    if key not in protocols.index:
        return "–"
    decimals = {"mse": 4, "relative": 3}[measure] - (trained != OURS)
    return shown(protocols.loc[key, measure], decimals)


def test_the_known_map(protocols):
    measures = {"relative": "relative", "squared": "mse"}

    def expected(trained, measure, method):
        return mean_error(protocols, "known map", "shared", trained, measures[measure], method)

    rows = check("**A known map, in the paper's direction (table 3).**", 2, expected)
    assert rows == [(way, measure) for way in (OURS, AUTHORS) for measure in measures]


def test_the_tuned_known_map():
    frame = with_options("known-inverse", "method")
    assert frame.groupby(["measure", "method"])["label_x"].nunique().eq(5).all()
    means = frame.groupby(["measure", "method"])["value"].mean()
    shares = pd.read_csv(RESULTS / "claims-known-inverse.csv").set_index("quantity")
    header, rows = table("The paper tunes every method.")
    wanted = []
    for name, measure, decimals in (
        ("relative error", "alignment-error", 3),
        ("squared error", "alignment-mse", 4),
    ):
        errors = [shown(means[measure, NAMES[method]], decimals) for method in header[1:-1]]
        of_inn = f"{name} of inn as a share of that of linear, minus 1, as inverses of f"
        share = shares.loc[of_inn, ["estimate", "low", "high"]]
        middle, low, high = (shown(one, 2) for one in share)
        wanted.append([name, *errors, f"{middle} [{low}, {high}]"])
    assert rows == wanted


def test_real_models():
    frame = with_options("alignment-rt", "method", "rows")
    frame = frame[(frame["comparison"] == "fine-tuned") & (frame["kind"] == "cls")]
    frame = frame[(frame["experiment"] == "alignment") & (frame["measure"] == "alignment-error")]
    means = frame.groupby(["rows", "method"])["value"].mean()
    parts = {"training sentences": "train", "held out": "heldout"}
    rows = check("**Real models.**", 1, lambda part, method: shown(means[parts[part], method], 3))
    assert rows == [(part,) for part in parts]


def test_protocols_of_alignment(protocols):
    kinds = {"one for each layer": "per-layer", "one for all layers": "shared"}

    def expected(kind, trained, method):
        return mean_error(protocols, "pairs of models", kinds[kind], trained, "mse", method)

    rows = check("**Which protocol of alignment makes", 2, expected)
    assert rows == [*((kind, OURS) for kind in kinds), ("one for all layers", AUTHORS)]


PROTOCOLS = {
    ("the tokens that are injected", OURS): ("cls", "tokens", ""),
    ("means over the tokens of texts", OURS): ("cls", "mean", ""),
    ("means over all positions", OURS): ("cls", "mean-padded", ""),
    (
        "means over all positions, all tokens injected",
        "as in the authors' code",
    ): ("all", "mean-padded", "ren2023"),
}  # fmt: skip


def test_protocols_of_injection():
    frame = with_options("injection-rt", "method", "fit_on", "continue_with", "training")
    frame = frame[frame["continue_with"] == "model"]
    solved = frame["method"].isin(["linear", "cca"])  # which have no training
    frame = pd.concat([frame, frame[solved].assign(training="ren2023")])
    keys = ["kind", "fit_on", "training", "method"]
    accuracy = frame.groupby(keys)["value"].agg(["mean", "min", "size"])
    assert set(accuracy["size"]) == {6}

    def expected(fitted, trained, method):
        one = accuracy.loc[(*PROTOCOLS[fitted, trained], method)]
        return f"{shown(one['mean'], 3)} ({shown(one['min'], 3)})"

    rows = check("**Which protocol of injection makes", 2, expected)
    assert rows == list(PROTOCOLS)


def test_table_4_of_25_small_berts():
    frame = pd.read_csv(RESULTS / "ren2023-offline.csv")
    frame = frame[frame["comparison"].isin(["table 4, ORIG", "table 4, FT"])]
    frame = frame[(frame["measure"] == "alignment-error") & (frame["layer_x"] > 0)]
    assert set(frame["count"]) == {8}
    means = frame.groupby(["x", "rows", "method"])["mean"].mean()
    parts = {
        "before fine-tuning, training rows": ("orig", "train"),
        "before fine-tuning, held-out rows": ("orig", "heldout"),
        "after, training rows": ("ft", "train"),
        "after, held-out rows": ("ft", "heldout"),
    }
    rows = check(
        "**Table 4: which map is best?**",
        1,
        lambda part, method: shown(means[(*parts[part], method)], 3),
    )
    assert rows == [(part,) for part in parts]


def test_table_5_of_25_small_berts():
    frame = pd.read_csv(RESULTS / "ren2023-offline.csv")
    means = frame[frame["experiment"] == "injection"].set_index("method")["mean"]
    own, linear, inn, cca, pwcca, mlp, labels = (
        shown(means[one], 3)
        for one in ("itself", "linear", "inn", "cca", "pwcca", "mlp", "random-labels")
    )
    assert (linear, cca) == (mlp, pwcca)
    words = (
        f"B's own states give {own}; mapped ones {linear} (linear and MLP), {inn} (INN) and "
        f"{cca} (CCA, PWCCA)"
    )
    assert words in TEXT
    assert f"random labels give {labels}" in TEXT


def perfect(split):
    """Return the p-value of two perfect blocks of six layers."""
    block = np.arange(6) >= split
    return find_blocks(np.equal.outer(block, block).astype(float), 2).pvalue


def test_blocks_of_minilm_with_five_seeds():
    rows = pd.read_parquet(RESULTS / "phang2021-offline.parquet")
    rows = rows[(rows["experiment"] == "block-score") & (rows["stage_x"] == "ft")]
    scores = rows[rows["options"] == '{"clusters": 2}']
    chosen = scores[scores["pvalue"] < 0.05].sort_values("pvalue")
    rt, stsb = (chosen.loc[chosen["task"] == task, "pvalue"] for task in ("rt", "stsb"))
    assert (len(rt), len(stsb)) == (3, 2)
    assert f"a p of {shown(rt.iloc[0], 4)} to {shown(rt.iloc[-1], 4)} with three" in TEXT
    assert f"of {shown(stsb.iloc[0], 4)} with two on `stsb`" in TEXT
    assert stsb.nunique() == 1
    least, next_least, *more = sorted(perfect(split) for split in range(1, 6))
    assert (least, next_least) == (perfect(2), perfect(3))
    assert f"{shown(least, 4)} (split after layer 2) or {shown(next_least, 4)} (after" in TEXT
    assert min(more) > next_least


def test_complexity_of_25_small_berts():
    """The top third of four layers is two layers."""
    frame = pd.read_csv(RESULTS / "ren2023-offline.csv")
    frame = frame[(frame["experiment"] == "complexity") & (frame["layer_x"] > 0)]
    norms = frame.set_index(["measure", "x", "layer_x"])["mean"].unstack()
    share = norms[[3, 4]].sum(axis=1) / norms[[1, 2]].sum(axis=1) - 1
    plain, unit = share["nuclear-norm-raw"], share["nuclear-norm"]
    assert f"holds after fine-tuning ({shown(unit['ft'], 2)} [" in TEXT
    assert f"fails before ({shown(unit['orig'], 3)} [" in TEXT
    assert f"changes by {shown(plain['orig'], 3)} [" in TEXT
    assert f"and by {shown(plain['ft'], 3)} [" in TEXT


def test_attention_of_25_small_berts():
    frame = pd.read_csv(RESULTS / "ren2023-offline.csv")
    frame = frame[(frame["measure"] == "alignment-error") & (frame["layer_x"] > 0)]
    frame = frame[frame["comparison"].str.startswith("300 pairs", na=False)]
    frame = frame[frame["rows"] == "heldout"]
    means = frame.groupby(["x", "kind"])["mean"].mean().map(lambda error: shown(error, 2))
    before, after = means["orig"], means["ft"]
    words = f"{before['attention']} where that of hidden states is {before['mean-all']}, and after"
    assert (
        f"the error is {words} fine-tuning {after['attention']} beside {after['mean-all']}" in TEXT
    )
