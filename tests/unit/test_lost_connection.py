"""Capture goes on after a connection to the source is lost, whichever question it was that was not
answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from producer.definitions.requests import DefinitionPlace
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.binlog.binlog_source import BinlogSource
from producer.sources.catalog import Catalog, get_flavour
from producer.sources.protocols import DefinitionProver, SourceDatabase, SourceServer, SourceTables
from producer.statements.conversions import DoubtedValues
from schemas.config.model import Config
from schemas.wire.records import Identity, StoredPosition

TABLE = ("bank", "acct")
PLACE = DefinitionPlace("binlog.000001", 4)
#: Who opens connections of its own, or asks nothing.
ASKS_NOTHING = {
    "check_source", "require_usable", "close", "open_log", "open_reader", "make_impact_finder", "connector",
    "parse_gtids", "tables", "definitions",
}  # fmt: skip


class LostConnection:
    """A connection that was alive when it was looked at, and is lost with the next question."""

    open = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def ping(self, reconnect: bool) -> None: ...

    def close(self) -> None: ...

    def cursor(self, *_: Any) -> Any:
        raise self._error


def source_of(tmp_path: Path, error: Exception) -> BinlogSource:
    config = Config.model_validate(
        {
            "state_dir": str(tmp_path),
            "kafka": {"bootstrap": "127.0.0.1:9", "prefix": "x"},
            "sources": {
                "s": {
                    "type": "mysql",
                    "host": "127.0.0.1",
                    "port": 9,
                    "user": "u",
                    "password": "",
                    "tables": ["bank.*"],
                }
            },
        }
    )
    source = BinlogSource(config, "s")
    source._catalog._open = Catalog(LostConnection(error), get_flavour(config.sources["s"]))  # type: ignore[arg-type]
    return source


def stored() -> StoredPosition:
    return StoredPosition(
        source="s", gen=1, epoch=0, file="binlog.000001", pos=4, ts_ms=0,
        identity=Identity(server_uuid="u", server_id=1, version="9.0", gtid_set=""),
    )  # fmt: skip


QUESTIONS: dict[str, Callable[[BinlogSource], Any]] = {
    "read_timed_end": lambda source: source.read_timed_end(),
    "find_nontransactional_engine": lambda source: source.find_nontransactional_engine(TABLE),
    "estimate_rows": lambda source: source.estimate_rows(TABLE),
    "open_source": lambda source: source.open_source(lambda: None),
    "find_log_end": lambda source: source.find_log_end(),
    "resume_log": lambda source: source.resume_log(stored()),
    "build_context": lambda source: source.build_context("s", 0, 1),
    "tables.names": lambda source: source.tables.names,
    "tables.list_table_names": lambda source: source.tables.list_table_names(["bank.*"]),
    "tables.examine_tables": lambda source: source.tables.examine_tables([TABLE]),
    "definitions.prove_definition": lambda source: source.definitions.prove_definition(PLACE, TABLE),
    "definitions.prove_definitions": lambda source: source.definitions.prove_definitions(PLACE, [TABLE]),
    "definitions.find_partitioning": lambda source: source.definitions.find_partitioning(PLACE, TABLE),
    "definitions.may_have_converted": lambda source: source.definitions.may_have_converted(
        PLACE, TABLE, DoubtedValues("x", certain=True)
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query"),
        pymysql.err.OperationalError(1053, "Server shutdown in progress"),
        pymysql.err.InterfaceError(0, ""),
    ],
    ids=["lost", "shutdown", "closed"],
)
def test_a_connection_that_is_lost_is_tried_again(name: str, error: Exception, tmp_path: Path) -> None:
    with pytest.raises(TransientSourceError):
        QUESTIONS[name](source_of(tmp_path, error))


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_the_server_refuses_is_said(name: str, tmp_path: Path) -> None:
    refused = pymysql.err.OperationalError(1227, "Access denied; you need REPLICATION CLIENT")
    with pytest.raises(SourceRefusedError, match="REPLICATION CLIENT"):
        QUESTIONS[name](source_of(tmp_path, refused))


def test_every_question_to_a_source_is_among_them() -> None:
    def named(protocol: type, prefix: str = "") -> set[str]:
        return {f"{prefix}{name}" for name in vars(protocol) if not name.startswith("_")}

    asked = (
        (named(SourceDatabase) | named(SourceServer)) - ASKS_NOTHING
        | named(SourceTables, "tables.")
        | named(DefinitionProver, "definitions.")
    )
    assert asked == set(QUESTIONS)
