"""What a running sweep shows: lines in a log, a bar on a terminal."""

import re

from simlab import Sweep
from simlab.sweeps import status
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.plan import Plan
from simlab.sweeps.status import Count, Progress
from support.lab.inline import Inline, run
from support.lab.terminals import on_a_terminal
from support.lab.toysweep import driver_command, run_toy, toy_plan

TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d "


def lines_of(text):
    """Return the lines of a log without their times, and without notes on a task or a model."""
    lines = [line for line in text.splitlines() if not line.startswith("note: ")]
    assert all(re.match(TIME, line) for line in lines), text
    return [line[20:] for line in lines]


def test_a_log_has_the_end_of_every_long_job(tiny_bert, reviews, tmp_path, capfd, monkeypatch):
    task = {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
    model = {"name": str(tiny_bert.path), "label": "tiny"}
    sweep = Sweep({"models": [model], "tasks": [task], "grids": {"between": "within"}})

    def lines():
        run(sweep, tmp_path / "out")
        return lines_of(capfd.readouterr().err)

    first = len(sweep.plan())
    assert lines() == [f"sweep 0/{first}: 0 done before, {first} to do"]
    monkeypatch.setattr(status, "LONG_SECONDS", 0.0)
    sweep = Sweep({**sweep.spec.model_dump(exclude_unset=True), "finetune": {"max_steps": 1}})
    begin, *ends = lines()
    count = len(sweep.plan())
    assert begin == f"sweep {first}/{count}: {first} done before, {count - first} to do"
    assert len(ends) == count - first
    assert re.fullmatch(
        rf"sweep {first + 1}/{count}: finetune tiny-FT\S* reviews took \d+ s", ends[0]
    )
    assert re.fullmatch(rf"sweep {count}/{count}: grid .* took 0 s; about 0 s left", ends[-1])


def test_a_log_says_at_once_what_failed(tmp_path, capfd):
    plan = toy_plan(tmp_path, seeds=1, fate={"rows0": "raise"})

    run_toy(tmp_path, plan, start=lambda _: Inline())
    _, line = lines_of(capfd.readouterr().err)
    assert "extract rows0 failed after 0 s: RuntimeError: this step fails" in line


def test_a_bar_counts_what_was_done_before_and_names_what_runs(tmp_path):
    """On a narrow terminal it cuts the names."""
    drawn = on_a_terminal(driver_command(tmp_path, seeds=1, seconds=0.1), 60, errors=True)
    assert re.search(r"sweep \d/5 ━+ 0:00:\d\d +\w.*…", drawn)
    assert not re.search(r"sweep…|swe…", drawn)
    drawn = on_a_terminal(driver_command(tmp_path, seeds=2, seconds=0.1), 120, errors=True)
    assert "sweep 4/9 ━" in drawn  # the joint grid is of other seeds
    assert "sweep 3/" not in drawn
    # Which jobs a drawing meets is the machine's affair.
    assert re.search(r"(finetune|extract|grid|blocks) \w+ for \d+ s", drawn)
    assert re.search(r"about \d s left", drawn)
    assert not re.search(TIME, drawn)


def test_the_time_left_counts_jobs_that_have_begun(tmp_path):
    """Of a thousand jobs that wait in a queue of a cluster, eight have begun."""
    plan = Plan()
    for number in range(1000):
        plan.add("grid", {"number": number}, title=str(number))
    folder = SweepFolder(tmp_path)
    folder.create()
    folder.log_finished("grid", "key", 600.0)
    progress = Progress(folder, plan)
    progress.to_do["grid"] = 1000
    assert progress.left() is None
    progress.running = dict.fromkeys(range(8), 0.0)
    assert progress.left() == 1000 * 600 / 8
    progress.failures[9] = "it failed"
    found = progress.status()
    assert found.seconds_left == 999 * 600 / 8
    assert found.total == Count(running=8, failed=1, waiting=991)
    progress.to_do["blocks"] = 1  # of which none has finished
    assert progress.left() is None
