"""The coordinator's fence at a real target: nobody with a lower epoch can write, whoever comes later can."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit
from consumer.targets.dialect import open_session
from consumer.targets.session import SqlSession
from deploy.embedded.services import PostgreSQL
from rowlock.coordinator.fences import UnitFencer
from rowlock.coordinator.inventory import build_unit_uid
from schemas.config.model import Config, load_config
from schemas.units import build_apply_unit_name

pytestmark = pytest.mark.integration

TOPIC = "rowlock.b1.bank.acct"
UNIT, UID = build_apply_unit_name("p", TOPIC), build_unit_uid("hq", "topic-id")
EARLIER, EPOCH, LATER = 1_790_000_000_000, 1_790_000_000_001, 1_790_000_000_002


@pytest.fixture
def config(postgres: PostgreSQL, pg_db: str, tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(f"""\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}}
targets:
  hq: {{type: postgres, host: {postgres.host}, port: {postgres.port}, user: {postgres.user}, password: "", database: {pg_db}}}
pipelines:
  p: {{sources: [b1], target: hq, lanes: 3}}
""")  # noqa: E501
    return load_config(file, {})


def take(session: SqlSession, assigned: int) -> int:
    return session.take_over(ApplyUnit("p", TOPIC), "topic-id", "layout", 3, assigned=assigned)[0]


def test_a_unit_that_ran(config: Config) -> None:
    with contextlib.closing(open_session(config.targets["hq"], name="test")) as session:
        session.ensure_bookkeeping()
        mine = take(session, EARLIER)
        session.stop_unit(ApplyUnit("p", TOPIC), mine, "waits for a person")
        UnitFencer(config)(UNIT, UID, EPOCH)
        with pytest.raises(FencedError):
            session.begin_attempt(ApplyUnit("p", TOPIC), mine)
        with pytest.raises(FencedError):
            take(session, EARLIER)
        _, state = session.read_progress(ApplyUnit("p", TOPIC))
        assert state is not None
        assert state.stopped == "waits for a person"
        later = take(session, LATER)
        UnitFencer(config)(UNIT, UID, EPOCH)  # late, again: changes nothing
        session.begin_attempt(ApplyUnit("p", TOPIC), later)


def test_a_unit_that_never_ran_is_fenced_as_well(config: Config) -> None:
    UnitFencer(config)(UNIT, UID, EPOCH)
    with contextlib.closing(open_session(config.targets["hq"], name="test")) as session:
        with pytest.raises(FencedError):
            take(session, EARLIER)
        lanes, _ = session.read_progress(ApplyUnit("p", TOPIC))
        assert [(row.lane, row.offset, row.topic_id) for row in lanes] == [
            (n, -1, "topic-id") for n in range(3)
        ]


def test_what_needs_no_target(config: Config) -> None:
    fence = UnitFencer(config)
    fence("capture/b1", "", EPOCH)
    fence(UNIT, build_unit_uid("gone", "topic-id"), EPOCH)
