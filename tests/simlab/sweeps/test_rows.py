"""The data set of rows: each job's rows once, whatever happens while they are gathered."""

import contextlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simlab.errors import ReadError
from simlab.results.results import ResultRow
from simlab.sweeps import rows
from simlab.sweeps.plan import Plan
from simlab.sweeps.rows import DamagedRowsError, DataSet, forget_states, jobs_in, read_rows
from support.lab.disks import no_more_files


@pytest.fixture
def data(tmp_path):
    return DataSet(tmp_path / "results", durable=False)


def make_parts(folder, count, length=50):
    """Parts of `count` jobs, whose values no compression makes small."""
    plan = Plan()
    files = []
    for number in range(count):
        job = plan.jobs[plan.add("grid", {"number": number})]
        files.append(folder / f"{job.key}.parquet")
        values = (((number * length + row) * 0.6180339887) % 1 for row in range(length))
        table = [
            ResultRow(experiment="e", measure="m", label_x="x", value=v, n=1, task="t")
            for v in values
        ]
        rows.write_part(files[-1], job.key, table, durable=False)
    return plan, files


def jobs_of(data):
    """The jobs of all rows of the data set, as another reader finds them."""
    tables = [pq.read_table(file).column("job").to_pylist() for file in data.files()]
    return [job for table in tables for job in table]


def test_a_file_is_full_before_the_next_begins(data, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "FULL_BYTES", 20_000)
    plan, files = make_parts(tmp_path, 60)
    for start in range(0, 60, 7):
        data.gather(files[start : start + 7])
    sizes = [file.stat().st_size for file in data.files()]
    assert len(sizes) > 1
    assert all(size >= 20_000 for size in sizes[:-1])
    assert not any(file.exists() for file in files)
    assert jobs_of(data) == [job.key for job in plan.jobs for _ in range(50)]
    assert data.jobs() == {job.key for job in plan.jobs}
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


def test_a_job_without_rows_is_known(data, tmp_path):
    """Its part has no value in the column of jobs."""
    _, files = make_parts(tmp_path, 1)
    empty = tmp_path / "empty.parquet"
    rows.write_part(empty, "empty", [], durable=False)
    data.gather([empty, *files])
    assert data.jobs() == {"empty", files[0].stem}
    assert len(data.rows(["empty"])) == 0


def test_a_damaged_part_is_told_and_set_aside(data, tmp_path, capsys):
    plan, files = make_parts(tmp_path, 3)
    files[0].write_bytes(files[0].read_bytes()[:-10])
    changed = bytearray(files[1].read_bytes())
    changed[200] ^= 255  # in the values
    files[1].write_bytes(changed)
    gone = tmp_path / "gathered-before.parquet"
    data.gather([gone, *files])
    assert capsys.readouterr().err.count("it is set aside in") == 2
    assert set(jobs_of(data)) == {plan.jobs[2].key}
    assert not any(file.exists() for file in files)
    assert sorted(file.stem[:64] for file in data.damaged.iterdir()) == sorted(
        job.key for job in plan.jobs[:2]
    )


def test_rows_of_other_jobs_go_into_one_file_and_come_back(data, tmp_path):
    plan, files = make_parts(tmp_path, 4)
    data.gather(files)
    every = {job.key for job in plan.jobs}
    whole, few = data.rows([*every]), {plan.jobs[1].key, plan.jobs[2].key}
    for _ in range(3):  # rows that are aside are not added again
        assert data.keep_only(few) == 2
        assert data.jobs() == few == set(jobs_of(data))
        assert data.keep_only(every) == 0
        assert data.jobs() == every
    assert data.rows([*every]).equals(whole)
    aside = DataSet(tmp_path / "aside")
    assert jobs_of(aside) == [key for n in (0, 3) for key in [plan.jobs[n].key] * 50]
    assert data.keep_only(set()) == 4
    assert data.files() == []


def test_a_data_set_of_an_earlier_version_is_read(data, tmp_path):
    """It lists its jobs with their rows and times, and has no hash of the whole file."""
    _, files = make_parts(tmp_path, 2)
    (_, first), (_, second) = map(read_rows, files)
    data.folder.mkdir()
    old = data.folder / "part-00000.parquet"
    with pq.ParquetWriter(old, first.schema, write_page_checksum=True) as writer:
        writer.write_table(first)
        listed = json.dumps({files[0].stem: ["grid", 50, 0.5, {}]})
        writer.add_key_value_metadata({"simlab.jobs": listed})
    assert data.jobs() == {files[0].stem}
    data.gather(files)
    assert not data.damaged.exists()
    assert data.rows([file.stem for file in files]).equals(pa.concat_tables([first, second]))


def test_any_other_byte_is_found(data, tmp_path):
    _, files = make_parts(tmp_path, 3)
    data.gather(files)
    (file,) = data.files()
    content, jobs, table = file.read_bytes(), data.jobs(), read_rows(file)[1]
    rng, silent = np.random.default_rng(0), 0
    footer = range(len(content) - 700, len(content), 3)
    for place in {*rng.integers(len(content), size=100).tolist(), *footer}:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(changed)
        forget_states()
        with contextlib.suppress(DamagedRowsError):
            found, rows_there = read_rows(file)
            assert ({*found}, rows_there.equals(table), jobs_in(file)) == (jobs, True, jobs)
            silent += 1
    assert silent <= len("sha256 of all else: ")  # the words before the hash are not in it


@pytest.mark.parametrize("ask", [jobs_in, read_rows])
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

    monkeypatch.setattr(rows, "_jobs_in", refuse)
    with pytest.raises(ReadError, match="Permission denied"):
        data.gather(files[1:])
    assert (data.files(), files[1].exists()) == (stored, True)
