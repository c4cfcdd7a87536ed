"""Training: from a model and a task to a fine-tuned checkpoint folder.

* `finetune`: `simlab.finetune`; seeded, resumable, atomic.
* `recipes`: how to fine-tune: the papers' recipes by name, and lists of seeds.
* `freezing`: which parameters a frozen layer takes along.
* `trainer`: the Hugging Face Trainer in an order of rows that can be resumed; times of steps.
* `callbacks`: `simlab.CKACallback`, how far every layer has moved from where it began.
"""
