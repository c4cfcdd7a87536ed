"""The experiment layer of simcore: from a model and a task to a table and figures.

Every step of `simcore` has a function of the same name here; its options are keywords::

    from simlab import extract, finetune, grid, plot, read_results

    finetune("minilm", "rt", "runs/ft-1", seed=1)
    extract("runs/ft-1", "rt", "runs/reps/ft-1", label="FT[1]")
    grid("runs/reps/ft-1", "runs/results/ft-1.parquet", measure="svcca", truncation=0.95)
    frame = read_results("runs/results")  # a pandas table, one row per measure and layer pair
    plot(frame, "runs/figures")

Data flows one way, and every arrow is a file on disk::

    texts --pretrain--> model
    model + task --finetune--> checkpoint folders
         |                           |
         +---------extract-----------+--> representations/<name>/   (safetensors + manifest)
                                     |               |
                        truncate, skip, inject      grid, localize, blocks, align_study
                                     |               |
                                     +--> results/*.parquet --plot--> figures/
                                                     |
                                                     +--write_report--> a page to look at
                                                     |
                                                     +------claims--> a table of verdicts

The rooms; a room imports only from rooms listed before it:

* `errors`: exceptions for mistakes that the user can put right.
* `bounds`: types of numbers with a least value.
* `papers`: the choices of three papers, as tables.
* `store`: files, jobs, the process and the terminal.
* `results`: the results table: its columns, the names of its rows, writing and reading.
* `tasks`: texts, labels, splits and metrics.
* `models`: finding, loading, running and evaluating models, their layers and heads.
* `training`: fine-tuning, freezing, CKA recorded during training, and pretraining.
* `representations`: extracting the rows of every layer, and storing them on disk.
* `similarity`: measures between stored representations, localization scores and blocks.
* `experiments`: models whose layers are cut off, left out, replaced or frozen; maps between layers.
* `steps`: steps, each declared once: its command, and the spelling of its arguments, are made.
* `figures`: figures drawn from the results table alone.
* `evidence`: what the papers claim, judged from the results table alone.
* `sweeps`: whole studies from one file: every step above as a job that survives interruptions.
* `report`: one page that shows a results table.
* `answers`: from two names to an answer: the steps above in one call.
* `commands`: every command of `simcore`; `cli` joins them, and `__main__` starts it, or says which
  packages are missing.

Importing `simlab` imports no other module: `__getattr__` imports the module of a name when the name
is first used, and each module loads heavy libraries inside the functions that use them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simlab.answers.check import check as check
    from simlab.answers.compare import compare as compare
    from simlab.evidence.table import claims as claims
    from simlab.experiments.align_study import align_study as align_study
    from simlab.experiments.freeze_study import freeze_study as freeze_study
    from simlab.experiments.influence import influence as influence
    from simlab.experiments.inject import inject as inject
    from simlab.experiments.shorten import leave_out as leave_out
    from simlab.experiments.shorten import shorten as shorten
    from simlab.experiments.skip import skip as skip
    from simlab.experiments.truncate import truncate as truncate
    from simlab.figures.draw import plot as plot
    from simlab.models.load import load_model as load_model
    from simlab.papers.presets import paper_options as paper_options
    from simlab.report.write import write_report as write_report
    from simlab.representations.extract import extract as extract
    from simlab.representations.folder import load_representations as load_representations
    from simlab.representations.imported import import_representations as import_representations
    from simlab.results.reading import read_results as read_results
    from simlab.similarity.blocks import blocks as blocks
    from simlab.similarity.grids import grid as grid
    from simlab.similarity.localization import localize as localize
    from simlab.sweeps.sweep import Sweep as Sweep
    from simlab.tasks import TaskOptions as TaskOptions
    from simlab.tasks import load_task as load_task
    from simlab.training.callbacks import CKACallback as CKACallback
    from simlab.training.finetune import finetune as finetune
    from simlab.training.pretrain import pretrain as pretrain

# The module of each name. Type checkers do not run `__getattr__`; they read the imports above.
_MODULES = {
    "CKACallback": "training.callbacks",
    "Sweep": "sweeps.sweep",
    "TaskOptions": "tasks",
    "align_study": "experiments.align_study",
    "blocks": "similarity.blocks",
    "check": "answers.check",
    "claims": "evidence.table",
    "compare": "answers.compare",
    "extract": "representations.extract",
    "finetune": "training.finetune",
    "freeze_study": "experiments.freeze_study",
    "grid": "similarity.grids",
    "import_representations": "representations.imported",
    "influence": "experiments.influence",
    "inject": "experiments.inject",
    "leave_out": "experiments.shorten",
    "load_model": "models.load",
    "load_representations": "representations.folder",
    "load_task": "tasks",
    "localize": "similarity.localization",
    "paper_options": "papers.presets",
    "plot": "figures.draw",
    "pretrain": "training.pretrain",
    "read_results": "results.reading",
    "shorten": "experiments.shorten",
    "skip": "experiments.skip",
    "truncate": "experiments.truncate",
    "write_report": "report.write",
}

__all__ = [*_MODULES]


if not TYPE_CHECKING:  # with `__getattr__`, type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        except ModuleNotFoundError as error:
            raise _with_its_cure(error, name) from None

    def _with_its_cure(error: ModuleNotFoundError, name: str) -> ModuleNotFoundError:
        """Return the error of a missing package with the command that installs it; others as is."""
        from simcore._optional import missing_from_lab

        cure = missing_from_lab(error, f"simlab.{name}")
        return ModuleNotFoundError(cure, name=error.name) if cure else error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
