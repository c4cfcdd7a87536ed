"""The choices of Wu et al. 2020."""

from __future__ import annotations

from simlab.papers.choice import (
    NOT_PUBLISHED,
    NOT_STATED,
    Difference,
    PaperPreset,
    choices,
    metric_of,
)

_TEXT = "follows the text"
_DEFAULTS = '"the default parameters settings provided in the Transformer library" (appendix D)'
_OF_DEFAULTS = "follows the text: a default of the library's example script of that time"
_WORDS = {"kind": ("word-last", "word-mean", "attention")}
_VARIANCE = {"measure": ("svcca", "pwcca")}

_FINETUNE = choices(
    "finetune",
    epochs=(3, "3 (appendix D)", NOT_PUBLISHED, _TEXT),
    batch_size=(8, "8 (appendix D)", NOT_PUBLISHED, _TEXT),
    learning_rate=(5e-5, "5e-5 (appendix D)", NOT_PUBLISHED, _TEXT),
    adam_epsilon=(1e-8, "1e-8 (appendix D)", NOT_PUBLISHED, _TEXT),
    weight_decay=(0.0, f"Adam; {_DEFAULTS}", NOT_PUBLISHED, _OF_DEFAULTS),
    warmup=(0, _DEFAULTS, NOT_PUBLISHED, _OF_DEFAULTS),
    max_length=(128, _DEFAULTS, NOT_PUBLISHED, _OF_DEFAULTS),
    group_by_length=(False, _DEFAULTS, NOT_PUBLISHED, _OF_DEFAULTS),
)
_FREEZE_STUDY = choices(
    "freeze-study",
    bottom=([4, 6], "bottom 4 and 6 layers (table 1)", NOT_PUBLISHED, _TEXT),
    top=([4, 6], "top 4 and 6 layers (table 1)", NOT_PUBLISHED, _TEXT),
)
_EXTRACT = [
    *choices(
        "extract",
        kind=(
            "word-last",
            "the last sub-word of every word (§4)",
            "the last sub-word of every word",
            "text and code agree; `--kind attention` extracts attention",
        ),
        split=(
            "all",
            "the development set of the Penn Treebank (§4), a corpus without labels",
            "all its sentences; of sentences that repeat, one is kept",
            f"{_TEXT}: all sentences of the file, and repeated ones as often as they come",
        ),
    ),
    *choices(
        "extract",
        when=_WORDS,
        special_tokens=(
            False,
            NOT_STATED,
            "the scripts call the `encode` of pytorch-transformers, which added no special "
            "tokens, and take every token for a part of a word",
            "follows the code: attention from a word then sums to 1 over the words, as the text "
            "says, without any renormalisation",
        ),
        words=(
            "spaces",
            "the words of the Penn Treebank (§4)",
            "the sentences are the treebank's tokens, joined by spaces; a word begins where the "
            "tokenizer marks one",
            f"{_TEXT}: words that the tokenizer splits at punctuation stay one word, so that all "
            "models have the same rows",
        ),
    ),
    *choices(
        "extract",
        max_length=(
            512,
            "whole sentences (§4)",
            "no truncation",
            "text and code agree: the limit of most models",
        ),
    ),
]
_GRID = [
    *choices(
        "grid",
        measure=(
            "cka",
            "neuronsim, mixedsim, svsim, pwsim and ckasim (§3)",
            "all of them",
            "the measure of figures 1b, 2 and 5; name another one with `--measure`",
        ),
    ),
    *choices(
        "grid",
        when={"measure": ("cka",)},
        kernel=("linear", "linear; RBF in preliminary experiments (footnote 4)", "both", _TEXT),
        estimator=(
            "biased",
            "the biased one (appendix A.3)",
            "the biased one, of columns that are centred and not scaled",
            "text and code agree",
        ),
    ),
    *choices(
        "grid",
        when=_VARIANCE,
        truncation=(
            0.99,
            "99 % of the variance, for SVCCA, and PWCCA is identical up to the weights (appendix "
            "A.3)",
            "the components whose variance sums to strictly less than 99 %: one component fewer",
            f"{_TEXT}: the fewest components that reach 99 %. From Python, `truncation` takes a "
            "list of counts; the page of SVCCA has the lines that make the code's list",
        ),
        standardize=(
            True,
            "columns are centred (appendix A.3)",
            "columns are centred and divided by their standard deviation, for SVCCA and PWCCA",
            "follows the code, which the figures come from: otherwise the few neurons of large "
            "variance would make up most of the 99 %",
        ),
    ),
]
_LOCALIZE = choices(
    "localize",
    standardize=(
        True,
        "the means of svsim are subtracted from the means of neuronsim (§5.1)",
        "the notebooks that drew figures 3 and 7 standardise both series of means, over all layers "
        "of the joint grid with the embedding output, before they subtract",
        "follows the code, which the figures come from. The joint grid of figure 3 has all "
        "pretrained models, each of figure 7 one model and its fine-tunings",
    ),
)
_METRIC = metric_of(
    "plot",
    "claims",
    text="table 1 names no metric of SST-2, MNLI, QNLI and QQP",
    code=NOT_PUBLISHED,
    why="the one metric that all four tasks have; F1 is the main metric of QQP elsewhere",
)
WU2020 = PaperPreset(
    "wu2020",
    "Wu et al. 2020. *Similarity Analysis of Contextual Word Representation Models.* ACL",
    "https://github.com/johnmwu/contextual-corr-analysis; the scripts that extract "
    "representations stand in its history only",
    (*_FINETUNE, *_FREEZE_STUDY, *_EXTRACT, *_GRID, *_LOCALIZE, *_METRIC),
    (
        Difference(
            "grid --measure neuronsim",
            "the maximum of the absolute Pearson correlation (appendix A.1)",
            "the same",
            "text and code agree",
        ),
        Difference(
            "grid --measure pwcca",
            "the weights come from the centred representation (appendix A.3)",
            "the weights come from the representation as it was before its columns were "
            "standardised",
            "with `--standardize` they come from the standardised columns, so that a neuron's "
            "scale counts nowhere; without, they equal the text's. Centring changes none of "
            "them, because variates are orthogonal to constants",
        ),
        Difference(
            "grid --measure mixedsim",
            "the norm of the prediction over the norm of the neuron (appendix A.2)",
            "the same, of standardised columns",
            "text and code agree: the scale of neurons changes neither prediction nor ratio",
        ),
        Difference(
            "grid --top-k",
            "the mean over the top k neurons, or canonical correlations (footnote 3); no k",
            "shares of 0.1 to 1 of the neurons, the best of each pair of layers",
            "the option takes a count or a share; no value is set, because the paper's figures "
            "average all",
        ),
        Difference(
            "grid --causal",
            "no word of a mask (§3.4)",
            "an option masks the words after each word and renormalises; one experiment uses it",
            "the same option; it is not set",
        ),
        Difference(
            "grid --measure attention-pearson",
            "the Pearson correlation of a word's attention in two heads (appendix A.4)",
            "the covariance is divided by n and the deviations by n - 1; sentences of one word "
            "count as 0",
            "the correlation itself, which is at most 1; constant rows, and with them sentences "
            "of one word, count as 0",
        ),
        Difference(
            "localize",
            "the mean over all layers of all models (§5.1)",
            "the comparison of a layer with itself is left out",
            "follows the code: all scores become N / (N - 1) times the text's, for N layers "
            "in the joint grid",
        ),
        Difference(
            "extract, corpus",
            "the development set of the Penn Treebank (§4); the English Web Treebank (appendix "
            "B.1, figure 9)",
            "reads `ptb_pos_dev`; no corpus is published with it",
            "`wu2020.toml` reads both from files. The Penn Treebank has a licence of the LDC; "
            "without it, the free English Web Treebank takes its place in the file, and all "
            "figures are then of this corpus",
        ),
        Difference(
            "extract --limit",
            "the whole development set (§4)",
            "a limit counts words, and cuts the last sentence of representations",
            "a limit counts sentences; none is set",
        ),
        Difference(
            "extract",
            "each layer (§4)",
            "the scripts drop the last entry of the list of hidden states, unless "
            "`--include_embeddings` is given",
            "all layers and the embedding output are stored; a figure may show fewer",
        ),
        Difference(
            "extract, ELMo",
            "the original ELMo, one of four layers and a transformer (figures 1, 3, 8 and 9)",
            "reads files of representations, whichever program wrote them",
            "the layers are `rows` of a model of a sweep: those of the LSTMs are written by "
            "`examples/models/elmo.py`, those of the transformer by another program",
        ),
        Difference(
            "freeze-study --bottom",
            "the bottom layers are frozen (appendix D)",
            NOT_PUBLISHED,
            "the embeddings are frozen with the bottom layers",
        ),
    ),
)
