"""The numbers of speed in README, made of `bench/results`: ``python -m bench.speed_table``.

A row has the newest measurements of one job: how long our time is in units of the job's floor (the
matrix products that it cannot do without, at torch's rate), and how long the fastest formulation in
plain torch and the fastest other package take in units of our time. A test compares README with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench import rows as bench_rows

TORCH = ("torch", "compiled")  # how the names of formulations in plain torch begin
# How the names of other packages begin, and what README calls them.
PEERS = {"pytorch-cka": "pytorch-cka", "published": "published code"}
HEAD = ("family", "job", "our time / floor", "plain torch / our time", "other package / our time")


@dataclass(frozen=True)
class Family:
    """A family of measures, and the job that stands for it: its label in `bench`."""

    name: str
    title: str
    job: str


FAMILIES = (
    Family("CKA", "linear, biased", "cka13"),
    Family("CCA", "SVCCA", "svcca13"),
    Family("Procrustes", "similarity", "procrustes13"),
    Family("regression", "R²", "linreg13"),
    Family("RSA", "Pearson", "rsa13"),
    Family("neurons", "best partners", "neuronsim13"),
    Family("neighbours", "mutual, k = 10", "mutual13"),
    Family("matching", "one-to-one", "hard_match13"),
    Family("distances", "distance correlation", "distance_correlation13"),
    Family("attention", "Jensen-Shannon, 12 layers of 12 heads", "js12"),
    Family("couplings", "forward and backward", "coupling"),
    Family("statistics", "200 permutations of CKA", "permutation13"),
)


def speed_table() -> str:
    """Return the table in Markdown."""
    found = bench_rows.newest()
    rows = (_cells(family, found[family.job]) for family in FAMILIES)
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def slower() -> str | None:
    """Return how many times longer the jobs take without a compiler; None where none was timed."""
    ratios = bench_rows.slower()
    found = [ratios[family.job] for family in FAMILIES if family.job in ratios]
    return f"{min(found):.0f} to {max(found):.0f} times" if found else None


def _cells(family: Family, rows: dict[str, dict[str, str]]) -> tuple[str, ...]:
    ratios = {name: bench_rows.times_ours(row) for name, row in rows.items() if row["times_ours"]}
    torch = sorted(ratio for name, ratio in ratios.items() if name.startswith(TORCH))
    peers = [
        f"{ratios[name]:.1f} ({label})"
        for start, label in PEERS.items()
        for name in sorted(ratios, key=ratios.__getitem__)
        if name.startswith(start)
    ]
    ours = float(rows["ours"]["over_floor"])
    return (
        family.name,
        family.title,
        f"{ours:.2f}",
        *([f"{torch[0]:.1f}"] if torch else [""]),
        *(peers[:1] or [""]),
    )


if __name__ == "__main__":
    print(speed_table())
    print(slower())
