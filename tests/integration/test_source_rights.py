"""What the documented user sees of a source, on both servers: no guard is blind under the documented
grants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from producer.checks.binlog_server import check_binlog_server
from producer.sources.catalog import Catalog, open_catalog
from producer.sources.server_state import ServerState
from producer.sources.source_objects import SourceObjects, read_objects
from rowlock.errors import CommandError
from rowlock.inspect.check import list_scoped_findings
from rowlock.inspect.headroom import list_short_logs, measure_headroom
from rowlock.inspect.scopes import is_kafka_unreachable
from rowlock.views.server_versions import explain_refused_source
from rowlock.views.source import read_log_end, read_source_log
from schemas.config.model import Config, SourceConfig, load_config
from schemas.findings import Finding
from schemas.io.mysql_foreign_keys import read_foreign_keys
from tests.kits.capture import events, running, source, source_findings, watermarks, write_config
from tests.kits.documented_user import PASSWORD, documented_user
from tests.kits.waiting import until


@dataclass
class Bank:
    """A server with two databases, and the documented user, who may read the first."""

    server: MariaDB | MySQL
    db: str
    other: str
    user: str

    def settings(self, *tables: str, **more: Any) -> dict[str, Any]:
        expected = list(tables) or [f"{self.db}.*"]
        return {**source(self.server, expected), "user": self.user, "password": PASSWORD, **more}

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement.format(db=self.db, other=self.other))

    def catalog(self) -> Catalog:
        return open_catalog(SourceConfig.model_validate(self.settings()))

    def objects(self) -> SourceObjects:
        catalog = self.catalog()
        try:
            return read_objects(catalog)
        finally:
            catalog.close()


@pytest.fixture(params=["mariadb", "mysql"])
def bank(request: pytest.FixtureRequest, unique: str) -> Iterator[Bank]:
    server: MariaDB | MySQL = request.getfixturevalue(request.param)
    db, other = unique, f"{unique}_o"
    server.create_database(db)
    server.create_database(other)
    try:
        with documented_user(server, unique, db) as user:
            yield Bank(server, db, other, user)
    finally:
        server.execute("SET GLOBAL log_bin_trust_function_creators = 0")
        server.drop_database(db)
        server.drop_database(other)


FAMILY = (
    "CREATE TABLE {db}.parent (id INT PRIMARY KEY, name VARCHAR(20))",
    (
        "CREATE TABLE {db}.child (id INT PRIMARY KEY, p INT, CONSTRAINT `of a ``parent``` FOREIGN KEY (p) "
        "REFERENCES {db}.parent (id) ON DELETE CASCADE)"
    ),
    "CREATE TABLE {other}.owner (id INT PRIMARY KEY)",
    (
        "CREATE TABLE {db}.owned (id INT PRIMARY KEY, o INT, CONSTRAINT owned_by FOREIGN KEY (o) "
        "REFERENCES {other}.owner (id) ON DELETE SET NULL ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE {db}.loose (id INT PRIMARY KEY, p INT, CONSTRAINT loosely FOREIGN KEY (p) "
        "REFERENCES {db}.parent (id) ON DELETE NO ACTION)"
    ),
)


def of_tables(found: list[Finding]) -> dict[str, str]:
    return {each.place.rpartition(".")[2]: each.message for each in found if ", table " in each.place}


def test_the_documented_user_lacks_nothing(kafka: Kafka, bank: Bank, tmp_path: Path) -> None:
    bank.run("CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20))")
    config = write_config(tmp_path, kafka.bootstrap, bank.db, {"s": bank.settings()})
    assert source_findings(config) == []
    with running(config, "s") as unit:
        until(
            lambda: [w for w in watermarks(kafka.bootstrap, bank.db, "s") if not w.snapshot_pending],
            "the start",
        )
        bank.run("INSERT INTO {db}.acct VALUES (1, 'a')")
        until(lambda: [w for w in watermarks(kafka.bootstrap, bank.db, "s") if w.events], "the row")
        assert unit.stop() == 0, unit.output()


def list_lacking(config: Config) -> list[Finding]:
    """Return what `check` finds about rights that the source's user lacks, but not the optional ones."""
    scoped = list_scoped_findings(config)
    found = list(dict.fromkeys(each.finding for each in scoped))
    if is_kafka_unreachable(scoped):
        found += list_short_logs(config, found)
    else:
        found += measure_headroom(config, found)[1]
    mine = [each for each in found if each.place.startswith("source s")]
    return [each for each in mine if each.level == "error" or "denied" in each.message]


@pytest.mark.parametrize("right", ["the log", "REPLICATION SLAVE"])
def test_a_missing_right_is_one_finding_with_a_statement_that_the_server_executes(
    kafka: Kafka, bank: Bank, tmp_path: Path, right: str
) -> None:
    bank.run("CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20))")
    file = write_config(tmp_path, kafka.bootstrap, bank.db, {"s": bank.settings()})
    with running(file, "s") as unit:
        until(lambda: watermarks(kafka.bootstrap, bank.db, "s"), "the start")
        assert unit.stop() == 0, unit.output()
    config = load_config(file, {})
    without_kafka = load_config(file, {}, changes={("kafka", "bootstrap"): "127.0.0.1:1"})
    assert list_lacking(config) == []
    with closing(bank.catalog()) as catalog:
        name = catalog.server.rights.status if right == "the log" else right
    bank.run(f"REVOKE {name} ON *.* FROM '{bank.user}'@'%'")
    [found] = list_lacking(config)
    assert list_lacking(without_kafka) == [found]
    assert found.message == f"user {bank.user} lacks {name}"
    refused = explain_refused_source(config, "s")
    assert refused is not None, "status names it while nothing runs"
    assert (refused.what, refused.action) == (found.message, found.remedy)
    if right == "the log":
        for read in (read_log_end, read_source_log):
            with pytest.raises(CommandError) as unread:
                read(config.sources["s"], "s")
            assert unread.value.problem.action == found.remedy
    bank.run(found.remedy)
    assert list_lacking(config) == []
    assert explain_refused_source(config, "s") is None
    assert read_log_end(config.sources["s"], "s")[1] > 0
    assert read_source_log(config.sources["s"], "s").files


def test_foreign_keys_are_seen_with_select_alone(bank: Bank) -> None:
    bank.run(*FAMILY)
    with closing(bank.server.connect(user=bank.user, password=PASSWORD)) as conn:
        child, owned, loose = (read_foreign_keys(conn, bank.db, name) for name in ("child", "owned", "loose"))
        assert [(key.name, key.parent, key.action) for key in (*child, *owned, *loose)] == [
            ("of a `parent`", (bank.db, "parent"), "ON DELETE CASCADE"),
            ("owned_by", (bank.other, "owner"), "ON DELETE SET NULL ON UPDATE CASCADE"),
            ("loosely", (bank.db, "parent"), ""),
        ]
        assert child[0].columns == ("p",)
        assert read_foreign_keys(conn, bank.db, "parent") == ()


def test_cascades_are_refused_where_the_server_does_not_log_them(
    kafka: Kafka, bank: Bank, tmp_path: Path
) -> None:
    """With SELECT alone MariaDB's referential_constraints is empty: the child passed, and its deletes were
    lost."""
    bank.run(*FAMILY)
    config = write_config(tmp_path, kafka.bootstrap, bank.db, {"s": bank.settings()})
    notified = of_tables(source_findings(config))
    if bank.server.kind == "MySQL":
        assert notified == {}, "MySQL logs them from 9.6 on"
    else:
        assert set(notified) == {"child", "owned"}
        assert "ON DELETE CASCADE" in notified["child"]
    with running(config, "s") as unit:
        until(
            lambda: [w for w in watermarks(kafka.bootstrap, bank.db, "s") if not w.snapshot_pending],
            "the start",
        )
        bank.run(
            "INSERT INTO {db}.parent VALUES (1, 'a')",
            "INSERT INTO {db}.child VALUES (10, 1)",
            "DELETE FROM {db}.parent",
            "INSERT INTO {db}.parent VALUES (2, 'b')",
        )
        parent = f"{bank.db}.s.{bank.db}.parent"
        until(
            lambda: [e for e in events(kafka.bootstrap, parent) if e.after and e.after["id"] == 2], "the rows"
        )
        child = f"{bank.db}.s.{bank.db}.child"
        if bank.server.kind == "MySQL":
            assert [e.op for e in events(kafka.bootstrap, child) if e.op in "cd"] == ["c", "d"]
        else:
            assert "child" in (watermarks(kafka.bootstrap, bank.db, "s")[-1].error or "")
        assert unit.stop() == 0, unit.output()


OBJECTS = (
    "SET GLOBAL log_bin_trust_function_creators = 1",
    "CREATE TABLE {db}.acct (id INT PRIMARY KEY)",
    "CREATE TABLE {other}.audit (id INT PRIMARY KEY)",
    (
        "CREATE TABLE {other}.entry (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES "
        "{other}.audit (id) ON DELETE CASCADE)"
    ),
    (
        "CREATE TRIGGER {other}.copies AFTER INSERT ON {other}.audit FOR EACH ROW INSERT "
        "INTO {db}.acct VALUES (NEW.id)"
    ),
    "CREATE VIEW {other}.window AS SELECT * FROM {db}.acct",
    "CREATE FUNCTION {other}.adds () RETURNS INT DETERMINISTIC RETURN 1",
)


def test_what_is_not_seen_is_not_taken_for_absent(bank: Bank) -> None:
    """Under the documented grants the other database does not seem to exist: `visibility` records that this
    proves nothing."""
    bank.run(*OBJECTS)
    found = bank.objects()
    assert found.kinds == {(bank.db, "acct"): "table"}
    assert (found.triggers, found.views, found.routines) == ({}, {}, {})
    sight = found.visibility
    assert not (sight.can_see_all_tables())
    assert not (sight.can_see_triggers(bank.other))
    assert not (sight.can_see_triggers(bank.db))
    assert not (sight.can_see_routines())
    assert not sight.can_see_foreign_keys(bank.other)


def test_the_optional_right_shows_what_a_statement_may_reach(bank: Bank) -> None:
    bank.run(*OBJECTS)
    with documented_user(bank.server, f"{bank.user}x", bank.db, bank.other, optional=True) as user:
        found = Bank(bank.server, bank.db, bank.other, user).objects()
    mine = {name: kind for name, kind in found.kinds.items() if name[0] in (bank.db, bank.other)}
    assert mine == {
        (bank.db, "acct"): "table", (bank.other, "audit"): "table", (bank.other, "entry"): "table",
        (bank.other, "window"): "view",
    }  # fmt: skip
    assert found.triggers[bank.other, "audit"][0][0] == bank.other
    assert "INSERT INTO" in found.triggers[bank.other, "audit"][0][1]
    assert f"`{bank.db}`.`acct`" in str(found.views[bank.other, "window"])
    assert found.cascades[bank.other, "audit"] == {(bank.other, "entry")}
    sight = found.visibility
    assert sight.can_see_all_tables()
    assert sight.can_see_triggers(bank.other)
    assert sight.can_see_foreign_keys(bank.other)
    assert not sight.can_see_routines(), "a function may be hidden"


@pytest.mark.parametrize("older", [False, True])
def test_printed_grants_show_everything(bank: Bank, monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    """`older`: a version whose GRANT does not know the right to see routines: MariaDB before 11.3, MySQL
    before 8.0.20."""
    bank.run(*OBJECTS)
    with closing(bank.catalog()) as catalog:
        knows = catalog.session.flavour.rights.routines in catalog.server.read_privileges()
    older = older or not knows
    if older:
        monkeypatch.setattr(ServerState, "read_privileges", lambda _: frozenset[str]())
    checked = SourceConfig.model_validate(bank.settings())

    def list_grants() -> list[str]:
        found = check_binlog_server(checked, "source s").findings
        return [each.remedy for each in found if each.remedy.startswith("GRANT ")]

    statements = list_grants()
    assert len(statements) == 2
    assert any("ROUTINE" in each for each in statements) is not older
    bank.run(*statements)
    assert list_grants() == []
    sight = bank.objects().visibility
    assert sight.can_see_all_tables()
    assert sight.can_see_routines()
    assert "RETURN 1" in str(bank.objects().routines[bank.other, "adds"])


@pytest.mark.parametrize("roles", [False, True])
def test_sight_agrees_with_the_server(bank: Bank, roles: bool) -> None:
    """Whatever is granted, and through a role as well: what `Sight` calls seen is seen."""
    bank.run(*OBJECTS)
    routines = "SHOW_ROUTINE" if bank.server.kind == "MySQL" else "SHOW CREATE ROUTINE"
    name = f"{bank.user}r"
    to = f"'{name}role'" if roles else f"'{name}'@'%'"
    bank.server.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY '{PASSWORD}'")
    if roles:
        bank.server.execute(f"CREATE ROLE '{name}role'")
        bank.server.execute(f"GRANT '{name}role' TO '{name}'@'%'")
        target = (
            f"'{name}role'@'%' TO '{name}'@'%'"
            if bank.server.kind == "MySQL"
            else f"'{name}role' FOR '{name}'@'%'"
        )
        bank.server.execute(f"SET DEFAULT ROLE {target}")
    try:
        other = Bank(bank.server, bank.db, bank.other, name)
        wants = (
            ("SELECT", f"`{bank.db}`.*"), ("TRIGGER", f"`{bank.other}`.*"),
            ("SHOW VIEW", f"`{bank.other}`.*"), ("SELECT", f"`{bank.other}`.*"), (routines, "*.*"),
            ("TRIGGER", "*.*"),
        )  # fmt: skip
        for right, where in wants:
            bank.server.execute(f"GRANT {right} ON {where} TO {to}")
            found = other.objects()
            assert found.visibility.can_see_triggers(bank.other) == bool(found.triggers), right
            assert found.visibility.can_see_routines() == bool(found.routines.get((bank.other, "adds"))), (
                right
            )
            assert found.visibility.can_see_foreign_keys(bank.other) == bool(found.cascades), right
            assert not found.visibility.can_see_all_tables() or (bank.other, "entry") in found.kinds
        assert found.visibility.can_see_all_tables()
    finally:
        bank.server.execute(f"DROP USER '{name}'@'%'")
        if roles:
            bank.server.execute(f"DROP ROLE '{name}role'")


def test_a_user_who_may_read_some_columns_only_is_refused(kafka: Kafka, bank: Bank, tmp_path: Path) -> None:
    """The server hides the other columns: the definition would be short of them."""
    bank.run("CREATE TABLE {other}.acct (id INT PRIMARY KEY, secret VARCHAR(20))")
    bank.server.execute(f"GRANT SELECT (id) ON {bank.other}.acct TO '{bank.user}'@'%'")
    config = write_config(tmp_path, kafka.bootstrap, bank.db, {"s": bank.settings(f"{bank.other}.acct")})
    found = source_findings(config)
    statements = [each.remedy for each in found if " TO " in each.remedy]
    assert "only some columns" in " ".join(each.message for each in found)
    for statement in statements:
        bank.server.execute(statement)
    assert source_findings(config) == []


def test_the_hidden_action_of_a_foreign_key_is_an_error_not_an_absence(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were SHOW CREATE TABLE of another form, the guard says that it cannot see."""
    bank.run(*FAMILY)
    monkeypatch.setattr("schemas.io.mysql_foreign_keys.parse_foreign_keys", lambda *_: ())
    catalog = bank.catalog()
    monkeypatch.setattr(catalog.tables.cascades, "are_actions_logged", lambda: False)
    try:
        child, parent = (bank.db, "child"), (bank.db, "parent")
        found = catalog.tables.examine_tables([child, parent])
        assert "cannot be read" in str(found[child].problem)
        assert found[parent].problem is None
    finally:
        catalog.close()


UNFIT = {
    "nokey": ("CREATE TABLE {db}.nokey (a INT, UNIQUE KEY a (a))", "primary key"),
    "old": ("CREATE TABLE {db}.old (id INT PRIMARY KEY) ENGINE=MyISAM", "MyISAM"),
    "odd": (
        "CREATE TABLE {db}.odd (id INT PRIMARY KEY, e ENUM('a?') CHARACTER SET utf8mb4)",
        "a label holds '?'",
    ),
}
UNFIT_OF = {
    "MariaDB": {
        "timed": ("CREATE TABLE {db}.timed (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "SYSTEM VERSIONED"),
    },
    "MySQL": {
        "upper": (
            "CREATE TABLE {db}.upper (id INT PRIMARY KEY, t VARCHAR(9), UNIQUE KEY e ((UPPER(t))))",
            "expression",
        ),
    },
}


def test_every_guard_of_a_table_sees_what_it_judges(kafka: Kafka, bank: Bank, tmp_path: Path) -> None:
    """As the documented user: a guard that saw nothing would let the table pass."""
    unfit = UNFIT | UNFIT_OF[bank.server.kind]
    bank.run("CREATE TABLE {db}.fit (id INT PRIMARY KEY)", *(statement for statement, _ in unfit.values()))
    config = write_config(tmp_path, kafka.bootstrap, bank.db, {"s": bank.settings()})
    notified = of_tables(source_findings(config))
    assert set(notified) == set(unfit)
    for name, (_, word) in unfit.items():
        assert word.lower() in notified[name].lower()
