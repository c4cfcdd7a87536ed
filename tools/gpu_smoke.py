"""The first minute on a GPU: every case of the self-checks, and the way from torch to a kernel.

    SIMCORE_KERNELS=on python tools/gpu_smoke.py [CHECK ...]    one of CHECKS, or all

Prints a line for each check: "ok", or what is wrong. The exit status is 1 where something is
wrong, and 2 where no check has a given name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from simcore import build_info, cka_grid
from simcore._kernels import choice, self_check
from simcore._kernels.self_check import OF_FAMILY
from simcore._ops.coupling import affine_coupling
from simcore._ops.hsic import gram_terms

Check = Callable[[], str]  # returns what is wrong


def _terms(layers: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return gram_terms(layers, [], "linear", "unbiased", 1.0, 0, "highest")


def _differs(got: Sequence[Tensor], want: Sequence[Tensor]) -> str:
    same = all(map(torch.equal, got, want))
    return "" if same else "wanted the bits of another call, got others"


def _raises(kind: type[Exception], words: str, function: Callable[[], object]) -> str:
    """Return how a call did not raise an error of a type, with some words."""
    try:
        function()
    except kind as error:
        return "" if words in str(error) else f"wanted {words!r} in the error, got {error}"
    return f"wanted an error {kind.__name__}, got none"


def cases(device: torch.device) -> Iterator[tuple[str, Check]]:
    """Yield every case of the self-checks, each of which compares a kernel with its composed form.

    A kernel is called as the extension registers it: nothing takes the composed form in its place.
    """
    for make in OF_FAMILY.values():
        for name, case in make(device):
            kernel, composed = choice.launcher(name), choice.KERNELS[name].composed
            if kernel is None:
                yield f"{name}, {case.name}", lambda: "this build has no such kernel"
                continue
            yield (
                f"{name}, {case.name}",
                lambda kernel=kernel, composed=composed, case=case: self_check.difference(
                    kernel, composed, case
                ),
            )


def memory() -> str:
    """Call a kernel whose workspace is above 256 MB, for which its plan asks what is free."""
    layers = torch.randn(64, 4096, 64, device="cuda").unbind()
    finite = all(bool(terms.isfinite().all()) for terms in _terms(layers))
    return "" if finite else "wanted finite terms, got others"


def full() -> str:
    """Ask for 70 TB of results."""
    x, params = (torch.zeros(1, 1, device="cuda").expand(2**24, 2**k) for k in (20, 21))
    return _raises(
        torch.OutOfMemoryError, "free bytes of", lambda: affine_coupling(x, params, 1.0, False)
    )


def nan() -> str:
    """Give a layer that holds a NaN."""
    x = torch.randn(3, 40, 50, device="cuda")
    x[1, 2, 3] = torch.nan
    return _raises(ValueError, "X[1]: wanted finite values, got 1 NaN", lambda: cka_grid(x))


def stream() -> str:
    """Call a kernel on a stream whose inputs are not there yet."""
    layers = torch.randn(5, 300, 40, device="cuda")
    want, late = _terms(layers.unbind()), torch.zeros_like(layers)
    torch.cuda.synchronize()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(50_000_000)
        late.copy_(layers)
        got = _terms(late.unbind())
    other.synchronize()
    return _differs(got, want)


def capture() -> str:
    """Capture a call of 70 layers after one of 3, which has loaded other kernels."""
    few, many = (torch.randn(count, 150, 20, device="cuda").unbind() for count in (3, 70))
    _terms(few)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = _terms(many)
    graph.replay()
    return _differs(got, _terms(many))


CHECKS = {check.__name__: check for check in (memory, nan, stream, capture, full)}


def report(checks: Iterator[tuple[str, Check]]) -> bool:
    """Print a line for each check, and return whether all are well."""
    good = True
    for name, check in checks:
        try:
            wrong = check()
            torch.cuda.synchronize()
        except Exception as error:  # a fault of the device: the next lines say whether it goes on
            wrong = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        print(f"{name}: {wrong or 'ok'}", flush=True)
        good &= not wrong
    return good


def main(names: Sequence[str]) -> int:
    """Run the checks of these names, or all of them after the cases; return the exit status."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"gpu_smoke: wanted checks of {', '.join(CHECKS)}, got {unknown[0]}", file=sys.stderr)
        return 2
    print(build_info(), flush=True)
    of_names = [(name, CHECKS[name]) for name in names or CHECKS]
    good = bool(names) or report(cases(torch.device("cuda", 0)))
    return int(not (report(iter(of_names)) and good))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
