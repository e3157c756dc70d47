"""What tests share is in kits: no module imports a test module, and no test uses a sibling of the tests. The
siblings, which few tests run, can be imported."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable

import pytest

from tests.gates.sources import SIBLINGS, Source, load_other

TRACERS = ("tests/figures.py", "tests/gates/path.py")
"""They follow a row as test_the_way_of_a_row.py does, whose tracing this is."""
OWN_TESTS = ("tests/unit/test_bench_", "tests/unit/test_peers_")
"""Tests of a sibling's own parts."""


def find_breaches(sources: Iterable[Source]) -> list[str]:
    """Return "path: module" for each import that is not allowed, wherever in the file."""
    return sorted(
        f"{source.path}: {module}"
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in _imported(node)
        if (_is_test(module) and source.path not in TRACERS)
        or (
            module.partition(".")[0] in SIBLINGS
            and source.package == "tests"
            and not source.path.startswith(OWN_TESTS)
        )
    )


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return every module that may be meant: of `from a import b` both a and a.b."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    module = node.module or ""
    return [module] if _is_test(module) else [module, *(f"{module}.{each.name}" for each in node.names)]


def _is_test(module: str) -> bool:
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def test_no_module_imports_a_test_module() -> None:
    assert find_breaches(load_other()) == []


def test_the_siblings_can_be_imported() -> None:
    """They use the product's names, and neither mypy nor most of the tests look at them."""
    modules = [
        source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for source in load_other()
        if source.package in SIBLINGS
    ]
    assert {module.partition(".")[0] for module in modules} == set(SIBLINGS)
    for module in modules:
        importlib.import_module(module)


@pytest.mark.parametrize(
    ("path", "line", "found"),
    [
        ("tests/unit/test_a.py", "from tests.unit.test_b import Stand", "tests.unit.test_b"),
        (
            "tests/unit/test_a.py",
            "def f():\n    from tests.integration import test_b",
            "tests.integration.test_b",
        ),
        ("tests/kits/a.py", "import tests.sim.test_b as b", "tests.sim.test_b"),
        ("bench/a.py", "from tests.unit.test_b import Stand", "tests.unit.test_b"),
        ("tests/kits/a.py", "from bench.kit import wait", "bench.kit"),
        ("tests/unit/test_a.py", "import peers", "peers"),
    ],
)
def test_a_planted_breach_is_found(path: str, line: str, found: str) -> None:
    assert f"{path}: {found}" in find_breaches([Source(path, line)])


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("tests/unit/test_bench_kit.py", "from bench.kit import kind_of"),
        ("tests/gates/path.py", "from tests.integration import test_the_way_of_a_row"),
        ("bench/a.py", "from tests.kits.running import Run"),
    ],
)
def test_what_is_allowed_is_no_breach(path: str, line: str) -> None:
    assert find_breaches([Source(path, line)]) == []
