"""The experiment layer of simcore: from a model and a task to a table and figures.

Data flows one way, and every arrow is a file on disk::

    model + task --finetune--> checkpoint folders
         |                           |
         +---------extract-----------+--> representations/<name>/   (safetensors + manifest)
                                     |               |
                              truncate, skip      grids (simcore), localization
                                     |               |
                                     +--> results/*.parquet --plots--> figures/

`CKACallback` records, in any Hugging Face Trainer, how far each layer has moved from where it was.

The modules, in that order: `models`, `tasks`, `finetune`, `extract`, `truncate`, `skip`, `grids`,
`localization`, `blocks`, `results`, `plots`; `recipes`, `freezing` and `trainer` are parts of
`finetune`, `freeze_study` runs it many times; `demo` joins them and `cli` is the ``simcore``
command. `families` says where a model's layers and head are, `tasks.specs` what a task is made of;
`words` and `kinds` say what the rows of a representation are, `representations` how they lie on
disk, `measures` what a grid can compute. `heads` are those of truncated models, `chain` is a
model's layers one by one, `shorten` writes the first of them as a checkpoint and `advice` says how
many are enough. `files` and `jobs` make each step atomic and resumable, `ownership` gives each
output to one process at a time, `assets` fetches the offline model and data.

Importing `simlab` imports nothing heavy; each module loads its libraries where it uses them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simlab.callbacks import CKACallback

__all__ = ["CKACallback"]


def __getattr__(name: str) -> Any:
    if name != "CKACallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from simlab.callbacks import CKACallback

    return CKACallback
