"""Files that are damaged while a driver works, which another job or nobody meets."""

import pytest

from simlab.sweeps import claims, dataset, gathering
from simlab.sweeps.execute import BUSY, MOST_ATTEMPTS
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import Plan
from support.lab.inline import InlineEngine
from support.lab.toysweep import rows, run_toy, runs, toy_plan


def flip(file) -> None:
    """Change a byte of the values in a file of rows; the footer stays."""
    content = bytearray(file.read_bytes())
    content[60] ^= 0x55
    file.write_bytes(content)


def test_a_file_that_is_not_the_last_is_damaged_meanwhile(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dataset, "FULL_BYTES", 1)
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.0)
    plan, folder = toy_plan(tmp_path, seeds=3), SweepFolder(tmp_path)
    run_toy(tmp_path, toy_plan(tmp_path, seeds=2), start=lambda _: InlineEngine())
    wanted = rows(tmp_path, toy_plan(tmp_path, seeds=2))
    files = folder.data.files()
    assert len(files) > 2

    class Damaging(InlineEngine):
        orders = 0

        def submit(self, order):
            self.orders += 1
            assert self.orders < 50, "the driver does not end"
            super().submit(order)
            if self.orders == 1:
                flip(files[0])

    outcome = run_toy(tmp_path, plan, start=lambda _: Damaging())
    assert (outcome.failed, outcome.waiting) == ([], 0)
    few = toy_plan(tmp_path, seeds=2)
    few.jobs.pop()  # the joint grid of two seeds was set aside
    assert rows(tmp_path, few).equals(wanted[: len(rows(tmp_path, few))])
    assert folder.data.damaged() == []
    assert "it is set aside in" in " ".join(capsys.readouterr().err.split())
    flip(file := folder.data.files()[0])
    assert gathering.Gatherer(folder, plan).gather_all() == {file}  # with no part to gather
    assert folder.data.damaged() == []


def test_two_that_set_one_file_aside_agree(tmp_path):
    """A worker renames a damaged part, and so does the driver that gathers it."""
    data = dataset.DataSet(tmp_path / "results")
    (part := tmp_path / "part").touch()
    assert data.set_aside(part).is_file()
    assert not data.set_aside(part).exists()


def test_one_damage_counts_once_however_many_jobs_meet_it(tmp_path, capsys):
    """Six jobs read one object; the first to find it damaged deletes it."""

    def plan_of(grids):
        plan, hints = Plan(), {"runs": str(tmp_path / "runs.txt")}
        made = plan.add("finetune", {"name": "ft", "seed": 0}, [], hints, "ft")
        extracted = plan.add("extract", {"name": "rows"}, [made], hints, "rows")
        for n in range(grids):
            plan.add("grid", {"name": f"grid{n}"}, [extracted], hints, f"grid{n}")
        return plan

    first, plan = plan_of(1), plan_of(7)
    run_toy(tmp_path, first, start=lambda _: InlineEngine())
    file = SweepFolder(tmp_path).place("extract", plan.jobs[1].key) / "rows.npy"
    file.write_bytes(file.read_bytes()[:-10])
    outcome = run_toy(tmp_path, plan, start=lambda _: InlineEngine(6))
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert runs(tmp_path, "begin")["rows"] == 2
    assert capsys.readouterr().err.count("it is made again") == 1


class MendedByAnother(InlineEngine):
    """Each damage is met twice: first while another worker has claimed the object to mend it."""

    def __init__(self, folder, key, damage):
        super().__init__(2)
        self.folder, self.key, self.damage = folder, key, damage

    def submit(self, order):
        needs = [key for _, key in order.needs]
        file = self.folder.place("extract", self.key) / "rows.npy"
        other = None
        if self.key in needs and self.damage and file.exists() and file.stat().st_size:
            self.damage -= 1
            file.write_bytes(b"")
            other = claims.claim(self.folder.claims, self.key)
        super().submit(order)
        if other is not None:
            assert (self.answers[-1].state, self.answers[-1].damaged[1]) == (BUSY, self.key)
            other.release()


@pytest.mark.parametrize(("damages", "failed"), [(1, 0), (3, 0), (9, 2)])
def test_damage_that_another_worker_mends_is_told_and_counted(damages, failed, tmp_path, capsys):
    plan, hints = Plan(), {"runs": str(tmp_path / "runs.txt")}
    made = plan.add("finetune", {"name": "ft", "seed": 0}, [], hints, "ft")
    extracted = plan.add("extract", {"name": "rows"}, [made], hints, "rows")
    for n in range(2):
        plan.add("grid", {"name": f"grid{n}"}, [extracted], hints, f"grid{n}")
    key = plan.jobs[extracted].key
    outcome = run_toy(tmp_path, plan, start=lambda found: MendedByAnother(found, key, damages))
    assert (len(outcome.failed), outcome.waiting) == (failed, 0)
    assert capsys.readouterr().err.count("it is made again") == min(damages, MOST_ATTEMPTS)
    assert runs(tmp_path, "begin")["rows"] == 1 + min(damages, MOST_ATTEMPTS)
