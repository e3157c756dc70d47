"""The files that the gates read, each read and parsed once in a process."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy")
SIBLINGS = ("bench", "peers")
"""Measurements, and the harness of peers' cases: siblings of the tests, which they may import."""
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
"""Docs: files, and folders with pages."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*',
    re.DOTALL,
)
"""A string literal or a comment, whichever begins first."""


class Scope(NamedTuple):
    """A function or method. `owner`: the class of a method; `nodes`: itself, and all nodes below it."""

    node: Function
    owner: ast.ClassDef | None
    is_nested: bool
    nodes: list[ast.AST]


@dataclass
class _Tree:
    nodes: list[ast.AST] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)

    def add(self, node: ast.AST, owner: ast.ClassDef | None, *, is_nested: bool) -> None:
        """Add a node and all below it, depth first."""
        begin = len(self.nodes)
        self.nodes.append(node)
        inside, below = owner, is_nested
        if isinstance(node, Function):
            inside, below = None, True
        elif isinstance(node, ast.ClassDef):
            inside = node
        for name in node._fields:
            child = getattr(node, name, None)
            if isinstance(child, list):
                for each in child:
                    if isinstance(each, ast.AST):
                        self.add(each, inside, is_nested=below)
            elif isinstance(child, ast.AST) and name != "ctx":
                self.add(child, inside, is_nested=below)
        if isinstance(node, Function):
            self.scopes.append(Scope(node, owner, is_nested, self.nodes[begin:]))


@dataclass(frozen=True)
class Source:
    """A Python file. `path` is relative to the root of its tree, with slashes."""

    path: str
    text: str

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @cached_property
    def tree(self) -> ast.Module:
        with warnings.catch_warnings():  # other projects' files may have odd escapes
            warnings.simplefilter("ignore")
            return ast.parse(self.text)

    @cached_property
    def _parts(self) -> _Tree:
        parts = _Tree()
        parts.add(self.tree, None, is_nested=False)
        return parts

    @property
    def nodes(self) -> list[ast.AST]:
        """Every node of the file, depth first."""
        return self._parts.nodes

    @property
    def functions(self) -> list[Scope]:
        """Every function and method of the file."""
        return self._parts.scopes

    @cached_property
    def texts(self) -> list[str]:
        """Every string literal, with its quotes, and every comment."""
        return _TEXT.findall(self.text)

    @property
    def comments(self) -> Iterator[str]:
        return (text for text in self.texts if text.startswith("#"))


@cache
def load_sources(*folders: str, root: Path = ROOT) -> tuple[Source, ...]:
    """Return the Python files in `folders` of `root`, by path."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return tuple(Source(path.relative_to(root).as_posix(), path.read_text()) for path in paths)


def load_product() -> tuple[Source, ...]:
    return load_sources(*PRODUCT)


def load_other() -> tuple[Source, ...]:
    """Return what is no product: tests, their siblings, and tools."""
    return load_sources("tests", *SIBLINGS, "tools")


@cache
def load_pages() -> dict[str, str]:
    """Return path → text of every page of the docs."""
    found = [ROOT / name for name in PAGES]
    files = [file for path in found for file in ([path] if path.is_file() else sorted(path.rglob("*.md")))]
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}
