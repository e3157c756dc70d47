"""Names each place of a possible change by a key that does not depend on its line."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutants.fresh import Change, changes

MODULE = "<module>"
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Key(NamedTuple):
    """The name of a place."""

    file: str
    function: str
    """Dotted, with its classes; a class for statements of its body, MODULE for those of a module."""
    operator: str
    ordinal: int
    """Counts from 0 the places of this operator in this function."""

    @property
    def stratum(self) -> str:
        """The first two parts of the path, by which the sample is drawn."""
        return "/".join(self.file.split("/")[:2])

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.operator} #{self.ordinal}"


class Function(NamedTuple):
    """A function that is not within another one: the unit that is exchanged in a running process."""

    file: str
    name: str
    line: int
    """Its first one, decorators included."""


@dataclass(frozen=True)
class Place:
    """A change and its key."""

    key: Key
    change: Change
    function: Function | None
    """The outermost function whose body holds the change; None if the code runs at import."""
    names: tuple[str, ...]
    """Names that a changed statement outside of functions binds; functions that use one may be affected."""

    @property
    def call(self) -> str:
        """The outermost function as a trace names it."""
        return f"{self.key.file} {self.function.name if self.function else MODULE}"

    def mutate(self, source: str) -> str:
        """Return the source after the change."""
        return self.change.made(source)

    def mutate_in_place(self, source: str) -> str:
        """Return a source of the same effect with as many lines and the same free variables as before.

        A function accepts only code with the same free variables, and `super().f()` has one.
        """
        if self.change.text != "pass":
            return self.mutate(source)
        was = source[self.change.start : self.change.end]
        return f"{source[: self.change.start]}if 0: {was}{source[self.change.end :]}"


class _Scope(NamedTuple):
    """The lines of a definition."""

    name: str
    first: int
    body: int
    """The first line of its body."""
    last: int
    is_function: bool
    outermost: Function | None
    """The function outside of all others that holds it, or is it."""


def _list_scopes(
    file: str, tree: ast.AST, outer: str = "", outermost: Function | None = None
) -> Iterator[_Scope]:
    """Yield the scopes of all definitions, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, _Definition):
            yield from _list_scopes(file, node, outer, outermost)
            continue
        name = f"{outer}.{node.name}" if outer else node.name
        is_function = not isinstance(node, ast.ClassDef)
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        holder = outermost or (Function(file, name, first) if is_function else None)
        last = node.end_lineno or node.lineno
        yield _Scope(name, first, node.body[0].lineno, last, is_function, holder)
        yield from _list_scopes(file, node, name, holder)


def _list_names(tree: ast.AST, line: int) -> tuple[str, ...]:
    """Return the names that the statement at `line` binds, and those of the classes around it."""
    for node in ast.iter_child_nodes(tree):
        last = getattr(node, "end_lineno", None)
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (last or node.lineno):
            continue
        if isinstance(node, ast.ClassDef):
            return (*_list_names(node, line), node.name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return (node.name,)
        stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
        return tuple(each.id for each in stored if isinstance(each.ctx, ast.Store))
    return ()


def list_file_places(file: str, source: str, found: list[Change]) -> Iterator[Place]:
    """Yield the places of one file's changes, in order."""
    tree = ast.parse(source)
    scopes = list(_list_scopes(file, tree))
    ordinals: Counter[tuple[str, str]] = Counter()
    for change in found:
        around = [each for each in scopes if each.first <= change.line <= each.last]
        inner = around[-1] if around else None
        name = inner.name if inner else MODULE
        body = next((each for each in around if each.is_function and each.body <= change.line), None)
        function = body.outermost if body else None
        ordinal = ordinals[name, change.operator]
        ordinals[name, change.operator] += 1
        names = () if function else _list_names(tree, change.line)
        yield Place(Key(file, name, change.operator, ordinal), change, function, names)


@cache
def list_places(root: Path, scope: tuple[str, ...]) -> tuple[Place, ...]:
    """Return every place of the files below `scope`, in order."""
    by_file: dict[str, list[Change]] = {}
    for change in changes(root, scope):
        by_file.setdefault(change.file, []).append(change)
    return tuple(
        place
        for file, found in by_file.items()
        for place in list_file_places(file, (root / file).read_text(), found)
    )
