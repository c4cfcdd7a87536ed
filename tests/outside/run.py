"""Run the tests of peers with simcore in the place of their functions: ``make test-outside``.

Peers whose source distribution has tests come from the package index, at the version below. Clones
of others are taken from the folder PEERS, where it is given: one folder for each, named as its
repository is. Nothing of a peer enters this repository; everything lies in ``build/outside``.

Values that others published of data in their repositories are computed too (`values`). The tables
go to standard output. The exit code is 1 if a test fails that `differs` does not name, if one
passes that it names, or if a value differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from outside.differs import DIFFERS
from outside.values import VALUES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/outside"
# What the peers need and simcore's environment lacks; numpy, scipy and torch stay as they are.
NEEDED = (
    *("numba==0.68.1", "llvmlite==0.50.0", "joblib==1.6.0"),
    *("array-api-compat==1.16.0", "array-api-strict==2.6.1"),
    *("polars==2.1.0", "polars-runtime-32==2.1.0", "loguru==0.7.3"),
    # A clone of rsatoolbox lacks the compiled part.
    *("rsatoolbox==0.3.2", "petname==2.9", "parameterized==0.9.0", "scikit-image==0.26.0"),
    *("lazy-loader==0.6", "imageio==2.38.1", "tifffile==2026.3.3"),
)


@dataclass(frozen=True)
class Peer:
    """A package with tests."""

    name: str  # in the table
    adapter: str  # a module in `outside.adapters`
    tests: tuple[str, ...]  # files and folders of its tests of measures
    source: str = "."  # the folder that holds the package
    version: str = ""  # on the index; empty for a clone
    folder: str = ""  # of the clone
    options: tuple[str, ...] = ()  # of pytest


_METRICS = "tests/aristotelian/metrics/test_"
PEERS = (
    Peer("dcor", "dcor", ("dcor/tests/test_dcor.py",), version="0.7", options=("--noconftest",)),
    Peer("pytorch-cka", "cka", ("tests",), version="1.1.3"),
    Peer("netrep", "netrep", ("tests",), folder="netrep"),
    Peer("repsim", "repsim", ("tests",), "src", folder="repsim", options=("-k", "test_compare")),
    Peer("platonic-universe", "pu", ("tests",), "src", folder="platonic-universe"),
    Peer(
        "calibrated-similarity",
        "aristotelian",
        tuple(
            f"{_METRICS}{name}.py"
            for name in (
                "cka",
                "cka_estimators",
                "metrics",
                "extra_metrics",
                "metric_alignment",
                "api",
            )
        ),
        folder="Aristotelian",
    ),
    Peer(
        "rsatoolbox",
        "rsatoolbox",
        tuple(f"tests/test_{name}.py" for name in ("compare_rdm", "noise_ceiling")),
        folder="rsatoolbox",
    ),
)


def main() -> int:
    """Run the tests, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run the tests of peers on simcore.")
    parser.add_argument("--peers", help="folder of clones")
    clones = parser.parse_args().peers
    _pip("install", "--upgrade", "--no-deps", "--target", str(BUILD / "site"), *NEEDED)
    lines, wrong = [], []
    for peer in PEERS:
        folder = _unpacked(peer) if peer.version else _clone(peer.folder, clones)
        if folder is None:
            print(f"{peer.name}: left out, no folder {peer.folder} in PEERS", file=sys.stderr)
            continue
        line, unexplained = _row(peer, _run(peer, folder))
        lines.append(line)
        wrong += unexplained
    print("| peer | passed | differs | does not map | why |\n|---|---|---|---|---|")
    print("\n".join(lines))
    print("\n| published | value | here |\n|---|---|---|")
    for name, values in VALUES.items():
        folder = _clone(name, clones)
        if folder is None:
            print(f"{name}: no values, no folder {name} in PEERS", file=sys.stderr)
            continue
        for what, found, wanted, tolerance in values(folder):
            print(f"| {name}: {what} | {wanted:.16g} | {found:.16g} |")
            if not abs(found - wanted) <= tolerance:
                wrong.append(f"{name}: {what}: wanted {wanted}, found {found}")
    for one in wrong:
        print(f"not explained: {one}", file=sys.stderr)
    return 1 if wrong else 0


def _row(peer: Peer, tests: list[dict[str, object]]) -> tuple[str, list[str]]:
    """Return the row of a peer, and what no adapter explains."""
    reached = {str(test["test"]).rpartition("/")[2]: test for test in tests if test["reached"]}
    differs = DIFFERS.get(peer.adapter, {})
    failed = {name: test for name, test in reached.items() if test["outcome"] == "failed"}
    wrong = [
        f"{peer.name} {name}: {test['error']}"
        for name, test in failed.items()
        if name not in differs
    ]
    wrong += [f"{peer.name} {name}: wanted a failure" for name in differs if name not in failed]
    wrong += [] if reached else [f"{peer.name}: no test reached simcore"]
    why = "; ".join(dict.fromkeys(differs[name] for name in failed if name in differs))
    passed = len(reached) - len(failed)
    return (
        f"| {peer.name} | {passed} | {len(failed)} | {len(tests) - len(reached)} | {why} |",
        wrong,
    )


def _run(peer: Peer, folder: Path) -> list[dict[str, object]]:
    results = BUILD / f"{peer.adapter}.json"
    results.unlink(missing_ok=True)
    paths = [ROOT, ROOT / "python", ROOT / "tests", folder / peer.source, folder, BUILD / "site"]
    how = (
        *("-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider"),
        *("-W", "ignore", "--continue-on-collection-errors"),
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        *how,
        "-p",
        "outside.plugin",
        "--tb=no",
        *peer.options,
    ]
    done = subprocess.run(
        [*command, *peer.tests],
        cwd=folder,
        env={
            **os.environ,
            "OUTSIDE_PEER": peer.adapter,
            "OUTSIDE_RESULTS": str(results),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    if not results.is_file():
        raise SystemExit(f"{peer.name}: the tests did not run\n{done.stdout}")
    found: list[dict[str, object]] = json.loads(results.read_text())
    return found


def _unpacked(peer: Peer) -> Path:
    """Return the folder of a source distribution, downloaded once."""
    name = f"{peer.name.replace('-', '_')}-{peer.version}"
    if not (BUILD / name).is_dir():
        pinned = f"{peer.name}=={peer.version}"
        _pip("download", "--no-deps", "--no-binary", peer.name, "--dest", str(BUILD), pinned)
        with tarfile.open(BUILD / f"{name}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return BUILD / name


def _clone(name: str, clones: str | None) -> Path | None:
    folder = Path(clones or "", name).resolve()
    return folder if clones and folder.is_dir() else None


def _pip(*arguments: str) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
