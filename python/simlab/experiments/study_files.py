"""Names of the results files of an alignment study, and removal of files of earlier versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.store.files import hash_json, writing
from simlab.store.ownership import owned
from simlab.store.results import (
    ACROSS,
    ALIGNMENT,
    COMPLEXITY,
    PROTOCOL,
    WITHIN,
    read_results,
)

if TYPE_CHECKING:
    import pandas as pd

_HASH_LETTERS = 8
_PART = ["comparison", "measure", "kind", "options", "model_x", "model_y"]


def file_name(
    kind: str,
    study: str,
    method: str,
    rows: str,
    labels: Sequence[str],
    protocol: Mapping[str, Any] | None = None,
) -> str:
    """Return the name of the file of a part of a study: readable words, and a hash.

    Without the hash, the labels `FT[1]` and `FT-1` would give the same name.

    Parameters
    ----------
    kind
        `results.ALIGNMENT`, `WITHIN`, `ACROSS`, `COMPLEXITY` or `INJECTION`.
    study, method
        The name of the study and the method of its maps; of an injection, the task and the layer.
    rows
        The kind of representation, such as ``cls``, or the tokens of an injection.
    labels
        Labels of the models: two labels (from, to), or the label of the only model.
    protocol
        Choices that the rows name (`results.PROTOCOL`, or those of `InjectOptions.protocol`); files
        of different protocols may lie in one folder.
    """
    parts = [kind, study, method, rows, *labels]
    parts += [f"{name} {value}" for name, value in (protocol or {}).items()]
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
            f"{argument('out', folder)}: wanted no other results of study {study!r}, found files "
            f"of an earlier version, such as {old[0].name}; choose another {argument('out')} or "
            f"{argument('name')}, or pass {argument('overwrite', True)} to remove them"
        )
    for file in old:
        with owned(file):
            # Its last owner may have removed it meanwhile, or written it anew.
            if file.exists() and _is_old(read_results(file), file, study):
                with writing(file):
                    file.unlink()


def _is_old(frame: pd.DataFrame, file: Path, study: str) -> bool:
    mine = frame["comparison"].isin(
        [f"{kind}: {study}" for kind in (ALIGNMENT, WITHIN, ACROSS, COMPLEXITY)]
    )
    parts = frame[mine].drop_duplicates(_PART)
    names = {_name_of(row, study) for _, row in parts.iterrows()}
    return bool(names) and names != {file.name}


def _name_of(row: pd.Series, study: str) -> str:
    """Return the name of the file that `row` belongs to."""
    kind = row["comparison"].removesuffix(f": {study}")
    if kind == COMPLEXITY:
        return file_name(kind, study, row["measure"], row["kind"], [row["model_x"]])
    labels = [row["model_x"]] if kind == WITHIN else [row["model_x"], row["model_y"]]
    options = json.loads(row["options"])
    protocol = {name: options[name] for name in PROTOCOL if name in options}
    return file_name(kind, study, options["method"], row["kind"], labels, protocol)
