"""Plan maps between the layers of restarts, and models that continue from another's states.

Maps between models are fitted in batches of `PAIRS_AT_ONCE` pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from simlab.errors import UserError
from simlab.experiments.align_options import StudyOptions
from simlab.experiments.injection_options import InjectOptions
from simlab.experiments.options import BOTH
from simlab.store.results import ACROSS, ALIGNMENT, LEARNT
from simlab.store.results import WITHIN as WITHIN_MODEL
from simlab.sweeps import plan as kinds
from simlab.sweeps.members import Member, restart_pairs, sides_of
from simlab.sweeps.spec import AlignSection, InjectSection, pairs_of
from simlab.sweeps.study import TaskStudy, View
from simlab.tasks import SPLITS, TEST

HELDOUT, TRAIN = SPLITS
# Pairs of models in a job of maps. Maps that are trained take minutes for each pair.
PAIRS_AT_ONCE = {True: 5, False: 25}  # whether the map is learnt by gradient descent


def align(study: TaskStudy, section: AlignSection) -> None:
    """Add the maps of a section between restarts, within models, and across layers."""
    own = ("stages", "kind", "fit")
    settings = {k: v for k, v in section.given().items() if k not in own}
    chosen = study.chosen("align-study", settings)
    chosen["pairs"] = pairs_of(chosen.get("pairs"))
    if "methods" in chosen:
        chosen["methods"] = tuple(chosen["methods"])
    options = StudyOptions(**chosen)
    options.check()
    for view in study.views_of(section.kind, section.fit):
        judged = None
        if section.fit == TRAIN:
            others = (one for s in (TEST, HELDOUT) for one in study.views_of([view.kind], s))
            judged = next(others, None)
            if judged is None:
                raise UserError(
                    f"sweep, key align: wanted rows of split {TEST} or {HELDOUT} to judge maps on, "
                    f"found rows of {TRAIN} alone"
                )
        for stage in section.stages:
            members = [m for m in study.of_stage([stage]) if (m.label, view) in study.rows]
            drawn = (options.pairs, options.pair_seed, options.directions)
            pairs = list(restart_pairs(members, *drawn))
            parts = [(ALIGNMENT, pairs)]
            if options.within:
                parts.append((WITHIN_MODEL, [(m, m) for m in members]))
            if options.across_layers:
                parts.append((ACROSS, pairs))
            for part, of_part in parts:
                _maps(study, view, judged, stage, options, part, of_part)


def _maps(
    study: TaskStudy,
    view: View,
    judged: View | None,
    stage: str,
    options: StudyOptions,
    part: str,
    pairs: Sequence[tuple[Member, Member]],
) -> None:
    """Add the jobs of one part of a study: a job for each method and batch of pairs."""
    fixed = {k: v for k, v in asdict(options).items() if k not in ("methods", "at_once", "name")}
    for method in options.methods:
        size = PAIRS_AT_ONCE[method in LEARNT]
        for start in range(0, len(pairs), size):
            batch = pairs[start : start + size]
            members = list(dict.fromkeys(member for pair in batch for member in pair))
            needs = study.rows_of(view, members) or []
            if judged is not None:
                others = study.rows_of(judged, members)
                if others is None:
                    raise UserError(
                        f"sweep, key align: wanted rows of {judged.split} of every model"
                    )
                needs += others
            params = {
                "part": part,
                "method": method,
                "name": _study_name(options.name, stage),
                "options": fixed,
                "members": sides_of(members),
                "pairs": [[members.index(x), members.index(y)] for x, y in batch],
                "judged": judged is not None,
                "task": study.name,
            }
            title = study.title(f"{part}: {method}", stage.upper(), view.kind)
            study.plan.add(kinds.ALIGN, params, needs, {"at_once": options.at_once}, title)


def _study_name(name: str, stage: str) -> str:
    """Return the name of a study of one stage: figures draw the rows of a name together."""
    return stage.upper() if name == StudyOptions.name else f"{name}, {stage.upper()}"


def inject(study: TaskStudy, section: InjectSection) -> None:
    """Add the injections of a section between fine-tuned models."""
    own = ("layer", "pairs", "pair_seed", "directions")
    settings = study.chosen("inject", {k: v for k, v in section.given().items() if k != "layer"})
    tuned = [member for member in study.members if member.checkpoint is not None]
    drawn = (
        pairs_of(settings.get("pairs")),
        section.pair_seed or 0,
        settings.get("directions", BOTH),
    )
    pairs = list(restart_pairs(tuned, *drawn))
    chosen = {k: v for k, v in settings.items() if k not in own}
    if "methods" in chosen:
        chosen["methods"] = tuple(chosen["methods"])
    for layer in section.layer or (None,):
        options = InjectOptions(layer=layer, **chosen)
        options.check()
        for a, b in pairs:
            read, origin_jobs = study.origin(b.model)
            params = {
                "options": asdict(options),
                "sides": sides_of([a, b]),
                **({"original": read["model"]} if "model" in read else read),
                "task": study.name,
            }
            needs = [number for m in (a, b) if (number := m.checkpoint) is not None]
            needs += origin_jobs
            title = study.title(f"{a.label} into {b.label}")
            study.plan.add(kinds.INJECT, params, needs, study.hints(b.model), title)
