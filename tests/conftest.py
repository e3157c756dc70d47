"""What all tests share: the services' fixtures, and markers and groups by folder."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest_plugins = ("tests.services",)

_MARKED_FOLDERS = {"integration": "integration", "faults": "faults"}


def pytest_configure() -> None:
    """Started in the background by a shell, we would hand an ignored SIGINT down to every process that we start."""
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
                item.add_marker(
                    pytest.mark.xdist_group("services")
                )  # one process: each service is started once
