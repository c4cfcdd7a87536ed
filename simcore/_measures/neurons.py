"""The records of `simcore/neurons.py`."""

from .record import BASES_OF_Y, Measure

_SINGLE = ("translation", "scaling of neurons", "signs of neurons", "permutation of neurons")

RECORDS = (
    Measure(
        name="neuronsim",
        function="neuronsim_grid",
        label="neuronsim",
        summary="each neuron of X with its best neuron of Y",
        page="neurons",
        job="neuronsim13",
        options={"top_k": None},
        symmetric=False,
        operators=("best_partners",),
        invariant=_SINGLE,
        undefined="variance",
    ),
    Measure(
        name="mixedsim",
        function="mixedsim_grid",
        label="mixedsim",
        summary="each neuron of X with all of Y",
        page="neurons",
        job="mixedsim13",
        options={"top_k": None},
        symmetric=False,
        precomputed=BASES_OF_Y,
        operators=("multiple_correlations",),
        invariant=_SINGLE,
        invariant_y=("translation", "invertible linear map"),
        undefined="variance",
    ),
)
