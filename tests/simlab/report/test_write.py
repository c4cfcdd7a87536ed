"""The file of the page: names that could break it, and errors."""

import base64
import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from simlab.report.write import folders_of, in_script, jobs, statuses, write_report
from simlab.results.results import LOCALIZATION, TRUNCATION, to_frame, write_results
from simlab.store.jobs import owned
from support.lab.pages import HOSTILE, Parts, unpack_text
from support.lab.result_rows import curve, grid, joint_grid


def test_names_cannot_leave_the_data(written):
    def page(names):
        rows = [row for name in names for row in grid(f"{name}-B", name, "B")]
        rows += [row for name in names for row in curve(name, mode=TRUNCATION)]
        return Parts(written(rows, title="".join(names)).read_text())

    parts, plain = page(HOSTILE), page([f"M{number}" for number in range(len(HOSTILE))])
    assert {model["name"] for model in parts.data["models"]} == {*HOSTILE, "B"}
    assert {made["comparison"] for made in parts.data["grids"]} == {f"{n}-B" for n in HOSTILE}
    assert parts.titles == ["".join(HOSTILE)]
    assert [given for given, _ in parts.scripts] == [given for given, _ in plain.scripts]
    assert parts.program == plain.program
    assert parts.addresses == plain.addresses


def test_data_come_back():
    data = {"name": "".join(HOSTILE), "values": [1, None, 0.5], "flag": True}
    text = in_script(data)
    assert json.loads(text) == data
    assert not re.search("[<>&\u2028\u2029]", text)


def test_the_policy_allows_this_program_and_nothing_else(written):
    parts = Parts(written(grid("A-B", "A", "B")).read_text())
    (policy,) = [m["content"] for m in parts.metas if "Content-Security-Policy" in m.values()]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for rule, text in (("script-src", parts.program), ("style-src", parts.styles[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert set(rules) == {
        *("default-src", "base-uri", "form-action", "img-src", "style-src", "script-src")
    }
    assert all(address.startswith("#") for address in parts.addresses)


def test_the_command_writes_the_page_and_says_where(simcore, tmp_path):
    results, out = tmp_path / "r.parquet", tmp_path / "new" / "page.html"
    write_results(to_frame(grid("A-B", "A", "B")), results)
    code, printed, errors = simcore("report", results, "--out", out, "--title", "Mine")
    assert (code, errors) == (0, [])
    assert str(out) in printed.replace("\n", "")
    parts = Parts(out.read_text())
    assert parts.data["title"] == "Mine"
    assert parts.data["settings"][0]["planes"] == ["value"]
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("page.txt", "--out {folder}/page.txt: wanted the name of a file that ends in .html"),
        ("folder.html", "--out {folder}/folder.html: wanted the name of a file"),
        ("file/page.html", "{folder}/file"),
    ],
)
def test_a_page_that_cannot_be_written(simcore, tmp_path, out, words):
    write_results(to_frame(grid("A-B", "A", "B")), tmp_path / "r.parquet")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = simcore("report", tmp_path / "r.parquet", "--out", tmp_path / out)
    assert code == 2
    assert words.format(folder=tmp_path) in " ".join(errors)
    assert sorted(tmp_path.rglob("*")) == before


def test_results_that_cannot_be_shown(simcore, tmp_path):
    write_results(to_frame([]), tmp_path / "none.parquet")
    (tmp_path / "no.parquet").write_text("no table")
    out = tmp_path / "page.html"
    for file, words in (
        ("none.parquet", "results: wanted rows to show, found none"),
        ("no.parquet", "no.parquet"),
        ("missing.parquet", "missing.parquet"),
    ):
        code, _, errors = simcore("report", tmp_path / file, "--out", out)
        assert (code, len(errors)) == (2, 1)
        assert words in errors[0]
    code, _, errors = simcore("report", tmp_path / "none.parquet", "--out", out, "--metric", "f2")
    assert code == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("place", "column", "words"),
    [
        (
            0,
            "layer_x",
            "wanted a number from 0 to 1,048,575 in column 'layer_x' of A-B, found <NA>",
        ),
        (3, "label_y", "wanted a model in column 'label_y' of A-B, found <NA>"),
        (-1, "layer_x", "in column 'layer_x' of truncation-untuned, found <NA>"),
    ],
)
def test_a_cell_without_a_place_is_refused(simcore, tmp_path, place, column, words):
    frame = to_frame([*grid("A-B", "A", "B"), *curve("A")])
    frame.loc[frame.index[place], column] = None
    write_results(frame, tmp_path / "r.parquet")
    code, _, errors = simcore("report", tmp_path / "r.parquet", "--out", tmp_path / "p.html")
    assert code == 2
    assert words in " ".join(errors)


def test_infinite_values_stand_in_a_page(written):
    """As undefined facts of layers, and as words in the rows of curves."""
    rows = [*curve("A", start=np.inf, mode=LOCALIZATION), *curve("A", start=-np.inf)]
    parts = Parts(written(rows).read_text())
    assert {fact[4] for fact in parts.data["facts"]} == {None}
    (view,) = parts.data["views"]
    table = json.loads(unpack_text(parts.text(view["rows"])))
    values = [row[table["columns"].index("value")] for row in table["rows"]]
    assert values == ["-inf"] * len(values)


def test_a_figure_is_xml_whatever_its_labels(written):
    parts = Parts(written(curve("bell\x07\x1b[0m")).read_text())
    (view,) = parts.data["views"]
    ElementTree.fromstring(unpack_text(parts.text(view["picture"])))


def test_a_title_that_is_no_text(written):
    assert Parts(written(grid("A-B", "A", "B"), title="\udce9t").read_text()).titles == ["?t"]


def test_the_title_is_the_name_of_the_folder_or_of_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "v1.5"
    write_results(to_frame(grid("A-B", "A", "B")), folder / "first.parquet")
    monkeypatch.chdir(folder)
    for given, title in ((folder, "v1.5"), (".", "v1.5"), ("first.parquet", "first")):
        parts = Parts(write_report(given, tmp_path / "page.html").read_text())
        assert parts.data["title"] == title


def test_an_unknown_metric_is_refused(simcore, tmp_path):
    write_results(to_frame(curve("A")), tmp_path / "r.parquet")
    code, _, errors = simcore("report", tmp_path / "r.parquet", "--metric", "f2")
    assert code == 2
    assert "f2" in errors[0]


def record(file, content):
    """Write a file that may be a record."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def test_inputs_of_a_job_are_words_and_not_json(tmp_path):
    inputs = {
        "task": {"name": "rt", "options": {"train_size": 64, "text_column": None}},
        "seeds": [1, 2],
        "parts": [{"a": 1}],
        "none": {},
    }
    record(tmp_path / "job" / "job.json", json.dumps({"inputs": inputs, "seconds": 1.0}))
    (job,) = jobs([tmp_path])
    assert job["inputs"] == {
        "none": "{}",
        "parts": '[{"a": 1}]',
        "seeds": "1, 2",
        "task.name": "rt",
        "task.options.text_column": "null",
        "task.options.train_size": "64",
    }


def test_files_that_are_no_records_are_left_out(tmp_path):
    """Of other programs, damaged, or of folders that are being replaced."""
    good = '{"inputs": {"label": "A"}, "seconds": 1.25}'
    for name, content in (
        ("good", good),
        ("new.partial", good),
        (".old", good),
        ("empty", ""),
        ("damaged", good[:-3]),
        ("list", "[1]"),
        ("other", '{"name": "a job of another program"}'),
        ("endless", '{"inputs": {}, "seconds": Infinity}'),
    ):
        record(tmp_path / name / "job.json", content)
    found = [(job["path"], job["done"], job["inputs"]) for job in jobs([tmp_path])]
    assert found == [
        (f"{tmp_path.name}/{name}", done, {"label": "A"})
        for name, done in (("good", True), ("new.partial", False))
    ]
    record(tmp_path / "status.json", '{"kinds": 3}')
    assert statuses([tmp_path]) == []


def test_a_file_alone_does_not_have_its_folder_searched(tmp_path, monkeypatch):
    """Records are searched for in given folders, and in the folder of a sweep."""
    run, other = tmp_path / "run", tmp_path / "other"
    record(run / "status.json", '{"kinds": {}}')
    record(other / "status.json", '{"kind": "cls"}')  # of another program
    for folder in (run, other):
        (folder / "results").mkdir()
        (folder / "results" / "a.parquet").touch()
    assert folders_of([other / "results" / "a.parquet"]) == []
    assert folders_of([other / "results"]) == [other / "results"]
    assert folders_of([run / "results" / "a.parquet", run / "results", run]) == [run]
    monkeypatch.chdir(run / "results")
    assert folders_of([Path(".")]) == [run]


def test_the_page_says_what_runs_and_waits(tmp_path):
    def shown():
        page = write_report(out / "results", out / "report.html").read_text()
        return re.findall('<p class="notice">(.*)</p>', page), Parts(page).data["statuses"]

    out = tmp_path / "study"
    write_results(to_frame(grid("A-B", "A", "B")), out / "results" / "r.parquet")
    counts = {"done": 3, "running": 1, "failed": 1, "waiting": 0}
    kinds = {
        "grid": counts,
        "finetune": {**counts, "running": 0, "waiting": 2},
        "skip": {"done": 1},
    }
    record(out / "status.json", json.dumps({"kinds": kinds}))
    said = "7 of 12 jobs of study were done when this page was written; {}."
    with owned(out, lock=out / ".lock"):
        assert shown()[0] == [said.format("running: 1 grid; waiting: 2 finetune")]
    # A process that has ended runs nothing, whatever it wrote last.
    lines, (status,) = shown()
    assert lines == [said.format("waiting: 1 grid, 2 finetune")]
    assert status["kinds"]["grid"] == {**counts, "running": 0, "waiting": 1}
    record(out / "status.json", json.dumps({"kinds": {"grid": {**counts, "running": 0}}}))
    assert shown()[0] == []


def test_joint_grids_of_many_models_are_one_grid(written):
    data = Parts(written(joint_grid([f"M{number}" for number in range(8)])).read_text()).data
    assert len(data["grids"]) == 1
