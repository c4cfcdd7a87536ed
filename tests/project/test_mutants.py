"""The planted faults of `tools/mutants` fit the present sources, and the table names them."""

import subprocess

from tools.mutants.run import PATCHES, ROOT, read

NAMES = sorted(path.stem for path in PATCHES.glob("*.patch"))


def test_every_patch_applies():
    """A patch whose code is gone is drawn anew in its room, with the next seed."""
    codes = {
        name: subprocess.run(
            ("git", "apply", "--check", PATCHES / f"{name}.patch"), cwd=ROOT, check=False
        ).returncode
        for name in NAMES
    }
    assert len(codes) == 100
    assert [name for name, code in codes.items() if code] == []


def test_the_table_has_every_patch_that_was_run():
    rows = read()
    assert set(rows) <= set(NAMES)
    assert all((row["tier"] == "none") != bool(row["test"]) for row in rows.values())
