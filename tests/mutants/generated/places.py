"""Names every place where a change can be made by a key that lines moved elsewhere in the file do not alter."""

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
    """The name of a place. `function`: dotted, with its classes and outer functions; a class for a class body, MODULE for a module's
    own statements. `ordinal`: counts from 0 the places of this operator in this function."""

    file: str
    function: str
    operator: str
    ordinal: int

    @property
    def stratum(self) -> str:
        """The first two parts of the path, by which the sample is drawn."""
        return "/".join(self.file.split("/")[:2])

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.operator} #{self.ordinal}"


class Function(NamedTuple):
    """A function that is not within another one: what is exchanged in a running process. `line`: its first, decorators included."""

    file: str
    name: str
    line: int


@dataclass(frozen=True)
class Place:
    """A change and its key."""

    key: Key
    change: Change
    function: Function | None
    """The outermost function whose body holds the change; None if the changed code runs when the module is imported."""
    names: tuple[str, ...]
    """The names that a changed statement outside of functions binds: functions that use one may behave differently."""

    @property
    def call(self) -> str:
        """The outermost function as a trace names it."""
        return f"{self.key.file} {self.function.name if self.function else MODULE}"

    def mutate(self, source: str) -> str:
        """Return the source after the change."""
        return self.change.made(source)

    def mutate_in_place(self, source: str) -> str:
        """Return a source that does the same, with as many lines and the same variables of outer scopes as before.

        A function's code can be exchanged only for code with the same free variables, and a dropped `super().f()` has one.
        """
        if self.change.text != "pass":
            return self.mutate(source)
        was = source[self.change.start : self.change.end]
        return f"{source[: self.change.start]}if 0: {was}{source[self.change.end :]}"


class _Scope(NamedTuple):
    """A definition's lines. `body`: the first line of its body. `outermost`: the function outside of all others that holds it."""

    name: str
    first: int
    body: int
    last: int
    is_function: bool
    outermost: Function | None


def _list_scopes(file: str, tree: ast.AST, outer: str = "", outermost: Function | None = None) -> Iterator[_Scope]:  # fmt: skip
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
    """Return the names that the statement of a module or class at `line` binds, and those of the classes around it."""
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
