"""Capture continues at a promoted MariaDB replica whose log has its GTID domains in another order, or has
others: two real servers in strict mode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka
from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet
from tests.kits.capture import refused, running, source_findings
from tests.kits.documented_user import documented_user
from tests.kits.failover_site import TABLES, Site, judge, start_replicas
from tests.kits.waiting import until
from tests.servers.mariadb_replicas import ReplicatedMariaDB
from tests.servers.mysql_replicas import ReplicatedServer


@pytest.fixture
def servers() -> Iterator[list[ReplicatedServer]]:
    """A primary and its replica."""
    with start_replicas(ReplicatedMariaDB(), ReplicatedMariaDB()) as made:
        yield made


@pytest.fixture
def site(servers: list[ReplicatedServer], kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Site]:
    made: Any = Site(servers, kafka, unique, tmp_path)
    with documented_user(made, unique, unique):
        yield made


def in_domain(site: Site, domain: int, *statements: str) -> None:
    site.change(f"SET SESSION gtid_domain_id = {domain}", *statements)


def put(site: Site, table: str, key: int) -> str:
    return f"REPLACE INTO {table} VALUES ({key}, {site.next()}, 'x')"


def await_replica(site: Site) -> None:
    until(lambda: site.replica.has_all_of(site.primary), "the replica has all")


def test_domains_in_another_order_lose_nothing_and_repeat_nothing(site: Site) -> None:
    """The replica is held up in domain 0 by a row that is locked there, while capture is down: its log has
    domain 1, of which capture has not read all, before domain 0."""
    in_domain(site, 1, put(site, "b", 1))
    with running(site.config(), "s") as unit:
        site.await_rows()
        await_replica(site)
        hold_up = site.replica.connect(site.db, autocommit=False)
        hold_up.cursor().execute("SELECT * FROM a WHERE id = 1 FOR UPDATE")
        site.replica.execute("STOP SLAVE")
        site.replica.execute(
            "SET GLOBAL slave_parallel_threads = 12, GLOBAL slave_domain_parallel_threads = 3, "
            "GLOBAL slave_parallel_mode = 'optimistic'"
        )
        site.replica.execute("START SLAVE")
        for key in range(1, 6):
            in_domain(site, 0, put(site, "a", key))
        in_domain(site, 1, put(site, "b", 2))
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    for key in range(3, 8):
        in_domain(site, 1, put(site, "b", key))
    last = f"1-{site.primary.server_id}"
    until(partial(ends_with, site, last), "domain 1 has arrived, domain 0 is held up")
    assert not site.replica.has_all_of(site.primary)
    hold_up.close()
    await_replica(site)
    site.fail_over()
    with running(site.config(), "s") as unit:
        site.await_era(1)
        site.change(*(put(site, table, 9) for table in TABLES))
        site.await_rows()
        assert not site.stops, site.record.stops
        assert unit.stop() == 0, unit.output()
    judge(site, set())


def ends_with(site: Site, stream: str) -> bool:
    """Whether both servers have the same last number of a domain and server."""
    wanted = MariadbGtidSet.parse(f"{stream}-{2**40}")
    one, other = (MariadbGtidSet.parse(server.executed).intersect(wanted) for server in site.servers)
    return one == other


def test_a_domain_that_is_added_and_one_that_is_deleted_change_nothing(site: Site) -> None:
    in_domain(site, 7, put(site, "c", 1))
    with running(site.config(), "s") as unit:
        site.await_rows()
        await_replica(site)
        for server in site.servers:
            server.purge_log()
            server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (7)")
        in_domain(site, 0, put(site, "a", 1))
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    with running(site.config(), "s") as unit:  # the same server, without the domain
        in_domain(site, 0, put(site, "a", 2))
        site.await_rows()
        in_domain(site, 5, put(site, "b", 2))
        site.await_rows()
        await_replica(site)
        site.fail_over()
        site.await_era(1)
        in_domain(site, 6, put(site, "d", 3))
        in_domain(site, 0, put(site, "a", 3))
        site.await_rows()
        assert not site.stops, site.record.stops
        assert unit.stop() == 0, unit.output()
    judge(site, set())


def skip_for_errant(site: Site) -> None:
    """Someone writes to table b of the replica directly. The primary's next transaction, on table c, has the
    same number, so the replica refuses it, and an operator skips it."""
    with site.replica.connect(site.db) as connection:
        connection.cursor().execute(put(site, "b", 77))
    found = [each.message for each in source_findings(site.config())]
    assert any("has transactions that the primary lacks" in each for each in found), found
    in_domain(site, 0, put(site, "c", 5))
    until(lambda: "strict" in site.replica.read_status()[0]["Last_SQL_Error"], "the replica refuses it")
    site.replica.execute("STOP SLAVE")
    skipped = str(site.primary.execute("SELECT @@global.gtid_binlog_pos")[0][0])
    site.replica.execute("SET GLOBAL gtid_slave_pos = %s", (skipped,))
    site.replica.execute("START SLAVE")


def test_a_skipped_transaction_that_nothing_follows_stops_its_table(site: Site) -> None:
    """The replica counts it as applied, and its log ends before the number."""
    with running(site.config(), "s") as unit:
        site.await_rows()
        await_replica(site)
        skip_for_errant(site)
        site.await_rows()
        site.fail_over()
        until(lambda: site.record.epoch == 1, f"the switch; {unit.output()[-3000:]}")
        assert site.stops == {"c"}, site.record.stops
        assert "lacks transactions on" in site.record.stops[f"{site.db}.c"].reason
        site.change(*(put(site, table, 9) for table in TABLES))
        site.await_rows({"a", "b", "d"})
        site.copy("c")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    judge(site, {"c"})


def test_errant_transactions_and_those_that_are_skipped_for_them_stop_their_tables(site: Site) -> None:
    with running(site.config(), "s") as unit:
        site.await_rows()
        await_replica(site)
        skip_for_errant(site)
        in_domain(site, 0, put(site, "a", 66))
        site.await_rows()
        until(lambda: site.replica.execute(f"SELECT 1 FROM {site.db}.a WHERE id = 66"), "the replica goes on")
        site.fail_over()
        until(lambda: site.record.epoch == 1, f"the switch; {unit.output()[-3000:]}")
        assert site.stops == {"b", "c"}, site.record.stops
        assert "were not captured" in site.record.stops[f"{site.db}.b"].reason
        assert "lacks transactions on" in site.record.stops[f"{site.db}.c"].reason
        site.change(*(put(site, table, 9) for table in TABLES))
        site.await_rows({"a", "d"})
        site.copy("b", "c")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    judge(site, {"b", "c"})


def test_without_strict_mode_hosts_are_refused(site: Site) -> None:
    site.primary.execute("SET GLOBAL gtid_strict_mode = OFF")
    why = refused(site.config())
    assert "gtid_strict_mode = OFF" in why
    assert "SET GLOBAL gtid_strict_mode = ON" in why
    found = [each.message for each in source_findings(site.config())]
    assert any("gtid_strict_mode = OFF" in each for each in found), found
    site.primary.execute("SET GLOBAL gtid_strict_mode = ON")
    with running(site.config(), "s") as unit:
        site.await_rows()
        site.primary.execute("SET GLOBAL gtid_strict_mode = OFF")
        assert unit.wait(60) == 2, unit.output()
        assert "gtid_strict_mode = OFF" in unit.output().splitlines()[-1]


def test_numbers_that_fall_stop_the_source(site: Site) -> None:
    with running(site.config(), "s") as unit:
        site.await_rows()
        await_replica(site)
        site.primary.execute("SET GLOBAL gtid_strict_mode = OFF")
        site.change("SET SESSION gtid_seq_no = 3", put(site, "a", 8))
        site.primary.execute("SET GLOBAL gtid_strict_mode = ON")
        assert unit.wait(60) == 2, unit.output()
        assert "repeat or fall" in unit.output().splitlines()[-1]
    assert "start over" in refused(site.config())
