"""Experiments: models whose layers are cut off, left out, replaced or frozen; maps between layers.

Each experiment writes its rows into the results table, under names from `simlab.store.results`.

* `truncate`: `simlab.truncate`, the metric with every layer fed straight to a head.
* `advice`: the fewest layers that a task needs, from a truncation.
* `shorten`: `simlab.shorten`, the first layers and a head as a checkpoint.
* `skip`: `simlab.skip`, the metric without every contiguous span of layers.
* `spans`: which spans there are.
* `influence`: `simlab.influence`, how much every contiguous span of layers turns the states.
* `leave_out`: `simlab.leave_out`, a decoder without a span of layers, and its perplexity.
* `inject`: `simlab.inject`, a model that continues from the hidden states of another, and
  `simlab.inject_pairs`, several pairs.
* `injection_options`: which layer, tokens and maps, and which rows the maps are fitted on.
* `injection_states`: the states of two models that maps are fitted on, and that they map.
* `injection_pair`: the maps of a pair of models, and the predictions with them.
* `align_study`: `simlab.align_study`, maps between the layers of stored representations.
* `align_options`, `align_rows`, `align_part`: its options, the rows that maps are fitted on and
  judged on, and the maps between two models.
* `tuning`: the search for the setting of a map, on a third split.
* `subject`: a fine-tuned model and the task that it is scored on, opened once.
* `options`: the options of maps, which `inject` and `align_study` have in common, and checks.
* `study_files`: the names of the files of `align_study` and of several injections.
* `complexity`: the nuclear norm of a layer, which `align_study` writes beside the errors of maps.
* `freeze_study`: `simlab.freeze_study`, the metric, parameters and time with frozen layers.
* `baselines`: the majority class and a bag of words, for comparison with a fine-tuned model.
"""
