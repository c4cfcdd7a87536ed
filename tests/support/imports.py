"""The imports between the modules of a package, read from the sources: nothing is imported."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Arrows = Mapping[str, set[str]]


def read_arrows(package: Path) -> dict[str, set[str]]:
    """Return, for each module of a package, the other modules of the package that it imports.

    Every import statement counts, those inside of functions and for type checkers too: a reader
    has to follow them all. ``from a import b`` is an import of module ``a.b`` where there is one,
    else of module ``a``.

    Parameters
    ----------
    package
        The package's folder.

    Returns
    -------
    dict
        By full name, packages by their own: ``{"simlab.cli": {"simlab.commands.grid"}, ...}``.
    """
    files = {_name(file, package.parent): file for file in sorted(package.rglob("*.py"))}
    arrows = {}
    for name, file in files.items():
        own_package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        wanted = _imported(ast.parse(file.read_text("utf-8")), own_package)
        arrows[name] = {_longest_known(parts, files) for parts in wanted} - {name, None}
    return arrows


def room_of(module: str) -> str:
    """Return the room of a module: its ancestor at the package's top level, or the package."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package


def between_rooms(arrows: Arrows) -> dict[str, set[str]]:
    """Return the arrows between the rooms that the modules are in."""
    rooms: dict[str, set[str]] = {}
    for module, imported in arrows.items():
        room = room_of(module)
        rooms.setdefault(room, set()).update({room_of(other) for other in imported} - {room})
    return rooms


def find_circle(arrows: Arrows) -> list[str]:
    """Return modules that import one another in a circle, the first also last; else nothing."""
    finished: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return []
        path.append(module)
        for imported in sorted(arrows[module]):
            if circle := visit(imported):
                return circle
        path.pop()
        finished.add(module)
        return []

    return next((circle for module in sorted(arrows) if (circle := visit(module))), [])


def upward(arrows: Arrows, floors: Iterable[Iterable[str]]) -> list[str]:
    """Return the arrows that do not point to a lower floor, as ``"importing -> imported"``.

    Parameters
    ----------
    arrows
        Between rooms (`between_rooms`).
    floors
        The rooms of each floor, the lowest first. Rooms of one floor do not import each other.
    """
    number = {room: floor for floor, rooms in enumerate(floors) for room in rooms}
    return [
        f"{room} -> {other}"
        for room, imported in arrows.items()
        for other in sorted(imported)
        if number[other] >= number[room]
    ]


def _name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, own_package: str) -> Iterator[list[str]]:
    """Return the dotted names in the import statements of a module, split into parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = own_package.split(".")
            above = above[: len(above) - node.level + 1] if node.level else []
            start = [*above, *(node.module or "").split(".")]
            yield from ([part for part in [*start, alias.name] if part] for alias in node.names)


def _longest_known(parts: list[str], modules: Iterable[str]) -> str | None:
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in modules), None)
