"""Experiments: models whose layers are cut off, left out, replaced or frozen; maps between layers.

Each experiment writes its rows into the results table, under names from `simlab.results.results`.

* `truncate`: `simlab.truncate`, the metric with every layer fed straight to a head; the majority
  class and a bag of words, for comparison.
* `shorten`: `simlab.shorten`, the first layers and a head as a checkpoint; `simlab.leave_out`, a
  decoder without a span of layers, and its perplexity.
* `skip`: `simlab.skip`, the metric without every contiguous span of layers.
* `influence`: `simlab.influence`, how much every contiguous span of layers turns the states.
* `inject`: `simlab.inject`, a model that continues from the hidden states of another.
* `injection`: the states of a pair of models, the maps between them, and the predictions.
* `align_study`: `simlab.align_study`, maps between the layers of stored representations.
* `align_rows`: the rows that maps are fitted on and judged on, and the nuclear norm of a layer,
  which is written beside their errors.
* `options`: the options of `align_study` and `inject`, and what both need: pairs, names of files,
  the search for the setting of a map, on a third split.
* `freeze_study`: `simlab.freeze_study`, the metric, parameters and time with frozen layers.
"""
