"""Figures drawn from the results table alone; this room computes no results.

* `draw`: `simlab.plot`, which writes every figure that a table has rows for.
* `style`: colours, curves, ticks and labels that all figures share.
* `metrics`: which metric of each task the figures show.
* `grids`: heatmaps of one measure, one for every comparison, with outlines drawn by `blocks`.
* `joint`: several models in one heatmap for every measure, and their localization scores.
* `truncation`: the metric with layer l fed straight to a head.
* `skipping`: the metric without every span of layers.
* `freezing`: metric, parameters and time of a step for each way of freezing.
* `training`: CKA of every layer with its state before training, recorded by `CKACallback`.
* `alignment`: which figures of maps a table has rows for: `errors` per layer, method and head,
  `injection`, and the `complexity` of layers, all drawn in `panels` side by side.
"""
