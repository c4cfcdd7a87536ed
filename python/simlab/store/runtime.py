"""The process around an experiment: silent libraries, the device, versions, a report on all."""

from __future__ import annotations

import os
import platform
import warnings
from functools import cache
from importlib import metadata
from typing import Any

from simlab.errors import UserError

REPORTED_PACKAGES = ("simcore", "torch", "transformers", "tokenizers", "datasets", "numpy")


@cache
def quiet_libraries() -> None:
    """Silence the reports and progress bars of transformers; simlab draws its own progress."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(transformers|accelerate|datasets|torch)\.")


def best_device() -> str:
    """Return ``"cuda"`` if torch can use a GPU, else ``"cpu"``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@cache
def quiet_datasets(terminal: bool) -> None:
    """Silence the warnings of the datasets library, and its bars where there is no terminal."""
    import datasets

    datasets.logging.set_verbosity_error()
    if not terminal:
        datasets.disable_progress_bars()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    versions_of = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            versions_of[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # running from a source tree
            versions_of[package] = "not installed"
    return versions_of


def doctor(*, cached: bool = False) -> dict[str, Any]:
    """Return versions, devices, and whether the kernels of simcore agree with torch there.

    Parameters
    ----------
    cached
        Print what earlier checks found; run none.

    Returns
    -------
    dict
        ``versions`` of Python and packages, ``system``, ``cuda`` (torch's version of it, or None),
        ``build`` (`simcore.build_info`), ``cache`` (the folder of results) and ``devices``: each
        with ``device``, ``name``, ``memory`` in bytes, ``capability`` and ``operators``. An
        operator has ``uses`` ("kernel" or "composed"), ``state`` ("passed", "failed", "not
        checked" or "not built"), ``error``, ``expected_gain`` and ``gain``, how many times as fast
        as operations of torch the kernel is expected to be, and was.

    Raises
    ------
    UserError
        The variable ``SIMCORE_KERNELS`` has another value than ``auto``, ``on`` and ``off``.
    """
    from simcore._kernels.doctor import examine

    try:
        report = examine(check=not cached)
    except ValueError as error:  # a wrong value of SIMCORE_KERNELS
        raise UserError(str(error)) from None
    return {"versions": versions(), **report}
