"""Agreement with the code published with Klabunde et al. 2024 (tests/oracle/README.md)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import simcore
from simcore import reference
from support import tolerance

ORACLE = Path(__file__).parents[1] / "oracle"


@dataclass(frozen=True)
class Published:
    """A grid function, how its values compare, and the value of a layer with itself."""

    function: str
    options: dict = field(default_factory=dict)
    compared: Callable = np.asarray
    itself: float = 1.0


PUBLISHED = {
    "hard_correlation_match": Published("matching_grid"),
    "soft_correlation_match": Published("matching_grid", {"matching": "best"}),
    "permutation_procrustes": Published("matching_grid", {"score": "distance"}, np.square, 0.0),
    "permutation_angular_shape": Published("matching_grid", {"score": "angular"}, np.cos, 0.0),
    "aligned_cosine": Published("aligned_cosine_grid"),
}


@pytest.mark.parametrize("file", ["resi_a", "resi_b"])
@pytest.mark.parametrize("key", PUBLISHED)
@pytest.mark.parametrize("module", [reference, simcore], ids=["twin", "op"])
def test_agrees_with_the_published_code(module, key, file):
    data, measure = np.load(ORACLE / f"{file}.npz"), PUBLISHED[key]
    x = [data[name] for name in sorted(data.files) if name.startswith("layer_")]
    want = np.array(json.loads((ORACLE / f"{file}.json").read_text())[key], dtype=np.float64)
    got = getattr(module, measure.function)(x, **measure.options)
    assert got.shape == want.shape == (len(x), len(x))
    squares = np.array([np.square(layer).sum() for layer in x])
    units = squares[:, None] + squares if measure.compared is np.square else 1.0
    error = np.abs(measure.compared(got) - measure.compared(want)) / units
    other = ~np.eye(len(x), dtype=bool)
    assert error[other].max() <= tolerance.ORACLE
    # Theirs hold rounding on the diagonal; a distance of ours is exactly 0.
    np.testing.assert_allclose(np.diag(got), measure.itself, atol=tolerance.ORACLE * measure.itself)
