"""Intervals, p-values and calibrated values of grids: whole texts are drawn, for every measure."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import simcore
from simcore import stats
from simcore.stats.draws import halves, permutations, read_groups, rotations
from simcore.stats.resampled_grid import generator
from simlab import TaskOptions, extract, grid, load_representations, load_task, read_results
from simlab.errors import UserError
from simlab.representations.folder import MANIFEST
from simlab.representations.passes import ExtractOptions
from simlab.results.results import STATISTICS, joint_table, unpack_draws
from simlab.similarity.catalogue import MEASURES
from simlab.store.files import hash_file, write_json
from support.lab.commandline import check_refused
from support.lab.tinymodels import each
from support.tolerance import FLOAT32_MEASURE

DRAWS = {"bootstrap": 6, "permutations": 7, "resampling_seed": 3}


def table(frame, column, x="A", y="B"):
    rows = frame[(frame["label_x"] == x) & (frame["label_y"] == y)]
    return rows.pivot(index="layer_x", columns="layer_y", values=column).to_numpy()


def assert_close(found, wanted):
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE * max(scale, 1))


def texts(stored):
    """The number of the text of each word."""
    return [int(row.split(":")[0].split("-")[-1]) for row in stored.ids]


PAIRED = [name for name in MEASURES if MEASURES[name].paired]
LONG = ("rtd",)  # persistent homology of all words takes minutes, and of a text's one row none


@pytest.mark.parametrize("measure", each(PAIRED, ("cka", "rsa", "procrustes", "attention-js")))
def test_every_measure_has_all_statistics(tmp_path, reps, measure):
    kind = "words" if MEASURES[measure].takes_representations else "attention"
    kind = "mean" if measure in LONG else kind
    folders, out = [reps / f"{name}-{kind}" for name in "ab"], tmp_path / "grid.parquet"
    grid(folders, out, measure=measure, joint=measure == "cka", **DRAWS)
    frame = read_results(out)
    assert frame[["value", *STATISTICS]].notna().all(axis=None)
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert (frame["high"] <= MEASURES[measure].highest + FLOAT32_MEASURE).all()
    assert frame["low"].lt(frame["high"]).mean() > 0.5
    assert (frame["pvalue"] * 8).round(9).isin(range(1, 9)).all()
    assert (frame["calibrated"] <= 1 + FLOAT32_MEASURE).all()
    assert {json.loads(record)["permutations"] for record in frame["resampling"]} == {7}
    examples, draws = zip(*map(unpack_draws, frame["draws"]), strict=True)
    assert set(examples) == {12}
    half = np.maximum(frame["high"] - frame["value"], frame["value"] - frame["low"])
    assert_close(1.959964 * np.std(draws, axis=1, ddof=1), half)
    assert not frame["options"].str.contains("permutations").any()
    without = tmp_path / "without.parquet"
    grid(folders, without, measure=measure, joint=measure == "cka")
    without = read_results(without)
    assert without["value"].equals(frame["value"])
    assert without[list(STATISTICS)].isna().all(axis=None)
    assert without[["resampling", "draws"]].isna().all(axis=None)


def test_words_are_drawn_in_whole_texts(tmp_path, reps):
    folders, out = [reps / "a-words", reps / "b-words"], tmp_path / "grid.parquet"
    grid(folders, out, measure="procrustes", **DRAWS)
    x, y = map(load_representations, folders)
    how = {"measure": "procrustes", "groups": texts(x), "seed": 3}
    test = stats.permutation_test(x.layers, y.layers, permutations=7, **how)
    interval = stats.bootstrap_ci(x.layers, y.layers, resamples=6, method="half", **how)
    frame = read_results(out)
    np.testing.assert_array_equal(table(frame, "pvalue"), test.pvalue)
    for column, wanted in (
        ("calibrated", test.calibrated),
        ("low", interval.low),
        ("high", interval.high),
    ):
        np.testing.assert_allclose(table(frame, column), wanted, rtol=0, atol=FLOAT32_MEASURE)


@pytest.mark.parametrize("same", [False, True])
def test_attention_is_drawn_in_whole_sentences(tmp_path, reps, same):
    folders = [reps / "a-attention", reps / ("a-attention" if same else "b-attention")]
    grid(folders, tmp_path / "grid.parquet", measure="attention-js", **DRAWS)
    x, y = (load_representations(folder) for folder in folders)
    lengths = x.manifest["lengths"]
    words = np.repeat(np.arange(len(lengths)), lengths)
    members = read_groups(words, len(words))

    def drawn(rows_x, rows_y):
        layers = (
            [[layer[s] for s in dict.fromkeys(words[rows])] for layer in side.layers]
            for side, rows in ((x, rows_x), (y, rows_y))
        )
        return simcore.attention_grid(*layers)

    rng = generator(3)
    everything = permutations(rng, len(words), 7, members)[0]
    moved = rotations(rng, len(words), 7, members)
    null = np.mean([drawn(everything, order) for order in moved], axis=0)
    frame = read_results(tmp_path / "grid.parquet")
    name = "A" if same else "B"
    values = table(frame, "value", y=name)
    calibrated = table(frame, "calibrated", y=name)
    wanted = (values - null) / (1 - null)
    np.testing.assert_allclose(calibrated, wanted, rtol=0, atol=FLOAT32_MEASURE)
    found = np.array([drawn(h, h) for h in halves(generator(3), len(words), 6, members)[1:]])
    low = values - 1.959964 * found.std(axis=0, ddof=1)
    np.testing.assert_allclose(table(frame, "low", y=name), low, rtol=0, atol=FLOAT32_MEASURE)


def test_pairs_of_words_are_drawn_in_whole_texts(tmp_path, reps):
    folders = [reps / "a-attention", reps / "b-attention"]
    out, options = tmp_path / "cka.parquet", {"estimator": "biased", "causal": True}
    grid(folders, out, permutations=7, **options)
    sides = [load_representations(folder) for folder in folders]
    layers = [
        [simcore.distributed_attention(layer, causal=True) for layer in side.layers]
        for side in sides
    ]
    pairs = [t * (t + 1) // 2 for t in sides[0].manifest["lengths"]]
    groups = np.repeat(np.arange(len(pairs)), pairs)
    test = stats.permutation_test(*layers, permutations=7, groups=groups)
    found = table(read_results(out), "calibrated")
    np.testing.assert_allclose(found, test.calibrated, rtol=0, atol=FLOAT32_MEASURE)


def test_cka_without_room_for_its_gram_matrices_is_computed_anew(tmp_path, reps, monkeypatch):
    folders = [reps / "a-words", reps / "b-words"]
    grid(folders, tmp_path / "grams.parquet", **DRAWS)

    def too_large(*_):
        raise stats.grams.GramsTooLargeError("max_memory: no room")

    monkeypatch.setattr(stats.grams, "_block_size", too_large)
    grid(folders, tmp_path / "anew.parquet", **DRAWS)
    anew, grams = (read_results(tmp_path / f"{name}.parquet") for name in ("anew", "grams"))
    for column in STATISTICS:
        np.testing.assert_allclose(anew[column], grams[column], rtol=0, atol=FLOAT32_MEASURE)


def test_draws_belong_to_the_key_and_their_absence_does_not(tmp_path, reps):
    folders, out = [reps / "a-cls", reps / "b-cls"], tmp_path / "grid.parquet"
    key = grid(folders, out, measure="rsa").key
    assert grid(folders, out, measure="rsa", resampling_seed=4).skipped
    with pytest.raises(UserError, match="overwrite=True"):
        grid(folders, out, measure="rsa", permutations=5)
    keys = {
        grid(folders, out, measure="rsa", overwrite=True, **draws).key
        for draws in (DRAWS, {**DRAWS, "bootstrap": 5}, {**DRAWS, "resampling_seed": 1})
    }
    assert len(keys | {key}) == 4


def test_an_undefined_layer_has_no_statistics(tmp_path, reps):
    grid([reps / "a-cls"], tmp_path / "grid.parquet", estimator="biased", **DRAWS)
    frame = read_results(tmp_path / "grid.parquet")
    defined = frame["value"].notna()
    assert 0 < defined.sum() < len(frame)
    for column in STATISTICS:
        assert frame[column].notna().equals(defined)


def test_halves_that_components_span_have_no_interval(tmp_path, reps, simcore):
    """Six of twelve texts have five dimensions, which the vectors of the classifier token span."""
    folders, out = [reps / "a-cls", reps / "b-cls"], tmp_path / "grid.parquet"
    *_, told = simcore("grid", *folders, "--out", out, "--measure", "cca", "--bootstrap", 4)
    frame = read_results(out)
    assert frame["value"].notna().any()
    assert frame[["low", "high"]].isna().all(axis=None)
    text = " ".join(told)
    assert text.count("--bootstrap: bootstrap_ci: cca wanted more rows in a resample") == 1
    assert "rows would be enough" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bootstrap", 4), "--bootstrap: method: wanted at least 4 rows in each draw"),
        (("--permutations", 4), "--permutations: groups: wanted two groups with the same"),
    ],
    ids=["bootstrap", "permutations"],
)
def test_too_few_texts_are_refused(tmp_path, reps, simcore, options, message):
    """Three texts, of 1, 2 and 3 words."""
    folder, out = tmp_path / "few", tmp_path / "grid.parquet"
    stored = load_representations(reps / "a-words")
    write_constructed(folder, [layer[:6] for layer in stored.layers], stored.manifest, (1, 2, 3))
    outcome = simcore("grid", folder, "--out", out, "--estimator", "unbiased", *options)
    check_refused(outcome, message)
    assert not out.exists()


def test_numbers_below_zero_are_refused(tmp_path, reps):
    with pytest.raises(UserError, match="permutations: wanted 0 or more, found -1"):
        grid([reps / "a-cls"], tmp_path / "grid.parquet", permutations=-1)


def write_constructed(folder, layers, manifest, sizes):
    """Write a folder of words: texts of so many words each."""
    folder.mkdir()
    data = folder / f"{manifest['kind']}.safetensors"
    save_file({f"layer.{i}": np.ascontiguousarray(layer) for i, layer in enumerate(layers)}, data)
    ids = [f"heldout-{text}:{word}:w" for text, size in enumerate(sizes) for word in range(size)]
    facts = {"n": len(ids), "layers": len(layers), "ids": ids, "data_sha256": hash_file(data)}
    examples = np.repeat(np.arange(len(sizes)), sizes).tolist()
    write_json(folder / MANIFEST, {**manifest, **facts, "examples": examples})


@pytest.mark.deep
def test_chance_is_visible_in_layers_of_unrelated_texts(tmp_path, minilm):
    """The rows of each grid are 70 texts of the task, and other 70 texts in their place."""
    task = load_task("rt", TaskOptions(heldout_size=140))
    extract(minilm, task, tmp_path / "all", ExtractOptions(kind="mean"), label="ORIG")
    stored = load_representations(tmp_path / "all")
    for name, rows in (("x", slice(70)), ("y", slice(70, None))):
        layers, manifest = [layer[rows] for layer in stored.layers], stored.manifest
        write_constructed(tmp_path / name, layers, {**manifest, "label": name}, [1] * 70)
    folders, out = [tmp_path / "x", tmp_path / "y"], tmp_path / "grid.parquet"
    grid(folders, out, measure="svcca", truncation=20, permutations=39, joint=True)
    frame = read_results(out).assign(same=lambda rows: rows["label_x"] == rows["label_y"])
    unrelated, related = frame[~frame["same"]], frame[frame["same"]]
    assert unrelated["value"].min() > 0.3
    assert unrelated["calibrated"].abs().mean() < 0.1
    assert unrelated["pvalue"].mean() > 0.1
    assert (related["pvalue"] == 1 / 40).all()
    _, calibrated = joint_table(frame.assign(value=frame["calibrated"]))
    np.testing.assert_allclose(np.diagonal(calibrated), 1, rtol=0, atol=FLOAT32_MEASURE)
