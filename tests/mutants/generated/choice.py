"""Chooses the tests that judge a mutant: of those that call its function the most specific ones."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutants.generated.places import MODULE, Place
from tests.mutants.generated.tracing import CallName, Trace

CASES = 3
"""So many cases of a parametrized test come before other tests."""


class Budget(NamedTuple):
    """How much a mutant's tests may take: so many, and seconds without a mutant."""

    tests: int = 40
    seconds: float = 10.0


class Choice:
    """A choice of tests by what each of them called when it was traced."""

    def __init__(self, root: Path, packages: Iterable[str], trace: Trace, budget: Budget) -> None:
        self._trace = trace
        self._budget = budget
        self._callers: dict[CallName, list[str]] = defaultdict(list)
        for name, test in trace.tests.items():
            for number in test.calls:
                self._callers[trace.functions[number]].append(name)
        self._uses = _Uses(root, packages)

    def choose(self, place: Place) -> list[str]:
        """Return the tests that judge a mutant, the most specific ones first; none if none calls it."""
        file = place.key.file
        if place.function is not None:
            return self._limit(self._order(file, self._callers.get(place.call, ())))
        users = self._uses.list_users(place.names)
        here = [call for call in users if call.startswith(f"{file} ")]
        anything = [
            call for call in self._callers if call.startswith(f"{file} ") and not call.endswith(MODULE)
        ]
        tiers = (here, users, anything)
        ordered = [test for tier in tiers for test in self._order(file, self._list_callers(tier))]
        return self._limit(dict.fromkeys(ordered))

    def choose_beyond(self, place: Place, before: Choice) -> list[str]:
        """Return the tests that this choice has beyond those of another one."""
        known = set(before.choose(place))
        return [test for test in self.choose(place) if test not in known]

    def _list_callers(self, calls: Iterable[CallName]) -> set[str]:
        return {test for call in calls for test in self._callers.get(call, ())}

    def _order(self, file: str, tests: Iterable[str]) -> list[str]:
        """Sort tests: those whose module is named like the file come first, then those with few calls.

        Further cases of a test follow behind other tests: they differ less from each other.
        """
        words = set(_split(file))

        def order(test: str) -> tuple[int, int, str]:
            module = Path(test.partition("::")[0]).stem.removeprefix("test_")
            return -len(words & set(_split(module))), len(self._trace.tests[test].calls), test

        cases: Counter[str] = Counter()
        first: list[str] = []
        further: list[str] = []
        for test in sorted(tests, key=order):
            cases[test.partition("[")[0]] += 1
            (first if cases[test.partition("[")[0]] <= CASES else further).append(test)
        return first + further

    def _limit(self, tests: Iterable[str]) -> list[str]:
        """Return the first tests within the budget; a single quick one if all exceed it."""
        chosen: list[str] = []
        left = self._budget.seconds
        tests = list(tests)
        for test in tests:
            seconds = self._trace.tests[test].seconds
            if len(chosen) < self._budget.tests and seconds <= left:
                chosen.append(test)
                left -= seconds
        if not chosen and tests:
            return [min(tests, key=lambda test: self._trace.tests[test].seconds)]
        return chosen


def _split(path: str) -> list[str]:
    """Return the words of a path; plurals count as singulars."""
    words = re.split(r"[/_.]", path.removesuffix(".py"))
    return [word.removesuffix("s") for word in words if len(word) > 2 and word not in ("init", "test")]


class _Uses:
    """Which functions of the product mention which names."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self._root, self._packages = root, tuple(packages)
        self._users: dict[str, list[CallName]] = {}

    def list_users(self, names: Iterable[str]) -> list[CallName]:
        """Return the outermost functions that mention one of the names."""
        if not self._users:
            self._users = defaultdict(list)
            for package in self._packages:
                for path in sorted((self._root / package).rglob("*.py")):
                    file = path.relative_to(self._root).as_posix()
                    self._add(file, ast.parse(path.read_text()), "")
        return list(dict.fromkeys(user for name in names for user in self._users.get(name, ())))

    def _add(self, file: str, tree: ast.AST, outer: str) -> None:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                call = f"{file} {outer}{node.name}"
                for name in {node.name, *_list_mentions(node)}:
                    self._users[name].append(call)
            else:
                inner = f"{outer}{node.name}." if isinstance(node, ast.ClassDef) else outer
                self._add(file, node, inner)


def _list_mentions(function: ast.AST) -> set[str]:
    mentions: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            mentions.add(node.id)
        elif isinstance(node, ast.Attribute):
            mentions.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            mentions.add(node.arg)
    return mentions
