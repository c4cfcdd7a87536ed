"""Training: from a model and a task to a fine-tuned checkpoint; from texts to a pretrained model.

* `finetune`: `simlab.finetune`; seeded, resumable, atomic; the parameters frozen with a layer.
* `recipes`: the recipes of the papers by name, that of pretraining, and lists of seeds.
* `pretrain`: `simlab.pretrain`: a BERT or a decoder from scratch; `language` has words, rows of
  tokens, masks, the loss, and the steps that are kept.
* `trainer`: the Hugging Face Trainer with an order of rows that can be resumed; times of steps.
* `callbacks`: `simlab.CKACallback`, which records the CKA of every layer with its initial state.
"""
