"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from bench import attention, cka, harness

harness.main({"cka": cka.JOBS, "attention": attention.JOBS}, __doc__)
