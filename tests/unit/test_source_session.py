"""What capture reads of a MySQL source over its connection: no server is needed, the rows are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from pydantic import SecretStr

from consumer.targets.mysql.connection import build_tls_arguments
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.binlog.flavour import log_point
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.server_state import ServerState
from producer.sources.source_session import SourceSession, connect_settings, source_errors
from producer.sources.table_catalog import TableCatalog
from schemas.config.servers import TlsConfig
from schemas.io.mysql_connection import build_mysql_tls_options


class Session(SourceSession):
    """A session whose statements have these answers, in order; an error is raised."""

    def __init__(self, *answers: list[dict[str, Any]] | Exception) -> None:
        super().__init__(SimpleNamespace(), SimpleNamespace(log_status=("A", "B")))  # type: ignore[arg-type]
        self.answers, self.asked = list(answers), list[str]()

    def run_query(self, sql: str, arguments: object = ()) -> list[dict[str, Any]]:
        self.asked.append(sql)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


UNKNOWN = pymysql.err.ProgrammingError(1064, "You have an error in your SQL syntax")


def test_an_older_statement_is_run_where_the_newest_is_unknown() -> None:
    session = Session(UNKNOWN, [{"x": 1}])
    assert session.run_first_known(["NEW", "OLD"]) == [{"x": 1}]
    assert session.asked == ["NEW", "OLD"]
    denied = Session(pymysql.err.ProgrammingError(1142, "denied"), [{"x": 1}])
    with pytest.raises(pymysql.err.ProgrammingError, match="denied"):
        denied.run_first_known(["NEW", "OLD"])


def test_the_end_of_the_log_is_that_of_the_status() -> None:
    status = [{"File": "binlog.000007", "Position": "4711"}]
    assert ServerState(Session(status)).log_end() == ("binlog.000007", 4711)
    assert ServerState(Session([])).log_end() is None
    assert log_point(("binlog.000007", "4711")) == (7, 4711)
    with pytest.raises(SourceRefusedError, match="the source has no binary log"):
        log_point(None)


def test_the_engine_of_a_table_is_named_if_it_has_no_transactions() -> None:
    for rows, engine in (([{"engine": "MyISAM"}], "MyISAM"), ([], None)):
        catalog: Any = SimpleNamespace(_session=Session(rows))
        assert TableCatalog.find_nontransactional_engine(catalog, ("d", "t")) == engine


def test_a_session_is_alive_while_its_server_answers() -> None:
    def refuse(*, reconnect: bool) -> None:
        raise pymysql.err.OperationalError(2013, "Lost connection")

    session = Session()
    session.connection = SimpleNamespace(ping=lambda *, reconnect: None)  # type: ignore[assignment]
    assert session.alive
    session.connection = SimpleNamespace(ping=refuse)  # type: ignore[assignment]
    assert not session.alive


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pymysql.err.OperationalError(4031, "disconnected because of inactivity"), TransientSourceError),
        (pymysql.err.OperationalError(1040, "Too many connections"), TransientSourceError),
        (pymysql.err.InterfaceError(), TransientSourceError),
        (pymysql.err.OperationalError(), SourceRefusedError),
        (pymysql.err.OperationalError(1236, "purged"), SourceRefusedError),
        (pymysql.err.OperationalError(1045, "Access denied"), SourceRefusedError),
    ],
)
def test_errors_of_a_source_are_retried_if_they_may_end(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind), source_errors():
        raise error


@pytest.mark.parametrize(
    ("verify", "cert", "identity"), [("full", True, True), ("ca", True, False), ("none", False, False)]
)
def test_tls_verifies_what_the_configuration_asks_for(verify: Any, cert: bool, identity: bool) -> None:
    """A switched check would accept any server's certificate."""
    tls = TlsConfig(ca=Path("ca.pem"), verify=verify)
    section: Any = SimpleNamespace(tls=tls, host="h", port=1, user="u", password=SecretStr("p"))
    for found in (build_tls_arguments(section), build_mysql_tls_options(section), connect_settings(section)):
        assert (found["ssl_verify_cert"], found["ssl_verify_identity"]) == (cert, identity)
        assert found["ssl_ca"] == "ca.pem"
    assert connect_settings(section)["autocommit"], "else a read lasts as a transaction"


def test_sets_of_gtids_are_equal_by_their_transactions() -> None:
    one = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    assert GtidSet.parse(f"{one}:1-3") == GtidSet.parse(f"{one}:1-2:3")
    assert GtidSet.parse(f"{one}:1-3") != GtidSet.parse(f"{one}:1-4")
    assert GtidSet.parse(f"{one}:1-3") != f"{one}:1-3"
