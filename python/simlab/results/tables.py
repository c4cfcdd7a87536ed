"""A table in one Parquet file, which is written once per set of inputs.

The metadata of the file hold the hash of the inputs, the time of the work, and what the rows are:
results (`results.results`) or claims (`simlab.evidence`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.store.files import atomic_file, real_output
from simlab.store.jobs import Outcome, owned, run_waiting

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results"
CONTENTS, _KEY, _SECONDS = b"simlab.contents", b"simlab.key", b"simlab.seconds"


def write_table(
    frame: pd.DataFrame,
    path: Path,
    kinds: Mapping[str, str],
    key: str = "",
    seconds: float = 0.0,
    contents: str = RESULTS,
) -> None:
    """Write a table to one Parquet file, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {_KEY: key, _SECONDS: str(seconds), CONTENTS: contents}
    types = [(name, pa.type_for_alias(kind)) for name, kind in kinds.items()]
    schema = pa.schema(types, metadata=metadata)
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    with atomic_file(path) as partial:
        pq.write_table(table, partial)
        run_waiting(partial)


def ensure_table(
    path: Path,
    key: str,
    kinds: Mapping[str, str],
    make: Callable[[], pd.DataFrame],
    *,
    contents: str = RESULTS,
    replace: bool = False,
) -> Outcome:
    """Write the table ``make()`` to `path`, unless `path` was written with the same `key`."""
    require_table_file(path)
    place = real_output(path)

    def write() -> Outcome:
        started = time.monotonic()
        frame = make()
        seconds = time.monotonic() - started
        write_table(frame, place, kinds, key, seconds, contents)
        return Outcome(place, key, seconds, skipped=False)

    outcome = _find_done(place, key, replace)
    if outcome is None:  # a finished file needs no lock, so the place may be read-only
        with owned(place):
            # The last owner of the lock may have finished the file meanwhile.
            outcome = _find_done(place, key, replace) or write()
    return dataclasses.replace(outcome, path=path)


def require_table_file(path: Path) -> None:
    """Check that `path` can be the name of a Parquet file."""
    if path.suffix != ".parquet":
        raise UserError(
            f"{argument('out', path)}: wanted a name that ends in .parquet, found {path.name}"
        )
    if path.is_dir():
        raise UserError(
            f"{argument('out', path)}: wanted a results file, found a folder; choose another "
            f"{argument('out')}"
        )


def table_key(path: Path) -> str | None:
    """Return the key that file `path` was written with; None if it is no file of `write_table`."""
    metadata = _metadata(path)
    return metadata[_KEY].decode() if _KEY in metadata else None


def contents_of(path: Path) -> str:
    """Return what the rows of Parquet file `path` are; a file that does not say has results."""
    return _metadata(path).get(CONTENTS, RESULTS.encode()).decode()


def files_of(path: Path) -> list[Path]:
    """Return a results file that is named, or all results files in a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"results {path}: wanted a results file or a folder, found neither")
    # Hidden files are being written, or were left by a killed process.
    every = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith("."))
    files = [file for file in every if contents_of(file) == RESULTS]
    if not files:
        raise UserError(f"results {path}: wanted a folder with results files, found none in it")
    return files


def _find_done(path: Path, key: str, replace: bool) -> Outcome | None:
    """Return the outcome of an earlier run with this key, or None if `path` may be written."""
    if path.exists() and table_key(path) == key:
        return Outcome(path, key, float(_metadata(path)[_SECONDS]), skipped=True)
    if path.exists() and not replace:
        raise UserError(
            f"{argument('out', path)}: wanted a new file or one made from the same inputs, found "
            f"another; choose another {argument('out')} or pass {argument('overwrite', True)}"
        )
    return None


def _metadata(path: Path) -> dict[bytes, bytes]:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path).metadata or {}
    except (OSError, ValueError):  # no file, a file of another kind, or a name that is no text
        return {}
