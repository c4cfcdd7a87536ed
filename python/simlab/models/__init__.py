"""Models: from a name to a model that is loaded, run and evaluated, layer by layer if need be.

* `sources`: where a model is: the offline one, a local folder, the hub; patterns of names.
* `architectures`: the table of encoder families: layers, head, classifier token, as data.
* `families`: which family a model is of, also one that nobody stated.
* `load`: configurations, tokenizers, encoders, classifiers, random twins.
* `batches`: from texts to padded batches.
* `states`: the hidden states of every layer, and the model's own head on any of them.
* `chain`: the layers one by one, on any hidden states.
* `heads`: one head for every layer, trained at once on cached vectors.
* `evaluate`: what a classifier answers on examples, and what the answers score.
"""
