"""The table of claims: what each paper says, and the rule of each verdict."""

from __future__ import annotations

from simlab.evidence import blocks, phang, ren, wu
from simlab.evidence.blocks import SLIGHT
from simlab.evidence.claim import Claim
from simlab.evidence.intervals import LEAST_MODELS
from simlab.evidence.wording import DECIDED_ABOVE, DECIDED_BELOW, TOO_FEW, number

PHANG, WU, REN = "Phang et al. 2021", "Wu et al. 2020", "Ren et al. 2023"

CLAIMS = (
    Claim(
        "block-diagonal",
        "FT-FT grids are block diagonal in almost every task.",
        f"{PHANG}, section 3.1",
        "Estimates the score of the best split of the layers into two blocks, 0 at chance and 1 "
        "for perfect blocks (`simcore blocks`, CKA), mean over models. Holds in a task if the "
        "interval lies above 0 and p < .05 in most models, where chance shuffles the similarities "
        f"at each distance; fails if the interval lies below {number(SLIGHT)}; undecided if both "
        f"or neither is so, {TOO_FEW}. Over all tasks, estimates the share of the decided tasks "
        "where it holds; the exact binomial interval counts undecided tasks once as failed, for "
        "its lower bound, and once as held, for its upper bound. Holds if the interval lies above "
        "one half, fails if it lies below.",
        "`simcore grid` of each fine-tuned model with itself",
        blocks.block_diagonal,
        blocks.count_tasks,
    ),
    Claim(
        "blocks-agree",
        "Models that are fine-tuned with different seeds have the same blocks.",
        f"{PHANG}, figure 6",
        "Two estimates, means over pairs of models: the adjusted Rand index of their splits into "
        "two blocks, minus its mean over all places of two splits; and the score of the two "
        f"models' own blocks in the grid between them (0 by chance). {DECIDED_ABOVE}",
        "`simcore grid` of each fine-tuned model with itself, and of every two",
        blocks.blocks_agree,
    ),
    Claim(
        "top-layers-can-go",
        "The top layers of a fine-tuned model can be discarded without hurting the task.",
        f"{PHANG}, section 4",
        "Estimates how many layers are above the lowest layer whose metric is at most the "
        "tolerance below that of the whole model; mean over models. Holds if the interval lies "
        f"above 0 layers, fails if it lies below 1; undecided if both or neither is so, {TOO_FEW}.",
        "`simcore truncate`",
        phang.can_go,
    ),
    Claim(
        "tuned-beats-orig",
        "With a head tuned for each layer, fine-tuned layers do better than pretrained ones.",
        f"{PHANG}, section 4",
        "Estimates the metric of tuned minus tuned-orig truncation, mean over layers and models; "
        f"the note gives each layer. {DECIDED_ABOVE}",
        "`simcore truncate --mode tuned --mode tuned-orig`",
        phang.tuned_against_orig,
    ),
    Claim(
        "first-layer-matters",
        "Of all single layers, the first costs most to skip.",
        f"{PHANG}, section 4.1",
        "Estimates the loss of the metric without layer 1 minus the largest loss without one "
        f"other layer; mean over models. {DECIDED_ABOVE}",
        "`simcore skip`",
        phang.first_layer,
    ),
    Claim(
        "later-spans-cost-less",
        "Of spans of layers of one length, the later cost less to skip.",
        f"{PHANG}, section 4.1",
        "Estimates Spearman's correlation of the start of a span with the metric without it, mean "
        "over all lengths with three spans or more, and over models. The note names the span of "
        f"each length that costs least, up to half of the layers. {DECIDED_ABOVE}",
        "`simcore skip`",
        phang.later_spans,
    ),
    Claim(
        "top-layers-change",
        "Fine-tuning changes the top layers most.",
        f"{WU}, section 6.1; {PHANG}, section 3",
        "Estimates Spearman's correlation of depth with the change of a layer: 1 minus its "
        "similarity with the same layer of the pretrained model, for each measure, or the "
        f"relative error of maps between the two; mean over fine-tuned models. {DECIDED_ABOVE}",
        "`simcore grid` or `simcore align-study` of fine-tuned models and ORIG",
        wu.change_grows,
    ),
    Claim(
        "higher-layers-localized",
        "Higher layers are more localized than lower layers.",
        f"{WU}, section 5.1",
        "Estimates Spearman's correlation of depth with the localization score; mean over models, "
        f"apart for pretrained and fine-tuned models. {DECIDED_ABOVE}",
        "`simcore localize`",
        wu.localization_grows,
        across=True,
    ),
    Claim(
        "tuning-delocalizes",
        "Fine-tuning makes the top layers less localized.",
        f"{WU}, section 6.1",
        "Estimates the mean localization score of the top quarter of the layers, fine-tuned model "
        f"minus the one pretrained model; mean over fine-tuned models. {DECIDED_BELOW}",
        "`simcore localize` of fine-tuned models and ORIG",
        wu.tuning_delocalizes,
    ),
    Claim(
        "equal-depth",
        "Layers of two models are most alike at equal relative depth.",
        f"{WU}, section 5.1",
        "Estimates, for each measure, the similarity of a layer with the layer of the other model "
        "that is nearest in relative depth, minus the mean over its other layers; mean over "
        "layers and pairs of models. The paper compares different pretrained models; pairs of one "
        "base model (two of its fine-tunings, or one and the base model) count here too, and the "
        f"note says how many these are. {DECIDED_ABOVE}",
        "`simcore grid` of every two models",
        wu.equal_depth,
        across=True,
    ),
    Claim(
        "families-alike",
        "Models within a family are more alike than models of different families.",
        f"{WU}, section 5.1",
        "Needs `--family`. Estimates, for each measure, the mean similarity over all layers of two "
        "models, pairs within a family minus pairs across families. Undecided also if one model "
        f"is in all pairs within families. {DECIDED_ABOVE}",
        "`simcore grid --joint`, and `claims --family`",
        wu.families_alike,
        across=True,
    ),
    Claim(
        "freeze-bottom",
        "Freezing the bottom layers costs less than freezing as many top layers.",
        f"{WU}, appendix D",
        "Estimates the metric with K frozen bottom layers minus the metric with K frozen top "
        f"layers, paired by seed; mean over seeds. {DECIDED_ABOVE}",
        "`simcore freeze-study --bottom K --top K`",
        wu.bottom_costs_less,
    ),
    Claim(
        "inn-beats-linear",
        "Invertible networks map one model to another with less error than linear maps.",
        f"{REN}, table 4",
        "Estimates the error of `inn` minus the error of `linear`, mean over layers and over pairs "
        "of models; for squared and relative error, on training and held-out rows. "
        f"{DECIDED_BELOW}",
        "`simcore align-study --method inn --method linear`",
        ren.inn_beats_linear,
    ),
    Claim(
        "deeper-layers-vary",
        "Deeper layers vary more over seeds.",
        f"{REN}, figure 2",
        "Estimates Spearman's correlation of depth with the held-out error of maps (`inn`, "
        "`linear`) between the same layer of two models of different seeds; mean over pairs of "
        f"models. {DECIDED_ABOVE}",
        "`simcore align-study --method linear`",
        ren.deeper_varies,
    ),
    Claim(
        "attention-varies-less",
        "Attention varies less over seeds than hidden states.",
        f"{REN}, section 5.2",
        "Estimates the held-out error of maps (`inn`, `linear`) of attention minus that of "
        "maps of hidden states of the same protocol, mean over layers and pairs of models; by "
        "squared and by relative error, because the squared error depends on the scale of the "
        f"values. {DECIDED_BELOW}",
        "`simcore align-study` of attention folders, and of others",
        ren.attention_varies_less,
    ),
)

INTERVALS = (
    "Intervals are 95 % t intervals of the jackknife over models (seeds), so that pairs that share "
    "a model count as they should; for one value a model it is the ordinary t interval. Where rows "
    "have intervals over examples (columns low and high: of grids and localization scores by "
    "`--bootstrap`, of the metrics of truncation, skipping and freezing, and of held-out errors "
    "of alignment), the error over examples is added: the values are drawn anew within their "
    "intervals, once independently and once with one shift for each grid or curve (such as the "
    "errors of one method between two models), and the larger spread of the estimate counts. "
    "Otherwise the examples count as fixed. Errors of two metrics, or of two maps, on the same "
    "held-out examples partly cancel in their difference, but are drawn as if they did not: such "
    "intervals are too wide. Errors that all models share, because all read the same examples, "
    "are drawn apart for each model, as if they averaged out: intervals of means over models may "
    f"be too narrow for this reason. With fewer than {LEAST_MODELS} models there is no interval. "
    "Where every model gives the same number (a count, a rank correlation), the interval has no "
    "width."
)

ROLES = (
    "Rows say the stage of each model: as pretrained, fine-tuned, or with random weights, which "
    "are left out. `--tuned` and `--pretrained` name patterns of labels that count more, for rows "
    "that do not say it. Models of truncation, skipping and freezing are always fine-tuned. Rows "
    "say the base of each model too, which is the model before fine-tuning. Base models, or the "
    "families that `--family` names, are judged apart, except for claims that compare them."
)
