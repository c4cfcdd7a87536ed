"""Training: from a model and a task to a fine-tuned checkpoint; from texts to a pretrained model.

* `finetune`: `simlab.finetune`; seeded, resumable, atomic.
* `recipes`: the recipes of the papers by name, and lists of seeds.
* `pretrain`: `simlab.pretrain`: a BERT from scratch; `pretraining` is its recipe, `vocabulary` its
  words, and `masking` has rows of tokens, masks and the loss.
* `freezing`: the parameters that are frozen with a layer.
* `trainer`: the Hugging Face Trainer with an order of rows that can be resumed; times of steps.
* `callbacks`: `simlab.CKACallback`, which records the CKA of every layer with its initial state.
"""
