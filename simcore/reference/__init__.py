"""The float64 twins: every measure written exactly as its definition, in numpy alone.

These functions may be slow. They share no code with the compiled operators, which the tests compare
with them. The header comment of each kernel names its twin here. ``__all__`` of each module lists
its public names.

Notation: a representation ``x`` is ``[n, p]``, n examples by p neurons; ``H = I - 11'/n``.
"""

from simcore.reference import attention as _attention
from simcore.reference import cca as _cca
from simcore.reference import coupling as _coupling
from simcore.reference import distances as _distances
from simcore.reference import hsic as _hsic
from simcore.reference import imd as _imd
from simcore.reference import matching as _matching
from simcore.reference import neighbours as _neighbours
from simcore.reference import neurons as _neurons
from simcore.reference import rowwise as _rowwise
from simcore.reference import rsa as _rsa
from simcore.reference import subspaces as _subspaces
from simcore.reference import topology as _topology
from simcore.reference.attention import *
from simcore.reference.cca import *
from simcore.reference.coupling import *
from simcore.reference.distances import *
from simcore.reference.hsic import *
from simcore.reference.imd import *
from simcore.reference.matching import *
from simcore.reference.neighbours import *
from simcore.reference.neurons import *
from simcore.reference.rowwise import *
from simcore.reference.rsa import *
from simcore.reference.subspaces import *
from simcore.reference.topology import *

__all__: list[str] = []
__all__ += _attention.__all__
__all__ += _cca.__all__
__all__ += _coupling.__all__
__all__ += _distances.__all__
__all__ += _hsic.__all__
__all__ += _imd.__all__
__all__ += _matching.__all__
__all__ += _neighbours.__all__
__all__ += _neurons.__all__
__all__ += _rowwise.__all__
__all__ += _rsa.__all__
__all__ += _subspaces.__all__
__all__ += _topology.__all__
