"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from bench import attention, cka, harness, measures

harness.main({"cka": cka.JOBS, "attention": attention.JOBS, "measures": measures.JOBS}, __doc__)
