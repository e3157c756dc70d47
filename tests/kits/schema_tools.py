"""A captured table whose rows change while a tool alters it, the statements of gh-ost and
pt-online-schema-change, and the judgement of its topic."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from schemas.table.model import Column, Kind
from schemas.wire.event import ColumnChanges, EventEnvelope
from tests.capturing import Capturing
from tests.kits.capture import Replay, running, source_rows, topic_rows, watermarks
from tests.kits.waiting import until

FORM = (
    "(id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), n INT NOT NULL DEFAULT 0, "
    "version INT NOT NULL, KEY by_v (v))"
)
ALTER = "ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN n, MODIFY id BIGINT AUTO_INCREMENT"
WANTED = ColumnChanges(added=("c",), dropped=("n",), modified=("id",))


_LOCKED = (1213, 1205)  # deadlock, lock wait timeout
_AGAIN = (*_LOCKED, 1146)  # and a table that is away for a moment


class Writer:
    """Changes the table's rows, one transaction a change, each under a higher version, until told to stop."""

    def __init__(self, database: Any, db: str) -> None:
        self._database, self._db = database, db
        self._stop, self.finish_tick, self.trouble = threading.Event(), 0, []  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run_thread)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert not self.trouble, self.trouble

    def more(self, changes: int = 30) -> None:
        """Return once so many more changes are made."""
        expected = self.finish_tick + changes
        until(lambda: self.finish_tick >= expected or self.trouble, f"{changes} more changes")

    def _run_thread(self) -> None:
        rng = random.Random(5)
        with self._database.connect(self._db) as connection, connection.cursor() as cursor:
            while not self._stop.is_set() and not self.trouble:
                self.finish_tick += 1
                try:
                    cursor.execute(self._change(rng))
                    connection.commit()
                except Exception as error:  # noqa: BLE001 - told where it is looked at
                    if error.args[0] not in _AGAIN:
                        self.trouble.append(repr(error))

    def _change(self, rng: random.Random) -> str:
        key = rng.randrange(1, 60)
        match rng.randrange(4):
            case 0:
                return f"DELETE FROM t WHERE id = {key}"
            case 1:
                return (
                    f"UPDATE t SET v = 'u{self.finish_tick}', version = "
                    f"{self.finish_tick + 1000} WHERE id = {key}"
                )
        values = f"({key}, 'v{self.finish_tick}', {self.finish_tick + 1000})"
        return (
            f"INSERT INTO t (id, v, version) VALUES {values} ON DUPLICATE KEY UPDATE v = "
            "VALUES(v), version = VALUES(version)"
        )


class Tools(Capturing):
    """A table `t` with rows, captured from its snapshot on."""

    def __init__(self, capturing: Capturing) -> None:
        self.__dict__ |= capturing.__dict__
        self.options = {"snapshot": "initial"}
        self.database.execute(f"CREATE TABLE {self.db}.t {FORM}")
        rows = ", ".join(f"({key}, 'r{key}', 1)" for key in range(1, 60, 2))
        self.database.execute(f"INSERT INTO {self.db}.t (id, v, version) VALUES {rows}")

    @contextlib.contextmanager
    def live(self) -> Iterator[Writer]:
        """Capture, and changes of rows meanwhile; at the end everything is in Kafka."""
        with running(self.config(), "s") as unit:
            until(
                lambda: any(not w.snapshot_pending for w in watermarks(self.kafka.bootstrap, self.db, "s")),
                "the snapshot",
            )
            with Writer(self.database, self.db) as writer:
                writer.more()
                yield writer
                writer.more()
            self.beats += 1
            self.database.execute(f"REPLACE INTO {self.db}.b VALUES (1, 'beat {self.beats}')")
            until(
                lambda: any(e.after == {"id": 1, "v": f"beat {self.beats}"} for e in self.events("b")),
                f"captured; {unit.output()[-3000:]}",
            )
            assert unit.stop() == 0, unit.output()

    def change(self, *statements: str) -> None:
        """Execute statements in order, and one again that was a deadlock's victim, as both tools do
        (pt-online-schema-change's `--tries`)."""
        with self.database.connect(self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                until(functools.partial(_was_executed, cursor, statement), f"no deadlock: {statement}")

    def judge(self, columns: list[str], *expected: ColumnChanges | None) -> None:
        """The topic's rows are the source's; `expected`: the column changes that its definitions record, in
        order."""
        found = self.events("t")
        fold = Fold()
        for event in found:
            fold.take(event)
        assert [event.columns for event in fold.accepted if event.ddl is not None] == list(expected)
        assert [event.stop for event in found if event.stop is not None] == []
        assert self.notified() == set()
        assert topic_rows(fold, self.db, "t", columns) == source_rows(
            self.database, self.db, "t", ", ".join(columns)
        )
        assert fold.definitions[self.db, "t"].column_names == tuple(columns)
        assert {event.op for event in found if event.source.snapshot == "true"} <= {"r", "m"}
        assert len({event.after["id"] for event in found if event.op == "r" and event.after}) == len(
            [event for event in found if event.op == "r"]
        ), "no row is copied twice"


def _was_executed(cursor: Any, statement: str) -> bool:
    try:
        cursor.execute(statement)
    except pymysql.err.OperationalError as error:
        if error.args[0] not in _LOCKED:
            raise
        return False
    return True


class Fold(Replay):
    """Alters the rows that it has as definitions say, as a target does."""

    def apply(self, event: EventEnvelope) -> None:
        name = (event.source.db, event.source.table)
        if event.columns is not None and event.definition is not None:
            reported, rows = event.columns, list(self.tables.get(name, {}).values())
            for row in rows:
                kept = {
                    reported.renamed.get(key, key): row[key] for key in row if key not in reported.dropped
                }
                kept |= {added: given(event.definition.get_column(added)) for added in reported.added}
                row.clear()
                row.update(kept)
        super().apply(event)


def given(column: Column) -> Any:
    """What the server gave to rows that were there."""
    if column.default is None and column.nullable:
        return None
    text = column.default or ""
    return int(text or 0) if column.type.kind is Kind.INT else text


def ghost(tools: Tools, alter: str, *swap: str) -> None:
    """gh-ost 1.1's statements, but for its heartbeats; it plays the table's changes into the shadow, which is
    done at once here."""
    columns = "id, v, version"
    tools.change(
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_gho`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        "CREATE /* gh-ost */ TABLE `_t_ghc` (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64) NOT NULL)",  # noqa: E501
        "CREATE /* gh-ost */ TABLE `_t_gho` LIKE `t`", f"ALTER /* gh-ost */ TABLE `_t_gho` {alter}",
        f"INSERT /* gh-ost */ IGNORE INTO `_t_gho` ({columns}) SELECT {columns} FROM t",
        "CREATE /* gh-ost */ TABLE `_t_del` (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB "
        "COMMENT='ghost-cut-over-sentry'",
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        *swap,
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_ghc`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
    )  # fmt: skip


ATOMIC = ("rename /* gh-ost */ table `t` to `_t_del`, `_t_gho` to `t`",)
TWO_STEPS = ("alter /* gh-ost */ table `t` rename `_t_del`", "alter /* gh-ost */ table `_t_gho` rename `t`")


def percona(tools: Tools, alter: str) -> None:
    """pt-online-schema-change 3's statements."""
    db, names = tools.db, "id, v, version"
    (shown,) = tools.database.execute(f"SHOW CREATE TABLE {db}.t")
    created = shown[1].replace("CREATE TABLE `t`", f"CREATE TABLE `{db}`.`_t_new`", 1)
    new = "NEW.id, NEW.v, NEW.version"
    put = f"REPLACE INTO `{db}`.`_t_new` ({names}) VALUES ({new})"
    away = f"DELETE IGNORE FROM `{db}`.`_t_new` WHERE `_t_new`.id <=> OLD.id"
    tools.change(
        created, f"ALTER TABLE `{db}`.`_t_new` {alter}",
        f"CREATE TRIGGER pt_osc_del AFTER DELETE ON t FOR EACH ROW {away}",
        f"CREATE TRIGGER pt_osc_upd AFTER UPDATE ON t FOR EACH ROW BEGIN {away} AND "
        f"!(OLD.id <=> NEW.id); {put}; END",
        f"CREATE TRIGGER pt_osc_ins AFTER INSERT ON t FOR EACH ROW {put}",
        f"INSERT LOW_PRIORITY IGNORE INTO `_t_new` ({names}) SELECT {names} FROM t LOCK IN SHARE MODE",
        f"ANALYZE TABLE `{db}`.`_t_new` /* pt-online-schema-change */",
        f"RENAME TABLE `{db}`.`t` TO `{db}`.`_t_old`, `{db}`.`_t_new` TO `{db}`.`t`",
        f"DROP TABLE IF EXISTS `{db}`.`_t_old`",
        *(f"DROP TRIGGER IF EXISTS pt_osc_{kind}" for kind in ("del", "upd", "ins")),
    )  # fmt: skip


@pytest.fixture
def tools(capturing: Capturing) -> Tools:
    return Tools(capturing)
