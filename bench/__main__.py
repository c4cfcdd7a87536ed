"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from bench import (
    align,
    attention,
    cka,
    coupling,
    distances,
    harness,
    matching,
    measures,
    neighbours,
    record,
    skip,
    stats,
)

SUITES = {
    "cka": cka.JOBS,
    "measures": measures.JOBS,
    "matching": matching.JOBS,
    "neighbours": neighbours.JOBS,
    "distances": distances.JOBS,
    "attention": attention.JOBS,
    "coupling": coupling.JOBS,
    "stats": stats.JOBS,
    "skip": skip.JOBS,
    "align": align.JOBS,
    "record": record.JOBS,
}

harness.main(SUITES, __doc__)
