"""Report on this machine for simcore: versions, devices, and the checks of kernels."""

from __future__ import annotations

from typing import Any

from simlab.errors import UserError
from simlab.store.runtime import versions


def doctor(*, cached: bool = False) -> dict[str, Any]:
    """Return versions, devices, and whether the kernels of simcore agree with torch there.

    Parameters
    ----------
    cached
        Print what earlier checks found; run none.

    Returns
    -------
    dict
        ``versions`` of Python and packages, ``system``, ``cuda`` (torch's version of it, or None),
        ``build`` (`simcore.build_info`), ``cache`` (the folder of results) and ``devices``: each
        with ``device``, ``name``, ``memory`` in bytes, ``capability`` and ``operators``. An
        operator has ``uses`` ("kernel" or "composed"), ``state`` ("passed", "failed", "not
        checked" or "not built"), ``error``, ``expected_gain`` and ``gain``, how many times as fast
        as operations of torch the kernel is expected to be, and was.

    Raises
    ------
    UserError
        The variable ``SIMCORE_KERNELS`` has another value than ``auto``, ``on`` and ``off``.
    """
    from simcore._kernels.doctor import examine

    try:
        report = examine(check=not cached)
    except ValueError as error:  # a wrong value of SIMCORE_KERNELS
        raise UserError(str(error)) from None
    return {"versions": versions(), **report}
