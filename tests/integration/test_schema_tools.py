"""gh-ost and pt-online-schema-change alter a captured table while it is written: the topic goes on, without a stop and without a copy."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import MariaDB, MySQL
from schemas.table.model import Column, Kind
from schemas.wire.event import ColumnChanges, Event
from tests.capture_kit import Replay, position, running, source_rows, topic_rows, watermarks
from tests.capturing import Capturing
from tests.waiting import until

FORM = "(id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), n INT NOT NULL DEFAULT 0, version INT NOT NULL, KEY by_v (v))"
ALTER = "ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN n, MODIFY id BIGINT AUTO_INCREMENT"
WANTED = ColumnChanges(added=("c",), dropped=("n",), modified=("id",))
COLUMNS = ["id", "v", "version", "c"]


_AGAIN = (1213, 1205, 1146)  # deadlock, lock wait timeout, and a table that is away for a moment


class Writer:
    """Changes the table's rows, one transaction a change, each under a higher version, until told to stop."""

    def __init__(self, database: Any, db: str) -> None:
        self._database, self._db = database, db
        self._stop, self.done, self.trouble = threading.Event(), 0, []  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert not self.trouble, self.trouble

    def more(self, changes: int = 30) -> None:
        """Return once so many more changes are made."""
        wanted = self.done + changes
        until(lambda: self.done >= wanted or self.trouble, f"{changes} more changes")

    def _run(self) -> None:
        rng = random.Random(5)
        with self._database.connect(self._db) as connection, connection.cursor() as cursor:
            while not self._stop.is_set() and not self.trouble:
                self.done += 1
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
                return f"UPDATE t SET v = 'u{self.done}', version = {self.done + 1000} WHERE id = {key}"
        values = f"({key}, 'v{self.done}', {self.done + 1000})"
        return f"INSERT INTO t (id, v, version) VALUES {values} ON DUPLICATE KEY UPDATE v = VALUES(v), version = VALUES(version)"


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
                f"captured; {unit.says()[-3000:]}",
            )
            assert unit.stop() == 0, unit.says()

    def judge(self, columns: list[str], *wanted: ColumnChanges | None) -> None:
        """The topic's rows are the source's; `wanted`: what its definitions say of columns, one behind the other."""
        found = self.events("t")
        fold = Fold()
        for event in found:
            fold.take(event)
        assert [event.columns for event in fold.accepted if event.ddl is not None] == list(wanted)
        assert [event.stop for event in found if event.stop is not None] == []
        assert self.told() == set()
        assert topic_rows(fold, self.db, "t", columns) == source_rows(
            self.database, self.db, "t", ", ".join(columns)
        )
        assert fold.definitions[self.db, "t"].column_names == tuple(columns)
        assert {event.op for event in found if event.source.snapshot == "true"} <= {"r", "m"}
        assert len({event.after["id"] for event in found if event.op == "r" and event.after}) == len(
            [event for event in found if event.op == "r"]
        ), "no row is copied twice"


class Fold(Replay):
    """Alters the rows that it has as definitions say, as a target does."""

    def _apply(self, event: Event) -> None:
        name = (event.source.db, event.source.table)
        if event.columns is not None and event.definition is not None:
            said, rows = event.columns, list(self.tables.get(name, {}).values())
            for row in rows:
                kept = {said.renamed.get(key, key): row[key] for key in row if key not in said.dropped}
                kept |= {added: given(event.definition.column(added)) for added in said.added}
                row.clear()
                row.update(kept)
        super()._apply(event)


def given(column: Column) -> Any:
    """What the server gave to rows that were there."""
    if column.default is None and column.nullable:
        return None
    text = column.default or ""
    return int(text or 0) if column.type.kind is Kind.INT else text


@pytest.fixture
def tools(capturing: Capturing) -> Tools:
    return Tools(capturing)


def ghost(tools: Tools, alter: str, *swap: str) -> None:
    """gh-ost 1.1's statements, but for its heartbeats; it plays the table's changes into the shadow, which is done at once here."""
    columns = "id, v, version"
    tools.change(
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_gho`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        "CREATE /* gh-ost */ TABLE `_t_ghc` (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64) NOT NULL)",
        "CREATE /* gh-ost */ TABLE `_t_gho` LIKE `t`", f"ALTER /* gh-ost */ TABLE `_t_gho` {alter}",
        f"INSERT /* gh-ost */ IGNORE INTO `_t_gho` ({columns}) SELECT {columns} FROM t",
        "CREATE /* gh-ost */ TABLE `_t_del` (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB COMMENT='ghost-cut-over-sentry'",
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
        f"CREATE TRIGGER pt_osc_upd AFTER UPDATE ON t FOR EACH ROW BEGIN {away} AND !(OLD.id <=> NEW.id); {put}; END",
        f"CREATE TRIGGER pt_osc_ins AFTER INSERT ON t FOR EACH ROW {put}",
        f"INSERT LOW_PRIORITY IGNORE INTO `_t_new` ({names}) SELECT {names} FROM t LOCK IN SHARE MODE",
        f"ANALYZE TABLE `{db}`.`_t_new` /* pt-online-schema-change */",
        f"RENAME TABLE `{db}`.`t` TO `{db}`.`_t_old`, `{db}`.`_t_new` TO `{db}`.`t`",
        f"DROP TABLE IF EXISTS `{db}`.`_t_old`",
        *(f"DROP TRIGGER IF EXISTS pt_osc_{kind}" for kind in ("del", "upd", "ins")),
    )  # fmt: skip


def test_percona_s_statements_while_rows_change(tools: Tools) -> None:
    with tools.live():
        percona(tools, ALTER)
    tools.judge(["id", "v", "version", "c"], WANTED)
    for name in ("_t_new", "_t_old"):
        assert tools.events(name) == []


@pytest.mark.parametrize("swap", [ATOMIC, TWO_STEPS])
def test_gh_ost_s_statements(tools: Tools, swap: tuple[str, ...]) -> None:
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run("UPDATE t SET v = 'y', version = 3 WHERE id < 5")
    with running(tools.config(), "s") as unit:
        before = tools._gen()
        until(lambda: tools._gen() > before, "a start")
        ghost(tools, ALTER, *swap)
        tools.change(
            "INSERT INTO t (v, version) VALUES ('z', 1)", "UPDATE t SET c = 9, version = 4 WHERE id < 3"
        )
        assert unit.stop() == 0
    tools.run("DELETE FROM t WHERE id = 7")
    tools.judge(["id", "v", "version", "c"], WANTED)
    for name in ("_t_gho", "_t_ghc", "_t_del"):
        assert tools.events(name) == []
    assert position(tools.kafka.bootstrap, tools.db, "s").shadows == ()


def test_a_tool_that_is_done_before_capture_reads_of_it(tools: Tools) -> None:
    """Capture ends between the shadow's statements and the swap: what it read of them stands in its position."""
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run("CREATE TABLE _t_gho LIKE t", f"ALTER TABLE _t_gho {ALTER}")
    (shadow,) = position(tools.kafka.bootstrap, tools.db, "s").shadows
    assert (shadow.name, shadow.table, len(shadow.statements)) == ("_t_gho", "t", 1)
    tools.change(
        "INSERT IGNORE INTO _t_gho (id, v, version) SELECT id, v, version FROM t", *ATOMIC,
        "UPDATE t SET v = 'late', version = 3 WHERE id = 1",
    )  # fmt: skip
    tools.run()
    tools.judge(["id", "v", "version", "c"], WANTED)
    assert position(tools.kafka.bootstrap, tools.db, "s").shadows == ()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD UNIQUE (v)", *ATOMIC),
        ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho CHANGE v w VARCHAR(20)", *ATOMIC),
        ("CREATE TABLE _t_gho LIKE t", "RENAME TABLE t TO kept, _t_gho TO t"),
        # a person's way of deleting many rows
        ("CREATE TABLE _t_new LIKE t", "INSERT INTO _t_new SELECT * FROM t WHERE id > 9", "RENAME TABLE t TO _t_old, _t_new TO t"),
    ],
)  # fmt: skip
def test_what_may_have_lost_rows_or_values_stops_the_table(tools: Tools, statements: tuple[str, ...]) -> None:
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run(*statements, "DELETE FROM t")
    tools.stopped("t", "rows-replaced")
    assert not any(event.op == "d" for event in tools.events("t"))


def _packages() -> Path:
    """pt-online-schema-change from Debian's packages, unpacked; skips where they cannot be had."""
    folder = Path.home() / ".cache" / "rowlock" / "percona-toolkit"
    if not (folder / "usr" / "bin" / "pt-online-schema-change").exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            pytest.skip("pt-online-schema-change is taken from Debian's packages, and this is no Debian")
        folder.mkdir(parents=True, exist_ok=True)
        wanted = ["percona-toolkit", "libdbi-perl", "libdbd-mysql-perl", "libmariadb3"]
        got = subprocess.run(
            ["apt-get", "download", *wanted], cwd=folder, capture_output=True, text=True, check=False
        )
        if got.returncode:
            pytest.skip(f"Debian's packages of pt-online-schema-change cannot be had: {got.stderr[-300:]}")
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    return folder


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def _percona_itself(tools: Tools) -> None:
    root = _packages()
    (perl,) = (root / "usr" / "lib").glob("*/perl5/*")
    dsn = f"h={tools.database.host},P={tools.database.port},u={tools.database.user},D={tools.db},t=t"
    _run(
        [
            "perl", str(root / "usr" / "bin" / "pt-online-schema-change"), "--execute", "--alter", ALTER, "--chunk-size", "10",
            "--recursion-method", "none", "--charset", "utf8mb4", "--no-version-check", dsn,
        ],
        PERL5LIB=f"{perl}:{root / 'usr' / 'share' / 'perl5'}", LD_LIBRARY_PATH=str(perl.parent.parent),
    )  # fmt: skip


def test_pt_online_schema_change_itself(request: pytest.FixtureRequest, tools: Tools) -> None:
    if not isinstance(tools.database, MariaDB):
        pytest.skip("pt-online-schema-change 3.2 does not know this version of MySQL")
    with tools.live():
        _percona_itself(tools)
    tools.judge(["id", "v", "version", "c"], WANTED)


def _ghost_itself(tools: Tools, *options: str) -> None:
    """gh-ost as it is installed, or as `go build ./go/cmd/gh-ost` makes it from its repository, which holds all that it needs."""
    binary = os.environ.get("ROWLOCK_GH_OST") or shutil.which("gh-ost")
    if binary is None:
        pytest.skip("gh-ost is not in PATH, and ROWLOCK_GH_OST does not name it")
    _run(
        [
            binary, "--execute", "--allow-on-master", "--host", tools.database.host, "--port", str(tools.database.port),
            "--user", tools.database.user, "--database", tools.db, "--table", "t", "--alter", ALTER, "--chunk-size", "10",
            "--initially-drop-ghost-table", "--initially-drop-old-table", "--assume-rbr", *options,
        ]
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--cut-over=two-step",)])
def test_gh_ost_itself(tools: Tools, options: tuple[str, ...]) -> None:
    if not isinstance(tools.database, MySQL):
        pytest.skip("gh-ost is for MySQL")
    with tools.live():
        _ghost_itself(tools, *options)
    tools.judge(["id", "v", "version", "c"], WANTED)
