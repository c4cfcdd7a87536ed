"""Objects and rows that are cut short or changed, a full disk, and the bound of disk space."""

import os
from pathlib import Path

import pyarrow.compute as pc
import pytest

from simlab.errors import ReadError, UserError, WriteError
from simlab.sweeps import rows as rows_module
from simlab.sweeps.disk import DiskUse
from simlab.sweeps.driver import MOST_ATTEMPTS, Driver
from simlab.sweeps.job import DAMAGED, DONE, Order, do
from simlab.sweeps.outputs import OBJECT, SweepFolder
from simlab.sweeps.plan import Plan
from simlab.sweeps.rows import read_rows
from support.lab import toysteps
from support.lab.disks import file_limit, mounted_disk, no_more_files
from support.lab.inline import Inline
from support.lab.toysweep import STEPS, contents, rows, runs, same_as, toy_plan
from support.lab.toysweep import run_toy as run_in_processes

pytestmark = pytest.mark.slow


def run_toy(root: Path, plan, **how):
    """Run a plan in this process."""
    return run_in_processes(root, plan, start=lambda _: Inline(), **how)


def place(root: Path, plan, name: str) -> Path:
    (job,) = [job for job in plan.jobs if job.params["name"] == name]
    return SweepFolder(root).place(job.kind, job.key)


def cut_short(folder: Path) -> None:
    file = folder / "rows.npy"
    file.write_bytes(file.read_bytes()[:-1000])


def flip_last(file: Path) -> None:
    """Change a byte in place, which changes neither the size of the file nor its folder."""
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)[0]
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last ^ 0x40]))


def changed(folder: Path) -> None:
    flip_last(folder / "rows.npy")


def without_record(folder: Path) -> None:
    (folder / "object.json").write_text('{"key": "')


def another_record(folder: Path) -> None:
    (folder / "object.json").write_text("{}")


def flipped(content: bytes) -> bytes:
    """The content of a file of rows with another byte in the values, and the same footer."""
    changed = bytearray(content)
    changed[len(content) // 3] ^= 0x55
    return bytes(changed)


def one_line(capsys) -> str:
    """Return the notes, as they were before they were wrapped."""
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("damage", [cut_short, changed, without_record, another_record])
def test_a_damaged_object_is_made_again(damage, tmp_path, whole, capsys):
    first = toy_plan(tmp_path, fate={"grid1": "raise"})
    run_toy(tmp_path, first)
    damage(place(tmp_path, first, "rows1"))
    plan = toy_plan(tmp_path)
    outcome = run_toy(tmp_path, plan, retry_failed=True)
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert same_as(whole, tmp_path, plan)
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert runs(tmp_path, "begin")["ft1"] == 1
    told = one_line(capsys)
    assert "it is made again" in told
    assert damage != cut_short or "rows.npy: wanted 20,128 bytes, found 19,128" in told


def test_damaged_rows_are_computed_again(tmp_path, whole, capsys):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan)
    for bad in (lambda content: content[:-50], flipped, lambda content: b""):
        data = SweepFolder(tmp_path).data
        (file,) = data.files()
        content = bad(file.read_bytes())
        file.write_bytes(content)
        with pytest.raises(UserError, match=rf"{file}: wanted rows of a sweep, found a damaged"):
            read_rows(file)
        with pytest.raises(UserError, match=rf"{file}: wanted rows of a sweep, found a damaged"):
            rows(tmp_path, plan)  # none is left out without a word
        outcome = run_toy(tmp_path, plan)
        assert outcome.done == {"grid": 5, "blocks": 4}
        assert same_as(whole, tmp_path, plan)
        assert f"{file}: wanted rows, found a damaged file; it is set" in one_line(capsys)
        newest = max(data.damaged.iterdir(), key=lambda file: file.name)
        assert newest.read_bytes() == content


def test_damage_after_the_start_is_found_when_rows_are_gathered(tmp_path, whole, capsys):
    """A file is damaged while the driver works: the rows that it had are computed again."""
    plan = toy_plan(tmp_path, wait=str(tmp_path / "go"))
    few = toy_plan(tmp_path, seeds=2)
    run_toy(tmp_path, few)
    folder = SweepFolder(tmp_path)

    def damage(_):
        if not (tmp_path / "go").exists():
            (file,) = folder.data.files()
            file.write_bytes(flipped(file.read_bytes()))
            (tmp_path / "go").touch()

    class Damaging(Inline):
        def submit(self, fn, order):
            damage(order)
            return super().submit(fn, order)

    outcome = run_in_processes(tmp_path, plan, start=lambda _: Damaging())
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert same_as(whole, tmp_path, plan)
    assert "it is set aside in" in one_line(capsys)


def test_files_that_cannot_be_read_stay(tmp_path):
    """Where no file can be opened, the command ends, and nothing is deleted or set aside."""
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan)
    (file,) = SweepFolder(tmp_path).data.files()
    content = file.read_bytes()
    with no_more_files(), pytest.raises(ReadError, match="wanted to read it, found: Too many open"):
        Driver(SweepFolder(tmp_path), plan, None, keep="all").run()
    assert file.read_bytes() == content
    assert not SweepFolder(tmp_path).data.damaged.exists()
    assert not run_toy(tmp_path, plan).done


def test_a_damaged_part_is_made_again_before_its_users(tmp_path, whole, monkeypatch, capsys):
    monkeypatch.setattr("simlab.sweeps.driver.GATHER_SECONDS", 600.0)  # else a slow machine gathers
    first = toy_plan(tmp_path, fate={"blocks1": "raise"})
    run_toy(tmp_path, first)
    plan, folder = toy_plan(tmp_path), SweepFolder(tmp_path)
    (key,) = (job.key for job in plan.jobs if job.params["name"] == "grid1")
    ((_, table),) = [read_rows(file) for file in folder.data.files()]
    folder.data.keep_only({job.key for job in plan.jobs} - {key})
    (folder.root / "aside").rename(folder.root / "elsewhere")
    place = folder.place("grid", key)
    rows_of_job = table.filter(pc.equal(table["job"], key))
    rows_module._write(rows_of_job, [key], place, False, {})
    place.write_bytes(content := flipped(place.read_bytes()))
    outcome = run_toy(tmp_path, plan, retry_failed=True)
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert same_as(whole, tmp_path, plan)
    assert f"{place}: wanted rows of a sweep, found a damaged file" in one_line(capsys)
    assert [file.read_bytes() for file in folder.data.damaged.iterdir()] == [content]
    assert list(folder.work.iterdir()) == []


def test_a_full_disk_stops_the_sweep_and_the_next_run_continues(tmp_path, whole, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    plan = toy_plan(tmp_path)
    with file_limit(15_000), pytest.raises(WriteError, match="wanted to write there"):
        run_in_processes(tmp_path, plan)
    assert not contents(tmp_path).keys() & {"rows.npy"}
    assert SweepFolder(tmp_path).failed() == {}
    assert not run_toy(tmp_path, plan).failed
    assert same_as(whole, tmp_path, plan)


@pytest.mark.parametrize("size", [60_000, 230_000])  # no room for a claim; for the record of files
def test_a_disk_that_fills_up_stops_the_sweep_until_it_has_room(size, tmp_path, whole):
    with mounted_disk(tmp_path / "disk") as disk:
        disk.resize(size)
        plan = toy_plan(disk.path)
        with pytest.raises(WriteError, match="there, found: No space left on device"):
            run_toy(disk.path, plan)
        assert SweepFolder(disk.path).failed() == {}
        disk.resize(1_000_000)
        outcome = run_toy(disk.path, plan)
        assert (outcome.failed, outcome.waiting) == ((), 0)
        assert same_as(whole, disk.path, plan)


def test_a_record_that_was_written_before_a_kill_is_written_anew(tmp_path):
    folder, made = SweepFolder(tmp_path / "sweep"), tmp_path / "made"
    folder.create()
    made.mkdir()
    (made / "weights").write_text("all")
    (made / OBJECT).write_text("{}")  # the process was killed before the folder had its name
    folder.publish("finetune", "ab" * 32, made, 1.0, "a model")
    folder.check("finetune", "ab" * 32)
    assert folder.record("finetune", "ab" * 32)["files"].keys() == {"weights"}


def test_objects_that_nothing_needs_go_and_come_back_with_the_same_bits(tmp_path, whole):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan, keep="results")
    assert contents(tmp_path) == {}
    assert rows(tmp_path, plan).equals(whole[0])
    assert not run_toy(tmp_path, plan, keep="results").done  # nothing asks for the objects
    later = toy_plan(tmp_path)
    later.add("grid", {"name": "later"}, [9], later.jobs[0].hints, "later")
    outcome = run_toy(tmp_path, later, keep="results")
    assert outcome.done == {"finetune": 1, "extract": 1, "grid": 1}
    run_toy(tmp_path, later, keep="all")
    assert contents(tmp_path) == whole[1]


def test_max_disk_is_obeyed(tmp_path, whole):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan, keep="results")  # without a limit: sizes, and the rows to compare with
    sizes = dict.fromkeys(range(4), 20640 + 20128)  # a checkpoint and representations
    assert rows(tmp_path, plan).equals(whole[0])
    bounded = tmp_path / "bounded"
    most = sum(sizes.values()) - 20_000
    outcome = run_toy(bounded, toy_plan(bounded), keep="results", max_disk=most)
    assert not outcome.failed
    assert rows(bounded, toy_plan(bounded)).equals(whole[0])


def test_inputs_that_do_not_fit_together_are_refused(tmp_path):
    plan = toy_plan(tmp_path)
    with pytest.raises(UserError, match=r"key max_disk: wanted room for .* found .* of 50,000"):
        run_toy(tmp_path, plan, keep="all", max_disk=50_000)


def test_an_object_that_is_larger_than_max_disk_is_refused(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    with pytest.raises(UserError, match=r"wanted at least 20,640 bytes, .* ft0 .*, found 20,000"):
        run_toy(tmp_path, plan, keep="results", max_disk=20_000)


def test_the_room_for_an_object_is_that_of_its_own_model(tmp_path):
    """A large model after a small one; guesses are a tenth of what the small one took."""
    plan = Plan()
    for size, name in ((100, "small"), (5_000, "large")):
        plan.add("finetune", {"name": name}, [], {"bytes": size}, name)
    folder = SweepFolder(tmp_path)
    folder.create()
    (made := folder.work / "made").mkdir()
    (made / "weights").write_bytes(bytes(1_000))
    folder.publish("finetune", plan.jobs[0].key, made, 1.0, "small")
    shared = ([True, False], [False, True], {})
    disk = DiskUse(folder, plan, "all", 40_000, *shared, lambda _: None)
    disk.measure(0)
    assert not disk.admits(1, ())
    disk.most = 51_000
    assert disk.admits(1, ())


def test_jobs_that_run_ahead_leave_room_for_those_before(tmp_path):
    """Two checkpoints fill the disk; none of their representations fits, and none can go."""
    plan = Plan()
    for name in "ab":
        tuned = plan.add("finetune", {"name": name}, [], {"bytes": 100}, name)
        read = plan.add("extract", {"name": name}, [tuned], {"bytes": 90}, name)
        plan.add("grid", {"name": name}, [read], {}, name)
    shared = ([False] * 6, [True] * 6, {})
    disk = DiskUse(SweepFolder(tmp_path), plan, "results", 250, *shared, lambda _: None)
    assert disk.admits(0, ())
    assert not disk.admits(3, [0])  # beside the first checkpoint and its representations
    disk.most = 290
    assert disk.admits(3, [0])
    shared[2][1] = "failed"  # a job that will not be done needs no room
    disk.most = 250
    assert disk.admits(3, [0])


def damage_when_it_is_read(monkeypatch, kind, act):
    """Have `act` happen once when a step of a kind has begun and has read nothing yet."""
    step, acts = toysteps.STEPS[kind], [act]

    def disturbed(work):
        if acts:
            acts.pop()(work)
        return step(work)

    monkeypatch.setitem(toysteps.STEPS, kind, disturbed)


@pytest.mark.parametrize("act", [flip_last, lambda file: os.truncate(file, 10), os.unlink])
def test_an_input_that_is_damaged_while_a_step_reads_it_makes_nothing(
    act, tmp_path, whole, monkeypatch, capsys
):
    """Also where the step then fails: no failure is recorded."""
    plan = toy_plan(tmp_path)
    damage_when_it_is_read(monkeypatch, "grid", lambda work: act(work.inputs[0] / "rows.npy"))
    outcome = run_toy(tmp_path, plan)
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert same_as(whole, tmp_path, plan)
    assert runs(tmp_path, "end")["rows0"] == 2
    assert one_line(capsys).count("it is made again") == 1


def test_an_input_that_always_looks_damaged_is_made_three_times_again(tmp_path, monkeypatch):
    plan = toy_plan(tmp_path, seeds=1)
    step = toysteps.STEPS["grid"]

    def damaging(work):
        flip_last(work.inputs[0] / "rows.npy")
        return step(work)

    monkeypatch.setitem(toysteps.STEPS, "grid", damaging)
    outcome = run_toy(tmp_path, plan)
    assert f"it was made again {MOST_ATTEMPTS} times" in outcome.failed[0][1]
    assert runs(tmp_path, "end")["rows0"] <= 2 * (1 + MOST_ATTEMPTS)


def test_an_object_that_is_damaged_after_its_first_reading_is_found(tmp_path):
    """The same process has hashed the object for an earlier job."""
    plan, folder = toy_plan(tmp_path, seeds=1), SweepFolder(tmp_path, durable=False)
    folder.create()

    def done(number):
        job = plan.jobs[number]
        needs = tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs)
        return do(Order(str(tmp_path), job, needs, durable=False, steps=STEPS))

    assert [done(number).state for number in (0, 1, 2, 2)] == [DONE] * 4
    file = place(tmp_path, plan, "rows0") / "rows.npy"
    flip_last(file)
    answer = done(4)
    assert (answer.state, answer.damaged) == (DAMAGED, ("extract", plan.jobs[1].key))
    assert f"{file}: wanted SHA-256" in answer.message
    assert list(folder.work.iterdir()) == []
