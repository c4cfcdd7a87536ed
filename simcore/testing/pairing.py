"""Which layer of B belongs to which layer of A, and whether the numbers of one are shifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Pairs = list[tuple[str | None, str | None]]
FURTHEST = 3  # places by which layers are looked for


def pair_layers(
    a: Sequence[str], b: Sequence[str], equal: Callable[[str, str], bool]
) -> tuple[Pairs, str]:
    """Return the pairs of layers in the order of A, and what is odd about them.

    Layers pair by name if all names of one side are among those of the other, otherwise by place.
    A shift is taken if it makes more layers equal: at least two and half of those that can be, or
    the first ones and no other, which is how a fault in one layer looks from there on.
    """
    by_name = set(a) <= set(b) or set(b) <= set(a)
    pairs: Pairs = [(name, name if name in b else None) for name in a]
    pairs += [(None, name) for name in b if name not in a]
    if not by_name:
        pairs = _by_place(a, b, 0)
    message = ""
    if len(a) != len(b):
        message = f"A has {len(a)} layers, B has {len(b)}"
    if len(a) == len(b) and all(x and y and equal(x, y) for x, y in pairs[:1]):
        return pairs, message
    shift, shifted = _best_shift(a, b, pairs, equal)
    if shift:
        pairs = shifted
        x, y = next((x, y) for x, y in pairs if x is not None and y is not None)
        places = f"{abs(shift)} place{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"
        told = f"the layers of A are those of B {places}: {x!r} of A is {y!r} of B"
        message = f"{message}; {told}" if message else f"shifted: {told}"
    return pairs, message


def _best_shift(
    a: Sequence[str], b: Sequence[str], pairs: Pairs, equal: Callable[[str, str], bool]
) -> tuple[int, Pairs]:
    """Return the places by which the layers of B are later than those of A, and the pairs."""
    best, most = (0, pairs), _equals(pairs, equal)
    for size in range(1, FURTHEST + 1):
        for shift in (size, -size):
            shifted = _by_place(a, b, shift)
            met = sum(x is not None and y is not None for x, y in shifted)
            count = _equals(shifted, equal)
            both = [pair for pair in shifted if None not in pair]
            of_the_first = _equals(both[:count], equal) == count
            if count > most and (count >= max(2, met / 2) or of_the_first):
                best, most = (shift, shifted), count
    return best


def _equals(pairs: Pairs, equal: Callable[[str, str], bool]) -> int:
    return sum(x is not None and y is not None and equal(x, y) for x, y in pairs)


def _by_place(a: Sequence[str], b: Sequence[str], shift: int) -> Pairs:
    """Pair layer i of A with layer i + shift of B; layers without a partner stand alone."""
    pairs: Pairs = []
    for i in range(min(0, -shift), max(len(a), len(b) - shift)):
        x = a[i] if 0 <= i < len(a) else None
        y = b[i + shift] if 0 <= i + shift < len(b) else None
        if x is not None or y is not None:
            pairs.append((x, y))
    return pairs
