"""calibrated-similarity, package ``aristotelian``: CKA, CCA, Procrustes and neighbours."""

import importlib.abc
import importlib.util
import sys
from unittest.mock import MagicMock

import torch

from outside.adapters import one
from outside.plugin import Unmapped, replace
from simcore import Gram, cca_grid, cka_grid, knn_grid, pwcca_grid, svcca_grid


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages of pictures and videos, which the package imports with its measures."""

    def find_spec(self, name, path=None, target=None):
        absent = name.partition(".")[0] in ("timm", "torchvision", "av", "decord", "cv2")
        return importlib.util.spec_from_loader(name, self, is_package=True) if absent else None

    def create_module(self, spec):
        return MagicMock(__path__=[])

    def exec_module(self, module):
        pass


sys.meta_path.append(_Absent())  # after all others: a package that is there is taken


def _pair(X, Y):
    return [torch.as_tensor(X).double()], [torch.as_tensor(Y).double()]


@replace("aristotelian:standard_cka")
def standard_cka(original, X, Y, mode="linear"):
    if mode != "linear":
        raise Unmapped  # another width of the kernel
    return one(cka_grid(*_pair(X, Y), estimator="biased"))


@replace("aristotelian:cka")
def cka(original, feats_A, feats_B, *, kernel_metric="ip", rbf_sigma=1.0, unbiased=False):
    pair = _pair(feats_A, feats_B)
    if kernel_metric == "rbf":
        squares = (torch.cdist(layer, layer).square() for [layer] in pair)
        pair = [[Gram(torch.exp(-square / (2 * rbf_sigma**2)))] for square in squares]
    return one(cka_grid(*pair, estimator="unbiased" if unbiased else "biased"))


@replace("aristotelian:unbiased_cka")
def unbiased_cka(original, feats_A, feats_B):
    return one(cka_grid(*_pair(feats_A, feats_B), estimator="unbiased"))


@replace(
    *(
        f"aristotelian{module}:{name}"
        for name in ("cka_biased", "cka_naive")
        for module in ("", ".metrics.estimators")
    )
)
def cka_biased(original, X, Y):
    return one(cka_grid(*_pair(X, Y), estimator="biased"))


@replace(
    *(
        f"aristotelian{module}:{name}"
        for name in ("cka_debiased", "cka_song")
        for module in ("", ".metrics.estimators")
    )
)
def cka_debiased(original, X, Y):
    return one(cka_grid(*_pair(X, Y), estimator="unbiased"))


@replace("aristotelian:mutual_knn_overlap")
def mutual_knn_overlap(original, X, Y, k=10):
    return one(knn_grid(*_pair(X, Y), k=k))


@replace("aristotelian:mutual_knn")
def mutual_knn(original, feats_A, feats_B, *, topk):
    return one(knn_grid(*_pair(feats_A, feats_B), k=topk))


@replace("aristotelian.metrics.cca:cca_mean")
def cca_mean(original, X, Y, reg=1e-6):
    return one(cca_grid(*_pair(X, Y)))


@replace("aristotelian.metrics.cca:svcca_mean")
def svcca_mean(original, X, Y, var_threshold=0.99):
    return one(svcca_grid(*_pair(X, Y), truncation=var_threshold))


@replace("aristotelian.metrics.cca:svcca_mean_k")
def svcca_mean_k(original, X, Y, k=10):
    return one(svcca_grid(*_pair(X, Y), truncation=k))


@replace("aristotelian.metrics.cca:pwcca_mean")
def pwcca_mean(original, X, Y, reg=1e-6):
    return one(pwcca_grid(*_pair(X, Y)))


@replace("aristotelian.metrics.cca:rv_coefficient")
def rv_coefficient(original, X, Y):
    return one(cka_grid(*_pair(X, Y), estimator="biased"))
