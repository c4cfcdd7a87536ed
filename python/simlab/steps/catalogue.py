"""The steps of simcore, each declared once."""

from __future__ import annotations

from simlab.steps.record import REQUIRED, Parameter, Step

TRUNCATE = Step(
    name="truncate",
    path="simlab.experiments.truncate:truncate",
    options="simlab.experiments.truncate:TruncationOptions",
    text="""Feed every layer of a fine-tuned model straight to a head, and write the metrics.

Mode `untuned` uses the model's own head, `tuned` fine-tunes this head further for each layer, and
`tuned-orig` trains a head for each layer of the model before fine-tuning. Options that begin with
`--head-` say how these heads are trained.""",
    examples=(
        'truncate runs/ft-1 rt --mode untuned --mode tuned --mode tuned-orig --label "FT[1]" '
        "--out runs/results/truncation.parquet",
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
    path="simlab.experiments.shorten:shorten",
    options="simlab.experiments.truncate:TruncationOptions",
)
EXTRACT = Step(
    name="extract",
    path="simlab.representations.extract:extract",
    options="simlab.representations.passes:ExtractOptions",
    text="Write the representations of every layer, the embedding output first, with row ids.",
    examples=(
        'extract runs/ft-1 rt --label "FT[1]" --seed 1 --out runs/reps/ft-1',
        "extract minilm rt --kind word-last --words spaces --limit 200 --out runs/reps/words",
        "extract minilm sentences.txt --split all --kind attention --words spaces "
        "--no-special-tokens --out runs/reps/attention",
        'extract timm:resnet18 digits --module "layer?" --pool spatial-mean --out runs/reps/resnet',
        'extract runs/mini rt --kind mean --revisions "checkpoint-{100..500..100}" '
        "--out runs/reps/mini",
    ),
    extra=(
        Parameter(
            "revisions",
            (str,),
            text="Steps of a training run: revisions of the hub or folders of a local run, as "
            "patterns with spaces between (`step{0,1,2,4} step{1000..9000..1000}`); a folder "
            "OUT/step-N for each",
        ),
    ),
    notes_path="simlab.representations.kinds:help_lines",
)
INJECT = Step(
    name="inject",
    path="simlab.experiments.inject:inject",
    options="simlab.experiments.options:InjectOptions",
    text="""Let model B continue from g(hidden states of A) at one layer, and score B for maps g.

The maps are fitted on training examples, and B is scored on held-out examples. If the states do not
allow a map, its value is missing, and a note gives the reason. Several pairs give a folder with a
results file for each pair; an interrupted call continues where it was.""",
    examples=(
        "inject runs/ft-1 runs/ft-2 rt --layer 6 --out runs/results/injection.parquet",
        "inject runs/ft-* rt --pairs 8 --fit-on mean --out runs/results/injection",
    ),
)
_SEEDS = Parameter(
    "seeds", (str,), text="Several seeds (`0..4`, `0,3,7`): a folder OUT/seed-N for each"
)
FINETUNE = Step(
    name="finetune",
    path="simlab.training.finetune:finetune",
    options="simlab.training.recipes:Recipe",
    text="""Fine-tune a model on a task; plain `from_pretrained` loads the checkpoint folder.

If the command is interrupted, the same command continues it, and ends with the same weights.""",
    examples=(
        "finetune minilm rt --seed 1 --out runs/ft-1",
        "finetune ./my-bert reviews.csv --text-column body --label-column stars --recipe wu2020 "
        "--freeze bottom:6 --seeds 0..4 --out runs/mine",
    ),
    extra=(_SEEDS,),
)
FREEZE_STUDY = Step(
    name="freeze-study",
    path="simlab.experiments.freeze_study:freeze_study",
    options="simlab.training.recipes:Recipe",
    without=("seed", "freeze", "random_init"),
    text="Fine-tune with no layers, top layers or bottom layers frozen; compare metric and time.",
    examples=(
        "freeze-study minilm rt --bottom 2 --bottom 4 --top 2 --top 4 --seeds 1..3 "
        "--out runs/freezing",
    ),
)
ALIGN_STUDY = Step(
    name="align-study",
    path="simlab.experiments.align_study:align_study",
    options="simlab.experiments.options:StudyOptions",
    text="""Fit maps between the layers of every two models, and measure the complexity of layers.

Writes a results file for each ordered pair and method. An interrupted study continues where it
was.""",
    examples=(
        "align-study runs/reps/ft-* --name fine-tuned --method linear --method inn --within "
        "--out runs/results/alignment",
        "align-study runs/train/* --judge runs/test --out runs/results/alignment",
    ),
)
GRID = Step(
    name="grid",
    path="simlab.similarity.grids:grid",
    options="simlab.similarity.catalogue:MeasureOptions",
    text="Compare every layer of X with every layer of Y.",
    examples=(
        "grid runs/reps/ft-1 runs/reps/orig --comparison FT-ORIG "
        "--out runs/results/ft-orig.parquet",
        "grid runs/reps/words-* --joint --measure svcca --truncation 0.95 "
        "--out runs/results/svcca.parquet",
        "grid runs/reps/words-* --joint --measure neuronsim --top-k 50 "
        "--out runs/results/top-50.parquet",
        "grid runs/reps/ft-1 runs/reps/orig --bootstrap 200 --permutations 200 "
        "--out runs/results/ft-orig.parquet",
    ),
    notes_path="simlab.similarity.catalogue:help_lines",
)
SKIP = Step(
    name="skip",
    path="simlab.experiments.skip:skip",
    text="""Leave out every contiguous span of layers of a fine-tuned model, and write the metrics.

Nothing is trained.""",
    examples=('skip runs/ft-1 rt --label "FT[1]" --out runs/results/skipping.parquet',),
    has_paper=False,
)
INFLUENCE = Step(
    name="influence",
    path="simlab.experiments.influence:influence",
    text="""Write how far every contiguous span of layers turns the states; nothing is trained.

No labels are read. With `--export`, a decoder is written without the span that turns the states
least, with its perplexity on the texts before and after.""",
    examples=(
        'influence runs/ft-1 rt --label "FT[1]" --out runs/results/influence.parquet',
        "influence ./my-decoder texts.txt --split all --export 2 runs/shorter "
        "--out runs/results/decoder.parquet",
    ),
    extra=(
        Parameter(
            "export",
            (int, str),
            text="Write the decoder without the N layers in a row that turn the states least to "
            "folder DIR",
            metavar="N DIR",
        ),
    ),
    has_paper=False,
)
# The second thing that `simcore influence` does; it is no command of its own.
LEAVE_OUT = Step(name="leave-out", path="simlab.experiments.shorten:leave_out")
LOCALIZE = Step(
    name="localize",
    path="simlab.similarity.localization:localize",
    text="Compute the localization score of every layer from joint grids of neuronsim and svcca.",
    examples=("localize runs/results --out runs/results/localization.parquet",),
)
IMPORT = Step(
    name="import",
    path="simlab.representations.imported:import_representations",
    text="Make a representation folder of arrays that another program wrote; nothing is unpickled.",
    examples=(
        "import layers.npz --label mine --out runs/reps/mine",
        "import elmo.hdf5 --label ELMo --kind word-last --task sentences.txt --split all "
        "--out runs/words/elmo",
    ),
    has_paper=False,
)
BLOCKS = Step(
    name="blocks",
    path="simlab.similarity.blocks:blocks",
    text="""Split the layers of every grid of a model with itself into clusters; score the split.

The score is 1 for perfect blocks, and 0 if similarity depends on distance alone. `calibrated`
compares scores of different numbers of clusters.""",
    examples=("blocks runs/results --out runs/results/blocks.parquet",),
)
PRETRAIN = Step(
    name="pretrain",
    path="simlab.training.pretrain:pretrain",
    options="simlab.training.recipes:Pretraining",
    without=("group_by_length",),  # rows of tokens have one length
    text="""Pretrain a BERT or a decoder on texts; plain `from_pretrained` loads the folder.

Models of different seeds have the same words. If the command is interrupted, the same command
continues it, and ends with the same weights.""",
    examples=(
        "pretrain rt imdb --seeds 0..4 --hidden 128 --max-steps 2000 --out runs/mini",
        "pretrain rt imdb --objective causal --keep-steps 20 --max-steps 2000 --out runs/decoder",
    ),
    extra=(_SEEDS,),
    has_paper=False,
)
PLOT = Step(
    name="plot",
    path="simlab.figures.draw:plot",
    text="Draw every figure that the results files have rows for.",
    examples=("plot runs/demo/results --out runs/demo/figures --format svg",),
)
CLAIMS = Step(
    name="claims",
    path="simlab.evidence.table:claims",
    text="""Judge the claims of the papers on RESULTS: estimate, interval over units, verdict.

A claim holds, fails, is undecided, or cannot be decided by this study. `--list` prints the
rules.""",
    examples=("claims runs/results --out runs/claims.parquet --csv", "claims --list"),
    extra=(
        Parameter(
            "list", (bool,), default=False, text="Print every claim and its rule; judge nothing"
        ),
    ),
    optional=("results",),
)
REPORT = Step(
    name="report",
    path="simlab.report.write:write_report",
    text="""Write one page to look at: grids to pan, zoom and compare, curves, and what was run.

The page is one file that a browser opens from disk; it needs no network.""",
    examples=("report runs/demo/results --out runs/demo/report.html",),
    has_paper=False,
)
COMPARE = Step(
    name="compare",
    path="simlab.answers.compare:compare",
    text="""Compare the layers of two models by their names, and say which match and which differ.

Behind the models stand the texts: a file or a task; without them, the models read a sample that
ships. Tokenizers that differ are compared by words or texts. More names give all pairs.""",
    examples=(
        "compare minilm runs/ft-1",
        "compare minilm runs/ft-1 runs/ft-2 rt --measure cka --measure svcca --out runs/three",
    ),
    has_paper=False,
)
CHECK = Step(
    name="check",
    path="simlab.answers.check:check",
    text="""Judge layer by layer whether model B is model A, by the measured noise of A.

For each layer: equal bits; equal within noise; scaled, permuted or rotated; or different. The exit
code is 0 if all layers are equal, and 1 if not.""",
    examples=(
        "check minilm runs/ported",
        "check minilm states.safetensors texts.txt --json",
        "check minilm runs/rotated rt --allow rotated",
    ),
    extra=(
        Parameter(
            "allow",
            (str,),
            text="Verdicts besides equal that the exit code 0 allows: `scaled`, `permuted` "
            "(and scaled) or `rotated` (and both)",
        ),
        Parameter("json", (bool,), default=False, text="Print the verdicts as JSON"),
    ),
    has_paper=False,
)
SWEEP = Step(
    name="sweep",
    path="simlab.sweeps.sweep:Sweep.run",
    without=("durable",),
    text="""Run the study in FILE: fine-tuning, representations, grids, experiments, figures.

The same command continues an interrupted run, whatever ended it. Finished jobs are not done again,
even if FILE has changed. If jobs failed, the exit code is 1. The guide of sweeps has all keys, and
`examples/sweeps` of the repository the files of the papers. A small FILE:

\b
    models = ["minilm"]
    tasks = ["rt"]
    [finetune]
    seeds = "1..3"
    [[grids]]
    measure = "cka"
    between = ["tuning", "joint"]""",
    examples=(
        "sweep study.toml --plan",
        "sweep study.toml --out runs/study --workers 2",
        "sweep study.toml --out /nfs/study --engine ray --address auto",
    ),
    extra=(
        Parameter(
            "file", (str,), default=REQUIRED, text="The sweep file (.toml)", is_argument=True
        ),
        Parameter(
            "plan",
            (bool,),
            default=False,
            text="Print the jobs, disk space and time; run nothing. With `out`, finished jobs "
            "there are left out",
        ),
    ),
    optional=("out",),
    has_paper=False,
)
STATUS = Step(
    name="status",
    path="simlab.sweeps.status:read_status",
    text="Print the status of a sweep, which may be running: jobs by kind, rate, time left, "
    "last error.",
    examples=("status runs/phang --watch",),
    extra=(
        Parameter(
            "watch",
            (bool,),
            default=False,
            text="Print the status anew every 5 seconds, until Ctrl-C",
        ),
        Parameter("json", (bool,), default=False, text="Print JSON, for scripts"),
    ),
    has_paper=False,
)
DOCTOR = Step(
    name="doctor",
    path="simlab.store.runtime:doctor",
    text="""Print versions and devices, and check the CUDA kernels on every GPU that is here.

A check runs small cases through a kernel and through operations of torch, and times both. A kernel
that fails, or is slower, is not used on that GPU from then on.""",
    examples=("doctor", "doctor --cached --json"),
    extra=(Parameter("json", (bool,), default=False, text="Print JSON, for scripts"),),
    has_paper=False,
)
STEPS = {
    step.name: step
    for step in (
        *(COMPARE, CHECK),
        *(PRETRAIN, FINETUNE, FREEZE_STUDY, EXTRACT, IMPORT, GRID, LOCALIZE, TRUNCATE, BLOCKS),
        *(SKIP, INFLUENCE, PLOT, REPORT, INJECT, ALIGN_STUDY, CLAIMS, SWEEP),
        *(STATUS, DOCTOR),
    )
}
