"""How often a driver tries a job again, and the failures that it records itself.

A step that raises is recorded by the owner of its job. A driver records the failure of a job whose
process ended, or whose input is damaged whenever it is read. It claims the job for that, as every
process does that changes what others see of a job (`claims`).
"""

from __future__ import annotations

from collections import Counter

from simlab.errors import BusyError
from simlab.sweeps import claims
from simlab.sweeps.execute import CRASHED, MOST_ATTEMPTS, STOPPED, Answer
from simlab.sweeps.failures import failure
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import Job
from simlab.sweeps.records import FailureRecord

# Of the processes of one job that a queue, a person or the end of a node ends in one run.
MOST_STOPS = 10


class Attempts:
    """Counts how often jobs could not be done, each time for a cause that may pass.

    Parameters
    ----------
    folder
        Where failures are recorded.
    """

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self._stops: Counter[str] = Counter()
        self._damages: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()

    def stop(self, key: str) -> bool:
        """Count that a process was told to end; return whether its job is tried again."""
        self._stops[key] += 1
        return self._stops[key] < MOST_STOPS

    def unread(self, key: str) -> bool:
        """Count that the system refused to read; return whether the job is tried again."""
        self._unread[key] += 1
        return self._unread[key] < MOST_ATTEMPTS

    def damage(self, key: str, counts: bool) -> bool:
        """Count that an output was damaged, if it `counts`; return whether it is made again."""
        self._damages[key] += counts
        return self._damages[key] <= MOST_ATTEMPTS

    def ended(
        self, job: Job, answer: Answer, dead: claims.Signature | None = None
    ) -> FailureRecord | None:
        """Record that the process of a job ended too often; parameters and result as `record`."""
        error = answer.message
        if answer.state == STOPPED:
            error += f"; so ended {MOST_STOPS} attempts of one run, and the same command tries anew"
        return self.record(job, error, answer.state, answer.seconds, dead)

    def record(
        self,
        job: Job,
        error: str,
        state: str | None = None,
        seconds: float = 0.0,
        dead: claims.Signature | None = None,
    ) -> FailureRecord | None:
        """Record the failure of a job under its claim.

        Parameters
        ----------
        state
            `CRASHED` counts the attempts that are recorded.
        dead
            The claim of an owner that is gone.

        Returns
        -------
        FailureRecord or None
            None if a process has claimed the job that is not known to be gone: nothing is written.
        """
        held = claims.claim(self.folder.claims, job.key, dead)
        if held is None:
            return None
        try:
            with held.locked():
                earlier = self.folder.failure(job.key) if state == CRASHED else None
                attempts = 1 if earlier is None else earlier["attempts"] + 1
                record = failure(job, error, "", seconds, attempts)
                if state is not None:
                    record["state"] = state
                self.folder.fail(job.key, record)
                return record
        except BusyError:
            return None
        finally:
            held.release()
