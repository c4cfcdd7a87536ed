"""Ids of imported rows are names; what belongs together is a column of its own."""

import numpy as np
import pytest

from simlab import grid, import_representations, load_representations, read_results
from simlab.errors import UserError


def test_ids_are_names_and_groups_are_a_column_of_their_own(tmp_path):
    """Intervals do not depend on what ids look like, and do on which rows belong together."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", **{f"layer.{i}": rng.standard_normal((60, 5)) for i in range(3)})
    names = {"plain": "doc{}", "splits": "train:{}", "arxiv": "oai:arXiv.org:0704.{}"}
    found = {}
    for label, pattern in names.items():
        lines = tmp_path / f"{label}.txt"
        lines.write_text("".join(f"{pattern.format(row)}\n" for row in range(60)))
        step = import_representations(tmp_path / "x.npz", tmp_path / label, label="x", ids=lines)
        step = grid([step.path], tmp_path / f"{label}.parquet", measure="cka", bootstrap=20)
        found[label] = read_results(step.path)[["low", "high"]]
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("".join(f"text {row // 2}\n" for row in range(60)))
    step = import_representations(tmp_path / "x.npz", tmp_path / "grouped", label="x", groups=pairs)
    grouped = load_representations(step.path)
    assert [*np.bincount(grouped.row_examples())] == [2] * 30
    for label in ("splits", "arxiv"):
        np.testing.assert_array_equal(found[label], found["plain"])
    (tmp_path / "short.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"groups='.*': wanted a line for each of 60 rows, found 1"):
        import_representations(
            tmp_path / "x.npz", tmp_path / "no", label="x", groups=tmp_path / "short.txt"
        )
