"""Records that are JSON of another shape: they count as absent or damaged, and nothing breaks."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.folder import DamagedError, SweepFolder
from simlab.sweeps.plan import Plan
from simlab.sweeps.records import FailureRecord, FinishedRecord, parse_record
from simlab.sweeps.status import read_status
from simlab.sweeps.survey import read_plan, write_plan

OTHERS = ["[]", "{}", '"abc"', "3", "null", "", '{"a":', '{"key": 3}']
KEY = "ab" * 32


@pytest.fixture
def folder(tmp_path):
    """A folder with a plan of one job, which has failed."""
    found = SweepFolder(tmp_path, durable=False)
    found.create()
    plan = Plan()
    plan.add("grid", {}, title="a grid")
    write_plan(found, plan, "all")
    return found


@pytest.mark.parametrize("content", OTHERS)
def test_records_of_another_shape(folder, content):
    key = read_plan(folder)[0].jobs[0].key
    made = folder.place("finetune", KEY)
    made.mkdir(parents=True)
    (made / "object.json").write_text(content)
    with pytest.raises(DamagedError, match=r"object\.json: wanted the record of an object"):
        folder.check("finetune", KEY)
    gone = folder.gone("extract", KEY)
    gone.parent.mkdir(parents=True)
    gone.write_text(content)
    (new := folder.work / "new").mkdir()
    assert folder.publish("extract", KEY, new, 1.0, "rows") == ""
    assert not gone.exists()
    (folder.failures / f"{key}.json").write_text(content)
    (folder.log / "driver.jsonl").write_text(f"{content}\n{content}\n")
    assert (folder.failure(key), folder.failed(), list(folder.finished())) == (None, {}, [])
    status = read_status(folder.root)
    assert (status.total.waiting, status.per_hour, status.last_error) == (1, 0.0, None)
    (folder.root / "plan.json").write_text(content)
    with pytest.raises(UserError, match=r"plan\.json: wanted the plan of a sweep, found a damaged"):
        read_status(folder.root)


def test_a_record_has_every_key_with_its_type():
    line = {"key": KEY, "kind": "grid", "seconds": 1.5, "at": 3, "more": "of a later version"}
    text = str(line).replace("'", '"')
    assert parse_record(text, FinishedRecord) == line
    assert parse_record(text.replace("1.5", '"long"'), FinishedRecord) is None
    assert parse_record(text, FailureRecord) is None
