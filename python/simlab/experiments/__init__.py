"""Experiments: what becomes of models whose layers are cut off, left out, replaced or frozen.

Each writes its rows into the results table, under the names that `simlab.store.results` has.

* `truncate`: `simlab.truncate`, every layer straight to a head.
* `advice`: how many layers a task needs, from a truncation.
* `shorten`: `simlab.shorten`, the first layers and a head as a checkpoint.
* `skip`: `simlab.skip`, the metric without every contiguous span of layers.
* `inject`: `simlab.inject`, one model going on from another's hidden states.
* `align_study`: `simlab.align_study`, maps between the layers of stored representations.
* `study_files`: what `align_study` calls its files, and old ones beside them.
* `complexity`: the nuclear norm of a layer, which `align_study` notes beside the maps.
* `freeze_study`: `simlab.freeze_study`, what freezing layers costs and saves.
* `baselines`: what a fine-tuned model has to beat.
"""
