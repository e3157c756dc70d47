"""A whole `rowlock run` into a target of whole batches that a third-party package brings: a folder of JSON
files (tests/stands/json_folder.py).

Under load the driver is killed in the middle of a commit, and fenced in the middle of another one. Every
commit is a file that stays, so the judge sees all of them and not only the last: no row ever goes back, and
nothing is committed under an older token than the one before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from consumer.ordering.fencing_tokens import BITS
from consumer.ordering.model import ApplyUnit
from deploy.embedded.services import Kafka, MariaDB
from schemas.config.kinds import targets as target_kinds
from schemas.wire.records import format_former_table_topic
from tests.kits.apply import ROOT
from tests.kits.running import ACCOUNTS, Load, rows
from tests.kits.whole_run import WholeRun, whole_run
from tests.stands.json_folder import Commit, JsonFolder, installed

pytestmark = pytest.mark.timeout(600)


@dataclass(kw_only=True)
class FolderRun(WholeRun):
    """A run into a folder of files. `place`: the folder."""

    source: MariaDB
    place: Path

    @property
    def folder(self) -> JsonFolder:
        return JsonFolder(self.place)

    @property
    def apply_unit(self) -> ApplyUnit:
        return ApplyUnit("to-files", format_former_table_topic(self.db, "branch", self.db, "acct"))

    def commits(self) -> list[Commit]:
        """Return all commits of the unit, in order."""
        files = self.folder.of(self.apply_unit).folder.glob("commit.*.json")
        found = [msgspec.json.decode(file.read_bytes(), type=Commit) for file in files]
        return sorted(found, key=lambda commit: commit.number)

    def rows(self, commit: Commit) -> list[tuple[Any, ...]]:
        found = self.folder.of(self.apply_unit).rows(commit).values()
        return sorted((key, version, owner, Decimal(str(amount))) for key, version, owner, amount in found)

    def equal(self) -> bool:
        commits = self.folder.of(self.apply_unit)
        return self.rows(commits.last()) == rows(self.source, self.db)

    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """Hold the driver in the middle of a micro-batch, its rows written and not committed; gives its
        process. Not a hand of the takeover: another commit is waited for then."""
        hold, reported = self.place / "hold", self.place / "held"

        def holding() -> int | None:
            reported.unlink(missing_ok=True)
            hold.touch()
            reporter = self.run.until(lambda: reported.exists() and reported.read_text(), "a commit")
            process, _, thread = reporter.partition(" ")
            if thread.startswith("take"):
                hold.unlink()
                return None
            return int(process)

        try:
            yield self.run.until(holding, "a commit of a micro-batch")
        finally:
            hold.unlink(missing_ok=True)


@pytest.fixture
def system(
    mariadb: MariaDB, unique: str, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FolderRun]:
    monkeypatch.setattr(target_kinds, "TARGET_KINDS", {**target_kinds.TARGET_KINDS})
    packages = str(installed(tmp_path / "packages"))
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((packages, str(ROOT))))
    pipeline = {"sources": ["branch"], "target": "files", "commit_every": 0.5}
    with whole_run(tmp_path, unique, kafka, {"branch": mariadb}, {}, {"to-files": pipeline}) as whole:
        made = FolderRun(**vars(whole), source=mariadb, place=tmp_path / "folder")
        anywhere = {"host": "none", "port": 1, "user": "nobody", "password": ""}
        made.parts["targets"]["files"] = {"type": "json", **anywhere, "database": str(made.place)}
        made.write_parts()
        made.change("branch", *ACCOUNTS)
        made.run.start()
        yield made


def test_a_folder_of_files_follows_its_source_through_kill_and_fence(system: FolderRun) -> None:
    system.run.until(system.equal, "the snapshot is applied", 120)
    load = Load(system.source, system.db)
    load.version = 1
    load.start()
    try:
        with system.held() as driver:
            psutil.Process(driver).kill()
        system.run.until(
            lambda: driver not in {each.pid for each in system.run.find("consumer.main")}, "its end"
        )
        with system.held():
            token = fence(system)
            at = system.commits()[-1].number
        system.run.until(
            lambda: system.commits()[-1].lanes[0].offset > system.commits()[at - 1].lanes[0].offset,
            "a successor",
        )
    finally:
        load.finish()
    system.run.until(system.equal, "the folder equals the source", 120)
    later = [commit for commit in system.commits() if commit.number > at]
    assert min(commit.lanes[0].epoch for commit in later) > token, "the fenced driver wrote nothing"
    judge(system)
    barriers(system)
    assert system.run.stop() == 0


def fence(system: FolderRun) -> int:
    """Take the unit over as a driver of a later assignment would; returns its token."""
    (row, *_), _ = system.folder.read_progress(system.apply_unit)
    token, _, _ = system.folder.take_over(
        system.apply_unit, row.topic_id, row.layout, 1, assigned=(row.epoch >> BITS) + 1
    )
    return token


def judge(system: FolderRun) -> None:
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


def barriers(system: FolderRun) -> None:
    """TRUNCATE between rows; the folder refuses two rows: the delete of one and the update of the other
    one settle their keys."""
    system.change(
        "branch", "INSERT INTO acct VALUES (900, 1, NULL, 0)", "TRUNCATE acct",
        "INSERT INTO acct VALUES (901, 1, NULL, 1)", "INSERT INTO acct VALUES (902, 1, 'poison', 2)",
    )  # fmt: skip
    system.run.until(lambda: system.folder.read_quarantine(system.apply_unit), "the refused row is held", 60)
    assert system.rows(system.folder.of(system.apply_unit).last()) == [(901, 1, None, Decimal(1))]
    assert "902" in system.invoke("quarantine", "list").output
    system.change("branch", "DELETE FROM acct WHERE id = 902")
    system.run.until(
        lambda: not system.folder.read_quarantine(system.apply_unit), "the delete settles its key", 60
    )
    system.change("branch", "INSERT INTO acct VALUES (903, 1, 'poison', 3)")
    system.run.until(
        lambda: system.folder.read_quarantine(system.apply_unit), "the next refused row is held", 60
    )
    assert "still held" in system.invoke("quarantine", "retry").output
    system.change("branch", "UPDATE acct SET version = 2, owner = NULL WHERE id = 903")
    system.run.until(
        lambda: not system.folder.read_quarantine(system.apply_unit), "the update settles its key", 60
    )
    system.run.until(system.equal, "equal at the end", 60)
    system.run.until(
        lambda: [unit["state"] for unit in system.status()["units"]] == ["current"], "the state in status", 60
    )
