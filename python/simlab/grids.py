"""Grids: CKA between all layers of two representation folders, as rows of the results table."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.jobs import Outcome
from simlab.representations import Representations, load_representations, require_same_examples
from simlab.results import ResultRow, ensure_results

if TYPE_CHECKING:
    import numpy as np

ESTIMATORS = ("biased", "unbiased")
KERNELS = ("linear", "rbf")
MINIMUM_EXAMPLES = {"biased": 2, "unbiased": 4}


@dataclass(frozen=True)
class GridOptions:
    """Which CKA: estimator ``biased``, ``unbiased`` or ``both``; kernel; RBF bandwidth."""

    estimator: str = "both"
    kernel: str = "linear"
    bandwidth: float = 1.0

    def check(self) -> None:
        """Raise UserError for a name that does not exist or a bandwidth that is not positive."""
        if self.estimator not in (*ESTIMATORS, "both"):
            names = f"{', '.join(ESTIMATORS)} or both"
            raise UserError(f"--estimator: wanted {names}, found {self.estimator!r}")
        if self.kernel not in KERNELS:
            raise UserError(f"--kernel: wanted {' or '.join(KERNELS)}, found {self.kernel!r}")
        if not 0 < self.bandwidth < float("inf"):
            raise UserError(f"--bandwidth: wanted a positive number, found {self.bandwidth}")

    @property
    def estimators(self) -> tuple[str, ...]:
        """The estimators to compute."""
        return ESTIMATORS if self.estimator == "both" else (self.estimator,)


def write_grid(
    x_folder: Path,
    y_folder: Path,
    path: Path,
    comparison: str | None = None,
    options: GridOptions | None = None,
    *,
    replace: bool = False,
) -> Outcome:
    """Compare two representation folders and write the rows to results file `path`.

    Raises
    ------
    UserError
        A folder without representations, different examples, wrong options, or another `path`.
    """
    options = options or GridOptions()
    options.check()
    x = load_representations(x_folder)
    y = x if x_folder == y_folder else load_representations(y_folder)
    require_same_examples(x, y)
    comparison = comparison or f"{x.manifest['label']}-{y.manifest['label']}"
    inputs = {
        "step": "grid",
        "x": x.manifest["data_sha256"],
        "y": y.manifest["data_sha256"],
        "names": [[m.manifest[key] for key in ("label", "seed", "task")] for m in (x, y)],
        "comparison": comparison,
        **asdict(options),
    }

    def make() -> list[ResultRow]:
        return cka_rows(
            x,
            y,
            comparison,
            estimators=options.estimators,
            kernel=options.kernel,
            bandwidth=options.bandwidth,
        )

    return ensure_results(path, inputs, make, replace=replace)


def cka_rows(
    x: Representations,
    y: Representations,
    comparison: str,
    *,
    estimators: tuple[str, ...] = ESTIMATORS,
    kernel: str = "linear",
    bandwidth: float = 1.0,
) -> list[ResultRow]:
    """CKA of every layer of `x` with every layer of `y`, one row per pair and estimator.

    Raises
    ------
    UserError
        The two were taken from different or differently ordered examples, or from too few.
    """
    require_same_examples(x, y)
    n = len(x.ids)
    rows: list[ResultRow] = []
    for estimator in estimators:
        if n < MINIMUM_EXAMPLES[estimator]:
            wanted = MINIMUM_EXAMPLES[estimator]
            raise UserError(f"{x.folder}: {estimator} CKA wanted {wanted} examples, found {n}")
        grid = _grid(x, y, estimator, kernel, bandwidth)
        rows += [
            _row(x, y, comparison, estimator, (kernel, bandwidth), pair, float(grid[pair]))
            for pair in ((i, j) for i in range(grid.shape[0]) for j in range(grid.shape[1]))
        ]
    return rows


def _grid(
    x: Representations, y: Representations, estimator: str, kernel: str, bandwidth: float
) -> np.ndarray:
    from simcore import cka_grid

    # A model with itself is symmetric, which costs half.
    other = None if x.folder == y.folder else y.layers
    with warnings.catch_warnings():
        # A layer without variance is expected here and shown as undefined: at the embedding
        # output, CLS is the same vector for every example.
        warnings.filterwarnings("ignore", message=".*self-HSIC is not positive")
        try:
            return cka_grid(
                x.layers, other, kernel=kernel, estimator=estimator, bandwidth=bandwidth
            )
        except ValueError as error:  # NaN in a file, or too little memory: X and Y are the folders
            raise UserError(f"X = {x.folder}, Y = {y.folder}: {error}") from None


def _row(
    x: Representations,
    y: Representations,
    comparison: str,
    estimator: str,
    kernel: tuple[str, float],
    pair: tuple[int, int],
    value: float,
) -> ResultRow:
    return ResultRow(
        comparison=comparison,
        measure="cka",
        estimator=estimator,
        kernel=kernel[0],
        bandwidth=kernel[1] if kernel[0] == "rbf" else None,
        model_x=x.manifest["label"],
        model_y=y.manifest["label"],
        seed_x=x.manifest["seed"],
        seed_y=y.manifest["seed"],
        layer_x=pair[0],
        layer_y=pair[1],
        value=value,
        n=len(x.ids),
        task=x.manifest["task"],
    )
