"""Draw planted faults as patches: ``python -m tools.mutants.draw simcore 45 --seed 0``.

Each is one small change of one line, drawn from the syntax trees (of C++, from the tokens). A kind
is drawn first, a place of that kind then, so that frequent kinds are not most of them. Every fourth
is a silent numeric fault. Whoever draws reads the patches, deletes those that change no result, and
draws again with the next seed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
ROOMS = {
    "simcore": ["simcore/**/*.py"],
    "csrc": ["csrc/**/*.cpp", "csrc/**/*.h", "csrc/**/*.cu"],
    "simlab": ["python/simlab/**/*.py"],
    "bench": ["bench/*.py", "setup.py"],
}
PAIRS = [
    *[("<", "<="), (">", ">="), ("==", "!="), ("is", "is not"), ("in", "not in"), ("and", "or")],
    *[("+", "-"), ("*", "/"), ("min", "max"), ("minimum", "maximum"), ("any", "all")],
    *[("amin", "amax"), ("floor", "ceil"), ("argmin", "argmax"), ("triu", "tril"), ("&&", "||")],
]
SWAPS = {old: new for pair in PAIRS for old, new in (pair, pair[::-1])}
OPERATORS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.And: "and",
    ast.Or: "or", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
}  # fmt: skip
DROPPED = {"abs", "clamp", "clamp_min", "clamp_max", "square", "sqrt", "conj", "flip", "sort"}
SILENT = {"unit", "one", "row", "term", "constant", "method"}


class Site(NamedTuple):
    """A place of a text that a fault may replace: the kind of fault, where, by what."""

    kind: str
    begin: int
    end: int
    text: str


class _Python:
    """The sites of a module."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = lines

    def place(self, line: int, column: int) -> int:
        """Return where a position of the tree, whose columns are bytes, is in the text."""
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.place(node.lineno, node.col_offset),
            self.place(node.end_lineno, node.end_col_offset),
        )

    def text(self, node: ast.expr) -> str:
        begin, end = self.span(node)
        return self.source[begin:end]

    def alone(self, node: ast.expr) -> str:
        """Return the text of an operand, in brackets where its neighbours could take part."""
        plain = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
        return self.text(node) if isinstance(node, plain) else f"({self.text(node)})"

    def between(self, left: ast.expr, right: ast.expr, word: str) -> tuple[int, int] | None:
        """Return where an operator stands between two operands."""
        begin, end = self.span(left)[1], self.span(right)[0]
        match = re.search(rf"(?<![\w<>=!*/]){re.escape(word)}(?![\w=*/])", self.source[begin:end])
        return match and (begin + match.start(), begin + match.end())

    def sites(self) -> Iterator[Site]:
        """Yield each site in a function's body."""
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef):
                for statement in function.body:
                    yield from self._inside(statement)

    def _inside(self, node: ast.AST) -> Iterator[Site]:
        if isinstance(node, (ast.FunctionDef, ast.Raise)):
            return  # is walked by itself; a message is no result
        yield from self._of(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._inside(child)

    def _of(self, node: ast.AST) -> Iterator[Site]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from self._swapped("compare", node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BoolOp):
            yield from self._swapped("boolean", node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.BinOp):
            yield from self._arithmetic(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield from self._slice(node.slice)
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value:
            yield Site("constant", *self.span(node), repr(2 * node.value))
        elif isinstance(node, ast.If) and [type(one) for one in node.body] == [ast.Raise]:
            yield Site("guard", *self.span(node.test), "False")
        elif isinstance(getattr(node, "op", None), (ast.Not, ast.USub)) and not isinstance(
            node.operand, ast.Constant
        ):
            yield Site("sign", *self.span(node), self.alone(node.operand))

    def _swapped(self, kind: str, left: ast.expr, right: ast.expr, op: ast.AST) -> Iterator[Site]:
        word = OPERATORS.get(type(op))
        found = word and word in SWAPS and self.between(left, right, word)
        if found and word:
            yield Site(kind, *found, SWAPS[word])

    def _arithmetic(self, node: ast.BinOp) -> Iterator[Site]:
        texts = [n for n in ast.walk(node) if isinstance(n, (ast.JoinedStr, ast.List, ast.Tuple))]
        strings = [n for n in ast.walk(node) if isinstance(getattr(n, "value", 0), str)]
        if texts or strings:
            return
        yield from self._swapped("arithmetic", node.left, node.right, node.op)
        begin, end = self.span(node)
        number = isinstance(node.right, ast.Constant)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            yield Site("one" if number else "term", begin, end, self.alone(node.left))
        elif isinstance(node.op, (ast.Mult, ast.Div)):
            yield Site("unit", begin, end, self.alone(node.left))

    def _call(self, node: ast.Call) -> Iterator[Site]:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in SWAPS:
            end = self.span(node.func)[1]
            yield Site("extremum", end - len(name), end, SWAPS[name])
        if name in DROPPED and isinstance(node.func, ast.Attribute):
            yield Site("method", *self.span(node), self.alone(node.func.value))
        if name == "range" and len(node.args) == 1:
            yield Site("row", *self.span(node.args[0]), f"{self.text(node.args[0])} - 1")
        if len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
            first, second = map(self.text, node.args[:2])
            begin, end = self.span(node.args[0])[0], self.span(node.args[1])[1]
            if first != second and "\n" not in self.source[begin:end]:
                yield Site("arguments", begin, end, f"{second}, {first}")
        for keyword in node.keywords:
            begin, end = self.place(keyword.lineno, keyword.col_offset), self.span(keyword.value)[1]
            rest = re.match(r",? ?", self.source[end:])
            alone = not node.args and len(node.keywords) == 1
            if keyword.arg not in (None, "strict") and rest and not alone:
                yield Site("keyword", begin, end + rest.end(), "")

    def _slice(self, node: ast.Slice) -> Iterator[Site]:
        for bound, less in ((node.upper, " - 1"), (node.lower, " + 1")):
            if bound is not None and isinstance(bound, (ast.Name, ast.Attribute)):
                yield Site("row", *self.span(bound), self.text(bound) + less)
            elif isinstance(bound, ast.Constant) and bound.value == 1:
                yield Site("row", *self.span(bound), "")


CXX = {
    "compare": r"(?<=[\w)\]] )(<=?|>=?|==|!=)(?= [\w(*-])",
    "boolean": r"(?<= )(&&|\|\|)(?= )",
    "arithmetic": r"(?<=[\w)\]] )[-+*/](?= [\w(*])",
    "extremum": r"(?<=std::)(min|max)(?=[(<])",
    "one": r"(?<=[\w)\]]) [-+] 1(?=[;,)\] ])",
    "unit": r"(?<=[\w)\]]) \* \w+(?=[;,)])",
    "term": r"(?<=[\w)\]]) [-+] [a-z]\w*(?=[;,)])",
    "row": r"(?<= = )0(?=; \w+ <)",
    "sign": r"(?<=[(=,] )-(?=[a-z])",
    "constant": r"\b\d+\.\d+f?\b",
}


def _cxx(source: str) -> Iterator[Site]:
    """Yield each site of a file of C++."""
    begin = 0
    for line in source.splitlines(keepends=True):
        code = line.split("//")[0]
        if not re.match(r"\s*(#|\*|static_assert|template|using|throw|namespace)|.*\"", code):
            for kind, pattern in CXX.items():
                for match in re.finditer(pattern, code):
                    old = match[0]
                    new = SWAPS.get(old, "") if kind not in ("row", "constant") else "1"
                    if kind == "constant":
                        new = re.sub(r"\d+\.\d+", lambda m: repr(2 * float(m[0])), old)
                    if new != old:
                        yield Site(kind, begin + match.start(), begin + match.end(), new)
        begin += len(line)


def sites_of(file: Path) -> list[Site]:
    """Return the sites of a file, whatever it is written in."""
    source = file.read_text()
    found = _Python(source).sites() if file.suffix == ".py" else _cxx(source)
    return [site for site in found if source[site.begin : site.end] != site.text]


def draw(room: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the kind and the patch of each of some faults of a room."""
    files = sorted({file for pattern in ROOMS[room] for file in ROOT.glob(pattern)})
    places: dict[str, list[tuple[Path, Site]]] = {}
    for file in files:
        for site in sites_of(file):
            places.setdefault(site.kind, []).append((file, site))
    random_ = random.Random(f"{room} {seed}")
    for number in range(count):
        silent = number % 4 == 0
        kind = random_.choice(sorted(k for k in places if (k in SILENT) == silent))
        file, site = random_.choice(places[kind])
        yield kind, _patch(file, site)


def _patch(file: Path, site: Site) -> str:
    source, name = file.read_text(), file.relative_to(ROOT).as_posix()
    changed = source[: site.begin] + site.text + source[site.end :]
    lines = difflib.unified_diff(
        source.splitlines(keepends=True),
        changed.splitlines(keepends=True),
        f"a/{name}",
        f"b/{name}",
    )
    return "".join(lines)


def main() -> None:
    """Write the patches that are not there."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    PATCHES.mkdir(exist_ok=True)
    for number, (kind, patch) in enumerate(draw(asked.room, asked.count, asked.seed)):
        file = PATCHES / f"{asked.room}-{asked.seed}-{number:02}-{kind}.patch"
        file.write_text(patch)


if __name__ == "__main__":
    main()
