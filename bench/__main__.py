"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from bench import align, attention, cka, harness, measures, stats

SUITES = {
    "cka": cka.JOBS,
    "measures": measures.JOBS,
    "attention": attention.JOBS,
    "stats": stats.JOBS,
    "align": align.JOBS,
}

harness.main(SUITES, __doc__)
