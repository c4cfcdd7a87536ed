"""Which folders a sweep writes to: new and empty ones, and those of sweeps."""

import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.store.files import write_json
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.sweep import require_place
from support.lab.commandline import check_refused


@pytest.fixture
def others(tmp_path):
    """A folder that another step wrote, such as `simcore extract`."""
    folder = tmp_path / "reps"
    folder.mkdir()
    for name in ("cls.safetensors", "job.json", "manifest.json", "rows.json"):
        write_json(folder / name, {})
    return folder


@pytest.mark.parametrize("plan", [[], ["--plan"]], ids=["run", "plan"])
def test_files_of_another_step_are_left_alone(others, simcore, tmp_path, plan):
    before = sorted(others.iterdir())
    file = tmp_path / "study.toml"
    file.write_text('models = ["minilm"]\ntasks = ["rt"]\n')
    found = "found cls.safetensors, job.json, manifest.json, ...; choose another --out"
    check_refused(simcore("sweep", file, "--out", others, *plan), "a new or empty folder", found)
    with pytest.raises(UserError, match="a new or empty folder"):
        Sweep.from_file(file).run(others)
    assert sorted(others.iterdir()) == before


def test_a_new_an_empty_and_an_interrupted_folder_are_taken(tmp_path):
    folder = SweepFolder(tmp_path / "out")
    require_place(folder)
    folder.root.mkdir()
    (folder.root / ".nfs0001").touch()
    require_place(folder)
    (folder.root / ".lock").touch()  # what a driver makes first
    require_place(folder)
    (tmp_path / "planned").mkdir()
    write_json(tmp_path / "planned" / "fingerprints.json", {})
    require_place(SweepFolder(tmp_path / "planned"))
