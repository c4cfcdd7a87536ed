"""The planted faults of `tools/mutants` fit the present sources."""

import subprocess

from tools.mutants.run import PATCHES, ROOT

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
