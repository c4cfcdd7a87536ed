"""The table of claims: judged from results files, stored, and written as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument, option_name
from simlab.evidence import phang, ren, wu
from simlab.evidence.claim import TEXTS, Claim, number
from simlab.evidence.rows import ClaimOptions
from simlab.evidence.verdicts import ALPHA, LEAST_UNITS, NO_ROWS, Verdict, corrected_verdicts
from simlab.results.reading import read_results, results_files
from simlab.results.results import hash_rows
from simlab.results.tables import ensure_table, require_table_file
from simlab.store.console import note
from simlab.store.files import hash_json, write_bytes

if TYPE_CHECKING:
    import pandas as pd

CONTENTS = "claims"
_TYPES = {
    **dict.fromkeys(("claim", "text", "source", "task", "base", "quantity", "unit"), "string"),
    "units": "int64",
    **dict.fromkeys(("estimate", "low", "high"), "float64"),
    "claimed": "string",
    **dict.fromkeys(("pvalue", "adjusted"), "float64"),
    **dict.fromkeys(("verdict", "rule", "note"), "string"),
}


def _claim(name: str, facts: dict[str, Any]) -> Claim:
    """Return a claim of `claims.toml`; the function of its quantities has its name."""
    quantities = (vars(phang) | vars(wu) | vars(ren))[f"_{name.replace('-', '_')}"]
    least: Any = facts.get("above", facts.get("below"))
    least = least.replace("t", "`--t", 1) + "`" if isinstance(least, str) else number(least)
    rule = f"{' '.join(facts['rule'].split())} Least effect: {least}."
    return Claim(name, quantities, **facts | {"rule": rule})


CLAIMS = [_claim(name, facts) for name, facts in TEXTS.items() if isinstance(facts, dict)]


def claims(
    results: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    metric: str | None = None,
    tolerance: float = 0.01,
    families: Mapping[str, str] | None = None,
    csv: bool = False,
    overwrite: bool = False,
) -> pd.DataFrame:
    """Judge what the papers claim on results files.

    Models of a training run are judged at their last step, and grids of distances are not read.

    Parameters
    ----------
    results
        Results files (.parquet or .csv), or folders of .parquet files.
    out
        File (.parquet) for the table of claims.
    metric
        Metric of truncation, skipping and freezing; None is the main metric of each task.
    tolerance
        Loss of the metric that is tolerated when top layers go.
    families
        Name of each family of models, and a pattern of the labels of its models, such as
        ``BERT=BERT*``; in Python ``{"BERT": "BERT*"}``. Families are judged apart, except for
        claims that compare them.
    csv
        Write the table also as csv, beside `out`.
    overwrite
        As for `truncate`.

    Returns
    -------
    DataFrame
        A row for each claim, task, base model and quantity, with columns ``claim``, ``text``,
        ``source``, ``task``, ``base`` (empty where rows do not name one, and for all base models),
        ``quantity``, ``unit``, ``units`` (their number), ``estimate``, ``low``, ``high``,
        ``claimed`` (such as "> .05"), ``pvalue``, ``adjusted`` (the p-value after Holm's
        correction), ``verdict`` (holds, fails, undecided, cannot be decided by this study; or no
        rows), ``rule`` and ``note``.

    Raises
    ------
    UserError
        `results` cannot be read, no claim is about a row of them, no task has the metric, an option
        is out of range, no model has a pattern, or `out` has other content and `overwrite` is
        False.

    Examples
    --------
    >>> from simlab import TaskOptions, claims, finetune, truncate
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> step = truncate("runs/ft-1", "rt", "runs/results/claims-truncation.parquet", label="FT[1]")
    >>> table = claims("runs/results/claims-truncation.parquet")
    >>> table.set_index("claim").loc["top-layers-can-go", "verdict"]  # from a single model
    'cannot be decided by this study'
    """
    options = ClaimOptions(metric, tolerance, dict(families or {}))
    path = None if out is None else Path(out)
    if not tolerance >= 0:
        raise UserError(f"{argument('tolerance', tolerance)}: wanted a tolerance of at least 0")
    if path is not None:
        require_table_file(path)
    elif csv:
        raise UserError(
            f"{argument('csv')}: wanted {argument('out')}, whose name the file takes, found none"
        )
    files = [f for f in results_files(results) if path is None or f.resolve() != path.resolve()]
    rows = read_results(files)
    _check_families(options, rows)
    frame = claims_frame(corrected_verdicts(rows, CLAIMS, options))
    if (frame["verdict"] == NO_ROWS).all():
        raise UserError(
            f"{', '.join(map(str, files))}: wanted rows that a claim is about, found none among "
            f"{len(rows):,} rows; `simcore claims {option_name('list')}` prints the claims"
        )
    if rows[["stage_x", "stage_y"]].isna().all(axis=None):
        note(
            "no row says whether a model is pretrained or fine-tuned (stage_x, stage_y): claims "
            "that compare the two have no rows; a sweep says the `stage` of imported models"
        )
    if path is not None:
        inputs = {
            "step": CONTENTS,
            "results": hash_rows(rows),
            "options": dataclasses.asdict(options),
            "rules": [[claim.name, claim.text, claim.source, claim.rule] for claim in CLAIMS],
            "intervals": [TEXTS["verdicts"], TEXTS["intervals"], ALPHA, LEAST_UNITS],
        }
        key = hash_json(inputs)
        ensure_table(path, key, _TYPES, lambda: frame, contents=CONTENTS, replace=overwrite)
        if csv:
            write_bytes(path.with_suffix(".csv"), frame.to_csv(index=False).encode())
    return frame


def _check_families(options: ClaimOptions, rows: pd.DataFrame) -> None:
    """Refuse a family without a model: the claims would be those without it."""
    labels, bases = (
        sorted({str(name) for side in "xy" for name in rows[f"{fact}_{side}"].dropna().unique()})
        for fact in ("label", "base")
    )
    families = {options.family(name) for name in (*labels, *bases)}
    for name, like in options.families.items():
        if name not in families:
            some = ", ".join(labels[:8]) + f" and {len(labels) - 8} more" * (len(labels) > 8)
            raise UserError(
                f"{argument('families', f'{name}={like}')}: wanted a pattern of labels that no "
                f"earlier family has taken, found none among {some}"
            )


def claims_frame(judged: Iterable[tuple[Claim, Verdict]]) -> pd.DataFrame:
    """Return the table of claims, with a row without a task for a claim that has no rows."""
    import pandas as pd

    rows: dict[str, list[dict[str, Any]]] = {claim.name: [] for claim in CLAIMS}
    for claim, verdict in judged:
        claimed = {"claimed": f"{'>' if verdict.side > 0 else '<'} {number(verdict.least)}"}
        texts = {"base": verdict.base or None, "note": verdict.note or None}
        rows[claim.name].append(vars(verdict) | claimed | texts)
    frame = pd.DataFrame(
        [
            {"claim": claim.name, "text": claim.text, "source": claim.source, "rule": claim.rule}
            | row
            for claim in CLAIMS
            for row in rows[claim.name] or [{"units": 0, "verdict": NO_ROWS}]
        ],
        columns=list(_TYPES),
    )
    return frame.astype({name: kind for name, kind in _TYPES.items() if kind != "string"})


NAMES = ("claim", "source", "task", "estimated", "estimate", "interval", "claimed", "units", "p")
NAMES += ("verdict", "note")


def claims_text(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the rows of the table as text, with columns `NAMES`; claims without rows left out."""
    import pandas as pd

    rows = frame[frame["verdict"] != NO_ROWS]
    return [
        (
            row.claim,
            row.source,
            row.task if pd.isna(row.base) else f"{row.task}, {row.base}",
            row.quantity,
            number(row.estimate),
            "" if math.isnan(row.low) else f"[{number(row.low)}, {number(row.high)}]",
            row.claimed,
            f"{row.units} {row.unit if row.units != 1 else row.unit.removesuffix('s')}",
            "" if math.isnan(row.adjusted) else number(row.adjusted),
            row.verdict,
            "" if pd.isna(row.note) else row.note,
        )
        for row in rows.itertuples()
    ]
