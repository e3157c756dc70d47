"""A whole `rowlock run` into a target of whole batches that a third-party package brings: a folder of JSON
files (tests/stands/json_folder.py).

Under load the driver is killed in the middle of a commit, and fenced in the middle of another one. Every
commit is a file that stays, so the judge sees all of them and not only the last: no row ever goes back, and
nothing is committed under an older token than the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from click.testing import CliRunner

from consumer.ordering.fencing_tokens import BITS
from consumer.ordering.model import ApplyUnit
from deploy.embedded.services import Kafka, MariaDB
from rowlock.cli import main
from schemas.config.kinds import targets as target_kinds
from schemas.wire.records import format_former_table_topic
from tests.kits.apply import ROOT
from tests.kits.running import DDL, KEYS, Load, Run, rows, running, source_config, write_config
from tests.kits.waiting import until
from tests.stands.json_folder import Commit, JsonFolder, installed

pytestmark = pytest.mark.timeout(600)


@dataclass
class System:
    run: Run
    source: MariaDB
    database: str
    folder: JsonFolder
    place: Path

    @property
    def unit(self) -> ApplyUnit:
        return ApplyUnit(
            "to-files", format_former_table_topic(self.database, "branch", self.database, "acct")
        )

    def commits(self) -> list[Commit]:
        """Return all commits of the unit, in order."""
        files = self.folder.of(self.unit).folder.glob("commit.*.json")
        found = [msgspec.json.decode(file.read_bytes(), type=Commit) for file in files]
        return sorted(found, key=lambda commit: commit.number)

    def rows(self, commit: Commit) -> list[tuple[Any, ...]]:
        found = self.folder.of(self.unit).rows(commit).values()
        return sorted((key, version, owner, Decimal(str(amount))) for key, version, owner, amount in found)

    def equal(self) -> bool:
        commits = self.folder.of(self.unit)
        return self.rows(commits.last()) == rows(self.source, self.database)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement, database=self.database)

    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """Hold the driver in the middle of a micro-batch, its rows written and not committed; gives its
        process. Not a hand of the takeover: another commit is waited for then."""
        hold, reported = self.place / "hold", self.place / "held"

        def holding() -> int | None:
            reported.unlink(missing_ok=True)
            hold.touch()
            said_by = until(
                lambda: reported.exists() and reported.read_text(), f"a commit; see {self.run.log}"
            )
            process, _, thread = said_by.partition(" ")
            if thread.startswith("take"):
                hold.unlink()
                return None
            return int(process)

        try:
            yield until(holding, "a commit of a micro-batch")
        finally:
            hold.unlink(missing_ok=True)

    def invoke(self, *words: str) -> str:
        result = CliRunner().invoke(main, [*words, "-c", str(self.run.config)])
        assert result.exit_code in (0, 1), result.output
        return result.output


@pytest.fixture
def system(
    mariadb: MariaDB, mariadb_db: str, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    monkeypatch.setattr(target_kinds, "TARGET_KINDS", {**target_kinds.TARGET_KINDS})
    packages = str(installed(tmp_path / "packages"))
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((packages, str(ROOT))))
    place = tmp_path / "folder"
    mariadb.execute(DDL, database=mariadb_db)
    for key in range(0, KEYS, 2):  # rows for the snapshot
        mariadb.execute("INSERT INTO acct VALUES (%s, 0, %s, 7.5)", (key, f"first{key}"), database=mariadb_db)
    anywhere = {"host": "none", "port": 1, "user": "nobody", "password": ""}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": mariadb_db},
        sources={"branch": source_config(mariadb, "mariadb", mariadb_db)},
        targets={"files": {"type": "json", **anywhere, "database": str(place)}},
        pipelines={"to-files": {"sources": ["branch"], "target": "files", "commit_every": 0.5}},
    )
    with running(config, tmp_path) as run:
        yield System(run, mariadb, mariadb_db, JsonFolder(place), place)


def test_a_folder_of_files_follows_its_source_through_kill_and_fence(system: System) -> None:
    until(system.equal, f"the snapshot is applied; see {system.run.log}", 120)
    load = Load(system.source, system.database)
    load.version = 1
    load.start()
    try:
        with system.held() as driver:
            psutil.Process(driver).kill()
        until(lambda: driver not in {each.pid for each in system.run.find("consumer.main")}, "its end")
        with system.held():
            token = fence(system)
            at = system.commits()[-1].number
        until(
            lambda: system.commits()[-1].lanes[0].offset > system.commits()[at - 1].lanes[0].offset,
            "a successor",
        )
    finally:
        load.finish()
    until(system.equal, f"the folder equals the source; see {system.run.log}", 120)
    later = [commit for commit in system.commits() if commit.number > at]
    assert min(commit.lanes[0].epoch for commit in later) > token, "the fenced driver wrote nothing"
    judge(system)
    barriers(system)
    assert system.run.stop() == 0


def fence(system: System) -> int:
    """Take the unit over as a driver of a later assignment would; returns its token."""
    (row, *_), _ = system.folder.read_progress(system.unit)
    token, _, _ = system.folder.take_over(
        system.unit, row.topic_id, row.layout, 1, assigned=(row.epoch >> BITS) + 1
    )
    return token


def judge(system: System) -> None:
    """No commit took a row back to an older version, none has an older token or offset than the one
    before."""
    seen: dict[int, int] = {}
    commits = system.commits()
    assert [commit.number for commit in commits] == list(range(1, len(commits) + 1))
    places = [(commit.lanes[0].epoch, commit.lanes[0].offset) for commit in commits]
    assert [epoch for epoch, _ in places] == sorted(epoch for epoch, _ in places)
    assert [offset for _, offset in places] == sorted(offset for _, offset in places)
    for commit in commits:
        for key, version, *_ in system.rows(commit):
            assert version >= seen.get(key, 0), f"commit {commit.number}: row {key} went back"
            seen[key] = version


def barriers(system: System) -> None:
    """TRUNCATE between rows; the folder refuses two rows: the delete of one settles it, the other one is
    shown and retried."""
    system.sql(
        "INSERT INTO acct VALUES (900, 1, NULL, 0)", "TRUNCATE acct",
        "INSERT INTO acct VALUES (901, 1, NULL, 1)", "INSERT INTO acct VALUES (902, 1, 'poison', 2)",
    )  # fmt: skip
    until(lambda: system.folder.read_quarantine(system.unit), "the refused row is held", 60)
    assert system.rows(system.folder.of(system.unit).last()) == [(901, 1, None, Decimal(1))]
    assert "902" in system.invoke("quarantine", "list")
    system.sql("DELETE FROM acct WHERE id = 902")
    until(lambda: not system.folder.read_quarantine(system.unit), "the delete settles its key", 60)
    system.sql("INSERT INTO acct VALUES (903, 1, 'poison', 3)")
    until(lambda: system.folder.read_quarantine(system.unit), "the next refused row is held", 60)
    system.sql("UPDATE acct SET version = 2, owner = NULL WHERE id = 903")
    until(
        lambda: len(system.folder.read_quarantine(system.unit)) == 2,
        "the update waits for the row before it",
        60,
    )
    assert "applied" in system.invoke("quarantine", "retry")
    until(system.equal, f"equal at the end; see {system.run.log}", 60)
    until(lambda: states(system) == ["current"], "status says so", 60)


def states(system: System) -> list[str]:
    units = json.loads(system.invoke("status", "--output", "json"))["units"]
    return [unit["state"] for unit in units]
