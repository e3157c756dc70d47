"""Gate (c): the files that a row traverses from the source's log to the target's commit, in a running system.

tests/integration/test_the_way_of_a_row.py follows a few transactions and then more of them, through capture
after the snapshot and through tasks of one Spark worker. A function is on the way if it runs for each
transaction: the number of its calls grows with the number of transactions. What runs once (a start, the
first use of a table, an end) or by a timer is not. A file is on the way if one of its functions is; imports
do not count. `python -m tests.gates --trace` does the same, and adds the figures to the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.gates.ratchet import Measure
from tests.gates.sources import PRODUCT, ROOT

MOST_FILES = 60
_FOLDERS = tuple(f"{package}/" for package in PRODUCT if package != "deploy")


def list_repeated(few: Mapping[str, int], many: Mapping[str, int], more: int) -> list[str]:
    """Return the functions with calls for each piece of work: `many` are the calls for `more` pieces more
    than `few`.

    Three calls for four pieces are enough: a thread may find the results of two of them at once.
    """
    return [name for name, calls in many.items() if calls - few.get(name, 0) >= more * 3 / 4]


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


def trace_ways() -> tuple[Measure, str]:
    """Start the services, and follow rows, and then statements that add a column, from MariaDB to PostgreSQL.

    Return the measure of a row's way, and the figure of an ALTER's.
    """
    from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
    from tests.integration import test_the_way_of_a_row as way

    kafka, source, target = Kafka(), MariaDB(), PostgreSQL()
    measures = []
    with tempfile.TemporaryDirectory() as folder, combine_services(kafka, source, target):
        for name, work in (("way", way.INSERTS), ("alter", way.ALTERS)):
            source.create_database(name)
            target.create_database(name)
            place = Path(folder) / name
            place.mkdir()
            captured, applied = way.follow_rows(kafka, source, name, target, name, place, work)
            measures.append(measure_way([*captured.list_repeated(), *applied.list_repeated()]))
    return measures[0], measures[1].figure
