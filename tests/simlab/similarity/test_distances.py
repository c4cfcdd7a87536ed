"""Distances and measures of uncentred layers by the command's function: values, draws, blocks."""

import json
import sys

import numpy as np
import pytest

from simcore import reference
from simlab import extract, grid, import_representations, load_representations, read_results
from simlab.errors import UserError
from simlab.models.sources import resolve
from simlab.report.gather import gather
from simlab.representations.passes import ExtractOptions
from simlab.similarity.blocks import block_rows
from simlab.similarity.catalogue import MEASURES
from support.distance_table import DISTANCE_ROWS
from support.lab.tinymodels import PIECES, save_tiny_model
from support.tolerance import FLOAT32_MEASURE

NAMES = [row.name for row in DISTANCE_ROWS if row.name in MEASURES]
# Those without a row there: their twins take long, or have no estimate.
ALONE = ("match-transport", "transport-distance", "imd")


@pytest.fixture(scope="module")
def reps(tmp_path_factory, review_task):
    """The words of two random twins of a tiny model."""
    folder = tmp_path_factory.mktemp("reps")
    source = resolve(str(save_tiny_model(folder / "model", pieces=PIECES)))
    for name, seed in (("a", 3), ("b", 5)):
        options = ExtractOptions(kind="word-mean", limit=12, random_init_seed=seed)
        extract(source, review_task, folder / name, options, label=name.upper(), seed=seed)
    return [folder / "a", folder / "b"]


def table_of(path):
    rows = read_results(path)
    return rows.pivot(index="layer_x", columns="layer_y", values="value").to_numpy()


@pytest.mark.parametrize("name", NAMES)
def test_grids(tmp_path, reps, name):
    """The values of the twin; within the range; 0 or 1 for a layer with itself."""
    measure, out = MEASURES[name], tmp_path / "grid.parquet"
    row = next(row for row in DISTANCE_ROWS if row.name == name)
    assert measure.function == row.function
    assert {**measure.options, **measure.fixed}.items() >= row.options.items()
    grid(reps, out, measure=name)
    x, y = ([np.asarray(t) for t in load_representations(folder).layers] for folder in reps)
    options = {**row.options, **({"eps": np.finfo(np.float32).eps} if row.rank_rule else {})}
    want = getattr(reference, row.function)(x, y, **options)
    found = table_of(out)
    np.testing.assert_allclose(found, want, rtol=FLOAT32_MEASURE, atol=FLOAT32_MEASURE)
    assert ((measure.lowest <= found) & (found <= measure.highest)).all()
    grid(reps[:1], tmp_path / "own.parquet", measure=name)
    own = np.diag(table_of(tmp_path / "own.parquet"))
    assert measure.distance == (row.itself == 0)
    itself = row.itself
    if name == "eigenspace-overlap":  # LayerNorm leaves dependent columns
        itself = np.linalg.matrix_rank(x[0]) / x[0].shape[1]
    np.testing.assert_allclose(own, itself, atol=0 if measure.distance else FLOAT32_MEASURE)


@pytest.mark.parametrize("name", ALONE)
def test_grids_without_a_row(tmp_path, reps, name):
    measure, out = MEASURES[name], tmp_path / "grid.parquet"
    grid(reps, out, measure=name)
    x, y = ([np.asarray(t) for t in load_representations(folder).layers] for folder in reps)
    want = getattr(reference, measure.function)(x, y, **measure.fixed)
    np.testing.assert_allclose(table_of(out), want, atol=FLOAT32_MEASURE)
    grid(reps[:1], tmp_path / "own.parquet", measure=name)
    own = np.diag(table_of(tmp_path / "own.parquet"))
    np.testing.assert_allclose(own, 0 if measure.distance else 1, atol=0)


def test_transport_between_widths(tmp_path, monkeypatch):
    """By the package POT; without it the error says what to install."""
    generator, x = np.random.default_rng(0), []
    for width in (4, 6):
        x.append(generator.standard_normal((20, width)))
        np.savez(tmp_path / f"{width}.npz", x[-1])
        import_representations(tmp_path / f"{width}.npz", tmp_path / str(width), label=str(width))
    folders = [tmp_path / "4", tmp_path / "6"]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ot", None)
        with pytest.raises(UserError, match=r"wanted the package POT, .* `pip install POT`"):
            grid(folders, tmp_path / "grid.parquet", measure="match-transport")
    assert not (tmp_path / "grid.parquet").exists()
    grid(folders, tmp_path / "grid.parquet", measure="match-transport")
    want = reference.matching_grid(x[:1], x[1:], matching="transport")
    np.testing.assert_allclose(table_of(tmp_path / "grid.parquet"), want, atol=FLOAT32_MEASURE)


def test_draws_of_a_distance(tmp_path, tiny_bert, review_task):
    options = ExtractOptions(kind="mean", limit=30)
    extract(tiny_bert, review_task, tmp_path / "mean", options, label="A")
    out = tmp_path / "gulp.parquet"
    grid(tmp_path / "mean", out, measure="gulp", ridge=0.1, bootstrap=20, permutations=19)
    frame = read_results(out)
    assert json.loads(frame.iloc[0]["options"]) == {"ridge": 0.1}
    own = frame[frame["layer_x"] == frame["layer_y"]]
    assert (own["pvalue"] == 0.05).all()
    assert (own["calibrated"] == 1).all()
    assert (frame["low"] >= 0).all()
    assert (frame["high"] >= frame["value"]).all()
    assert (frame["calibrated"] > 0.1).all()


@pytest.mark.parametrize("measure", ["cosine", "rsm-difference"])
def test_draws_of_a_layer_whose_rows_are_equal(tmp_path, recwarn, measure):
    """No permutation changes its value: it has a p-value, and nothing to calibrate."""
    np.savez(tmp_path / "rows.npz", np.tile(np.arange(1.0, 6.0), (20, 1)))
    import_representations(tmp_path / "rows.npz", tmp_path / "rows", label="A")
    grid(tmp_path / "rows", tmp_path / "grid.parquet", measure=measure, permutations=9)
    frame = read_results(tmp_path / "grid.parquet")
    assert frame["pvalue"].tolist() == [1]
    assert frame["calibrated"].isna().all()
    assert not recwarn.list


def test_an_interval_of_a_value_above_one_holds_the_value(tmp_path):
    generator = np.random.default_rng(2)
    x = generator.standard_normal((90, 12)) * np.where(np.arange(12) == 3, 100, 1)
    rotation = np.linalg.qr(generator.standard_normal((12, 12)))[0]
    for name, rows in (("x", x), ("y", x @ rotation + 0.3 * generator.standard_normal((90, 12)))):
        np.savez(tmp_path / f"{name}.npz", rows)
        import_representations(tmp_path / f"{name}.npz", tmp_path / name, label=name)
    out = tmp_path / "grid.parquet"
    grid([tmp_path / "x", tmp_path / "y"], out, measure="cknna", bootstrap=5)
    row = read_results(out).iloc[0]
    assert row["value"] > 1
    assert row["low"] <= row["value"] <= row["high"]


@pytest.mark.parametrize("measure", ["magnitude", "imd"])
def test_measures_of_unpaired_rows_are_not_permuted(tmp_path, reps, measure):
    out = tmp_path / "grid.parquet"
    with pytest.raises(UserError, match=r"^permutations: wanted .* rows, found"):
        grid(reps, out, measure=measure, permutations=9)
    assert not out.exists()
    grid(reps, out, measure=measure, bootstrap=4)


def test_options_of_other_norms(tmp_path, reps):
    out = tmp_path / "grid.parquet"
    grid(reps, out, measure="rsm-difference", norm="spectral")
    x, y = (load_representations(folder).layers for folder in reps)
    want = reference.rsm_difference_grid(x, y, norm="spectral")
    np.testing.assert_allclose(table_of(out), want, rtol=FLOAT32_MEASURE)


def test_blocks_leave_distances_out(tmp_path, reps):
    for name in ("gulp", "cosine"):
        grid(reps[:1], tmp_path / f"{name}.parquet", measure=name)
    both = read_results([tmp_path / "gulp.parquet", tmp_path / "cosine.parquet"])
    assert {rows[0].measure for _, rows in block_rows(both)} == {"cosine"}
    with pytest.raises(UserError, match="wanted a grid of a model with itself"):
        list(block_rows(both[both["measure"] == "gulp"]))


def test_layers_that_are_alike_stand_together_on_the_page(tmp_path, reps):
    """The order of a grid of distances is that of their negatives as similarities."""
    from simlab.figures.table import without_copies
    from simlab.results.reading import read_table

    out = tmp_path / "grid.parquet"
    grid(reps, out, measure="angular", joint=True)
    (found,) = gather(without_copies(read_table([out]))).grids
    frame = read_results(out)
    frame["value"], frame["measure"] = 1 - frame["value"], "cosine"
    other = tmp_path / "cosine.parquet"
    frame.to_parquet(other)
    assert found["clustered"] == gather(without_copies(read_table([other]))).grids[0]["clustered"]
