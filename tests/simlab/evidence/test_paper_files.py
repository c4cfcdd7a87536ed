"""The papers' own sweep files can decide claims: rows as their plans name them, values planted.

These files have enough units: twelve tasks for Phang et al., four tasks of two models for Wu et
al., and 25 pretrained models for Ren et al.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from simlab import Sweep
from simlab.evidence.catalogue import CLAIMS
from simlab.evidence.claim import ARCHITECTURES, BOTH, MODELS, TASKS
from simlab.evidence.intervals import CANNOT, FAILS, HOLDS
from simlab.evidence.judge import judge
from simlab.experiments.align_options import StudyOptions
from simlab.experiments.injection_options import InjectOptions
from simlab.experiments.tuning import SETTINGS
from simlab.representations.kinds import ATTENTION
from simlab.store.results import (
    ALIGNMENT,
    CHOSEN,
    COMPLEXITY,
    FREEZING,
    FT,
    GRID,
    INJECTION,
    JOINT,
    LOCALIZATION,
    MSE,
    ORIG,
    RELATIVE,
    SKIPPING,
    TRUNCATIONS,
    ResultRow,
    Side,
    to_frame,
)
from support.lab.claimrows import OPTIONS, band, planted
from support.lab.judging import judged
from support.lab.wufiles import write_wu_files

FILES = Path(__file__).parents[3] / "examples" / "sweeps"
LAYERS = 8


def planned(name):
    """Return the jobs of a paper's sweep file."""
    plan = Sweep.from_file(FILES / f"{name}.toml").plan()
    return plan.jobs


def row(experiment, job, x, value, y=None, **more):
    """Return a row with the names that the plan gives its models."""
    sides = {f"{name}_x": fact for name, fact in vars(x).items()}
    sides |= {f"{name}_y": fact for name, fact in vars(y).items()} if y else {}
    names = {"measure": "accuracy", "n": 100, "task": job.params["task"]} | more
    return ResultRow(experiment=experiment, value=float(value), **names, **sides)


def cells(experiment, job, x, y, values):
    """Return the rows of a grid of two models, layer 0 first."""
    names = {"measure": job.params["measure"], "comparison": job.params["comparison"]}
    names["estimator"] = job.params["options"].get("estimator")
    return [
        row(experiment, job, x, value, y, layer_x=i, layer_y=j, **names)
        for (i, j), value in np.ndenumerate(values)
    ]


@pytest.fixture(scope="module")
def phang():
    """The plan's grids, truncation and skipping: ELECTRA has no blocks and needs its top."""
    draw, rows = np.random.default_rng(0), []
    for job in planned("phang2021"):
        if job.kind == "grid" and job.params["y"] in (None, job.params["x"]):
            (x,) = (Side(**one) for one in job.params["x"])
            if x.stage == FT:
                split = band() if "electra" in x.label else planted(4)
                rows += cells(GRID, job, x, x, split + draw.normal(0, 0.02, split.shape))
        elif job.kind == "grid":
            (x, y) = (Side(**one) for side in "xy" for one in job.params[side])
            if {x.stage, y.stage} == {FT, ORIG}:
                rows += cells(GRID, job, x, y, _change(x) + draw.normal(0, 0.02, (9, 9)))
            elif x.base != y.base:
                none = any("electra" in side.label for side in (x, y))
                values = band() if none else planted(4)
                rows += cells(GRID, job, x, y, values + draw.normal(0, 0.02, values.shape))
        elif job.kind in ("truncate", "skip"):
            x = Side(**job.params["side"])
            loss = 0.2 if "electra" in x.label else 0.0
            for layer in range(LAYERS + 1) if job.kind == "truncate" else ():
                for mode, low in (("untuned", 0.6), ("tuned", 0.6), ("tuned-orig", 0.5)):
                    value = 0.8 - loss * (layer < LAYERS) if layer > 4 else low
                    value += draw.normal(0, 0.002)
                    rows.append(row(TRUNCATIONS[mode], job, x, value, layer_x=layer))
            for i in range(LAYERS if job.kind == "skip" else 0):
                value = 0.7 + 0.01 * i + draw.normal(0, 0.002)
                rows.append(row(SKIPPING, job, x, value, layer_x=i, layer_y=i + 1))
            if job.kind == "skip":
                rows.append(row(SKIPPING, job, x, 0.8, layer_x=0, layer_y=0))
    return to_frame(rows)


def _change(x):
    """Return similarities before and after fine-tuning: the layers above the middle are new."""
    values = band()
    changed = np.arange(len(values)) > LAYERS // 2
    values[changed if x.stage == FT else (slice(None), changed)] = 0.1
    return values


@pytest.fixture(scope="module")
def wu(tmp_path_factory):
    """Joint grids, localization and freezing of the plan, as the paper has them.

    Top layers change and delocalize; between architectures CKA is as high as within one, and single
    neurons are unlike.
    """
    draw, rows = np.random.default_rng(0), []
    folder = tmp_path_factory.mktemp("corpora")
    write_wu_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        jobs = planned("wu2020")
    depth = np.arange(LAYERS + 1)
    for job in jobs:
        if job.kind == "grid" and job.params["measure"] in ("cka", "neuronsim"):
            left = [Side(**one) for one in job.params["x"]]
            right = [Side(**one) for one in job.params["y"] or job.params["x"]]
            for x, y in product(left, right):
                values = 0.9 - 0.05 * np.add.outer(depth, depth) / 2 + draw.normal(0, 0.001)
                if job.params["measure"] == "neuronsim" and x.base != y.base:
                    values = 0.2 * values
                rows += cells(JOINT, job, x, y, values)
        elif job.kind == "localize":
            grids = [jobs[number] for number in job.needs]
            sides = [Side(**s) for g in grids for s in [*g.params["x"], *(g.params["y"] or [])]]
            for x in dict.fromkeys(sides):
                scores = np.where(depth > LAYERS - 2, -0.3 * (x.stage == FT), 0.0)
                scores = scores + draw.normal(0, 0.02, scores.shape)
                names = {"measure": LOCALIZATION, "comparison": grids[0].params["comparison"]}
                names["options"] = json.dumps({"standardize": True})
                rows += [row(LOCALIZATION, job, x, v, layer_x=i, **names)
                         for i, v in enumerate(scores)]  # fmt: skip
        elif job.kind == "freeze":
            for x in (Side(**one) for one in job.params["sides"]):
                value = 0.8 - 0.1 * x.label.startswith("top") + draw.normal(0, 0.005)
                rows.append(row(FREEZING, job, x, value))
    return to_frame(rows)


def _error(layer, stage, kind, method):
    """Return an error that grows with depth, and in deep layers with fine-tuning."""
    if kind == ATTENTION:
        return 0.02
    moved = 1.5 if stage == FT and layer > LAYERS / 2 else 1.0
    return (0.2 if method == "inn" else 0.4) * moved * (1 + 0.1 * layer)


def _maps(job, draw):
    """Return the held-out errors of a job of maps between models; two heads have a map each."""
    method, options = job.params["method"], job.params["options"]
    kind = job.title.split()[-2]
    study = StudyOptions(job.params["name"], (method,), **options)
    protocol = {"method": method, "rows": "heldout", **study.protocol(ALIGNMENT, method, True)}
    members = [Side(**one) for one in job.params["members"]]
    ways = [{"head_x": 0, "head_y": 0}, {"head_x": 1, "head_y": 1}] if kind == ATTENTION else [{}]
    for x, y in ((members[i], members[j]) for i, j in job.params["pairs"]):
        for layer, measure, heads in product(range(1, LAYERS + 1), (MSE, RELATIVE), ways):
            value = _error(layer, x.stage, kind, method) * (1 + draw.normal(0, 0.01))
            names = {"comparison": study.name, "measure": measure, "kind": kind}
            names["options"] = json.dumps({**protocol, **heads})
            yield row(ALIGNMENT, job, x, value, y, layer_x=layer, layer_y=layer, **names)


@pytest.fixture(scope="module")
def ren():
    """Maps, injection and complexity of the plan on one task, all as the paper has them."""
    draw, rows = np.random.default_rng(0), []
    for job in planned("ren2023"):
        if job.params["task"] != "sst2":
            continue
        if job.kind == "align" and job.params["part"] == ALIGNMENT:
            if job.params["method"] in ("inn", "linear"):
                rows += _maps(job, draw)
        elif job.kind == "inject":
            x, y = (Side(**one) for one in job.params["sides"])
            chosen = InjectOptions(**job.params["options"])
            for method in chosen.methods:
                loss = {"itself": 0.0, "inn": 0.01}.get(method, 0.2)
                found = {CHOSEN: SETTINGS[method][-1]} if method in SETTINGS else {}
                options = json.dumps({"method": method, **chosen.protocol(method), **found})
                value = 0.9 - loss + draw.normal(0, 0.002)
                names = {"layer_x": LAYERS, "kind": chosen.tokens, "options": options}
                rows.append(row(INJECTION, job, x, value, y, **names))
        elif job.kind == "complexity":
            (x,) = (Side(**one) for one in job.params["x"])
            for layer in range(LAYERS + 1):
                value = (1 - 0.4 * (layer > LAYERS * 2 / 3)) * (1 + draw.normal(0, 0.01))
                names = {"measure": job.params["measure"], "kind": "mean-all", "layer_x": layer}
                rows.append(row(COMPLEXITY, job, x, value, **names))
    return to_frame(rows)


@pytest.mark.parametrize(
    "claim",
    ["block-diagonal", "top-layers-unlike-any", "top-layers-can-go", "tuned-beats-orig"],
)
def test_twelve_tasks_are_the_units_of_each_model_of_phang(phang, claim):
    found = [one for one in judged(claim, phang) if one.unit == TASKS]
    assert {one.base.rpartition("/")[2] for one in found} == {
        *("roberta-base", "albert-large-v2", "electra-base-discriminator"),
    }
    assert {one.interval.count for one in found} == {12}
    assert {one.verdict for one in found if "roberta" in one.base} == {HOLDS}
    assert CANNOT not in {one.verdict for one in found}


@pytest.mark.parametrize(
    "claim", ["electra-no-blocks", "electra-needs-top-layers", "families-share-blocks"]
)
def test_claims_on_several_models_have_twelve_units(phang, claim):
    found = judged(claim, phang)
    assert {(one.interval.count, one.verdict) for one in found} == {(12, HOLDS)}


@pytest.mark.deep
def test_holms_correction_over_all_claims_leaves_power(phang):
    """The paper's file has rows for a dozen claims, in twelve tasks with three models each."""
    found = {claim.name: some for claim, some in judge(phang, CLAIMS, OPTIONS)}
    assert sum(one.verdict != CANNOT for some in found.values() for one in some) > 30
    for claim in ("block-diagonal", "top-layers-unlike-any", "top-layers-can-go"):
        verdicts = {f.verdict for f in found[claim] if "roberta" in f.base and f.unit == TASKS}
        assert verdicts == {HOLDS}, claim
    for claim in ("electra-no-blocks", "electra-needs-top-layers", "families-share-blocks"):
        assert {one.verdict for one in found[claim]} == {HOLDS}, claim


@pytest.mark.deep
def test_holms_correction_over_all_claims_of_wu_leaves_power(wu):
    found = {claim.name: some for claim, some in judge(wu, CLAIMS, OPTIONS)}
    assert sum(one.verdict != CANNOT for some in found.values() for one in some) > 20
    for claim in ("top-layers-change", "tuning-delocalizes", "freeze-bottom"):
        assert {one.verdict for one in found[claim] if one.unit == BOTH} == {HOLDS}, claim
    for claim in ("representations-not-neurons", "lower-layers-alike"):
        assert {(one.interval.count, one.verdict) for one in found[claim]} == {(10, HOLDS)}, claim


@pytest.mark.deep
def test_holms_correction_over_all_claims_of_ren_leaves_power(ren):
    found = {claim.name: some for claim, some in judge(ren, CLAIMS, OPTIONS) if some}
    assert len(found) >= 7
    for claim, some in found.items():
        assert {one.verdict for one in some} == {HOLDS}, claim


@pytest.mark.parametrize("claim", ["top-layers-change", "tuning-delocalizes", "freeze-bottom"])
def test_the_tasks_of_both_models_are_the_units_of_wu(wu, claim):
    """On a corpus a fine-tuned model meets the model that it was, and its task is a unit."""
    found = judged(claim, wu)
    alone = [one for one in found if one.unit == TASKS]
    assert {one.base for one in alone} == {"google-bert/bert-base-cased", "xlnet/xlnet-base-cased"}
    assert {one.interval.count for one in alone} == {4}
    together = [one for one in found if one.unit == BOTH]
    assert {(one.interval.count, one.verdict) for one in together} == {(8, HOLDS)}


def test_the_headline_of_wu_holds_by_unbiased_cka(wu):
    """The file has biased CKA too, as the paper's figures, and the claim cannot hold by it."""
    estimators = set(wu.loc[wu["measure"] == "cka", "estimator"])
    assert estimators == {"biased", "unbiased"}
    found = judged("representations-not-neurons", wu)
    assert {(one.task, one.interval.count, one.verdict) for one in found} == {
        ("ptb-dev", 10, HOLDS),
        ("en_ewt-ud-dev", 10, HOLDS),
    }
    biased = judged("representations-not-neurons", wu[wu["estimator"].ne("unbiased").fillna(True)])
    assert {one.verdict for one in biased} == {CANNOT}


def test_claims_on_architectures_of_wu_have_ten_units(wu):
    found = [one for one in judged("lower-layers-alike", wu) if one.task == "ptb-dev"]
    assert [(one.unit, one.interval.count) for one in found] == [(ARCHITECTURES, 10)]


@pytest.mark.parametrize(
    "claim",
    [
        *("inn-beats-linear", "deeper-layers-vary", "attention-varies-less"),
        *("deep-layers-move-apart", "attention-is-kept", "inn-keeps-metric", "complexity-drops"),
    ],
)
def test_the_pretrained_models_are_the_units_of_ren(ren, claim):
    """All pairs, or eight drawn ones, of 25 models: as the paper says, every claim holds."""
    found = judged(claim, ren)
    assert {one.unit for one in found} == {MODELS}
    assert {one.verdict for one in found} == {HOLDS}
    fewest = min(one.interval.count for one in found)
    assert (
        fewest == 25 if claim != "inn-beats-linear" and claim != "inn-keeps-metric" else fewest > 8
    )


def test_a_claim_of_ren_that_is_not_so_fails(ren):
    other = ren.copy()
    both = other["options"].fillna("").str
    inn, linear = both.contains('"inn"'), both.contains('"linear"')
    other.loc[inn, "options"] = both.replace('"inn"', '"linear"')[inn]
    other.loc[linear, "options"] = both.replace('"linear"', '"inn"')[linear]
    assert {one.verdict for one in judged("inn-beats-linear", other)} == {FAILS}
