"""What becomes of captured tables that are dropped, made again, renamed and swapped:
tools/docs/table_lives.py, on real servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from schemas.wire.event import EventEnvelope
from tests.capturing import ACCOUNT, Capturing
from tests.kits.capture import Replay, running, source_rows, topic_rows, watermarks
from tests.kits.waiting import until
from tools.docs.table_lives import LIVES


class Life(NamedTuple):
    """`what`: the row of the page. `stopped`: cause of the stop that is there in the end, of each table;
    `copied`, `equal`: tables."""

    what: str
    statements: tuple[str, ...]
    stopped: Mapping[str, str] = {}
    copied: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()
    servers: tuple[str, ...] = ("MariaDB", "MySQL")


FORM = "(id INT PRIMARY KEY, v VARCHAR(20))"
PARTED = (
    "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN "
    "(50))"
)
LIVES_OF_TABLES: tuple[Life, ...] = (
    Life("`DROP TABLE t`", ("DROP TABLE t",), {"t": "dropped"}),
    Life("`DROP TABLE t`; `CREATE",
     ("DROP TABLE t", f"CREATE TABLE t {FORM}", "INSERT INTO t VALUES (7, 'new')"), {}, ("t",), ("t",)),
    Life("`DROP TABLE t`; `CREATE",
     ("DROP TABLE t", "CREATE TABLE t LIKE u", "INSERT INTO t VALUES (8, 'like')"), {}, ("t",), ("t", "u")),
    Life("`DROP TABLE t`; `CREATE", ("DROP TABLE t", "CREATE TABLE t (PRIMARY KEY (id)) SELECT * FROM y"), {},
     ("t",), ("t",)),
    Life("`CREATE TABLE n … SELECT`",
     ("CREATE TABLE n (PRIMARY KEY (id)) SELECT * FROM t", "UPDATE n SET v = 'z' WHERE id = 1"), {}, (),
      ("n", "t")),
    Life("`CREATE TABLE n … SELECT`",
     ("CREATE TABLE n LIKE t", "INSERT INTO n SELECT * FROM y", "DELETE FROM n WHERE id = 3"), {}, (),
      ("n", "t")),
    Life("`RENAME TABLE t TO n`", ("RENAME TABLE t TO n", "INSERT INTO n VALUES (9, 'n')"), {"t": "dropped"},
     (), ("n",)),
    Life("RENAME TABLE t TO x", ("RENAME TABLE t TO x9",), {"t": "dropped"}),
    Life("`RENAME TABLE x TO n`", ("RENAME TABLE y TO n", "DELETE FROM n WHERE id = 3"), {}, (), ("n",)),
    Life("`RENAME TABLE t TO x`; `RENAME",
     ("RENAME TABLE t TO x9", "RENAME TABLE y TO t", "DELETE FROM t WHERE id = 3"), {}, ("t",), ("t",)),
    Life("RENAME TABLE t TO old, x", ("RENAME TABLE t TO x9, y TO t", "DELETE FROM t WHERE id = 3"),
     {"t": "rows-replaced"}),
    Life(
        "RENAME TABLE t TO tmp", ("RENAME TABLE t TO x9, u TO t, x9 TO u", "DELETE FROM t"),
        {"t": "rows-replaced", "u": "rows-replaced"}
    ),
    Life("`ALTER TABLE t CONVERT PARTITION",
     (PARTED, "ALTER TABLE t CONVERT PARTITION p0 TO TABLE n", "INSERT INTO n VALUES (0, 'n')"), {}, (),
     ("n",), ("MariaDB",)),
    Life("`DROP TABLE u`; `ALTER",
     ("DROP TABLE u", PARTED, "ALTER TABLE t CONVERT PARTITION p0 TO TABLE u",
      "INSERT INTO u VALUES (0, 'u')"),
     {}, ("u",), ("u",), ("MariaDB",)),
    Life("`ALTER TABLE t CONVERT TABLE",
     (PARTED, "UPDATE u SET id = id + 100",
      "ALTER TABLE t CONVERT TABLE u TO PARTITION p9 VALUES LESS THAN (900)"),
     {"t": "rows-replaced", "u": "dropped"}, (), (), ("MariaDB",)),
)  # fmt: skip


class Fold(Replay):
    """Begins anew where a copy begins."""

    def apply(self, event: EventEnvelope) -> None:
        if event.copy is not None and event.definition is not None:
            self.tables.pop((event.source.db, event.source.table), None)
        super().apply(event)


class Bench:
    """Each life with tables of its own: `t3` is the `t` of the life number 3."""

    def __init__(self, capturing: Capturing) -> None:
        self.capturing = capturing
        capturing.options = {"snapshot": "initial"}
        self.patterns = ("b", "t*", "u*", "n*")
        server = type(capturing.database).__name__
        self.lives = [life for life in LIVES_OF_TABLES if server in life.servers]

    def begin(self) -> None:
        for number in range(len(self.lives)):
            for place, name in enumerate("tuy"):
                self.capturing.change(
                    ACCOUNT.format(db=self.capturing.db, name=f"{name}{number}"),
                    f"INSERT INTO {name}{number} VALUES (1, 'x'), ({2 + place}, '{name}'), (3{place}, 'y')",
                )

    def sql(self, number: int) -> list[str]:
        names = {name: f"{name}{number}" for name in "tuny"} | {"x9": f"x9_{number}"}
        return [
            " ".join(_renamed(word, names) for word in sql.split(" "))
            for sql in self.lives[number].statements
        ]

    def captured(self, lives: int | None = None) -> bool:
        """Whether snapshots and copies are done of the first `lives`, and none is still asked for."""
        last = watermarks(self.capturing.kafka.bootstrap, self.capturing.db, "s")[-1]
        expected = {
            f"{self.capturing.db}.{name}{number}"
            for number, life in enumerate(self.lives[:lives])
            for name in life.copied
        }
        done = {name for name, state in last.copies.items() if state.phase == "done"}
        return expected <= done and not last.snapshot_pending

    def judge(self, number: int) -> None:
        life, db = self.lives[number], self.capturing.db
        for name, cause in life.stopped.items():
            self.capturing.stopped(f"{name}{number}", cause)
        for name in life.equal:
            table, fold = f"{name}{number}", Fold()
            found = self.capturing.events(table)
            for event in found:
                fold.take(event)
            rows = source_rows(self.capturing.database, db, table, "id, v")
            assert topic_rows(fold, db, table, ["id", "v"]) == rows, life
            copies = {event.copy.id for event in found if event.copy is not None}
            assert len(copies) == (name in life.copied), life
        notified = {name for name in self.capturing.notified() if name.endswith(tuple("0123456789"))}
        assert {f"{db}.{name}{number}" for name in life.stopped} <= notified
        assert not {f"{db}.{name}{number}" for name in life.equal} & notified


def _renamed(word: str, names: dict[str, str]) -> str:
    bare = word.strip(",")
    return names.get(bare, bare) + word[len(bare) :]


@pytest.fixture
def bench(capturing: Capturing) -> Bench:
    return Bench(capturing)


def test_lives(bench: Bench) -> None:
    capturing = bench.capturing
    bench.begin()
    capturing.run(patterns=bench.patterns)
    with running(capturing.config(*bench.patterns), "s") as unit:
        for number in range(len(bench.lives)):
            capturing.change(*bench.sql(number))
            if bench.lives[number].copied:  # more than three at once wait for a person
                until(lambda n=number: bench.captured(n + 1), f"a copy; {unit.output()[-3000:]}")  # type: ignore[misc]
        capturing.database.execute(f"REPLACE INTO {capturing.db}.b VALUES (1, 'the last')")
        until(lambda: "the last" in capturing.values("b"), f"captured; {unit.output()[-3000:]}")
        until(bench.captured, f"copies and snapshots; {unit.output()[-3000:]}")
        assert unit.stop() == 0, unit.output()
    for number in range(len(bench.lives)):
        bench.judge(number)
    capturing.run(patterns=bench.patterns)
    for number in range(len(bench.lives)):
        bench.judge(number)


def test_every_row_of_the_page_is_carried_out() -> None:
    """A swap of a tool is in test_schema_tools.py, DROP DATABASE below."""
    for row in LIVES[:-1]:
        assert any(row.what.startswith(life.what) for life in LIVES_OF_TABLES), row
    for life in LIVES_OF_TABLES:
        assert any(row.what.startswith(life.what) for row in LIVES), life


def test_a_database_that_is_dropped(capturing: Capturing) -> None:
    other = f"{capturing.db}_2"
    capturing.database.create_database(other)
    capturing.database.execute(f"CREATE TABLE {other}.t {FORM}")
    capturing.database.execute(f"INSERT INTO {other}.t VALUES (1, 'x')")
    config = capturing.config
    capturing.config = lambda *_: _with(config(), f"{other}.*")  # type: ignore[method-assign]
    topic_events = _events_of(capturing, other)
    capturing.run()
    capturing.run(f"DROP DATABASE {other}")
    assert [event.stop.cause for event in topic_events() if event.stop is not None][:1] == ["dropped"]
    assert f"{other}.t" in capturing.notified()


def _with(config: Any, pattern: str) -> Any:
    import yaml

    text = yaml.safe_load(config.read_text())
    text["sources"]["s"]["tables"].append(pattern)
    config.write_text(yaml.safe_dump(text))
    return config


def _events_of(capturing: Capturing, db: str) -> Any:
    from tests.kits.capture import events

    return lambda: events(capturing.kafka.bootstrap, f"{capturing.db}.s.{db}.t")
