"""Refused certificates have a remedy of their own, and files are reported before they expire."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pymysql
import pytest
import yaml

from consumer.errors import TargetConfigError
from consumer.targets.dialect import open_target
from consumer.targets.postgres.connection import PostgresLink
from producer.errors import SourceRefusedError
from producer.sources.source_session import source_errors
from rowlock.inspect.checks.certificate_check import NOTICE, yield_certificate_findings, yield_server_findings
from schemas.config.model import Config, TlsConfig, load_config
from schemas.io.certificates import OwnCertificate, explain_refused_certificate, probe_expiry
from schemas.io.oracle_connection import read_oracle_expiry
from tests.servers.certificates import Authority, Issued

DAY = timedelta(days=1)


class TlsServer(threading.Thread):
    """Accepts connections that begin as PostgreSQL's do (or at once with TLS), until TLS is agreed."""

    def __init__(self, issued: Issued) -> None:
        super().__init__(daemon=True)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issued.cert, issued.key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            with accepted, contextlib.suppress(OSError):
                if accepted.recv(8) == struct.pack(">II", 8, 80877103):
                    accepted.sendall(b"S")
                    self._context.wrap_socket(accepted, server_side=True).close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def tls_server(issued: Issued) -> Iterator[int]:
    server = TlsServer(issued)
    server.start()
    try:
        yield server.port
    finally:
        server.close()
        server.join()


def postgres_config(folder: Path, port: int, ca: Path) -> Config:
    raw = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "sources": {"b": {"type": "mysql", "host": "h", "user": "u", "password": "p", "tables": ["bank.*"]}},
        "targets": {
            "hq": {"type": "postgres", "host": "127.0.0.1", "port": port, "user": "u", "password": "p",
             "database": "d", "tls": {"ca": str(ca), "verify": "full"}}
        },
    }  # fmt: skip
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump(raw))
    return load_config(path)


@pytest.mark.parametrize(
    ("names", "from_now", "foreign", "remedy"),
    [
        (("127.0.0.1",), -DAY, False, "if it has expired, renew the server's certificate"),
        (("elsewhere",), DAY, False, "write the host as the server's certificate names it"),
        (("127.0.0.1",), DAY, True, "as `tls.ca`"),
    ],
    ids=["expired", "misnamed", "unknown"],
)
def test_a_target_s_certificate_is_refused_with_its_remedy_and_not_tried_for_ever(
    names: tuple[str, ...], from_now: timedelta, foreign: bool, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    issued = authority.issue(*names, until=datetime.now(UTC) + from_now)
    with tls_server(issued) as port:
        config = postgres_config(tmp_path, port, other.ca if foreign else authority.ca)
        with pytest.raises(TargetConfigError) as refused:
            open_target(config.targets["hq"], name="test")
    assert "a certificate is refused" in refused.value.problem.what
    assert remedy in refused.value.problem.action


def refused_by_python(issued: Issued, ca: Path, host: str) -> ssl.SSLCertVerificationError:
    """Return the error with which a TLS client of this Python refuses a server's certificate."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(ca))
    server.load_cert_chain(issued.cert, issued.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        with contextlib.suppress(ssl.SSLWantReadError):
            one.do_handshake()
        with contextlib.suppress(ssl.SSLWantReadError):
            other.do_handshake()
    raise AssertionError("it was not refused")


@pytest.mark.parametrize(
    ("host", "from_now", "remedy"),
    [("b1", -DAY, "renew"), ("b2", DAY, "names it"), ("b1", DAY, "as `tls.ca`")],
    ids=["expired", "misnamed", "unknown"],
)
def test_a_source_s_certificate_stops_it_instead_of_being_tried_for_ever(
    host: str, from_now: timedelta, remedy: str, tmp_path: Path
) -> None:
    """PyMySQL reports it as a server that cannot be reached, which capture waits for."""
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    issued = authority.issue("b1", until=datetime.now(UTC) + from_now)
    ca = other.ca if remedy == "as `tls.ca`" else authority.ca
    with pytest.raises(ssl.SSLCertVerificationError) as seen:
        refused_by_python(issued, ca, host)
    error: Any = pymysql.err.OperationalError(2003, f"Can't connect to MySQL server on 'b1' ({seen.value})")
    error.original_exception = seen.value
    with (
        pytest.raises(SourceRefusedError, match="a certificate is refused") as refused,
        source_errors(),
    ):
        raise error
    assert remedy in refused.value.problem.action


def test_other_errors_are_not_taken_for_a_certificate_s() -> None:
    for error in (
        pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'b' ([Errno 111] refused)"),
        ValueError("certificate"),
    ):
        assert explain_refused_certificate(error) is None
    lacking = psycopg.OperationalError("FATAL: connection requires a valid client certificate")
    assert "`tls.cert` and `tls.key`" in str(explain_refused_certificate(lacking))
    refused_here = psycopg.OperationalError("SSL error: sslv3 alert certificate expired")
    assert "tls.cert" in str(explain_refused_certificate(refused_here))


def test_a_certificate_that_does_not_identify_its_authority(tmp_path: Path) -> None:
    """Python 3.13 refuses it, and OpenSSL has no common remedy."""
    issued = Authority(tmp_path, anonymous=True).issue("localhost")
    context = ssl.create_default_context(cafile=issued.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with tls_server(issued) as port, socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(struct.pack(">II", 8, 80877103))
        plain.recv(1)
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            context.wrap_socket(plain, server_hostname="localhost")
    assert "Python 3.13" in str(explain_refused_certificate(refused.value))


def test_a_table_whose_name_has_the_words_is_no_certificate() -> None:
    missing = pymysql.err.ProgrammingError(1146, "Table 'bank.alert_certificates' doesn't exist")
    with pytest.raises(SourceRefusedError, match="the source refuses capture"), source_errors():
        raise missing


def test_files_are_reported_before_they_expire(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority(tmp_path)
    soon = authority.issue("soon", until=now + NOTICE - DAY)
    past = authority.issue("past", until=now - DAY)
    later = authority.issue("later", until=now + NOTICE + DAY)
    both = tmp_path / "authorities.pem"
    both.write_bytes(past.cert.read_bytes() + later.cert.read_bytes())
    server = {"host": "h", "user": "u", "password": "p"}
    raw = {
        "kafka": {"bootstrap": "k:1", "options": {"ssl.certificate.location": str(past.cert)}},
        "sources": {
            "b": {**server, "type": "mysql", "tables": ["bank.*"],
             "tls": {"ca": str(both), "cert": str(soon.cert), "key": str(soon.key)}},
            "c": {**server, "type": "mysql", "tables": ["bank.*"], "tls": {"ca": str(later.cert)}},
        },
    }  # fmt: skip
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(raw))
    found = list(yield_certificate_findings(load_config(tmp_path / "c.yaml"), now))
    assert [(each.level, each.message.partition(":")[0]) for each in found] == [
        ("warning", "tls.cert"),
        ("warning", "options.ssl.certificate.location"),
    ]
    assert f"expires at {now + NOTICE - DAY:%Y-%m-%d}" in found[0].message
    assert "expired at" in found[1].message


def test_a_target_of_postgresql_is_asked_for_its_certificate(tmp_path: Path) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + DAY
    issued = Authority(tmp_path).issue("127.0.0.1", until=until)
    with tls_server(issued) as port:
        config = postgres_config(tmp_path, port, issued.ca)
        target = config.targets["hq"]
        link = PostgresLink(target, "test")
        assert link.read_certificate_expiry() == until
        (found,) = yield_server_findings(config, ("targets", "hq"), target.tls, link.read_certificate_expiry)
    assert found.level == "warning"
    assert (
        f"target hq: the certificate that it presents expires at {until:%Y-%m-%d %H:%M} UTC" in found.message
    )
    (unread,) = yield_server_findings(config, ("targets", "hq"), target.tls, link.read_certificate_expiry)
    assert "target hq: its certificate cannot be read, so it is not known when it expires" in unread.message
    assert unread.level == "warning", "a start is not refused for it"
    without = target.model_copy(update={"tls": None})
    assert PostgresLink(without, "test").read_certificate_expiry() is None


def test_a_server_that_begins_no_tls_has_no_certificate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        port = server.getsockname()[1]
        asked = pool.submit(
            lambda: probe_expiry("127.0.0.1", port, OwnCertificate(), question=b"?", consent=b"S")
        )
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b"?"
            accepted.sendall(b"N")
            with pytest.raises(ConnectionError, match="does not begin TLS"):
                asked.result(60)


def test_a_server_in_the_oracle_way_is_asked_for_its_certificate(tmp_path: Path) -> None:
    """TLS begins with the first byte."""
    until = datetime.now(UTC).replace(microsecond=0) + DAY
    issued = Authority(tmp_path).issue("127.0.0.1", until=until)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            read_oracle_expiry,
            SimpleNamespace(host="127.0.0.1", port=server.getsockname()[1], tls=TlsConfig()),  # type: ignore[arg-type]
        )
        accepted, _ = server.accept()
        with accepted, contextlib.suppress(OSError):
            context.wrap_socket(accepted, server_side=True).close()
        assert asked.result(60) == until
    assert read_oracle_expiry(SimpleNamespace(tls=None)) is None  # type: ignore[arg-type]
