"""Models: find, load, run and evaluate a model, layer by layer where an experiment needs it.

* `sources`: finding a model by name: the offline model, a local folder, the hub; patterns of names,
  and the steps of a training run in them.
* `hub`: the files that a model needs, and models of the hub in the cache of the hub's client.
* `adapters`: adapters of PEFT, merged into the weights of their base.
* `architectures`: the table of known architectures: layers, head, classifier token, as data.
* `recognise`: the architecture of a model, looked up in the table or found from its modules.
* `load`: configurations, tokenizers, encoders, classifiers, random twins.
* `damage`: what the files of a model lack, have in excess, or have that is no number.
* `classes`: models with a head: their classes, jiant's head, and whether a head fits a task.
* `place`: the device of a model, or its devices and the disk, and whether the model fits there.
* `built`: models that timm, torchvision or a function of the user builds.
* `tokens`: tokenised texts, their vocabulary, and the padding token that decoders look for.
* `batches`: padded batches of tokenised texts, and whether the rows of a text depend on the others,
  measured on a few texts.
* `states`: the states of every layer, and single layers or the model's own head on any states.
* `heads`: a head for every layer, all trained together on cached vectors, and their recipe.
* `evaluate`: layers, predictions and metric of a classifier; the perplexity of a decoder.
* `checkpoint`: a model with the record of its fine-tuning: its task, split and length.
"""
