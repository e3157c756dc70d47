"""A statement is in the log, and delivered, before the catalog shows it: a semi-synchronous primary holds
it there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from deploy.embedded.services import EmbeddedError, MariaDB, MySQL
from producer.definitions.proof import DefinitionReader
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition
from producer.definitions.scan import make_statement_scan
from producer.sources.catalog import open_catalog
from schemas.config.model import SourceConfig
from tests.servers.semisync_replica import SemiSyncReplica

_PLUGIN = {"mariadb": [], "mysql": ["--plugin-load-add=semisync_source.so"]}
_SEMI_SYNC = {
    "mariadb": "SET GLOBAL rpl_semi_sync_master_enabled = ON, rpl_semi_sync_master_timeout = 600000,"
    " rpl_semi_sync_master_wait_point = AFTER_SYNC",
    "mysql": "SET GLOBAL rpl_semi_sync_source_enabled = ON, rpl_semi_sync_source_timeout = 600000",
}
TABLE = ("d", "t")


class Primary:
    """A semi-sync primary with table d.t, and an ALTER of it that waits for its acknowledgement."""

    def __init__(self, kind: str, service: Any) -> None:
        self.kind, self.service = kind, service
        self.source = SourceConfig.model_validate(
            {"type": kind, "host": service.host, "port": service.port, "user": "root", "password": "",
            "tables": ["d.*"]}
        )  # fmt: skip
        service.execute(_SEMI_SYNC[kind])
        self.replica = SemiSyncReplica(service.port, *self.end())
        self.session: threading.Thread | None = None

    def end(self) -> tuple[str, int]:
        row = self.service.execute(self.service.log_status)[0]
        return str(row[0]), int(row[1])

    def gtid(self) -> str | None:
        """Of the next transaction."""
        if self.kind == "mariadb":
            return None
        uuid, executed = self.service.execute("SELECT @@server_uuid, @@global.gtid_executed")[0]
        return f"{uuid}:{int(executed.rpartition('-')[2].rpartition(':')[2]) + 1}"

    def hold_alter(self) -> None:
        """Return once ALTER TABLE … ADD COLUMN w is delivered."""
        for statement in (
            "DROP DATABASE IF EXISTS d",
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
        ):
            self.service.execute(statement)
        self.next = self.gtid()
        self.replica.hold()
        alter = "ALTER TABLE d.t ADD COLUMN w INT"
        self.session = threading.Thread(target=self.service.execute, args=(alter,))
        self.session.start()
        assert self.replica.held_one.wait(60)

    def release(self) -> None:
        self.replica.release()
        if self.session is not None:
            self.session.join(60)
            assert not self.session.is_alive()
            self.session = None


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[Primary]:
    kind: Any = MariaDB if request.param == "mariadb" else MySQL
    try:
        kind.fetch()
    except EmbeddedError as error:
        pytest.skip(error.seen)
    with kind(durable=False, extra=_PLUGIN[request.param]) as service:
        found = Primary(request.param, service)
        yield found
        found.release()
        found.replica.close()


@pytest.fixture
def primary(server: Primary) -> Iterator[Primary]:
    server.hold_alter()
    yield server
    server.release()


def test_the_gap_is_real(primary: Primary) -> None:
    """MySQL shows the old definition; MariaDB does not answer."""
    if primary.kind == "mariadb":
        pytest.skip("MariaDB's catalog waits for the statement by itself")
    with closing(open_catalog(primary.source)) as catalog:
        table = catalog.tables.examine_tables([TABLE])[TABLE].table
    assert table is not None
    assert table.column_names == ("id",)


@pytest.mark.parametrize("how", ["by its GTID", "by its lock", "at a beginning"])
def test_a_definition_is_read_once_the_statement_before_it_is_visible(primary: Primary, how: str) -> None:
    file, pos = primary.end()
    place = DefinitionPlace(
        file, pos, primary.next if how == "by its GTID" else None, how == "at a beginning"
    )
    found: list[Proof] = []
    catalog = open_catalog(primary.source)
    definitions = DefinitionReader(primary.source, lambda: catalog, make_statement_scan(primary.source))
    asking = threading.Thread(target=lambda: found.append(definitions.prove_definition(place, TABLE)))
    asking.start()
    asking.join(1.5)
    assert not found, "the catalog cannot know it yet"
    primary.release()
    asking.join(30)
    catalog.close()
    (proof,) = found
    assert isinstance(proof, ProvenDefinition)
    assert proof.table is not None
    assert proof.table.column_names == ("id", "w")
