"""Models: find, load, run and evaluate a model, layer by layer where an experiment needs it.

* `sources`: finding a model by name: the offline model, a local folder, the hub; name patterns.
* `revisions`: the revisions of a training run, on the hub or as folders: names, numbers, order.
* `files`: the files that a model needs: configuration, vocabulary, weights and their index.
* `hub`: models in the cache of the hub's client, and downloads of what is missing there.
* `architectures`: the table of known architectures: layers, head, classifier token, as data.
* `recognise`: the architecture of a model, looked up in the table or found from its modules.
* `load`: configurations, tokenizers, encoders, classifiers, random twins.
* `classes`: the class of a model with a head, of transformers or with jiant's head.
* `damage`: what libraries say of a model's files, in one line; what they leave out without a word.
* `fitting`: whether a head fits a task, and its outputs in the order of the classes.
* `place`: the device of a model, or its devices and the disk, and whether the model fits there.
* `built`: models that timm, torchvision or a function of the user builds.
* `batches`: padded batches of tokenised texts, and batches of images.
* `alone`: whether the rows of a text depend on the texts of its batch, measured on a few texts.
* `padding`: the padding token, which heads of decoders look for.
* `vocabulary`: whether a tokenizer knows its texts, and a model the tokens.
* `states`: the states of every layer, and single layers or the model's own head on any states.
* `heads`: a head for every layer, all trained together on cached vectors, and their recipe.
* `decoder`: a decoder with its head for words, and its perplexity.
* `evaluate`: the layers and predictions of a classifier on examples, and their metric.
* `checkpoint`: a model with the record of its fine-tuning: its task, split and length.
"""
