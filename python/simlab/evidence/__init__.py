"""Evidence for the claims of the papers, judged from the results table alone.

* `table`: `simlab.claims`, the table of claims: stored, and written as csv and Markdown.
* `catalogue`: every claim with its source, and the rule of its verdict.
* `claim`: what a claim, its evidence and its findings are.
* `options`: the metric, the tolerance, and which models are which.
* `judge`: from rows to findings, with errors over units and examples, and Holm's correction.
* `spreads`: the error over examples.
* `units`: which models and tasks are one unit.
* `intervals`: the jackknife over units, and p-values.
* `labels`: what labels say: which models are fine-tuned, and from which base model.
* `studies`: which errors of alignment a claim reads.
* `rows`: the rows of one task as claims read them.
* `phang`, `blocks`, `across` (grids between models), `contrasts` (between kinds of models): the
  evidence for claims of Phang et al.
* `wu`; `ren`, `after_tuning`: the same of Wu et al. and of Ren et al.
* `wording`: numbers and sentences that claims share.
"""
