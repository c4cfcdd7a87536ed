"""Protocols of alignment studies: training, folders to judge on, drawn pairs, layers, heads."""

import json
from dataclasses import replace
from shutil import copytree

import numpy as np
import pytest
import torch

from simcore.align import LinearAligner, SVCCAAligner, Training, align_pairs
from simlab import align_study, extract, load_representations, read_results
from simlab.errors import UserError
from simlab.experiments.align_rows import Member, received_attention, split_rows
from simlab.experiments.options import StudyOptions
from simlab.representations.passes import ExtractOptions
from simlab.store.files import read_json, write_json
from support.lab.commandline import check_refused
from support.lab.tinymodels import LAYERS
from support.published import published_loop, untrained
from support.tolerance import ALIGNED, FLOAT32_LINEAR_MAP

LINEAR = StudyOptions("ft", ("linear",), heldout_share=0.4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_bert, review_task):
    """Representation folders of random twins by split and kind: train, test and attention."""
    root = tmp_path_factory.mktemp("protocols")

    def make(name, kind, split, count=2):
        found = []
        for seed in range(count):
            folder = root / name / str(seed)
            how = ExtractOptions(kind, split, 64, random_init_seed=seed)
            extract(tiny_bert, review_task, folder, how, label=f"R[{seed}]", seed=seed)
            found.append(folder)
        return found

    return {
        "train": make("train", "mean", "train"),
        "test": make("test", "mean", "heldout"),
        "attention": make("attention", "attention", "train"),
    }


def rows_of(folder, **wanted):
    """Return the rows of a results folder whose columns and options are as wanted."""
    frame = read_results(folder)
    options = [json.loads(text) if isinstance(text, str) else {} for text in frame["options"]]
    for name in ("method", "rows", "training", "head_x", "head_y", "pairs", "judge"):
        frame[name] = [found.get(name) for found in options]
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    return frame


def only(folder, **wanted):
    """Return the value of the only row that is as wanted."""
    frame = rows_of(folder, **wanted)
    assert len(frame) == 1
    return float(frame["value"].iloc[0])


def stack(folder, rows):
    """Return rows of all layers, ``[layers, n, p]``."""
    return np.stack([layer[rows] for layer in load_representations(folder).layers])


def test_a_map_trained_as_published(tmp_path, folders):
    options = StudyOptions("ft", ("linear-gd",), training="ren2023", heldout_share=0.4, steps=7)
    options = replace(options, directions="one", rows=70)
    align_study(folders["train"], tmp_path, options)
    split = split_rows(Member(load_representations(folders["train"][0])), options)
    x, y = (torch.from_numpy(stack(folder, split.train)) for folder in folders["train"])
    judged = [torch.from_numpy(stack(folder, split.heldout)) for folder in folders["train"]]
    assert len(split.train) == 70  # of which the last 6 fill no batch
    for layer in range(LAYERS + 1):
        plain = untrained(x[layer], y[layer], init="xavier", normalize=False, validation_share=0.0)
        published_loop(plain, x[layer, None], y[layer, None], steps=7, batch=64)
        expected = float((plain(judged[0][layer]) - judged[1][layer]).detach().square().mean())
        mine = {"layer_x": layer, "training": "ren2023", "rows": "heldout"}
        found = only(tmp_path, measure="alignment-mse", **mine)
        assert found == pytest.approx(expected, rel=FLOAT32_LINEAR_MAP)


@pytest.mark.parametrize("given", ["folders", "a folder of folders"])
def test_maps_are_fitted_on_one_folder_and_judged_on_another(tmp_path, folders, given):
    judge = folders["test"][::-1] if given == "folders" else [folders["test"][0].parent]
    align_study(folders["train"], tmp_path, LINEAR, judge=judge)
    x, y = (load_representations(folder).layers[2] for folder in folders["train"])
    others = [load_representations(folder).layers[2] for folder in folders["test"]]
    aligner = LinearAligner().fit(x, y)
    mine = {"measure": "alignment-mse", "label_x": "R[0]", "layer_x": 2, "judge": "folders"}
    for part, sides in (("train", (x, y)), ("heldout", others)):
        expected = aligner.errors(*sides).mse
        assert only(tmp_path, rows=part, **mine) == pytest.approx(expected, rel=ALIGNED)
        assert set(rows_of(tmp_path, rows=part, **mine)["n"]) == {len(sides[0])}


def test_folders_to_judge_on_that_do_not_fit(tmp_path, folders, simcore):
    def refused(text, judge, chosen=folders["train"]):
        with pytest.raises(UserError, match=text):
            align_study(chosen, tmp_path / "out", LINEAR, judge=judge)

    refused(r"judge: wanted one folder with label 'R\[1\]'.*found none", folders["test"][:1])
    refused("judge='.*train/0': wanted other examples than in .*train/0", folders["train"])
    refused(
        "wanted one folder with label 'R.0.' for .* found", [*folders["test"], folders["train"][0]]
    )
    refused("found 3 layers of attention", folders["attention"])
    refused("judge='.*': wanted a folder written by `simcore extract` or a folder", [tmp_path])


def relabelled(folder, root, count):
    """Return copies of a representation folder under labels M0, M1, ..."""
    copies = []
    for number in range(count):
        copy = root / f"m{number}"
        copytree(folder, copy)
        manifest = read_json(copy / "manifest.json")
        write_json(copy / "manifest.json", {**manifest, "label": f"M{number}"})
        copies.append(copy)
    return copies


def test_pairs_are_drawn_without_regard_to_direction(tmp_path, folders, simcore):
    models = relabelled(folders["train"][0], tmp_path, 4)
    drawn = {}
    for seed, directions in ((0, "both"), (0, "one"), (1, "one")):
        out = tmp_path / f"{seed}-{directions}"
        arguments = ["align-study", *models, "--method", "linear", "--out", out, "--pairs", 3]
        choices = ["--pair-seed", seed, "--directions", directions]
        code, _, errors = simcore(*arguments, *choices)
        assert (code, errors) == (0, [])
        rows = rows_of(out, experiment="alignment", pairs=3)
        drawn[seed, directions] = set(zip(rows["label_x"], rows["label_y"], strict=True))
    one = drawn[0, "one"]
    assert len(one) == len(drawn[1, "one"]) == 3
    assert all(x < y for x, y in one)
    assert drawn[0, "both"] == one | {(y, x) for x, y in one}
    assert one != drawn[1, "one"]
    with pytest.raises(UserError, match="pairs=7: wanted 1 to 6, the pairs of 4 models"):
        align_study(models, tmp_path / "none", LINEAR, pairs=7)


def test_a_paper_chooses_options_that_are_not_given(tmp_path, folders, simcore):
    arguments = ["align-study", *folders["train"], "--out", tmp_path, "--paper", "ren2023"]
    code, _, errors = simcore(*arguments, "--method", "linear")
    assert (code, len(errors)) == (2, 1)
    wanted = "--pairs 8: wanted 1 to 1, the pairs of 2 models; --pairs 1 takes all"
    assert wanted in errors[0]
    code, _, errors = simcore(*arguments, "--method", "linear", "--pairs", 1)
    assert code == 0
    assert [line.partition(": ")[2][:11] for line in errors] == ["--rows 1600"]  # there are fewer
    rows = rows_of(tmp_path, experiment="alignment", pairs=1)
    assert set(rows["label_x"]) == {"R[0]"}
    assert set(rows["method"]) == {"linear"}


def test_svcca_keeps_the_components_that_are_asked_for(tmp_path, folders, simcore):
    arguments = ("align-study", *folders["train"], "--method", "svcca", "--out", tmp_path / "a")
    for kept in ((), ("--truncation", "3"), ("--truncation", "0.99")):  # the last is the default
        code, printed, errors = simcore(*arguments, *kept)
        assert (code, errors) == (0, [])
    assert "done before" in printed
    frame = rows_of(tmp_path / "a", experiment="alignment", measure="alignment-error")
    stored = [json.loads(text).get("truncation") for text in frame["options"]]
    assert {kept: stored.count(kept) for kept in set(stored)} == {None: 16, 3: 16}
    one = (frame["label_x"] == "R[0]") & (frame["layer_x"] == 2) & (frame["rows"] == "train")
    found = frame[one & np.equal(stored, 3)]["value"].iloc[0]
    x, y = (load_representations(folder).layers[2] for folder in folders["train"])
    rows = split_rows(Member(load_representations(folders["train"][0])), StudyOptions()).train
    wanted = SVCCAAligner(truncation=3).fit(x[rows], y[rows]).errors(x[rows], y[rows]).relative
    assert found == pytest.approx(wanted, rel=ALIGNED)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--method", "svcca", "--truncation", "1.5"), "--truncation 1.5: wanted a share"),
        (("--method", "svcca", "--truncation", "x"), "--truncation x: wanted a share"),
        (("--method", "svcca", "--truncation", "0"), "--truncation 0: wanted a share"),
        (("--method", "cca", "--truncation", "3"), "--truncation 3: wanted --method svcca"),
    ],
)
def test_truncations_that_do_not_apply(tmp_path, folders, simcore, typed, words):
    check_refused(simcore("align-study", *folders["train"], *typed, "--out", tmp_path / "a"), words)
    pair = ("inject", "a", "b", "rt", *typed, "--out", tmp_path / "x.parquet")
    check_refused(simcore(*pair), words)


def test_across_layers_has_every_layer_of_both_models(tmp_path, folders):
    options = replace(LINEAR, methods=("linear", "svcca"), across_layers=True, directions="one")
    align_study(folders["train"], tmp_path, options)
    mine = {"experiment": "alignment across", "rows": "heldout"}
    found = rows_of(tmp_path, method="linear", measure="alignment-error", **mine)
    assert len(found) == (LAYERS + 1) ** 2
    split = split_rows(Member(load_representations(folders["train"][0])), options)
    fitted, judged = (
        [stack(folder, rows) for folder in folders["train"]]
        for rows in (split.train, split.heldout)
    )
    for kind, method in ((LinearAligner, "linear"), (SVCCAAligner, "svcca")):
        errors = kind().fit(fitted[0][1], fitted[1][3]).errors(judged[0][1], judged[1][3])
        names = {"mse": "mse", "relative": "error", "component_relative": "component-error"}
        for field, name in names.items():
            wanted = getattr(errors, field)
            place = {"layer_x": 1, "layer_y": 3, "measure": f"alignment-{name}", "method": method}
            if wanted is None:
                assert rows_of(tmp_path, **mine, **place).empty
            else:
                assert only(tmp_path, **mine, **place) == pytest.approx(wanted, rel=ALIGNED)


def test_heads_are_rows_of_received_attention(tmp_path, folders):
    options = replace(LINEAR, across_layers=True, directions="one")
    align_study(folders["attention"], tmp_path, options)
    models = [load_representations(folder) for folder in folders["attention"]]
    width = max(models[0].manifest["lengths"])
    heads = models[0].manifest["widths"][0]
    mine = {"experiment": "alignment across", "measure": "alignment-error", "rows": "heldout"}
    assert len(rows_of(tmp_path, **mine)) == (LAYERS * heads) ** 2
    split = split_rows(Member(models[0]), options, heads=True)
    assert len(split.train) + len(split.heldout) == models[0].manifest["n"]
    sides = []
    for model, layer, head in ((models[0], 1, 1), (models[1], 3, 0)):
        rows = np.zeros((model.manifest["n"], width))
        for sentence, weights in enumerate(model.layers[layer - 1]):
            for word in range(weights.shape[-1]):
                rows[sentence, word] = np.mean([query[word] for query in weights[head]])
        assert rows.sum(1) == pytest.approx(np.ones(len(rows)), rel=FLOAT32_LINEAR_MAP)
        sides.append(rows.astype(np.float32))
    aligner = LinearAligner().fit(*(side[split.train] for side in sides))
    expected = aligner.errors(*(side[split.heldout] for side in sides)).relative
    place = {"layer_x": 1, "layer_y": 3, "head_x": 1, "head_y": 0}
    assert only(tmp_path, **mine, **place) == pytest.approx(expected, rel=ALIGNED)


def test_causal_attention_received_counts_later_words_alone():
    weights = np.array([[[0.2, 0.8], [0.5, 0.5]]], np.float32)
    found = received_attention([weights], 3, causal=True)
    assert found.tolist() == [[[0.75, 0.25, 0.0]]]


def test_causal_attention_to_later_words_alone_is_refused():
    weights = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]], np.float32)
    words = "causal: wanted words with attention to .*, found none of word 0 of text 1 in head 1"
    with pytest.raises(UserError, match=words):
        received_attention([weights[:1].repeat(2, 0), weights], 3, causal=True)


def test_fewer_rows_than_asked_for_are_noted_once(tmp_path, folders, simcore):
    typed = ["align-study", *folders["train"], "--method", "linear", "--out", tmp_path / "a"]
    split = split_rows(Member(load_representations(folders["train"][0])), StudyOptions())
    found = {"fit": len(split.train), "judge": len(split.heldout)}
    _, _, errors = simcore(*typed, "--rows", 1600)
    assert "".join(errors).replace("note: ", "", 1) == (
        f"--rows 1600: {folders['train'][0]}: found {found['fit']} to fit on and "
        f"{found['judge']} to judge on"
    )
    for rows in ((), ("--rows", min(found.values()))):
        assert simcore(*typed, *rows, "--overwrite")[2] == []
    _, _, errors = simcore(
        *typed, "--judge", folders["test"][0].parent, "--rows", 1600, "--overwrite"
    )
    assert f"{folders['train'][0]}: found 128 to fit on and 32 to judge on" in " ".join(errors)


def test_choices_that_do_not_exist(tmp_path, folders, simcore):
    def refused(text, **changes):
        with pytest.raises(UserError, match=text):
            align_study(folders["train"], tmp_path / "out", LINEAR, **changes)

    refused("directions='up': wanted one of both, one", directions="up")
    refused("training='theirs': wanted one of ours, ren2023", training="theirs")
    refused("epochs, steps: wanted one of them, found both", epochs=1, steps=1)
    refused("steps: wanted 1 or more, found 0", steps=0)
    code, _, errors = simcore(
        *("align-study", *folders["train"], "--out", tmp_path / "out", "--directions", "up")
    )
    assert (code, len(errors)) == (2, 1)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_maps_have_the_options_of_their_methods(tmp_path, folders, share):
    options = StudyOptions("ft", ("pwcca", "mlp"), directions="one", heldout_share=0.4)
    options = replace(options, weight_share=share, mlp_hidden=0, epochs=2)
    align_study(folders["train"], tmp_path, options)
    split = split_rows(Member(load_representations(folders["train"][0])), options)
    x, y = (stack(folder, split.train)[2] for folder in folders["train"])
    judged = [stack(folder, split.heldout)[2] for folder in folders["train"]]
    mine = {"measure": "alignment-error", "rows": "heldout", "layer_x": 2}
    (pwcca,) = align_pairs(
        [x], [y], "pwcca", X_heldout=judged[:1], Y_heldout=judged[1:], weight_share=share
    )
    found = only(tmp_path, method="pwcca", **mine)
    assert found == pytest.approx(pwcca.heldout.relative, rel=ALIGNED)
    (mlp,) = align_pairs(
        *([x], [y], "mlp"),
        X_heldout=judged[:1],
        Y_heldout=judged[1:],
        hidden=x.shape[1],
        training=Training(max_epochs=2),
    )
    found = only(tmp_path, method="mlp", **mine)
    assert found == pytest.approx(mlp.heldout.relative, rel=FLOAT32_LINEAR_MAP)
    rows = rows_of(tmp_path, experiment="alignment", method="pwcca")
    assert all(json.loads(text)["weight_share"] == share for text in rows["options"])


def test_each_head_has_a_map_to_its_counterpart_over_keys(tmp_path, folders):
    """Rows are texts, and columns the mean weight that each word of a text receives."""
    options = replace(LINEAR, methods=("svcca",), directions="one", attention_rows="keys")
    align_study(folders["attention"], tmp_path, options)
    members = [load_representations(folder) for folder in folders["attention"]]
    split = split_rows(Member(members[0]), options, heads=True)
    width = max(members[0].manifest["lengths"])
    layer, head = 1, 1
    sides = [received_attention(m.layers[layer], width, False)[head] for m in members]
    fitted = [side[split.train] for side in sides]
    judged = [side[split.heldout] for side in sides]
    expected = SVCCAAligner().fit(*fitted).errors(*judged).relative
    rows = rows_of(tmp_path, experiment="alignment", measure="alignment-error", rows="heldout")
    assert (rows["head_x"] == rows["head_y"]).all()
    assert (rows["layer_x"] == rows["layer_y"]).all()
    assert len(rows) == LAYERS * 2
    first = members[0].first_layer
    mine = rows[(rows["layer_x"] == first + layer) & (rows["head_x"] == head)]
    assert mine["value"].item() == pytest.approx(expected, rel=ALIGNED)
    assert all(json.loads(text)["attention_rows"] == "keys" for text in rows["options"])


def test_rows_of_hidden_states_do_not_name_rows_of_attention(tmp_path, folders):
    align_study(folders["train"], tmp_path, replace(LINEAR, attention_rows="keys"))
    rows = rows_of(tmp_path, experiment="alignment")
    assert not rows["options"].str.contains("attention_rows").any()
