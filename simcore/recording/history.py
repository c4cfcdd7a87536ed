"""The values of a track: one array for each reference, and a file of JSON lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

FORMAT = "simcore track 1"  # the first line of a file says it; raised when the lines change


@dataclass
class History:
    """Values by step and reference."""

    # The first line of the file: the measure, its options, the layers, and so on.
    about: dict[str, Any] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    # For each reference, the nested lists of values at each step: [L] or [L, K].
    values: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Append the values of a step, one entry for each reference."""
        self.steps.append(step)
        for reference, grid in values.items():
            self.values.setdefault(reference, []).append(grid.tolist())

    def array(self, reference: str) -> np.ndarray:
        """Return the values of a reference, float64, the steps first."""
        layers, others = self.about["layers"], self.about["references"][reference]
        shape = (len(layers),) if self.about["pairs"] == "same" else (len(layers), len(others))
        values = self.values.get(reference, [])
        return np.array(values, dtype=np.float64).reshape(len(values), *shape)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each value with its step, its reference, and both its layers."""
        arrays = {reference: self.array(reference) for reference in self.about["references"]}
        for entry, step in enumerate(self.steps):
            for reference, others in self.about["references"].items():
                values = arrays[reference][entry]
                for i, layer in enumerate(self.about["layers"]):
                    pairs = [i] if values.ndim == 1 else range(len(others))
                    for j in pairs:
                        yield {
                            "step": step,
                            "reference": reference,
                            "layer": layer,
                            "other": layer if values.ndim == 1 else others[j],
                            "value": float(values[i] if values.ndim == 1 else values[i, j]),
                        }

    def lines(self, since: int = 0) -> list[str]:
        """Return the file's lines of the entries from number `since`; nan is null."""
        return [
            _line({"step": step, "reference": reference, "values": _nulls(values[entry])})
            for entry, step in enumerate(self.steps[since:], since)
            for reference, values in self.values.items()
        ]

    def write(self, path: Path) -> None:
        """Write the whole file under another name, and rename it."""
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        head = _line({"format": FORMAT, **self.about})
        try:
            partial.write_text("".join([head, *self.lines()]), encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def append(self, path: Path) -> None:
        """Add the lines of the last step to the file."""
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(self.lines(len(self.steps) - 1)))


def read_history(path: str | os.PathLike[str]) -> History:
    """Read the file that `simcore.Track` writes; a last line that was cut short is left out."""
    text = Path(path).read_text(encoding="utf-8")
    *lines, _ = text.split("\n")  # the last line ends like the others, or a kill cut it
    try:
        about, *entries = [json.loads(line) for line in lines]
        if about.pop("format") != FORMAT:
            raise KeyError("format")
        history = History(about)
        references = about["references"]
        whole = len(entries) - len(entries) % len(references)
        for start in range(0, whole, len(references)):
            group = entries[start : start + len(references)]
            if [(entry["step"], entry["reference"]) for entry in group] != [
                (group[0]["step"], reference) for reference in references
            ]:
                raise KeyError("reference")
            history.steps.append(int(group[0]["step"]))
            for entry in group:
                history.values.setdefault(entry["reference"], []).append(_nans(entry["values"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: wanted the file of a simcore.Track ({FORMAT!r}), got other lines"
        ) from error
    return history


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"


def _nulls(values: Any) -> Any:
    if isinstance(values, Sequence):
        return [_nulls(value) for value in values]
    return None if math.isnan(values) else values


def _nans(values: Any) -> Any:
    if isinstance(values, list):
        return [_nans(value) for value in values]
    return math.nan if values is None else float(values)
