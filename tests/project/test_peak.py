"""The meter of peak memory that memory tests and benchmarks trust (`bench.peak`)."""

import mmap

import pytest

from bench.peak import in_subprocess, peak_during

MB = 2**20


def test_the_meter_sees_an_allocation():
    def allocate():
        # Pages of their own: malloc would hand out what earlier tests have left in this process.
        with mmap.mmap(-1, 64 * MB) as memory:
            memory[::4096] = bytes(64 * MB // 4096)

    assert 60 * MB < peak_during(allocate) < 80 * MB


def test_the_meter_sees_an_allocation_in_a_subprocess():
    code = (
        "import numpy as np; from bench.peak import peak_during;"
        f"print(peak_during(lambda: np.ones({64 * MB}, dtype=np.uint8)))"
    )
    assert 60 * MB < int(in_subprocess(code)) < 80 * MB


def test_the_meter_reports_a_failing_program():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_subprocess("1 / 0")
