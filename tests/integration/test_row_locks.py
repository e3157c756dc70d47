"""Another session keeps a row of the target locked: log and status name it, with the rights of the documented
user, and the rows are equal once it has ended its transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer.attempt.drivers import lock_watch
from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.reports import Report
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from schemas.problems import decode_problem
from tests.kits.apply import FakeSource
from tests.kits.attempts import Real, RealUnit, route_of, rows_of
from tests.kits.documented_user import PASSWORD, documented_target_user
from tests.kits.targets import Target
from tests.kits.targets import target as target
from tests.kits.waiting import until
from tests.kits.whole_run import KINDS, whole_run

pytestmark = pytest.mark.timeout(1200)


@contextmanager
def row_held(server: Any, database: str, kind: str) -> Iterator[tuple[int, Any]]:
    """Another session has changed row 1 of acct and does nothing more; yields its number and connection."""
    connection = server.connect(database, autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()" if kind == "postgres" else "SELECT CONNECTION_ID()")
            [(number,)] = cursor.fetchall()
            cursor.execute("UPDATE acct SET note = 'a secret' WHERE id = 1")
        yield int(number), connection
    finally:
        connection.close()


class Waiting:
    """A unit whose only row another session keeps locked while the unit changes it."""

    def __init__(self, target: Target, user: str, short: int) -> None:
        self.target, self.reports = target, list[Report]()
        self.real = Real(target, target.config(user=user, password=PASSWORD))
        self.real.locks = LockWatch(self.reports.append)
        self.source = FakeSource()
        self.unit = RealUnit(self.real, self.source, route_of(self.real), small_batch=short)
        self.unit.write([self.source.put(self.source.row(1, None, 1))])
        assert self.unit.apply().state == "ok"

    def change_row(self) -> tuple[int, str]:
        """Return the number of the session, and what was reported while the unit waited for it."""
        with (
            row_held(self.target.service, self.target.database, self.target.kind) as (number, holder),
            ThreadPoolExecutor(1) as pool,
        ):
            self.unit.write([self.source.put(self.source.row(1, None, 2))])
            applying = pool.submit(self.unit.apply, len(self.unit.topic) - 1)
            until(lambda: self.reports, "the report of the wait")
            assert not applying.done()
            holder.rollback()
            assert applying.result(120).state == "ok"
        until(lambda: self.reports[-1].message == "", "the report of the end")
        assert {(each.state, each.topic, each.epoch) for each in self.reports} == {
            ("waiting", self.unit.unit.topic, self.unit.epoch)
        }
        assert self.unit.rows() == rows_of(self.source)
        return number, decode_problem(self.reports[0].message).what


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_watch, "LOOK_AFTER_S", 0.3)
    monkeypatch.setattr(lock_watch, "TICK_S", 0.1)


@pytest.mark.parametrize("short", [0, 500], ids=["lanes", "one transaction"])
def test_the_session_with_the_row_lock_is_named_with_documented_rights(
    target: Target, soon: None, short: int
) -> None:
    with documented_target_user(target, f"{target.database}_u") as user:
        waiting = Waiting(target, user, short)
        with closing(waiting.real):
            number, seen = waiting.change_row()
    assert re.search(rf"waits for a row lock held by connection {number} \({target.service.user}\b", seen), (
        seen
    )
    assert "secret" not in seen
    if target.kind == "postgres":
        assert f'GRANT pg_read_all_stats TO "{user}"' in seen
    else:
        assert re.search(r"for \d+ s\b", seen.partition("connection")[2])
    if target.kind == "mysql":
        assert "UPDATE acct)" in seen


def test_what_the_rights_do_not_show_is_reported_with_the_grant(target: Target, soon: None) -> None:
    with documented_target_user(target, f"{target.database}_u") as user:
        account = target.quoted(user) + ("" if target.kind == "postgres" else "@'%'")
        grant = {
            "postgres": "pg_read_all_stats",
            "mysql": "SELECT ON performance_schema.*",
            "mariadb": "PROCESS ON *.*",
        }[target.kind]
        if target.kind != "postgres":
            target.sql(f"REVOKE {grant} FROM {account}")
        waiting = Waiting(target, user, 500)
        with closing(waiting.real):
            _, seen = waiting.change_row()
            assert f"GRANT {grant} TO " in seen
            target.sql(f"GRANT {grant} TO {account}")
            waiting.real.cache.close()  # rights of a role are those of later sessions
            waiting.reports.clear()
            number, seen = waiting.change_row()
    assert re.search(rf"held by connection {number} \([^)]*for \d+ s", seen), seen
    assert "GRANT" not in seen
    assert target.kind == "mariadb" or "UPDATE acct)" in seen  # MariaDB shows only statements that run


def test_status_names_the_session_while_the_unit_waits(
    kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> None:
    routes = {"m": f"{unique}.{{table}}", "g": "public.{table}"}
    pipelines = {
        name: {"sources": ["b"], "target": name, "routes": [{"from": f"{unique}.*", "to": to}]}
        for name, to in routes.items()
    }
    targets = {"m": mysql, "g": postgres}
    with whole_run(tmp_path, unique, kafka, {"b": mariadb}, targets, pipelines) as run:
        run.change(
            "b",
            "CREATE TABLE acct (id INT PRIMARY KEY, note VARCHAR(20))",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "INSERT INTO acct VALUES (1, 'a')",
        )
        run.run.start()
        run.arrives("SELECT note FROM acct", [("a",)])
        for name, server in targets.items():
            unit = run.unit(name, "b", "acct")
            assert unit is not None
            assert (unit["state"], unit["reason"]) == ("current", None)
            with row_held(server, unique, KINDS[type(server)]) as (number, holder):
                run.change(
                    "b", f"UPDATE acct SET note = '{name}'", "INSERT INTO other SELECT COUNT(*) FROM other"
                )
                found = run.run.until(lambda name=name: waiting_unit(run, name), "the reason in `status`")
                assert f"held by connection {number} (" in found["reason"]
                assert found["state"] == "behind"
                assert found["remedy"].startswith("let that session commit or roll back")
                assert run.invoke("status").exit_code == 0, "the unit goes on by itself"
                log = run.run.log.read_text()
                assert "unit waits for a row lock" in log
                assert f"connection {number} (" in log
                holder.rollback()
            run.arrives("SELECT note FROM acct", [(name,)], [name])
            run.run.until(
                lambda name=name: (run.unit(name, "b", "acct") or {}).get("reason", "") is None,
                "a status without the reason",
            )
        run.arrives("SELECT COUNT(*) FROM other", [(2,)])


def waiting_unit(run: Any, pipeline: str) -> dict[str, Any] | None:
    """Return the unit of acct in `status` once it has a reason."""
    unit: dict[str, Any] | None = run.unit(pipeline, "b", "acct")
    return unit if unit and unit["reason"] else None
