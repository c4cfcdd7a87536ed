"""Evidence for the claims of the papers, judged from the results table alone.

* `table`: `simlab.claims`, the table of claims: stored, and written as csv and Markdown.
* `catalogue`: every claim with its source, and the rule of its verdict.
* `claim`: what a claim, its evidence and its findings are.
* `options`: the metric, the tolerance, and which models are which.
* `judge`: from rows to findings, with errors over units and examples, and Holm's correction.
* `units`: which models and tasks are one unit.
* `intervals`: the jackknife over units, and p-values.
* `labels`: what labels say: which models are fine-tuned, and from which base model.
* `studies`: which errors of alignment a claim reads.
* `rows`: the rows of one task as claims read them.
* `blocks`, `phang`, `wu`, `ren`: the evidence for each claim, by paper (`blocks`: of `phang`).
* `wording`: numbers and sentences that claims share.
"""
