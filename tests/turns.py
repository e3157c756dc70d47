"""When tests run: the longest modules first, what `make test` runs, and what else `.ci/run` does.

Most tests on services and in simulations have many cases: a server, a format, a statement each. `make test`
runs one case of each test and a sample of the others, and no test that takes long (`--cases few`); `make
test-all` runs all of them. `.ci/run` also runs a third of the long tests, and of the other cases a part:
with each commit another third and another part (`--turn N`). Of the slow tests it runs some cases of one (`-m
slow --turn N`); `make test-slow` runs them all. Of the upgrade tests it runs each from one release, with
each commit from another one; `make test-upgrade` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

from tests.long_tests import long_tests

#: Nobody has waited for their end within a run of `.ci/run`.
TOO_LONG = ("tests/unit/test_coordinator_exhaustive.py::",)
#: Cases of one test that a run tries (a test that is not named: one).
CASES = {"tests/sim/coordination/test_coordination.py::test_every_known_bug_put_back_is_found": 6}

#: Long tests that `make test` runs all the same: the way of rows through all processes, and the machines that
#: keep their order.
ALWAYS = (
    "tests/faults/test_whole_system.py::test_source_equals_target_after",
    "tests/integration/test_apply_spark.py::test_two_sources_flow_into_one_table",
    "tests/integration/test_copied_tables.py::test_stale_rows_go_and_living_ones_are_never_away",
    "tests/integration/test_rowlock_run.py::test_caught_up_means_equal_but_for_what_is_held",
    "tests/integration/test_sources.py::test_nothing_is_missing_behind_a_kill",
    "tests/integration/test_whole_way.py::test_rows_of_all_types_through_the_log_are_equal",
    "tests/sim/coordination/test_coordination.py::test_every_seed_keeps_every_invariant_and_becomes_well_again",
    "tests/sim/test_model.py::test_every_seed_ends_with_the_target_equal_to_the_source",
    "tests/unit/test_apply_copies.py::test_any_history_with_copies_crashes_and_stale_rows_ends_as_the_source",
    "tests/unit/test_consumer_history.py::test_any_schedule_of_the_lanes_ends_as_serial_replay",
)

#: Longest first: modules that start services and Spark take minutes with few tests. What comes last fills the
#: processes to the end.
_ORDER = ("faults", "integration", "sim", "unit")
#: Where a test's cases are sampled; all others run always.
_SAMPLED = ("tests/faults/", "tests/integration/", "tests/sim/")
#: Of a test's cases one runs, and one in SAMPLE of the others; a turn has one in TURNS of what that leaves
#: out, and one in LONG_TURNS of the long tests: all of them take `.ci/run` beyond its hour.
SAMPLE, TURNS, LONG_TURNS = 8, 8, 3


@cache
def by_length(path: Path) -> tuple[int, bool]:
    """Return when a module's turn is: the place of its folder below `tests`; of unit tests, the last ones,
    those with a long test come first.

    At the end such a module would keep the other processes waiting.
    """
    here = Path(__file__).parent
    folder = path.relative_to(here).parts[0] if path.is_relative_to(here) else ""
    place = _ORDER.index(folder) if folder in _ORDER else len(_ORDER)
    return place, not any(test.startswith(f"tests/unit/{path.name}::") for test in ALWAYS)


def of_turn(names: Iterable[str], turn: int) -> list[str]:
    """Return the node ids that turn number `turn` runs: tests take turns, then the cases of each."""
    tests: dict[str, list[str]] = {}
    for name in names:
        if not name.startswith(TOO_LONG):
            tests.setdefault(name.partition("[")[0], []).append(name)
    if not tests:
        return []
    around, which = divmod(turn, len(tests))
    test, cases = sorted(tests.items())[which]
    size = CASES.get(test, 1)
    parts = [cases[first : first + size] for first in range(0, len(cases), size)]
    return parts[around % len(parts)]


def few(names: Iterable[str]) -> set[str]:
    """Return the node ids that `make test` runs: a sample of each test that is not long."""
    left_out = long_tests().difference(ALWAYS)
    return {name for name in sample(names) if name.partition("[")[0] not in left_out}


def sample(names: Iterable[str]) -> set[str]:
    """Return of each test on services one case, the one whose number is the least, and some of the others, by
    a number that a name has for ever."""
    tests: dict[str, list[str]] = {}
    chosen = set()
    for name in names:
        if name.startswith(_SAMPLED):
            tests.setdefault(name.partition("[")[0], []).append(name)
        else:
            chosen.add(name)
    for cases in tests.values():
        chosen.add(min(cases, key=_number))
        chosen.update(name for name in cases if _number(name) % SAMPLE == 0)
    return chosen


def rest_of_turn(names: Iterable[str], turn: int) -> set[str]:
    """Return what turn number `turn` runs of the node ids that `make test` leaves out: the sample of some
    long tests, and some of the other cases."""
    names = list(names)
    sampled = sample(names)
    long = {
        name
        for name in sampled - few(names)
        if _number(name.partition("[")[0]) % LONG_TURNS == turn % LONG_TURNS
    }
    others = {name for name in set(names) - sampled if _number(name) // SAMPLE % TURNS == turn % TURNS}
    return long | others


def upgrades_of_turn(names: Iterable[str], turn: int) -> set[str]:
    """Return the upgrade tests of turn number `turn`: each test from one release, and two tests from
    different ones."""
    tests: dict[str, list[str]] = {}
    for name in sorted(names):
        tests.setdefault(name.partition("[")[0], []).append(name)
    return {cases[(turn + place) % len(cases)] for place, cases in enumerate(tests.values())}


def _number(name: str) -> int:
    return crc32(name.encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        type=int,
        help="of the slow tests and the upgrade tests those of the turn with this number; of the others what "
        "`--cases few` leaves out, cases in turn",
    )
    parser.addoption(
        "--cases",
        choices=("few", "all"),
        default="all",
        help="few: one case of each test on services and a sample of the others, and no test that takes long",
    )
    parser.addoption(
        "--server",
        choices=("mysql", "mariadb"),
        help="only cases on this server (`make test-mysql`, `make test-mariadb`)",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: by_length(item.path))
    chosen = _chosen(config, items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def _is_on(item: pytest.Item, server: str) -> bool:
    """Return whether a case uses the fixture `server`, of its own or by the name in a parameter."""
    case = getattr(item, "callspec", None)
    named = [] if case is None else [each for each in case.params.values() if isinstance(each, str)]
    others = {"mysql", "mariadb", "postgres"} - {server}
    used = {*getattr(item, "fixturenames", ()), *named}
    return server in used and not others & used


def _chosen(config: pytest.Config, items: list[pytest.Item]) -> set[str]:
    if (server := config.getoption("--server")) is not None:
        return {item.nodeid for item in items if _is_on(item, server)}
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    upgrades = [item.nodeid for item in items if item.get_closest_marker("upgrade")]
    others = [
        item.nodeid
        for item in items
        if not (item.get_closest_marker("slow") or item.get_closest_marker("upgrade"))
    ]
    if (turn := config.getoption("--turn")) is not None:
        return {*of_turn(slow, turn), *upgrades_of_turn(upgrades, turn), *rest_of_turn(others, turn)}
    return {*slow, *upgrades, *(few(others) if config.getoption("--cases") == "few" else others)}


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    turn = config.getoption("--turn")
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    return [f"turn {turn} of the slow tests: {', '.join(slow)}"] if turn is not None and slow else []
