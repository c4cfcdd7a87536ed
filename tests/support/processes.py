"""Programs in a Python of their own."""

import os
import subprocess
import sys
from pathlib import Path


def python(
    *arguments: object, ok: bool = True, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python with more variables in its environment; with `ok`, it has to succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0 or not ok, done.stdout + done.stderr
    return done
