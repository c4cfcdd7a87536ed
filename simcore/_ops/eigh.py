"""Eigenproblems of many symmetric matrices, on a CUDA device in one call of cuSOLVER.

torch solves a batch there matrix by matrix above 32 columns, and in one call from release 2.12 on
(pytorch/pytorch#175403). Before it, `eigh` calls cuSOLVER's ``cusolverDnXsyevBatched`` (of CUDA
12.6) itself, through ctypes: a float64 matrix of 128 columns takes an H100 0.014 ms in a batch of
325, and 1.6 ms in torch's loop (1.7 and 0.12 ms at 200 columns, 8.0 and 2.9 ms at 768).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LOOPED_COLUMNS = 32  # from here on torch loops
ONE_CALL = "2.12"  # the release of torch that does not
WORKSPACE = 2**27  # bytes that cuSOLVER is given, for as many matrices at a time
# Names and numbers of cuSOLVER's interface.
KINDS = {torch.float32: 0, torch.float64: 1}  # CUDA_R_32F, CUDA_R_64F
VECTORS, UPPER = 1, 1  # CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER
# The libraries of torch that are linked with it, where a build has them.
LIBRARIES = ("libtorch_cuda_linalg.so", "libtorch_cuda.so")
_calling = threading.Lock()  # a handle has one stream at a time


def eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors as `torch.linalg.eigh` does, but sooner."""
    # ``matrices`` is ``[..., k, k]``, float32 or float64, of which the lower triangles are read.
    # The eigenvalues ``[..., k]`` ascend, and each column of ``[..., k, k]`` is an eigenvector;
    # NaN, infinity and an algorithm that does not converge raise a torch.linalg.LinAlgError.
    solver = _Solver.of(matrices.device) if _is_looped(matrices) else None
    solved = solver.solve(matrices.flatten(0, -3)) if solver is not None else None
    if solved is None:
        values, vectors = torch.linalg.eigh(matrices)
        return values, vectors
    return solved[0].reshape(matrices.shape[:-1]), solved[1].reshape(matrices.shape)


def _is_looped(matrices: Tensor) -> bool:
    return (
        matrices.is_cuda
        and torch.__version__ < ONE_CALL
        and matrices.shape[:-2].numel() > 1
        and matrices.shape[-1] > LOOPED_COLUMNS
        and not torch.cuda.is_current_stream_capturing()
    )


class _Solver:
    """cuSOLVER on one device."""

    def __init__(self, library: Any) -> None:
        self.library, self.handle, self.parameters = library, ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cusolverDnCreate", ctypes.byref(self.handle))
        self._call("cusolverDnCreateParams", ctypes.byref(self.parameters))

    @classmethod
    @functools.cache
    def of(cls, device: torch.device) -> _Solver | None:
        """Return the solver of a device; None where torch's CUDA has no such routine."""
        folder = Path(torch.__file__).parent / "lib"
        for name in LIBRARIES:
            if not (folder / name).exists():
                continue
            library = ctypes.CDLL(str(folder / name))  # finds what it is linked with
            if hasattr(library, "cusolverDnXsyevBatched"):
                with torch.cuda.device(device):
                    return cls(library)
        return None

    def solve(self, matrices: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return eigenvalues and eigenvectors; None where a matrix has none that are finite."""
        vectors = matrices.clone(memory_format=torch.contiguous_format)
        values = vectors.new_empty(vectors.shape[:2])
        states = torch.empty(len(vectors), dtype=torch.int32, device=vectors.device)
        with _calling, torch.cuda.device(vectors.device):
            stream = torch.cuda.current_stream().cuda_stream
            self._call("cusolverDnSetStream", self.handle, ctypes.c_void_p(stream))
            most = max(1, WORKSPACE // self._workspace(vectors[:1], values[:1])[0])
            for start in range(0, len(vectors), most):
                part = slice(start, start + most)
                self._solve(vectors[part], values[part], states[part])
        if bool(states.any()):
            return None
        return values, vectors.mT  # cuSOLVER's matrices lie column by column

    def _problem(self, vectors: Tensor, values: Tensor) -> list[Any]:
        columns, kind = ctypes.c_int64(vectors.shape[-1]), KINDS[vectors.dtype]
        matrix, eigenvalues = (ctypes.c_void_p(t.data_ptr()) for t in (vectors, values))
        # The lower triangle of rows is the upper one of columns.
        shape = [VECTORS, UPPER, columns, kind, matrix, columns]
        return [self.handle, self.parameters, *shape, kind, eigenvalues, kind]

    def _workspace(self, vectors: Tensor, values: Tensor) -> tuple[int, int]:
        """Return bytes on the device and on the host."""
        there, here = ctypes.c_size_t(), ctypes.c_size_t()
        sizes = (ctypes.byref(there), ctypes.byref(here), ctypes.c_int64(len(vectors)))
        problem = self._problem(vectors, values)
        self._call("cusolverDnXsyevBatched_bufferSize", *problem, *sizes)
        return max(there.value, 1), max(here.value, 1)

    def _solve(self, vectors: Tensor, values: Tensor, states: Tensor) -> None:
        """Replace matrices by their eigenvectors."""
        there, here = self._workspace(vectors, values)
        on_device = torch.empty(there, dtype=torch.uint8, device=vectors.device)
        on_host = ctypes.create_string_buffer(here)
        self._call(
            "cusolverDnXsyevBatched",
            *self._problem(vectors, values),
            ctypes.c_void_p(on_device.data_ptr()),
            ctypes.c_size_t(there),
            on_host,
            ctypes.c_size_t(here),
            ctypes.c_void_p(states.data_ptr()),
            ctypes.c_int64(len(vectors)),
        )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: wanted status 0 of cuSOLVER, got {status}")
