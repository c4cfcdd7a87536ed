"""Bases of the layers of stored representations on disk, which many grids of a study read.

Mean CCA, SVCCA and PWCCA first decompose every layer (`simcore.bases`). A grid over stored bases
has the values of the grid over the layers, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.representations.folder import Representations

if TYPE_CHECKING:
    from simcore import Basis

# Measures that decompose layers, and compute the pairs from bases alone.
BASED = ("cca", "svcca", "pwcca")
FILE = "bases.safetensors"
_PARTS = ("vectors", "components", "spectrum")
_EXPONENTS = "exponents"


def store_bases(side: Representations, folder: Path, standardize: bool) -> None:
    """Write the bases of all layers of `side` into a folder, which is made.

    If `standardize`, the columns of a layer are divided by their standard deviations first.
    """
    from safetensors.torch import save_file

    import simcore

    try:
        bases: Sequence[Basis] = simcore.bases(side.layers, standardize=standardize)
    except ValueError as error:
        raise UserError(f"bases of {side.folder}: {error}") from None
    tensors = {
        f"{part}.{number}": getattr(basis, part).contiguous()
        for number, basis in enumerate(bases)
        for part in _PARTS
    }
    exponents = json.dumps([basis.exponent for basis in bases])
    folder.mkdir(parents=True)
    save_file(tensors, folder / FILE, {_EXPONENTS: exponents})


def load_bases(folder: Path) -> list[Basis]:
    """Return the bases of all layers that `store_bases` has written."""
    from safetensors import safe_open

    from simcore import Basis

    with safe_open(folder / FILE, framework="pt") as file:
        exponents = json.loads(file.metadata()[_EXPONENTS])
        tensors: list[Any] = [
            [file.get_tensor(f"{part}.{number}") for part in _PARTS]
            for number in range(len(exponents))
        ]
    return [
        Basis(u, vt, s, exponent) for (u, vt, s), exponent in zip(tensors, exponents, strict=True)
    ]
