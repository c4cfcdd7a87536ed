"""Measures in files of the user: a function of two arrays."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError

NAME = "measure"
_PROBES = 3  # pairs whose both orders are compared
_RTOL = 1e-6  # of two orders that count as equal
Function = Callable[[np.ndarray, np.ndarray], Any]


def read_function(path: Path) -> Function:
    """Return the measure of a Python file: what is called ``measure``, or its only public function.

    ``measure`` may be any callable, from wherever it is imported.
    """
    if not path.is_file():
        raise UserError(f"{path}: wanted a Python file, found none")
    place = sha256(str(path.resolve()).encode(errors="surrogateescape")).hexdigest()[:8]
    spec = spec_from_file_location(f"simlab_judged_{path.stem}_{place}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: wanted a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look the module up by its name
    try:
        with _neighbours_importable(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise UserError(f"{path}: wanted a file that runs, found {_told(error, path)}") from error
    public = {
        name: one
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == spec.name and not name.startswith("_")
    }
    named = getattr(module, NAME, None)
    name = NAME
    if not callable(named):
        name, named = next(iter(public.items())) if len(public) == 1 else (NAME, None)
    if named is None:
        raise UserError(
            f"{path}: wanted a function {NAME}(x, y), or one function alone, found "
            f"{', '.join(public) or 'none'}"
        )
    parameters = _parameters(named)
    if parameters is not None and not _take_two(parameters):
        raise UserError(f"{path}: wanted {name}(x, y), found {name}{parameters}")
    return named


def as_grid(
    function: Function, path: Path
) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray] | None], np.ndarray]:
    """Return the grid of a function: its values for all layers of X and of Y, ``[len(X), len(Y)]``.

    Without Y, layers of X are compared with each other, and each pair once if both orders of the
    first pairs have one value.
    """

    def value(x: np.ndarray, y: np.ndarray) -> float:
        try:
            # Copies, so that a function that centres its arguments in place harms no other pair.
            with _neighbours_importable(path):
                found = function(x.astype(np.float64), y.astype(np.float64))
        except Exception as error:
            shapes = f"arrays of {list(x.shape)} and {list(y.shape)}"
            raise UserError(
                f"{path}: wanted a value of {shapes}, found {_told(error, path)}"
            ) from (error)
        if np.ndim(found) == 0 and not isinstance(found, Real) and hasattr(found, "item"):
            found = found.item()
        if isinstance(found, bool) or not isinstance(found, Real):
            raise UserError(f"{path}: wanted one number, found {_described(found)}")
        return float(found)

    def grid(X: Sequence[np.ndarray], Y: Sequence[np.ndarray] | None = None) -> np.ndarray:
        if Y is not None:
            return np.array([[value(x, y) for y in Y] for x in X])
        values = np.array([[np.nan] * len(X)] * len(X))
        pairs = [(i, j) for i in range(len(X)) for j in range(i, len(X))]
        across = [pair for pair in pairs if pair[0] != pair[1]][:: max(1, len(pairs) // _PROBES)]
        symmetric = True
        for i, j in across:
            values[i, j], values[j, i] = value(X[i], X[j]), value(X[j], X[i])
            symmetric &= bool(np.isclose(values[i, j], values[j, i], _RTOL, 0, equal_nan=True))
        for i, j in pairs:
            if (i, j) in across:
                continue
            values[i, j] = value(X[i], X[j])
            values[j, i] = values[i, j] if symmetric or i == j else value(X[j], X[i])
        return values

    return grid


@contextmanager
def _neighbours_importable(path: Path) -> Iterator[None]:
    """Let the block import files beside `path`, as Python does when it runs the file."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the block may have changed the list
            sys.path.remove(folder)


def _parameters(function: Function) -> inspect.Signature | None:
    """Return the parameters of a function; None for a function in C that does not tell them."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _take_two(parameters: inspect.Signature) -> bool:
    try:
        parameters.bind(None, None)
    except TypeError:
        return False
    return True


def _told(error: BaseException, path: Path) -> str:
    """Return an error as text, with the last line of the file that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    # The loader makes the name of the file absolute.
    lines = [one.lineno for one in frames if Path(one.filename).resolve() == path.resolve()]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines.append(error.lineno)
    where = f" (line {lines[-1]})" if lines else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}{where}"


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if not shape else f"{type(value).__name__} of shape {list(shape)}"
