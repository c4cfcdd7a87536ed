"""Figures drawn from the results table alone; this room computes no results.

* `draw`: `simlab.plot`, which writes every figure that a table has rows for.
* `table`: every input of a results table once, inputs with equal labels told apart, and the rows
  of each kind of figure; `measured`: the measure of rows in words, and its colours.
* `names`: which rows are seeds of one model, and the names and order of models.
* `style`: colours, curves, ticks and labels that all figures share; `heatmap`: the cells of grids.
* `panels`: models below each other and tasks side by side, or panels side by side.
* `grids`: heatmaps of one measure, one for every pair of models, with outlines drawn by `blocks`;
  `pairs` chooses which of them share a figure.
* `joint`: several models in one heatmap for every measure, and their localization scores.
* `step_grids`: one layer at every step of a training with itself at every other step.
* `truncation`: the metric with layer l fed straight to a head.
* `skipping`: the metric without every span of layers.
* `freezing`: metric, parameters and time of a step for each way of freezing.
* `training`: CKA of every layer with its state before training, recorded by `CKACallback`.
* `alignment`: which figures of maps a table has rows for: `errors` per layer, method and head,
  `injection`, and the `complexity` of layers, all drawn in
  `alignment_panels`.
"""
