"""A whole `rowlock run` from Oracle's stand (a) into PostgreSQL and MySQL, under load and kills.

Two writers change rows of their own all the time, in transactions that overlap, so that the log's numbers do
not follow its commits. The judges: a witness for each target that sees no row go back, the topic (no version
falls, no row of the log is in two events), an empty log, and the full comparison of rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deploy.embedded.services import Kafka, MySQL, PostgreSQL
from tests.kits.apply import ROOT
from tests.kits.capture import events, replay
from tests.kits.running import KEYS, OWNERS, Load, Run, Witness, running, target_config, write_config
from tests.kits.running import kill_workers as kill_workers_of
from tests.kits.waiting import until
from tests.stands.oracle_driver import installed
from tests.stands.oracle_source import OWNER, OracleStand

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # two more Sparks
COLUMNS = "id, version, owner, amount, seen"
TABLE = {
    "id": ("NUMBER(12)", "numeric(12)"), "version": ("NUMBER(18)", "numeric(18)"),
    "owner": ("VARCHAR2(40)", "varchar(40)"), "amount": ("NUMBER(12,2)", "numeric(12,2)"),
    "seen": ("DATE", "timestamp(0)"),
}  # fmt: skip
WRITERS = 2


class Schema:
    """The stand's schema as tests.kits.running reaches a database."""

    def __init__(self, postgres: PostgreSQL) -> None:
        self.host, self.port, self.user = postgres.host, postgres.port, postgres.user
        self._postgres = postgres

    def connect(self, database: str) -> psycopg.Connection[Any]:
        return self._postgres.connect(database, options=f'-c search_path="{OWNER}",public')


class Writer(Load):
    """A writer of every second row and unique value."""

    def __init__(self, server: Schema, database: str, part: int) -> None:
        super().__init__(server, database, seed=part + 1)
        self._keys, self._owners = range(part, KEYS, WRITERS), [*OWNERS[part::WRITERS], None]

    def _change(self, cursor: Any) -> None:
        draw, key, other = (
            self._random.random(),
            self._random.choice(self._keys),
            self._random.choice(self._keys),
        )
        self.version += 1
        if draw < 0.25:
            owner = self._random.choice(self._owners)
            cursor.execute(
                "UPDATE acct SET owner = NULL, version = %s WHERE owner = %s", (self.version, owner)
            )
            self.version += 1
            cursor.execute("DELETE FROM acct WHERE id = %s", (key,))
            cursor.execute("INSERT INTO acct VALUES (%s, %s, %s, 1.25, now())", (key, self.version, owner))
        elif draw < 0.4:
            cursor.execute("DELETE FROM acct WHERE id = %s", (key,))
        elif draw < 0.5:
            cursor.execute(
                "UPDATE acct SET id = %s, version = %s WHERE id = %s AND NOT EXISTS "
                "(SELECT 1 FROM acct WHERE id = %s)",
                (other, self.version, key, other),
            )
        else:
            cursor.execute(
                "INSERT INTO acct VALUES (%s, %s, NULL, 0, now()) ON CONFLICT (id) DO UPDATE SET amount = "
                "acct.amount + 0.01, version = %s", (key, self.version, self.version),
            )  # fmt: skip


def rows(server: Any, database: str) -> list[tuple[Any, ...]]:
    """Return all rows in key order; nothing where the table is not there yet."""
    with contextlib.closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM acct ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


def source_database(unique: str) -> str:
    return f"{unique}_core"


@pytest.fixture
def stand(postgres: PostgreSQL, unique: str) -> Iterator[OracleStand]:
    name = source_database(unique)
    postgres.create_database(name)
    stand = OracleStand(lambda **options: postgres.connect(name, **options))
    yield stand
    stand.close()
    postgres.drop_database(name)


class Judge:
    """The source, its targets, and whether they are equal."""

    def __init__(self, source: tuple[Schema, str], targets: list[tuple[Any, str]], run: Run) -> None:
        self.source, self.targets, self.run = source, targets, run

    def applied(self) -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = []
        for target in self.targets:
            try:
                found.append(rows(*target))
            except Exception:  # noqa: BLE001 - not there yet
                found.append([])
        return found

    def equal(self) -> bool:
        expected = rows(*self.source)
        return all(found == expected for found in self.applied())

    def goes_on(self, writers: list[Writer]) -> None:
        """Await that everybody writes on, and that it reaches each target."""
        counts = [writer.count for writer in writers]
        until(lambda: all(w.count > n + 100 for w, n in zip(writers, counts, strict=True)), "load")
        before = self.applied()
        self.run.until(
            lambda: all(a != b for a, b in zip(self.applied(), before, strict=True)), "it goes on", 240
        )


def kill_between_acknowledgement_and_delete(run: Run, stand: OracleStand) -> None:
    with stand.deletes_held("acct") as waits:
        run.until(waits, "capture wants to delete")
        run.kill_processes("producer.main")


def kill_capture(run: Run, _stand: OracleStand) -> None:
    run.kill_processes("producer.main")


def kill_workers(run: Run, _stand: OracleStand) -> None:
    kill_workers_of(run)


def kill_appliers(run: Run, _stand: OracleStand) -> None:
    run.kill_processes("consumer.main")


def kill_run(run: Run, _stand: OracleStand) -> None:
    run.kill_and_restart()


FAULTS: tuple[Callable[[Run, OracleStand], None], ...] = (
    kill_between_acknowledgement_and_delete, kill_workers, kill_capture, kill_appliers,
    kill_between_acknowledgement_and_delete, kill_run,
)  # fmt: skip


def the_command_line(run: Run, stand: OracleStand) -> None:
    """verify reads the source's rows; a row that capture never saw is a difference, until a copy of just that
    row."""
    same = run.call("verify")
    assert same.returncode == 0, same.stdout + same.stderr
    with stand.own.transaction():
        stand.do(f'ALTER TABLE "{OWNER}".acct DISABLE TRIGGER mlog')
        stand.do(f"INSERT INTO \"{OWNER}\".acct VALUES (5000, 1, 'unseen', 1, now())")
        stand.do(f'ALTER TABLE "{OWNER}".acct ENABLE TRIGGER mlog')
    other = run.call("verify", "--output", "json")
    assert other.returncode == 1, other.stderr
    found = [json.loads(line)["differences"] for line in other.stdout.splitlines()]
    assert [[(each["kind"], each["key"]) for each in pair] for pair in found] == [[("missing", ["5000"])]] * 2
    copied = run.call("copy", f"{OWNER}.acct", "--where", "id = 5000", "--wait")
    assert copied.returncode == 0, copied.stderr
    run.until(lambda: run.call("verify").returncode == 0, "the copy is applied", 120)


def caught_up(run: Run, stand: OracleStand, judge: Judge) -> None:
    """Nothing runs: rows wait in the log, which check says; a run until it has caught up brings them."""
    stand.do(f'UPDATE "{OWNER}".acct SET version = version + 1')
    waiting = stand.logged("acct")
    notified = json.loads(run.call("check", "--output", "json").stdout)
    assert [each["backlog_rows"] for each in notified["headroom"] if each["place"] == "source core"] == [
        waiting
    ]
    done = run.call("run", "--until-caught-up")
    assert done.returncode == 0, done.stderr[-3000:]
    assert judge.equal()


def test_oracle_into_postgres_and_mysql_under_load_and_kills(
    stand: OracleStand, postgres: PostgreSQL, pg_db: str, mysql: MySQL, mysql_db: str, kafka: Kafka,
    unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    packages = str(installed(tmp_path / "packages"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((packages, str(ROOT))))
    stand.create("acct", TABLE, unique=["owner"])
    for key in range(0, KEYS, 2):  # rows for the snapshot
        stand.do(f'INSERT INTO "{OWNER}".acct VALUES (%s, 0, %s, 7.5, now())', (key, f"first{key}"))
    here = {
        "type": "oracle",
        "host": postgres.host,
        "port": postgres.port,
        "user": postgres.user,
        "password": "p",
    }
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        sources={"core": {**here, "database": source_database(unique), "tables": [f"{OWNER}.*"],
         "snapshot": "initial"}},
        targets={
            "pg": target_config(postgres, "postgres", pg_db),
            "my": target_config(mysql, "mysql", mysql_db),
        },
        pipelines={
            f"to-{name}": {"sources": ["core"], "target": name,
            "routes": [{"from": f"{OWNER}.*", "to": f"{schema}.{{table}}"}]}
            for name, schema in (("pg", "public"), ("my", mysql_db))
        },
    )  # fmt: skip
    schema = Schema(postgres)
    database = source_database(unique)
    targets: list[tuple[Any, str]] = [(postgres, pg_db), (mysql, mysql_db)]
    with running(config, tmp_path) as run:
        judge = Judge((schema, database), targets, run)
        run.until(judge.equal, "the snapshot is applied", 300)
        witnesses = [Witness(*target) for target in targets]
        writers = [Writer(schema, database, part) for part in range(WRITERS)]
        for thread in (*witnesses, *writers):
            thread.start()
        try:
            for fault in FAULTS:
                judge.goes_on(writers)
                fault(run, stand)
            judge.goes_on(writers)
        finally:
            for writer in writers:
                writer.finish()
        run.until(judge.equal, "the targets equal the source", 300)
        for witness in witnesses:
            witness.finish()
        assert [witness.regressions for witness in witnesses] == [[], []]
        assert min(witness.reads for witness in witnesses) > 20
        run.until(lambda: not stand.logged("acct"), "what Kafka has is deleted")
        the_command_line(run, stand)
        assert run.stop() == 0
    caught_up(run, stand, judge)
    topic = events(kafka.bootstrap, f"{unique}.core.{OWNER}.acct")  # no version falls
    logged = Counter(row for event in replay(topic).accepted if event.log for row in event.log.rows)
    assert [row for row, times in logged.items() if times > 1] == []
    assert [event.stop for event in topic if event.stop is not None] == []
