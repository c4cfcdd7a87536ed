"""Make the plan of a sweep: every job that its file asks for, depth first.

For each task the jobs of one model stand together (fine-tuning, representations, and all that
needs this model alone), so that what the model leaves behind can go early. Jobs that compare
several models follow. Texts that models of all tasks read come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simlab.errors import UserError
from simlab.similarity.localization import NEEDED
from simlab.sweeps.comparisons import compare, grids_of, within
from simlab.sweeps.members import find_models
from simlab.sweeps.plan import ALIGN, INJECT, LOCALIZE, Plan
from simlab.sweeps.sources import Sources
from simlab.sweeps.spec import Spec
from simlab.sweeps.study import TaskStudy


def make_plan(spec: Spec, sources: Sources | None = None) -> Plan:
    """Return all jobs of a sweep, a job after the jobs that it needs."""
    sources = sources or Sources()
    plan = Plan(announced=sources.announced if spec.max_disk is not None else {})
    models = find_models(spec, sources)
    _require_models(spec, [model.family for model in models])
    studies = []
    for entry in spec.tasks:
        study = TaskStudy(spec, plan, entry, sources.task(entry.name), models)
        for member in study.add_models():
            within(study, member)
        study.add_freezing()
        study.add_baselines()
        compare(study)
        studies.append(study)
    corpora = []
    for on in dict.fromkeys(section.on for section in spec.extract if section.on is not None):
        study = TaskStudy(spec, plan, on, sources.task(on.name), models, corpus=True)
        for member in study.add_others(studies):
            within(study, member)
        compare(study)
        corpora.append(study)
    _require_all(spec, [*studies, *corpora])
    return plan


def _require_models(spec: Spec, labels: Sequence[str]) -> None:
    """Raise UserError if a section names a model that is not in the file."""
    for key, sections in (("extract", spec.extract), ("grids", spec.all_grids())):
        for label in (label for section in sections for label in section.models or ()):
            if label not in labels:
                wanted = f"labels of models ({', '.join(dict.fromkeys(labels))})"
                raise UserError(f"sweep, key {key}.models: wanted {wanted}, found {label!r}")


def _require_all(spec: Spec, studies: Sequence[TaskStudy]) -> None:
    """Raise UserError if a section of the file names rows that are not stored, or has no jobs."""
    extracted = [*dict.fromkeys(view.kind for study in studies for view in study.views)]
    sections: list[tuple[str, Any]] = [("grids", grid) for grid in spec.all_grids()]
    sections += [("align", of_maps) for of_maps in spec.align]
    sections += [] if spec.complexity is None else [("complexity", spec.complexity)]
    for key, section in sections:
        for kind in section.kind or ():
            if kind not in extracted:
                stored = f"kinds of rows that are extracted ({', '.join(extracted) or 'none'})"
                raise UserError(f"sweep, key {key}.kind: wanted {stored}, found {kind!r}")
    imported = [rows for study in studies for rows in study.imported]
    for label, rows in ((model.label, rows) for model in spec.models for rows in model.rows):
        if rows not in imported:
            raise UserError(
                f"sweep, key models.rows: wanted an extraction of {rows.kind} rows of "
                f"{rows.on.name}, split {rows.split}, which the rows of {label} stand beside, "
                "found none"
            )
    for grids in spec.all_grids():
        usable = {measure for study in studies for _, measure in grids_of(study, grids)}
        if unused := [measure for measure in grids.measure if measure not in usable]:
            raise UserError(
                f"sweep, key grids: wanted rows that measure {unused[0]} takes, found extracted "
                f"kinds {', '.join(extracted) or 'none'}"
            )
        if not any(grids in study.compared for study in studies):
            raise UserError(
                f"sweep, key grids.between: wanted models for {', '.join(grids.between)}, found "
                "none: restarts need two seeds of a model, models two models, and joint grids "
                "extracted rows of each of stages"
            )
    two = "two restarts of a model or more"
    joint = f"joint grids of {' and '.join(NEEDED)} over one kind of rows"
    for key, kind, wanted in (
        ("align", ALIGN, two), ("inject", INJECT, two), ("localize", LOCALIZE, joint)
    ):  # fmt: skip
        if getattr(spec, key) not in ((), None) and kind not in studies[0].plan.counts():
            raise UserError(f"sweep, key {key}: wanted {wanted}, found none")
