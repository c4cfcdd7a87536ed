"""Which rows each draw takes: permutations, resamples and halves of the examples.

Rows that are no independent examples, such as the words of a sentence, form groups, and every draw
takes whole groups. A draw is an array of row numbers; the first draw is always all rows in order.
"""

import numpy as np

from simcore._grid.inputs import Groups, group_numbers


def read_groups(groups: Groups | None, n: int) -> list[np.ndarray] | None:
    """Return the row numbers of every group, in the order of its first row.

    None stands for rows that are independent: there are no groups, or each has one row.
    """
    numbers = group_numbers(groups, n)
    if numbers is None:
        return None
    sizes = np.bincount(numbers)
    if len(sizes) < 2:
        raise ValueError(f"groups: wanted at least 2 groups of rows, got {len(sizes)}")
    rows = np.argsort(numbers, kind="stable").astype(np.int32)
    return np.split(rows, np.cumsum(sizes)[:-1])


def permutations(
    rng: np.random.Generator, n: int, count: int, members: list[np.ndarray] | None
) -> np.ndarray:
    """Return row numbers ``[1 + count, n]`` int32: all rows in order, then permutations.

    Groups change places only with groups that have the same number of rows, so that every row keeps
    its place in its group. Each such permutation is as likely as any other.
    """
    rows = np.tile(np.arange(n, dtype=np.int32), (1 + count, 1))
    if members is None:
        rng.permuted(rows[1:], axis=1, out=rows[1:])
        return rows
    classes = _classes(members)
    if all(len(alike) == 1 for alike in classes):
        raise ValueError(
            f"groups: wanted two groups with the same number of rows, because only these change "
            f"places, got {len(members)} groups of different sizes"
        )
    for alike in classes:
        order = _orders(rng, count, len(alike))
        rows[1:, alike.ravel()] = alike[order].reshape(count, alike.size)
    return rows


def rotations(
    rng: np.random.Generator, n: int, count: int, members: list[np.ndarray]
) -> np.ndarray:
    """Return permutations ``[count, n]`` int32 in which no group keeps its place.

    The groups of one size, in random order, take the place of the next. A group stays
    where it is only if no other group has the same number of rows.
    """
    rows = np.tile(np.arange(n, dtype=np.int32), (count, 1))
    for alike in _classes(members):
        order = _orders(rng, count, len(alike))
        places = alike[order].reshape(count, alike.size)
        taken = alike[np.roll(order, 1, axis=1)].reshape(count, alike.size)
        np.put_along_axis(rows, places, taken, axis=1)
    return rows


def _classes(members: list[np.ndarray]) -> list[np.ndarray]:
    """Return the row numbers ``[groups, size]`` of all groups of each size."""
    sizes = np.array([len(group) for group in members])
    return [np.stack([members[i] for i in np.flatnonzero(sizes == s)]) for s in np.unique(sizes)]


def _orders(rng: np.random.Generator, count: int, groups: int) -> np.ndarray:
    order = np.tile(np.arange(groups), (count, 1))
    rng.permuted(order, axis=1, out=order)
    return order


def resamples(
    rng: np.random.Generator, n: int, count: int, members: list[np.ndarray] | None
) -> list[np.ndarray]:
    """Return ``1 + count`` arrays of row numbers: all rows in order, then draws with replacement.

    A resample has as many groups as there are, so that its number of rows may differ from n.
    """
    drawn = _units(rng, count, n if members is None else len(members))
    return [np.arange(n, dtype=np.int32), *(_rows(units, members) for units in drawn)]


def halves(
    rng: np.random.Generator, n: int, count: int, members: list[np.ndarray] | None
) -> list[np.ndarray]:
    """Return ``1 + count`` arrays of row numbers: all rows in order, then halves of the groups.

    A half is drawn without replacement, and its rows are in order.
    """
    units = n if members is None else len(members)
    drawn = (np.sort(rng.permutation(units)[: units // 2]) for _ in range(count))
    return [np.arange(n, dtype=np.int32), *(_rows(half, members) for half in drawn)]


def _units(rng: np.random.Generator, count: int, units: int) -> np.ndarray:
    return rng.integers(0, units, size=(count, units), dtype=np.int32)


def _rows(units: np.ndarray, members: list[np.ndarray] | None) -> np.ndarray:
    if members is None:
        return units.astype(np.int32)
    return np.concatenate([members[unit] for unit in units])
