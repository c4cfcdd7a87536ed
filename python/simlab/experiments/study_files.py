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
        Choices that the rows name (`results.PROTOCOL`, or `InjectOptions.protocol`); files
        of different protocols may lie in one folder.
    """
    parts = [kind, study, method, rows, *labels]
    parts += [f"{name} {value}" for name, value in (protocol or {}).items()]
    readable = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return f"{readable}-{hash_json(parts)[:_HASH_LETTERS]}.parquet"
