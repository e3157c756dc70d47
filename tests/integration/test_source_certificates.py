"""A source's server presents a wrong certificate to each connection of capture: it is refused with the fault
and the remedy, and the connection is made again once the server has a right one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from producer.checks.binlog_server import require_server
from producer.errors import SourceRefusedError
from producer.snapshot.reader import ChunkReader, make_connection_opener
from producer.sources.binlog.binlog_source import LiveCatalog
from producer.sources.binlog.proven_log import ProvenLog
from producer.sources.catalog import get_flavour
from producer.sources.chunk_data import ChunkRead, ReadChunk
from producer.sources.source_session import connect_settings
from schemas.config.model import load_config
from schemas.config.servers import SourceConfig
from tests.kits.whole_run import whole_run
from tests.servers.certificates import Authority, Issued

pytestmark = pytest.mark.timeout(400)

DAY = timedelta(days=1)
HOST = "127.0.0.1"
#: Fault → its cause in the message, and its remedy.
FAULTS = {
    "expired": ("certificate has expired", "renew the server's certificate"),
    "misnamed": ("IP address mismatch", "write the host as the server's certificate names it"),
    "foreign": ("unable to get local issuer certificate", "as `tls.ca`"),
}


class SecuredSource:
    """A MariaDB with TLS, whose certificate changes while it runs."""

    def __init__(self, folder: Path) -> None:
        for name in ("ours", "theirs", "server"):
            (folder / name).mkdir()
        self._server_files = [folder / "server" / name for name in ("cert.pem", "key.pem")]
        ours, theirs = Authority(folder / "ours"), Authority(folder / "theirs", "another authority")
        self.ca = ours.ca
        self._issued = {"valid": ours.issue(HOST)}
        for fault, issue in (
            ("expired", lambda: ours.issue("127.0.0.2", HOST, until=datetime.now(UTC) - DAY)),
            ("misnamed", lambda: ours.issue("elsewhere")),
            ("foreign", lambda: theirs.issue(HOST)),
        ):
            self._issued[fault] = issue()
        self._copy(self._issued["valid"])
        cert, key = self._server_files
        self.server = MariaDB(extra=["--ssl", f"--ssl-cert={cert}", f"--ssl-key={key}"])
        self.server.start()
        self.server.execute("CREATE DATABASE bank")
        self.server.execute("CREATE TABLE bank.acct (id INT PRIMARY KEY)")
        self.server.execute("INSERT INTO bank.acct VALUES (1)")
        self.server.execute("CREATE USER app@'%' IDENTIFIED BY 'secret'")
        self.server.execute("GRANT ALL ON *.* TO app@'%'")
        source = {
            "type": "mariadb", "host": HOST, "port": self.server.port, "user": "app", "password": "secret",
            "tables": ["bank.*"], "tls": {"ca": str(self.ca), "verify": "full"},
        }  # fmt: skip
        file = folder / "c.yaml"
        file.write_text(yaml.safe_dump({"kafka": {"bootstrap": "127.0.0.1:1"}, "sources": {"b": source}}))
        self.config: SourceConfig = load_config(file).sources["b"]

    def present(self, which: str) -> None:
        """Let new connections see this certificate."""
        self._copy(self._issued[which])
        self.server.execute("FLUSH SSL")

    def _copy(self, issued: Issued) -> None:
        for made, used in zip((issued.cert, issued.key), self._server_files, strict=True):
            shutil.copy(made, used)

    def end_connections(self) -> None:
        """End the connections of `app`."""
        self.server.execute("KILL USER app")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSource]:
    made = SecuredSource(tmp_path_factory.mktemp("certificates"))
    with closing(made.server):
        yield made


def connect_catalog(source: SecuredSource) -> Callable[[], Any]:
    catalog = LiveCatalog(source.config)

    def read() -> None:
        with closing(catalog):
            assert catalog().tables.list_table_names(["bank.*"]) == [("bank", "acct")]

    return read


def connect_snapshot(source: SecuredSource) -> Callable[[], Any]:
    settings = connect_settings(source.config)
    visibility = get_flavour(source.config).visibility(settings)
    reader = ChunkReader(make_connection_opener(settings), visibility, (0, 0))
    with closing(LiveCatalog(source.config)) as catalog:
        examined = catalog().tables.examine_tables([("bank", "acct")])[("bank", "acct")]
    table = examined.table
    assert table is not None

    def read() -> None:
        with closing(reader):
            answer = reader.read_chunk(ReadChunk(1, table, None, 10, 0.0))
        assert isinstance(answer, ChunkRead), answer
        assert list(answer.rows) == [(1,)]

    return read


def connect_dump(source: SecuredSource) -> Callable[[], Any]:
    log = ProvenLog(connect_settings(source.config))
    [(file, *_), *_] = source.server.execute("SHOW BINARY LOGS")

    def read() -> None:
        log.open_at([], file, 4).close()

    return read


def connect_start(source: SecuredSource) -> Callable[[], Any]:
    return lambda: require_server(source.config, "source b")


CONNECTIONS = {
    "start": connect_start,
    "catalog": connect_catalog,
    "snapshot": connect_snapshot,
    "dump": connect_dump,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_wrong_certificate_is_refused_with_its_fault_until_it_is_replaced(
    source: SecuredSource, connection: str, fault: str
) -> None:
    source.present("valid")
    read = CONNECTIONS[connection](source)
    read()
    seen, remedy = FAULTS[fault]
    source.present(fault)
    with pytest.raises(SourceRefusedError) as refused:
        read()
    problem = refused.value.problem
    assert "a certificate is refused: " in problem.what
    assert seen in problem.what
    assert remedy in problem.action
    source.present("valid")
    read()


@pytest.mark.timeout(1000)
def test_a_run_names_an_expired_certificate_and_continues_with_a_renewed_one(
    source: SecuredSource, kafka: Kafka, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> None:
    source.present("valid")
    route = {"from": f"{unique}.*", "to": "public.{table}"}
    pipelines = {"p": {"sources": ["b"], "target": "hq", "routes": [route]}}
    tls = {"ca": str(source.ca), "verify": "full"}
    with whole_run(tmp_path, unique, kafka, {"b": source.server}, {"hq": postgres}, pipelines) as run:
        run.parts["sources"]["b"].update(user="app", password="secret", tls=tls)
        run.write_parts()
        run.change("b", "CREATE TABLE acct (id INT PRIMARY KEY)", "INSERT INTO acct VALUES (1)")
        run.run.start()
        run.arrives("SELECT id FROM acct ORDER BY id", [(1,)])
        source.present("expired")
        source.end_connections()
        run.change("b", "INSERT INTO acct VALUES (2)")

        def is_refused() -> bool:
            (found,) = run.status()["sources"]
            return (
                found["state"] == "stopped"
                and "certificate has expired" in (found["reason"] or "")
                and "renew the server's certificate" in (found["remedy"] or "")
            )

        run.run.until(is_refused, "the expired certificate and its remedy in `status`")
        source.present("valid")
        run.arrives("SELECT id FROM acct ORDER BY id", [(1,), (2,)])
