"""The choices of Ren et al. 2023."""

from __future__ import annotations

from simlab.papers.choice import NOT_STATED, Difference, PaperPreset, choices, metric_of

_CODE = "follows the code: the text states none"
_TRAINER = "no value: the default of the Trainer"

_FINETUNE = [
    *choices(
        "finetune",
        epochs=(3, NOT_STATED, "3 (`scripts/run_finetune.py`)", _CODE),
        learning_rate=(2e-5, NOT_STATED, "2e-5 (`scripts/run_finetune.py`)", _CODE),
        batch_size=(8, NOT_STATED, f"{_TRAINER}, 8 on each device", _CODE),
        max_length=(128, NOT_STATED, "128 (`scripts/run_finetune.py`)", _CODE),
        warmup=(0, NOT_STATED, f"{_TRAINER}, 0", _CODE),
        weight_decay=(0.0, NOT_STATED, f"{_TRAINER}, 0", _CODE),
        adam_epsilon=(1e-8, NOT_STATED, f"{_TRAINER}, 1e-8", _CODE),
        group_by_length=(False, NOT_STATED, f"{_TRAINER}: random batches", _CODE),
        seed=(
            42,
            "25 models that differ in the seed of the pre-training (§4.1); no word of the seed of "
            "the fine-tuning",
            f"{_TRAINER}, 42, for each of the 25 models",
            f"{_CODE}. Fine-tune the models `google/multiberts-seed_0` to `-seed_24` with it",
        ),
    ),
    *choices(
        "finetune",
        when={"task": ("mrpc",)},
        epochs=(5, NOT_STATED, "5 for MRPC (`scripts/run_finetune.py`)", _CODE),
    ),
]
_EXTRACT = choices(
    "extract",
    kind=(
        "mean-all",
        "the mean over the k tokens of a text (§3.1)",
        "the mean over all 128 positions, padding included",
        "follows the text: special tokens are tokens, padding is none. `--kind mean-padded` "
        "follows the code, and `--kind mean` leaves special tokens out",
    ),
    split=(
        "heldout",
        "the maps are judged on the test set (§4.4); the figures do not say theirs",
        "the maps are judged on rows of the training set",
        "rows that no map was fitted on. `--split train` gives rows to fit on, and `--split test` "
        "as in the text: test rows, without their labels",
    ),
    max_length=(
        128,
        NOT_STATED,
        "128 tokens, padding included",
        "text and code agree for texts of up to 128 tokens",
    ),
)
_GRID = [
    *choices(
        "grid",
        measure=(
            "cca",
            "CCA (§3.3, table 2)",
            "CCA (`utils/similarity.py`)",
            "text and code agree",
        ),
    ),
    *choices(
        "grid",
        when={"measure": ("cca",)},
        reduction=(
            "r2",
            "`||Q_Y' Q_X||_F^2 / d`: the mean of squared correlations (table 2)",
            "computes maps and their errors, no similarity",
            "follows the text",
        ),
    ),
    *choices(
        "grid",
        when={"measure": ("svcca",)},
        truncation=(
            0.99,
            '"directions which capture most of the variance" (§3.3); no number',
            "the components whose singular values sum to .9 of their sum, which is no share of the "
            "variance",
            "the share of the variance that SVCCA's authors name",
        ),
    ),
]
_BLOCKS = choices(
    "blocks",
    clusters=(
        2,
        "two groups: layers 1 to 8, which are invariant, and layers 9 to 12, which are not "
        "(appendix B.2)",
        "scores no groups",
        "follows the text",
    ),
)
_KEPT = (
    '"directions which capture most of the variance" (§3.3); no number',
    "the components whose singular values, not their squares, sum to .9, and as many on both sides",
    "as for `grid --measure svcca`",
)
_WEIGHTED = (
    "PWCCA sometimes gives results that are the same as CCA's, or similar (§4.1)",
    "keeps all canonical directions",
    "text and code agree: a map of all directions equals the map of CCA",
)
_HIDDEN = (
    NOT_STATED,
    "as many hidden units as the states have columns: 768",
    "follows the code",
)
_ALIGN_STUDY = [
    *choices(
        "align-study",
        methods=(
            ["linear", "cca", "svcca", "pwcca", "mlp", "inn"],
            "linear regression, CCA, SVCCA, PWCCA, a network that is no bijection, INN (table 4); "
            "the linear map is the minimum of the squared error (§3.3)",
            "SVCCA, PWCCA, INN, a network, and a linear map trained by gradient descent: "
            "`linear-gd`",
            "follows the text",
        ),
        map=(
            "per-layer",
            '"for each layer, we align the 25 BERTs" (figure 2)',
            "one map for all 13 layers: `shared`",
            "follows the text",
        ),
        training=(
            "ours",
            "couplings stacked in alternation (§3.4), trained on the squared error (equation 10); "
            "no word of the optimiser",
            "`ren2023`: one block of two couplings; Adam with a rate of 1e-6, multiplied by .99 "
            "after each of 3,000 batches of 64; Xavier's normal start; columns neither centred "
            "nor scaled",
            "follows the text: the rate of the code falls so fast that maps stay near their start",
        ),
    ),
    *choices("align-study", when={"methods": ("svcca",)}, truncation=(0.99, *_KEPT)),
    *choices("align-study", when={"methods": ("pwcca",)}, weight_share=(1.0, *_WEIGHTED)),
    *choices("align-study", when={"methods": ("mlp",)}, mlp_hidden=(0, *_HIDDEN)),
    *choices(
        "align-study",
        attention_rows=(
            "keys",
            "the distributions of attention of each head (§4.2); no word of how they become rows",
            "a row is a text: the mean over its 128 queries, special tokens and padding included",
            "follows the code in the mean over queries, and a map for each head and its "
            "counterpart. Special tokens are read and then left out, so that the weights of a word "
            "sum to 1 again, and tokens become words: a row is the mean over the words of a text, "
            "filled with zeros up to the longest one. `--attention-rows pairs` has rows of word "
            "pairs and a column for each head. `--across-layers` has the rows of `keys` always",
        ),
        rows=(
            1600,
            "1,600 training and 1,600 test samples (table 4)",
            "25 batches of 64 are judged; trained maps read the training data batch by batch",
            "text and code agree on what is judged",
        ),
        pairs=(
            8,
            "8 pairs drawn out of 300 (§4.1); all 300 for the box plots",
            "no draw; the figures read files of 36 or of 300 pairs",
            "follows the text",
        ),
        directions=(
            "one",
            "300 combinations of 25 models: pairs without direction (§4.1)",
            "from `seed_x` to `seed_y`",
            "text and code agree",
        ),
    ),
]
_INJECT = [
    *choices(
        "inject",
        methods=(
            [
                *("itself", "linear", "cca", "pwcca", "mlp", "inn"),
                *("random-classifier", "random-labels"),
            ],
            "linear regression, CCA, PWCCA, a network that is no bijection, INN; the pretrained "
            "model with a random classifier, and random labels (table 5)",
            "PWCCA, INN, a network, and a linear map trained by gradient descent: `linear-gd`",
            "follows the text; `itself`, B alone, is what there is to reach",
        ),
        pairs=(
            8,
            "8 drawn pairs of 300 (§4.1)",
            "8 pairs: seeds 14 to 17 into seeds 5 and 6",
            "the number of both; with `--into` for the models B, `--pairs` draws from these pairs",
        ),
        directions=("one", "from M1 to M2 (§4.5)", "one direction", "text and code agree"),
        tokens=(
            "all",
            "the embeddings of the last layer (§4.5)",
            "every token; with PWCCA token 0 alone",
            "text and code agree, up to PWCCA. Heads of BERT read token 0 alone, so that the "
            "values of `cls` are the same at the last layer",
        ),
        fit_on=(
            "mean-all",
            "X and Y, whose rows are the means over the k tokens of a text (§3.1, equations 1 and "
            "2; §4.5)",
            "means over all 128 positions of a text, padding included",
            "follows the text, as `extract` does: special tokens are tokens, padding is none. "
            "`--fit-on mean-padded` follows the code",
        ),
        continue_with=(
            "model",
            '"we keep all the other weights in M2 unchanged" (§4.5)',
            "the pooler of M1, then the classifier of M2",
            "follows the text; `--continue-with classifier` follows the code",
        ),
        training=(
            "ours",
            NOT_STATED,
            "`ren2023`, as for `align-study`",
            "as for `align-study`: the rate of the code falls so fast that maps stay near their "
            "start",
        ),
    ),
    *choices("inject", when={"methods": ("svcca",)}, truncation=(0.99, *_KEPT)),
    *choices("inject", when={"methods": ("pwcca",)}, weight_share=(1.0, *_WEIGHTED)),
    *choices("inject", when={"methods": ("mlp",)}, mlp_hidden=(0, *_HIDDEN)),
    *choices(
        "inject",
        fit_size=(
            1600,
            "1,600 samples (table 4)",
            "1,600 texts for PWCCA; trained maps see up to 192,000",
            "follows the text",
        ),
        max_length=(128, NOT_STATED, "128 tokens, padding included", _CODE),
    ),
]
_METRIC = metric_of(
    "plot",
    "claims",
    text='"We report accuracy performance for the three datasets" (table 5)',
    code=NOT_STATED,
    why="follows the text; F1 is the main metric of MRPC elsewhere",
)
REN2023 = PaperPreset(
    "ren2023",
    "Ren et al. 2023. *All Roads Lead to Rome? Exploring the Invariance of Transformers' "
    "Representations.* arXiv 2305.14555",
    "https://github.com/twinkle0331/BERT-similarity",
    (*_FINETUNE, *_EXTRACT, *_GRID, *_BLOCKS, *_ALIGN_STUDY, *_INJECT, *_METRIC),
    (
        Difference(
            "finetune",
            NOT_STATED,
            "`--fp16`: half precision on a GPU; `--load_best_model_at_end`: the best epoch",
            "full precision on every device, and the model after the last epoch",
        ),
        Difference(
            "grid --measure svcca",
            "the mean of the squared correlations of truncated layers (table 2)",
            "computes maps and their errors, no similarity",
            "the mean of the correlations, as the authors of SVCCA define it; `--measure cca "
            "--truncation 0.99` gives the value of table 2",
        ),
        Difference(
            "extract",
            "the models run in inference mode (§4.1)",
            "dropout is on while the states are extracted that the maps are judged on",
            "follows the text: dropout would make the error of a perfect map larger than 0",
        ),
        Difference(
            "align-study --judge",
            "maps are fitted on training and judged on test examples (§4.4, table 4)",
            "judged on training examples; a comment tells which line to change",
            "follows the text: name the folder with the test examples with `--judge`",
        ),
        Difference(
            "align-study --method cca",
            "`W_X W_Y^-1` (equation 6)",
            "forms `W_Y` with the transpose of the right singular vectors (`utils/similarity.py`): "
            "its map pairs variates that are unrelated",
            "follows the text",
        ),
        Difference(
            "align-study --method svcca",
            "errors of the dimension-reduced matrices (§4.1)",
            "the same",
            "both are stored: errors in the space of Y, which can be compared with those of other "
            "methods, and errors per kept component, as in the paper",
        ),
        Difference(
            "align-study --across-layers",
            "figures 6 and 8 show layers and heads of two models",
            "fills the grid above the diagonal with the values below it, and judges the one map of "
            "all layers on every pair of layers",
            "a map is fitted for every pair of layers: the error from X to Y is not the error from "
            "Y to X. With `--map shared`, the one map of all layers is judged on all pairs",
        ),
        Difference(
            "inject",
            "a map between the spaces of the last layer (§4.5)",
            "one map for all 13 layers, with a step of the optimiser for each layer of a batch",
            "follows the text: a map for the layer, which takes one step for each batch",
        ),
        Difference(
            "inject --method pwcca",
            NOT_STATED,
            "the mapped states are centred by the mean of their batch, and the mean of Y is not "
            "added; the map is fitted with dropout on",
            "the mean of X comes from the rows of the fit, the mean of Y is added, and dropout is "
            "off: states without the mean of Y are not in its space",
        ),
        Difference(
            "align-study --method, inject --method",
            "hyperparameters are tuned on the validation set (§4.4)",
            NOT_STATED,
            "one fixed setting of each method, because the text names no other one; `--tune 8` "
            "searches, for each pair of models, in a list of up to eight settings of each method, "
            "on a fifth of the examples of the fit. In `ren2023.toml` tables 4 and 5 are tuned, "
            "and the blocks `300 pairs` and `across layers` are not",
        ),
        Difference(
            "align-study --tune and inject --tune, method pwcca",
            _WEIGHTED[0],
            _WEIGHTED[1],
            "the search begins with all of the weight, as text and code have it, and may choose "
            ".95 or .9: a tuned PWCCA then maps with fewer directions than the paper's. Without "
            "`--tune` all are kept",
        ),
        Difference(
            "align-study and inject, methods inn, mlp and linear-gd",
            "maps are fitted on 1,600 samples (table 4); no word of early stopping",
            "all rows are trained on, and the weights of the last step are taken",
            "a tenth of the rows of the fit is kept from the training, and chooses the epoch whose "
            "weights are taken. Least squares and the canonical methods are fitted on all rows. "
            "`--training ren2023` trains on all rows, as in the code",
        ),
        Difference(
            "table 3",
            "sentence means X, Y = f(X) with an untrained network f, and maps from Y to X (§4.3)",
            "the same for maps that are trained (`run_sanity_check.py`); SVCCA and PWCCA map one "
            "model to another there",
            "no command: `known_inverse.py` in `examples/studies` has this direction with f drawn "
            "as in the code, and tunes; `protocols.py` has more methods, `known_map.py` the other "
            "direction",
        ),
        Difference(
            "align-study, number of rows",
            "1,600 training and 1,600 test samples (table 4), of attention too",
            "640 samples of attention",
            "in `ren2023.toml` 400 training and 400 test rows of attention, whose rows take more "
            "room; test rows whose text is in another split are left out",
        ),
    ),
)
