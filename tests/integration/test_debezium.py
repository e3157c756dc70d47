"""Topics that Debezium writes, the whole way: its records in Kafka, the command line, and the rows of source
and target.

Debezium itself is not here. Each change is made at a real MariaDB, and what its connector writes of it
(tests.kits.debezium) is written from the rows as the server then has them. The source's user may read tables
and nothing else.
"""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from msgspec import structs

from consumer.process.operations.copy_desk import UnitCopies
from consumer.process.unit_operations import UnitOperations
from consumer.slots.pipeline import PipelineSettings
from consumer.units.messages import PrepareTarget, TakeOver, TargetPrepared, UnitTakenOver
from consumer.units.unit import UnitRef
from rowlock.inspect.caught_up import CaughtUpGoal
from schemas.config.model import load_config
from tests.kits.command_line import invoke
from tests.kits.debezium_run import DebeziumRun, create_topics
from tests.kits.debezium_run import system as system
from tests.kits.running import HERE, running
from tests.kits.slots import apply_here
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

EVERYTHING = """CREATE TABLE everything (id BIGINT UNSIGNED PRIMARY KEY, code VARCHAR(20) UNIQUE,
  d DECIMAL(20,4), f FLOAT, x DOUBLE,
    t TEXT, vb VARBINARY(9), bl BLOB, day DATE, hours TIME(3), w0 DATETIME, w3 DATETIME(3), w6 DATETIME(6),
    ts TIMESTAMP(6) NULL, j JSON, e ENUM('a','b'), s SET('x','y'), b1 BIT(1), b9 BIT(9), y YEAR,
      small TINYINT)"""
FULL = """('{0}', '{1}', -12345.6789, 0.1, 1e300, 'ünï', 'x\\0y', '\\0', '1969-12-31', '-838:59:59.5', '2026-01-02 03:04:05',
    '0999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999', '2026-06-01 12:00:00.000001', '{{"a": [1, null]}}', 'b', 'x,y', 1, 257,
    2026, -128)"""  # noqa: E501


def full(key: int, code: str) -> str:
    return f"INSERT INTO everything VALUES {FULL.format(key, code)}"


def empty(key: int) -> str:
    return f"INSERT INTO everything (id) VALUES ({key})"


def test_debezium_s_topics_end_as_the_source(system: DebeziumRun) -> None:
    """Applied by the running system: what is there when it starts, and what comes then; then again without
    the source."""
    system.table("everything", EVERYTHING, schemas=True)
    system.table("plain", "CREATE TABLE plain (id INT PRIMARY KEY, v INT)", schemas=False)
    system.table("other", "CREATE TABLE other (id INT PRIMARY KEY)", schemas=False)
    create_topics(system, "everything", "plain", "other")
    begin(system)
    system.send()
    assert invoke(system.configure(), "check").exit_code == 0
    with running(system.config, system.config.parent) as run:
        run.until(lambda: system.current() == {"everything", "plain"}, "what was there, applied")
        assert system.verdicts() == {"everything": (3, True), "plain": (3, True)}
        go_on(system)
        system.send()
        run.until(lambda: system.current() == {"everything", "plain"}, "what came then, applied")
        copy_by_its_signal(system)
        assert run.stop() == 0
    assert system.verdicts() == {"everything": (5, True), "plain": (1, True)}

    debezium = system.connectors["everything"]
    system.change("everything", "DELETE FROM everything WHERE id IN (2, 3)")
    system.change("everything", "UPDATE everything SET x = -0.5 WHERE id = 5")
    debezium.again(9)
    system.send()
    system.configure(lambda raw: raw["sources"]["b1"].update(port=1))  # definitions are in the target
    caught_up = CaughtUpGoal(load_config(system.config))
    assert not caught_up()
    apply_by_hand(system, "everything")
    assert caught_up()
    status = json.loads(invoke(system.config, "status", "--output", "json").stdout)
    assert [source["state"] for source in status["sources"]] == ["external"]
    system.configure()
    assert system.verdicts() == {"everything": (3, True), "plain": (1, True)}
    with pytest.raises(psycopg.errors.UndefinedTable):
        system.target.execute("SELECT 1 FROM other", database=system.db)


def begin(system: DebeziumRun) -> None:
    for statement in (full(1, "a"), full(2, "b"), empty(3)):
        system.source.execute(statement, database=system.db)
    system.connectors["everything"].snapshot(*system.rows("everything").values())
    system.change("everything", full(4, "d"))
    system.change("everything", "DELETE FROM everything WHERE id = 2")
    system.change("plain", "INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3)")
    system.change("other", "INSERT INTO other VALUES (1)")


def go_on(system: DebeziumRun) -> None:
    """The connector begins again where it was a while ago; then keys and unique values move, and a table is
    emptied."""
    debezium = system.connectors["everything"]
    debezium.again(3)
    most = str(2**64 - 1)
    system.change("everything", f"UPDATE everything SET id = {most} WHERE id = 1", moved=(1, most))
    system.change("everything", "UPDATE everything SET code = NULL WHERE id = 4")
    system.change("everything", full(5, "d"))
    system.change("everything", empty(2))
    system.change("everything", "UPDATE everything SET d = 0.0001, w6 = NULL, b9 = 0, j = '[]' WHERE id = 5")
    debezium.again(4)
    plain = system.connectors["plain"]
    system.change("plain", "UPDATE plain SET v = v + 1")
    system.source.execute("TRUNCATE plain", database=system.db)
    plain.truncate()
    system.change("plain", "INSERT INTO plain VALUES (7, 7)")
    plain.again(1)


def copy_by_its_signal(system: DebeziumRun) -> None:
    """`rowlock copy` cannot copy a topic that Debezium writes, so it prints the signal to send to Debezium.

    The rows that Debezium reads then mend the target's. A row that the source does not have stays, as the
    page documents.
    """
    target = f"{system.db}.plain"
    system.target.execute("UPDATE plain SET v = -1 WHERE id = 7", database=system.db)
    system.target.execute("INSERT INTO plain (branch, id, v) VALUES ('b1', 99, 99)", database=system.db)
    asked = invoke(system.config, "copy", target)
    assert asked.exit_code == 2
    assert f'\'execute-snapshot\', \'{{"data-collections":["{target}"],"type":"blocking"}}\'' in asked.output
    assert "deletes nothing" in asked.output
    system.connectors["plain"].read_again(*system.rows("plain").values())
    system.send()
    rows = "SELECT id, v FROM plain ORDER BY id"
    until(
        lambda: system.target.execute(rows, database=system.db) == [(7, 7), (99, 99)],
        "the rows that were read again",
    )
    system.target.execute("DELETE FROM plain WHERE id = 99", database=system.db)


def apply_by_hand(system: DebeziumRun, table: str) -> None:
    """Take the unit over as an agent's process does, which applies what is missing."""
    pipeline = PipelineSettings.from_config(load_config(system.config), "p")
    desk = UnitCopies(pipeline, lambda *_: None, lambda *_: None)
    slots: Any = SimpleNamespace(is_held=lambda _topic: False, kill_holder=lambda _topic: None)
    hands = UnitOperations(pipeline, slots, lambda *_: None, desk, lambda _: None)
    unit = UnitRef(
        f"{system.db}.b1.{system.db}.{table}", "b1", time.time_ns() // 10**6 + 60_000
    )  # later than all of the run
    warmed = hands.prepare_target(PrepareTarget(unit))
    assert isinstance(warmed, TargetPrepared), warmed
    unit = structs.replace(unit, topic_id=warmed.topic_id, real=warmed.real)
    took = hands.take_over(TakeOver(unit, 0))
    hands.close()
    assert isinstance(took, UnitTakenOver), took
    assert sum(report.applied for report in apply_here(pipeline, unit, took)) == 3


def test_what_cannot_begin_says_why(system: DebeziumRun) -> None:
    ddl = "CREATE TABLE plain (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 2"
    system.table("plain", ddl, schemas=False)
    system.configure()
    found = invoke(system.config, "check")
    assert "topic.prefix" in found.stdout
    assert f"{system.db}.plain has partitions: Debezium's topics do not show" in found.stdout
    refused = HERE.call("run", "--until-caught-up", "-c", str(system.config))
    assert refused.returncode == 2
    assert f"Debezium has written no topic {system.db}.b1.<database>.<table>" in refused.stderr
    create_topics(system, "plain", partitions=3)
    refused = HERE.call("run", "--until-caught-up", "-c", str(system.config))
    assert refused.returncode == 2
    assert f"{system.db}.b1.{system.db}.plain has 3 partitions" in refused.stderr
    found = invoke(system.config, "check")
    assert (found.exit_code, "topic.creation.default.partitions=1" in found.stdout) == (1, True)
