"""The rows of Oracle's type table as values of a source's events, and what a target holds of them
(tests/golden/oracle_held.jsonl)."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from functools import cache
from hashlib import blake2s
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from consumer.errors import RefusedError, TargetConfigError, TransientError
from consumer.ordering.model import NetChange, TargetTable, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.batches import BatchCommitted
from consumer.targets.checks.table_findings import check_table
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.model import Origin, Place, RecordFormat, RoutedTable
from consumer.targets.session import SqlSession
from deploy.embedded.services import Kafka
from producer.sources.oracle.table_checks import Constraint, MlogOptions, judge_oracle_table
from producer.sources.oracle.types import OracleColumn
from schemas.errors import ValueRefusedError
from schemas.table.model import Kind, Row, Table, Value
from schemas.wire.codec import decode_event
from tests.kits.kafka_target import Owner, messages, target_config
from tests.kits.targets import Lane, Target, as_target, rows_of
from tests.kits.waiting import until

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = ("postgres", "mysql", "mariadb", "oracle")
Case = dict[str, Any]


def cases() -> list[Case]:
    """Return the rows of the type table, with their numbers."""
    lines = (GOLDEN / "oracle_types.jsonl").read_text().splitlines()
    return [{"at": at, **json.loads(line)} for at, line in enumerate(lines)]


def name_of(case: Case) -> str:
    size = ",".join(str(case[each]) for each in ("size", "precision", "scale") if each in case)
    return f"{case['type']} [{size}] {shortened(str(case['given']))}"


@cache
def _images() -> dict[str, Value]:
    """The image of the event that brought all values, as it was read from the wire."""
    key_and_value = (GOLDEN / "oracle_events.jsonl").read_text().splitlines()
    return decode_event(key_and_value[1].encode()).after or {}


def value_of(case: Case) -> Value:
    return _images()[f"C{case['at']}"]


def source_table(*columns: Case) -> Table:
    """Return the table as capture reads it from Oracle's catalog: a key, and a column for each of the
    cases."""
    name = ("BANK", "ENDS")
    own = [OracleColumn("ID", "NUMBER", 22, 0, 10, 0, False, False, False)]
    own += [
        OracleColumn(
            f"C{case['at']}", case["type"], size := case.get("size", 0), size, case.get("precision"),
            case.get("scale"), True, False, False
        ) for case in columns
    ]  # fmt: skip
    log = MlogOptions(name, "MLOG$_ENDS", True, True, True, False, False)
    marks = [
        own[0]._replace(name=each) for each in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")
    ]  # fmt: skip
    survey, _ = judge_oracle_table(
        name, {name: own, log.log: [*own, *marks]}, [Constraint("PK", "P", ("ID",))], log
    )
    assert survey.table is not None, survey
    return survey.table


def held(target: Target, session: SqlSession, case: Case) -> str:
    """Write the value in each way in which rows are written, and NULL; return what the server shows, or
    "refused: …" with the reason.

    What it holds is read back as `verify` does, and must be the value of the event.
    """
    table = replace(source_table(case), db=target.schema, name=f"T{case['at']}")
    wrapped, value = as_target(table), value_of(case)
    session.create_table(table)
    assert [each.message for each in check_table(session, table) if each.level == "error"] == []
    lane = Lane.start(session, topic=table.name)
    first, other, third = ([(str(key), value), (str(key + 1), None)] for key in (1, 3, 5))
    reported: list[str] = []
    for net in (
        NetChange(wrapped, replaces=first), NetChange(wrapped, updates=first),
        NetChange(wrapped, updates=other), NetChange(wrapped, snapshot=third),
    ):  # fmt: skip
        try:
            lane.apply_net_change(net)
        except (RefusedError, ValueRefusedError) as error:
            reported.append(str(error))
    if reported:
        assert len(reported) == 4, f"some ways refuse it, and some do not: {reported}"
        return _told(case, reported[0])
    assert rows_of(session, wrapped) == target.holds(table, [*first, *other, *third])
    (shown,) = {_text(row[0]) for row in target.sql(_select(target, table))}
    return shown


def _select(target: Target, table: Table) -> str:
    """Select the value as the server itself shows it."""
    column, name = table.column_names[1], table.name
    if target.kind == "oracle":
        return f'SELECT "{column}" FROM "{name}" WHERE "ID" IN (1, 3, 5)'
    if target.kind == "postgres":
        return f'SELECT "{column}"::text FROM public."{name}" WHERE "ID" IN (1, 3, 5)'
    binary = table.columns[1].type.kind in (Kind.VARBINARY, Kind.BLOB)
    shown = f"HEX({column})" if binary else f"CAST({column} AS CHAR)"
    return f"SELECT {shown} FROM {name} WHERE ID IN (1, 3, 5)"


def _text(value: object) -> str:
    match value:
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.isoformat(" ", "microseconds")
        case float():
            return repr(value)
    return str(value)


def _told(case: Case, why: str) -> str:
    """Return a refusal, whatever number the case and whatever address and name the database has."""
    why = re.sub(r" at \S+:\d+/\w+", " at SERVER", why)
    why = re.sub(r"`t[0-9a-f]{8}`", "`DB`", why)
    number = re.compile(rf"(?<![A-Za-z0-9])([CT]){case['at']}(?![0-9])")
    return f"refused: {number.sub(lambda found: found[1], why)}"


def shortened(text: str) -> str:
    """Return a long text with its middle left out, which is its own digest."""
    if len(text) <= 200:
        return text
    return f"{text[:60]}…{blake2s(text.encode(), digest_size=8).hexdigest()}…{text[-20:]}"


# --- topics


def in_topic(kafka: Kafka, prefix: str, word: str) -> dict[int, Value]:
    """Write every value that a format takes into one topic; return what the documents have, or "refused: …",
    by the case's number.

    A row has the value of one column, and NULL in the others. What is read back as `verify` does must be the
    value of the event.
    """
    routed = ResolvedRoute(prefix, word, topic=TopicOptions(format=word, kinds=(("core", "oracle"),)))
    found: dict[int, Value] = {}
    taken: list[Case] = []
    for case in cases():
        if (why := _refused(_written(routed, case), word, case)) is None:
            taken.append(case)
        else:
            found[case["at"]] = _told(case, why)
    owner = Owner(target_config(kafka, prefix), _written(routed, *taken))
    for at, case in enumerate(taken):
        row = (str(at), *(value_of(each) if each is case else None for each in taken))
        until(lambda at=at, row=row: _committed(owner, at, row), "the broker's coordinator")  # type: ignore[misc]
    made = _format(owner.table, word)
    for case, message in zip(taken, messages(kafka, f"{prefix}.{word}"), strict=True):
        name, read = f"C{case['at']}", made.decode_state(message.key(), message.value())
        assert read is not None
        assert read.values is not None
        assert repr(read.values[name]) == repr(value_of(case)), (word, case)
        found[case["at"]] = _image(json.loads(message.value()))[name]
    return found


def _committed(owner: Owner, at: int, row: Row) -> bool:
    """Commit a row; False: no transaction could be begun yet."""
    try:
        assert owner.apply(at, (None, row)) == BatchCommitted()
    except TransientError as error:
        if "cannot be started" not in str(error):
            raise
        return False
    return True


def _written(routed: ResolvedRoute, *columns: Case) -> TargetTable:
    source = source_table(*columns)
    return build_topic_table(build_desired_table(source, routed), routed, "core", source)


def _format(table: TargetTable, word: str) -> RecordFormat:
    origin = Origin("core", "oracle", "BANK", "ENDS")
    return FORMATS[word](RoutedTable(table.table, table.key_at, table.key_at, table.name, origin))


def _refused(table: TargetTable, word: str, case: Case) -> str | None:
    try:
        _format(table, word).build_change_records(None, ("1", value_of(case)), Place((1, 2, 3, 4), 5, 1_000))
    except (TargetConfigError, RefusedError) as error:
        return str(error)
    return None


def _image(document: dict[str, Any]) -> dict[str, Any]:
    """Return a row's image in a document of any of the formats."""
    if "data" in document:
        return dict(document["data"][0])
    document = document.get("payload", document)
    return dict(document.get("after", document))
