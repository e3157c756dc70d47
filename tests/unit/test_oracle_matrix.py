"""The matrix of docs/how-to/oracle-source.md is true: each mark has tests, and each test is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conformance.suite import parse_tests
from tests.kits.apply import ROOT
from tests.kits.oracle_matrix import COMMON, POINTS, STANDS, rows


def test_page_has_the_matrix_as_it_is() -> None:
    text = (ROOT / "docs" / "how-to" / "oracle-source.md").read_text()
    assert "\n".join(rows()) in text, "python -m tests.kits.oracle_matrix prints it"


def functions(file: str) -> set[str]:
    nodes = ast.walk(parse_tests(ROOT / "tests" / file))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


NODES = sorted({node for point in POINTS for nodes in point.tests.values() for node in nodes})


@pytest.mark.parametrize("node", NODES)
def test_a_test_that_the_matrix_names_is_there(node: str) -> None:
    file, _, name = node.partition("::")
    assert name in functions(file)


def test_every_mark_has_tests_of_its_stand() -> None:
    own = {
        "a": ("test_oracle_stand", "test_oracle_view", "test_oracle_source", "test_oracle_shared"),
        "b": ("test_oracle_seekdb",), "sim": ("sim/",),
        "c": ("test_oracle_target", "test_oracle_statements", "test_oracle_values"),
        "d": ("unit/", "test_oracle_values"),
    }  # fmt: skip
    command = (ROOT / "Makefile").read_text().partition("test-oracle:")[2].partition("\nlint:")[0]
    own["e"] = tuple(re.findall(r"integration/(\w+)\.py", command))
    for point in POINTS:
        assert point.tests.keys() <= set(STANDS)
        for stand, nodes in point.tests.items():
            assert nodes
            for node in nodes if nodes is not COMMON else ():
                assert any(file in node for file in own[stand]), (stand, node)


def test_tests_of_every_target_are_run_again_for_oracle() -> None:
    """By name, from the modules that test_oracle_target.py takes them of, and none that it leaves out."""
    source = (ROOT / "tests" / "integration" / "test_oracle_target.py").read_text()
    modules = source.partition("MODULES = (")[2].partition(")")[0]
    left_out = (
        source.partition("EXCLUDED = {")[2].partition("}")[0]
        + source.partition("ON_H2_ALONE = {")[2].partition("}")[0]
    )
    for node in COMMON:
        file, _, name = node.partition("::")
        assert file.rpartition("/")[2].removeprefix("test_").removesuffix(".py") in modules
        assert name not in left_out


def test_what_is_run_on_a_server_of_ones_own_is_not_skipped_there() -> None:
    """A case that needs H2 (test_oracle_target.ON_H2_ALONE) is none of stand (e)."""
    source = (ROOT / "tests" / "integration" / "test_oracle_target.py").read_text()
    alone = set(re.findall(r'"(test_\w+)"', source.partition("ON_H2_ALONE = {")[2].partition("}")[0]))
    assert alone
    assert not alone & {node.partition("::")[2] for point in POINTS for node in point.tests.get("e", ())}
