"""What `check` does for each table does not grow with the number of tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import TransientError
from producer.checks import preflight
from producer.checks.preflight import MEASURED_TABLES, check_source
from producer.sources.protocols import SourceCheckResult
from rowlock.inspect import check
from rowlock.inspect.checks.flows import TableFlow, list_flows
from schemas.config.model import load_config
from schemas.findings import Finding
from tests.kits.apply import account_table
from tests.kits.running import write_config

MANY = 300
CONFIG: dict[str, Any] = {
    "kafka": {"bootstrap": "h:1"},
    "sources": {
        "b": {"type": "mariadb", "host": "h", "port": 1, "user": "u", "password": "p", "tables": ["*.*"]}
    },
    "targets": {
        "hq": {"type": "postgres", "host": "h", "port": 1, "user": "u", "password": "p", "database": "d"}
    },
    "pipelines": {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": "*.*", "to": "public.{db}_{table}"}]}
    },
}


def test_each_place_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads = [0]
    place: Any = TableFlow.place

    def count_read(flow: TableFlow) -> tuple[str, str, str]:
        reads[0] += 1
        found: tuple[str, str, str] = place.fget(flow)
        return found

    def refuse(*_: object, **__: object) -> Any:
        raise TransientError("nobody answers")

    monkeypatch.setattr(TableFlow, "place", property(count_read))
    monkeypatch.setattr(check, "open_target", refuse)
    config = load_config(write_config(tmp_path, **CONFIG))
    tables = {"b": [replace(account_table(), db=f"m{number}") for number in range(MANY)]}
    flows = list_flows(config, tables)
    assert len(flows) == MANY
    assert len(list(check._yield_target_findings(config, flows, tables, []))) == 1
    assert reads[0] <= 10 * MANY


@pytest.mark.parametrize(("more", "warnings"), [(0, 0), (1, 1)])
def test_more_tables_than_were_measured_are_a_warning(
    more: int, warnings: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [(f"m{number}", "acct") for number in range(MEASURED_TABLES + more)]
    source: Any = SimpleNamespace(check_source=lambda: SourceCheckResult([], names), close=lambda: None)
    monkeypatch.setattr(preflight, "load_source_database", lambda *_: source)
    monkeypatch.setattr(preflight, "_on_kafka", lambda *_, **__: [])
    found = check_source(load_config(write_config(tmp_path, **CONFIG)), "b")
    assert [(each.level, each.place) for each in found] == [("warning", "source b")] * warnings
    assert all("2,001 tables are selected" in each.message for each in found)


@pytest.mark.parametrize(("asks_kafka", "options"), [(False, {}), (True, {"message.max.bytes": "1"})])
def test_all_of_a_source_is_reported_if_kafka_cannot_be_asked(
    asks_kafka: bool, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacks = Finding("error", "source b", "user u lacks BINLOG MONITOR", "GRANT BINLOG MONITOR ON …")
    server = SourceCheckResult([lacks], [("m", "acct")])
    source: Any = SimpleNamespace(check_source=lambda: server, close=lambda: None)
    monkeypatch.setattr(preflight, "load_source_database", lambda *_: source)
    monkeypatch.setattr(preflight, "_on_kafka", lambda *_, **__: pytest.fail("Kafka was asked"))
    kafka = {"bootstrap": "h:1", "options": options}
    config = load_config(write_config(tmp_path, **{**CONFIG, "kafka": kafka}))
    found = check_source(config, "b", asks_kafka=asks_kafka)
    assert [each.place for each in found] == [*(["kafka.options"] if options else []), "source b"]
