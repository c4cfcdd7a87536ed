"""Objects cut short or changed, a full disk, two drivers, and objects that go and come back."""

import json
from pathlib import Path

import pytest

from simlab.errors import ReadError, UserError, WriteError
from simlab.sweeps.disk import DiskUse
from simlab.sweeps.driver import Driver
from simlab.sweeps.fetching import Fetching
from simlab.sweeps.folder import OBJECT, DamagedError, SweepFolder
from simlab.sweeps.local import LocalEngine
from simlab.sweeps.parts import forget_states, is_whole, read_rows_file, write_table
from simlab.sweeps.plan import Plan
from simlab.sweeps.status import read_status
from support.lab.disks import file_limit, mounted_disk, no_more_files
from support.lab.toysweep import contents, rows, run_toy, runs, same_as, start_driver, toy_plan

pytestmark = pytest.mark.slow


def place(root: Path, plan, name: str) -> Path:
    (job,) = [job for job in plan.jobs if job.params["name"] == name]
    return SweepFolder(root).place(job.kind, job.key)


def cut_short(folder: Path) -> None:
    file = folder / "rows.npy"
    file.write_bytes(file.read_bytes()[:-1000])


def changed(folder: Path) -> None:
    file = folder / "rows.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


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
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert same_as(whole, tmp_path, plan)
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert runs(tmp_path, "begin")["ft1"] == 1
    assert "it is made again" in capsys.readouterr().err


def test_a_check_names_the_file_the_wanted_and_the_found(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    run_toy(tmp_path, plan)
    cut_short(place(tmp_path, plan, "rows0"))
    job = plan.jobs[1]
    with pytest.raises(DamagedError, match=r"rows\.npy: wanted 20,128 bytes, found 19128"):
        SweepFolder(tmp_path).check(job.kind, job.key)


def test_damaged_rows_are_computed_again(tmp_path, whole, capsys):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan)
    for bad in (lambda content: content[:-50], flipped, lambda content: b""):
        data = SweepFolder(tmp_path).data
        (file,) = data.files()
        content = bad(file.read_bytes())
        file.write_bytes(content)
        assert read_status(tmp_path).total.waiting == 9
        with pytest.raises(UserError, match=rf"{file}: wanted rows of a sweep, found a damaged"):
            read_rows_file(file)
        with pytest.raises(UserError, match=rf"{file}: wanted rows of a sweep, found a damaged"):
            rows(tmp_path, plan)  # none is left out without a word
        outcome = run_toy(tmp_path, plan)
        assert outcome.done == {"grid": 5, "blocks": 4}
        assert same_as(whole, tmp_path, plan)
        assert f"{file}: wanted rows, found a damaged file; it is set" in one_line(capsys)
        newest = max(data.aside.iterdir(), key=lambda file: file.name)
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

    class Damaging(LocalEngine):
        def submit(self, order):
            damage(order)
            super().submit(order)

    outcome = run_toy(tmp_path, plan, start=lambda f: Damaging(1, f.log, threads=1))
    assert (outcome.failed, outcome.waiting) == ([], 0)
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
    forget_states()
    with no_more_files(), pytest.raises(ReadError, match=f"{file}: wanted to read it, found: Too"):
        is_whole(file)
    folder = SweepFolder(tmp_path)
    assert not folder.data.aside.exists()
    assert not run_toy(tmp_path, plan).done


def test_a_damaged_part_is_made_again_before_its_users(tmp_path, whole, capsys):
    first = toy_plan(tmp_path, fate={"blocks1": "raise"})
    run_toy(tmp_path, first)
    plan, folder = toy_plan(tmp_path), SweepFolder(tmp_path)
    (key,) = (job.key for job in plan.jobs if job.params["name"] == "grid1")
    ((_, table, made),) = folder.data.take_out([key])
    place = folder.place("grid", key)
    write_table(table, place, key, made)
    place.write_bytes(content := flipped(place.read_bytes()))
    outcome = run_toy(tmp_path, plan, retry_failed=True)
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert same_as(whole, tmp_path, plan)
    assert f"{place}: wanted rows of a sweep, found a damaged file" in one_line(capsys)
    assert [file.read_bytes() for file in folder.data.aside.iterdir()] == [content]
    assert list(folder.work.iterdir()) == []


def test_a_full_disk_stops_the_sweep_and_the_next_run_continues(tmp_path, whole, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    plan = toy_plan(tmp_path)
    with file_limit(15_000), pytest.raises(WriteError, match="wanted to write there"):
        run_toy(tmp_path, plan)
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
        assert (outcome.failed, outcome.waiting) == ([], 0)
        assert same_as(whole, disk.path, plan)


def test_a_record_that_was_written_before_a_kill_is_written_anew(tmp_path):
    folder, made = SweepFolder(tmp_path / "sweep"), tmp_path / "made"
    folder.create()
    made.mkdir()
    (made / "weights").write_text("all")
    (made / OBJECT).write_text("{}")  # the process was killed before the folder had its name
    folder.publish("finetune", "ab" * 32, made, 1.0, "a model")
    assert folder.check("finetune", "ab" * 32).is_dir()
    assert folder.record("finetune", "ab" * 32)["files"].keys() == {"weights"}


def test_two_drivers_share_the_work(tmp_path, whole):
    plan = toy_plan(tmp_path)
    drivers = [start_driver(tmp_path, workers=2, seconds=0.02) for _ in range(2)]
    assert [driver.wait() for driver in drivers] == [0, 0]
    assert same_as(whole, tmp_path, plan)
    assert set(runs(tmp_path, "begin").values()) == {1}
    logs = list((tmp_path / "log").glob("*.jsonl"))
    assert sum(len(log.read_text().splitlines()) for log in logs) == len(plan)
    processes = {line.split()[2] for line in (tmp_path / "runs.txt").read_text().splitlines()}
    assert len(processes) > 2  # a driver has two


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
    assert "wanted the same files" not in (tmp_path / "log" / "worker-0.txt").read_text()


def test_other_bits_than_before_are_noted(tmp_path, capsys):
    plan = toy_plan(tmp_path, seeds=1)
    run_toy(tmp_path, plan, keep="results")
    folder = SweepFolder(tmp_path)
    gone = folder.gone("extract", plan.jobs[1].key)
    record = json.loads(gone.read_text())
    record["files"]["rows.npy"][1] = "0" * 64
    gone.write_text(json.dumps(record))
    run_toy(tmp_path, plan, keep="all")
    assert "rows0: wanted the same files" in (told := " ".join(capsys.readouterr().err.split()))
    assert "found other rows.npy" in told
    assert not gone.exists()


def test_a_record_of_what_went_that_is_cut_short_says_nothing(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    run_toy(tmp_path, plan, keep="results")
    for number in (0, 1):
        gone = SweepFolder(tmp_path).gone(plan.jobs[number].kind, plan.jobs[number].key)
        gone.write_bytes(gone.read_bytes()[:20])
    outcome = run_toy(tmp_path, plan, keep="all")
    assert (outcome.failed, outcome.waiting) == ([], 0)


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
    done, needed = [True, False], [False, True]
    revisions = Fetching(tmp_path, plan, needed, {})
    disk = DiskUse(folder, plan, "all", 40_000, done, needed, [[], []], revisions)
    assert not disk.admits(1, ())
    disk.most = 51_000
    assert disk.admits(1, ())
