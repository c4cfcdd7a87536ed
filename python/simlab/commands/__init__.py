"""Commands: what `simcore` offers on the command line; each adds itself by ``register(app)``.

A command reads its options, calls the function of `simlab` that has its name, and prints. No
module here loads a heavy library before its command runs, so that ``--help`` answers at once.

* `options`: arguments and options that commands share, and how commands end.
* `demo`: the main job, whose steps are in `demo_steps`.
* `finetune`, `freeze_study`, `extract`, `grid`, `localize`, `truncate`, `blocks`, `skip`, `plot`:
  a command each, of the same name.
* `align`: ``simcore inject`` and ``simcore align-study``.
* `listing`: ``simcore models`` and ``simcore tasks``.
"""
