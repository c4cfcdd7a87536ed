"""The registry: names, options and ranges; each refusal says what the registry accepts."""

import subprocess
import sys

import pytest

from simlab.errors import UserError
from simlab.similarity.catalogue import MEASURES, OPTIONS, help_lines, settings


def test_every_option_of_every_measure_is_known_and_its_default_accepted():
    for measure in MEASURES.values():
        for option, default in measure.options.items():
            assert OPTIONS[option][1](default)


def test_settings_are_the_defaults_and_what_was_given():
    assert settings("svcca", {}) == {
        "truncation": 0.99,
        "standardize": False,
        "top_k": None,
        "causal": False,
    }
    assert settings("svcca", {"truncation": 20})["truncation"] == 20
    assert settings("linreg", {}) == {}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "ckaa",
            {},
            r"'ckaa' \(did you mean 'cka'\?\): wanted one of cka, cka-angular, cca, svcca",
        ),
        ("rsa", {"kernel": "rbf"}, r"measure='rsa': wanted .* \(correlation\), found kernel"),
        ("linreg", {"kernel": "rbf"}, r"measure='linreg': wanted .* \(none\), found kernel"),
        ("cka", {"estimator": "none"}, "estimator: wanted biased, unbiased or both, found"),
        ("cka", {"kernel": "poly"}, "kernel: wanted linear or rbf, found 'poly'"),
        ("cka", {"bandwidth": 0.0}, "bandwidth: wanted a positive number, found 0.0"),
        ("cka", {"bandwidth": float("nan")}, "bandwidth"),
        ("cca", {"reduction": "max"}, "reduction: wanted mean or r2, found 'max'"),
        ("svcca", {"truncation": 1.5}, r"truncation: wanted a share .* or a count .*, found 1.5"),
        ("svcca", {"truncation": 0}, "truncation"),
        ("svcca", {"truncation": "x"}, "truncation"),
        ("rsa", {"correlation": "kendall"}, "correlation: wanted pearson or spearman"),
        ("mixedsim", {"top_k": 0}, r"top_k: wanted a count \(50\) or a share \(0.1\), found 0"),
        ("linreg", {"top_k": 1}, r"measure='linreg': wanted .* \(none\), found top_k"),
    ],
)
def test_what_does_not_exist_is_refused(name, given, message):
    with pytest.raises(UserError, match=message):
        settings(name, given)


def test_the_help_has_every_measure_with_its_options():
    lines = dict(zip(MEASURES, help_lines()[1:], strict=True))
    assert lines["rsa"].startswith("`rsa`: ")
    assert "--correlation pearson" in lines["rsa"]
    assert lines["mixedsim"].endswith("(--top-k, asymmetric: both directions are stored)")
    assert "--ridge 0.0" in lines["gulp"]
    assert "both directions" in lines["pwcca"]
    assert "both directions" not in lines["svcca"]


def test_the_registry_loads_no_numerics():
    code = "import sys, simlab.similarity.catalogue; "
    code += "print([m for m in ('numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
