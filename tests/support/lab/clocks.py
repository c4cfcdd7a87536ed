"""A clock that a test sets."""

from __future__ import annotations

import pytest

from simlab.sweeps import processes


class Clock:
    """The seconds of this process's own clock, in place of the system's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(processes, "clock", lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
