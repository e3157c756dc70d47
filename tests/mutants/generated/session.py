"""A pytest session that collects tests once and hands them over, instead of running them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.mutants.generated import ROOT
from tests.mutants.generated.forks import Report

SIM_SEEDS = "20"
_COORDINATION = "tests/sim/coordination/test_coordination.py"
SIMULATIONS = (
    "tests/sim/test_model.py::test_every_seed_ends_with_the_target_equal_to_the_source",
    "tests/sim/test_model.py::test_a_seed_that_failed_once",
    "tests/sim/test_changing.py::test_every_history_ends_as_its_sources",
    "tests/sim/test_changing.py::test_where_a_person_changes_the_target_table_it_ends_as_its_source",
    "tests/sim/test_changing.py::test_a_history_that_went_wrong_once_ends_as_its_sources",
    "tests/sim/test_changing.py::test_statements_of_several_actions_end_as_their_sources",
    "tests/sim/test_oracle.py::test_every_life_ends_well",
    f"{_COORDINATION}::test_every_seed_keeps_every_invariant_and_becomes_well_again",
    f"{_COORDINATION}::test_seeds_that_failed_once",
)
"""Simulations of the whole product. Those that switch a rule off pass where anything else is wrong."""
NOT_OF_BEHAVIOUR = frozenset({"test_mutants", "test_generated_mutants"})
"""Modules that read the product's text, which a mutant in memory leaves as it is; test_gates* are others."""
_LIBRARIES = """
    click confluent_kafka cryptography.x509 fastapi.testclient grpc httpx hypothesis.strategies msgspec oracledb
    orjson pandas psycopg pyarrow pydantic pymysql pymysqlreplication pyspark.sql rich.table sqlalchemy structlog
    uvicorn xxhash yaml zstandard
"""  # noqa: E501
"""What product and tests import from elsewhere."""
_OPTIONS = (
    "-q", "-s", "--no-header", "--no-summary", "--tb=native", "--assert=plain",
    "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow",
    f"--rootdir={ROOT}", "-c", str(ROOT / "setup.cfg"),
)  # fmt: skip


def list_modules() -> list[str]:
    """Return the paths of the unit tests and simulations that judge mutants."""
    unit = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/unit").glob("test_*.py"))
    named = {test.partition("::")[0] for test in SIMULATIONS}
    return [path for path in unit if not is_left_out(Path(path).stem)] + sorted(named)


def is_left_out(module: str) -> bool:
    """Whether a test module judges no mutants."""
    return module in NOT_OF_BEHAVIOUR or module.startswith("test_gates")


class Collecting:
    """A pytest plugin: `use` is called with the session's tests in place of running them."""

    def __init__(self, use: Callable[[list[pytest.Item]], None], failed: Callable[[], None]) -> None:
        self._use = use
        self._failed = failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Draw the same examples each time, and look for no smaller one: the first that fails is enough."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", settings.get_profile("untimed"), derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Hand the tests over, or report that a module cannot be imported."""
        if session.testsfailed:
            self._failed()
        self._use([item for item in session.items if _is_used(item.nodeid)])
        return True


def _is_used(test: str) -> bool:
    return not test.startswith("tests/sim/") or test.partition("[")[0] in SIMULATIONS


def collect(paths: Iterable[str], basetemp: Path, plugins: list[object]) -> int:
    """Run pytest on `paths` with the plugins; return its exit code."""
    os.environ["ROWLOCK_SIM_SEEDS"] = SIM_SEEDS
    os.chdir(ROOT)
    return int(pytest.main([*_OPTIONS, f"--basetemp={basetemp}", *paths], plugins=plugins))


class _FirstFailure:
    """A pytest plugin that reports the first failing test and ends the process."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._report.end("killed", report.nodeid, "failed")


def run_until_failure(items: list[pytest.Item], report: Report) -> None:
    """Run tests in this process, which is a fork, and report the verdict. Does not return."""
    if not items:
        report.end("error", how="no test can be collected")
    items[0].config.pluginmanager.register(_FirstFailure(report))
    for item, following in zip(items, [*items[1:], None], strict=True):
        report.begin(item.nodeid)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException:  # noqa: BLE001  # KeyboardInterrupt and pytest's Exit are not part of a report
            report.end("killed", item.nodeid, "died")
    report.end("survived")


def warm_up() -> None:
    """Import what tests and product import from elsewhere, for all forks at once."""
    for name in _LIBRARIES.split():
        __import__(name)
    product = {"schemas", "producer", "consumer", "coordinator", "rowlock"} & set(sys.modules)
    assert not product, f"already imported: {product}"
