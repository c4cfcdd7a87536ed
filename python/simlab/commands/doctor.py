"""``simcore doctor``: versions, devices, and the checks of kernels."""

from __future__ import annotations

import json
from typing import Any

from simlab.steps.catalogue import DOCTOR
from simlab.steps.record import Step

STEPS = (DOCTOR,)
_NAMES = ("operator", "uses", "check", "gain", "expected", "error")


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print what the machine has, as lines and a table for each device, or as JSON."""
    from simlab.store import console

    as_json = values.pop("json")
    facts = step.call(**values)
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for line in _lines(facts):
        console.out.print(line, markup=False)
    for device in facts["devices"]:
        memory = f"{device['memory'] / 2**30:.0f} GiB"
        named = f"{device['device']}: {device['name']}, {memory}, {device['capability']}"
        console.out.print(named, markup=False)
        console.print_rows(_NAMES, [_row(operator) for operator in device["operators"]])


def _lines(facts: dict[str, Any]) -> list[str]:
    build = facts["build"]
    kernels = ", ".join(build["cuda_architectures"]) if build["cuda"] else "none built"
    lines = [
        ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        f"{facts['system']}; CUDA of torch: {facts['cuda'] or 'none'}",
        f"CPU: {build['cpu_isa']}; CUDA kernels: {kernels}; SIMCORE_KERNELS={build['kernels']}",
        f"checks of kernels: {facts['cache']}",
    ]
    return lines if facts["devices"] else [*lines, "no CUDA device: grids run on the CPU"]


def _row(operator: dict[str, Any]) -> list[str]:
    gain = "" if operator["gain"] is None else f"{operator['gain']:.1f} x"
    expected = f"{operator['expected_gain']:g} x"
    named = (operator["operator"], operator["uses"], operator["state"])
    return [*named, gain, expected, operator["error"]]
