"""The self-check of a family of kernels, in a process of its own: both forms, compared and timed.

A line of JSON is written before each operator and one after, so that the parent process can tell
which kernel a process that died was in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcore._kernels import choice
from simcore._kernels.cases import OF_FAMILY, Case, timed_arguments
from simcore._kernels.verdicts import Row

REPEATS = 5


def main(family: str, device: str, out: str, timed: bool) -> None:
    """Check the kernels of a family on a device, and write lines of JSON to ``out``."""
    cases: dict[str, list[Case]] = {}
    for name, case in OF_FAMILY[family](torch.device(device)):
        cases.setdefault(name, []).append(case)
    for name, of_operator in cases.items():
        _append(out, {"started": name})
        try:
            row = _checked(name, of_operator, torch.device(device), timed)
        except RuntimeError as error:
            if _is_full(error):
                _append(out, {"full": name})
            raise
        _append(out, {"name": name, "row": asdict(row)})


def _append(out: str, line: dict[str, Any]) -> None:
    with Path(out).open("a") as file:
        file.write(json.dumps(line) + "\n")


def _checked(name: str, cases: list[Case], device: torch.device, timed: bool) -> Row:
    kernel, composed = choice.launcher(name), choice.KERNELS[name].composed
    if kernel is None:
        return Row(False, "this build has no such kernel")
    for case in cases:
        error = difference(kernel, composed, case)
        if error:
            return Row(False, f"{case.name}: {error}")
    if not timed:
        return Row(True)
    arguments = timed_arguments(name, device)
    return Row(True, "", *(_seconds(form, arguments, device) for form in (kernel, composed)))


def difference(kernel: Callable[..., Any], composed: Callable[..., Any], case: Case) -> str:
    """Return how a kernel differs from the composed form in float64; nothing if it does not.

    An error that the kernel raises is a difference, unless the device lacks memory. A launch that
    fails may be told of by a later operation, so that the results are read here.
    """
    want = case.compared(composed(*_wide(case.arguments)), _wide(case.arguments))
    try:
        got = case.compared(kernel(*case.arguments), case.arguments)
        got = [tensor.double().cpu() for tensor in got]
    except (RuntimeError, ValueError) as error:
        if _is_full(error):
            raise
        return str(error).strip().partition("\n")[0] or type(error).__name__
    expected = [tensor.double().cpu() for tensor in want]
    largest = [float(t.nan_to_num().abs().max()) if t.numel() else 0.0 for t in expected]
    for place, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
            return f"result {place} has another shape, or nan in other places"
        unit = max(largest) if case.together else largest[place]
        error = float((one - other).nan_to_num(posinf=torch.inf).abs().max()) if len(one) else 0.0
        if not error <= case.bound * unit:
            return f"result {place} differs by {error:.3g}, wanted at most {case.bound * unit:.3g}"
    return ""


def _is_full(error: Exception) -> bool:
    """Whether others have the memory of the device, which tells nothing of the kernel."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def _wide(values: Any) -> Any:
    """Return the same arguments with tensors of float64."""
    if isinstance(values, Tensor):
        return values.double()
    if isinstance(values, list | tuple):
        return type(values)(_wide(value) for value in values)
    return values


def _seconds(form: Callable[..., Any], arguments: tuple[Any, ...], device: torch.device) -> float:
    """Return the least time of some calls, the first of which warms up."""
    best = float("inf")
    for _ in range(REPEATS + 1):
        _wait(device)
        start = time.perf_counter()
        form(*arguments)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
