"""The planted faults of `tools/mutants` fit the present sources."""

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


def test_rows_of_the_table_name_patches_and_tests_that_exist():
    rows = read()
    assert set(rows) <= set(NAMES)
    for name, row in rows.items():
        file, of_python, test = row["test"].partition("::")
        if not of_python:  # of C++, or the process that ran them ended
            continue
        function = test.partition("[")[0]
        assert f"def {function}(" in (ROOT / file).read_text(), f"{name}: {row['test']}"
