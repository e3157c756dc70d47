"""What all tests share: the services' fixtures, and markers by folder."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from consumer.ordering import recovery
from schemas.io.refused_logins import REFUSED_LOGINS

pytest.register_assert_rewrite(
    "tests.conformance", "tests.kits", "tests.stands"
)  # their failures are shown as those of tests
pytest_plugins = ("tests.services", "tests.capturing", "tests.turns")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
recovery.MAX_SECONDS = math.inf
"""On a loaded machine an example or a drain may be slow, never red."""

_MARKED_FOLDERS = {"integration": "integration", "faults": "faults", "upgrade": "upgrade"}


@pytest.fixture(autouse=True)
def forget_refused_logins() -> Iterator[None]:
    """A log-in that a test's server refused is none of the next test's, which runs in the same process."""
    yield
    REFUSED_LOGINS._logins.clear()


def pytest_configure() -> None:
    """Started in the background by a shell, we would hand an ignored SIGINT down to every process that we
    start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder says what it needs, so that nobody can forget the marker."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            folder = item.path.relative_to(here).parts[0]
            if folder in _MARKED_FOLDERS:
                item.add_marker(_MARKED_FOLDERS[folder])


class _ModulesTogether(LoadScopeScheduling):
    """A module's tests in one process. Each process starts a service of its own when a test first asks for
    it, so tests with services run in all of them, and what a test does to a server meets no test of another
    process."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    # By their number of tests the longest modules would be the last, for they have few (tests/turns.py has
    # the order).
    config.option.loadscopereorder = False
    # Not by xdist's groups: version 3.8 writes them into a field that pytest 9.2 no longer reads.
    return _ModulesTogether(config, log)
