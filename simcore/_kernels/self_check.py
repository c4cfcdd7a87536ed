"""The self-check of a family of kernels, in a process of its own: both forms, compared and timed.

A line of JSON is written before each operator and one after, so that the parent process can tell
which kernel a process that died was in. The cases are small, and of every kind of tile that a
family's kernels have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcore._kernels import choice
from simcore._kernels.verdicts import Row
from simcore._ops.spectral_batched import fits_jacobi

# Differences in units of the largest value, where the composed form computes in float64.
FLOAT64, FLOAT32, MEDIUM = 1e-9, 2e-5, 2e-3
Results = Callable[..., list[Tensor]]
REPEATS = 5


@dataclass(frozen=True)
class Case:
    name: str
    arguments: tuple[Any, ...]
    # The largest difference, in units of the largest entry of the composed form's result.
    bound: float
    # Makes the tensors to compare of an operator's result and its arguments: singular vectors are
    # known up to a sign.
    compared: Callable[[Any, tuple[Any, ...]], list[Tensor]]
    # Whether one unit serves all results, as for HSIC of two layers and of each with itself.
    together: bool = False


def _results(result: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def _system(result: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    u, s, v = result
    eye = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
    return [s, (u * s[:, None]) @ v.mT, v.mT @ v - eye + 1]


def _layers(
    n: int, widths: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> list[Tensor]:
    """Return layers that share a signal, with an offset and one outlier dimension."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    layers = []
    for width in widths:
        mixing = torch.randn(4, width, generator=generator, dtype=torch.float64)
        noise = torch.randn(n, width, generator=generator, dtype=torch.float64)
        layer = shared @ mixing + noise + 3.0
        layer[:, 0] *= 20
        layers.append(layer.to(dtype).to(device))
    return layers


def _hsic(device: torch.device) -> Iterator[tuple[str, Case]]:
    few, many = (150, (40, 300, 33)), (90, (20,) * 70)  # more than 64 layers: the large tiles
    for precision, bound in (("highest", FLOAT32), ("medium", MEDIUM)):
        for n, widths in (few, many):
            x = _layers(n, widths, torch.float32, device)
            named = f"linear, {precision}, {len(widths)} layers"
            given: tuple[Any, ...] = (x, [], "linear", "biased", 1.0, 0, precision)
            yield "gram_terms", Case(named, given, bound, _results, True)
    y = _layers(few[0], (24, 7), torch.float32, device, seed=1)
    for kernel, estimator in (
        ("linear", "unbiased"),
        ("rbf", "biased"),
        ("rbf", "unbiased"),
        ("distance", "biased"),
        ("distance", "product"),
    ):
        x = _layers(*few, torch.float32, device)
        given = (x, y, kernel, estimator, 1.0, 0, "highest")
        yield "gram_terms", Case(f"{kernel}, {estimator}", given, FLOAT32, _results, True)
    halves = _layers(*few, torch.bfloat16, device)
    given = (halves, [], "linear", "biased", 1.0, 0, "highest")
    yield "gram_terms", Case("linear, bfloat16", given, FLOAT32, _results, True)


def _spectral(device: torch.device) -> Iterator[tuple[str, Case]]:
    for shape in ((3, 1, 1), (5, 33, 20), (20, 128, 128), (7, 100, 1)):
        if device.type == "cuda" and not fits_jacobi(*shape[1:], torch.float32, device):
            continue  # this device has less shared memory
        m = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        m[0, :, -1] = m[0, :, 0]  # a matrix that lacks a rank
        yield "small_svd", Case(f"{shape}", (m.to(device),), FLOAT32, _system)


def _attention(device: torch.device) -> Iterator[tuple[str, Case]]:
    generator = torch.Generator().manual_seed(0)
    words = (5, 1, 33)
    drawn = [torch.rand(h, t, t, generator=generator).softmax(-1) for h in (50, 3) for t in words]
    for dtype, bound in (
        (torch.float32, FLOAT32),
        (torch.float64, FLOAT64),
        (torch.bfloat16, FLOAT32),
    ):
        x = [weights.to(dtype).to(device) for weights in drawn]
        for measure in ("js", "frobenius"):
            for causal in (False, True):
                named = f"{measure}{', causal' if causal else ''}, {dtype}"
                given = (x, x[3:], words, measure, causal, 0)
                yield "attention_similarity", Case(named, given, bound, _results)
    padded = [torch.rand(3, h, 33, 33, generator=generator).softmax(-1).to(device) for h in (4, 2)]
    given = (padded, padded[1:], words, "js", False, 0)
    yield "attention_similarity", Case("js, padded", given, FLOAT32, _results)


def _coupling(device: torch.device) -> Iterator[tuple[str, Case]]:
    generator = torch.Generator().manual_seed(0)
    for shape in ((7, 5), (3, 65, 384)):
        for dtype, bound in (
            (torch.float32, FLOAT32),
            (torch.float64, FLOAT64),
            (torch.bfloat16, FLOAT32),
        ):
            of_row, of_params = shape[:-1], (*shape[:-1], 2 * shape[-1])
            x, params, grad, grad_log_det = (
                torch.randn(s, generator=generator).to(dtype).to(device)
                for s in (shape, of_params, shape, of_row)
            )
            if dtype == torch.bfloat16:
                grad, grad_log_det = grad.float(), grad_log_det.float()
            for inverse in (False, True):
                named = f"{shape}, {dtype}{', inverse' if inverse else ''}"
                given = (x, params, 1.3, inverse)
                yield "affine_coupling", Case(named, given, bound, _results)
                back = (grad, grad_log_det, x, params, 1.3, inverse)
                yield "affine_coupling_backward", Case(named, back, bound, _results)


OF_FAMILY: dict[str, Callable[[torch.device], Iterator[tuple[str, Case]]]] = {
    "hsic": _hsic,
    "spectral": _spectral,
    "attention": _attention,
    "coupling": _coupling,
}


def timed_arguments(name: str, device: torch.device) -> tuple[Any, ...]:
    layers = _layers(1000, (768,) * 8, torch.float32, device)
    if name == "gram_terms":
        return layers, [], "linear", "biased", 1.0, 0, "highest"
    if name == "small_svd":
        return (torch.randn(256, 100, 100, generator=torch.Generator().manual_seed(0)).to(device),)
    if name == "attention_similarity":
        drawn = torch.rand(80, 12, 30, 30, generator=torch.Generator().manual_seed(0))
        layers = drawn.softmax(-1).to(device).unflatten(0, (4, 20))
        return list(layers), [], [30] * 20, "js", False, 0
    x, grad = (torch.randn(8, 4096, 384, device=device) for _ in range(2))
    params, rows = torch.randn(8, 4096, 768, device=device), torch.randn(8, 4096, device=device)
    forward = (x, params, 1.3, False)
    return forward if name == "affine_coupling" else (grad, rows, *forward)


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
    """Return how a kernel differs from the composed form in float64; nothing if it does not."""
    # An error that the kernel raises is a difference, unless the device lacks memory. A launch that
    # fails may be told of by a later operation, so that the results are read here.
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
