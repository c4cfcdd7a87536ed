"""Verdicts of the self-checks of a machine's kernels: made once, and kept in the user's cache.

A check runs in a child process, because a kernel that hangs or writes where it must not spoils the
process for good. A verdict belongs to the compiled extension, the device's name, the driver and the
version of torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import simcore._C as _C
from simcore._grid.finish import warn_caller
from simcore._kernels import cuda_extension

TIMEOUT = 180.0  # seconds for one family, of which importing torch takes most
PATIENCE = 5.0  # seconds that a killed process has to end
DRIVER = Path("/proc/driver/nvidia/version")
FASTER = 1.2  # times as fast as the kernel was: from there on the composed form is taken
# How many times as fast as the composed form a kernel was on an H100, where this machine has not
# timed both (bench/results/gpu-nvidia-h100-80gb-hbm3.json).
GAINS = {
    "gram_terms": 8.6,  # 13 layers of 1600 x 768: 1.4 ms, and 12 ms
    "small_svd": 0.5,  # PWCCA of 300 pairs of 100 components: 24 ms, in a former version, and 12 ms
    "attention_similarity": 103.0,  # 12 layers of 12 heads, 1000 x 64 words: 33 ms, and 3.4 s
    "affine_coupling": 4.7,  # forward and backward of 64 x 1600 x 384: 0.57 ms, and 2.7 ms
    "affine_coupling_backward": 4.7,
}


@dataclass(frozen=True)
class Row:
    """The verdict of a check on one operator."""

    passed: bool
    error: str = ""  # why the kernel is not used; empty if it passed
    # Seconds of one call of a larger case, as `composed`; None if not timed.
    kernel: float | None = None
    composed: float | None = None

    @property
    def gain(self) -> float | None:
        """How many times as fast as the composed form the kernel was."""
        return self.composed / self.kernel if self.kernel and self.composed else None


@dataclass(frozen=True)
class Verdict:
    rows: dict[str, Row]
    final: bool = True  # False: the machine, and not a kernel, was the reason

    def takes(self, name: str) -> bool:
        """Whether calls of an operator take the kernel."""
        row = self.rows.get(name)
        if row is None or not row.passed:
            return False
        return is_faster(name) if row.gain is None else row.gain * FASTER >= 1


def is_faster(name: str) -> bool:
    """Whether the kernel of an operator is taken where this machine has not timed it."""
    return GAINS[name] * FASTER >= 1


_known: dict[tuple[str, str], Verdict] = {}


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "simcore" / "self-checks"


@cache
def build_key() -> str:
    """Return a hash of the library that has the kernels, or of simcore's own module without any."""
    file = cuda_extension.LOADED or Path(_C.__file__)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def driver() -> str:
    """Return the version of the driver; of CUDA in it, where a container hides the former."""
    if DRIVER.is_file():
        return DRIVER.read_text().strip()
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return str(version.value)


def device_key(device: torch.device) -> dict[str, str]:
    """Return what a verdict belongs to."""
    on_gpu = device.type == "cuda"
    return {
        "build": build_key(),
        "device": torch.cuda.get_device_name(device) if on_gpu else device.type,
        "driver": driver() if on_gpu else "",
        "torch": torch.__version__,
    }


def path_of(family: str, device: torch.device) -> Path:
    key = json.dumps(device_key(device), sort_keys=True).encode()
    return cache_folder() / f"{family}-{hashlib.sha256(key).hexdigest()[:16]}.json"


def known(family: str, device: torch.device) -> Verdict | None:
    """Return the verdict that this process or the cache has; None where nothing was checked."""
    key = family, str(device)
    if key not in _known:
        verdict = _read(path_of(family, device))
        if verdict is None:
            return None
        _settle(family, device, verdict)
    return _known[key]


def ask(family: str, device: torch.device, names: list[str], timed: bool = False) -> Verdict:
    """Run the self-check of a family, whose operators are ``names``, and keep what it finds."""
    # Where the check itself could not run, the composed forms are used until the process ends.
    verdict = _run(family, device, names, timed)
    if verdict.final:
        _write(path_of(family, device), {"of": device_key(device), "rows": verdict.rows})
    _settle(family, device, verdict)
    return verdict


def _settle(family: str, device: torch.device, verdict: Verdict) -> None:
    _known[family, str(device)] = verdict
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    failed = [f"{name}: {row.error}" for name, row in verdict.rows.items() if not row.passed]
    if failed:
        warn_caller(
            f"simcore: on {named} ({device}) operations of torch replace kernels that failed their "
            f"self-check; {'; '.join(failed)}. `simcore doctor` lists all checks"
        )


def all_known() -> dict[str, dict[str, str]]:
    """Return what this process uses, by device and operator: "kernel" or "composed"."""
    verdicts: dict[str, dict[str, str]] = {}
    for (_, device), verdict in _known.items():
        of_device = verdicts.setdefault(device, {})
        for name in verdict.rows:
            of_device[name] = "kernel" if verdict.takes(name) else "composed"
    return verdicts


def _read(path: Path) -> Verdict | None:
    """Return the verdict in a file; None without one, or for one that another version wrote."""
    if not path.is_file():
        return None
    try:
        rows = json.loads(path.read_text())["rows"]
        return Verdict({name: Row(**row) for name, row in rows.items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # half a file, or other fields: the check runs again and replaces it


def _write(path: Path, record: dict[str, Any]) -> None:
    """Write a verdict whole or not at all, and warn where it cannot be written."""
    rows = {name: asdict(row) for name, row in record["rows"].items()}
    text = json.dumps({**record, "rows": rows}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as refused:
        warn_caller(f"simcore: {path}: the result of a self-check was not kept ({refused})")


def child_command(family: str, device: torch.device, out: Path, timed: bool) -> list[str]:
    """Return the command of a check; the child imports from where this process does."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from simcore._kernels import self_check; "
        f"self_check.main({family!r}, {str(device)!r}, {str(out)!r}, {timed})"
    )
    return [sys.executable, "-c", program]


def _run(family: str, device: torch.device, names: list[str], timed: bool) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="simcore-check-") as folder:
        out, log = Path(folder, "rows.jsonl"), Path(folder, "log")
        with log.open("w") as stream:
            child = subprocess.Popen(
                child_command(family, device, out, timed),
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "SIMCORE_KERNELS": "off"},
            )
            try:
                code: int | None = child.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                code = None
                child.kill()
                with suppress(subprocess.TimeoutExpired):  # the driver holds it: it is left behind
                    child.wait(PATIENCE)
        return _judged(names, out, log, code)


def _judged(names: list[str], out: Path, log: Path, code: int | None) -> Verdict:
    """Return the verdict of a child that wrote ``out``, and ended with ``code`` or not at all."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    rows = {line["name"]: Row(**line["row"]) for line in lines if "row" in line}
    if code == 0 and set(rows) == set(names):
        return Verdict(rows)
    why = f"no answer in {TIMEOUT:g} s" if code is None else f"the check ended with code {code}"
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    why += f" ({last[-1].strip()})" if last else ""
    full = any("full" in line for line in lines)  # at this moment: the next process may have room
    started = [line["started"] for line in lines if "started" in line and not full]
    # Kernels that came before are what they were found to be; nothing is known of the ones after.
    guilty = started[-1] if started else None
    for name in names:
        if name not in rows or name == guilty:
            what = why if name == guilty else "the check did not come to it"
            rows[name] = Row(False, what if started else f"the check could not run: {why}")
    return Verdict(rows, final=guilty is not None)
