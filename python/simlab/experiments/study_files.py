"""Names of the results files of an alignment study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from simlab.store.files import hash_json

_HASH_LETTERS = 8


def file_name(
    kind: str,
    study: str,
    method: str,
    rows: str,
    labels: Sequence[str],
    protocol: Mapping[str, Any] | None = None,
) -> str:
    """Return the name of the file of a part of a study: readable words, and a hash.

    Without the hash, the labels `FT[1]` and `FT-1` would give the same name. For an injection,
    `study` is the task, `method` the layer and `rows` the tokens.
    """
    parts = [kind, study, method, rows, *labels]
    parts += [f"{name} {value}" for name, value in (protocol or {}).items()]
    readable = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return f"{readable}-{hash_json(parts)[:_HASH_LETTERS]}.parquet"
