"""The list of mutants is true to the product: a mutant whose text is gone would be found by nobody, and missed by nobody."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import MUTANTS, SAMPLE
from tests.mutants.mutant import Mutant
from tests.mutants.run import PRODUCT, ROOT, run

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in PRODUCT
    for path in (ROOT / package).rglob("*.py")
}
UNIT = "tests/unit/"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_product(mutant: Mutant) -> None:
    places = {file: found for file, text in SOURCES.items() if (found := text.count(mutant.old))}
    assert places == {mutant.file: 1}
    assert mutant.new != mutant.old
    ast.parse(SOURCES[mutant.file].replace(mutant.old, mutant.new))


def test_no_mutant_is_listed_twice() -> None:
    assert [each for each, times in Counter(mutant[:3] for mutant in MUTANTS).items() if times > 1] == []


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_the_tests_that_must_find_a_mutant_exist(test: str) -> None:
    file, _, name = test.partition("::")
    names = [
        each.name
        for each in ast.parse(Path(ROOT, file).read_text()).body
        if isinstance(each, ast.FunctionDef)
    ]
    assert name in names if name else names


def test_the_sample_needs_no_service() -> None:
    assert 10 <= len(SAMPLE) <= 30
    assert all(test.startswith(UNIT) for mutant in SAMPLE for test in mutant.tests)


def test_who_is_found_and_who_survives() -> None:
    """The tests of one change are not those of another; what cannot be imported is neither found nor survives."""
    tests = ("tests/unit/test_snapshot_order.py",)
    file, old = "producer/flavours/mysql.py", "return first is None or first >= started"
    mutants = [
        Mutant(file, old, "return first is None or first > started", tests),
        Mutant(file, old, "return first is None or started <= first", tests),
        Mutant(file, "_PARSE_ERROR = 1064", "raise ImportError", tests),
    ]
    assert [result.verdict for result in run(mutants, 2)] == ["found", "survived", "error"]
    with pytest.raises(ValueError, match="0 times"):
        list(run([Mutant(file, "no such text", "", tests)], 1))
