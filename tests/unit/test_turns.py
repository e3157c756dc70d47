"""Slow tests in turn, and what becomes of tests on MySQL where there is none."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.long_tests import LONG, long_tests, measured
from tests.services import NO_MYSQL, pytest_terminal_summary, without_mysql
from tests.turns import (
    ALWAYS,
    CASES,
    LONG_TURNS,
    SAMPLE,
    TOO_LONG,
    TURNS,
    by_length,
    few,
    of_turn,
    rest_of_turn,
    sample,
    upgrades_of_turn,
)

MANY = next(iter(CASES))
NAMES = ["b.py::one", *(f"{MANY}[{n}]" for n in range(15)), "a.py::two[x]", "a.py::two[y]"]


def test_every_case_has_its_turn_and_each_test_as_often_as_any_other() -> None:
    turns = [of_turn(NAMES, turn) for turn in range(9)]
    assert {name for names in turns for name in names} == set(NAMES)
    tests = [names[0].partition("[")[0] for names in turns]
    assert [tests.count(test) for test in set(tests)] == [3, 3, 3]
    assert [len(names) for names in turns] == [1, 1, 6, 1, 1, 6, 1, 1, 3]


def test_what_is_too_long_has_no_turn_and_nothing_is_nothing() -> None:
    assert of_turn([f"{TOO_LONG[0]}x"], 3) == []
    assert of_turn([], 3) == []


CASES_OF_SERVICES = [f"tests/integration/a.py::many[{n}]" for n in range(400)]
UNIT = [f"tests/unit/u.py::x[{n}]" for n in range(9)]
TESTS = [
    *CASES_OF_SERVICES,
    "tests/faults/b.py::alone",
    "tests/sim/c.py::two[p]",
    "tests/sim/c.py::two[q]",
    *UNIT,
]


def test_each_test_has_a_case_every_day_and_every_case_its_turn() -> None:
    daily = few(TESTS)
    assert {"tests/faults/b.py::alone", *UNIT} <= daily
    assert {name.partition("[")[0] for name in daily} == {name.partition("[")[0] for name in TESTS}
    assert len(daily & set(CASES_OF_SERVICES)) < 400 / SAMPLE * 1.5
    turns = [rest_of_turn(TESTS, turn) for turn in range(TURNS)]
    assert sum(map(len, turns)) == len(set().union(*turns)), "no case has two turns"
    assert set().union(*turns) == set(TESTS) - daily
    assert rest_of_turn(TESTS, TURNS) == turns[0]


def test_each_turn_upgrades_each_way_once_and_all_releases_have_their_turn() -> None:
    upgrades = [f"tests/upgrade/{test}[{version}]" for test in ("a.py::x", "b.py::y") for version in "123"]
    turns = [upgrades_of_turn(upgrades, turn) for turn in range(3)]
    assert [sorted(name.partition("[")[0][-1] for name in turn) for turn in turns] == [["x", "y"]] * 3
    assert all(len({name[-2] for name in turn}) == 2 for turn in turns)
    assert set().union(*turns) == set(upgrades)
    assert upgrades_of_turn([], 1) == set()


def test_each_third_turn_has_a_long_test_but_for_the_way_of_rows() -> None:
    left_out = sorted(long_tests().difference(ALWAYS))
    cases = [f"{test}[{n}]" for test in left_out for n in range(3)]
    assert few([*cases, *ALWAYS, *TESTS]) == few([*ALWAYS, *TESTS]) > set(ALWAYS)
    turns = [sample(cases) & rest_of_turn(cases, turn) for turn in range(LONG_TURNS)]
    assert set().union(*turns) == sample(cases)
    assert all(len(turn) > len(sample(cases)) / LONG_TURNS / 2 for turn in turns), (
        "each turn takes about as long"
    )


def test_the_long_tests_that_make_test_runs_are_long_and_all_are_there() -> None:
    root = Path(__file__).parents[2]
    assert set(ALWAYS) <= long_tests()
    suites = (root / "tests" / "conformance").glob("*.py")
    text = "\n".join(file.read_text() for file in [*(root / "tests").rglob("test_*.py"), *suites])
    there = set(re.findall(r"def (test_\w+)\(", text))
    missing = [name for name in long_tests() if name.rpartition("::")[2] not in there]
    assert missing == [], "measure again: python -m tests.long_tests"


def test_a_test_s_longest_case_counts(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(
        "<testsuite>"
        '<testcase classname="tests.unit.test_turns" name="test_a[x]" time="1.5"/>'
        f'<testcase classname="tests.unit.test_turns" name="test_a[y]" time="{LONG}"/>'
        '<testcase classname="tests.unit.test_turns.TestThat" name="test_b" time="2"/>'
        "</testsuite>"
    )
    assert measured(junit) == {
        "tests/unit/test_turns.py::test_a": LONG,
        "tests/unit/test_turns.py::TestThat::test_b": 2.0,
    }


def test_a_test_s_cases_are_the_same_whatever_else_is_collected() -> None:
    assert few(CASES_OF_SERVICES) == few(TESTS) & set(CASES_OF_SERVICES)


def test_a_missing_mysql_skips_a_test_or_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROWLOCK_REQUIRE_MYSQL", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{NO_MYSQL}needs root"):
        without_mysql("needs root")
    monkeypatch.setenv("ROWLOCK_REQUIRE_MYSQL", "1")
    with pytest.raises(pytest.fail.Exception, match=r"needs root.*ROWLOCK_REQUIRE_MYSQL"):
        without_mysql("needs root")


@pytest.mark.parametrize(
    ("reasons", "reported"), [((f"{NO_MYSQL}x", "other", f"{NO_MYSQL}x"), "2 tests"), (("other",), "")]
)
def test_the_end_of_a_run_says_how_many_tests_had_no_mysql(reasons: tuple[str, ...], reported: str) -> None:
    lines: list[str] = []
    reporter: Any = SimpleNamespace(
        stats={
            "skipped": [SimpleNamespace(longrepr=("file", 1, f"Skipped: {reason}")) for reason in reasons]
        },
        section=lambda title, **_: lines.append(title),
        write_line=lambda line, **_: lines.append(line),
    )
    pytest_terminal_summary(reporter)
    assert (reported in "\n".join(lines)) if reported else not lines


def test_modules_that_need_services_come_first() -> None:
    """They take minutes with few tests: at the end one process would wait for the other."""
    tests = Path(__file__).parents[1]
    names = ("unit/test_turns.py", "sim/test_model.py", "integration/test_demo.py", "faults/test_cluster.py")
    assert sorted(names, key=lambda name: by_length(tests / name)) == list(reversed(names))


def test_of_unit_tests_modules_with_a_long_one_come_first() -> None:
    tests = Path(__file__).parents[1]
    names = ("unit/test_turns.py", "unit/test_apply_copies.py", "sim/test_oracle.py")
    assert sorted(names, key=lambda name: by_length(tests / name)) == list(reversed(names))
