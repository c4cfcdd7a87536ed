"""Files that another machine replaces while this one has them open: the server says ESTALE."""

import errno
import fcntl
import os

import pytest

from simlab.errors import ReadError
from simlab.store.results import ResultRow
from simlab.sweeps import claims
from simlab.sweeps.parts import read_made, write_part
from simlab.sweeps.plan import Plan


@pytest.fixture
def stale(monkeypatch):
    """Let the next calls of a function of the system fail as on a network file system."""

    def fail(module, name, times, before=lambda: None):
        real, left = getattr(module, name), [times]

        def call(*args):
            if not left[0]:
                return real(*args)
            left[0] -= 1
            before()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        monkeypatch.setattr(module, name, call)

    return fail


@pytest.fixture
def held(tmp_path):
    found = claims.claim(tmp_path, "job")
    yield found
    found.release()


def test_a_claim_that_was_replaced_is_opened_again(held, stale):
    stale(os, "fstat", 2)
    assert held.is_held()


def test_a_claim_that_stays_stale_is_no_missing_claim(held, stale):
    stale(os, "fstat", claims._ATTEMPTS)
    with pytest.raises(ReadError, match="Stale file handle"):
        held.is_held()


def test_a_lock_whose_file_was_replaced_is_taken_again(held, stale):
    stale(os, "fstat", 1)
    with held.locked():
        pass


def test_an_owner_whose_claim_goes_while_it_locks_has_lost_it(held, stale):
    stale(fcntl, "flock", 1, before=held.path.unlink)
    with pytest.raises(claims.LostError), held.locked():
        pass


def test_nobody_takes_over_a_claim_that_goes_meanwhile(tmp_path, stale):
    path = tmp_path / "job"
    path.touch()
    dead = claims.look(path).signature
    stale(fcntl, "flock", 1, before=path.unlink)
    assert claims.claim(tmp_path, "job", dead) is None


def test_a_results_file_that_was_replaced_is_read_again(tmp_path, stale):
    plan, part = Plan(), tmp_path / "part.parquet"
    job = plan.jobs[plan.add("grid", {"number": 0})]
    row = ResultRow(experiment="e", measure="m", label_x="x", value=1.0, n=1, task="t")
    write_part(part, job, [row], 0.5, durable=False)
    stale(os, "fstat", 1)
    assert len(read_made(part)) == 1
