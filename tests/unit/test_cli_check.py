"""`rowlock check` of routes and target tables, without servers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec import structs

from consumer.ordering.model import UnitState
from consumer.tables.router import TableRoute, build_desired_table, resolve_route
from consumer.tables.stored import StoredDefinition
from consumer.targets.checks.table_facts import TableFacts
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect import check
from rowlock.inspect.checks import debezium_check, kafka_check
from rowlock.inspect.checks.kafka_check import KafkaAnswer
from rowlock.inspect.scopes import FindingScope
from rowlock.views.source import SelectedTables
from schemas.config.model import load_config
from schemas.errors import ServerConnectError
from schemas.findings import Finding
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.table.names import EXACT
from tests.kits.apply import account_table

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{type: {type_}, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["*.*"]}}
targets:
  hq: {{type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}}
pipelines:
  p:
    sources: [b1]
    target: hq
    routes: [{{from: "{from_}", to: "public.{{table}}"}}]
    create_tables: {create}
    schema_changes: {policy}
"""


class Judge:
    """`check` of a source with the tables `at_source` and a target with the tables `at_target`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "c.yaml"
        self.at_source: list[Table] = [account_table()]
        self.at_target: list[Table] = []
        self.units: dict[str, StoredDefinition] = {}
        """Topic → definition of its unit. Kafka has these topics, unless `topics` names others."""
        for name in (
            "_yield_java_findings",
            "_list_source_findings",
            "yield_coordination_findings",
            "check_session",
        ):
            monkeypatch.setattr(check, name, lambda *_, **__: [])
        self.topics: list[str] | None = None
        monkeypatch.setattr(check, "ask_kafka", self._answer_for_kafka)
        self.missing: dict[str, list[Finding]] = {}
        """What `check` finds of tables that a source lacks."""
        monkeypatch.setattr(check, "map_missing_findings", lambda *_: self.missing)
        monkeypatch.setattr(check, "read_selected_tables", lambda *_: SelectedTables(self.at_source, {}))
        monkeypatch.setattr(check, "open_target", lambda *_, **__: self._session())

    def _answer_for_kafka(self, _: object) -> KafkaAnswer:
        return KafkaAnswer(tuple(self.units if self.topics is None else self.topics))

    def _session(self) -> Any:
        tables = {(table.db, table.name): table for table in self.at_target}
        return SimpleNamespace(
            read_table=lambda *name: tables.get(name),
            read_table_facts=lambda *_: TableFacts(),
            judge_new_table=lambda _: [],
            column_names=EXACT,
            table_names=EXACT,
            find_missing_rights=lambda *_, **__: [],
            list_unit_topics=lambda _: list(self.units),
            read_progress=lambda unit, **_: ([], UnitState(self.units[unit.topic].encode(), None, None)),
            close=lambda: None,
        )

    def __call__(
        self,
        *,
        from_: str = "bank.*",
        create: bool = True,
        type_: str = "mariadb",
        policy: str = "lenient",
    ) -> list[Finding]:
        text = CONFIG.format(from_=from_, create=str(create).lower(), type_=type_, policy=policy)
        self._file.write_text(text)
        return check.list_findings(load_config(self._file))


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    return Judge(tmp_path, monkeypatch)


def test_a_missing_table_is_refused_where_none_is_to_be_made(judge: Judge) -> None:
    assert judge(create=True) == []
    (finding,) = judge(create=False)
    assert (finding.level, finding.place) == ("error", "target table public.acct")
    assert finding.message == "does not exist in the target"
    assert "create_tables: true" in finding.remedy


def test_a_table_that_the_source_lacks_is_a_warning(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dropped = Finding("warning", "source b1, table bank.old", "bank.old was dropped", "create it again")
    judge.missing = {"b1": [dropped]}
    assert judge() == [dropped]
    (scoped,) = check.list_scoped_findings(load_config(tmp_path / "c.yaml"))
    assert (scoped.scope, scoped.name) == (FindingScope.TABLE, "b1")

    def fail(*_: object) -> None:
        raise KafkaUnreachableError("Kafka does not answer any more", "start the broker")

    monkeypatch.setattr(check, "map_missing_findings", fail)
    (unknown,) = judge()
    assert (unknown.level, unknown.message) == ("warning", "Kafka does not answer any more")


def test_a_table_that_is_there_need_not_be_made(judge: Judge) -> None:
    routed = resolve_route([TableRoute("bank.*", "public.{table}")], "b1", "bank", "acct")
    assert routed is not None
    judge.at_target = [build_desired_table(account_table(), routed)]
    assert judge(create=False) == []


def test_routes_that_take_no_table_are_refused(judge: Judge) -> None:
    (finding,) = judge(from_="bnak.*")
    assert finding.level == "error"
    assert "c.yaml:10" in finding.place
    assert finding.message == "pipeline p: no route takes any table of its sources"
    assert "`from`" in finding.remedy


def test_of_a_source_without_tables_its_routes_are_not_blamed(judge: Judge) -> None:
    judge.at_source = []
    (finding,) = judge(from_="bnak.*")
    assert (finding.level, finding.message) == ("warning", "no table matches *.* yet")
    assert "captured from then on" in finding.remedy


TOPIC = "rowlock.b1.bank.acct"


def in_target(source: Table) -> Table:
    """The table that rowlock creates for `source`."""
    routed = resolve_route([TableRoute("bank.*", "public.{table}")], "b1", "bank", "acct")
    assert routed is not None
    return build_desired_table(source, routed)


INT = ColumnType(kind=Kind.INT, bits=32)
TEXT = ColumnType(kind=Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")


def with_column(name: str, type_: ColumnType = INT) -> Table:
    """The account table with one more column."""
    table = account_table()
    return structs.replace(table, columns=(*table.columns, Column(name=name, type=type_)))


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_change_that_the_unit_has_not_read_yet_is_no_finding(
    judge: Judge, policy: str, renamed: bool
) -> None:
    """An ALTER at the source while rowlock is down: the log has it, and the target follows it."""
    before = account_table().with_renamed_columns({"note": "agent"}) if renamed else account_table()
    judge.at_source = [account_table() if renamed else with_column("agent")]
    judge.at_target = [in_target(before)]
    judge.units = {TOPIC: StoredDefinition(before)}
    assert judge(policy=policy) == []


@pytest.mark.parametrize(
    ("policy", "unit"),
    [
        ("lenient", None),
        ("lenient", (TOPIC, with_column("agent"))),
        ("lenient", ("rowlock.b2.bank.acct", account_table())),
        ("stop", (TOPIC, account_table())),
    ],
    ids=["no unit", "read already", "another source's unit", "not followed"],
)
def test_a_column_that_nothing_in_the_log_brings_is_an_error(
    judge: Judge, policy: str, unit: tuple[str, Table] | None
) -> None:
    judge.at_source = [with_column("agent")]
    judge.at_target = [in_target(account_table())]
    judge.units = {} if unit is None else {unit[0]: StoredDefinition(unit[1])}
    (finding,) = judge(policy=policy)
    assert (finding.level, finding.message) == ("error", "lacks the columns agent")
    assert "drop" not in finding.remedy


@pytest.mark.parametrize(("policy", "level"), [("lenient", ["warning"]), ("evolve", [])])
def test_a_change_that_the_target_cannot_follow_is_a_warning(
    judge: Judge, policy: str, level: list[str]
) -> None:
    judge.at_source = [with_column("v", TEXT)]
    judge.at_target = [in_target(with_column("v"))]
    judge.units = {TOPIC: StoredDefinition(with_column("v"))}
    found = judge(policy=policy)
    assert [each.level for each in found] == level
    assert all("no type holds the values of both" in each.message for each in found)


def test_a_column_under_another_name_in_the_target_is_not_missing(judge: Judge) -> None:
    judge.at_target = [in_target(account_table().with_renamed_columns({"note": "note_2"}))]
    judge.units = {TOPIC: StoredDefinition(account_table(), {"note": "note_2"})}
    assert judge() == []


def with_defaults() -> Table:
    """The account table with a column that may be NULL and has a default."""
    table = account_table()
    note = structs.replace(table.get_column("note"), default="-")
    return structs.replace(table, columns=(*table.columns[:-1], note))


class OfDebezium:
    """`check` of a source whose topics Debezium writes. `topics`: name → partitions; `compression`: of its
    server."""

    def __init__(self, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
        self._judge = judge
        self.topics = {"rowlock.b1.bank.acct": 1}
        self.compression: tuple[str, str] | None = None
        self.cascades: list[str] = []
        monkeypatch.setattr(debezium_check, "list_cascading_foreign_keys", lambda *_: self.cascades)
        monkeypatch.setattr(
            check, "_list_source_findings", lambda *_, **__: pytest.fail("capture does not read this source")
        )
        view = SimpleNamespace(count_partitions=lambda: self.topics, close=lambda: None)
        monkeypatch.setattr(debezium_check, "KafkaView", lambda _: view)
        self.policies: dict[str, str] = {}
        settings = SimpleNamespace(read_cleanup_policies=lambda _topics: self.policies)
        monkeypatch.setattr(debezium_check, "TopicSettings", lambda _: settings)
        cursor = MagicMock()
        cursor.__enter__.return_value.fetchone.side_effect = lambda: self.compression
        self.partitioned: list[tuple[str, str]] = []
        cursor.__enter__.return_value.fetchall.side_effect = lambda: self.partitioned
        conn = nullcontext(SimpleNamespace(cursor=lambda: cursor))
        monkeypatch.setattr(debezium_check, "source_connection", lambda *_: conn)

    def __call__(self, *tables: Table) -> list[Finding]:
        self._judge.at_source = list(tables or [account_table()])
        return self._judge(type_="mariadb, events: debezium")


@pytest.fixture
def debezium(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> OfDebezium:
    return OfDebezium(judge, monkeypatch)


def test_a_source_of_debezium_s_is_judged_by_its_topics_and_tables(debezium: OfDebezium) -> None:
    assert debezium() == []


def test_without_topics_the_connector_s_prefix_is_named(debezium: OfDebezium) -> None:
    debezium.topics = {"dbserver1.bank.acct": 1}
    (finding,) = debezium()
    assert (finding.level, finding.place) == ("warning", "source b1")
    assert "rowlock.b1.<database>.<table>" in finding.message
    assert "topic.prefix" in finding.remedy


def test_a_topic_of_debezium_s_with_several_partitions_is_refused(debezium: OfDebezium) -> None:
    debezium.topics = {"rowlock.b1.bank.acct": 6}
    (finding,) = debezium()
    assert (finding.level, finding.message) == (
        "error", "rowlock.b1.bank.acct has 6 partitions, its events have lost their order",
    )  # fmt: skip
    assert "topic.creation.default.partitions=1" in finding.remedy


def test_a_compacted_topic_of_debezium_s_is_refused(debezium: OfDebezium) -> None:
    debezium.policies = {"rowlock.b1.bank.acct": "compact"}
    (finding,) = debezium()
    assert (finding.level, finding.place) == ("error", "source b1, topic rowlock.b1.bank.acct")
    assert "cleanup.policy=compact" in finding.message
    assert "--add-config cleanup.policy=delete" in finding.remedy


def test_compressed_transactions_are_refused(debezium: OfDebezium) -> None:
    debezium.compression = ("binlog_transaction_compression", "ON")
    (finding,) = debezium()
    assert (finding.level, "compression is ON" in finding.message) == ("error", True)
    debezium.compression = ("binlog_transaction_compression", "OFF")
    assert debezium() == []


def test_partitioned_tables_of_debezium_are_one_warning(debezium: OfDebezium) -> None:
    tables = [structs.replace(account_table(), name=name) for name in ("p1", "p2", "p3", "p4", "plain")]
    debezium.topics = dict.fromkeys((f"rowlock.b1.bank.{table.name}" for table in tables), 1)
    debezium.partitioned = [*(("bank", f"p{at}") for at in range(1, 5)), ("bank", "not_selected")]
    (finding,) = debezium(*tables)
    assert (finding.level, finding.place) == ("warning", "source b1")
    assert finding.message.startswith("bank.p1, bank.p2, bank.p3 and 1 more have partitions: ")
    assert "`partitions: follow` has no effect" in finding.message
    assert "rowlock verify" in finding.remedy


def test_changes_that_no_log_has_are_named(debezium: OfDebezium) -> None:
    debezium.cascades = ["fk: ON DELETE CASCADE (references bank.cust)"]
    (finding,) = debezium()
    assert (finding.level, finding.place) == ("warning", "source b1, table bank.acct")
    assert "fk: ON DELETE CASCADE" in finding.message


def test_tables_that_debezium_writes_to_one_topic_are_refused(debezium: OfDebezium) -> None:
    debezium.topics = {"rowlock.b1.bank.a_b": 1}
    tables = [structs.replace(account_table(), name=name) for name in ("a$b", "a_b")]
    (finding,) = debezium(*tables)
    assert "bank.a$b, bank.a_b all go to the topic rowlock.b1.bank.a_b" in finding.message


def test_where_null_would_become_a_default_it_is_said(debezium: OfDebezium) -> None:
    (finding,) = debezium(with_defaults())
    assert (finding.level, finding.message.split()[0]) == ("warning", "bank.acct.note")
    assert "replace.null.with.default=false" in finding.remedy


@pytest.mark.parametrize(
    ("type_", "transient", "level"),
    [
        ("mariadb, events: debezium", True, "warning"),
        ("mariadb, events: debezium", False, "error"),
        ("mariadb", True, "error"),
    ],
)
def test_a_source_of_debezium_s_that_is_down_does_not_keep_a_run_from_starting(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, type_: str, transient: bool, level: str
) -> None:
    def fails(*_: object) -> SelectedTables:
        raise CommandError("source b1: away") from ServerConnectError("away", transient=transient)

    monkeypatch.setattr(check, "read_selected_tables", fails)
    (finding,) = judge(type_=type_)
    assert (finding.level, "source b1: away" in finding.message) == (level, True)


OTHERS = ["rowlock.b2.bank.acct", "rowlock.b2.position", "rowlock.control"]


def test_kafka_without_the_topics_that_were_applied_is_a_warning_for_the_source(judge: Judge) -> None:
    judge.at_target = [in_target(account_table())]
    judge.units = {TOPIC: StoredDefinition(account_table())}
    judge.topics = OTHERS
    (found,) = judge()
    assert (found.level, found.place) == ("warning", "source b1")
    assert "has none of the topics that target hq has applied" in found.message
    assert "all tables of the source are copied again" in found.remedy


@pytest.mark.parametrize(
    ("unit", "topics", "type_"),
    [
        (TOPIC, [TOPIC], "mariadb"),
        (TOPIC, ["rowlock.b1.position"], "mariadb"),  # then capture stops the tables that have lost events
        ("rowlock.b1.bank.former", OTHERS, "mariadb, events: debezium"),
        ("other.b1.bank.acct", OTHERS, "mariadb"),  # of the prefix before
        ("rowlock.b2.bank.acct", OTHERS[1:], "mariadb"),  # of a source that was removed
    ],
)
def test_topics_that_are_there_or_not_expected_are_no_warning(
    judge: Judge, unit: str, topics: list[str], type_: str
) -> None:
    judge.at_target = [in_target(account_table())]
    judge.units, judge.topics = {unit: StoredDefinition(account_table())}, topics
    assert [each for each in judge(type_=type_) if "none of the topics" in each.message] == []


def test_nothing_is_missing_in_kafka_before_the_first_start(judge: Judge) -> None:
    judge.topics = []
    assert judge() == []


def test_check_closes_its_connection_to_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    view = SimpleNamespace(list_topics=dict, close=lambda: closed.append(True))
    monkeypatch.setattr(kafka_check, "KafkaView", lambda _: view)
    kafka: Any = None
    assert kafka_check.ask_kafka(kafka) == KafkaAnswer()
    assert closed == [True]


def test_a_source_is_checked_while_kafka_does_not_answer(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = Finding("error", "source b1", "user u lacks BINLOG MONITOR", "GRANT BINLOG MONITOR ON …")
    asked: list[bool] = []

    def list_source_findings(*_: object, asks_kafka: bool) -> list[Finding]:
        asked.append(asks_kafka)
        return [lacks]

    silent = Problem("Kafka at h:1 does not answer", "start the broker")
    monkeypatch.setattr(check, "ask_kafka", lambda _: KafkaAnswer(problem=silent))
    monkeypatch.setattr(check, "_list_source_findings", list_source_findings)
    found = judge()
    assert [each.message for each in found] == [silent.what, lacks.message]
    assert asked == [False]


def test_kafka_is_not_asked_again_if_it_is_known_not_to_answer(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    judge()
    monkeypatch.setattr(check, "ask_kafka", lambda _: pytest.fail("it was asked"))
    silent = Problem("Kafka at h:1 does not answer", "start the broker")
    (found,) = check.list_scoped_findings(load_config(tmp_path / "c.yaml"), silent)
    assert found.scope is FindingScope.KAFKA
    assert (found.finding.message, found.finding.remedy) == (silent.what, silent.remedy)


def test_what_does_not_answer_has_its_remedy_apart_from_what_was_seen(tmp_path: Path) -> None:
    (file := tmp_path / "c.yaml").write_text(
        CONFIG.format(type_="mysql", from_="*.*", create="true", policy="lenient")
    )
    found = check.list_findings(load_config(file, {}))
    texts = [f"{each.place}: {each.message}" for each in found]
    assert [sum(part in each for each in texts) for part in ("Kafka at", "source b1", "target hq")] == [
        1,
        1,
        1,
    ]
    assert [each for each in found if not each.remedy or each.remedy in each.message] == []
