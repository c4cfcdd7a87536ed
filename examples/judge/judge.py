"""Where does a measure of similarity stand among all of simcore's?

    python examples/judge/judge.py my_measure.py --out runs/judge
    python examples/judge/judge.py cka procrustes --domain digits

A measure is a Python file with a function of two arrays, or the name of a measure of simcore;
without any, the measures of simcore are ranked. The networks are trained on this machine by the
first call, which takes minutes. They and the scores of simcore's measures are kept in the cache
folder. `docs/guides/judge.md` says what the tests are.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import joblib
import pandas as pd
from rich.progress import track

import criteria
import simcore
from domains import DOMAINS
from measures import OfFile, Variant, find, variants
from networks import Domain
from scores import ranked, score
from show import LEGEND, tables_of, write


def judge(
    asked: Sequence[Variant | OfFile], domains: Mapping[str, Domain], cache: Path
) -> pd.DataFrame:
    """Return a row for each domain, measure, test and score; `scores` says what its columns are."""
    memory = joblib.Memory(cache, verbose=0)
    files = {one.label: one for one in asked if isinstance(one, OfFile)}
    ours = {one.label: one for one in (*variants(), *asked) if isinstance(one, Variant)}
    networks = {name: domain.recorded(memory) for name, domain in domains.items()}
    kept, rows = memory.cache(of_simcore, ignore=["networks"]), []
    about = (criteria.DRAWS, simcore.__version__)
    for one in track([*files.values(), *ours.values()], "measures"):
        for name, domain in domains.items():
            if one.label in files:
                rows += score(one, domain, networks[name])
            elif not one.takes_attention:
                try:
                    rows += kept(one, domain, networks[name], (*about, domain.data()))
                except ImportError as error:  # a library that one measure needs
                    print(f"{one.label} is left out: {error}")
    return ranked(rows, {one.label for one in asked})


def of_simcore(variant: Variant, domain: Domain, networks, about: object) -> list[dict]:
    """Return the scores of a measure of simcore; `about` is all else that they depend on."""
    # The scores count what is undefined; notes of forty measures would hide the others.
    with warnings.catch_warnings(action="ignore"):
        return score(variant, domain, networks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the measures, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", help="Python files, and names of measures")
    parser.add_argument("--out", type=Path, help="folder for scores.csv, judge.html and figures")
    parser.add_argument("--distance", action="store_true", help="in the files, small means alike")
    parser.add_argument("--domain", action="append", choices=DOMAINS, help="default: all")
    parser.add_argument("--cache", type=Path, default=Path("runs/judge-cache"), help="%(default)s")
    given = parser.parse_args(arguments)
    asked = [one for name in given.measures for one in find(name, given.distance)]
    labels = [one.label for one in asked]
    if len({*labels}) < len(labels):
        raise SystemExit(f"wanted measures of different names, found {', '.join(labels)}")
    domains = {name: DOMAINS[name] for name in given.domain or DOMAINS}
    frame = judge(asked, domains, given.cache)
    for title, table in tables_of(frame).items():
        print(f"\n{title}\n{table.to_string()}")
    print(f"\n{LEGEND}")
    if given.out is not None:
        write(frame, given.out)


if __name__ == "__main__":
    main()
