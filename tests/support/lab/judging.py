"""One claim judged from the rows of one task."""

import dataclasses

from simlab.evidence.table import CLAIMS
from simlab.evidence.verdicts import corrected_verdicts
from simlab.results.results import to_frame
from support.lab.claimrows import OPTIONS

BY_NAME = {claim.name: claim for claim in CLAIMS}


def judged(name, frame, options=OPTIONS):
    """Return the findings of a claim."""
    return [one for _, one in corrected_verdicts(frame, [BY_NAME[name]], options)]


def estimates(name, rows, **changes):
    """Return the estimate of each quantity of a claim."""
    options = dataclasses.replace(OPTIONS, **changes)
    return [f.estimate for f in judged(name, to_frame(rows), options)]
