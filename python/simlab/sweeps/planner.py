"""Make the plan of a sweep: every job that its file asks for, depth first.

For each task the jobs of one model stand together (fine-tuning, representations, and all that
needs this model alone), so that what the model leaves behind can go early. Jobs that compare
several models follow. Texts that models of all tasks read come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simlab.similarity.localization import NEEDED
from simlab.sweeps.comparisons import compare, grids_of, within
from simlab.sweeps.entries import require
from simlab.sweeps.members import Model, find_models
from simlab.sweeps.plan import ALIGN, INJECT, LOCALIZE, Plan
from simlab.sweeps.sources import Sources
from simlab.sweeps.spec import Spec
from simlab.sweeps.study import TaskStudy


def make_plan(spec: Spec, sources: Sources | None = None) -> Plan:
    """Return all jobs of a sweep, a job after the jobs that it needs."""
    sources = sources or Sources()
    plan = Plan(announced=sources.announced if spec.max_disk is not None else {})
    models = find_models(spec, sources)
    _require_labels(spec, models)
    studies: list[TaskStudy] = []
    for entry in spec.tasks:
        study = TaskStudy(spec, plan, entry, sources.task(entry.name), models)
        for member in study.add_models():
            within(study, member)
        study.add_freezing()
        study.add_baselines()
        compare(study)
        studies.append(study)
    of_tasks = [*studies]
    for on in dict.fromkeys(section.on for section in spec.extract if section.on is not None):
        study = TaskStudy(spec, plan, on, sources.task(on.name), models, corpus=True)
        for member in study.add_others(of_tasks):
            within(study, member)
        compare(study)
        studies.append(study)
    _require_all(spec, studies)
    return plan


def _require_labels(spec: Spec, models: Sequence[Model]) -> None:
    labels = [*dict.fromkeys(model.family for model in models)]
    for key, sections in (("extract", spec.extract), ("grids", spec.all_grids())):
        for label in (label for section in sections for label in section.models or ()):
            wanted = f"labels of models ({', '.join(labels)})"
            require(label in labels, f"{key}.models", wanted, repr(label))


def _require_all(spec: Spec, studies: Sequence[TaskStudy]) -> None:
    extracted = [*dict.fromkeys(view.kind for study in studies for view in study.views)]
    kinds, grids = ", ".join(extracted) or "none", spec.all_grids()
    sections: dict[str, Sequence[Any]] = {"grids": grids, "align": spec.align}
    sections["complexity"] = [spec.complexity] if spec.complexity else []
    for key, those in sections.items():
        for kind in (kind for section in those for kind in section.kind or ()):
            wanted = f"kinds of rows that are extracted ({kinds})"
            require(kind in extracted, f"{key}.kind", wanted, repr(kind))
    imported = [rows for study in studies for rows in study.imported]
    for label, rows in ((model.label, rows) for model in spec.models for rows in model.rows):
        wanted = f"an extraction of {rows.kind} rows of {rows.on.name}, split {rows.split}"
        wanted += f", which the rows of {label} stand beside"
        require(rows in imported, "models.rows", wanted)
    for section in grids:
        usable = {measure for study in studies for _, measure in grids_of(study, section)}
        for measure in section.measure:
            wanted = f"rows that measure {measure} takes"
            require(measure in usable, "grids", wanted, f"extracted kinds {kinds}")
        found = "none: restarts need two seeds of a model, models two models, and joint grids "
        found += "extracted rows of each of stages"
        are_there = any(section in study.compared for study in studies)
        require(are_there, "grids.between", f"models for {', '.join(section.between)}", found)
    two, planned = "two restarts of a model or more", studies[0].plan.counts()
    joint = f"joint grids of {' and '.join(NEEDED)} over one kind of rows"
    for kind, wanted in ((ALIGN, two), (INJECT, two), (LOCALIZE, joint)):
        require(kind in planned or getattr(spec, kind) in ((), None), kind, wanted)
