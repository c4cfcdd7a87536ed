"""What torch asks of an operator."""

import torch


def opcheck(operator, arguments, whole=True):
    """Check schema and fake kernel, and, once for an operator, derivatives and compiled calls."""
    few = ("test_schema", "test_faketensor")
    checks = torch.library._OPCHECK_DEFAULT_UTILS if whole else few
    torch.library.opcheck(operator, arguments, test_utils=checks)
