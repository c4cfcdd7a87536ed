"""Judge: what a measure of similarity should get right.

* `variants`: the measures of simcore, with their options.
* `residual`: the block of small ResNets.
* `criteria`: scores on networks that differ in their seed alone, with intervals and p-values.
"""
