"""Inputs that come late or move while a job reads them."""

import os
import threading

import pytest

from simlab.sweeps import inputs as module
from simlab.sweeps.execute import BEFORE, DAMAGED, MADE, Order, execute
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.parts import read_rows_file
from support.lab.toysweep import STEPS, toy_plan


@pytest.fixture
def orders(tmp_path):
    """Orders of all jobs of one seed: a checkpoint, representations, a grid, its blocks."""
    plan = toy_plan(tmp_path, seeds=1)
    SweepFolder(tmp_path).create()
    needs = [tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs) for job in plan.jobs]
    return [
        Order(str(tmp_path), job, needed, durable=False, steps=STEPS, patience=patience)
        for job, needed in zip(plan.jobs, needs, strict=True)
        for patience in (0, 10)
    ]


@pytest.mark.parametrize("needed", [1, 2])  # a folder, and rows
def test_an_input_that_a_file_system_shows_late_is_waited_for(orders, needed, tmp_path):
    for order in orders[: 2 * needed + 2 : 2]:
        assert execute(order).state == MADE
    hasty, patient = orders[2 * needed + 2 : 2 * needed + 4]
    job = orders[2 * needed].job
    place = SweepFolder(tmp_path).place(job.kind, job.key)
    hidden = place.rename(tmp_path / "hidden")
    assert execute(hasty).state == DAMAGED
    threading.Timer(1, lambda: hidden.rename(place)).start()
    assert execute(patient).state == MADE


@pytest.mark.parametrize("level", [0, 1])  # the output is new, or its folder is new as well
def test_an_output_of_the_last_owner_is_seen_in_time(orders, level, tmp_path, monkeypatch):
    """A network file system remembers that a name was not there until its folder is opened."""
    order, listdir = orders[0], os.listdir
    assert execute(order).state == MADE
    place = SweepFolder(tmp_path).place(order.job.kind, order.job.key)
    unseen = [place, place.parent][level]
    hidden = unseen.rename(tmp_path / "hidden")

    def listed(folder):
        if folder == unseen.parent and hidden.exists():
            hidden.rename(unseen)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", listed)
    assert execute(order).state == BEFORE


def test_rows_that_are_gathered_meanwhile_are_found(orders, tmp_path, monkeypatch):
    *first, blocks = orders[:8:2]
    for order in first:
        assert execute(order).state == MADE
    data = SweepFolder(tmp_path, durable=False).data

    def gather_then(path):
        if path.stem == first[-1].job.key:
            data.gather([path])
        return read_rows_file(path)

    monkeypatch.setattr(module, "read_rows_file", gather_then)
    answer = execute(blocks)
    assert (answer.state, answer.message) == (MADE, "")
    assert not SweepFolder(tmp_path).place("grid", first[-1].job.key).exists()
