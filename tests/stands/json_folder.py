"""A folder of JSON files as a target of whole batches (consumer.targets.batches).

    FOLDER/tables/SCHEMA.NAME.json         the definition of a table
    FOLDER/TOPIC/rows.NUMBER.json          the rows of a unit's table as of a commit, key → row
    FOLDER/TOPIC/commit.NUMBER.json        a commit: epoch and progress, unit state, quarantine, which file has the rows

`KIND` is its entry in schemas.config.kinds.targets. A target's `database` is the folder.

A commit is there when its file has its name: it is written whole under another one, and then linked to the
number after the commit that it builds on. Of two writers one makes that link: that is the fence, and not the
comparison before it. What the other one left is never read."""  # noqa: E501

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from consumer.errors import FencedError, RefusedError, TransientError
from consumer.ordering.fencing_tokens import compute_next_epoch
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    UnitState,
)
from consumer.targets import batches
from consumer.targets.batches import BatchCommitted, BatchFenced, ProgressChange, RowsChange, TableCleared
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.dialect import Dialect
from schemas.config.kinds.targets import ENTRY_POINTS, TargetKind
from schemas.config.model import TargetConfig
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table, Value
from schemas.table.names import EXACT
from schemas.wire.codec import decode_table, encode_table
from schemas.wire.position import ZERO


class Commit(msgspec.Struct, frozen=True):
    """`rows`: the name of the file that has them."""

    number: int = 0
    lanes: tuple[LaneProgress, ...] = ()
    state: UnitState = UnitState(None, None, None)
    held: tuple[QuarantineEntry, ...] = ()
    closed: tuple[tuple[QuarantineEntry, str], ...] = ()
    rows: str = ""


class LostError(Exception):
    """Another writer made the commit of this number."""


class Commits:
    """The commits of one unit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def last(self) -> Commit:
        names = [int(path.name.split(".")[1]) for path in self.folder.glob("commit.*.json")]
        if not names:
            return Commit()
        return msgspec.json.decode((self.folder / f"commit.{max(names)}.json").read_bytes(), type=Commit)

    def make(self, commit: Commit) -> None:
        """Raises LostError."""
        whole = self.folder / f"written.{secrets.token_hex(8)}"
        write_durably(whole, msgspec.json.encode(commit))
        try:
            os.link(whole, self.folder / f"commit.{commit.number}.json")
        except FileExistsError as error:
            raise LostError from error
        finally:
            whole.unlink()

    def change(self, change: Callable[[Commit], Commit]) -> Commit:
        """Make a commit of what `change` makes of the last one, also while others make some; none if it
        stays as it is."""
        while True:
            last = self.last()
            expected = change(last)
            if expected is last:
                return last
            made = replace(expected, number=last.number + 1)
            try:
                self.make(made)
            except LostError:
                continue
            return made

    def rows(self, commit: Commit) -> dict[Key, Row]:
        if not commit.rows:
            return {}
        pairs = msgspec.json.decode(
            (self.folder / commit.rows).read_bytes(), type=list[tuple[tuple[Value, ...], tuple[Value, ...]]]
        )
        return dict(pairs)


def write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class FolderProgress:
    """`consumer.targets.base.ProgressStore` in these files."""

    def __init__(self, folder: Path, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._folder = folder
        self._now_ms = now_ms

    def of(self, unit: ApplyUnit) -> Commits:
        return Commits(self._folder / f"{unit.pipeline}.{unit.topic}")

    def ensure_bookkeeping(self) -> None:
        (self._folder / "tables").mkdir(parents=True, exist_ok=True)

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        before = UnitState(None, None, None)

        def taken(last: Commit) -> Commit:
            nonlocal before
            before = last.state
            rows = last.lanes or tuple(
                LaneProgress(n, 0, 0, topic_id, -1, ZERO, 0, layout) for n in range(lanes)
            )
            highest = max(row.epoch for row in rows)
            epoch = compute_next_epoch(unit, highest, assigned=assigned, above=above, now_ms=self._now_ms())
            return replace(
                last,
                lanes=tuple(replace(row, epoch=epoch) for row in rows),
                state=replace(before, stopped=None),
            )

        made = self.of(unit).change(taken)
        return made.lanes[0].epoch, list(made.lanes), before

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        def begun(last: Commit) -> Commit:
            if not last.lanes or any(row.epoch != epoch for row in last.lanes):
                raise FencedError(f"expected epoch {epoch}, there is {last.lanes}")
            return replace(last, lanes=tuple(replace(row, attempt=row.attempt + 1) for row in last.lanes))

        made = self.of(unit).change(begun)
        return list(made.lanes), made.state, list(made.held)

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        last = self.of(unit).last()
        return list(last.lanes) if lanes else [], last.state if last.number else None

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        def stopped(last: Commit) -> Commit:
            ours = all(row.epoch == epoch for row in last.lanes)
            return replace(last, state=replace(last.state, stopped=message)) if ours else last

        self.of(unit).change(stopped)

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        return list(self.of(unit).last().held)

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        return {}

    def list_unit_topics(self, pipeline: str) -> list[str]:
        return sorted(path.name.removeprefix(f"{pipeline}.") for path in self._folder.glob(f"{pipeline}.*"))

    def read_unit_states(self, pipeline: str, topics: Sequence[str] | None = None) -> dict[str, UnitState]:
        return {
            topic: self.of(ApplyUnit(pipeline, topic)).last().state
            for topic in self.list_unit_topics(pipeline)
            if topics is None or topic in topics
        }

    def list_defined_topics(self, pipeline: str) -> list[str]:
        return [name for name, state in self.read_unit_states(pipeline).items() if state.definition]

    def ping(self) -> bool:
        return self._folder.is_dir()

    def close(self) -> None: ...


class JsonFolder(batches.KeysStoredVerbatim, FolderProgress):
    """`consumer.targets.batches.BatchTarget`. `refuses`: which rows it does not take; `paused`: called before
    a commit is linked."""

    table_names = EXACT

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.refuses: Callable[[Row], bool] = lambda _row: False
        self.paused: Callable[[], None] = lambda: None
        self.commits, self.transactional_ddl = 0, True
        self.column_names = self.table_names = EXACT

    def apply_changes(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        commits = self.of(unit)
        last = commits.last()
        if guards(last.lanes) != guards(progress.guards):
            return BatchFenced(str(last.lanes))
        name, number = last.rows, last.number + 1
        if changes:
            name = f"rows.{number}.{secrets.token_hex(4)}.json"
            rows = commits.rows(last)
            for change in changes:
                if isinstance(change, TableCleared):
                    rows.clear()  # all of them are of this unit
                elif isinstance(change, NetChange):
                    self._write(rows, change)
            write_durably(commits.folder / name, msgspec.json.encode(sorted(rows.items(), key=str)))
        before = -1 if progress.closed_before is None else progress.closed_before
        missing = [e for e in last.held if e.offset < before or (e.offset, e.part) in progress.closed]
        self.paused()
        try:
            commits.make(
                Commit(
                    number=number,
                    lanes=tuple(progress.rows),
                    state=progress.state or last.state,
                    held=(*(entry for entry in last.held if entry not in missing), *progress.held),
                    closed=(
                        *last.closed,
                        *(
                            (entry, progress.why)
                            for entry in missing
                            if all((n.offset, n.part) != (entry.offset, entry.part) for n in progress.held)
                        ),
                    ),
                    rows=name,
                )
            )
        except LostError:
            return BatchFenced(str(commits.last().lanes))
        self.commits += 1
        return BatchCommitted()

    def _write(self, rows: dict[Key, Row], net: NetChange) -> None:
        for key in net.deletes:
            rows.pop(key, None)
        for row in net.rows:
            if self.refuses(row):
                raise RefusedError(f"{net.table.name}: this folder does not take {len(row)} values")
            rows[tuple(row[at] for at in net.table.key_at)] = row

    def _definition(self, schema: str, name: str) -> Path:
        return self._folder / "tables" / f"{schema}.{name}.json"

    def read_table(self, schema: str, name: str) -> Table | None:
        path = self._definition(schema, name)
        return decode_table(path.read_bytes()) if path.exists() else None

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        return TableFacts()

    def read_surroundings(self, schema: str, name: str) -> object:
        return self.read_table_facts(schema, name)

    def judge_new_table(self, table: Table) -> list[Problem]:
        return []

    def create_table(self, table: Table) -> None:
        """Without unique indexes: nothing here compares other values than keys."""
        self.ensure_bookkeeping()
        write_durably(self._definition(table.db, table.name), encode_table(replace(table, unique=())))

    def yield_keys(self, unit: ApplyUnit, table: TargetTable, where: object) -> Iterable[Sequence[Key]]:
        return [list((commits := self.of(unit)).rows(commits.last()))]

    def rows(self, unit: ApplyUnit, table: TargetTable) -> list[Row]:
        return list((commits := self.of(unit)).rows(commits.last()).values())


def guards(rows: Sequence[LaneProgress]) -> list[tuple[int, int, int, int]]:
    return [(row.lane, row.epoch, row.attempt, row.offset) for row in rows]


def open_folder(target: TargetConfig, _name: str) -> JsonFolder:
    """Connect. A file `hold` in the folder makes each commit wait, and its process write its id into `held`;
    a row with the text "poison" is refused."""
    folder = JsonFolder(place := Path(target.database))
    folder.refuses = lambda row: "poison" in row
    folder.paused = lambda: wait_while_held(place)
    try:
        folder.ensure_bookkeeping()
    except OSError as error:
        raise TransientError(f"{place}: {error}") from error
    return folder


def wait_while_held(place: Path) -> None:
    while (place / "hold").exists():
        (place / "held").write_text(f"{os.getpid()} {threading.current_thread().name}")
        time.sleep(0.01)


JSON_FOLDER = Dialect("json", open_folder)
KIND = TargetKind("tests.stands.json_folder", "JSON_FOLDER", batches=True)


def installed(place: Path) -> Path:
    """Make what a package that brings `KIND` leaves in a folder of Python's path, and return that folder."""
    about = place / "rowlock_json-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rowlock-json\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\njson = tests.stands.json_folder:KIND\n")
    return place
