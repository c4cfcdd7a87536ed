"""The data set of rows: each job's rows once, whatever happens while they are gathered."""

import contextlib
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from simlab.errors import ReadError
from simlab.store.results import ResultRow
from simlab.store.tables import Made
from simlab.sweeps import dataset, parts
from simlab.sweeps.dataset import DataSet
from simlab.sweeps.parts import (
    DamagedRowsError,
    forget_states,
    is_whole,
    read_jobs_and_rows,
    read_made,
    read_rows_file,
    write_part,
)
from simlab.sweeps.plan import Plan
from support.lab.disks import no_more_files


@pytest.fixture
def data(tmp_path):
    return DataSet(tmp_path / "results", durable=False)


def make_parts(folder, count, rows=50):
    """Parts of `count` jobs, whose values no compression makes small."""
    plan = Plan()
    files = []
    for number in range(count):
        job = plan.jobs[plan.add("grid", {"number": number})]
        files.append(folder / f"{job.key}.parquet")
        values = (((number * rows + row) * 0.6180339887) % 1 for row in range(rows))
        table = [
            ResultRow(experiment="e", measure="m", label_x="x", value=v, n=1, task="t")
            for v in values
        ]
        write_part(files[-1], job, table, 0.5, durable=False)
    return plan, files


def jobs_of(data):
    """The jobs of all rows of the data set, as another reader finds them."""
    tables = [pq.read_table(file).column("job").to_pylist() for file in data.files()]
    return [job for table in tables for job in table]


def test_a_file_is_full_before_the_next_begins(data, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "FULL_BYTES", 20_000)
    plan, files = make_parts(tmp_path, 60)
    for start in range(0, 60, 7):
        assert data.gather(files[start : start + 7]) == set()
    sizes = [file.stat().st_size for file in data.files()]
    assert len(sizes) > 1
    assert all(size >= 20_000 for size in sizes[:-1])
    assert not any(file.exists() for file in files)
    assert jobs_of(data) == [job.key for job in plan.jobs for _ in range(50)]
    assert data.made()[plan.jobs[3].key] == Made("grid", 50, 0.5)
    table = data.rows([plan.jobs[5].key, plan.jobs[2].key])
    assert table.column("job").to_pylist() == [plan.jobs[n].key for n in (5, 2) for _ in range(50)]


def test_a_part_that_outlived_its_gathering_is_not_gathered_twice(data, tmp_path):
    _, files = make_parts(tmp_path, 4)
    copies = {file: file.read_bytes() for file in files[:3]}
    data.gather(files[:3])
    for file, content in copies.items():  # the driver was killed before it deleted the parts
        file.write_bytes(content)
    data.gather(files)
    assert len(jobs_of(data)) == 200
    assert not any(file.exists() for file in files)


def test_a_damaged_part_is_reported_and_goes(data, tmp_path):
    plan, files = make_parts(tmp_path, 3)
    files[0].write_bytes(files[0].read_bytes()[:-10])
    changed = bytearray(files[1].read_bytes())
    changed[200] ^= 255  # in the values: the footer is whole, the checksum is not
    files[1].write_bytes(changed)
    gone = tmp_path / "gathered-by-another-driver.parquet"
    assert data.gather([gone, *files]) == set(files[:2])
    assert set(jobs_of(data)) == {plan.jobs[2].key}
    assert not any(file.exists() for file in files)
    assert sorted(file.stem[:64] for file in data.aside.iterdir()) == sorted(
        job.key for job in plan.jobs[:2]
    )


def test_rows_are_taken_out_job_by_job(data, tmp_path):
    plan, files = make_parts(tmp_path, 4)
    data.gather(files)
    first, last = plan.jobs[0].key, plan.jobs[3].key
    found = {key: len(table) for key, table, _ in data.take_out([first, last])}
    assert found == {first: 50, last: 50}
    assert data.made().keys() == {plan.jobs[1].key, plan.jobs[2].key}
    assert read_made(data.files()[0]).keys() == data.made().keys()


def test_rows_that_another_machine_added_stay(data, tmp_path, monkeypatch):
    """A network file system may say for a minute that a replaced file is as it was."""
    plan, files = make_parts(tmp_path, 3)
    data.gather(files[:1])
    assert data.has(plan.jobs[0].key)
    (file,) = data.files()
    with monkeypatch.context() as late:
        earlier, stat = file.stat(), os.stat
        late.setattr(os, "stat", lambda p, **how: earlier if p == file else stat(p, **how))
        DataSet(data.folder, durable=False).gather(files[1:2])
        assert data.has(plan.jobs[1].key)  # a file that is opened is asked for anew
    state, late_state = parts._state, (earlier.st_ino, earlier.st_mtime_ns, earlier.st_size)
    with monkeypatch.context() as late:  # or the file is replaced between two reads of it
        late.setattr(parts, "_state", lambda p: late_state if p == file else state(p))
        data.gather(files[2:])
    assert data.made().keys() == {job.key for job in plan.jobs}
    assert data.rows([job.key for job in plan.jobs]).num_rows == 150


def test_a_list_of_other_jobs_than_the_rows_is_found(tmp_path):
    _, (file, _) = make_parts(tmp_path, 2)
    jobs, table = parts.read_jobs_and_rows(file)
    parts.write_rows_file(table.slice(1), file, jobs, durable=False, how={})
    assert not is_whole(file)
    with pytest.raises(DamagedRowsError, match="49 of 50 rows"):
        parts.read_jobs(file)


def test_a_footer_is_not_copied_for_each_question(data, tmp_path):
    _, files = make_parts(tmp_path, 2)
    data.gather(files)
    (file,) = data.files()
    assert read_made(file) is read_made(file)
    with pytest.raises(TypeError):
        read_made(file)["other"] = Made("grid", 1, 0.5)


def test_any_other_byte_is_found(data, tmp_path):
    """A changed byte is found, or it is one of the footer that changes no row and no job."""
    _, files = make_parts(tmp_path, 3)
    data.gather(files)
    (file,) = data.files()
    content, made, table = file.read_bytes(), data.made(), read_rows_file(file)
    rng = np.random.default_rng(0)
    found = 0
    places = {
        *rng.integers(len(content), size=300).tolist(),
        *range(len(content) - 12, len(content)),
    }
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(changed)
        forget_states()
        if is_whole(file):
            with contextlib.suppress(DamagedRowsError):
                assert read_rows_file(file).equals(table)
                assert read_made(file) == made
        else:
            found += 1
            with pytest.raises(DamagedRowsError, match=file.name):
                read_rows_file(file)
    assert found > 0.5 * len(places)


@pytest.mark.parametrize("ask", [is_whole, read_made, read_jobs_and_rows])
def test_a_file_that_cannot_be_read_is_neither_damaged_nor_empty(ask, tmp_path):
    _, (file,) = make_parts(tmp_path, 1)
    with no_more_files(), pytest.raises(ReadError, match=f"{file}: wanted to read it, found: Too"):
        ask(file)
    assert ask(file)


def test_rows_are_not_written_anew_beside_a_file_that_cannot_be_read(data, tmp_path, monkeypatch):
    """Such a file seems to hold no jobs, if an error counts as no file: the rows come twice."""
    _, files = make_parts(tmp_path, 2)
    data.gather(files[:1])
    stored = data.files()

    def refuse(path, *_):
        raise ReadError(f"{path}: wanted to read it, found: Permission denied")

    monkeypatch.setattr(parts, "_read_footer", refuse)
    with pytest.raises(ReadError, match="Permission denied"):
        data.gather(files[1:])
    assert (data.files(), files[1].exists()) == (stored, True)


def test_a_damaged_file_is_set_aside_when_rows_are_added(data, tmp_path):
    plan, files = make_parts(tmp_path, 3)
    data.gather(files[:1])
    (file,) = data.files()
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 3] ^= 1
    file.write_bytes(changed)
    assert data.gather(files[1:]) == {file}
    assert set(jobs_of(data)) == {job.key for job in plan.jobs[1:]}
    (aside,) = data.aside.iterdir()
    assert aside.read_bytes() == bytes(changed)
