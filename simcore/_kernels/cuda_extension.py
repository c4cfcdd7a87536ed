"""The library of CUDA kernels: found and loaded, or one line that says why it is not used.

A build from source puts it beside ``simcore._C``, and the wheel ``simcore-cuda`` into a folder of
its own. Loading it registers the kernels; which there are, `choice` asks torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from simcore._extension import PURE
from simcore._grid.finish import warn_caller

BESIDE, WHEEL = "simcore", "simcore_cuda"  # packages


def load_kernels() -> Path | None:
    """Load the CUDA kernels; without any return None, and with ones that do not fit warn, too."""
    if PURE:  # the kernels need the library of operators
        return None
    name, file = BESIDE, _library_in([Path(__file__).parents[1]])
    if file is None:
        wheel = find_spec(WHEEL)
        name, file = WHEEL, _library_in((wheel and wheel.submodule_search_locations) or [])
    if file is None:
        return None
    why = _misfit(name)
    if not why:
        try:
            torch.ops.load_library(file)
            return file
        except OSError as error:
            why = (
                f"they cannot be loaded with torch {torch.__version__} ({error.__cause__ or error})"
            )
    warn_caller(f"simcore: the CUDA kernels are not used: {why}; operations of torch replace them")
    return None


def architectures() -> list[str]:
    """Return what the kernels were compiled for."""
    if LOADED is None:
        return []
    text = ctypes.c_char.in_dll(ctypes.CDLL(str(LOADED)), "simcore_cuda_architectures")
    return ctypes.string_at(ctypes.addressof(text)).decode().split(";")


def _library_in(folders: Iterable[Path | str]) -> Path | None:
    files = (Path(folder, "libsimcore_cuda.so") for folder in folders)
    return next((file for file in files if file.exists()), None)


def _misfit(name: str) -> str:
    """Return why the kernels must not be loaded; nothing where they may."""
    if torch.version.cuda is None:
        return f"wanted a build of torch for CUDA, found {torch.__version__}"
    if name == BESIDE:
        return ""
    wanted, found = version("simcore"), _version_of_wheel()
    if found == wanted:
        return ""
    return (
        f"wanted simcore-cuda {wanted}, found {found}; `make wheel-cuda` in a clone of "
        f"simcore {wanted} builds it"
    )


def _version_of_wheel() -> str:
    try:
        return version("simcore-cuda")
    except PackageNotFoundError:
        return "a folder that pip did not install"


LOADED = load_kernels()
