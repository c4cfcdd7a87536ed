"""The sweep file: what its defaults ask, and one clear line for every mistake."""

import subprocess
import sys

import pandas as pd
import pytest

from simlab import load_task
from simlab.errors import UserError
from simlab.models.sources import restarts
from simlab.sweeps.entries import TaskEntry
from simlab.sweeps.spec import make_spec, read_spec
from simlab.tasks import load_corpus

BASE = {"models": ["minilm"], "tasks": ["rt"]}


@pytest.mark.parametrize(
    "content, message",
    [
        (
            {"modles": ["minilm"]},
            r"sweep, key modles: wanted .*, found 'modles' \(did you mean 'models'\?\)",
        ),
        (
            {"finetune": {"sedes": 3}},
            r"key finetune.sedes: wanted .*, found 'sedes' \(did you mean 'seeds'\?\)",
        ),
        ({"finetune": {"seeds": "1-3"}}, "key finetune.seeds: wanted seeds such as 3"),
        ({"finetune": {"seeds": [1, 1]}}, "key finetune.seeds: wanted seeds from 0, each"),
        ({"finetune": {"recipe": "wu202"}}, r"did you mean 'wu2020'\?"),
        (
            {"finetune": {"freeze": "below:2"}},
            "key finetune.freeze = 'below:2': wanted none, bottom:K or top:K",
        ),
        (
            {"grids": [{"measure": "cka"}, {"measure": ["cka", "scvca"]}]},
            r"key grids\[1\].measure\[1\]: wanted .*found 'scvca' \(did you mean 'svcca",
        ),
        (
            {"grids": {"measure": "cka", "truncation": 3}},
            r"key grids\[0\].measure = 'cka': wanted no options but .* found truncation",
        ),
        ({"truncate": True}, r"the file: wanted a section \[finetune\], which \[truncate\]"),
        ({"keep": "some"}, "key keep: wanted one of all, representations, results"),
        ({"grids": {"bootstrap": -1}}, r"key grids\[0\].bootstrap: wanted greater than or"),
        (
            {"finetune": {"learning_rate": "fast"}},
            r"key finetune.learning_rate: wanted a number, found 'fast'$",
        ),
        ({"finetune": {}, "freeze": {"bottom": [0]}}, r"key freeze.bottom\[0\]: wanted gre"),
        ({"max_disk": 0}, "key max_disk: wanted a size such as '200 GB'"),
        ({"max_disk": "5 pounds"}, "key max_disk: wanted a size such as '200 GB'"),
        ({"models": None}, "key models: wanted this key, found none"),
        ({"models": []}, "key models: wanted .*at least 1 item"),
        (
            {"tasks": [{"name": "rt", "train_size": "many"}]},
            r"key tasks\[0\].train_size: wanted a whole number, found",
        ),
        ({"models": ["a{0..1}b{2..3}"]}, "wanted one range of restarts at most"),
        ({"models": ["a-{seed}"]}, "wanted a name with {seed} together with the key 'seeds'"),
        ({"extract": {"kind": "clss"}}, r"did you mean 'cls'\?"),
        (
            {"extract": {"pool": "mean"}},
            r"key extract\[0\].pool: wanted the key 'modules' beside this one, found 'mean'",
        ),
        (
            {"extract": {"modules": "*", "pool": "man"}},
            r"key extract\[0\].pool: wanted one of first, .*did you mean 'mean'",
        ),
        (
            {"extract": {"modules": "*", "kind": ["cls", "mean"]}},
            r"key extract\[0\].kind: wanted none beside 'modules', .*found 'cls, mean'",
        ),
        ({"extract": {"modules": []}}, r"key extract\[0\].modules: wanted .* at least 1 item"),
    ],
)
def test_a_mistake_is_named_in_one_line(content, message):
    changed = {**BASE, **content}
    with pytest.raises(UserError, match=message):
        make_spec({key: value for key, value in changed.items() if value is not None})


def test_a_file_is_read_and_its_name_stands_in_errors(tmp_path, simcore):
    file = tmp_path / "study.toml"
    file.write_text('models = ["minilm"]\ntasks = ["rt"]\n[finetune]\nseeds = "1..3"\n')
    spec = read_spec(file)
    assert spec.finetune.seeds == (1, 2, 3)
    assert [grid.measure for grid in spec.all_grids()] == [("cka",)]
    file.write_text("models = [")
    code, _, errors = simcore("sweep", file, "--plan")
    assert code == 2
    assert errors[0].startswith(f"error: sweep {file}: wanted TOML, found:")
    code, _, errors = simcore("sweep", tmp_path / "none.toml", "--plan")
    assert (code, len(errors)) == (2, 1)


def test_a_word_stands_for_a_list_and_true_for_an_empty_table():
    spec = make_spec({**BASE, "finetune": True, "skip": True, "grids": {"measure": "cka"}})
    assert spec.grids[0].measure == ("cka",)
    assert spec.skip is not None


def test_names_are_expanded_and_restarts_told_apart():
    found = restarts("google/multiberts-seed_{0..24}")
    assert [one.number for one in found] == list(range(25))
    assert {one.family for one in found} == {"multiberts"}
    assert found[3].name == "google/multiberts-seed_3"
    assert [one.name for one in restarts("bert-{base,large}-uncased")] == [
        "bert-base-uncased",
        "bert-large-uncased",
    ]
    assert [(one.name, one.number) for one in restarts("./pre-{seed}", (5, 2))] == [
        ("./pre-5", 5),
        ("./pre-2", 2),
    ]


def test_planning_loads_neither_torch_nor_transformers():
    code = (
        "import sys\nfrom simlab import Sweep\n"
        f"Sweep({BASE!r}).plan()\n"
        "print({'torch', 'transformers', 'pandas', 'pyarrow'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "wanted"), [("200 GB", 200 * 10**9), ("1.5 TB", 15 * 10**11), ("2 MiB", 2**21), (7, 7)]
)
def test_sizes_are_bytes_with_units(text, wanted):
    assert make_spec({**BASE, "max_disk": text}).max_disk == wanted


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ({"name": "rt"}, "rt"),
        ({"name": "qnli:data/qnli"}, "qnli"),
        ({"name": "hub:nyu-mll/glue:rte"}, "rte"),
        ({"name": "nyu-mll/glue:rte@main"}, "rte"),
        ({"name": "hub:nyu-mll/glue:rte", "text_column": "sentence1"}, "nyu-mll/glue:rte"),
        ({"name": "hub:org/data.v2"}, "org/data.v2"),
        ({"name": "data/Reviews.CSV"}, "Reviews"),
        ({"name": "images:data/pets.v2"}, "pets.v2"),
    ],
)
def test_a_task_is_called_as_the_commands_call_it(task, wanted):
    assert TaskEntry(**task).called == wanted


def test_a_folder_is_called_by_its_whole_name(tmp_path):
    folder = tmp_path / "reviews.v2"
    folder.mkdir()
    rows = pd.DataFrame({"text": [f"text {n}" for n in range(20)], "label": [0, 1] * 10})
    rows.to_csv(folder / "train.csv", index=False)
    name = str(folder)
    assert TaskEntry(name=name).called == load_task(name).name == load_corpus(name).name
