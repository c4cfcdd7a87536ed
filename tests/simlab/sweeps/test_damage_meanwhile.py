"""Files that are damaged while a driver works, which another job or nobody meets."""

from simlab.sweeps import dataset, gathering
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
