"""The choices of Phang et al. 2021."""

from __future__ import annotations

from simlab.papers.choice import NOT_PUBLISHED, NOT_STATED, Difference, PaperPreset, choices

_TEXT = "follows the text"
_JIANT = "The text states none, so we follow the library that the authors used"
_HEAD = "one optimisation is described (§2), and no other one for heads (§4)"
_OF_HEAD = "as in fine-tuning"
_TUNED = {"modes": ("tuned", "tuned-orig")}

_FINETUNE = choices(
    "finetune",
    max_steps=(
        10_000,
        '"up to 10,000 steps" on each task, "to control for" the number of steps (§2)',
        "jiant trains for `max_steps`, or ends earlier if early stopping is switched on",
        "10,000 steps on every task: only this controls for their number, and the text names no "
        "criterion for ending earlier. `--epochs` beside `--max-steps` ends the training with "
        "whichever comes first",
    ),
    learning_rate=(1e-5, "1e-5 (§2)", "jiant's default: 1e-5", _TEXT),
    batch_size=(4, "4 (§2)", NOT_PUBLISHED, _TEXT),
    warmup=(
        1_000,
        "1,000 steps (§2)",
        "jiant's default: a tenth of all steps, which is the same number",
        "text and code agree; then the rate falls linearly to 0, as in jiant",
    ),
    weight_decay=(
        0.0,
        "Adam (§2)",
        "jiant's `adam` is AdamW with a weight decay of 0.01",
        f"{_TEXT}; `--weight-decay 0.01` follows jiant",
    ),
    adam_epsilon=(1e-8, NOT_STATED, "jiant's default: 1e-8", _JIANT),
    max_length=(256, NOT_STATED, "jiant's default: 256 tokens", _JIANT),
    group_by_length=(
        False,
        NOT_STATED,
        NOT_PUBLISHED,
        "random batches: batches of similar length would make the order of the examples depend on "
        "their lengths",
    ),
    head=(
        "jiant",
        "the output head (§2, §4); no word of its layers",
        "one head for all encoders: dropout, dense, tanh, dropout, linear, on the pooler (ALBERT, "
        "RoBERTa) or on the first token (ELECTRA)",
        f"{_JIANT}. transformers has another head for each architecture: `--head transformers`",
    ),
)
_EXTRACT = choices(
    "extract",
    kind=("cls", "the CLS token (§3)", NOT_PUBLISHED, _TEXT),
    split=("heldout", "the validation examples (§3)", NOT_PUBLISHED, _TEXT),
    max_length=(
        256,
        NOT_STATED,
        NOT_PUBLISHED,
        "the length of the fine-tuning, for the model before fine-tuning too",
    ),
)
_GRID = [
    *choices("grid", measure=("cka", "CKA (§3)", NOT_PUBLISHED, _TEXT)),
    *choices(
        "grid",
        when={"measure": ("cka",)},
        kernel=("linear", "linear (appendix A)", NOT_PUBLISHED, _TEXT),
        estimator=(
            "biased",
            "Kornblith et al. 2019, whose estimator is the biased one (§3, appendix A)",
            NOT_PUBLISHED,
            f"{_TEXT}. With few examples the biased value is too high: compare `--estimator both`",
        ),
    ),
]
_TRUNCATE = [
    *choices(
        "truncate",
        modes=(
            ["untuned", "tuned", "tuned-orig"],
            "three configurations: Untuned, Tuned, TunedOrig (§4)",
            NOT_PUBLISHED,
            _TEXT,
        ),
    ),
    *choices(
        "truncate",
        when=_TUNED,
        head_learning_rate=(1e-5, _HEAD, NOT_PUBLISHED, _OF_HEAD),
        head_batch_size=(4, _HEAD, NOT_PUBLISHED, _OF_HEAD),
        head_most_steps=(10_000, _HEAD, NOT_PUBLISHED, _OF_HEAD),
        head_warmup=(1_000, _HEAD, NOT_PUBLISHED, _OF_HEAD),
        head_decay=(True, NOT_STATED, "jiant's rate falls linearly to 0", _OF_HEAD),
        head_weight_decay=(0.0, _HEAD, NOT_PUBLISHED, _OF_HEAD),
        head_validation_share=(
            0.0,
            "no word of early stopping (§2, §4)",
            NOT_PUBLISHED,
            f"{_OF_HEAD}: heads learn from all training rows and are taken after the last step",
        ),
        head_scale=(
            False,
            "the representation is fed directly to the head (§4)",
            NOT_PUBLISHED,
            f"{_TEXT}. With `--head-scale`, heads of low layers learn more: the vectors of "
            "different texts differ little there",
        ),
    ),
]
_BLOCKS = choices(
    "blocks",
    clusters=(
        2,
        '"two distinct clusters of earlier (approx. first 10) and later (approx. last 14) layers" '
        "(§3)",
        NOT_PUBLISHED,
        _TEXT,
    ),
)
PHANG2021 = PaperPreset(
    "phang2021",
    "Phang, Liu and Bowman 2021. *Fine-Tuned Transformers Show Clusters of Similar "
    "Representations Across Layers.* BlackboxNLP",
    "The authors used the library jiant 2 and published no scripts of their own. `code` gives "
    "jiant's defaults",
    (*_FINETUNE, *_EXTRACT, *_GRID, *_TRUNCATE, *_BLOCKS),
    (
        Difference(
            "truncate --mode tuned",
            "only the output head is fine-tuned (§4)",
            NOT_PUBLISHED,
            "the same, on vectors that are computed once: the dropout of encoder and head is off. "
            "The pooler belongs to the encoder in jiant, and is not tuned below `--head jiant`; "
            "with `--head transformers` it is tuned. Where there are more training rows than the "
            "steps can read, as many are drawn",
        ),
        Difference(
            "skip",
            "RoBERTa, on a subset of the tasks (§4.1, figure 4)",
            NOT_PUBLISHED,
            "`phang2021.toml` skips spans of every model on every task, and figure 4 is a part of "
            "this",
        ),
        Difference(
            "finetune, tasks cosmosqa and hellaswag",
            NOT_STATED,
            "jiant: context and question in the first segment, an answer in the second; the ending "
            "of HellaSwag after the second half of its context",
            "the same segments",
        ),
        Difference(
            "finetune, task yelp",
            NOT_STATED,
            NOT_PUBLISHED,
            "the test set, because Yelp has no validation set",
        ),
    ),
)
