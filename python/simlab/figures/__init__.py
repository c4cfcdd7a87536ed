"""Figures: drawn from the results table alone; nothing is computed here.

* `draw`: `simlab.plot`, every figure that a table has rows for, written to files.
* `style`: how figures look and how they word things.
* `grids`: one measure, a heatmap for every comparison, with the outlines of `blocks`.
* `joint`: several models in one heatmap for every measure, and their localization scores.
* `truncation`: the metric when layer l goes straight to a head.
* `skipping`: the metric without every span of layers.
* `freezing`: metric, parameters and time of a step for each way of freezing.
* `training`: how far every layer moves in training, as `CKACallback` recorded it.
* `alignment`: errors of maps per layer and method, injection, complexity.
"""
