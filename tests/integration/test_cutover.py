"""`rowlock cutover --sql`: after its statements an INSERT without the key gets a number that is free."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from consumer.ordering.model import UnitState
from consumer.tables.router import build_desired_table
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import judge_target_table
from rowlock.inspect.pairs import list_table_pairs
from schemas.config.model import Config, load_config
from schemas.table.model import Row
from schemas.wire.records import format_former_table_topic
from tests.kits.command_line import invoke
from tests.kits.targets import Lane, NetChange, Target, as_target, index, rows_of, target  # noqa: F401 - a fixture

KEEP_ZERO = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'"
CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{{source}, tables: [{db}_1.*]}}
  b2: {{{source}, tables: [{db}_2.*]}}
targets:
  hq: {{type: {kind}, host: 127.0.0.1, port: {port}, user: {user}, password: "{password}", database: {db}}}
pipelines:
  pipe:
    sources: [b1, b2]
    target: hq
    routes:
      - {{from: "*.both", to: "{schema}.{{table}}", add: {{branch: "{{source}}"}}}}
      - {{from: "*.*", to: "{schema}.{{table}}"}}
"""


@dataclass
class Switch:
    """Two databases of a source, and a target with copies of their tables."""

    target: Target
    source: Any
    config: Path

    def at_source(self, number: int, *statements: str) -> None:
        run(self.source, f"{self.target.database}_{number}", statements)

    def at_target(self, *statements: str) -> list[Any]:
        return run(self.target.service, self.target.database, statements)

    def create_targets(self) -> None:
        """Create the target tables as rowlock does, without rows."""
        session = self.target.open()
        for pair in self.pairs():
            session.create_table(build_desired_table(pair.table, pair.routed))

    def pairs(self) -> Any:
        config: Config = load_config(self.config)
        return list_table_pairs(config, ["pipe"])

    def columns(self) -> list[dict[str, Any]]:
        result = invoke(self.config, "cutover", "--sql", "--output", "json")
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)["columns"]
        return found

    def cut_over(self) -> None:
        """Run the script as a person would: the lines in one session."""
        result = invoke(self.config, "cutover", "--sql")
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        self.at_target(*(line.rstrip(";") for line in lines if not line.startswith("--")))

    def insert(self, table: str, **values: str) -> int:
        """Insert a row without its number; return the number."""
        columns, listed = ", ".join(values), ", ".join(f"'{value}'" for value in values.values())
        where = " AND ".join(f"{column} = '{value}'" for column, value in values.items())
        return int(
            self.at_target(
                f"INSERT INTO {self.target.name(table)} ({columns}) VALUES ({listed})",
                f"SELECT MAX(id) FROM {self.target.name(table)} WHERE {where}",
            )[0][0]
        )


def run(service: Any, database: str, statements: tuple[str, ...]) -> list[Any]:
    """Run statements in one session; return the rows of the last one."""
    with contextlib.closing(service.connect(database, autocommit=True)) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


@pytest.fixture(params=["mariadb", "mysql"])
def switch(target: Target, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Switch]:  # noqa: F811
    source = request.getfixturevalue(request.param)
    file = tmp_path / "rowlock.yaml"
    file.write_text(
        CONFIG.format(
            source=f"type: {request.param}, host: 127.0.0.1, port: {source.port}, user: {source.user}, "
            f'password: "{source.password}"',
            db=target.database,
            schema=target.schema,
            kind=target.kind,
            port=target.service.port,
            user=target.service.user,
            password=target.service.password,
        )
    )
    names = [f"{target.database}_{number}" for number in (1, 2)]
    for name in names:
        source.execute(f"CREATE DATABASE {name}")
    yield Switch(target, source, file)
    for name in names:
        source.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize("type_", ["SMALLINT", "INT", "BIGINT UNSIGNED"])
def test_a_number_that_the_source_gave_is_never_given_again(switch: Switch, type_: str) -> None:
    """Not even that of a row that was deleted since."""
    switch.at_source(1, f"CREATE TABLE acct (id {type_} AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) NOT NULL)")
    switch.create_targets()
    assert [each["first"] for each in switch.columns()] == [1]
    switch.at_source(1, "INSERT INTO acct (v) VALUES ('a'), ('b'), ('c')", "DELETE FROM acct WHERE id > 1")
    switch.at_target(f"INSERT INTO {switch.target.name('acct')} (id, v) VALUES (1, 'a')")
    [column] = switch.columns()
    assert (column["table"], column["column"], column["first"]) == (f"{switch.target.schema}.acct", "id", 4)
    switch.cut_over()
    assert [switch.insert("acct", v=v) for v in ("x", "y")] == [4, 5]
    switch.cut_over()  # the statements of a table that numbers its rows already
    assert switch.insert("acct", v="z") == 6


def test_rowlock_goes_on_if_the_switch_is_given_up(switch: Switch) -> None:
    switch.at_source(
        1,
        "CREATE TABLE acct (id BIGINT AUTO_INCREMENT PRIMARY KEY, n BIGINT UNSIGNED)",
        "CREATE TABLE `both` (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)",
    )
    switch.create_targets()
    switch.cut_over()
    session = switch.target.open()
    for pair in switch.pairs():
        assert judge_target_table(session, StoredDefinition(pair.table), pair.routed) == []
        lane = Lane.start(session, pair.table.name)
        desired = build_desired_table(pair.table, pair.routed)
        shared = pair.table.name == "both"
        rows: list[Row] = [(key, "b1" if shared else None) for key in (0, 1, 2, 200)]
        wrapped = as_target(desired)
        for net in (NetChange(wrapped, replaces=rows), NetChange(wrapped, updates=rows)):
            lane.apply_net_change(net)
            assert rows_of(session, wrapped) == rows


def test_the_target_s_own_rows_count(switch: Switch) -> None:
    switch.at_source(1, "CREATE TABLE acct (v VARCHAR(9) NOT NULL, id INT AUTO_INCREMENT, PRIMARY KEY (id))")
    switch.create_targets()
    assert [each["first"] for each in switch.columns()] == [1]
    switch.at_target(f"INSERT INTO {switch.target.name('acct')} (id, v) VALUES (70, 'a')")
    switch.cut_over()
    assert switch.insert("acct", v="x") == 71


def test_the_numbers_of_several_sources_are_followed_by_the_greatest(switch: Switch) -> None:
    """Their key begins with the branch in the target."""
    ddl = "CREATE TABLE `both` (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) NOT NULL)"
    switch.at_source(1, ddl, "INSERT INTO `both` VALUES (7, 'a')")
    switch.at_source(2, ddl, "INSERT INTO `both` VALUES (50, 'a')", "DELETE FROM `both`")
    switch.create_targets()
    switch.at_target(f"INSERT INTO {switch.target.name('both')} (branch, id, v) VALUES ('b1', 7, 'a')")
    [column] = switch.columns()
    assert column["first"] == 51
    assert sorted(name.partition(":")[0] for name in column["sources"]) == ["b1", "b2"]
    switch.cut_over()
    assert switch.insert("both", branch="b1", v="x") == 51
    assert switch.insert("both", branch="b2", v="x") == 52


def test_a_row_with_the_number_zero_keeps_it(switch: Switch) -> None:
    switch.at_source(
        1,
        "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY COMMENT 'its number', v VARCHAR(9) NOT NULL)",
        KEEP_ZERO,
        "INSERT INTO acct VALUES (0, 'zero')",
    )
    switch.create_targets()
    name = switch.target.name("acct")
    switch.at_target(f"INSERT INTO {name} (id, v) VALUES (0, 'zero')")
    switch.cut_over()
    assert switch.insert("acct", v="x") == 1
    rows = [tuple(row) for row in switch.at_target(f"SELECT id, v FROM {name} ORDER BY id")]
    assert rows == [(0, "zero"), (1, "x")]


def test_a_column_is_numbered_under_its_name_in_the_target(switch: Switch) -> None:
    switch.at_source(1, "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) NOT NULL)")
    [pair] = switch.pairs()
    columns = (structs.replace(pair.table.columns[0], name="number"), *pair.table.columns[1:])
    renamed = structs.replace(pair.table, columns=columns, key=index("PRIMARY", "number"))
    session = switch.target.open()
    session.create_table(build_desired_table(renamed, pair.routed))
    lane = Lane.start(session, format_former_table_topic("topic", "b1", pair.table.db, "acct"))
    stored = StoredDefinition(pair.table, {"id": "number"})
    with session.begin_transaction(lane.unit, [lane.row]) as tx:
        tx.write_unit(UnitState(stored.encode(), None, None))
    [column] = switch.columns()
    assert (column["column"], len(column["statements"]) > 0) == ("number", True)


def test_a_serial_column_goes_on_by_its_own_sequence(switch: Switch) -> None:
    if switch.target.kind != "postgres":
        pytest.skip("only PostgreSQL has serial columns")
    switch.at_source(
        1,
        "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) NOT NULL)",
        "INSERT INTO acct VALUES (9, 'a')",
    )
    switch.at_target("CREATE TABLE acct (id bigserial PRIMARY KEY, v varchar(9) NOT NULL)")
    switch.cut_over()
    assert switch.insert("acct", v="x") == 10
    switch.at_target("SELECT setval('public.acct_id_seq', 90)")
    switch.cut_over()  # a sequence that is further ahead is not set back
    assert switch.insert("acct", v="y") == 91


def test_a_script_that_was_ended_in_between_is_completed_by_the_next(switch: Switch) -> None:
    """BIGINT UNSIGNED is numeric in PostgreSQL, whose sequence and default are two statements."""
    if switch.target.kind != "postgres":
        pytest.skip("elsewhere it is one statement")
    switch.at_source(
        1, "CREATE TABLE acct (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) NOT NULL)"
    )
    switch.create_targets()
    [column] = switch.columns()
    assert len(column["statements"]) == 2
    switch.at_target(column["statements"][0])
    switch.cut_over()
    assert switch.insert("acct", v="x") == 1


def test_a_column_without_a_greater_number_is_a_finding(switch: Switch) -> None:
    switch.at_source(
        1,
        "CREATE TABLE acct (id SMALLINT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE fine (id INT AUTO_INCREMENT PRIMARY KEY)",
    )
    switch.create_targets()
    switch.at_target(f"INSERT INTO {switch.target.name('acct')} (id) VALUES (32767)")
    result = invoke(switch.config, "cutover", "--sql")
    assert result.exit_code == 1
    assert "the next number 32768 is above 32767" in result.stdout
    assert "fine" in result.stdout


def test_fractional_numbers_are_followed_by_the_next_whole_one(switch: Switch) -> None:
    if switch.target.kind != "postgres":
        pytest.skip("a numeric with a scale cannot have AUTO_INCREMENT")
    switch.at_source(1, "CREATE TABLE acct (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)")
    switch.at_target("CREATE TABLE acct (id numeric(22, 2) PRIMARY KEY)", "INSERT INTO acct VALUES (7.00)")
    assert [each["first"] for each in switch.columns()] == [8]


def test_zero_dates_of_the_target_do_not_end_the_script(switch: Switch) -> None:
    if switch.target.kind == "postgres":
        pytest.skip("PostgreSQL has no zero dates")
    switch.at_source(
        1, "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY, d DATE, v VARCHAR(9) NOT NULL)"
    )
    switch.create_targets()
    name = switch.target.name("acct")
    switch.at_target(
        "SET SESSION sql_mode = ''", f"INSERT INTO {name} (id, d, v) VALUES (1, '0000-00-00', 'a')"
    )
    switch.cut_over()
    assert switch.insert("acct", v="x") == 2


def test_a_line_break_in_a_name_begins_no_statement(switch: Switch) -> None:
    switch.at_source(1, "CREATE TABLE `a\nDROP TABLE x; --` (id INT AUTO_INCREMENT PRIMARY KEY)")
    result = invoke(switch.config, "cutover", "--sql")
    assert not [line for line in result.stdout.splitlines() if line.startswith("DROP")], result.stdout


def test_a_script_is_for_one_database(switch: Switch) -> None:
    text = switch.config.read_text()
    first = next(line for line in text.splitlines() if line.startswith("  hq:"))
    text = text.replace(first, f"{first}\n{first.replace('hq:', 'dr:', 1)}")
    switch.config.write_text(text + "  other: {sources: [b1], target: dr}\n")
    refused = invoke(switch.config, "cutover", "--sql")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "give --target NAME" in refused.stderr
    assert invoke(switch.config, "cutover", "--sql", "--target", "hq").exit_code == 0


def test_a_table_that_the_target_lacks_is_a_finding(switch: Switch) -> None:
    switch.at_source(1, "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY)")
    result = invoke(switch.config, "cutover", "--sql")
    assert result.exit_code == 1
    place = f"{switch.target.schema}.acct.id, from b1:{switch.target.database}_1.acct"
    assert result.stdout == f"-- target hq, {place}: the table does not exist\n"


def test_a_source_that_does_not_show_its_next_number_is_a_finding(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of deleted rows are not known then."""
    switch.at_source(1, "CREATE TABLE acct (id INT AUTO_INCREMENT PRIMARY KEY)")
    switch.create_targets()
    monkeypatch.setattr("rowlock.inspect.cutover.read_next_numbers", lambda *_: {})
    result = invoke(switch.config, "cutover", "--sql")
    assert result.exit_code == 1
    assert f"b1:{switch.target.database}_1.acct does not show its next number" in result.stdout
    assert "ALTER" not in result.stdout


def test_nothing_is_printed_without_a_numbered_column(switch: Switch) -> None:
    switch.at_source(1, "CREATE TABLE t (id INT PRIMARY KEY)")
    result = invoke(switch.config, "cutover", "--sql")
    assert (result.exit_code, result.stdout) == (
        0,
        "-- no source table with AUTO_INCREMENT is replicated into a database\n",
    )
    assert invoke(switch.config, "cutover").exit_code == 2
