"""Alignment studies: what is fitted on which rows, how it is stored, resumed and drawn."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tinymodels import LAYERS

import simcore
from simcore.align import LinearAligner
from simlab.errors import UserError
from simlab.experiments.align_study import StudyOptions, align_study, split_rows
from simlab.experiments.complexity import nuclear_norm
from simlab.figures.draw import plot
from simlab.representations.extract import ExtractOptions, extract
from simlab.representations.folder import load_representations
from simlab.store.results import read_results

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
    frame = frame[frame["comparison"] == "alignment: ft"]
    pairs = frame[["model_x", "model_y"]].drop_duplicates().apply(tuple, axis=1).tolist()
    assert sorted(pairs) == [("R[0]", "R[1]"), ("R[0]", "R[2]"), ("R[1]", "R[2]")]
    assert len(frame) == 3 * (LAYERS + 1) * 4
    x, y = (load_representations(folder) for folder in folders["cls"][:2])
    split = split_rows(x, LINEAR)
    assert not set(split.train) & set(split.heldout)
    assert len(split.heldout) == round(0.4 * 128) == 128 - len(split.train)
    mine = {"model_x": "R[0]", "model_y": "R[1]"}
    aligner = LinearAligner().fit(x.layers[2][split.train], y.layers[2][split.train])
    for part in ("train", "heldout"):
        rows = getattr(split, part)
        expected = aligner.errors(x.layers[2][rows], y.layers[2][rows])
        assert value(frame, "alignment-mse", part, 2, **mine) == expected.mse
        assert value(frame, "alignment-error", part, 2, **mine) == expected.relative
    assert np.isnan(value(frame, "alignment-error", "heldout", 0, **mine))  # CLS of embeddings


def test_within_has_every_pair_of_layers_and_zeros_on_the_diagonal(tmp_path, folders):
    options = replace(LINEAR, within=True)
    align_study(folders["token"][:1], tmp_path, options)
    frame = read_results(tmp_path)
    frame = frame[frame["comparison"] == "alignment within: ft"]
    assert len(frame) == (LAYERS + 1) ** 2 * 4
    with_itself = [value(frame, "alignment-error", "heldout", i) for i in range(LAYERS + 1)]
    assert value(frame, "alignment-error", "heldout", 3, 0) > 100 * max(with_itself)
    assert value(frame, "alignment-error", "heldout", 0, 3) != value(
        frame, "alignment-error", "heldout", 3, 0
    )


@pytest.mark.parametrize("kind", ["token", "attention"])
def test_rows_of_one_example_stay_on_one_side(folders, kind):
    model = load_representations(folders[kind][0])
    split = split_rows(model, replace(LINEAR, rows=50))
    assert len(split.train) == len(split.heldout) == 50
    if kind == "token":
        examples = np.array([row.split(":")[0] for row in model.ids])
    else:
        lengths = model.manifest["lengths"]
        examples = np.concatenate([np.full(t * t, s) for s, t in enumerate(lengths)])
    assert not set(examples[split.train]) & set(examples[split.heldout])


def test_attention_aligns_heads_over_word_pairs(tmp_path, folders):
    align_study(folders["attention"], tmp_path, LINEAR)
    frame = read_results(tmp_path)
    aligned = frame[frame["comparison"] == "alignment: ft"]
    assert sorted(set(aligned["layer_x"])) == [1, 2, 3]
    x, y = (load_representations(folder) for folder in folders["attention"])
    split = split_rows(x, LINEAR)
    matrices = [np.asarray(simcore.distributed_attention(m.layers[1]), np.float32) for m in (x, y)]
    aligner = LinearAligner().fit(*(m[split.train] for m in matrices))
    expected = aligner.errors(*(m[split.heldout] for m in matrices))
    assert value(aligned, "alignment-mse", "heldout", 2) == expected.mse


def test_causal_attention_leaves_out_masked_pairs(tmp_path, folders):
    causal = replace(LINEAR, causal=True)
    align_study(folders["attention"], tmp_path, causal)
    frame = read_results(tmp_path)
    x, y = (load_representations(folder) for folder in folders["attention"])
    layers = [simcore.distributed_attention(m.layers[1], causal=True) for m in (x, y)]
    matrices = [np.asarray(layer, np.float32) for layer in layers]
    split = split_rows(x, causal)
    lengths = np.array(x.manifest["lengths"])
    assert max(split.train.max(), split.heldout.max()) < sum(lengths * (lengths + 1) // 2)
    aligner = LinearAligner().fit(*(m[split.train] for m in matrices))
    expected = aligner.errors(*(m[split.heldout] for m in matrices))
    aligned = frame[frame["comparison"] == "alignment: ft"]
    assert value(aligned, "alignment-mse", "heldout", 2) == expected.mse
    norms = frame[(frame["measure"] == "nuclear-norm") & (frame["layer_x"] == 2)]["value"]
    assert norms.iloc[0] == nuclear_norm(matrices[0])
    assert all(json.loads(text)["causal"] for text in frame["options"])
    assert plot(frame, tmp_path / "figures", ("png",))
    with pytest.raises(UserError, match=r"--causal: wanted kind attention in .* found cls"):
        align_study(folders["cls"], tmp_path / "cls", causal)
    with pytest.raises(UserError, match="wanted a new file or one made from the same inputs"):
        align_study(folders["attention"], tmp_path, LINEAR)


def test_complexity_is_the_nuclear_norm_at_unit_frobenius_norm(tmp_path, folders):
    align_study(folders["token"], tmp_path, LINEAR)
    frame = read_results(tmp_path)
    frame = frame[frame["measure"] == "nuclear-norm"]
    assert len(frame) == 2 * (LAYERS + 1)
    rows = load_representations(folders["token"][0]).layers[1].astype(np.float64)
    rows = rows - rows.mean(0)
    expected = np.linalg.norm(rows, "nuc") / np.linalg.norm(rows)
    found = frame[(frame["model_x"] == "R[0]") & (frame["layer_x"] == 1)]["value"].iloc[0]
    assert found == pytest.approx(expected, rel=1e-4)
    line = np.outer(np.arange(9.0), np.ones(4))
    assert nuclear_norm(line) == pytest.approx(1)
    assert np.isnan(nuclear_norm(np.ones((5, 3))))


def test_trained_maps_of_all_layers_learn_in_one_loop(tmp_path, folders):
    options = StudyOptions("ft", ("inn", "mlp"), heldout_share=0.4, epochs=2)
    align_study(folders["token"], tmp_path / "together", options)
    align_study(folders["token"], tmp_path / "apart", replace(options, at_once=1))
    together, apart = (read_results(tmp_path / name) for name in ("together", "apart"))
    keys = ["measure", "options", "model_x", "layer_x"]
    merged = together.merge(apart, on=keys)
    assert len(merged) == len(together) == len(apart)
    assert np.allclose(merged["value_x"], merged["value_y"], rtol=1e-3)


def test_an_interrupted_study_goes_on_where_it_was(tmp_path, folders, monkeypatch):
    from simlab.experiments import align_study as alignstudy

    calls = []
    original = alignstudy._Part.__call__

    def interrupted(part):
        calls.append(part)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(part)

    monkeypatch.setattr(alignstudy._Part, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        align_study(folders["cls"], tmp_path, LINEAR)
    assert len(list(tmp_path.glob("*"))) == 4
    outcomes = align_study(folders["cls"], tmp_path, LINEAR)
    assert [outcome.skipped for outcome in outcomes] == [True] * 4 + [False] * 2
    assert len(calls) == 7


def test_the_command_and_its_figures(simcore, tmp_path, folders):
    results = tmp_path / "results"
    arguments = ["align-study", *folders["token"], "--out", results, "--name", "pretrained"]
    arguments += ["--method", "linear", "--method", "cca", "--within"]
    code, printed, errors = simcore(*arguments)
    assert (code, errors) == (0, [])
    assert "8 files" in printed
    assert "done before" in simcore(*arguments)[1]
    code, _, errors = simcore(*arguments, "--seed", 3)
    assert (code, len(errors)) == (2, 1)
    files = plot(read_results(results), tmp_path / "figures", ("png",))
    assert {file.stem for file in files} == {
        "reviews-alignment-token-complexity",
        "reviews-alignment-token-methods",
        *(
            f"reviews-alignment-token-{what}-{method}"
            for what in ("layers", "within")
            for method in ("linear", "cca")
        ),
    }


def test_bad_input_is_named(tmp_path, folders):
    def refused(text, chosen=folders["cls"], **changes):
        with pytest.raises(UserError, match=text):
            align_study(chosen, tmp_path, replace(LINEAR, **changes))
        assert not list(tmp_path.glob("*alignment*"))

    refused("--method conv: wanted one of linear", methods=("conv",))
    refused("--method: wanted each once, found cca, cca", methods=("cca", "cca"))
    refused("--heldout-share 1.5: wanted a share", heldout_share=1.5)
    refused("--rows: wanted at least 1, found 0", rows=0)
    refused("wanted 2 folders or more, or --within, found 1", folders["cls"][:1])
    refused("wanted folders with different labels", folders["cls"][:1] * 2)
    refused("wanted kind cls as in", [folders["cls"][0], folders["token"][1]])
    refused(r"--heldout-share 0.001 wanted 2 examples", heldout_share=0.001)
    refused(r"linear: pair 0: X: wanted at least 25 rows", rows=10)
