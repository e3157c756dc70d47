"""When tests run: the longest modules first, which cases `make test` runs, and which others `.ci/run` has in turn.

Most tests on services and in simulations have many cases: a server, a format, a statement each. `make test` runs one case of each test and a
sample of the others (`--cases few`), `make test-all` all of them; of what `make test` leaves out `.ci/run` runs a part in turn, another with each
commit (`--turn N`). Of the slow tests it runs some cases of one (`-m slow --turn N`); `make test-slow` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest

#: Nobody has waited for their end within a run of `.ci/run`.
TOO_LONG = ("tests/unit/test_coordinator_exhaustive.py::",)
#: Cases of one test that a run tries (a test that is not named: one).
CASES = {"tests/sim/coordination/test_coordination.py::test_every_known_bug_put_back_is_found": 6}

#: Longest first: modules that start services and Spark take minutes with few tests. What comes last fills the processes to the end.
_ORDER = ("faults", "integration", "sim", "unit")
#: Where a test's cases are sampled; all others run always.
_SAMPLED = ("tests/faults/", "tests/integration/", "tests/sim/")
#: Of the cases beside a test's least, `make test` runs one in SAMPLE, and a turn one in TURNS of what that leaves out.
SAMPLE, TURNS = 8, 6


def by_length(path: Path) -> int:
    """Return when a module's turn is: the sort key of its folder below `tests`."""
    here = Path(__file__).parent
    folder = path.relative_to(here).parts[0] if path.is_relative_to(here) else ""
    return _ORDER.index(folder) if folder in _ORDER else len(_ORDER)


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
    """Return the node ids that `make test` runs: of each test the case whose number is least and a sample of the others, by a number that a name has for ever."""
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
    """Return those of the node ids that `make test` leaves out which turn number `turn` runs."""
    names = list(names)
    left_out = set(names) - few(names)
    return {name for name in left_out if _number(name) // SAMPLE % TURNS == turn % TURNS}


def _number(name: str) -> int:
    return crc32(name.encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        type=int,
        help="of the slow tests, and of what `--cases few` leaves out, only those whose turn this number says it is",
    )
    parser.addoption(
        "--cases",
        choices=("few", "all"),
        default="all",
        help="few: one case of each test on services, and a sample",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: by_length(item.path))
    chosen = _chosen(config, items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def _chosen(config: pytest.Config, items: list[pytest.Item]) -> set[str]:
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    others = [item.nodeid for item in items if not item.get_closest_marker("slow")]
    if (turn := config.getoption("--turn")) is not None:
        return {*of_turn(slow, turn), *rest_of_turn(others, turn)}
    return {*slow, *(few(others) if config.getoption("--cases") == "few" else others)}


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    turn = config.getoption("--turn")
    slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
    return [f"turn {turn} of the slow tests: {', '.join(slow)}"] if turn is not None and slow else []
