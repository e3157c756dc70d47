"""Generates mutants: small changes at places drawn by a seed, each with the tests of its folder.

An operator is replaced by a similar one, a condition negated, a number increased by one, a call or a `raise`
dropped. Annotations, docstrings and log calls are not changed. Positions are character offsets.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import Mutant

SCOPE = (
    "consumer/ordering",
    "consumer/attempt",
    "producer/snapshot",
    "producer/start",
    "producer/sources/binlog",
    "producer/decoders",
    "producer/loop",
)
#: Collations as data: tables, no rules.
LEFT_ALONE = {"collation_data.py"}
#: Calls of these objects only log.
_LOGGERS = {"log", "_log", "logger"}
_SIMULATIONS = (
    "tests/sim/test_model.py::test_every_seed_ends_with_the_target_equal_to_the_source",
    "tests/sim/test_changing.py::test_every_history_ends_as_its_sources",
)
_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_COUNTED: dict[type[ast.operator], tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}


class Change(NamedTuple):
    """`text` in place of the characters from `start` to `end` of a file."""

    file: str
    line: int
    """Counts from 1."""
    start: int
    end: int
    """Exclusive."""
    text: str
    operator: str
    """The kind of change, such as `< to <=` or `drop call`."""

    def made(self, source: str) -> str:
        """Return the source after the change."""
        return source[: self.start] + self.text + source[self.end :]


class _Places(ast.NodeVisitor):
    """Collects the changes of one file."""

    def __init__(self, file: str, source: str) -> None:
        self._file, self._source = file, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.found: list[Change] = []

    def _at(self, line: int, column: int) -> int:
        begin = self._lines[line - 1]
        text = self._source[begin : self._lines[line]].encode()
        return begin + len(text[:column].decode())

    def _range(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _replace(self, node: ast.expr | ast.stmt, text: str, operator: str) -> None:
        self.found.append(Change(self._file, node.lineno, *self._range(node), text, operator))

    def _between(self, left: ast.expr, right: ast.expr, was: str, text: str) -> None:
        """Replace the operator that stands between two operands."""
        begin, end = self._range(left)[1], self._range(right)[0]
        at = self._source.find(was, begin, end)
        if at >= 0:
            line = left.end_lineno or left.lineno
            self.found.append(Change(self._file, line, at, at + len(was), text, f"{was} to {text}"))

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            self._between(left, right, *_COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        was, text = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, was, text)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _COUNTED and not isinstance(node.right, ast.Constant | ast.JoinedStr):
            self._between(node.left, node.right, *_COUNTED[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin, end = self._range(node.operand)
            self._replace(node, f"({self._source[begin:end]})", "drop not")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), "flip boolean")
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1), "add 1")

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, ast.UnaryOp):  # that is a change of its own
            begin, end = self._range(node.test)
            self._replace(node.test, f"(not ({self._source[begin:end]}))", "negate condition")
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _condition  # noqa: N815 - what ast.NodeVisitor looks for

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant):
            return  # a docstring
        if isinstance(value, ast.Call):
            named = value.func.value if isinstance(value.func, ast.Attribute) else None
            if isinstance(named, ast.Name) and named.id in _LOGGERS:
                return
            self._replace(node, "pass", "drop call")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass", "drop raise")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Skip annotations."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: positions in them differ between versions of Python."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:  # not its decorators: what `slots` changes is speed
            self.visit(part)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.body]:
            self.visit(part)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815


def changes(root: Path, scope: tuple[str, ...] = SCOPE) -> Iterator[Change]:
    """Yield every change of the files below `scope`, in order."""
    for folder in scope:
        for path in sorted((root / folder).rglob("*.py")):
            if path.name not in LEFT_ALONE:
                source = path.read_text()
                places = _Places(path.relative_to(root).as_posix(), source)
                places.visit(ast.parse(source))
                yield from sorted(places.found)


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, the same ones for the same tree and seed."""
    every = list(changes(root))
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    return [_mutant(root, each) for each in sorted(chosen)]


def _mutant(root: Path, change: Change) -> Mutant:
    """Return the change with as much text around it as makes it the only one in its file."""
    source = (root / change.file).read_text()
    start, end = change.start, change.end
    while True:
        start, end = source.rfind("\n", 0, start) + 1, source.find("\n", end)
        old = source[start:end]
        if source.count(old) == 1:
            new = source[start : change.start] + change.text + source[change.end : end]
            return Mutant(change.file, old, new, _nearest_first(root, change.file))
        start, end = max(start - 1, 0), min(end + 1, len(source) - 1)


@cache
def _nearest_first(root: Path, file: str) -> tuple[str, ...]:
    """Return the tests of a file's folder, those that import the file itself first: a failure ends a run."""
    folder, _, name = file.removesuffix(".py").rpartition("/")
    package = re.escape(folder.replace("/", "."))
    itself = re.compile(rf"^from {package}(\.{name} import| import .*\b{name}\b)", re.MULTILINE)
    return tuple(
        sorted(
            tests_of(root, folder),
            key=lambda test: itself.search((root / test.partition("::")[0]).read_text()) is None,
        )
    )


def _list_shared(root: Path) -> Iterator[Path]:
    """Yield the modules that tests share."""
    yield from (root / "tests").glob("*.py")
    for folder in ("conformance", "kits", "servers", "stands"):
        yield from (root / "tests" / folder).glob("*.py")


@cache
def tests_of(root: Path, folder: str) -> tuple[str, ...]:
    """Return the unit tests that import or name modules of `folder`, or use modules of tests that do.

    Two simulations follow: of plain changes, and of changes of definitions with copies.
    """
    package = re.compile(rf"(?:^\s*from |\(){folder.replace('/', '.')}[. ]", re.MULTILINE)
    shared = {
        path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for path in _list_shared(root)
        if package.search(path.read_text())
    }
    through = re.compile(rf"^from ({'|'.join(map(re.escape, sorted(shared)))}) import", re.MULTILINE)
    found = [
        path.relative_to(root).as_posix()
        for path in sorted((root / "tests" / "unit").glob("test_*.py"))
        if package.search(text := path.read_text()) or (shared and through.search(text))
    ]
    return (*found, *_SIMULATIONS)
