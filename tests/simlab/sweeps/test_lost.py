"""Jobs whose owner lost its claim, and what ended processes leave: nothing counts twice."""

import fcntl
import json
import os
import threading
import time

import pytest

from simlab.errors import UserError
from simlab.store.ownership import owned
from simlab.sweeps import claims, drivers, gathering, processes
from simlab.sweeps.claims import BEAT_SECONDS, claim
from simlab.sweeps.execute import BUSY, DAMAGED, MADE, MOST_ATTEMPTS, Order, execute
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.gathering import Gatherer
from simlab.sweeps.plan import Plan
from support.lab import toysteps
from support.lab.actors import Actor
from support.lab.clocks import Clock
from support.lab.inline import InlineEngine
from support.lab.stolen import FAR, rob
from support.lab.toysweep import STEPS, run_toy, runs, same_as, toy_plan

STOLEN = "support.lab.stolen"
JOBS = ("ft0", "rows0", "grid0", "blocks0")


def order(root, plan, number, steps=STEPS):
    """The order of a job."""
    job = plan.jobs[number]
    needs = tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs)
    return Order(str(root), job, needs, durable=False, steps=steps)


def inline(_):
    return InlineEngine()


def files(root, *names):
    return [path.name for name in names for path in (root / name).iterdir()]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("how", ["end", "raise", "refuse"])
def test_a_job_that_was_lost_leaves_no_trace(how, number, tmp_path):
    plan = toy_plan(tmp_path, seeds=1, lost={JOBS[number]: how})
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    for needed in range(number):
        assert execute(order(tmp_path, plan, needed, STOLEN)).state == MADE
    before = len(list(folder.finished()))
    assert execute(order(tmp_path, plan, number, STOLEN)).state == BUSY
    job = plan.jobs[number]
    assert not folder.place(job.kind, job.key).exists()
    assert len(list(folder.finished())) == before
    assert files(tmp_path, "failures", "work") == []
    assert json.loads((folder.claims / job.key).read_text()) == FAR


def test_a_failure_of_a_job_that_is_lost_before_it_is_recorded_is_none(tmp_path, monkeypatch):
    """The owner still has its claim when its step raises, and stops before it locks the claim."""
    plan, raised, answers = toy_plan(tmp_path, seeds=1), [], []
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    claimed = folder.claims / plan.jobs[0].key

    def step(work):
        raised.append(work)
        raise RuntimeError("this step fails")

    monkeypatch.setitem(toysteps.STEPS, "finetune", step)
    owner = Actor(lambda: answers.append(execute(order(tmp_path, plan, 0))), str(tmp_path))
    owner.step(1000, lambda: bool(raised))
    owner.stop_before("open", claimed)  # the look whether the claim is held
    owner.stop_before("open", claimed)
    rob(raised[0])
    owner.step(1000)
    assert [answer.state for answer in answers] == [BUSY]
    assert files(tmp_path, "failures", "work") == []


def test_a_step_that_meets_a_held_lock_is_tried_again(tmp_path):
    plan = toy_plan(tmp_path, seeds=1, lost={"rows0": "busy"})
    SweepFolder(tmp_path).create()
    assert execute(order(tmp_path, plan, 0)).state == MADE
    assert execute(order(tmp_path, plan, 1, STOLEN)).state == BUSY
    assert files(tmp_path, "failures", "claims", "work") == []


def test_training_is_taken_over_from_a_process_that_stands_still(tmp_path, monkeypatch):
    """It still holds the lock of its output, and writes to a file that it has open."""
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    left = folder.work / f"{plan.jobs[0].key}-0123abcd"
    (left / "partial").mkdir(parents=True)
    open_file = (left / "partial" / "0.npy").open("wb")
    open_file.write(b"begun")
    open_file.flush()
    locked = (left / ".out.lock").open("w")
    fcntl.flock(locked, fcntl.LOCK_EX)
    seen = []

    def step(work):
        with owned(work.out):
            seen.append((work.out.with_name("partial") / "0.npy").read_bytes())
            open_file.write(b" and continued")
            open_file.flush()
            seen.append((work.out.with_name("partial") / "0.npy").read_bytes())
            work.out.with_name("partial").rename(work.out)

    monkeypatch.setitem(toysteps.STEPS, "finetune", step)
    assert execute(order(tmp_path, plan, 0)).state == MADE
    assert seen == [b"begun", b"begun"]
    assert files(tmp_path, "work") == []


def test_what_a_copy_cut_short_was_made_of_is_copied_again(tmp_path, monkeypatch):
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    for name, content in (("0123abcd", "half"), ("0123abcd.from", "whole")):
        left = folder.work / f"{plan.jobs[0].key}-{name}"
        left.mkdir()
        (left / "partial").write_text(content)
    seen = []

    def step(work):
        seen.append(work.out.with_name("partial").read_text())
        work.out.mkdir()

    monkeypatch.setitem(toysteps.STEPS, "finetune", step)
    assert execute(order(tmp_path, plan, 0)).state == MADE
    assert seen == ["whole"]


def test_a_driver_that_was_taken_for_gone_ends_with_one_line(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    plan = toy_plan(tmp_path, seeds=1)
    study = drivers.study_of(plan, "all", None)

    class Robbed(InlineEngine):
        def collect(self, seconds):
            for path in (tmp_path / "drivers").glob(f"{study}-*"):
                path.unlink()
            clock.pass_time(BEAT_SECONDS + 1)
            return super().collect(seconds)

    with pytest.raises(UserError, match=r"found that other commands have taken this one for gone"):
        run_toy(tmp_path, plan, start=lambda _: Robbed())
    assert sum(runs(tmp_path, "begin").values()) == 1


def test_a_failure_that_another_driver_mended_is_none(tmp_path, whole):
    plan = toy_plan(tmp_path, fate={"blocks3": "raise"})
    folder = SweepFolder(tmp_path, durable=False)

    class Mended(InlineEngine):
        """When nothing else is to do, another driver does the failed job."""

        def collect(self, seconds):
            found = super().collect(seconds)
            if any(answer.state == "failed" for answer in found):
                again = toy_plan(tmp_path)
                folder.forgive(found[0].key)
                number = plan.number(found[0].key)
                assert execute(order(tmp_path, again, number)).state == MADE
            return found

    outcome = run_toy(tmp_path, plan, start=lambda _: Mended())
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert same_as(whole, tmp_path, plan)


def test_a_failure_is_forgiven_only_while_nobody_works_on_the_job(tmp_path):
    """Another driver has claimed the job, and may record a failure of its own."""
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    folder.fail("key", {"error": "it failed"})
    held = claim(folder.claims, "key")
    folder.forgive("key")
    assert files(tmp_path, "failures") == ["key.json"]
    held.release()
    folder.forgive("key")
    assert files(tmp_path, "failures", "claims") == []


def test_a_damaged_part_is_made_again_before_its_user(tmp_path, whole):
    plan = toy_plan(tmp_path)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    for number in range(3):
        assert execute(order(tmp_path, plan, number)).state == MADE
    part = folder.place("grid", plan.jobs[2].key)
    content = bytearray(part.read_bytes())
    content[content.index(b"toy")] ^= 255
    part.write_bytes(content)
    answer = execute(order(tmp_path, plan, 3))
    assert (answer.state, answer.damaged) == (DAMAGED, ("grid", plan.jobs[2].key))
    assert str(part) in answer.message
    assert not part.exists()
    assert not run_toy(tmp_path, plan, start=inline).failed
    assert same_as(whole, tmp_path, plan)


def test_damage_that_was_mended_since_it_was_read_deletes_nothing(tmp_path, monkeypatch):
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    assert execute(order(tmp_path, plan, 0)).state == MADE
    file = folder.place("finetune", plan.jobs[0].key) / "0.npy"
    whole = file.read_bytes()
    file.write_bytes(b"damaged")
    claim_key = claims.claim

    def mend_and_claim(folder, key, dead=None):
        if key == plan.jobs[0].key:
            file.write_bytes(whole)
        return claim_key(folder, key, dead)

    monkeypatch.setattr(claims, "claim", mend_and_claim)
    answer = execute(order(tmp_path, plan, 1))
    assert (answer.state, answer.damaged, file.exists()) == (BUSY, None, True)


def test_damage_that_is_told_after_the_remake_does_not_count(tmp_path, capsys):
    """A job that reads for long, or a slow network: the first user of the input told before."""
    plan, hints = Plan(), {"runs": str(tmp_path / "runs.txt")}
    made = plan.add("finetune", {"name": "ft", "seed": 0}, [], hints, "ft")
    for n in range(5):
        plan.add("extract", {"name": f"rows{n}"}, [made], hints, f"rows{n}")
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    assert execute(order(tmp_path, plan, 0)).state == MADE
    (folder.place("finetune", plan.jobs[0].key) / "0.npy").write_bytes(b"damaged")

    class Late(InlineEngine):
        """Gives one answer at a time, and the remake before all other damage."""

        def collect(self, seconds):
            self.answers.sort(key=lambda one: (one.state == DAMAGED, one.key))
            found, self.answers = self.answers[:1], self.answers[1:]
            return found

    outcome = run_toy(tmp_path, plan, start=lambda _: Late(6))
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert capsys.readouterr().err.count("it is made again") == 1
    assert runs(tmp_path, "begin")["ft"] == 2


def test_damage_that_another_process_mends_is_left_to_it(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    assert execute(order(tmp_path, plan, 0)).state == MADE
    place = folder.place("finetune", plan.jobs[0].key)
    (place / "0.npy").write_bytes(b"damaged")
    mending = claim(folder.claims, plan.jobs[0].key)
    answer = execute(order(tmp_path, plan, 1))
    assert (answer.state, answer.damaged) == (BUSY, ("finetune", plan.jobs[0].key))
    assert place.exists()
    mending.release()
    assert execute(order(tmp_path, plan, 1)).state == DAMAGED
    assert not place.exists()


def test_an_input_that_is_always_damaged_is_made_again_a_few_times(tmp_path, capsys):
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)

    class Damaging(InlineEngine):
        def submit(self, order):
            super().submit(order)
            for file in folder.place("finetune", plan.jobs[0].key).glob("*.npy"):
                file.write_bytes(b"damaged")

    outcome = run_toy(tmp_path, plan, start=lambda _: Damaging())
    ((job, error),) = outcome.failed
    assert job == "extract rows0"
    assert f"0.npy: wanted 4,128 bytes, found 7; it was made again {MOST_ATTEMPTS} times" in error
    assert runs(tmp_path, "begin")["ft0"] == 1 + MOST_ATTEMPTS


def test_a_driver_waits_for_another_that_moves_rows(tmp_path, whole, monkeypatch, capsys):
    monkeypatch.setattr(gathering, "_TELL_SECONDS", 0.0)
    plan = toy_plan(tmp_path)
    lock = owned(tmp_path / "results", lock=tmp_path / ".results.lock")
    tmp_path.mkdir(exist_ok=True)
    lock.__enter__()
    timer = threading.Timer(3, lambda: lock.__exit__(None, None, None))
    timer.start()
    assert not run_toy(tmp_path, plan, start=inline).failed
    assert same_as(whole, tmp_path, plan)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("waits to move rows") == 1
    assert f"found process {os.getpid()} on" in told


def test_a_driver_does_not_wait_for_ever_for_another_that_moves_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(gathering, "PATIENCE_SECONDS", 1.0)
    plan = toy_plan(tmp_path, seeds=1)
    with (
        owned(tmp_path / "results", lock=tmp_path / ".results.lock"),
        pytest.raises(UserError, match=rf"found process {os.getpid()} on .* same command moves"),
    ):
        run_toy(tmp_path, plan, start=inline)
    folder = SweepFolder(tmp_path, durable=False)
    assert len(list(folder.present("grid"))) == 2
    gatherer = Gatherer(folder, plan)
    assert gatherer.gather_all() == set()
    assert len(folder.data.made()) == 3


def test_a_driver_tells_for_which_process_it_waits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simlab.sweeps.elsewhere._TELL_SECONDS", 0.0)
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    path = folder.claims / plan.jobs[0].key
    path.write_text(json.dumps(FAR))
    threading.Timer(2, path.unlink).start()
    assert not run_toy(tmp_path, plan, start=inline).failed
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("waits for a job of process 1 on elsewhere") == 1


def test_a_silent_process_of_another_machine_loses_its_job(tmp_path, whole):
    plan = toy_plan(tmp_path)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    path = folder.claims / plan.jobs[0].key
    path.write_text(json.dumps(FAR))
    os.utime(path, (time.time() + 86400,) * 2)  # its clock, or that of the file system, is wrong
    assert not run_toy(tmp_path, plan, start=inline, stale=2.0).failed
    assert same_as(whole, tmp_path, plan)


def test_many_jobs_elsewhere_cost_a_round_no_more_than_a_few(tmp_path, monkeypatch):
    from simlab.sweeps.elsewhere import Elsewhere
    from simlab.sweeps.watch import Watch

    clock = Clock(monkeypatch)
    watch = Watch(120.0)
    elsewhere = Elsewhere(tmp_path, watch)
    for number in range(400):
        (tmp_path / str(number)).write_text(json.dumps({**FAR, "token": str(number)}))
        elsewhere.add(str(number))
    looks = []
    look = watch.is_dead
    monkeypatch.setattr(watch, "is_dead", lambda path: looks.append(path.name) or look(path))
    dead, rounds = [], 0
    while len(dead) < 400:
        clock.pass_time(0.5)
        before = len(looks)
        dead += elsewhere.look()
        assert len(looks) - before <= 25
        rounds += 1
    assert 120 / 0.5 <= rounds <= 1.5 * 120 / 0.5
    assert len({key for key, _ in dead}) == 400


def test_what_ended_processes_leave_goes(tmp_path, whole):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan, start=inline)
    folder = SweepFolder(tmp_path, durable=False)
    dead = {"place": processes.place(), "pid": 2**22 + 1, "started": "1", "token": "dead"}
    for key in (plan.jobs[0].key, "ab" * 32):
        (folder.claims / key).write_text(json.dumps(dead))
        (folder.work / f"{key}-01234567").mkdir()
    for study in ("another", drivers.study_of(plan, "all", None)):
        (folder.drivers / f"{study}-01234567").write_text(json.dumps(dead))
    (folder.work / "deleted-part").write_text("rows")
    (folder.work / f"{'ab' * 32}-01234567" / "rows.parquet").write_text("rows")
    folder.fail("ab" * 32, {"error": "of an earlier file", "state": "failed"})
    (log,) = folder.log.glob("*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    gone = next(line for line in lines if plan.jobs[0].key in line)
    log.write_text("".join(line for line in lines if line != gone))
    run_toy(tmp_path, plan, start=inline)
    assert files(tmp_path, "claims", "drivers", "work", "failures") == []
    (line,) = [line for line in folder.finished() if line["key"] == plan.jobs[0].key]
    assert line["seconds"] == pytest.approx(json.loads(gone)["seconds"], abs=1e-3)
    assert len(list(folder.finished())) == len(plan)


def test_deleted_rows_leave_no_file(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    for number in range(3):
        execute(order(tmp_path, plan, number))
    folder.delete("grid", plan.jobs[2].key, damaged=True)
    assert not folder.place("grid", plan.jobs[2].key).exists()
    assert files(tmp_path, "work") == []
    assert len(files(tmp_path, "damaged")) == 1
