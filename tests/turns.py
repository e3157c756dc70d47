"""When tests run: the longest modules first, and which of the slow tests `.ci/run` runs.

Of these it runs some of one test a run, in turn (`pytest -m slow --turn N`). `make test-slow` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

#: Nobody has waited for their end within a run of `.ci/run`.
TOO_LONG = ("tests/unit/test_coordinator_exhaustive.py::",)
#: Cases of one test that a run tries (a test that is not named: one).
CASES = {"tests/sim/coordination/test_coordination.py::test_every_known_bug_put_back_is_found": 6}

#: Longest first: modules that start services and Spark take minutes with few tests. What comes last fills the processes to the end.
_ORDER = ("faults", "integration", "sim", "unit")


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn", type=int, help="of the slow tests only those whose turn this number says it is"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: by_length(item.path))
    turn = config.getoption("--turn")
    if turn is None:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    chosen = set(of_turn((item.nodeid for item in slow), turn))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    turn = config.getoption("--turn")
    return (
        [] if turn is None else [f"turn {turn} of the slow tests: {', '.join(item.nodeid for item in items)}"]
    )
