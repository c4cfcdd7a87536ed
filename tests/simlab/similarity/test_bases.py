"""Bases on disk: grids over them have the bits of grids over the layers."""

import dataclasses

import numpy as np
import pytest

import simcore
from simlab.errors import UserError
from simlab.models.sources import resolve
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
from simlab.representations.options import ExtractOptions
from simlab.similarity.catalogue import MEASURES, settings
from simlab.similarity.grids import Naming, grid_rows
from simlab.similarity.layers import BASED, load_bases, store_bases
from support.lab.tinymodels import save_tiny_model


@pytest.fixture(scope="module")
def reps(tmp_path_factory, review_task):
    """CLS vectors, whose layer 0 is constant, and means in float16."""
    folder = tmp_path_factory.mktemp("reps")
    source = resolve(str(save_tiny_model(folder / "model", initializer_range=1.0)))
    for kind, dtype in (("cls", "float32"), ("mean", "float16")):
        options = ExtractOptions(kind=kind, dtype=dtype)
        extract(source, review_task, folder / kind, options, label=kind)
    return [load_representations(folder / kind) for kind in ("cls", "mean")]


@pytest.mark.parametrize(
    "measure, options",
    [
        *((name, {}) for name in BASED),
        ("svcca", {"standardize": True}),
        ("svcca", {"truncation": 5, "top_k": 2}),
    ],
)
def test_a_grid_over_stored_bases_has_the_same_rows(measure, options, reps, tmp_path, capsys):
    stored = []
    for side in reps:
        store_bases(side, tmp_path / side.manifest["label"], options.get("standardize", False))
        bases = load_bases(tmp_path / side.manifest["label"])
        stored.append(dataclasses.replace(side, layers=bases))
    chosen = settings(measure, options)
    for x, y in ((0, 0), (0, 1)):
        wanted = list(grid_rows(measure, chosen, [reps[x]], [reps[y]], Naming("c")))
        capsys.readouterr()
        found = list(grid_rows(measure, chosen, [stored[x]], [stored[y]], Naming("c")))
        noted = " ".join("".join(capsys.readouterr()).split())
        assert len(found) == 16 * (1 + (x != y and not MEASURES[measure].symmetric))
        assert {row.value for row in wanted if np.isfinite(row.value)} - {1.0}
        if measure == "pwcca":  # close correlations are computed in float64 from layers alone
            values = [np.array([row.value for row in rows]) for rows in (found, wanted)]
            moved = np.nanmax(np.abs(values[0] - values[1]))
            assert moved <= 1e-5 or "canonical correlations that are equal" in noted
            np.testing.assert_allclose(*values, rtol=0, atol=1e-2)  # 6e-3 here
            found, wanted = (
                [dataclasses.replace(row, value=0.0) for row in rows] for rows in (found, wanted)
            )
        assert [repr(row) for row in found] == [repr(row) for row in wanted]  # nan is nan


def test_a_basis_is_read_as_it_was_written(tmp_path, reps):
    layers = [2.0**-1000 * np.random.default_rng(0).normal(size=(9, 4)), np.ones((9, 3))]
    side = dataclasses.replace(reps[0], layers=layers)
    store_bases(side, tmp_path / "bases", False)
    for wanted, found in zip(simcore.bases(layers), load_bases(tmp_path / "bases"), strict=True):
        assert wanted.exponent == found.exponent
        for part in ("vectors", "components", "spectrum"):
            assert getattr(wanted, part).equal(getattr(found, part))
    assert load_bases(tmp_path / "bases")[0].exponent != 0


def test_layers_with_nan_are_refused(tmp_path, reps):
    side = dataclasses.replace(reps[0], layers=[np.full((9, 4), np.nan)])
    with pytest.raises(UserError, match=f"bases of {side.folder}: "):
        store_bases(side, tmp_path / "bases", False)
    assert not (tmp_path / "bases").exists()
