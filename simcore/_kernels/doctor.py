"""Report on this installation: the build, versions, devices, and checks of kernels."""

from __future__ import annotations

import platform
from typing import Any

import torch

import simcore._C as _C
from simcore._kernels import choice, cuda_extension, verdicts


def build_info() -> dict[str, Any]:
    """Return what was built, and which kernels this process uses.

    Returns
    -------
    dict
        ``version`` of simcore; ``torch``, the version in use; ``compiler`` and ``flags`` of the
        build; ``cpu_isa``, the vector instructions in use; ``cuda`` and ``cuda_architectures``,
        the kernels for GPUs; ``kernels``, the value of the variable ``SIMCORE_KERNELS``;
        ``checked``, "kernel" or "composed" by device and operator, as far as this process has
        asked.

    Examples
    --------
    >>> from simcore import build_info
    >>> build_info()["kernels"]
    'auto'
    """
    return {
        **_C.build_info(),
        "cuda": cuda_extension.LOADED is not None,
        "cuda_architectures": cuda_extension.architectures(),
        "torch": torch.__version__,
        "kernels": choice.setting(),
        "checked": verdicts.all_known(),
    }


def examine(*, check: bool = True) -> dict[str, Any]:
    """Return devices, and the checks of every kernel on every CUDA device.

    Unless ``check``, nothing is run or timed, and the results are those that the cache holds. An
    entry of ``operators`` has ``uses`` ("kernel" or "composed"), ``state`` ("passed", "failed",
    "not checked" or "not built"), ``error``, ``expected_gain`` (on an H100), and ``gain``, how many
    times as fast as the composed form the kernel was, or None.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.device("cuda", index) for index in range(count)]
    return {
        "system": platform.platform(),
        "cuda": torch.version.cuda,
        "devices": [_device(device, check) for device in devices],
        "build": build_info(),
        "cache": str(verdicts.cache_folder()),
    }


def _device(device: torch.device, check: bool) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": str(device),
        "name": properties.name,
        "memory": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "operators": operator_rows(device, check),
    }


def operator_rows(device: torch.device, check: bool) -> list[dict[str, Any]]:
    """Return a dictionary for each operator with a kernel; see `examine`."""
    built = [name for name in choice.KERNELS if choice.launcher(name) is not None]
    checks: dict[str, verdicts.Verdict | None] = {}
    # Families are checked as wholes, each in a process of its own.
    for family in {choice.KERNELS[name].family: None for name in built}:
        names = choice.operators_of(family)
        checks[family] = (
            verdicts.ask(family, device, names, timed=True)
            if check
            else verdicts.known(family, device)
        )
    rows = []
    for name, kernel in choice.KERNELS.items():
        verdict = checks.get(kernel.family)
        row = verdict.rows.get(name) if verdict else None
        state = "not built" if name not in built else "not checked"
        if row is not None:
            state = "passed" if row.passed else "failed"
        rows.append(
            {
                "operator": name,
                "family": kernel.family,
                "uses": _used(name, verdict),
                "state": state,
                "error": row.error if row else "",
                "expected_gain": verdicts.GAINS[name],
                "gain": row.gain if row else None,
            }
        )
    return rows


def _used(name: str, verdict: verdicts.Verdict | None) -> str:
    """Return "kernel" or "composed"; a kernel that is not checked yet would be, when it is used."""
    chosen, built = choice.setting(), choice.launcher(name) is not None
    if chosen == "auto" and verdict is not None:
        return "kernel" if verdict.takes(name) else "composed"
    faster = chosen == "on" or verdicts.is_faster(name)
    return "kernel" if built and chosen != "off" and faster else "composed"
