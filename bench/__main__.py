"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from importlib import import_module

from bench import harness
from bench.rows import SUITES

harness.main({suite: import_module(f"bench.{suite}").JOBS for suite in SUITES}, __doc__)
