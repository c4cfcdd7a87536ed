"""Plan what compares layers: grids, what is computed from grids, maps, and injections.

A joint grid of many models is one job where the measure is cheap enough, and else a job for each
tile of models: `TILE` models on each side, whose layers are decomposed once for all pairs of the
tile. Maps between models are fitted in batches of `PAIRS_AT_ONCE` pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import combinations_with_replacement
from typing import Any

from simlab.experiments.align_rows import COMPLEXITIES
from simlab.experiments.options import BOTH, InjectOptions, StudyOptions
from simlab.models.place import AUTO
from simlab.representations.kinds import ATTENTION
from simlab.results.results import ACROSS, ALIGNMENT, LEARNT, ORIG
from simlab.results.results import WITHIN as WITHIN_MODEL
from simlab.similarity.blocks import CLUSTERS, PERMUTATIONS
from simlab.similarity.catalogue import MEASURES, settings
from simlab.similarity.layers import BASED
from simlab.similarity.localization import NEEDED
from simlab.store.files import hash_json
from simlab.sweeps import plan as kinds
from simlab.sweeps import spec
from simlab.sweeps.disk import bases_bytes
from simlab.sweeps.entries import require, under_key
from simlab.sweeps.members import (
    DEFAULT,
    Member,
    model_pairs,
    restart_pairs,
    runs_of,
    short,
    sides_of,
    step_pairs,
)
from simlab.sweeps.study import TaskStudy, View
from simlab.tasks import SPLITS, TEST

# Models on each side of a tile of a joint grid. CKA and RSA contract Gram matrices of all layers at
# once, so that one job of 25 models x 13 layers is cheaper than its tiles; the other measures cost
# the same for each pair of layers.
TILE = dict.fromkeys(MEASURES, 5) | {"cka": 25, "rsa": 25, "linreg": 25}
TILE |= dict.fromkeys(("distance-correlation", "rsm-difference", "gulp", "eigenspace-overlap"), 25)
TILE |= dict.fromkeys(("cosine", "angular", "magnitude", "concentricity", "uniformity"), 25)


def within(study: TaskStudy, member: Member) -> None:
    """Add the grids of one model: its layers with each other, and with the original's layers."""
    stage = member.stage.upper()
    for section in study.spec.all_grids():
        if member.stage not in section.stages or not member.model.is_of(section.models):
            continue
        for view, measure in grids_of(study, section):
            if spec.WITHIN in section.between:
                _grid(study, section, view, measure, [member], [member], f"{stage}-{stage}")
            if spec.TUNING in section.between and member.stage != ORIG:
                orig = study.originals[member.model]
                _grid(study, section, view, measure, [member], [orig], f"{stage}-{ORIG.upper()}")
    complexity = study.spec.complexity
    if complexity is None or member.stage not in complexity.stages:
        return
    for view in study.views_of(complexity.kind):
        if (needs := study.rows_of(view, [member])) is not None:
            for measure in COMPLEXITIES:
                title = member.label, measure, view.kind
                params: dict[str, Any] = {"measure": measure, "x": sides_of([member])}
                study.add(kinds.COMPLEXITY, needs, {}, *title, **params)


def compare(study: TaskStudy) -> None:
    """Add what compares several models of a task."""
    with under_key("grids"):
        for section in study.spec.all_grids():
            _between(study, section)
    if study.spec.localize is not None:
        _localize(study, study.spec.localize)
    for of_maps in () if study.corpus else study.spec.align:
        with under_key("align"):
            _align(study, of_maps)
    for injected in () if study.corpus else study.spec.inject:
        with under_key("inject"):
            _inject(study, injected)


def _between(study: TaskStudy, section: spec.GridSection) -> None:
    """Add the grids of a section between restarts, models and steps, and of all models together."""
    members = [m for m in study.of_stage(section.stages) if m.model.is_of(section.models)]
    how = spec.pairs_of(section.pairs), section.pair_seed or 0
    for view, measure in grids_of(study, section):
        pairs: list[tuple[str, Member, Member]] = []
        if spec.RESTARTS in section.between:
            drawn = restart_pairs(members, *how)
            pairs += [(f"{short(x)}-{short(y)}", x, y) for x, y in drawn]
        if spec.MODELS in section.between:
            drawn = model_pairs(members, *how)
            families = ((f"{x.model.family}-{y.model.family}", x, y) for x, y in drawn)
            pairs += [(f"{x.stage.upper()} {name}", x, y) for name, x, y in families]
        if spec.STEPS in section.between:
            pairs += step_pairs(members, section.to or (() if section.layer else DEFAULT))
        for name, x, y in pairs:
            _grid(study, section, view, measure, [x], [y], name, one_of_many=len(pairs) > 1)
        if spec.STEPS in section.between:
            for name, run in runs_of(members):
                for layer in section.layer or ():
                    named = f"{name} steps, layer {layer}"
                    _joint(study, section, view, measure, run, named, layer)
        if spec.JOINT in section.between:
            stages = dict.fromkeys(member.stage.upper() for member in members)
            named = " ".join([*(section.models or ()), " + ".join(stages)])
            _joint(study, section, view, measure, members, named)


def grids_of(study: TaskStudy, section: spec.GridSection) -> Iterator[tuple[View, str]]:
    """Yield every view with every measure that takes it."""
    for measure in section.measure:
        for view in study.views_of(section.kind, section.split):
            record, attention = MEASURES[measure], view.kind == ATTENTION
            if record.takes_attention if attention else record.takes_representations:
                yield view, measure


def _grid(
    study: TaskStudy,
    section: spec.GridSection,
    view: View,
    measure: str,
    xs: Sequence[Member],
    ys: Sequence[Member],
    comparison: str,
    joint: Sequence[Member] = (),
    layer: int | None = None,
    one_of_many: bool = False,
) -> None:
    """Add a grid, or a tile of a joint grid of some members, unless a side is not extracted."""
    same = list(xs) == list(ys)
    members = list(xs) if same else [*xs, *ys]
    needs = study.rows_of(view, members)
    if needs is None:
        return
    chosen = study.chosen("grid", section.options(), measure=measure, kind=view.kind)
    options = settings(measure, {k: v for k, v in chosen.items() if k in MEASURES[measure].options})
    params: dict[str, Any] = {"measure": measure, "options": options, "comparison": comparison}
    params |= {"x": sides_of(xs), "y": None if same else sides_of(ys), "joint": bool(joint)}
    params |= {"resampling": section.resampling().inputs}
    params |= {} if layer is None else {"layer": layer}
    if joint and one_of_many:  # the tiles of a grid share its key
        all_rows = [study.plan.jobs[n].key for n in study.rows_of(view, joint) or ()]
        whole = {**params, "task": study.name, "x": sides_of(joint), "y": None}
        params["grid"] = hash_json([whole, all_rows])
    through: list[int] = []  # bases, worth storing where other grids compare the same layers
    if one_of_many and measure in BASED and view.kind != ATTENTION and not params["resampling"]:
        how = {"standardize": options.get("standardize", False)}
        for member, rows in zip(members, needs, strict=True):
            model = member.model.pretraining or member.model.name
            size = {"bytes": bases_bytes(model, study.plan.jobs[rows].hints["bytes"])}
            named = f"{member.label} {view.kind} {view.split} {study.name}"
            through.append(study.plan.add(kinds.BASES, how, [rows], size, named))
    title, where = (comparison, measure, view.kind), {"device": section.device or AUTO}
    number = study.add(kinds.GRID, needs, where, *title, through=through, **params)
    study.compared.append(section)
    if study.spec.blocks is not None and same and not joint:
        drawn = {"clusters": CLUSTERS, "permutations": PERMUTATIONS, "resampling_seed": 0}
        options = drawn | study.spec.blocks.given()
        study.add(kinds.BLOCKS, [number], {}, *title, options=options)


def _joint(
    study: TaskStudy,
    section: spec.GridSection,
    view: View,
    measure: str,
    members: Sequence[Member],
    name: str,
    layer: int | None = None,
) -> None:
    """Add the grid of all layers (or one layer) of all members, in tiles of many models."""
    stages = dict.fromkeys(member.stage for member in members)
    members = [member for member in members if (member.label, view) in study.rows]
    lacking = [stage for stage in stages if stage not in {member.stage for member in members}]
    if lacking:
        if members:
            why = f"whose {view.kind} rows of stage {' and '.join(lacking)} are not extracted"
            study.plan.leave_out(f"joint grid {name}", study.name, why)
        return
    size = TILE[measure]
    tiles = [members[start : start + size] for start in range(0, len(members), size)]
    for xs, ys in combinations_with_replacement(tiles, 2):
        _grid(study, section, view, measure, xs, ys, name, members, layer, len(tiles) > 1)


def _localize(study: TaskStudy, section: spec.LocalizeSection) -> None:
    joint_grids: dict[tuple[Any, ...], dict[str, list[int]]] = {}
    for number, job in enumerate(study.plan.jobs):
        if job.kind != kinds.GRID or not job.params["joint"] or job.params["task"] != study.name:
            continue
        if "layer" in job.params:  # steps of a training, and not models, are compared
            continue
        view = next(view for (_, view), n in study.rows.items() if n == job.needs[0])
        measures = joint_grids.setdefault((job.params["comparison"], view), {})
        measures.setdefault(job.params["measure"], []).append(number)
    for measures in (found for found in joint_grids.values() if set(NEEDED) <= found.keys()):
        grids = [number for name in NEEDED for number in measures[name]]
        chosen = study.chosen("localize", {"standardize": section.standardize})
        params = {"standardize": False, **chosen}
        study.add(kinds.LOCALIZE, grids, {}, "localization", **params)


HELDOUT, TRAIN = SPLITS
# Pairs of models in a job of maps. Maps that are trained take minutes for each pair.
PAIRS_AT_ONCE = {True: 5, False: 25}  # whether the map is learnt by gradient descent


def _align(study: TaskStudy, section: spec.AlignSection) -> None:
    chosen = study.chosen("align-study", section.given(without=("stages", "kind", "fit")))
    chosen["pairs"] = spec.pairs_of(chosen.get("pairs"))
    options = StudyOptions(**chosen)
    options.check()
    for view in study.views_of(section.kind, section.fit):
        judged = None
        if section.fit == TRAIN:
            others = (one for s in (TEST, HELDOUT) for one in study.views_of([view.kind], s))
            judged = next(others, None)
            wanted = f"rows of split {TEST} or {HELDOUT} to judge maps on"
            require(judged is not None, "align", wanted, f"rows of {TRAIN} alone")
        for stage in section.stages:
            members = [m for m in study.of_stage([stage]) if (m.label, view) in study.rows]
            drawn = (options.pairs, options.pair_seed, options.directions)
            pairs = list(restart_pairs(members, *drawn))
            _maps(study, view, judged, options, ALIGNMENT, pairs)
            if options.within:
                _maps(study, view, judged, options, WITHIN_MODEL, [(m, m) for m in members])
            if options.across_layers:
                _maps(study, view, judged, options, ACROSS, pairs)


def _maps(
    study: TaskStudy,
    view: View,
    judged: View | None,
    options: StudyOptions,
    part: str,
    pairs: Sequence[tuple[Member, Member]],
) -> None:
    """Add the jobs of one part of a study: a job for each method and batch of pairs."""
    if not pairs:
        return
    fixed = {k: v for k, v in asdict(options).items() if k not in ("methods", "at_once", "name")}
    name = stage = pairs[0][0].stage.upper()  # figures draw the rows of a name together
    if options.name != StudyOptions.name:
        name = f"{options.name}, {stage}"
    for method in options.methods:
        size = PAIRS_AT_ONCE[method in LEARNT]
        for start in range(0, len(pairs), size):
            batch = pairs[start : start + size]
            members = list(dict.fromkeys(member for pair in batch for member in pair))
            needs = study.rows_of(view, members) or []
            if judged is not None:
                others = study.rows_of(judged, members)
                require(others is not None, "align", f"rows of {judged.split} of every model")
                needs += others or []
            params: dict[str, Any] = {
                "part": part,
                "method": method,
                "name": name,
                "options": fixed,
            }
            params |= {"members": sides_of(members), "judged": judged is not None}
            params |= {"pairs": [[members.index(x), members.index(y)] for x, y in batch]}
            title, hints = (f"{part}: {method}", stage, view.kind), {"at_once": options.at_once}
            study.add(kinds.ALIGN, needs, hints, *title, **params)


def _inject(study: TaskStudy, section: spec.InjectSection) -> None:
    chosen = study.chosen("inject", section.given(without=("layer",)))
    tuned = [member for member in study.members if member.checkpoint is not None]
    chosen.pop("pair_seed", None)
    drawn = spec.pairs_of(chosen.pop("pairs", None)), section.pair_seed or 0
    pairs = list(restart_pairs(tuned, *drawn, chosen.pop("directions", BOTH)))
    for layer in section.layer or (None,):
        options = InjectOptions(layer=layer, **chosen)
        options.check()
        for a, b in pairs:
            read, needs = study.origin(b.model)
            params: dict[str, Any] = {"options": asdict(options), "sides": sides_of([a, b])}
            params |= {"original": read["model"]} if "model" in read else read
            checkpoints = [number for m in (a, b) if (number := m.checkpoint) is not None]
            title = f"{a.label} into {b.label}"
            hints = study.hints(b.model)
            study.add(kinds.INJECT, [*checkpoints, *needs], hints, title, **params)
