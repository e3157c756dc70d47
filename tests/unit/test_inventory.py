"""Which units there shall be, by configuration and topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator.core.schedulers import UnitKind
from rowlock.coordinator.inventory import IDS_EVERY_S, InventoryReader, build_unit_uid, split_unit_name
from rowlock.coordinator.run import build_server_config
from rowlock.coordinator.units import list_apply_units, list_debezium_sources, list_sources_to_capture
from rowlock.credentials import load_security
from rowlock.errors import CommandError
from rowlock.inspect.checks.coordination_check import yield_coordination_findings
from rowlock.processes.run import build_run_commands
from schemas.config.model import Config, CoordinationTls, load_config
from schemas.table.names import TableName
from schemas.units import build_apply_unit_name, build_capture_unit_name
from tests.kits.topic import usual_tables

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
  b2: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
  unread: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: x, database: d}
pipelines:
  p: {sources: [b1, b2], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
  q: {sources: [b1], target: hq, routes: [{from: bank.acct, to: "q.{table}"}]}
coordination: {lease_s: 20, interval_s: 2, balance_every_s: 30, apart: {b1: x}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return load_config(file, {})


class Kafka:
    """Topics with ids. `asked`: how often for ids."""

    def __init__(self, *names: str) -> None:
        self.ids = {name: f"id-{name}" for name in names}
        self.asked = 0

    def list_topics(self) -> list[str]:
        return list(self.ids)

    def find_topic_tables(self, sources: Sequence[str], topics: Sequence[str]) -> dict[str, TableName]:
        return usual_tables(topics)

    def fetch_topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        self.asked += 1
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


def test_what_a_start_leaves_out_has_no_apply_units(config: Config) -> None:
    """Its coordinator is told of sources and pipelines that nobody else would keep from running."""
    kafka = Kafka("rowlock.b1.bank.acct", "rowlock.b2.bank.cust")
    everything = {unit.unit for unit in InventoryReader(config, kafka)().units}
    left = {unit.unit for unit in InventoryReader(config, kafka, without=["source/b2"])().units}
    assert everything - left == {build_apply_unit_name("p", "rowlock.b2.bank.cust")}
    left = {unit.unit for unit in InventoryReader(config, kafka, without=["pipeline/p"])().units}
    assert left == {
        build_capture_unit_name("b1"),
        build_capture_unit_name("b2"),
        build_apply_unit_name("q", "rowlock.b1.bank.acct"),
    }
    left = {unit.unit for unit in InventoryReader(config, kafka, without=["pipeline/p/b1/bank.acct"])().units}
    assert everything - left == {build_apply_unit_name("p", "rowlock.b1.bank.acct")}
    notified = build_run_commands(config, without=["pipeline/p"])["coordinator"]
    assert list(notified[-2:]) == ["--without", "pipeline/p"]


@pytest.mark.parametrize(
    ("changed", "begins"), [("pipeline/p", True), ("source/b2", True), ("pipeline/q", False)]
)
def test_a_left_out_table_begins_once_its_pipeline_was_judged_again(
    config: Config, changed: str, begins: bool
) -> None:
    """A reload judges a pipeline if it or one of its sources has changed."""
    kafka = Kafka("rowlock.b1.bank.acct")
    reader = InventoryReader(config, kafka, without=["pipeline/p/b1/bank.acct"])
    reader.use_config(config, [changed])
    units = {unit.unit for unit in reader().units}
    assert (build_apply_unit_name("p", "rowlock.b1.bank.acct") in units) is begins


@pytest.mark.parametrize(
    ("patterns", "units"),
    [
        (["bank.*"], ["acct", "cust"]),
        (["bank.*", "!bank.acct"], ["cust"]),
        (["bank.cust"], ["cust"]),
        (["BANK.*", "!bank.cust"], ["acct"]),
        (["bank.*", "!bank.ACCT"], ["acct", "cust"]),
    ],
    ids=["selected", "excluded", "not named", "another case", "excluded in another case"],
)
def test_a_table_that_is_no_longer_selected_has_no_unit(
    tmp_path: Path, patterns: list[str], units: list[str]
) -> None:
    """Its topic stays. A server may distinguish names by case or not; where that matters, the unit stays."""
    (file := tmp_path / "c.yaml").write_text(CONFIG.replace("[bank.*]", json.dumps(patterns), 1))
    topics = [f"rowlock.b1.bank.{table}" for table in ("acct", "cust")]
    found = list_apply_units(load_config(file, {}), topics, usual_tables(topics))
    assert [each.topic.rpartition(".")[2] for each in found if each.pipeline == "p"] == units


def test_a_topic_whose_name_cannot_be_judged_keeps_no_other_from_being_placed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(routes: object, source: str, db: str, table: str) -> object:
        if table == "bad":
            raise RecursionError("nobody foresaw this")
        return object()

    monkeypatch.setattr("consumer.tables.discovery.resolve_route", resolve)
    topics = [f"rowlock.b1.bank.{table}" for table in ("acct", "bad", "cust")]
    found = {(unit.pipeline, unit.topic) for unit in list_apply_units(config, topics, usual_tables(topics))}
    assert found == {(pipeline, topic) for pipeline in "pq" for topic in (topics[0], topics[2])}


def test_units_of_sources_and_topics(config: Config) -> None:
    kafka = Kafka(
        "rowlock.b1.bank.acct", "rowlock.b2.bank.cust", "rowlock.b1.other.t", "rowlock.b1.watermark"
    )
    found = InventoryReader(config, kafka)()
    assert {
        spec.unit: (spec.kind, spec.source, spec.pipeline, spec.uid, spec.apart) for spec in found.units
    } == {
        "capture/b1": (UnitKind.CAPTURE, "b1", None, "", "x"),
        "capture/b2": (UnitKind.CAPTURE, "b2", None, "", None),
        "apply/p/rowlock.b1.bank.acct": (UnitKind.APPLY, "b1", "p", "hq/id-rowlock.b1.bank.acct", "x"),
        "apply/q/rowlock.b1.bank.acct": (UnitKind.APPLY, "b1", "q", "hq/id-rowlock.b1.bank.acct", "x"),
        "apply/p/rowlock.b2.bank.cust": (UnitKind.APPLY, "b2", "p", "hq/id-rowlock.b2.bank.cust", None),
    }
    assert found.sources == {"p": ("b1", "b2"), "q": ("b1",)}


def test_ids_are_asked_for_when_names_change_and_now_and_then(config: Config) -> None:
    now, kafka = [0.0], Kafka("rowlock.b1.bank.acct")
    read = InventoryReader(config, kafka, lambda: now[0])
    first = read()
    assert read() == first
    assert kafka.asked == 1
    kafka.ids["rowlock.b2.bank.acct"] = "new"
    assert read() != first
    assert kafka.asked == 2
    kafka.ids["rowlock.b2.bank.acct"] = "made again"
    now[0] += IDS_EVERY_S
    assert any(spec.uid == "hq/made again" for spec in read().units)


def test_a_topic_that_goes_while_it_is_asked_for_is_no_unit(config: Config) -> None:
    class Vanishing(Kafka):
        def fetch_topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
            return {}

    found = InventoryReader(config, Vanishing("rowlock.b1.bank.acct"))()
    assert [spec.unit for spec in found.units] == ["capture/b1", "capture/b2"]


def test_a_unit_says_what_it_is() -> None:
    topic = "rowlock.b1.bank.a_x2f_b"
    assert split_unit_name(build_apply_unit_name("p", topic), build_unit_uid("hq", "a/b")) == (
        "p",
        topic,
        "hq",
        "a/b",
    )
    assert split_unit_name(build_capture_unit_name("b1"), "") is None


def test_the_coordinator_is_told_what_the_configuration_says(config: Config) -> None:
    notified = build_server_config(config.coordination, "c1")
    assert (notified.name, notified.listen, notified.rest, notified.security) == (
        "c1",
        "127.0.0.1:7701",
        "127.0.0.1:7780",
        None,
    )
    assert (notified.leader.lease, notified.leader.interval, notified.leader.balance_every) == (20, 2, 30)


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(
        CommandError, match=r"cannot use .*ca\.pem: No such file.*: correct coordination\.tls"
    ):
        load_security(CoordinationTls(ca=missing, cert=missing, key=missing))


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("{}", []),
        ("{listen: 'a:1', tls: {ca: ca, cert: cert, key: key}}", []),
        (
            "{tls: {ca: ca, cert: cert, key: missing}}",
            ["missing: No such file or directory → correct coordination.tls in the configuration"],
        ),
    ],
)
def test_check_says_what_is_open_or_missing(tmp_path: Path, section: str, found: list[str]) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("x")
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG[: CONFIG.index("coordination:")] + f"coordination: {section}\n")
    findings = [
        f"{each.message} → {each.remedy}"
        for each in yield_coordination_findings(load_config(file, {}))
        if each.level == "error"
    ]
    assert len(findings) == len(found)
    assert all(seen.endswith(reported) for seen, reported in zip(findings, found, strict=True)), findings


def test_a_source_of_debezium_s_has_no_capture_unit(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(CONFIG.replace("b1: {type: mariadb,", "b1: {type: mariadb, events: debezium,"))
    config = load_config(file, {})
    found = InventoryReader(config, Kafka("rowlock.b1.bank.acct", "rowlock.b1.other.t"))()
    assert [spec.unit for spec in found.units] == [
        "capture/b2",
        "apply/p/rowlock.b1.bank.acct",
        "apply/q/rowlock.b1.bank.acct",
    ]
    assert found.sources == {"p": ("b1", "b2"), "q": ("b1",)}, (
        "the pipelines' checkpoints count it all the same"
    )
    assert list_debezium_sources(config) == ["b1"]


def test_where_all_that_is_read_is_debezium_s_nothing_is_captured(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    text = CONFIG.replace("{type: mariadb,", "{type: mariadb, events: debezium,", 2)
    file.write_text(text)
    assert list_sources_to_capture(load_config(file, {})) == []
