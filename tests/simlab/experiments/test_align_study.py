"""Alignment studies: the rows that maps are fitted on; results stored, resumed and drawn."""

import json
from dataclasses import replace
from itertools import permutations
from shutil import copytree

import numpy as np
import pytest

import simcore
from simcore.align import LinearAligner
from simlab import align_study, extract, load_representations, plot, read_results
from simlab.errors import UserError
from simlab.experiments.align_rows import Member, nuclear_norm, raw_nuclear_norm, split_rows
from simlab.experiments.align_study import Part
from simlab.experiments.options import StudyOptions
from simlab.representations.passes import ExtractOptions
from simlab.store.files import read_json, write_json
from support.lab.tinymodels import LAYERS
from support.tolerance import ALIGNED, FLOAT32_MEASURE, FLOAT64_RELATIVE

LINEAR = StudyOptions("ft", ("linear",), heldout_share=0.4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert, review_task):
    """Representation folders of three random twins, by kind."""
    root = tmp_path_factory.mktemp("study")

    def make(kind, count, split):
        found = []
        for seed in range(count):
            folder = root / f"{kind}-{seed}"
            how = ExtractOptions(kind, split, 64, random_init_seed=seed)
            extract(tiny_bert, review_task, folder, how, label=f"R[{seed}]", seed=seed)
            found.append(folder)
        return found

    return {
        "cls": make("cls", 3, "train"),
        "token": make("token", 2, "heldout"),
        "attention": make("attention", 2, "heldout"),
    }


def value(frame, measure, part, layer, other=None, **columns):
    wanted = {"measure": measure, "layer_x": layer, **columns}
    chosen = frame[[json.loads(o)["rows"] == part for o in frame["options"]]]
    for name, content in wanted.items():
        chosen = chosen[chosen[name] == content]
    chosen = chosen[chosen["layer_y"] == (layer if other is None else other)]
    assert len(chosen) == 1
    return float(chosen["value"].iloc[0])


def test_errors_are_those_of_maps_fitted_on_other_examples(tmp_path, folders):
    align_study(folders["cls"], tmp_path, LINEAR)
    frame = read_results(tmp_path)
    frame = frame[frame["experiment"] == "alignment"]
    pairs = frame[["label_x", "label_y"]].drop_duplicates().apply(tuple, axis=1).tolist()
    assert sorted(pairs) == sorted(permutations(("R[0]", "R[1]", "R[2]"), 2))
    assert len(frame) == 6 * (LAYERS + 1) * 4
    split = split_rows(Member(load_representations(folders["cls"][0])), LINEAR)
    assert not set(split.train) & set(split.heldout)
    assert len(split.heldout) == round(0.4 * 128) == 128 - len(split.train)
    for i, j in ((0, 1), (1, 0), (2, 1)):
        mine = {"label_x": f"R[{i}]", "label_y": f"R[{j}]"}
        x, y = (load_representations(folders["cls"][model]).layers[2] for model in (i, j))
        aligner = LinearAligner().fit(x[split.train], y[split.train])
        for part in ("train", "heldout"):
            rows = getattr(split, part)
            expected = aligner.errors(x[rows], y[rows])
            assert value(frame, "alignment-mse", part, 2, **mine) == expected.mse
            assert value(frame, "alignment-error", part, 2, **mine) == expected.relative
        assert np.isnan(value(frame, "alignment-error", "heldout", 0, **mine))  # CLS of embeddings


def test_within_has_every_pair_of_layers_and_zeros_on_the_diagonal(tmp_path, folders):
    options = replace(LINEAR, within=True)
    align_study(folders["token"][:1], tmp_path, options)
    frame = read_results(tmp_path)
    frame = frame[frame["experiment"] == "alignment within"]
    assert len(frame) == (LAYERS + 1) ** 2 * 4
    with_itself = [value(frame, "alignment-error", "heldout", i) for i in range(LAYERS + 1)]
    assert value(frame, "alignment-error", "heldout", 3, 0) > 100 * max(with_itself)
    assert value(frame, "alignment-error", "heldout", 0, 3) != value(
        frame, "alignment-error", "heldout", 3, 0
    )


def test_heldout_errors_have_intervals_over_texts(tmp_path, folders):
    align_study(folders["token"], tmp_path, LINEAR)
    frame = read_results(tmp_path)
    frame = frame[frame["experiment"] == "alignment"]
    judged = frame["options"].map(lambda text: json.loads(text)["rows"] == "heldout")
    assert frame.loc[~judged, ["low", "high"]].isna().all().all()
    models = [load_representations(folder) for folder in folders["token"]]
    split = split_rows(Member(models[0]), LINEAR)
    x, y = (model.layers[2] for model in models)
    aligner = LinearAligner().fit(x[split.train], y[split.train])
    texts = models[0].row_examples()[split.heldout]
    stderr = aligner.errors(x[split.heldout], y[split.heldout], groups=texts).stderr
    mine = frame[judged & (frame["label_x"] == "R[0]") & (frame["layer_x"] == 2)]
    for measure, name in (("alignment-mse", "mse"), ("alignment-error", "relative")):
        row = mine[mine["measure"] == measure].iloc[0]
        assert row["high"] - row["value"] == pytest.approx(1.959964 * getattr(stderr, name))
        assert row["value"] - row["low"] == pytest.approx(1.959964 * getattr(stderr, name))


@pytest.mark.parametrize("kind", ["token", "attention"])
def test_rows_of_one_example_stay_on_one_side(folders, kind):
    model = load_representations(folders[kind][0])
    split = split_rows(Member(model), replace(LINEAR, rows=50))
    assert len(split.train) == len(split.heldout) == 50
    if kind == "token":
        examples = np.array([row.split(":")[0] for row in model.ids])
    else:
        lengths = model.manifest["lengths"]
        examples = np.concatenate([np.full(t * t, s) for s, t in enumerate(lengths)])
    assert not set(examples[split.train]) & set(examples[split.heldout])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_aligns_heads_over_word_pairs(tmp_path, folders, causal):
    """Causal attention leaves out masked pairs."""
    options = replace(LINEAR, causal=causal)
    align_study(folders["attention"], tmp_path, options)
    frame = read_results(tmp_path)
    x, y = (load_representations(folder) for folder in folders["attention"])
    layers = [simcore.distributed_attention(m.layers[1], causal=causal) for m in (x, y)]
    matrices = [np.asarray(layer, np.float32) for layer in layers]
    split = split_rows(Member(x), options)
    lengths = np.array(x.manifest["lengths"])
    pairs = lengths * (lengths + 1) // 2 if causal else lengths**2
    assert max(split.train.max(), split.heldout.max()) < sum(pairs)
    aligner = LinearAligner().fit(*(m[split.train] for m in matrices))
    expected = aligner.errors(*(m[split.heldout] for m in matrices))
    aligned = frame[frame["experiment"] == "alignment"]
    assert sorted(set(aligned["layer_x"])) == [1, 2, 3]
    assert value(aligned, "alignment-mse", "heldout", 2, label_x="R[0]") == expected.mse
    norms = frame[(frame["measure"] == "nuclear-norm") & (frame["layer_x"] == 2)]["value"]
    assert norms.iloc[0] == nuclear_norm(matrices[0])
    if causal:
        assert all(json.loads(text)["causal"] for text in frame["options"])
        assert plot(frame, tmp_path / "figures", ("svg",))
        with pytest.raises(UserError, match=r"causal: wanted kind attention in .* found cls"):
            align_study(folders["cls"], tmp_path / "cls", options)
        with pytest.raises(UserError, match="wanted a new file or one made from the same inputs"):
            align_study(folders["attention"], tmp_path, LINEAR)


def test_complexity_is_the_nuclear_norm_at_unit_frobenius_norm_and_raw(tmp_path, folders):
    align_study(folders["token"], tmp_path, LINEAR)
    frame = read_results(tmp_path)
    frame = frame[frame["measure"] == "nuclear-norm"]
    assert len(frame) == 2 * (LAYERS + 1)
    rows = load_representations(folders["token"][0]).layers[1].astype(np.float64)
    rows = rows - rows.mean(0)
    expected = np.linalg.norm(rows, "nuc") / np.linalg.norm(rows)
    found = frame[(frame["label_x"] == "R[0]") & (frame["layer_x"] == 1)]["value"].iloc[0]
    assert found == pytest.approx(expected, rel=FLOAT32_MEASURE)
    raw = read_results(tmp_path)
    raw = raw[(raw["measure"] == "nuclear-norm-raw") & (raw["label_x"] == "R[0]")]
    stored = load_representations(folders["token"][0]).layers
    for layer, norm in zip(raw["layer_x"], raw["value"], strict=True):
        expected = np.linalg.norm(stored[layer].astype(np.float64), "nuc")
        assert norm == pytest.approx(expected, rel=FLOAT64_RELATIVE)
    line = np.outer(np.arange(9.0), np.ones(4))
    assert raw_nuclear_norm(line + 1000) == pytest.approx(np.linalg.norm(line + 1000, "nuc"))
    assert nuclear_norm(line) == pytest.approx(1)
    assert np.isnan(nuclear_norm(np.ones((5, 3))))


def test_trained_maps_of_all_layers_learn_in_one_loop(tmp_path, folders):
    options = StudyOptions("ft", ("inn", "mlp"), heldout_share=0.4, epochs=2)
    align_study(folders["token"], tmp_path / "together", options)
    align_study(folders["token"], tmp_path / "apart", replace(options, at_once=1))
    together, apart = (read_results(tmp_path / name) for name in ("together", "apart"))
    keys = ["measure", "options", "label_x", "label_y", "layer_x"]
    merged = together.merge(apart, on=keys)
    assert len(merged) == len(together) == len(apart)
    assert np.allclose(merged["value_x"], merged["value_y"], rtol=ALIGNED)


def test_an_interrupted_study_goes_on_where_it_was(tmp_path, folders, monkeypatch):
    calls = []
    original = Part.__call__

    def interrupted(part):
        calls.append(part)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(part)

    monkeypatch.setattr(Part, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        align_study(folders["cls"], tmp_path, LINEAR)
    assert len(list(tmp_path.glob("*"))) == 4
    outcomes = align_study(folders["cls"], tmp_path, LINEAR)
    assert [outcome.skipped for outcome in outcomes] == [True] * 4 + [False] * 8
    assert len(calls) == 5 + 8


def test_the_command_and_its_figures(simcore, tmp_path, folders):
    results = tmp_path / "results"
    arguments = ["align-study", *folders["token"], "--out", results, "--name", "pretrained"]
    arguments += ["--method", "cca", "--within"]
    code, printed, errors = simcore(*arguments)
    assert (code, errors) == (0, [])
    assert "8 files" in printed
    assert "done before" in simcore(*arguments)[1]
    code, _, errors = simcore(*arguments, "--seed", 3)
    assert (code, len(errors)) == (2, 1)
    files = plot(read_results(results), tmp_path / "figures", ("svg",))
    names = [f"{what}-cca{end}" for what in ("layers", "within") for end in ("", "-mse")]
    found = {file.stem.removeprefix("reviews-alignment-token-") for file in files}
    assert found == {"complexity", *names}


def test_bad_input_is_named(tmp_path, folders):
    def refused(text, chosen=folders["cls"], **changes):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        with pytest.raises(UserError, match=text):
            align_study(chosen, out, replace(LINEAR, **changes))
        assert not list(out.glob("*alignment*"))

    refused("methods='conv': wanted one of linear", methods=("conv",))
    refused("methods: wanted each once, found cca, cca", methods=("cca", "cca"))
    refused("heldout_share=1.5: wanted a share", heldout_share=1.5)
    refused("rows: wanted 1 or more, found 0", rows=0)
    refused("wanted 2 folders or more, or within, found 1", folders["cls"][:1])
    refused("wanted folders with different labels", folders["cls"][:1] * 2)
    refused(
        "wanted 4 layers of cls as in .* found 4 layers of token",
        [folders["cls"][0], folders["token"][1]],
    )
    refused(
        r"heldout_share=0.001: wanted 2 examples or more on each side, found 0 of 128 held out",
        heldout_share=0.001,
    )
    few = r"cls-0 and .*cls-1, methods='linear': pair 0: X: wanted at least 25 rows .* got"
    refused(rf"{few} 10$", rows=10)
    refused(rf"{few} 13$", heldout_share=0.9)


def test_labels_that_differ_in_signs_alone_have_files_of_their_own(tmp_path, folders):
    relabelled = []
    for folder, label in zip(folders["cls"], ("FT[1]", "FT-1", "FT 1"), strict=True):
        copied = tmp_path / f"from-{folder.name}"
        copytree(folder, copied)
        manifest = read_json(copied / "manifest.json")
        write_json(copied / "manifest.json", {**manifest, "label": label})
        relabelled.append(copied)
    outcomes = align_study(relabelled, tmp_path / "out", LINEAR)
    assert len({outcome.path for outcome in outcomes}) == len(outcomes) == 2 * 3 + 6
    frame = read_results(tmp_path / "out")
    pairs = set(zip(frame["label_x"], frame["label_y"].fillna(""), strict=True))
    assert len(pairs) == 3 + 6
    assert all(o.skipped for o in align_study(relabelled, tmp_path / "out", LINEAR))


def test_files_that_are_being_written_are_left_alone(tmp_path, folders):
    """Partial files belong to another process, or are left from a killed process."""
    align_study(folders["cls"][:2], tmp_path / "whole", LINEAR)
    content = next((tmp_path / "whole").glob("alignment-*")).read_bytes()
    study = tmp_path / "study"
    study.mkdir()
    partial = {
        f".{letter * 16}.partial.parquet": size for letter, size in (("0", 500), ("a", None))
    }
    for name, size in partial.items():
        (study / name).write_bytes(content[:size])
    for options in ({}, {"overwrite": True}):
        assert len(align_study(folders["cls"][:2], study, LINEAR, **options)) == 6
        assert all(o.skipped for o in align_study(folders["cls"][:2], study, LINEAR, **options))
    for name, size in partial.items():
        assert (study / name).read_bytes() == content[:size]
