"""Make the plan of a sweep: every job that its file asks for, depth first.

For each task the jobs of one model stand together (fine-tuning, representations, and all that
needs this model alone), so that what the model leaves behind can go early. Jobs that compare
several models follow. Texts that models of all tasks read come last.
"""

from __future__ import annotations

from collections.abc import Sequence

from simlab.errors import UserError
from simlab.similarity.localization import NEEDED
from simlab.sweeps.comparisons import compare, grids_of, within
from simlab.sweeps.entries import TaskEntry
from simlab.sweeps.members import find_models
from simlab.sweeps.plan import ALIGN, INJECT, LOCALIZE, Plan
from simlab.sweeps.sources import Sources
from simlab.sweeps.spec import Spec
from simlab.sweeps.study import TaskStudy


def make_plan(spec: Spec, sources: Sources | None = None) -> Plan:
    """Return all jobs of a sweep, a job after the jobs that it needs.

    `sources`: what keys contain of models and data; by default found anew.
    """
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
    for entry in _corpora(spec):
        study = TaskStudy(spec, plan, entry, sources.task(entry.name), models, corpus=True)
        for member in study.add_others(studies):
            within(study, member)
        compare(study)
        corpora.append(study)
    _require_all(spec, [*studies, *corpora])
    return plan


def _corpora(spec: Spec) -> list[TaskEntry]:
    """Return the corpora that models of all tasks read, each once."""
    corpora: list[TaskEntry] = []
    for section in spec.extract:
        if section.on is not None and section.on not in corpora:
            corpora.append(section.on)
    return corpora


def _require_models(spec: Spec, labels: Sequence[str]) -> None:
    """Raise UserError if a section names a model that is not in the file."""
    for key, sections in (("extract", spec.extract), ("grids", spec.all_grids())):
        for section in sections:
            for label in section.models or ():
                if label not in labels:
                    raise UserError(
                        f"sweep, key {key}.models: wanted labels of models "
                        f"({', '.join(dict.fromkeys(labels))}), found {label!r}"
                    )


def _require_all(spec: Spec, studies: Sequence[TaskStudy]) -> None:
    """Check that every section of the file has jobs."""
    kinds = tuple(dict.fromkeys(v.kind for study in studies for v in study.views))
    extracted = ", ".join(kinds) or "none"
    for section in spec.all_grids():
        usable = {measure for study in studies for _, measure in grids_of(study, section)}
        for measure in section.measure:
            if measure not in usable:
                raise UserError(
                    f"sweep, key grids: wanted rows that measure {measure} takes, found extracted "
                    f"kinds {extracted}"
                )
    _require_kinds(spec, kinds)
    _require_imported(spec, studies)
    for section in spec.all_grids():
        if not any(section in study.compared for study in studies):
            raise UserError(
                f"sweep, key grids.between: wanted models for {', '.join(section.between)}, found "
                "none: restarts need two seeds of a model, models two models, and joint grids "
                "extracted rows of each of stages"
            )
    counts = studies[0].plan.counts()
    for key, asked, job in (("align", spec.align, ALIGN), ("inject", spec.inject, INJECT)):
        if asked and not counts.get(job):
            raise UserError(f"sweep, key {key}: wanted two restarts of a model or more, found none")
    if spec.localize is not None and not counts.get(LOCALIZE):
        raise UserError(
            f"sweep, key localize: wanted joint grids of {' and '.join(NEEDED)} over one kind of "
            "rows, found none"
        )


def _require_imported(spec: Spec, studies: Sequence[TaskStudy]) -> None:
    """Raise UserError if no extraction stores the rows that another program recorded."""
    imported = [rows for study in studies for rows in study.imported]
    for model in spec.models:
        for rows in model.rows:
            if rows not in imported:
                raise UserError(
                    f"sweep, key models.rows: wanted an extraction of {rows.kind} rows of "
                    f"{rows.on.name}, split {rows.split}, which the rows of {model.label} stand "
                    "beside, found none"
                )


def _require_kinds(spec: Spec, extracted: Sequence[str]) -> None:
    """Raise UserError if a section names a kind of rows that no extraction stores."""
    complexity = () if spec.complexity is None else (spec.complexity,)
    named = [
        *(("grids", section.kind) for section in spec.all_grids()),
        *(("align", section.kind) for section in spec.align),
        *(("complexity", section.kind) for section in complexity),
    ]
    for key, kinds in named:
        for kind in kinds or ():
            if kind not in extracted:
                raise UserError(
                    f"sweep, key {key}.kind: wanted kinds of rows that are extracted "
                    f"({', '.join(extracted) or 'none'}), found {kind!r}"
                )
