"""`python -m bench`: every suite at scale, rows appended to bench/results/."""

from bench import cka

cka.main()
