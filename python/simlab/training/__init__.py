"""Training: from a model and a task to a fine-tuned checkpoint folder.

* `finetune`: `simlab.finetune`; seeded, resumable, atomic.
* `recipes`: the recipes of the papers by name, and lists of seeds.
* `freezing`: the parameters that are frozen with a layer.
* `trainer`: the Hugging Face Trainer with an order of rows that can be resumed; times of steps.
* `callbacks`: `simlab.CKACallback`, which records the CKA of every layer with its initial state.
"""
