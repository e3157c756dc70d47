"""Gate (c): the files that a row traverses from the source's log to the target's commit, in a running system.

tests/integration/test_the_way_of_a_row.py follows rows through capture after the snapshot, and through the
second task of a Spark worker, which has checked the table already. A file is on the way if one of its
functions ran; imports do not count. `python -m tests.gates --trace` does the same, and adds the figures to
the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.gates.ratchet import Measure
from tests.gates.sources import PRODUCT, ROOT

MOST_FILES = 60
_FOLDERS = tuple(f"{package}/" for package in PRODUCT if package != "deploy")


def list_files(passed: Iterable[str]) -> list[str]:
    """Return the files of the product among "file: function"."""
    return sorted(
        {
            line.partition(": ")[0]
            for line in passed
            if line.startswith(_FOLDERS) and not line.endswith("<module>")
        }
    )


def measure_way(passed: Iterable[str]) -> Measure:
    """Return the measure of the files that have a function in `passed`."""
    files = list_files(passed)
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in files)
    values = {"files": len(files)} if len(files) > MOST_FILES else {}
    return Measure(
        "way of a row", f"{len(files)} files, {lines:,} lines", f"{MOST_FILES} files", values, is_list=False
    )


def trace_row() -> Measure:
    """Start the services, and follow rows from MariaDB to PostgreSQL."""
    from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
    from tests.integration import test_the_way_of_a_row as way

    kafka, source, target = Kafka(), MariaDB(), PostgreSQL()
    with tempfile.TemporaryDirectory() as folder, combine_services(kafka, source, target):
        source.create_database("way")
        target.create_database("way")
        captured, _, second = way.follow_rows(kafka, source, "way", target, "way", Path(folder))
    return measure_way([*captured, *second])
