"""Commands of `simcore`: each calls the function of `simlab` with its name, and prints the result.

The options of a step (``STEP`` of its module) are made from its record in `simlab.steps`, and
``run`` prints; the function ``register(app)`` of any other module adds commands with options of
their own. No module here loads a heavy library before its command runs, so ``--help`` answers at
once.

* `options`: arguments and options that commands share, and messages that they share.
* `patterns`: names such as ``seed-{0..24}``, which every command takes.
* `demo`: ``simcore demo``, whose steps are in `demo_steps`.
* `pretrain`, `finetune`, `freeze_study`, `extract`, `grid`, `localize`, `truncate`, `blocks`,
  `skip`, `influence`, `plot`, `report`, `inject`, `align_study`, `claims`, `sweep`, `status`: each
  has the command of its name.
* `importing`: ``simcore import``.
* `listing`: ``simcore models``, ``simcore tasks`` and ``simcore papers``.
"""
