"""Why tests of peers fail with simcore in the place of their functions, by adapter and test."""

_MESSAGE = "simcore's messages have other words"
_CONSTANT = "the correlation with a constant is undefined, `nan` with a warning; dcor has 0"
_FLOAT32 = "float64 values of simcore are compared with float32 ones of the peer for equality"
DIFFERS = {
    "dcor": {
        "test_dcor.py::TestDistanceCorrelation::test_dcor_constant": _CONSTANT,
        "test_dcor.py::TestDistanceCorrelation::test_distance_correlation_multivariate": _CONSTANT,
    },
    "cka": {
        "test_cka.py::TestLayerValidation::test_invalid_layer_name": _MESSAGE,
        "test_cka.py::TestLayerValidation::test_invalid_layer_type": _MESSAGE,
        "test_cka_from_features.py::TestCkaFromFeatures::test_n_samples_too_small_raises": _MESSAGE,
        "test_cka_from_features.py::TestCkaFromFeatures::test_values_in_range": (
            "unbiased CKA of unrelated layers may be below 0, where the package clips it"
        ),
        "test_cka_extended.py::TestCompare::test_small_batch_raises_error": (
            "simcore joins a small batch with the next"
        ),
        "test_cka_extended.py::TestMakeHook::test_transformer_output": (
            "an output of a class of its own wants `select=`"
        ),
        "test_cka_extended.py::TestMakeHook::test_output_greater_than_2d_flattened": (
            "feature maps want a choice of `pool=`, where the package flattens them"
        ),
    },
    "pu": {
        "test_metrics_geometric.py::TestProcrustes::test_scaling_invariant": (
            "a distance is the root of a rounding error, 1e-8, where the test wants 1e-10"
        ),
        "test_metrics_geometric.py::TestProcrustes::test_requires_same_dimension": (
            "simcore compares layers of different widths"
        ),
    },
    "aristotelian": {
        "test_cka_estimators.py::TestCKAEstimatorsEdgeCases::test_mismatched_samples_raises": (
            _MESSAGE
        ),
        "test_metrics.py::test_mutual_knn_overlap_validates_inputs": _MESSAGE,
        "test_metrics.py::test_sg_knn_respects_perms_and_null_matches_manual": _FLOAT32,
        "test_metrics.py::test_sg_knn_all_perms_exact_pvalue": _FLOAT32,
    },
}
