"""Names of the results files of an alignment study, and removal of files of earlier versions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.store.files import hash_json, writing
from simlab.store.ownership import owned
from simlab.store.results import ALIGNMENT, COMPLEXITY, NUCLEAR, WITHIN, read_results

if TYPE_CHECKING:
    import pandas as pd

_HASH_LETTERS = 8


def file_name(kind: str, study: str, method: str, rows: str, labels: Sequence[str]) -> str:
    """Return the name of the file of a part of a study: readable words, and a hash.

    Without the hash, the labels `FT[1]` and `FT-1` would give the same name.

    Parameters
    ----------
    kind
        `results.ALIGNMENT`, `WITHIN` or `COMPLEXITY`.
    rows
        The kind of representation, such as ``cls``.
    labels
        Labels of the models: two labels (from, to), or the label of the only model.
    """
    parts = [kind, study, method, rows, *labels]
    readable = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return f"{readable}-{hash_json(parts)[:_HASH_LETTERS]}.parquet"


def remove_old_files(folder: Path, study: str, *, replace: bool) -> None:
    """Remove files in `folder` that have rows of study `study` and a name not from `file_name`.

    Earlier versions, which fitted each pair in one direction only, named files without a hash. A
    figure of such a file and new files would count that direction twice.

    Raises
    ------
    UserError
        There are such files and `replace` is False, or a file in `folder` is not a results file.
    BusyError
        Another process is making such a file.
    """
    # Hidden ones are being written, or are what a killed process has left.
    files = sorted(file for file in folder.glob("*.parquet") if not file.name.startswith("."))
    old = [file for file in files if _is_old(read_results(file), file, study)]
    if old and not replace:
        raise UserError(
            f"--out {folder}: wanted no other results of study {study!r}, found files of an "
            f"earlier version, such as {old[0].name}; choose another --out or --name, or "
            "pass --overwrite to remove them"
        )
    for file in old:
        with owned(file):
            # Its last owner may have removed it meanwhile, or written it anew.
            if file.exists() and _is_old(read_results(file), file, study):
                with writing(file):
                    file.unlink()


def _is_old(frame: pd.DataFrame, file: Path, study: str) -> bool:
    mine = frame["comparison"].isin(
        [f"{kind}: {study}" for kind in (ALIGNMENT, WITHIN, COMPLEXITY)]
    )
    parts = frame[mine].drop_duplicates(["comparison", "kind", "options", "model_x", "model_y"])
    names = {_name_of(row, study) for _, row in parts.iterrows()}
    return bool(names) and names != {file.name}


def _name_of(row: pd.Series, study: str) -> str:
    """Return the name of the file that `row` belongs to."""
    kind = row["comparison"].removesuffix(f": {study}")
    labels = [row["model_x"], row["model_y"]] if kind == ALIGNMENT else [row["model_x"]]
    method = NUCLEAR if kind == COMPLEXITY else json.loads(row["options"])["method"]
    return file_name(kind, study, method, row["kind"], labels)
