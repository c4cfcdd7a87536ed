"""The table of claims: what each paper says, and the rule of each verdict."""

from __future__ import annotations

from simlab.evidence import across, after_tuning, blocks, contrasts, phang, ren, wu
from simlab.evidence.claim import ARCHITECTURES, MODELS, NETWORKS, TASKS, Claim
from simlab.evidence.intervals import ALPHA, CANNOT, LEAST_UNITS
from simlab.evidence.wording import ALIKE, KEPT, SHARE, SLIGHT, TREND, number
from simlab.evidence.wu import LOCALITY, STANDARD_LOCALITY

PHANG, WU, REN = "Phang et al. 2021", "Wu et al. 2020", "Ren et al. 2023"

CLAIMS = (
    Claim(
        "block-diagonal",
        "FT-FT grids are block diagonal in almost every task.",
        f"{PHANG}, section 3.1",
        "Estimates the score of the best split of the layers into two blocks, 0 at chance and 1 "
        "for perfect blocks (`simcore blocks`, CKA). To hold it must also be beyond chance (p < "
        f"{number(ALPHA)}), where chance shuffles the similarities at each distance in the mean "
        "grid of all models; over tasks, in three quarters of them (their p-values by Rüger's "
        f"method). Least effect: {number(SLIGHT)}.",
        "`simcore grid` of each fine-tuned model with itself",
        blocks.block_diagonal,
    ),
    Claim(
        "blocks-agree",
        "Models that are fine-tuned with different seeds have the same blocks.",
        f"{PHANG}, figure 6",
        "Two estimates, means over pairs of fine-tunings of one pretrained model: the adjusted "
        "Rand index of their splits into two blocks, minus its mean over all places of two "
        "splits; and the score of the two models' own blocks in the grid between them (0 by "
        f"chance). Least effect: {number(SLIGHT)}.",
        "`simcore grid` of each fine-tuned model with itself, and of every two",
        blocks.blocks_agree,
    ),
    Claim(
        "top-layers-unlike-any",
        "The top layers of a fine-tuned model are unlike any layer of the pretrained model.",
        f"{PHANG}, section 3 and figure 5",
        "Estimates the similarity (CKA) of a fine-tuned layer with the layer of the pretrained "
        "model that is most like it, mean over the top quarter of the layers minus mean over the "
        f"bottom quarter. Least effect: {number(-SLIGHT)}.",
        "`simcore grid` of fine-tuned models and ORIG",
        across.top_unlike_any,
    ),
    Claim(
        "families-share-blocks",
        "Fine-tuned models of different families have blocks in common.",
        f"{PHANG}, figure 7",
        "Estimates the score of two models' own blocks in the grid between them (CKA, 0 by "
        "chance), mean over pairs of fine-tuned models of one task and different bases, or "
        "families that `--family` names; the units are the tasks. Least effect: "
        f"{number(SLIGHT)}.",
        "`simcore grid` of each fine-tuned model with itself, and of every two",
        across.families_share_blocks,
        about=TASKS,
    ),
    Claim(
        "top-layers-can-go",
        "The top layers of a fine-tuned model can be discarded without hurting the task.",
        f"{PHANG}, section 4",
        "Estimates the metric without the top quarter of the layers minus that of the whole model. "
        "The claim is that no more than `--tolerance` is lost.",
        "`simcore truncate`",
        phang.can_go,
    ),
    Claim(
        "tuned-beats-orig",
        "With a head tuned for each layer, fine-tuned layers do better than pretrained ones.",
        f"{PHANG}, section 4",
        "Estimates the metric of tuned minus tuned-orig truncation, mean over layers; the note "
        "gives each layer. Least effect: `--tolerance`.",
        "`simcore truncate --mode tuned --mode tuned-orig`",
        phang.tuned_against_orig,
    ),
    Claim(
        "first-layer-matters",
        "The first layer costs more to skip than others.",
        f"{PHANG}, section 4.1",
        "Estimates the loss of the metric without layer 1 minus the mean loss without one other "
        "layer. Least effect: `--tolerance`. The note says in how many models layer 1 costs most.",
        "`simcore skip`",
        phang.first_layer,
    ),
    Claim(
        "later-spans-cost-less",
        "Of spans of layers of one length, the later cost less to skip.",
        f"{PHANG}, section 4.1",
        "Estimates Spearman's correlation of the start of a span with the metric without it, mean "
        "over all lengths with three spans or more. The note names the span of each length that "
        f"costs least, up to half of the layers. Least effect: {number(TREND)}.",
        "`simcore skip`",
        phang.later_spans,
    ),
    Claim(
        "electra-no-blocks",
        "ELECTRA has no blocks as RoBERTa and ALBERT have.",
        f"{PHANG}, section 3.1",
        "Estimates the score of `block-diagonal`, models of which the label or base says ELECTRA "
        "minus the other models of the task; the units are the tasks. Least effect: "
        f"{number(-SLIGHT)}.",
        "`simcore grid` of each fine-tuned model with itself",
        contrasts.electra_without_blocks,
        about=TASKS,
    ),
    Claim(
        "electra-needs-top-layers",
        "Without its top layers, ELECTRA loses more than RoBERTa and ALBERT.",
        f"{PHANG}, section 4",
        "Estimates the quantity of `top-layers-can-go`, models of which the label or base says "
        "ELECTRA minus the other models of the task; the units are the tasks. Least effect: minus "
        "`--tolerance`.",
        "`simcore truncate`",
        contrasts.electra_needs_top,
        about=TASKS,
    ),
    Claim(
        "albert-spares-more",
        "A larger share of ALBERT's layers can be discarded than of RoBERTa's.",
        f"{PHANG}, section 4",
        "Estimates the share of the layers that can go one after the other from the top while no "
        "cut costs more than `--tolerance`, models of which the label or base says ALBERT minus "
        "the others, ELECTRA left out; the units are the tasks. Least effect: "
        f"{number(SLIGHT)}.",
        "`simcore truncate`",
        contrasts.albert_spares_more,
        about=TASKS,
    ),
    Claim(
        "top-layers-change",
        "Fine-tuning changes the top layers most.",
        f"{WU}, section 6.1; {PHANG}, section 3",
        "Estimates Spearman's correlation of depth with the change of a layer: 1 minus its "
        "similarity with the same layer of the pretrained model, for each measure, or the "
        f"relative error of maps between the two. Least effect: {number(TREND)}.",
        "`simcore grid` or `simcore align-study` of fine-tuned models and ORIG",
        wu.change_grows,
        about=MODELS,
        pooled=True,
    ),
    Claim(
        "higher-layers-localized",
        "Higher layers are more localized than lower layers.",
        f"{WU}, section 5.1",
        "Estimates Spearman's correlation of depth with the localization score, apart for "
        "pretrained and fine-tuned models, and for plain scores (the text) and standardized "
        f"ones (its figures). Least effect: {number(TREND)}.",
        "`simcore localize`",
        wu.localization_grows,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "tuning-delocalizes",
        "Fine-tuning makes the top layers less localized.",
        f"{WU}, section 6.1",
        "Estimates the mean localization score of the top quarter of the layers, fine-tuned model "
        "minus its pretrained model, in one joint grid. Least effect: "
        f"{number(-LOCALITY)}, or {number(-STANDARD_LOCALITY)} for standardized scores.",
        "`simcore localize` of fine-tuned models and ORIG",
        wu.tuning_delocalizes,
        about=MODELS,
        pooled=True,
    ),
    Claim(
        "equal-depth",
        "Layers of two models are most alike at equal relative depth.",
        f"{WU}, section 5.1",
        "Estimates, for each measure, the similarity of a layer with the layer of the other model "
        "that is nearest in relative depth, minus the mean over its other layers; mean over "
        "layers and pairs of different base models. Neither fine-tunings nor pretraining seeds of "
        f"one base make a pair. Least effect: {number(ALIKE)}.",
        "`simcore grid` of every two models",
        wu.equal_depth,
        about=ARCHITECTURES,
        over_tasks=False,
    ),
    Claim(
        "families-alike",
        "Models within a family are more alike than models of different families.",
        f"{WU}, section 5.1",
        "Needs `--family`. Estimates, for each measure, the mean similarity over all layers of two "
        "pretrained models, mean over families of the pairs within each, minus the mean over pairs "
        "of families; pretraining seeds of one base are models of its family. Least effect: "
        f"{number(ALIKE)}.",
        "`simcore grid --joint`, and `claims --family`",
        wu.families_alike,
        about=ARCHITECTURES,
        over_tasks=False,
    ),
    Claim(
        "representations-not-neurons",
        "Different architectures have similar representations but different neurons.",
        f"{WU}, section 5.1",
        "Estimates how much similarity is left between two models, as a share of the similarity of "
        "different layers within them: by a measure of layers (CKA, SVCCA, PWCCA) minus by "
        "`neuronsim`. Pairs of different base models, or of families that `--family` names. Holds "
        "by unbiased CKA alone, because other measures are not 0 for unrelated layers; where rows "
        f"have both estimators of CKA, the unbiased one is read. Least effect: {number(SLIGHT)}.",
        "`simcore grid --joint`, with `neuronsim` and unbiased CKA",
        wu.alike_as_a_whole,
        about=ARCHITECTURES,
        over_tasks=False,
    ),
    Claim(
        "lower-layers-alike",
        "Lower layers are more similar across architectures than higher layers.",
        f"{WU}, section 5.1",
        "Estimates Spearman's correlation of depth with the mean similarity of a layer to all "
        "layers of the other model, mean over both models. Pairs of different base models, or of "
        "families that `--family` names; measures of single neurons are left out. Least effect: "
        f"{number(-TREND)}.",
        "`simcore grid --joint`",
        wu.lower_layers_alike,
        about=ARCHITECTURES,
        over_tasks=False,
    ),
    Claim(
        "freeze-bottom",
        "Freezing the bottom layers costs less than freezing as many top layers.",
        f"{WU}, appendix D",
        "Estimates the metric with K frozen bottom layers minus the metric with K frozen top "
        "layers, paired by seed. Least effect: `--tolerance`.",
        "`simcore freeze-study --bottom K --top K`",
        wu.bottom_costs_less,
        pooled=True,
    ),
    Claim(
        "inn-finds-known-map",
        "An invertible network finds the inverse of an untrained one with less error than linear "
        "maps.",
        f"{REN}, table 3",
        "Estimates the held-out error of `inn` divided by that of `linear`, `cca`, `svcca` or "
        "`pwcca`, minus 1, where each maps f(X) back to X; by squared and by relative error, mean "
        f"over untrained networks f, which are the units. Least effect: {number(-SHARE)}.",
        "`known_inverse.py` of examples/studies",
        ren.inn_finds_known_map,
        about=NETWORKS,
        over_tasks=False,
    ),
    Claim(
        "inn-beats-linear",
        "Invertible networks map one model to another with less error than linear maps.",
        f"{REN}, table 4",
        "Estimates the held-out error of `inn` divided by that of `linear`, minus 1; mean over "
        "pairs of models that were pretrained apart, by squared and by relative error. Least "
        f"effect: {number(-SHARE)}.",
        "`simcore align-study --method inn --method linear`",
        ren.inn_beats_linear,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "deeper-layers-vary",
        "Deeper layers vary more over seeds.",
        f"{REN}, figure 2",
        "Estimates Spearman's correlation of depth with the held-out error of maps (`inn`, "
        "`linear`) between the same layer of two models that were pretrained apart. Least effect: "
        f"{number(TREND)}.",
        "`simcore align-study --method linear`",
        ren.deeper_varies,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "attention-varies-less",
        "Attention varies less over seeds than hidden states.",
        f"{REN}, section 5.2",
        "Estimates the held-out error of maps (`inn`, `linear`) of attention divided by that of "
        "maps of hidden states of the same protocol, minus 1; mean over pairs of models that were "
        "pretrained apart. By squared and by relative error, because the squared error depends on "
        f"the scale of the values. Least effect: {number(-SHARE)}.",
        "`simcore align-study` of attention folders, and of others",
        ren.attention_varies_less,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "deep-layers-move-apart",
        "After fine-tuning, deep layers vary more over seeds than before.",
        f"{REN}, section 5.3",
        "Estimates the held-out error of maps (`inn`, `linear`) between the upper halves of two "
        "models that were pretrained apart, after fine-tuning divided by before, minus 1; by "
        f"squared and by relative error. Least effect: {number(SHARE)}.",
        "`simcore align-study` of pretrained and of fine-tuned models",
        after_tuning.deep_layers_move,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "attention-is-kept",
        "After fine-tuning, attention varies over seeds no more than before.",
        f"{REN}, section 5.3",
        "Estimates the held-out error of maps of attention (`inn`, `linear`), mean over layers, "
        "after fine-tuning divided by before, minus 1. The claim is that it grows by no more than "
        f"the least effect, {number(KEPT)}.",
        "`simcore align-study` of attention folders before and after fine-tuning",
        after_tuning.attention_stays,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "inn-keeps-metric",
        "A model keeps more of its metric with states that an invertible network has mapped.",
        f"{REN}, table 5",
        "Estimates the metric with injected states that `inn` mapped minus that with another "
        "method; mean over pairs of models that were pretrained apart. Least effect: "
        "`--tolerance`. The note gives the metric of the model itself.",
        "`simcore inject`",
        after_tuning.inn_keeps_metric,
        about=MODELS,
        over_tasks=False,
    ),
    Claim(
        "complexity-drops",
        "The top layers are less complex than the layers below.",
        f"{REN}, appendix B.2",
        "Estimates the mean nuclear norm of the top third of the layers divided by that of the "
        "layers below, minus 1; at unit Frobenius norm and as it is, apart for pretrained and "
        f"fine-tuned models. Least effect: {number(-SHARE)}.",
        "`simcore align-study`, which measures complexity too",
        after_tuning.complexity_drops,
        about=MODELS,
        over_tasks=False,
    ),
)

VERDICTS = (
    "A claim says that a quantity is beyond a least effect of interest. It holds if the "
    "quantity is beyond it with p < .05, fails if the quantity is short of it with p < .05, and "
    "is undecided otherwise. The p-values are two-sided, and corrected by Holm's method over "
    "the whole table. A test of chance or of signs, which some claims must pass too, is not "
    f"corrected; the note has its p. '{CANNOT[0].upper()}{CANNOT[1:]}' says that units are missing."
)

INTERVALS = (
    "The units are pretrained models, architectures, tasks, fine-tunings or untrained networks, as "
    "the table says. "
    "Fine-tunings of one pretrained model are one unit of a claim about pretrained models. "
    "Pretraining seeds of one base model, or all models of a family that `--family` names, are one "
    "unit of a claim about architectures. Over several tasks, "
    "the tasks are the units, and a task whose models read several corpora has the mean of "
    "their values. Intervals are 95 % t intervals of the jackknife over units, "
    "without Holm's correction, so that pairs that share a unit count as they should; for one "
    "value of each unit this is the ordinary t interval. Where rows have intervals over "
    "examples (columns low and high: of grids and localization scores by `--bootstrap`, of the "
    "metrics of truncation, skipping and freezing, and of held-out errors of alignment), the "
    "error over examples is added. All models read the same texts: where rows have draws (all but "
    "errors of alignment), draw k of each row is of the same texts, and the spread of the estimate "
    "over the draws counts. Rows without draws, such as of csv files, do not say how far their "
    "errors go together. Five cases are tried, and the largest spread of the estimate counts: an "
    "error for each value; for each unit on a side of a comparison, such as all maps of "
    "attention; for each layer, the same in all models; for each side; and one for all values. "
    "Errors that go together in part can give a larger spread, which is not covered. "
    f"Otherwise the examples count as fixed. With fewer than {LEAST_UNITS} units there is no "
    "interval. Where all units give the same number (a count, a rank correlation), a test of "
    "signs takes the place of the t test, and needs six units. A rank correlation with depth, "
    "or a share of layers that can go, is beyond its least effect only if that test is significant "
    "too."
)

ROLES = (
    "Rows say the stage of each model: as pretrained, fine-tuned, or with random weights, which "
    "are left out. `--tuned` and `--pretrained` name patterns of labels that count more, for rows "
    "that do not say it. Models of truncation, skipping and freezing are always fine-tuned. Rows "
    "say the base of each model too, which is the model before fine-tuning. Base models, or the "
    "families that `--family` names, are judged apart, except for claims that compare them."
)
