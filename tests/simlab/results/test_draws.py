"""Draws over examples as text in a results table, and the files that have them."""

import base64
import json
import zlib

import numpy as np
import pandas as pd
import pytest

from simlab.figures.table import complete, without_copies
from simlab.models.evaluate import metric_columns
from simlab.report.write import curves
from simlab.results.reading import read_results
from simlab.results.results import DRAWS, KEPT, pack_draws, to_frame, unpack_draws, write_results
from support.lab.claimrows import block_diagonal, top_layers_can_go
from support.lab.result_rows import with_draws


def test_draws_come_back_as_deviations_from_their_mean():
    values = np.random.default_rng(0).normal(0.7, 0.01, KEPT)
    examples, deviations = unpack_draws(pack_draws(values, 400))
    assert examples == 400
    np.testing.assert_allclose(deviations, values - values.mean(), rtol=0, atol=1e-8)


def test_undefined_draws_stay_undefined_and_keep_their_place():
    _, deviations = unpack_draws(pack_draws([0.1, np.nan, 0.3], 5))
    np.testing.assert_allclose(deviations, [-0.1, np.nan, 0.1], atol=1e-7)
    assert pack_draws([np.nan, 0.1, np.nan], 5) is None


def test_a_value_keeps_so_many_draws():
    _, deviations = unpack_draws(pack_draws(np.arange(KEPT + 50), 9))
    assert len(deviations) == KEPT


def test_metrics_of_two_models_are_drawn_from_the_same_examples():
    labels = np.arange(200) % 2
    right = np.random.default_rng(0).random(200) < 0.8
    first = metric_columns("accuracy", 0.8, np.where(right, labels, 1 - labels), labels)
    other = metric_columns("accuracy", 0.2, np.where(right, 1 - labels, labels), labels)
    (examples, draws), (_, opposite) = (unpack_draws(one["draws"]) for one in (first, other))
    assert examples == 200
    np.testing.assert_allclose(draws, -opposite, atol=1e-6)
    half = 1.96 * np.std(draws, ddof=1)
    assert first["high"] - 0.8 == pytest.approx(half, rel=1e-3)


@pytest.fixture
def results(tmp_path):
    """A folder of results with draws in every row."""
    (tmp_path / "results").mkdir()
    for name, rows in (("grids", block_diagonal("holds")), ("curves", top_layers_can_go("holds"))):
        draws = np.random.default_rng(0).normal(0, 0.01, (KEPT, len(rows)))
        frame = with_draws(to_frame(rows), draws)
        write_results(frame, tmp_path / "results" / f"{name}.parquet")
    return tmp_path / "results"


def test_files_with_draws_are_read_by_every_command(results, tmp_path, simcore):
    assert read_results(results)[DRAWS].notna().all()
    made = tmp_path / "made"
    for command in (
        ("plot", results, "--out", made / "figures", "--format", "svg"),
        ("report", results, "--out", made / "page.html"),
        ("claims", results, "--out", made / "claims.parquet", "--csv"),
        ("blocks", results, "--out", made / "blocks.parquet"),
    ):
        code, _, errors = simcore(*command)
        assert (code, errors) == (0, [])
    assert len(list((made / "figures").iterdir())) > 1
    assert (pd.read_csv(made / "claims.csv")["verdict"] == "holds").any()
    assert read_results(made / "blocks.parquet")[DRAWS].isna().all()


def test_the_rows_beside_a_figure_of_a_page_have_no_draws(results):
    views, text = curves(without_copies(complete(read_results(results / "curves.parquet"))))
    (rows, *_) = {view["rows"] for view in views}
    table = json.loads(zlib.decompress(base64.b64decode(text[rows])))
    assert {"low", "resampling"} < set(table["columns"])
    assert DRAWS not in table["columns"]


def test_a_file_may_lack_draws(results):
    whole = pd.read_parquet(results / "curves.parquet")
    whole.drop(columns=DRAWS).to_parquet(results / "curves.parquet")
    assert read_results(results / "curves.parquet")[DRAWS].isna().all()
    whole.drop(columns=DRAWS).to_csv(results / "curves.csv", index=False)
    assert read_results(results / "curves.csv")[DRAWS].isna().all()
    assert json.loads(whole["resampling"].iloc[0]) == {"examples": KEPT, "seed": 0}
