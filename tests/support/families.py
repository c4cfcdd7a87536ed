"""The families of operators, under the names that csrc, simcore/_ops and bench share."""

FAMILIES = ("hsic", "spectral", "neurons", "rsa", "neighbours", "attention", "coupling")
