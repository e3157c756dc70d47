"""Retention on real servers, as the documented user: `check` reports how long all is kept, `status` raises
the alarm in time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.embedded.services import Kafka, PostgreSQL
from rowlock.cli import main
from rowlock.inspect import status
from tests.kits.capture import running, size, source
from tests.kits.documented_user import PASSWORD, documented_user
from tests.kits.running import target_config, write_config
from tests.kits.waiting import until

DAY_S = 86_400
KEPT_DAYS = {"log": 4, "topic": 7}


@pytest.fixture
def captured(
    kafka: Kafka, database: Any, db: str, postgres: PostgreSQL, pg_db: str, tmp_path: Path
) -> Iterator[Path]:
    """The configuration of a system that has captured one row, and has never applied it; nothing runs any
    more."""
    (before,) = database.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")
    database.execute(f"SET GLOBAL binlog_expire_logs_seconds = {KEPT_DAYS['log'] * DAY_S}")
    database.execute(f"CREATE TABLE {db}.acct (id INT PRIMARY KEY)")
    database.execute(f"INSERT INTO {db}.acct VALUES (1)")
    with documented_user(database, db, db) as user:
        settings = {**source(database, [f"{db}.*"]), "user": user, "password": PASSWORD}
        config = write_config(
            tmp_path,
            kafka={"bootstrap": kafka.bootstrap, "prefix": db},
            sources={"s": settings},
            targets={"hq": target_config(postgres, "postgres", pg_db)},
            pipelines={
                "p": {"sources": ["s"], "target": "hq", "routes": [{"from": "*.*", "to": "public.{table}"}]}
            },
        )
        topic = f"{db}.s.{db}.acct"
        with running(config, "s") as unit:
            until(lambda: size(kafka.bootstrap, topic) > 1, f"the row's event; {unit.output()[-2000:]}")
            assert unit.stop() == 0, unit.output()
        yield config
    database.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before[0]}")


def asked(command: str, config: Path) -> dict[str, Any]:
    result = CliRunner().invoke(main, [command, "-c", str(config), "--output", "json"])
    assert result.exit_code in (0, 1), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_what_is_still_needed_and_how_long_it_is_kept(
    captured: Path, database: Any, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, topic = asked("check", captured)["headroom"]
    assert (log["place"], log["kept_seconds"]) == ("source s", KEPT_DAYS["log"] * DAY_S)
    assert (topic["place"], topic["kept_seconds"]) == (f"topic {db}.s.{db}.acct", KEPT_DAYS["topic"] * DAY_S)
    assert log["backlog_bytes"] > 0
    assert 0 < topic["backlog_seconds"] < DAY_S
    assert topic["headroom_seconds"] == topic["kept_seconds"] - topic["backlog_seconds"]

    def after(days: float) -> set[str]:
        """Return what is an alarm when that has gone by and nothing was captured or applied."""
        monkeypatch.setattr(status, "read_clock_ms", lambda: int((time.time() + days * DAY_S) * 1000))
        found = asked("status", captured)
        assert found["units"][0]["lag_events"] > 0
        left = found["sources"][0]["headroom_seconds"], found["units"][0]["headroom_seconds"]
        expected = [max(0.0, KEPT_DAYS[each] - days) for each in ("log", "topic")]
        assert [each / DAY_S for each in left] == pytest.approx(expected, abs=0.1)
        return {each.split()[0] for each in found["problems"] if "may be deleted in" in each}

    assert after(1.5) == set()
    assert after(2.5) == {"source"}
    assert after(3.6) == {"source", "topic"}
    assert after(9) == {"source", "topic"}
    monkeypatch.undo()
    database.execute("SET GLOBAL binlog_expire_logs_seconds = 7200")
    reported = [each["what"] for each in asked("check", captured)["findings"] if each["place"] == "source s"]
    assert any(
        "its log is kept for 2.0 hours only (binlog_expire_logs_seconds)" in each for each in reported
    ), reported
