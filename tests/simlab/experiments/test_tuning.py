"""The search for a setting: on a third split, within its budget, and told in the rows."""

import json
from dataclasses import replace

import numpy as np
import pytest

from simcore.align import METHODS, align_pairs
from simlab import align_study, import_representations, plot, read_results
from simlab.errors import UserError
from simlab.experiments import align_study as study
from simlab.experiments.options import (
    SETTINGS,
    StudyOptions,
    aligner_params,
    best_setting,
    third_split,
)
from simlab.figures.alignment import _with_columns as with_columns

LAYERS, WIDTH, ROWS = 2, 24, 60


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two models of few noisy rows, of which least squares learns the noise."""
    root = tmp_path_factory.mktemp("noisy")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(LAYERS, ROWS, WIDTH))
    y = x @ draw.normal(size=(WIDTH, WIDTH)) / 8 + draw.normal(size=x.shape)
    made = []
    for name, layers in (("a", x), ("b", y)):
        np.savez(root / f"{name}.npz", **{f"layer{i}": one for i, one in enumerate(layers)})
        made.append(import_representations(root / f"{name}.npz", root / name, label=name).path)
    return made


def options_of(frame):
    return [json.loads(text) for text in frame["options"]]


@pytest.mark.deep
def test_the_best_setting_of_a_third_split_fits_all_rows(tmp_path, folders):
    plain = StudyOptions("s", ("linear",), directions="one", heldout_share=0.3)
    align_study(folders, tmp_path, plain)
    align_study(folders, tmp_path, replace(plain, tune=5))
    rows = read_results(tmp_path)
    rows = rows[(rows["experiment"] == "alignment") & (rows["measure"] == "alignment-error")]
    tuned = rows[["tune" in one for one in options_of(rows)]]
    chosen = {json.dumps(one["chosen"]) for one in options_of(tuned)}
    assert len(chosen) == 1
    setting = json.loads(chosen.pop())
    assert setting in SETTINGS["linear"]
    assert setting["ridge"] >= 1
    heldout = [one["rows"] == "heldout" for one in options_of(tuned)]
    error = tuned[heldout]["value"].mean()
    others = rows[["tune" not in one and one["rows"] == "heldout" for one in options_of(rows)]]
    assert error < 0.9 * others["value"].mean()
    assert set(tuned["n"]) == set(others["n"]) | {42}  # all rows of the fit, and all held-out ones
    assert plot(tmp_path, tmp_path / "figures")


@pytest.mark.parametrize(
    ("method", "given", "words", "name"),
    [
        ("pwcca", {"weight_share": 0.2}, "weight_share 0.2", "weight_share"),
        ("mlp", {"mlp_hidden": 3, "epochs": 2}, "mlp_hidden 3", "hidden"),
        ("svcca", {"truncation": 0.5}, "truncation 0.5", "truncation"),
    ],
)
def test_rows_do_not_name_a_choice_that_the_search_replaced(
    tmp_path, folders, monkeypatch, method, given, words, name
):
    other = {name: 0.95 if name != "hidden" else 8}
    monkeypatch.setitem(SETTINGS, method, ({}, other))
    monkeypatch.setattr(study, "best_setting", lambda settings, _: settings[1])
    align_study(folders, tmp_path, StudyOptions("s", (method,), tune=2, **given))
    rows = read_results(tmp_path)
    rows = rows[rows["experiment"] == "alignment"]
    for options in options_of(rows):
        assert options["chosen"] == other
        assert options["tune_from"] == words
        assert not {"weight_share", "mlp_hidden", "truncation"} & options.keys()
    assert with_columns(rows)["method"].unique().tolist() == [f"{method} (search from {words})"]


def test_the_default_is_the_first_setting():
    for method, settings in SETTINGS.items():
        assert settings[0] == {}
        assert len(settings) <= 8
        for setting in settings:
            METHODS[method](**aligner_params(method, setting))


def test_every_setting_can_be_fitted():
    draw = np.random.default_rng(1)
    x = [draw.normal(size=(80, 8)).astype(np.float32)]
    y = [draw.normal(size=(80, 8)).astype(np.float32)]
    for method, settings in SETTINGS.items():
        for setting in settings:
            few = {"max_epochs": 1} if method in ("mlp", "inn", "linear-gd") else {}
            params = aligner_params(method, setting | few)
            (found,) = align_pairs(x, y, method, **params)
            assert np.isfinite(found.heldout.relative)


def test_the_third_split_parts_no_example():
    example = np.repeat(np.arange(20), 3)
    rows, validation = third_split(example, 0)
    assert sorted([*rows, *validation]) == list(range(60))
    assert not set(example[rows]) & set(example[validation])
    assert len(validation) == 12
    with pytest.raises(UserError, match="tune: wanted 2 examples or more to validate on, found 0"):
        third_split(np.array([0, 0, 1, 1]), 0)


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        ({1: [np.nan], 2: [0.5], 3: [0.5], 4: [0.7]}, 2),
        ({1: [0.9, np.nan], 2: [0.1, np.nan]}, 2),  # a pair that no setting fits says nothing
        ({1: [0.9, 0.9], 2: [0.1, np.inf]}, 1),
        ({1: [], 2: []}, 1),
    ],
)
def test_the_first_of_equal_settings_is_chosen_and_undefined_ones_are_not(errors, best):
    settings = [{"ridge": ridge} for ridge in errors]
    assert best_setting(settings, lambda one: errors[one["ridge"]]) == {"ridge": best}


def test_one_setting_is_not_tried():
    assert best_setting([{}], lambda one: 1 / 0) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tune": 0}, "tune: wanted 1 or more, found 0"),
        ({"tune": 2, "training": "ren2023"}, "tune: wanted training='ours', found ren2023"),
        ({"weight_share": 0.5}, "weight_share=0.5: wanted methods='pwcca', found inn"),
        ({"weight_share": 2.0, "methods": ("pwcca",)}, r"wanted a share in \(0, 1\]"),
        ({"attention_rows": "heads"}, "attention_rows='heads': wanted one of pairs, keys"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        StudyOptions(**given).check()
