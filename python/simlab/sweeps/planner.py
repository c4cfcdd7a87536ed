"""Make the plan of a sweep: every job that its file asks for, depth first.

For each task the jobs of one model stand together (fine-tuning, representations, and all that
needs this model alone), so that what the model leaves behind can go early. Jobs that compare
several models follow.
"""

from __future__ import annotations

from simlab.sweeps.comparisons import compare, within
from simlab.sweeps.fingerprints import Fingerprints
from simlab.sweeps.members import find_models
from simlab.sweeps.plan import Plan
from simlab.sweeps.spec import Spec
from simlab.sweeps.study import TaskStudy


def make_plan(spec: Spec, fingerprints: Fingerprints | None = None) -> Plan:
    """Return all jobs of a sweep, a job after the jobs that it needs.

    Parameters
    ----------
    fingerprints
        What keys contain of models and data; by default found anew.

    Raises
    ------
    UserError
        A local model or file does not exist, an option does not suit another, or two models have
        the same name.
    """
    prints = fingerprints or Fingerprints()
    plan = Plan()
    models = find_models(spec, prints.model)
    for entry in spec.tasks:
        study = TaskStudy(spec, plan, entry, prints.task(entry.name), models)
        for member in study.add_models():
            within(study, member)
        study.add_freezing()
        compare(study)
    return plan
