"""What torch asks of an operator, and which operators csrc/torch/schema.cpp defines."""

import re
from pathlib import Path

import torch

SCHEMA = Path(__file__).resolve().parents[2] / "csrc" / "torch" / "schema.cpp"


def opcheck(operator, arguments, whole=True):
    """Check schema and fake kernel, and, once for an operator, derivatives and compiled calls."""
    few = ("test_schema", "test_faketensor")
    checks = torch.library._OPCHECK_DEFAULT_UTILS if whole else few
    torch.library.opcheck(operator, arguments, test_utils=checks)


def defined_operators():
    return set(re.findall(r'm\.def\(\s*"(\w+)\(', SCHEMA.read_text()))
