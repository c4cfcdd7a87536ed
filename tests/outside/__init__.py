"""The tests of other packages, run with simcore in the place of their functions: `run`."""
