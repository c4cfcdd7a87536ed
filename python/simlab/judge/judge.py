"""Judge measures: train the networks, score every measure, and rank them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

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

TABLE, FIGURE = "scores.csv", "scores.png"
_VERSION = 1  # of the tests: raise it where the same values get other scores


def judge_measures(
    measures: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    distance: bool = False,
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
        Folder for the table (``scores.csv``) and the figure (``scores.png``); None is neither.
    distance
        The measures in the files are distances: small values mean alike.
    cache
        Folder of the networks and scores; None is ``judge`` in the cache folder of simcore.

    Returns
    -------
    pandas.DataFrame
        A row for each measure, test and score: ``measure``, ``asked`` (whether `measures` names
        it), ``test``, ``score``, ``value``, ``low``, ``high``, ``chance``, ``pvalue``,
        ``undefined`` and ``pairs`` (`simlab.judge.scores.Score`), ``ranked`` (whether the score
        ranks the measures in its test) and ``rank``, the average for ties.

    Raises
    ------
    UserError
        A measure is unknown, or its file has no function of two arrays that returns a number.

    Examples
    --------
    >>> from simlab import judge_measures
    >>> scores = judge_measures("cka", "runs/judge")
    >>> sorted(scores.loc[scores["ranked"], "test"].unique())[:3]
    ['accuracy', 'augmentation', 'disagreement']
    """
    names = [measures] if isinstance(measures, str | Path) else list(measures or ())
    return judge_on(Plan(), [str(name) for name in names], out, distance=distance, cache=cache)


def judge_on(
    plan: Plan,
    names: Sequence[str],
    out: str | Path | None = None,
    *,
    distance: bool = False,
    cache: str | Path | None = None,
) -> pd.DataFrame:
    """Do the work of `judge_measures` on the networks of a plan."""
    from simlab.judge.candidates import find, of_simcore
    from simlab.judge.figure import draw
    from simlab.judge.ranks import ranked
    from simlab.judge.scores import Material

    # A wrong name or file ends the call before anything is trained.
    asked = list({one.label: one for name in names for one in find(name, distance)}.values())
    folder = cache_of(cache)
    with console.progress("networks", len(plan.networks)) as advance:
        material = Material(plan, recorded(plan, folder / "networks", advance))
    wanted = {one.label for one in asked}
    own = [one for one in asked if one.inputs is None]
    others = {one.label: one for one in (*of_simcore(), *asked) if one.inputs is not None}
    rows = []
    with console.progress("measures", len(own) + len(others)) as advance:
        for candidate in (*own, *others.values()):
            rows += _scored(candidate, material, folder / "scores")
            advance(1)
    frame = ranked(rows, wanted)
    if out is not None:
        write_bytes(Path(out) / TABLE, frame.to_csv(index=False, float_format="%.5g").encode())
        draw(frame, Path(out) / FIGURE)
    return frame


def cache_of(cache: str | Path | None) -> Path:
    """Return the folder of the networks and scores."""
    return cache_folder() / "judge" if cache is None else Path(cache)


def _scored(candidate: Candidate, material: Material, folder: Path) -> list[dict[str, object]]:
    """Return the rows of a measure; those of a measure of simcore are computed once."""
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
