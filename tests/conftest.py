"""What every test of the numerics package shares."""

import gc
import platform
import sys
from pathlib import Path

import hypothesis
import pytest
import torch
import torch._functorch.config

# Imported here, the form of pure torch warns before pytest makes errors of warnings.
from simcore._extension import PURE
from support.pure import NEEDS_KERNELS

# For `tools`: the compile gate has tests, and the meter of peak memory serves the benchmarks too.
# Appended, so that an installed simcore still comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

# Derandomised: a failure in one run is a failure in the next. No deadline: two shared cores.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("suite")

# torch keeps compiled backward passes on disk, under a key that does not know our derivatives: a
# test would meet those of another day.
torch._functorch.config.enable_autograd_cache = False


# As the pin of gudhi in requirements/lock.txt says: it has no build for Linux on Arm.
HAS_GUDHI = sys.platform != "linux" or platform.machine() == "x86_64"


def pytest_collection_modifyitems(items):
    """Begin with files that have slow tests: at the end, one would leave other processes idle."""
    if PURE:
        for item in items:
            for start, why in NEEDS_KERNELS.items():
                if item.nodeid.removeprefix("tests/").startswith(start):
                    item.add_marker(pytest.mark.skip(reason=f"the form of pure torch: {why}"))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish():
    """Leave modules and items out of what the garbage collector looks through: trainers call it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Skip a test of persistent homology on a machine for which gudhi has no build."""
    try:
        return (yield)
    except Exception as error:
        if not HAS_GUDHI and "the package gudhi, found none" in str(error):
            pytest.skip("gudhi has no build for this machine")
        raise


@pytest.fixture(autouse=True)
def _threads_are_restored():
    """A test that changes the number of threads does not change it for the next one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
