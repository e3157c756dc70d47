"""One `rowlock run` from MariaDB over Kafka and Spark into PostgreSQL, a fault under load, and the judgement
of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.running import ACCOUNTS, DatabaseServer, Load, Witness, rows, source_config, target_config
from tests.kits.waiting import until
from tests.kits.whole_run import WholeRun, whole_run


@dataclass(kw_only=True)
class RunUnderFaults(WholeRun):
    """A run from `source` into `target`: what a fault may touch, and how to judge afterwards."""

    source: MariaDB
    office: PostgreSQL
    broker: Kafka

    def equal(self) -> bool:
        try:
            return rows(self.source, self.db) == rows(self.office, self.db)
        except Exception:  # noqa: BLE001 - the target is on its way up
            return False

    def under_load(self, fault: Callable[[], None], seed: int) -> None:
        """Let `fault` happen in the middle of load; afterwards the target is equal, and no row of it was seen
        to go back."""
        witness = Witness(self.office, self.db)
        load = Load(self.source, self.db, seed)
        load.version = (max((row[1] for row in rows(self.source, self.db)), default=0)) + 1
        witness.start()
        load.start()
        try:
            until(lambda: load.count > 100, "load before the fault")
            at_fault = load.count
            fault()
            until(lambda: load.count > at_fault + 300, "load after the fault")
        finally:
            load.finish()
        self.run.until(self.equal, "the target equals the source", 300)
        witness.finish()
        assert witness.reads > 0
        assert witness.regressions == []


@contextlib.contextmanager
def run_under_faults(
    folder: Path,
    source: MariaDB,
    broker: Kafka,
    office: PostgreSQL,
    database: str,
    ways: tuple[DatabaseServer, str, DatabaseServer] | None = None,
) -> Iterator[RunUnderFaults]:
    """`ways`: where rowlock finds source, broker (bootstrap) and target, if there is something between."""
    pipeline = {
        "sources": ["branch"], "target": "hq", "lanes": 4,
        "routes": [{"from": f"{database}.*", "to": "public.{table}"}],
    }  # fmt: skip
    with whole_run(
        folder, database, broker, {"branch": source}, {"hq": office}, {"to-hq": pipeline}
    ) as whole:
        made = RunUnderFaults(**vars(whole), source=source, office=office, broker=broker)
        if ways is not None:
            reached, made.parts["kafka"]["bootstrap"], target = ways
            made.parts["sources"]["branch"] = source_config(reached, "mariadb", database)
            made.parts["targets"]["hq"] = target_config(target, "postgres", database)
            made.write_parts()
        made.change("branch", *ACCOUNTS)
        made.run.start()
        made.run.until(made.equal, "the snapshot is applied", 300)
        yield made
