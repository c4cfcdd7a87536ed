"""What the papers claim, judged on the results table alone.

* `table`: `simlab.claims`, the table of verdicts: stored, and written as csv and text.
* `claims.toml`: every claim with its source and rule; `claim`: a claim, and its quantities.
* `phang`, `wu`, `ren`: the quantities of each claim in the rows of a task.
* `rows`: the rows of a task: which model is which, values as arrays, errors over the examples.
* `verdicts`: from quantities to verdicts: units, intervals, tests, Holm's correction.
"""
