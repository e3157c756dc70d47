"""Capture continues at a promoted replica: two real servers, of which one replicates the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import EmbeddedError, Kafka, MySQL
from tests.kits.capture import refused, running, source_findings
from tests.kits.documented_user import documented_user
from tests.kits.failover_site import KEYS, TABLES, Site, judge, start_replicas
from tests.kits.waiting import until
from tests.servers.mariadb_replicas import ReplicatedMariaDB
from tests.servers.mysql_replicas import ReplicatedMySQL, ReplicatedServer
from tests.services import without_mysql


@pytest.fixture(scope="module", params=["semi-sync", "async", "mariadb"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[ReplicatedServer]]:
    """A primary and its replica."""
    with made_servers(request.param) as made:
        yield made


def made_servers(kind: str) -> contextlib.AbstractContextManager[list[ReplicatedServer]]:
    if kind == "mariadb":
        return start_replicas(ReplicatedMariaDB(), ReplicatedMariaDB())
    try:
        MySQL.fetch()
    except EmbeddedError as error:
        without_mysql(error.seen)
    semi_sync = kind == "semi-sync"
    return start_replicas(ReplicatedMySQL(semi_sync=semi_sync), ReplicatedMySQL(semi_sync=semi_sync))


@pytest.fixture
def site(servers: list[ReplicatedServer], kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Site]:
    made: Any = Site(servers, kafka, unique, tmp_path)
    with documented_user(made, unique, unique):
        yield made
    made.primary.drop_database(unique)


def test_capture_follows_a_promotion_under_load_and_the_way_back(site: Site) -> None:
    ever: set[str] = set()
    healed: set[str] = set()
    with running(site.config(), "s") as unit:
        until(lambda: site.marks and site.marks[-1].idle, f"a start; {unit.output()[-3000:]}")
        for era in (1, 2):
            with site.writing():
                site.await_changes(600)
                until(lambda: len(site.events("a")) > KEYS, "capture under load")
                site.fail_over()
                site.await_era(era)
                site.await_changes(300)
            lost = site.find_lost(healed)
            until(lambda: site.marks[-1].idle, f"the end of the log; {unit.output()[-3000:]}")
            assert site.stops == set(lost), unit.output()[-5000:]
            for table, gtids in lost.items():
                reason = site.record.stops[f"{site.db}.{table}"].reason
                assert any(site.primary.make_set.split_gtid(gtid)[0] in reason for gtid in gtids)
            ever |= set(lost)
            site.await_rows(set(TABLES) - set(lost))
            judge(site, ever)
            if lost:
                site.copy(*lost)
            healed.update(*lost.values())
            site.await_rows()
            site.bring_back()
        assert unit.stop() == 0, unit.output()
    assert unit.starts == 1
    assert site.primary.is_recorded(site.record)


def test_lost_transactions_stop_exactly_their_tables_and_a_copy_heals_them(site: Site) -> None:
    if site.primary.semi_sync:
        pytest.skip("a commit that waits for the replica is not lost")
    with running(site.config(), "s") as unit:
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.stop_replicating()
        lost = [f"REPLACE INTO a VALUES ({key}, {site.next()}, 'lost')" for key in (1, 99)]
        site.change(*lost, f"UPDATE c SET v = 'lost', version = {site.next()} WHERE id = 1")
        site.await_rows()
        site.fail_over()
        site.await_era(1)
        site.change(*(f"REPLACE INTO {table} VALUES (7, {site.next()}, 'later')" for table in TABLES))
        until(lambda: site.stops == {"a", "c"}, f"stops; {unit.output()[-3000:]}")
        site.await_rows({"b", "d"})
        assert site.record.stops[f"{site.db}.a"].cause == "failover"
        assert "lacks transactions on" in site.record.stops[f"{site.db}.a"].reason
        assert "rowlock copy" in site.record.stops[f"{site.db}.a"].remedy
        site.copy("a", "c")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    site.never_goes_back("b", "d")
    site.bring_back()


def test_errant_transactions_stop_their_table_alone(site: Site) -> None:
    if site.kind == "MariaDB":
        pytest.skip("a replica in strict mode does not continue after one (test_mariadb_failover.py)")
    with running(site.config(), "s") as unit:
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.execute("SET GLOBAL super_read_only = OFF")
        site.replica.execute(f"REPLACE INTO {site.db}.b VALUES (77, {site.next()}, 'errant')")
        site.replica.refuse_writes()
        found = [each.message for each in source_findings(site.config())]
        assert any("has transactions that the primary lacks" in each for each in found), found
        site.change(*(f"REPLACE INTO {table} VALUES (5, {site.next()}, 'x')" for table in TABLES))
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.fail_over()
        until(lambda: site.record.epoch == 1 and site.stops == {"b"}, f"stops; {unit.output()[-3000:]}")
        assert "were not captured" in site.record.stops[f"{site.db}.b"].reason
        site.await_rows({"a", "c", "d"})
        site.copy("b")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    judge(site, {"b"})
    site.bring_back()


def test_a_demoted_host_that_is_alive_is_left(site: Site) -> None:
    """Nothing breaks: the former primary still sends heartbeats."""
    with running(site.config(), "s") as unit:
        site.await_rows()
        site.primary.refuse_writes()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.promote()
        site.servers.reverse()
        site.change(f"REPLACE INTO a VALUES (3, {site.next()}, 'at the new one')")
        site.await_rows()
        assert not site.stops
        assert "accepts writes now" in unit.output()
        assert unit.stop() == 0, unit.output()
    site.replica.replicate(site.primary)
    judge(site, set())


def test_two_hosts_that_accept_writes_stop_the_source(site: Site) -> None:
    until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
    site.replica.allow_writes()
    why = refused(site.config())
    assert "several servers of the source accept writes" in why
    for server in site.servers:
        assert f"{server.port} has {server.executed}" in why
    site.replica.refuse_writes()
    with running(site.config(), "s") as unit:
        site.await_rows()
        site.replica.allow_writes()
        assert unit.wait(120) == 2, unit.output()
        assert "several servers of the source accept writes" in unit.output().splitlines()[-1]
    site.replica.refuse_writes()


@pytest.mark.parametrize("kind", ["async", "mariadb"])
def test_a_purged_gap_is_refused(kind: str, kafka: Kafka, unique: str, tmp_path: Path) -> None:
    with made_servers(kind) as servers:  # of its own: no other server could replicate it afterwards
        judge_purged_gap(Site(servers, kafka, unique, tmp_path, user="root"))


def judge_purged_gap(site: Site) -> None:
    with running(site.config(), "s") as unit:
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    site.change(f"REPLACE INTO a VALUES (3, {site.next()}, 'purged')")
    until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
    site.replica.purge_log()
    site.fail_over()
    why = refused(site.config())
    assert "has purged transactions that Kafka lacks" in why
    assert "start over" in why


def test_an_open_snapshot_and_an_open_xa_transaction_go_on(site: Site) -> None:
    with running(site.config(copy_rows_per_second=2000), "s") as unit:
        site.await_rows()
        rows = ", ".join(f"({key}, {site.next()}, 'many')" for key in range(1000, 21_000))
        site.change(f"INSERT INTO d VALUES {rows}")
        site.await_rows()
        site.change(
            "XA START 'kept'", f"REPLACE INTO b VALUES (8, {site.next()}, 'kept')", "XA END 'kept'",
            "XA PREPARE 'kept'",
        )  # fmt: skip
        until(lambda: site.record.prepared_at, "the open transaction is stored")
        site.request_copy("d")
        until(lambda: 0 < site.copied("d") < 15_000, "a copy under way")
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.fail_over()
        site.await_era(1)
        assert site.record.prepared_at
        until(lambda: site.record.copies[f"{site.db}.d"].phase == "done", "the copy ends")
        site.change("XA COMMIT 'kept'")
        site.await_rows()
        assert not site.stops
        until(lambda: not site.record.prepared, "the record is past XA COMMIT")
        assert unit.stop() == 0, unit.output()
    judge(site, set())
    site.bring_back()
