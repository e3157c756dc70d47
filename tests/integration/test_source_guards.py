"""Changes that are not logged: such a source is refused by `check`, at the start and at a reconnect, as the
documented user sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.embedded.services import EmbeddedError, Kafka, MariaDB, MySQL
from producer.checks.preflight import check_source
from schemas.config.model import load_config
from schemas.findings import Finding
from tests.kits.capture import events, position, refused, running, source, watermarks, write_config
from tests.kits.documented_user import PASSWORD, documented_user
from tests.kits.running import end_readers_of_the_log
from tests.kits.waiting import until


@dataclass
class Site:
    """A server whose options a test changes, with a table, and a configuration for the documented user."""

    server: MariaDB | MySQL
    kafka: Kafka
    db: str
    config: Path

    @property
    def mariadb(self) -> bool:
        return isinstance(self.server, MariaDB)

    def restart(self, *options: str) -> None:
        self.server.extra = list(options)
        self.server.restart()

    def findings(self) -> list[Finding]:
        """All but those of the rights that the page calls optional."""
        found = check_source(load_config(self.config, {}), "s")
        return [each for each in found if "does not see" not in each.message]

    def errors(self) -> list[str]:
        return [each.message for each in self.findings() if each.level == "error"]

    def replicate(self) -> None:
        verb = "CHANGE MASTER TO MASTER" if self.mariadb else "CHANGE REPLICATION SOURCE TO SOURCE"
        port = "MASTER_PORT" if self.mariadb else "SOURCE_PORT"
        self.server.execute(f"{verb}_HOST = '127.0.0.1', {port} = 1")

    def end_replication(self) -> None:
        """A restart has started its threads again."""
        word = "SLAVE" if self.mariadb else "REPLICA"
        self.server.execute(f"STOP {word}")
        self.server.execute(f"RESET {word} ALL")

    def refused(self, *words: str) -> None:
        """`check` and a start both refuse it, with these words."""
        (notified,) = self.errors()
        reported = refused(self.config)
        for word in words:
            assert word in notified
            assert word in reported


@pytest.fixture(scope="module", params=[MariaDB, MySQL])
def server(request: pytest.FixtureRequest) -> Iterator[MariaDB | MySQL]:
    kind: type[MariaDB | MySQL] = request.param
    try:
        kind.fetch()
    except EmbeddedError as error:
        pytest.skip(error.seen)
    with kind() as started:
        yield started


@pytest.fixture
def site(server: MariaDB | MySQL, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Site]:
    server.create_database(unique)
    server.execute(f"CREATE TABLE {unique}.acct (id INT PRIMARY KEY)")
    with documented_user(server, unique, unique) as user:
        settings = {**source(server, [f"{unique}.*"]), "user": user, "password": PASSWORD}
        config = write_config(tmp_path, kafka.bootstrap, unique, {"s": settings})
        yield Site(server, kafka, unique, config)
    if server.extra:
        server.extra = []
        server.restart()
    server.drop_database(unique)


@pytest.mark.parametrize("option", ["binlog-do-db", "binlog-ignore-db"])
def test_a_filtered_log(site: Site, option: str) -> None:
    assert site.findings() == []
    site.restart(f"--{option}=elsewhere")
    site.refused("filters its log", f"{option.replace('-', '_')} is elsewhere")
    site.restart()
    assert site.findings() == []


def test_a_replica_that_does_not_log_what_it_replicates(site: Site) -> None:
    if not site.mariadb:
        site.restart("--log-replica-updates=OFF")
    assert site.findings() == [], "a server that replicates nothing has nothing to log"
    site.replicate()
    try:
        site.refused("a replica of 127.0.0.1:1")
        site.restart("--log-slave-updates=ON" if site.mariadb else "--log-replica-updates=ON")
        assert site.findings() == []
    finally:
        site.end_replication()


def test_a_source_that_becomes_such_a_replica_is_refused_at_the_reconnect(site: Site) -> None:
    if not site.mariadb:
        site.restart("--log-replica-updates=OFF")
    with running(site.config, "s") as unit:
        until(lambda: watermarks(site.kafka.bootstrap, site.db, "s"), "the start")
        site.replicate()
        try:
            end_readers_of_the_log(site.server)
            assert unit.wait(90) == 2, unit.output()
            assert "a replica of 127.0.0.1:1" in unit.output()
        finally:
            site.end_replication()


@pytest.mark.parametrize("running_then", [True, False])
def test_a_table_that_the_user_may_no_longer_read_is_not_taken_for_dropped(
    site: Site, running_then: bool
) -> None:
    """A target with `on_drop: drop` would drop its table. `running_then`: capture runs, and reads an ALTER;
    otherwise a start finds the table missing."""

    def take_right() -> None:
        site.server.execute(f"CREATE TABLE {site.db}.other (id INT PRIMARY KEY)")
        site.server.execute(f"REVOKE SELECT ON {site.db}.* FROM '{site.db}'@'%'")
        site.server.execute(f"GRANT SELECT ON {site.db}.other TO '{site.db}'@'%'")

    def find_stops() -> dict[str, str]:
        stops = position(site.kafka.bootstrap, site.db, "s").stops
        return {name: each.cause for name, each in stops.items()}

    def list_published_causes() -> list[str]:
        found = events(site.kafka.bootstrap, f"{site.db}.s.{table}")
        return [each.stop.cause for each in found if each.stop is not None]

    def find_remedy() -> str:
        return str(watermarks(site.kafka.bootstrap, site.db, "s")[-1])

    table = f"{site.db}.acct"
    with running(site.config, "s") as unit:
        until(lambda: watermarks(site.kafka.bootstrap, site.db, "s"), "the start")
        site.server.execute(f"INSERT INTO {table} VALUES (1)")
        if running_then:
            take_right()
            site.server.execute(f"ALTER TABLE {table} ADD zz INT")
            site.server.execute(f"CREATE TABLE {site.db}.fresh (id INT PRIMARY KEY)")
            until(lambda: find_stops() == {table: "unseen"}, f"the stop: {unit.output()[-3000:]}")
            until(lambda: f"GRANT SELECT ON {site.db}.fresh" in find_remedy(), "the new table's remedy")
        else:
            until(lambda: len(events(site.kafka.bootstrap, f"{site.db}.s.{table}")) > 1, "the row")
        assert unit.stop() == 0, unit.output()
    if not running_then:
        take_right()
    with running(site.config, "s") as unit:
        until(lambda: unit.output().count("capture started") == 2, "the second start")
        site.server.execute(f"INSERT INTO {site.db}.other VALUES (1)")
        until(lambda: set(list_published_causes()) == {"unseen"}, f"the stop: {unit.output()[-3000:]}")
        assert find_stops() == {table: "unseen"}
        assert unit.stop() == 0, unit.output()


def test_a_user_who_cannot_see_whether_it_is_a_replica_is_told_so(site: Site) -> None:
    if not site.mariadb:
        pytest.skip("MySQL's REPLICATION CLIENT, without which nothing goes, shows it")
    site.server.execute(f"REVOKE SLAVE MONITOR ON *.* FROM '{site.db}'@'%'")
    (found,) = site.findings()
    assert "cannot see whether the server is a replica" in found.message
    site.server.execute(found.remedy)
    assert site.findings() == []


def test_a_server_of_the_other_kind_is_called_so(site: Site) -> None:
    kind, other = ("mariadb", "mysql") if site.mariadb else ("mysql", "mariadb")
    site.config.write_text(site.config.read_text().replace(f"type: {kind}", f"type: {other}"))
    (notified,) = [each for each in site.errors() if "configured is" in each]
    assert f"configured is type: {other}" in notified


def test_a_server_that_goes_on_without_its_log(site: Site) -> None:
    if site.mariadb:
        pytest.skip("MariaDB has no such setting: a commit that cannot be logged fails")
    site.server.execute("SET GLOBAL binlog_error_action = IGNORE_ERROR")
    try:
        site.refused("binlog_error_action is IGNORE_ERROR")
        assert "ABORT_SERVER" in site.findings()[0].remedy
    finally:
        site.server.execute("SET GLOBAL binlog_error_action = ABORT_SERVER")


def test_what_a_crash_may_cost_is_said_and_no_more(site: Site) -> None:
    site.server.execute("SET GLOBAL sync_binlog = 0")
    site.server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        found = site.findings()
        assert [each.level for each in found] == ["warning", "warning"]
        assert all("verify" in each.remedy for each in found)
        with running(site.config, "s") as unit:
            until(lambda: watermarks(site.kafka.bootstrap, site.db, "s"), "the start")
            assert unit.stop() == 0, unit.output()
    finally:
        site.server.execute("SET GLOBAL sync_binlog = 1")
        site.server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def test_native_foreign_keys_after_a_restart_of_the_server(site: Site) -> None:
    """The cascades were logged when capture took the table up; after the restart they are not: the table
    stops, the others go on."""
    if site.mariadb:
        pytest.skip("MariaDB logs no cascades at all (test_source_rights)")
    db, bootstrap = site.db, site.kafka.bootstrap
    site.server.execute(
        f"CREATE TABLE {db}.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES "
        f"{db}.acct (id) ON DELETE CASCADE)"
    )
    assert site.errors() == []
    with running(site.config, "s") as unit:
        until(lambda: any(not w.snapshot_pending for w in watermarks(bootstrap, db, "s")), "the start")
        site.server.execute(f"INSERT INTO {db}.acct VALUES (1), (2)")
        site.server.execute(f"INSERT INTO {db}.child VALUES (10, 1), (20, 2)")
        site.server.execute(f"DELETE FROM {db}.acct WHERE id = 1")
        until(
            lambda: "d" in [e.op for e in events(bootstrap, f"{db}.s.{db}.child")], "a cascade that is logged"
        )
        site.restart("--innodb-native-foreign-keys=ON")
        (notified,) = site.errors()
        assert "ON DELETE CASCADE" in notified
        assert "innodb_native_foreign_keys" in next(f.remedy for f in site.findings() if f.level == "error")
        site.server.execute(f"DELETE FROM {db}.acct WHERE id = 2")
        site.server.execute(f"INSERT INTO {db}.acct VALUES (3)")

        def goes_on() -> bool:
            assert unit.process is not None
            assert unit.process.poll() is None, unit.output()
            return 3 in [e.after["id"] for e in events(bootstrap, f"{db}.s.{db}.acct") if e.after]

        until(
            goes_on, f"the parent's rows: {unit.log}", 180
        )  # capture waits up to 30 s before it connects anew
        stop = until(  # the watermark comes within a second of the rows
            lambda: watermarks(bootstrap, db, "s")[-1].stops.get(f"{db}.child"),
            "the watermark that tells the stop",
        )
        assert stop.cause == "unfit"
        assert unit.stop() == 0, unit.output()
