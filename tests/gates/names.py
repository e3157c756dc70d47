"""Gate (b): names.

*Several meanings*: a public name (function, class, type alias, constant) is defined in one module of the
product. What is defined once in each folder of a dialect is one name: dialects have the same parts.
Loggers and type variables do not count. REASONS lists the names that may be defined more than once, at
most MOST_REASONS of them.

*Verb and object*: the name of a function or method is a verb and its object (`load_definition`), a
predicate (`is_lagging`, `accepts_kind`), or a conversion (`to_text`, `from_row`). A verb alone, also one
with a particle (`shut_down`), is enough for a method, whose class names the object, and for a function
within another one. Properties, dunders, overrides of a library's methods and names that are published
otherwise (_NOUNS) do not count. Verbs are in verbs.txt. REASONS also lists names that need no verb.

*One word*: at most MOST_ONE_WORD percent of these names have one word.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.gates.sources import PRODUCT, Scope, Source

MOST_ONE_WORD = 40
MOST_REASONS = 10
REASONS: dict[str, str] = {
    "main": "the entry point of a process: each has one",
}
"""Names that may be defined in several modules, and need no verb → why."""
BREACHES = ("no verb", "no object")
_DIALECT = re.compile(r"consumer/targets/(kafka|mysql|oracle|postgres)/")
_PREDICATES = {"is", "are", "has", "have", "can", "should", "was", "were", "needs", "may", "must", "does"}
_CONVERSIONS = {"to", "from", "as", "with", "on"}
"""`to_text`, `from_row`, `as_dict`, `with_table` (a copy with a change), `on_lost` (called when that
happens)."""
_PARTICLES = {"up", "down", "out", "off", "on", "over", "away", "back", "in", "again", "anew", "through"}
_NOT_FUNCTIONS = {"property", "cached_property", "setter", "deleter", "getter"}
_NOUNS = {"contextmanager", "command", "group", "get", "post"}
"""Decorators of functions whose name is a noun (`with transaction():`), or is published: as a command of
the command line, or as the id of a REST operation (`@router.get("/units")`) in the OpenAPI description."""


def list_verbs() -> list[str]:
    """Return the verbs of verbs.txt."""
    text = (Path(__file__).parent / "verbs.txt").read_text()
    return [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]


@cache
def load_verbs() -> frozenset[str]:
    """Return the verbs, with the third person of each."""
    return frozenset({*list_verbs(), *map(add_s, list_verbs())})


def add_s(verb: str) -> str:
    """Return the third person of a verb."""
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search("[^aeiou]y$", verb) else f"{verb}s"


def judge_name(scope: Scope) -> str:
    """Return how the name of a function breaks the rule: "no verb", "no object", or "" if it does not."""
    if scope.node.name in REASONS or any(_name_last(each) in _NOUNS for each in scope.node.decorator_list):
        return ""
    words = split_name(scope.node.name)
    first, rest = words[0], words[1:]
    if first in _PREDICATES | _CONVERSIONS and rest:
        return ""
    if first not in load_verbs() or "of" in rest[:1]:
        return "no verb"
    if set(rest) <= _PARTICLES and scope.owner is None and not scope.is_nested:
        return "no object"
    return ""


def split_name(name: str) -> list[str]:
    return [word for word in name.lower().split("_") if word] or [name]


def list_functions(source: Source) -> Iterator[Scope]:
    """Yield the functions and methods of a file whose name is the author's choice, and no property's."""
    for scope in source.functions:
        name = scope.node.name
        dunder = name.startswith("__") and name.endswith("__")
        decorators = {_name_last(each) for each in scope.node.decorator_list}
        if not dunder and not decorators & _NOT_FUNCTIONS:
            yield scope


def measure_verbs(sources: Iterable[Source]) -> Counter[str]:
    """Return "package: breach" → how many names of functions have it."""
    found: Counter[str] = Counter()
    for source in sources:
        for scope in list_functions(source):
            if (breach := judge_name(scope)) and not is_library_override(source, scope):
                found[f"{source.package}: {breach}"] += 1
    return found


def measure_one_word(sources: Iterable[Source]) -> tuple[int, int]:
    """Return how many functions have a name of one word, and how many there are."""
    names = [scope.node.name for source in sources for scope in list_functions(source)]
    return sum(len(split_name(name)) == 1 for name in names), len(names)


def find_several_meanings(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return each public name that more than one module defines → these modules."""
    found: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for name in list_public_names(source.tree):
            found[name].add(_DIALECT.sub("consumer/targets/*/", source.path).partition("*")[0])
    return {
        name: sorted(paths) for name, paths in sorted(found.items()) if len(paths) > 1 and name not in REASONS
    }


def list_public_names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module defines: functions, classes, aliases and constants, without loggers and type
    variables."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                pass
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                if name == "log" or (
                    isinstance(value, ast.Call) and _name_last(value) in {"TypeVar", "ParamSpec"}
                ):
                    continue
            case _:
                continue
        if not name.startswith("_"):
            yield name


def is_library_override(source: Source, scope: Scope) -> bool:
    """Whether a base class that is not of the product has a method of this name."""
    if scope.owner is None:
        return False
    return any(hasattr(base, scope.node.name) for base in _library_bases(source, scope.owner))


def _library_bases(source: Source, owner: ast.ClassDef) -> Iterator[object]:
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for base in owner.bases:
        text = ast.unparse(base).partition("[")[0]
        module, name = imported.get(text, (text.rpartition(".")[0], text.rpartition(".")[2]))
        if module.partition(".")[0] not in {*PRODUCT, "typing", ""}:
            yield getattr(importlib.import_module(module), name)


def _name_last(node: ast.expr) -> str:
    """Return the last name of `a.b` or `a.b(…)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)
