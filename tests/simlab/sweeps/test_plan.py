"""Plans: which jobs a file asks for, their keys, and their order."""

import re

import pytest

from simlab.errors import UserError
from simlab.store import files
from simlab.sweeps.sources import Sources
from simlab.sweeps.spec import make_spec
from simlab.sweeps.sweep import make_plan

BASE = {"models": ["minilm"], "tasks": ["rt"], "finetune": {"seeds": "1..2", "max_steps": 5}}


def plan_of(**changes):
    return make_plan(make_spec({**BASE, **changes}))


def keys(**changes):
    """The keys of all jobs by kind and title."""
    return {(job.kind, job.title): job.key for job in plan_of(**changes).jobs}


def test_a_small_plan_is_as_it_was():
    jobs = plan_of().jobs
    assert [(job.kind, job.title, job.needs) for job in jobs] == [
        ("extract", "minilm-ORIG cls heldout rt", ()),
        ("grid", "ORIG-ORIG cka cls rt", (0,)),
        ("finetune", "minilm-FT[1] rt", ()),
        ("extract", "minilm-FT[1] cls heldout rt", (2,)),
        ("scores", "minilm-FT[1] rt", (2,)),
        ("grid", "FT-FT cka cls rt", (3,)),
        ("grid", "FT-ORIG cka cls rt", (3, 0)),
        ("finetune", "minilm-FT[2] rt", ()),
        ("extract", "minilm-FT[2] cls heldout rt", (7,)),
        ("scores", "minilm-FT[2] rt", (7,)),
        ("grid", "FT-FT cka cls rt", (8,)),
        ("grid", "FT-ORIG cka cls rt", (8, 0)),
        ("grid", "FT[1]-FT[2] cka cls rt", (3, 8)),
    ]
    # What changes a key makes every sweep begin anew.
    assert jobs[2].key[:16] == "6941e164b17976b4"
    assert jobs[3].key[:16] == "41be9093982a33b4"
    assert jobs[6].key[:16] == "6504ca66c2d4310e"


def test_bases_are_stored_for_many_grids_and_change_no_key():
    tuned = {"finetune": {"seeds": "1..3", "max_steps": 5}}
    measures = {"measure": ["svcca", "cca", "cka"]}
    plan = plan_of(**tuned, grids=measures)
    bases = [number for number, job in enumerate(plan.jobs) if job.kind == "bases"]
    assert [plan.jobs[number].title for number in bases] == [
        f"minilm-FT[{seed}] cls heldout rt" for seed in (1, 2, 3)
    ]
    grids = {job.title: job for job in plan.jobs if job.kind == "grid"}
    assert grids["FT[1]-FT[2] svcca cls rt"].needs[2:] == tuple(bases[:2])
    assert grids["FT[1]-FT[3] cca cls rt"].needs[2:] == (bases[0], bases[2])
    assert (
        len(grids["FT[1]-FT[2] cka cls rt"].needs) == len(grids["FT-ORIG svcca cls rt"].needs) == 2
    )
    assert grids["FT[1]-FT[2] svcca cls rt"].key[:16] == "9d808f00593a06e0"  # as without bases
    # One pair alone, and grids whose rows are drawn anew, decompose for themselves.
    assert "bases" not in plan_of(grids=measures).counts()
    assert "bases" not in plan_of(**tuned, grids={**measures, "bootstrap": 10}).counts()


@pytest.mark.parametrize(
    "changes, kinds",
    [
        (
            {"finetune": {"seeds": "1..2", "max_steps": 6}},
            {"finetune", "extract", "scores", "grid"},
        ),
        ({"tasks": [{"name": "rt", "split_seed": 1}]}, {"finetune", "extract", "scores", "grid"}),
        ({"extract": {"kind": "mean"}}, {"extract", "grid"}),
        ({"extract": {"limit": 10}}, {"extract", "grid"}),
        ({"extract": {"max_length": 32}}, {"extract", "grid"}),
        ({"extract": {"dtype": "float16"}}, {"extract", "grid"}),
        ({"grids": {"measure": "cka", "estimator": "biased"}}, {"grid"}),
        ({"grids": {"measure": "svcca"}}, {"grid"}),
        ({"grids": {"bootstrap": 10}}, {"grid"}),
        ({"models": [{"name": "minilm", "label": "other"}]}, {"scores", "grid"}),
        ({"models": ["./other-model"]}, {"finetune", "extract", "scores", "grid"}),
    ],
)
def test_what_changes_a_result_changes_its_key(changes, kinds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other-model").mkdir()
    (tmp_path / "other-model" / "config.json").write_text("{}")
    before = plan_of()
    after = {job.key for job in plan_of(**changes).jobs}
    changed = {job.kind for job in before.jobs if job.key not in after}
    assert changed == kinds


@pytest.mark.parametrize(
    "changes",
    [
        {"keep": "results"},
        {"max_disk": "1 GB"},
        {"figures": {"formats": "svg"}},
        {"finetune": {"max_steps": 5, "seeds": [1, 2], "batch_size": 32}},  # the default, named
        {"finetune": {"max_steps": 5, "seeds": [2, 1]}},
        {"finetune": {"max_steps": 5, "seeds": "1..3"}},
        {"tasks": ["stsb", "rt"]},
        {"grids": {"measure": ["svcca", "cka"]}},
        {"truncate": True, "skip": True, "grids": {}},
    ],
)
def test_what_changes_nothing_keeps_the_keys(changes):
    before = {job.key for job in plan_of().jobs}
    after = {job.key for job in plan_of(**changes).jobs}
    moved = [job.title for job in plan_of().jobs if job.key not in after]
    # The grid between restarts has a direction: with the seeds the other way, it is another grid.
    assert [title for title in moved if not title.startswith("FT[1]-FT[2]")] == []
    assert len(before & after) >= len(before) - 1


def test_the_content_of_a_file_counts_and_not_its_place(tmp_path):
    files = [tmp_path / name / "reviews.csv" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text("body,verdict\nx,good\n")
    columns = {"text_column": "body", "label_column": "verdict"}
    one, two = (keys(tasks=[{"name": str(file), **columns}]) for file in files)
    assert one == two
    files[1].write_text("body,verdict\ny,good\n")
    three = keys(tasks=[{"name": str(files[1]), **columns}])
    assert not set(one.values()) & set(three.values())


def test_files_of_one_name_in_two_folders_are_two_inputs(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "data.csv").write_text("body,verdict\nx,good\n")
    before = Sources(None).task(str(tmp_path))
    for split in ("train", "test"):
        (tmp_path / split / "data.csv").write_text(f"body,verdict\n{split},good\n")
        after = Sources(None).task(str(tmp_path))
        assert after != before
        before = after


def test_a_file_is_hashed_once(tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    memory = tmp_path / "fingerprints.json"
    monkeypatch.setattr(files, "_REST_NS", -1)  # else a file that was just written is read again
    first = Sources(memory)
    found = first.content("model", str(model))
    first.save()
    monkeypatch.setattr(files, "hash_file", None)
    assert Sources(memory).content("model", str(model)) == found
    (model / "config.json").write_text('{"changed": 1}')
    with pytest.raises(TypeError):
        Sources(memory).content("model", str(model))


def test_labels_of_restarts_and_seeds():
    def labels(seeds):
        plan = plan_of(models=["google/multiberts-seed_{0..1}"], finetune={"seeds": seeds})
        jobs = [job for job in plan.jobs if job.kind == "extract"]
        return [(job.hints["label"], job.hints["seed"]) for job in jobs]

    assert labels(42) == [
        ("multiberts-ORIG[0]", 0),
        ("multiberts-FT[0]", 0),
        ("multiberts-ORIG[1]", 1),
        ("multiberts-FT[1]", 1),
    ]
    assert labels([7, 8])[1:3] == [("multiberts[0]-FT[7]", 7), ("multiberts[0]-FT[8]", 8)]


def test_equal_names_are_refused():
    with pytest.raises(UserError, match="wanted another label for each model, found 'm'"):
        plan_of(models=[{"name": "minilm", "label": "m"}, {"name": "bert-base", "label": "m"}])


@pytest.mark.parametrize(
    ("model", "bases"),
    [
        ({"name": "minilm", "label": "mine"}, ["minilm"]),
        ({"name": "google/multiberts-seed_{0..1}", "label": "mine"}, ["google/multiberts"] * 2),
        ({"name": "org/run-{1..2}", "label": "mine"}, ["mine"] * 2),
        ({"name": "org/run-{1..2}"}, ["run"] * 2),
        ({"pretrain": {"texts": "rt"}, "seeds": "0..1", "label": "mine"}, ["mine"] * 2),
    ],
)
def test_a_base_has_the_name_that_commands_give_it(model, bases):
    """Restarts share a base also where their names do not say that they are restarts."""
    jobs = plan_of(models=[model]).jobs
    sides = [job.params["x"][0] for job in jobs if job.kind == "grid"]
    found = {side["label"]: side["base"] for side in sides if side["stage"] == "orig"}
    assert list(found.values()) == bases


def test_a_joint_grid_of_many_models_is_cut_into_tiles():
    models = ["google/multiberts-seed_{0..24}"]
    grids = [{"measure": ["cka", "svcca"], "between": "joint", "stages": "orig"}]
    jobs = [job for job in plan_of(models=models, grids=grids).jobs if job.kind == "grid"]
    of = {
        measure: [job for job in jobs if job.params["measure"] == measure]
        for measure in ("cka", "svcca")
    }
    assert len(of["cka"]) == 1
    assert len(of["svcca"]) == 15  # five tiles of five models, and their pairs
    pairs = set()
    for job in of["svcca"]:
        xs = [side["label"] for side in job.params["x"]]
        ys = xs if job.params["y"] is None else [side["label"] for side in job.params["y"]]
        pairs |= {(x, y) for x in xs for y in ys} | {(y, x) for x in xs for y in ys}
    assert len(pairs) == 25 * 25
    assert max(len(job.needs) for job in of["svcca"]) == 20  # layers, and their bases
    assert len({job.params["grid"] for job in of["svcca"]}) == 1
    assert "grid" not in of["cka"][0].params  # a grid of one job has the key of its command


def test_pairs_are_drawn():
    models = ["google/multiberts-seed_{0..5}"]
    grids = [{"between": "restarts", "pairs": 4, "pair_seed": 1, "stages": "orig"}]
    jobs = [job for job in plan_of(models=models, grids=grids).jobs if job.kind == "grid"]
    assert len(jobs) == 4
    assert all(re.fullmatch(r"ORIG\[\d\]-ORIG\[\d\]", job.params["comparison"]) for job in jobs)


def test_a_paper_sets_what_the_file_leaves_open():
    plan = plan_of(
        paper="ren2023", finetune={"seeds": "1..5"}, tasks=["mrpc"], align=[{"pairs": None}]
    )
    made = {job.kind: job.params for job in plan.jobs}
    assert made["finetune"]["recipe"]["epochs"] == 5
    assert made["extract"]["options"]["kind"] == "mean-all"
    assert made["extract"]["options"]["max_length"] == 128
    own = plan_of(paper="ren2023", finetune={"seeds": 1, "epochs": 1}, tasks=["mrpc"])
    assert own.jobs[-1].needs or own.counts()["finetune"] == 1
    tuned = next(job for job in own.jobs if job.kind == "finetune")
    assert tuned.params["recipe"]["epochs"] == 1


def test_injected_models_read_texts_of_the_length_in_the_file():
    """Models that are pretrained here may have fewer positions than the paper has tokens."""
    paper = {"paper": "ren2023", "finetune": {"seeds": "1..2"}}
    for inject, length in (({"pairs": 1}, 128), ({"pairs": 1, "max_length": 32}, 32)):
        jobs = [job for job in plan_of(**paper, inject=inject).jobs if job.kind == "inject"]
        assert [job.params["options"]["max_length"] for job in jobs] == [length]


def test_a_study_of_maps_has_one_stage():
    align = [{"methods": "linear"}, {"methods": "linear", "name": "mine"}]
    jobs = [job for job in plan_of(align=align).jobs if job.kind == "align"]
    assert [job.params["name"] for job in jobs] == ["FT", "mine, FT"]
    models = ["google/multiberts-seed_{0..1}"]
    both = [j for j in plan_of(models=models, align=align).jobs if j.kind == "align"]
    assert {job.params["name"] for job in both} == {"ORIG", "FT", "mine, ORIG", "mine, FT"}


def test_localization_needs_joint_grids():
    with pytest.raises(UserError, match="key localize: wanted joint grids of neuronsim and svcca"):
        plan_of(localize=True)


def test_a_grid_needs_rows_that_its_measure_takes():
    with pytest.raises(UserError, match="key grids: wanted rows that measure attention-js takes"):
        plan_of(grids=[{"measure": "attention-js"}])


def test_no_more_rows_than_a_task_has_are_extracted():
    for tasks in (["rt"], [{"name": "stsb", "heldout_size": 1000}]):
        with pytest.raises(UserError, match="limit: wanted at most the 1000 heldout rows"):
            plan_of(tasks=tasks, extract={"limit": 1001})
    plan_of(tasks=["stsb"], extract={"limit": 1001})  # nobody knows before it is read
    plan_of(extract={"limit": 4000, "split": "train"})


def test_models_of_all_tasks_read_one_corpus():
    plan = plan_of(
        models=["minilm", {"name": "gpt2", "finetune": False}],
        tasks=["rt", "stsb"],
        finetune={"seeds": 1},
        extract=[{"on": "rt", "kind": "mean", "limit": 20, "stages": ["orig", "ft", "random"]}],
        grids=[{"between": "joint", "stages": ["orig", "ft"]}, {"between": "tuning"}],
    )
    assert plan.counts() == {"finetune": 2, "extract": 6, "scores": 2, "grid": 3}
    made = [job for job in plan.jobs if job.kind == "extract"]
    assert [job.hints["label"] for job in made] == [
        "minilm-ORIG",
        "RANDOM minilm",
        "minilm-rt-FT[1]",
        "minilm-stsb-FT[1]",
        "gpt2-ORIG",
        "RANDOM gpt2",
    ]
    assert {job.params["options"]["split"] for job in made} == {"all"}
    assert made[1].params["options"]["random_init_seed"] == 0
    assert "random_init_seed" not in made[0].params["options"]
    (joint,) = [job for job in plan.jobs if job.kind == "grid" and job.params["joint"]]
    assert len(joint.needs) == 4


def test_all_pairs_take_the_place_of_a_paper_s_draw():
    models = ["google/multiberts-seed_{0..5}"]
    common = {"models": models, "tasks": ["mrpc"], "paper": "ren2023", "finetune": {}}
    for pairs, count in (("all", 15), (None, 8)):
        align = {"methods": "linear", "stages": "orig"} | ({"pairs": pairs} if pairs else {})
        jobs = plan_of(**common, align=[align]).jobs
        planned = [pair for job in jobs if job.kind == "align" for pair in job.params["pairs"]]
        assert len(planned) == count


def test_rows_of_modules_are_a_kind_of_their_own():
    modules = {"modules": "encoder.layer.*", "pool": "mean"}
    plan = plan_of(extract=[{}, modules], grids=[{"kind": "modules-mean"}, {"measure": "rsa"}])
    made = [job for job in plan.jobs if job.kind == "extract"]
    assert [job.title for job in made[:2]] == [
        "minilm-ORIG cls heldout rt",
        "minilm-ORIG modules-mean heldout rt",
    ]
    assert "modules" not in made[0].params
    assert (made[1].params["modules"], made[1].params["pool"]) == (["encoder.layer.*"], "mean")
    grids = [job.title for job in plan.jobs if job.kind == "grid"]
    assert grids[:3] == [
        "ORIG-ORIG cka modules-mean rt",
        "ORIG-ORIG rsa cls rt",
        "ORIG-ORIG rsa modules-mean rt",
    ]
    # A paper's choice of rows is that of hidden states.
    common = {"paper": "wu2020", "finetune": {"seeds": 1}, "grids": {"measure": "cka"}}
    (job, *_) = plan_of(**common, extract=modules).jobs
    assert "words" not in job.params["options"]
    assert job.params["modules"] == ["encoder.layer.*"]
    other = {**modules, "modules": "embeddings"}
    with pytest.raises(
        UserError, match=r"wanted one list of modules for rows of kind modules-mean"
    ):
        plan_of(extract=[modules, other])
    plan_of(extract=[modules, {**other, "pool": "first"}])


def test_a_model_that_cannot_be_tuned_is_refused():
    with pytest.raises(UserError, match="key models: wanted a model of transformers, found timm:r"):
        plan_of(models=["timm:resnet18"])


@pytest.mark.parametrize(
    ("section", "more"),
    [("grids", {"between": "restarts"}), ("align", {"methods": "cca"}), ("inject", {})],
)
def test_too_many_pairs_name_the_key(section, more):
    wanted = (
        f"sweep, key {section}.pairs = 2: wanted 1 to 1, the pairs of 2 restarts of minilm (ft)"
    )
    with pytest.raises(UserError, match=f"^{re.escape(wanted)}.*; pairs = 1 takes all$"):
        plan_of(**{section: {"pairs": 2, **more}})
