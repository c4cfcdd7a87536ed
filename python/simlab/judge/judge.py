"""Judge measures: train the networks, score every measure, and rank them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, require_known
from simlab.judge import criteria
from simlab.judge.networks import Plan, recorded
from simlab.store import console
from simlab.store.assets import cache_folder
from simlab.store.files import hash_json, read_json, write_bytes, write_json
from simlab.store.runtime import versions

if TYPE_CHECKING:
    import pandas as pd

    from simlab.judge.candidates import Candidate
    from simlab.judge.scores import Material

TABLE, FIGURE, PAGE = "scores.csv", "{domain}.png", "judge.html"
DOMAINS = ("digits", "reviews")
_VERSION = 4  # of the tests: raise it where the same values get other scores


def judge_measures(
    measures: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    distance: bool = False,
    domains: str | Sequence[str] = DOMAINS,
    cache: str | Path | None = None,
) -> pd.DataFrame:
    """Score measures in the tests of the benchmark, beside every measure of simcore.

    The first call trains the networks and scores the measures of simcore, which takes minutes. Both
    are kept in `cache`, and an interrupted call continues where it was.

    Parameters
    ----------
    measures
        Python files with a function of two arrays, and names of measures of simcore; nothing stands
        for the measures of simcore alone.
    out
        Folder for the table (``scores.csv``), a page that shows it (``judge.html``) and a figure of
        each domain; None is none of them.
    distance
        The measures in the files are distances: small values mean alike.
    domains
        Which networks: ``digits`` are small ResNets, ``reviews`` small BERTs on task ``rt``.
    cache
        Folder of the networks and scores; None is ``judge`` in the cache folder of simcore.

    Returns
    -------
    pandas.DataFrame
        A row for each domain, measure, test and score: the fields of `simlab.judge.scores.Score`,
        ``asked`` (whether `measures` names the measure), ``ranked`` (whether the score ranks the
        measures in its test) and ``rank``, the average for ties; nan where the score does not
        rank.

    Raises
    ------
    UserError
        A domain or a measure is unknown, a file has no function of two arrays that returns a
        number, two files have one name, or the reviews could not be fetched.

    Examples
    --------
    >>> from simlab import judge_measures
    >>> scores = judge_measures("cka", domains="digits", cache="runs/networks")
    >>> sorted(scores.loc[scores["ranked"], "test"].unique())[:3]
    ['accuracy', 'augmentation', 'disagreement']
    """
    from simlab.judge.digits import DIGITS
    from simlab.judge.reviews import REVIEWS

    plans = dict(zip(DOMAINS, (DIGITS, REVIEWS), strict=True))
    chosen = [domains] if isinstance(domains, str) else list(dict.fromkeys(domains))
    for domain in chosen:
        require_known("domains", domain, DOMAINS)
    names = [measures] if isinstance(measures, str | Path) else list(measures or ())
    asked = [str(name) for name in names]
    return judge_on([plans[domain] for domain in chosen], asked, out, distance, cache_of(cache))


def judge_on(
    plans: Sequence[Plan], names: Sequence[str], out: str | Path | None, distance: bool, cache: Path
) -> pd.DataFrame:
    """Do the work of `judge_measures` on the networks of some plans."""
    from simlab.judge.candidates import of_simcore
    from simlab.judge.figure import draw
    from simlab.judge.ranks import ranked
    from simlab.judge.scores import Material
    from simlab.judge.tables import domains_of
    from simlab.judge.write import write_page

    # A wrong name or file ends the call before anything is trained.
    asked = _asked(names, distance)
    with console.progress("networks", sum(len(plan.networks) for plan in plans)) as advance:
        materials = [Material(p, recorded(p, cache / "networks", advance)) for p in plans]
    own = [one for one in asked if one.inputs is None]
    others = {one.label: one for one in (*of_simcore(), *asked) if one.inputs is not None}
    rows = []
    with console.progress("measures", len(plans) * (len(own) + len(others))) as advance:
        for candidate in (*own, *others.values()):
            for material in materials:
                rows += _scored(candidate, material, cache / "scores")
                advance(1)
    frame = ranked(rows, {one.label for one in asked})
    if out is not None:
        write_bytes(Path(out) / TABLE, frame.to_csv(index=False, float_format="%.5g").encode())
        write_page(frame, Path(out) / PAGE)
        for domain, part in domains_of(frame).items():
            draw(part, Path(out) / FIGURE.format(domain=domain))
    return frame


def _asked(names: Sequence[str], distance: bool) -> list[Candidate]:
    """Return every measure that `names` name, once."""
    from simlab.judge.candidates import find

    named: dict[str, tuple[str, Candidate]] = {}
    for name in names:
        for one in find(name, distance):
            first, _ = named.setdefault(one.label, (name, one))
            if one.inputs is None and Path(first).resolve() != Path(name).resolve():
                raise UserError(f"{name}: wanted another file name, found the name of {first}")
    return [one for _, one in named.values()]


def cache_of(cache: str | Path | None) -> Path:
    """Return the folder of the networks and scores."""
    return cache_folder() / "judge" if cache is None else Path(cache)


def _scored(candidate: Candidate, material: Material, folder: Path) -> list[dict[str, object]]:
    """Return the rows of a measure, which are computed once if simcore has the measure."""
    from simlab.judge.scores import score

    def make() -> list[dict[str, object]]:
        return [asdict(one) for one in score(candidate, material)]

    if candidate.inputs is None:
        with console.warnings_as_notes():
            return make()
    inputs = {
        "version": _VERSION,
        "networks": material.plan.key,
        "draws": criteria.DRAWS,
        "simcore": versions()["simcore"],
        **candidate.inputs,
    }
    path = folder / f"{hash_json(inputs)[:16]}.json"
    if not path.exists():
        try:
            # The scores count what is undefined; notes of forty measures would hide the others.
            with warnings.catch_warnings(action="ignore"):
                write_json(path, make())
        except ImportError as error:  # a library that one measure needs
            console.note(f"{candidate.label} is left out: {error}")
            return []
    found: list[dict[str, object]] = read_json(path)
    return found
