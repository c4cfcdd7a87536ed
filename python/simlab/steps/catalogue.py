"""The steps of simcore, each declared once."""

from __future__ import annotations

from simlab.steps.record import Parameter, Step

TRUNCATE = Step(
    name="truncate",
    place="simlab.experiments.truncate:truncate",
    options="simlab.experiments.truncate:TruncationOptions",
    text="""Feed every layer of a fine-tuned model straight to a head, and write the metrics.

Mode `untuned` uses the model's own head, `tuned` fine-tunes this head further for each layer, and
`tuned-orig` trains a head for each layer of the model before fine-tuning. Options that begin with
`--head-` say how these heads are trained.""",
    reads="a checkpoint",
    writes="a results file; with --export a checkpoint",
    examples=(
        'truncate runs/ft-1 rt --mode untuned --mode tuned --mode tuned-orig --label "FT[1]" '
        "--out runs/results/truncation.parquet",
        "truncate runs/ft-1 rt --tolerance 0.01 --out runs/results/advice.parquet",
        "truncate runs/ft-1 rt --export 4 runs/ft-1-short",
    ),
    extra=(
        Parameter(
            "export",
            (int, str),
            text="Write the first K layers and the head to folder DIR",
            metavar="K DIR",
        ),
    ),
    optional=("out",),
)
# The second thing that `simcore truncate` does; it is no command of its own.
SHORTEN = Step(
    name="shorten",
    place="simlab.experiments.shorten:shorten",
    options="simlab.experiments.truncate:TruncationOptions",
    text="Write the first layers of a fine-tuned model, and a head, as a model.",
    reads="a checkpoint",
    writes="a checkpoint folder",
    examples=(),
)
EXTRACT = Step(
    name="extract",
    place="simlab.representations.extract:extract",
    options="simlab.representations.extract:ExtractOptions",
    text="Write the representations of every layer, the embedding output first, with row ids.",
    reads="a model or checkpoint",
    writes="a representation folder",
    examples=(
        'extract runs/ft-1 rt --label "FT[1]" --seed 1 --out runs/reps/ft-1',
        "extract minilm rt --kind word-last --words spaces --limit 200 --out runs/reps/words",
        "extract minilm sentences.txt --split all --kind attention --words spaces "
        "--no-special-tokens --out runs/reps/attention",
        'extract timm:resnet18 digits --module "layer?" --pool spatial-mean --out runs/reps/resnet',
    ),
)
INJECT = Step(
    name="inject",
    place="simlab.experiments.inject:inject_pairs",
    options="simlab.experiments.injection_options:InjectOptions",
    text="""Let model B continue from g(hidden states of A) at one layer, and score B for maps g.

The maps are fitted on training examples, and B is scored on held-out examples. If the states do not
allow a map, its value is missing, and a note gives the reason. Several pairs give a folder with a
results file for each pair; an interrupted call continues where it was.""",
    reads="models and checkpoints",
    writes="a results file; for several pairs, a folder of them",
    examples=(
        "inject runs/ft-1 runs/ft-2 rt --layer 6 --out runs/results/injection.parquet",
        "inject runs/ft-* rt --pairs 8 --fit-on mean --out runs/results/injection",
    ),
    extra=(
        Parameter("label_a", (str,), text="Name of model A in results and figures, for one pair"),
        Parameter("label_b", (str,), text="Name of model B in results and figures, for one pair"),
    ),
)
# One pair of models, which is no command of its own.
INJECT_ONE = Step(
    name="inject",
    place="simlab.experiments.inject:inject",
    options="simlab.experiments.injection_options:InjectOptions",
    text=INJECT.text,
    reads=INJECT.reads,
    writes="a results file",
    examples=(),
)
_SEEDS = Parameter(
    "seeds", (str,), text="Several seeds (`0..4`, `0,3,7`): a folder OUT/seed-N for each"
)
FINETUNE = Step(
    name="finetune",
    place="simlab.training.finetune:finetune",
    options="simlab.training.recipes:Recipe",
    text="""Fine-tune a model on a task; plain `from_pretrained` loads the checkpoint folder.

If the command is interrupted, the same command continues it, and ends with the same weights.""",
    reads="a model",
    writes="a checkpoint folder",
    examples=(
        "finetune minilm rt --seed 1 --out runs/ft-1",
        "finetune ./my-bert reviews.csv --text-column body --label-column stars --recipe wu2020 "
        "--freeze bottom:6 --seeds 0..4 --out runs/mine",
    ),
    extra=(_SEEDS,),
)
FREEZE_STUDY = Step(
    name="freeze-study",
    place="simlab.experiments.freeze_study:freeze_study",
    options="simlab.training.recipes:Recipe",
    without=("seed", "freeze", "random_init"),
    text="Fine-tune with no layers, top layers or bottom layers frozen; compare metric and time.",
    reads="a model",
    writes="checkpoints, a results file and figures",
    examples=(
        "freeze-study minilm rt --bottom 2 --bottom 4 --top 2 --top 4 --seeds 1..3 "
        "--out runs/freezing",
    ),
)
ALIGN_STUDY = Step(
    name="align-study",
    place="simlab.experiments.align_study:align_study",
    options="simlab.experiments.align_options:StudyOptions",
    text="""Fit maps between the layers of every two models, and measure the complexity of layers.

Writes a results file for each ordered pair and method. An interrupted study continues where it
was.""",
    reads="representation folders",
    writes="a folder of results files",
    examples=(
        "align-study runs/reps/ft-* --name fine-tuned --method linear --method inn --within "
        "--out runs/results/alignment",
        "align-study runs/train/* --judge runs/test --out runs/results/alignment",
    ),
)
STEPS = {
    step.name: step for step in (FINETUNE, FREEZE_STUDY, EXTRACT, TRUNCATE, INJECT, ALIGN_STUDY)
}
