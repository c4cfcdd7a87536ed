"""Similarity: measures between stored representations, and what is read off their grids.

* `catalogue`: every measure that `simcore grid` has, its options and the range of its values.
* `grids`: `simlab.grid`, a measure between all layers, as rows of the results table.
* `localization`: `simlab.localize`, scores from joint grids of neuronsim and SVCCA.
* `blocks`: `simlab.blocks`, how block diagonal a grid of layers is.
"""
