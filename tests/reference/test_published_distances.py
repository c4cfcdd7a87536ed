"""Agreement with the codes published with Klabunde et al. 2024 (tests/oracle/README.md)."""

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
    """A grid function, and how its values compare: as they are, as squares or as cosines."""

    function: str
    options: dict = field(default_factory=dict)
    compared: Callable = np.asarray
    squared_lengths: bool = False  # differences are in units of ||Xc||^2 + ||Yc||^2
    inputs: str = "layer"


def _descriptor(name):
    return Published("descriptor_grid", {"descriptor": name})


PUBLISHED = {
    "distance_correlation": Published("distance_correlation_grid"),
    "rsm_difference_frobenius": Published("rsm_difference_grid"),
    "rsm_difference_spectral": Published("rsm_difference_grid", {"norm": "spectral"}),
    "gulp_0": Published("gulp_grid"),
    "gulp_0.001": Published("gulp_grid", {"ridge": 0.001}),
    "gulp_0.1": Published("gulp_grid", {"ridge": 0.1}),
    "gulp_1": Published("gulp_grid", {"ridge": 1}),
    "eigenspace_overlap": Published("eigenspace_overlap_grid"),
    "magnitude_difference": _descriptor("magnitude"),
    "concentricity_difference": _descriptor("concentricity"),
    "uniformity_difference": _descriptor("uniformity"),
    "procrustes_size_and_shape": Published(
        "procrustes_grid", {"form": "size-and-shape"}, np.square, squared_lengths=True
    ),
    "orthogonal_procrustes_normalized": Published(
        "procrustes_grid", {"form": "distance"}, np.square
    ),
    "angular_shape": Published("procrustes_grid", {"form": "angular"}, np.cos),
    "disagreement": Published("disagreement_grid", inputs="logits"),
    "output_jsd_base2": Published("output_divergence_grid", inputs="logits"),
}


@pytest.mark.parametrize("file", ["resi_a", "resi_b"])
@pytest.mark.parametrize("key", PUBLISHED)
@pytest.mark.parametrize("module", [reference, simcore], ids=["twin", "op"])
def test_agrees_with_the_published_code(module, key, file):
    data = np.load(ORACLE / f"{file}.npz")
    measure = PUBLISHED[key]
    x = [data[name] for name in sorted(data.files) if name.startswith(f"{measure.inputs}_")]
    values = json.loads((ORACLE / f"{file}.json").read_text())[key]
    want = np.array(values, dtype=np.float64)
    got = getattr(module, measure.function)(x, **measure.options)
    assert got.shape == want.shape == (len(x), len(x))
    units = 1.0
    if measure.squared_lengths:
        lengths = np.array([np.square(layer - layer.mean(axis=0)).sum() for layer in x])
        units = lengths[:, None] + lengths
    error = np.abs(measure.compared(got) - measure.compared(want)) / units
    other = ~np.eye(len(x), dtype=bool)
    assert error[other].max() <= tolerance.ORACLE
    # Theirs hold rounding on the diagonal; a distance of ours is exactly 0.
    similar = measure.function in ("distance_correlation_grid", "eigenspace_overlap_grid")
    np.testing.assert_allclose(np.diag(got), float(similar), atol=tolerance.ORACLE * similar)
