"""A source of two MariaDB servers under one seed: what tests.sim.failover is to MySQL.

Tables belong to one of two GTID domains. A replica applies each domain in order, and the domains in any
order. Numbers rise in each domain at each server: a replica with a transaction of its own under a number that
arrives later passes over the one that arrives, as an operator would skip it. A domain of an earlier time is
known to the first server's log; the others were built from backups and have it in gtid_slave_pos alone.
"""

from __future__ import annotations

import random
import struct
from itertools import count

from producer.binlog_format import log_event as log
from producer.sources.binlog.flavour import ExecutedGtids
from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet, find_executed, has_reached_gtids
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.wire.records import Identity
from tests.sim.binlog import Binlog, Group
from tests.sim.failover import Committed, FailoverSimulation, Server
from tests.sim.wire import DB, TABLES

OLD = "7-99-3"
"""The last transaction of a domain that is no longer written."""
_OTHER_DOMAIN = frozenset(sorted(TABLES)[-1:])


class _DomainGroup(Group):
    """A transaction of any server and domain."""

    def __init__(self, binlog: Binlog, gtid: str) -> None:
        self._binlog, self._log, self._db, self._xa = binlog, binlog._log, DB, ""
        self.start, self.row, self.gtid = binlog.end, 0, gtid
        domain, server, number = map(int, gtid.split("-"))
        self._log.numbers = count(number)
        self._log.add(log.MARIADB_GTID, struct.pack("<QIB", number, domain, 0))
        self._log.events[-1] = self._log.events[-1]._replace(server_id=server)


class MariadbServer(Server):
    """A server of the source. `applied`: its gtid_slave_pos, as far as it matters."""

    mysql = False
    make_set = MariadbGtidSet

    def __init__(self, number: int, world: FailoverSimulation) -> None:
        super().__init__(number, world)
        self.applied = MariadbGtidSet.parse(OLD)
        self.numbers: dict[str, int] = {}
        if number == 1:
            self.executed_set.add_logged(OLD)
            self.before = {1: self.executed_set.copy()}

    def read_identity(self) -> Identity:
        gtids = str(self.executed_set) or None
        return Identity(server_uuid=None, server_id=self.number, version="11.4.5", gtid_set=gtids)

    def read_executed(self, captured: GtidSet) -> ExecutedGtids:
        assert isinstance(captured, MariadbGtidSet)
        assert isinstance(self.executed_set, MariadbGtidSet)
        logged = self.executed_set.copy()
        executed, unshown = find_executed(captured, logged, self.applied)
        return ExecutedGtids(executed, logged, unshown, self.applied)

    def includes(self, now: str, stored: str) -> bool:
        return has_reached_gtids(stored, now)

    def choose_tables(self, rng: random.Random) -> list[str]:
        other = rng.random() < 0.4
        return [table for table in sorted(TABLES) if (table in _OTHER_DOMAIN) == other]

    def number_transaction(self, tables: list[str]) -> str:
        domain = "1" if _OTHER_DOMAIN.issuperset(tables) else "0"
        return f"{domain}-{self.number}-{self.numbers.get(domain, 0) + 1}"

    def begin_group(self, gtid: str) -> Group:
        return _DomainGroup(self.binlog, gtid)

    def apply(self, made: Committed, rng: random.Random) -> None:
        domain, number = MariadbGtidSet.split_series(made.gtid)
        if number <= self.numbers.get(domain, 0):
            self.world.may_stop |= made.tables
            return
        self.numbers[domain] = number
        super().apply(made, rng)


class MariadbFailoverSimulation(FailoverSimulation):
    server_kind = MariadbServer

    def allows_stop(self, reason: str) -> bool:
        return "that its topic does not have" in reason  # the source was captured from there on

    def _write_directly(self) -> None:
        if self.rng.random() < 0.15:  # after many of them the replica passes over all that arrives
            self.may_stop |= self.replica.commit(self.rng, ("of a replica",), most=1).tables

    def _replicate(self) -> None:
        arrived = self.replica.arrived
        if not arrived:
            return
        domain = self.rng.choice(sorted({MariadbGtidSet.name_order(made.gtid) for made in arrived}))
        made = next(each for each in arrived if MariadbGtidSet.name_order(each.gtid) == domain)
        arrived.remove(made)
        self.replica.apply(made, self.rng)


def run_mariadb_failovers(seed: int) -> int:
    """Run one seed to its end; returns 1. Raises what went wrong."""
    try:
        MariadbFailoverSimulation(seed).run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return 1
