"""Types of numbers with a least value; the command refuses a smaller one as it is typed."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Least:
    """The least value of an annotated number."""

    value: int


Count = Annotated[int, Least(1)]
FromZero = Annotated[int, Least(0)]
Length = Annotated[int, Least(3)]  # two special tokens and another
