"""A stopped table of a topic that Debezium writes, healed by Debezium's blocking snapshot, the whole way.

`rowlock run`, a broker, PostgreSQL and MariaDB take part. rowlock cannot copy such a table itself, because
only Debezium writes its topic. Debezium itself is not here: its records are written from the rows as the
server has them (tests.kits.debezium), in the form that a real one was seen to write (tests/golden/debezium).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.embedded.services import MariaDB, PostgreSQL
from schemas.io.mysql_catalog import read_table
from tests.kits.command_line import invoke
from tests.kits.debezium import Values
from tests.kits.debezium_run import DebeziumRun, create_topics
from tests.kits.debezium_run import system as system
from tests.kits.running import Run, Witness, running, target_config
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

ROWS = 3000
Server = PostgreSQL | MariaDB


@dataclass
class Healing:
    """`to`: the target."""

    system: DebeziumRun
    to: Server

    def rows(self, name: str) -> set[tuple[Any, ...]]:
        found = self.to.execute(f"SELECT id, version FROM {name}", database=self.system.db)
        return set(map(tuple, found))

    def at_source(self, name: str) -> set[tuple[Any, ...]]:
        return {(row["id"], row["version"]) for row in self.system.rows(name).values()}

    def stops(self) -> dict[str, str]:
        """Return table → why its unit is stopped."""
        status = json.loads(invoke(self.system.config, "status", "--output", "json").stdout)
        found = {unit["topic"].rpartition(".")[2]: unit["stopped"] for unit in status["units"]}
        return {name: why for name, why in found.items() if why}

    def read_again(self, name: str, part: Callable[[Values], bool] = lambda _: True) -> None:
        """Have the connector read a table as its blocking snapshot does, with the table's definition of now.
        `part`: the signal's conditions."""
        with contextlib.closing(self.system.connect()) as conn:
            self.system.connectors[name].table = read_table(conn, self.system.db, name)
        self.system.connectors[name].snapshot(*filter(part, self.system.rows(name).values()))
        self.system.send()


@pytest.fixture(params=["postgres", "mariadb"])
def healing(
    request: pytest.FixtureRequest, system: DebeziumRun, postgres: PostgreSQL, mariadb2: MariaDB
) -> Iterator[Healing]:
    kind = request.param
    server: Server = postgres if kind == "postgres" else mariadb2
    if kind == "mariadb":
        server.create_database(system.db)

    def change(raw: dict[str, Any]) -> None:
        if kind == "mariadb":
            raw["targets"]["hq"] = target_config(server, kind, system.db)
        raw["pipelines"]["p"]["routes"][0] = {
            "from": f"{system.db}.*",
            "to": f"{_schema(kind, system)}.{{table}}",
        }

    system.configure(change)
    yield Healing(system, server)
    if kind == "mariadb":
        server.drop_database(system.db)


def _schema(kind: str, system: DebeziumRun) -> str:
    return "public" if kind == "postgres" else system.db


def test_stopped_tables_go_on_with_their_snapshots(healing: Healing) -> None:
    """One was altered, one has a value that cannot be decoded with certainty; its snapshot is cut in two by
    a kill of everything."""
    system = healing.system
    columns = "id INT PRIMARY KEY, version INT NOT NULL, owner INT, amount INT"
    system.table("altered", f"CREATE TABLE altered ({columns})", schemas=False)
    system.table(
        "doubtful",
        f"CREATE TABLE doubtful ({columns}, code VARCHAR(9) UNIQUE, raw VARBINARY(9))",
        schemas=False,
    )
    create_topics(system, "altered", "doubtful")
    system.change("altered", "INSERT INTO altered SELECT seq, 1, seq, 0 FROM seq_1_to_9")
    system.change("doubtful", f"INSERT INTO doubtful SELECT seq, 1, seq, 0, seq, 'ü' FROM seq_1_to_{ROWS}")
    system.send()
    witness = Witness(healing.to, system.db, "doubtful")
    with running(system.config, system.config.parent) as run:
        run.until(lambda: system.current() == {"altered", "doubtful"}, "what was there, applied")
        _break(system)
        stops = run.until(lambda: len(found := healing.stops()) == 2 and found, "both tables stopped")
        for name, why in stops.items():
            signal = {"data-collections": [f"{system.db}.{name}"], "type": "blocking"}
            asked = json.dumps({"type": "execute-snapshot", "data": signal}, separators=(",", ":"))
            assert f"put {asked} into the signal topic of Debezium's connector" in why
        witness.start()
        healing.read_again("altered")
        run.until(lambda: healing.rows("altered") == healing.at_source("altered"), "the altered table")
        _in_vain(healing)
        _cut_in_two(healing, run)
        witness.finish()
        assert witness.reads > 10
        assert not witness.regressions
        system.change("altered", "UPDATE altered SET version = version + 1, note = 'x' WHERE id = 5")
        system.change("doubtful", "INSERT INTO doubtful VALUES (9999, 9, 9, 0, 'c', NULL)")
        system.send()
        run.until(
            lambda: not healing.stops() and system.current() == {"altered", "doubtful"},
            "what came then, applied",
        )
        assert run.stop() == 0
    assert system.verdicts() == {"altered": (9, True), "doubtful": (ROWS, True)}


def test_a_snapshot_of_a_part_deletes_nothing(healing: Healing) -> None:
    """Its signal had `additional-conditions`. The keys are text: the source finds them by its collation, and
    PostgreSQL distinguishes their case."""
    system = healing.system
    system.table(
        "acct", "CREATE TABLE acct (id VARCHAR(20) PRIMARY KEY, version INT NOT NULL)", schemas=False
    )
    create_topics(system, "acct")
    system.change("acct", "INSERT INTO acct SELECT CONCAT('Acct ', seq), 1 FROM seq_1_to_2000")
    system.send()
    with running(system.config, system.config.parent) as run:
        run.until(lambda: system.current() == {"acct"}, "what was there, applied")
        system.source.execute("ALTER TABLE acct ADD COLUMN note VARCHAR(20)", database=system.db)
        with contextlib.closing(system.connect()) as conn:
            system.connectors["acct"].table = read_table(conn, system.db, "acct")
        system.change("acct", "DELETE FROM acct WHERE id = 'Acct 7'")
        system.change("acct", "DELETE FROM acct WHERE id = 'Acct 8'")
        system.source.execute(
            "UPDATE acct SET id = 'ACCT 9', version = 2 WHERE id = 'Acct 9'", database=system.db
        )
        system.change("acct", "UPDATE acct SET version = 2 WHERE id = 'Acct 10'")
        system.send()
        run.until(lambda: "acct" in healing.stops(), "the altered table stopped")
        healing.read_again("acct", lambda each: str(each["id"]) < "Acct 5")
        reported = "covers only a part of the table"
        why = run.until(
            lambda: reported in (why := healing.stops().get("acct", "")) and why, "its part refused"
        )
        assert f"it lacks rows that {system.db}.acct has" in why
        assert "nothing was deleted" in why
        assert len({str(key).casefold() for key, _ in healing.rows("acct")}) == 2000, "all that was there"
        system.change("acct", "INSERT INTO acct VALUES ('Acct 8', 5, 'again')")
        healing.read_again("acct")
        run.until(lambda: healing.rows("acct") == healing.at_source("acct"), "the whole snapshot")
        run.until(lambda: not healing.stops() and system.current() == {"acct"}, "nothing is stopped")
        assert run.stop() == 0
    assert system.verdicts() == {"acct": (1999, True)}


def _break(system: DebeziumRun) -> None:
    """What is written from here on is not applied: rows that are changed, inserted and deleted, and a unique
    value that is handed on."""
    system.source.execute(
        "ALTER TABLE altered ADD COLUMN note VARCHAR(20) DEFAULT 'none'", database=system.db
    )
    with contextlib.closing(system.connect()) as conn:
        system.connectors["altered"].table = read_table(conn, system.db, "altered")
    system.change("altered", "UPDATE altered SET version = 2, note = 'new' WHERE id <= 3")
    system.change("altered", "DELETE FROM altered WHERE id = 7")
    system.change("altered", "INSERT INTO altered VALUES (10, 1, 7, 0, NULL)")
    system.change("doubtful", "UPDATE doubtful SET version = 2, raw = X'6DE79F' WHERE id = 1")  # base64: beef
    system.change("doubtful", "DELETE FROM doubtful WHERE id IN (3, 2000)")
    system.change("doubtful", "UPDATE doubtful SET version = 2, code = '3' WHERE id = 2")
    system.change("doubtful", f"INSERT INTO doubtful VALUES ({ROWS + 1}, 1, 7, 0, 'new', NULL)")
    system.send()


def _in_vain(healing: Healing) -> None:
    """As long as the value is there its snapshot brings the same again."""
    healing.read_again("doubtful")
    begun = len(healing.system.connectors["doubtful"].records) - len(healing.system.rows("doubtful"))
    until(
        lambda: f"offset {begun}:" in healing.stops().get("doubtful", ""), "the unit stopped in the snapshot"
    )


def _cut_in_two(healing: Healing, run: Run) -> None:
    """The value is mended. A row that the source has deleted is locked in the target: the rows of the
    snapshot arrive, and the deleted row cannot be removed. Then everything is killed."""
    system = healing.system
    system.change("doubtful", "UPDATE doubtful SET version = 3, raw = 'clear' WHERE id = 1")
    with (
        contextlib.closing(healing.to.connect(system.db)) as holder,
        contextlib.closing(holder.cursor()) as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM doubtful WHERE id = 2000 FOR UPDATE")
        cursor.fetchall()
        healing.read_again("doubtful")
        run.until(lambda: (1, 3) in healing.rows("doubtful"), "rows of the snapshot")
        assert (2000, 1) in healing.rows("doubtful")
        run.close()
        cursor.execute("ROLLBACK")
    run.start()
    run.until(lambda: healing.rows("doubtful") == healing.at_source("doubtful"), "the snapshot's end")
