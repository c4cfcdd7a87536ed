"""Are two models the same, layer by layer? For pytest, and for programs.

verdicts.py  the verdict of each layer, and of all together, as text and as a dictionary
judge.py     two sets of states and the noise of the first, paired and judged
alike.py     `check_alike` and `assert_alike`: two modules and the noise of one, recorded and judged

The noise is measured, not fixed: A against A under circumstances that should make no difference.
"""

from simcore.testing.alike import assert_alike, check_alike
from simcore.testing.judge import judge_alike
from simcore.testing.verdicts import AlikeResult, LayerVerdict

__all__ = ["AlikeResult", "LayerVerdict", "assert_alike", "check_alike", "judge_alike"]
