"""Judge: a benchmark of measures of similarity on networks that this machine trains.

* `judge`: train the networks, score every measure, and rank them.
* `candidates`: the measures that are judged.
* `variants`: the measures of simcore, with their options.
* `functions`: measures in files of the user.
* `networks`: which networks there are, and what each says of held-out rows.
* `domain`: how a network is trained, with the change of its rows.
* `digits`: small ResNets on digits; `residual`: their block.
* `reviews`: small BERTs on reviews.
* `scores`: the tests, and what a measure scores in each.
* `criteria`: scores on networks that differ in their seed alone, with intervals and p-values.
* `groups`: scores on groups of networks that were trained in different ways.
* `dependence`: changes of values with rows, neurons, outliers and offsets.
* `ranks`: ranks of measures in each test, and over all tests.
* `figure`: every measure in every test.
* `tables`: ranks, scores and dependences as text.
* `write`: the page of all these, which ``page/`` is the template of.
"""
