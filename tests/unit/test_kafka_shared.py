"""No test of the database targets is forgotten for Kafka: it runs there, or a reason is given
(tests/kits/kafka_shared.py)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conformance.suite import parse_tests
from tests.kits.kafka_shared import ELSEWHERE, LEFT_OUT, SHARED

FOLDER = Path(__file__).parents[1] / "integration"
KIT = {"tests.kits.targets": {"KINDS", "target"}, "tests.kits.attempts": {"reals"}}


def trees() -> dict[str, ast.Module]:
    return {path.stem: parse_tests(path) for path in sorted(FOLDER.glob("test_*.py"))}


def over_the_kinds(tree: ast.Module) -> bool:
    """Tell whether a module's tests run over the kinds of targets: it takes the fixtures from the kit."""
    return any(
        isinstance(node, ast.ImportFrom)
        and KIT.get(node.module or "", set()) & {name.name for name in node.names}
        for node in ast.walk(tree)
    )


def test_each_shared_module_runs_or_says_why_not() -> None:
    found = {name for name, tree in trees().items() if over_the_kinds(tree)} | {"test_targets_attempts"}
    assert found == {*SHARED, *ELSEWHERE}
    assert not ELSEWHERE.keys() & set(SHARED)


def test_each_test_of_a_shared_module_runs_or_says_why_not() -> None:
    """test_kafka_shared.py takes all but those that are left out: so what is left out must be there."""
    known = trees()
    tests = {
        node.name
        for name in SHARED
        for node in known[name].body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert LEFT_OUT.keys() < tests


def test_what_is_named_as_being_elsewhere_is_there() -> None:
    tests = {
        node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    words = {word.strip(":;,") for why in (*LEFT_OUT.values(), *ELSEWHERE.values()) for word in why.split()}
    modules = {word.removesuffix(".py") for word in words if word.endswith(".py") and "/" not in word}
    assert modules <= trees().keys()
    assert {word for word in words if word.startswith("test_") and not word.endswith(".py")} <= tests
