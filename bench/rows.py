"""The rows of ``bench/results`` for those who show them: the newest, the less favourable.

README's table (`bench.speed_table`) and the pages of the documentation (``docs/_ext``) read them
here, so that both show the same numbers. `measure_rows` adds rows of suites without contestants.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import Any

import torch

from bench.harness import RESULTS, THREADS, append_row, machine

# Modules whose jobs have contestants, which `bench.harness` measures.
SUITES = ("cka", "grids", "attention", "coupling", "stats", "align", "skip", "record")
PURE = "torch"  # the instruction set of a row whose operators are operations of torch
KEPT = " kept"  # ends the label of a job that was measured with ``--keep-memory``


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of results, oldest first; none where there is no such file."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def jobs() -> dict[str, tuple[str, Any]]:
    """Return the suite and the job of each label, of all suites."""
    return {
        label: (suite, job)
        for suite in SUITES
        for label, job in import_module(f"bench.{suite}").JOBS.items()
    }


def job_of(label: str) -> tuple[str, Any]:
    """Return the suite and the job of the label of a row, also of one with memory kept."""
    return jobs()[label.removesuffix(KEPT)]


def newest(pure: bool = False) -> dict[str, dict[str, dict[str, str]]]:
    """Return the newest row of each contestant, by label, of the labels that have one of ours.

    ``pure`` asks for the rows of operations of torch, which do not count otherwise.

    The newest rows of several processors and instruction sets count as one, the one that is less
    favourable to simcore: our longest time in units of the floor, and the shortest of others in
    units of ours.
    Rows of other numbers of threads than `harness.THREADS` do not count. Labels are in the order of
    `bench`, each before its repetition with memory kept.
    """
    by_machine: dict[tuple[str, ...], dict[str, str]] = {}
    for row in _all_rows():
        if int(row["threads"]) == THREADS and (row["isa"] == PURE) is pure:
            by_machine[row["job"], row["contestant"], row["cpu"], row["isa"]] = row
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (label, contestant, *_), row in by_machine.items():
        others = found.setdefault(label, {})
        if contestant not in others or _favour(row) < _favour(others[contestant]):
            others[contestant] = row
    order = list(jobs())
    labels = sorted(found, key=lambda label: (order.index(label.removesuffix(KEPT)), label))
    return {label: found[label] for label in labels if "ours" in found[label]}


def slower() -> dict[str, float]:
    """Return how many times longer operations of torch take than kernels, by label.

    Both times are in units of the floors of their own runs.
    """
    kernels, pure = newest(), newest(pure=True)
    return {
        label: float(rows["ours"]["over_floor"]) / float(kernels[label]["ours"]["over_floor"])
        for label, rows in pure.items()
        if label in kernels and rows["ours"]["over_floor"]
    }


def _favour(row: dict[str, str]) -> float:
    """Return how favourable a row is to simcore, compared with another of its contestant."""
    if row["contestant"] == "ours":
        return -float(row["over_floor"] or 0)
    return float(row["times_ours"] or 0)


def _all_rows() -> Iterator[dict[str, str]]:
    for suite in SUITES:
        yield from read(suite)


def times_ours(row: dict[str, str]) -> float:
    """Return the time of a contestant for the whole grid of its job, in units of our time.

    Published code compares two layers at a time. It was timed for one pair, or for the pairs of one
    layer, and counts as often as the grid has ordered pairs, or layers.
    """
    _, job = job_of(row["job"])
    calls = {"published, 1 row": 1, "published pair": 2}.get(row["contestant"])
    return float(row["times_ours"]) * (job.layers**calls if calls else 1)


def measure_rows(
    suite: str, jobs: Mapping[str, Any], run: Callable[[str, Any, int], Any], description: str
) -> None:
    """Run the command of a suite with rows of its own: print them, and add them to its file."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--job", action="extend", nargs="+", choices=list(jobs), help="one or more; default all"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for label, job in jobs.items():
        if label in (options.job or jobs):
            row = {**asdict(run(label, job, options.repeats)), **machine()}
            facts = {**row, "load": os.getloadavg()[0]}
            append_row(None if options.dry_run else RESULTS / f"{suite}.csv", facts)
