"""What apply keeps in a target, and the records of a Kafka target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from consumer.ordering.lanes.batches import encode_displacing
from consumer.ordering.layout import Layout, compute_fingerprint, compute_keys_fingerprint
from consumer.ordering.model import ApplyUnit, KeptRows, LaneProgress, QuarantineEntry, TargetTable, UnitState
from consumer.tables.evolution.plans import ChangeMark, decode_mark
from consumer.tables.router import TableRoute
from consumer.tables.router import compute_routes_fingerprint as routes_fingerprint
from consumer.tables.stored import StoredDefinition, _ExtraFields, decode_stored
from consumer.targets.bookkeeping import Bookkeeping, parse_lane_row, parse_quarantine_row, parse_unit_rows
from consumer.targets.displaced_rows import DisplacedRow, yield_superseded_marks
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.store.state import (
    ClosedEntry,
    KnownUnit,
    ProgressRecord,
    TopicUnits,
    encode_closed_entry,
    yield_progress_pairs,
)
from consumer.targets.mysql.dialect import SYNTAX as MYSQL
from consumer.targets.oracle.dialect import SYNTAX as ORACLE
from consumer.targets.postgres.dialect import SYNTAX as POSTGRES
from consumer.targets.sql import Fragment
from schemas.table.model import Table
from schemas.wire.copies import RemovedRows
from tests.formats.samples import sample
from tests.formats.structure import Case, Structure
from tests.kits.kafka_formats import LUCY, PLACE, READ, routed

UNIT = ApplyUnit("to-hq", "rowlock.branch1.bank.acct")
#: Statements in a plain syntax, from which the columns are taken.
BOOKS = Bookkeeping(
    "hq",
    replace(
        POSTGRES,
        insert=lambda table, columns, rows: f"{table} ({', '.join(columns)}) {rows}",
        millis=lambda column: column,
    ),
)


def compact(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _stored() -> StoredDefinition:
    return StoredDefinition(
        table=sample(Table),
        names={"age": "age_"},
        retained_columns=("old",),
        rows_missing=True,
        columns_stable_since=4711,
        emptied_at=4712,
        unmapped_columns=("extra",),
        route_names={"age": "age_"},
        snapshot=(17, 18),
        removed=sample(RemovedRows),
        has_kept_rows=True,
        sweep_since=4713,
        target_place=("public", "acct"),
    )


def _mark() -> ChangeMark:
    """The plan of an ALTER that has begun, with the definition that it leads to."""
    return ChangeMark(
        connection=81,
        at=(4711, (0, 3, 4711, 2), 12, 1_790_000_000_123),
        after=_stored().encode(),
        policy="evolve",
        columns=sample(ChangeMark).columns,
        rewrite=True,
    )


# rows of the bookkeeping tables, as JSON objects from column to value


def _row(columns: Sequence[str], values: Sequence[object]) -> bytes:
    return compact(dict(zip(columns, values, strict=True)))


def _inserted(statement: Fragment) -> bytes:
    text, values = statement
    return _row(text[text.index("(") + 1 : text.index(")")].split(", "), values)


def _selected(text: str, row: dict[str, Any]) -> list[Any]:
    """Return the values of a row in the order in which a SELECT asks for them."""
    found = re.match(r"SELECT (.*?) FROM", text)
    assert found is not None
    return [row[name] for name in found[1].split(", ") if name in row or not name.endswith(" - held_at")]


def _reader(select: Fragment, build: Callable[[list[Any]], Any]) -> Callable[[bytes], Any]:
    return lambda data: build(_selected(select[0], json.loads(data)))


def _unit_row(state: UnitState) -> bytes:
    text, values = BOOKS.units.build_update(UNIT, state)
    names = re.findall(r"(\w+) = %s", text)
    return _row([*names, "updated_at"], [*values, state.since_ms])


def _closed_row(held: QuarantineEntry) -> bytes:
    """The history copies whole rows: its columns are those of the INSERT … SELECT."""
    (copy, values), _ = BOOKS.quarantine.build_close(UNIT, [(held.offset, held.part)], "retried")
    found = re.match(r"INSERT INTO \S+ \((.*?)\) SELECT (.*), %s FROM", copy)
    assert found is not None
    return compact({"columns": found[1].split(", "), "copied": found[2].split(", "), "closed": values[0]})


def _displaced_by(lane: int) -> bytes:
    """The text in `displaced_by`, and the same once a copy has superseded it."""
    by = encode_displacing(lane, (4711, 0), (4713, 1))
    ((marked, _),) = yield_superseded_marks(
        [DisplacedRow(1, "public.acct", by)], "public.acct", 5000, "a copy"
    )
    return by.encode() + b"\n" + marked.encode()


def _displaced_row(row: tuple[str, str, str]) -> bytes:
    text = BOOKS.displaced.build_insert(1)
    return _inserted((text, [UNIT.pipeline, UNIT.topic, *row]))


def _kept_row(row: KeptRows) -> bytes:
    return _inserted(*BOOKS.kept.build_insert(UNIT, row))


def _tables(_: object) -> bytes:
    texts = {
        name: {
            table: Bookkeeping("hq", syntax).tables.build_create(table) for table in BOOKS.tables.list_names()
        }
        for name, syntax in (("mysql", MYSQL), ("oracle", ORACLE), ("postgres", POSTGRES))
    }
    return compact(texts)


# the topics of a Kafka target


def _pairs(known: KnownUnit) -> bytes:
    """The records of a unit, a line each: key and value."""
    return b"\n".join(
        b"[%b,%b]" % (key, b"null" if value is None else value)
        for key, value in yield_progress_pairs(UNIT, KnownUnit(), known)
    )


def _known(data: bytes) -> KnownUnit:
    units = TopicUnits()
    for line in data.split(b"\n"):
        key, value = json.loads(line)
        units.take_record(compact(key), compact(value))
    return units.get_unit(UNIT)


def _progress() -> KnownUnit:
    held = sample(QuarantineEntry)
    return KnownUnit(replace_version(sample(ProgressRecord)), {(held.offset, held.part): held})


def replace_version(record: ProgressRecord) -> ProgressRecord:
    """Return the record in a version that can be read: another one than the present is newer."""
    return ProgressRecord(record.lanes, record.state, record.written, 1, record.commits)


def _closed(entry: ClosedEntry) -> bytes:
    return b"[%b,%b]" % encode_closed_entry(entry)  # type: ignore[str-bytes-safe]


def _records(word: str) -> bytes:
    """Every kind of record that a format writes, a line each: key and value."""
    form = FORMATS[word](routed())
    moved = (1, "lucy", "10.50", "b2")
    found = [
        *form.build_change_records(None, LUCY, READ),
        *form.build_change_records(None, LUCY, PLACE),
        *form.build_change_records(LUCY, (1, "lucy", None, "b1"), PLACE),
        *form.build_change_records(LUCY, moved, PLACE),
        *form.build_change_records(LUCY, None, PLACE),
        *form.build_clear_records({"branch": "b1"}, PLACE),
        *form.build_clear_records(None, PLACE),
        *form.build_definition_records(routed().table, PLACE),
    ]
    parts = [(b"null" if each is None else each) for record in found for each in (record.key, record.value)]
    return b"\n".join(b"[%b,%b]" % pair for pair in dict.fromkeys(zip(parts[::2], parts[1::2], strict=True)))


def _digests(_: object) -> bytes:
    """Digests that are stored and compared: another one makes a layout, or rows of a topic, count as
    outdated."""
    table = sample(Table)
    route = TableRoute("bank.*", "public.{table}", (("branch", "{source}"),))
    layout = Layout(lanes=4, routes="r", keys="k")
    lane = layout.make_lane_hash("public.acct")
    return compact(
        {
            "routes": routes_fingerprint([route]),
            "keys": compute_keys_fingerprint([TargetTable(table, (0,), ())]),
            "value": compute_fingerprint({"b": 1, "a": [None]}),
            "lanes": [lane(folded) for folded in (b"", b"1", b"lucy", bytes(range(256)))],
        }
    )


STRUCTURES = (
    Structure(
        "layout",
        (
            Case("layout", sample(Layout), lambda it: it.encode().encode(),
             lambda it: Layout.decode(it.decode())),
            Case("digests", None, _digests, None),
        ),
        (Layout,),
    ),
    Structure(
        "stored-definition",
        (Case("definition", _stored(), lambda it: it.encode().encode(),
         lambda it: decode_stored(it.decode())),),
        (_ExtraFields, Table),
    ),
    Structure(
        "change-mark",
        (Case("alter", _mark(), lambda it: it.encode().encode(), lambda it: decode_mark(it.decode())),),
        (ChangeMark,),
    ),
    Structure("bookkeeping-tables", (Case("create", None, _tables, None),)),
    Structure(
        "rowlock_progress",
        (
            Case(
                "row",
                sample(LaneProgress),
                lambda it: _inserted(BOOKS.lanes.build_insert(UNIT, [it])),
                _reader(BOOKS.lanes.build_select(UNIT), parse_lane_row),
            ),
        ),
    ),
    Structure(
        "rowlock_unit",
        (
            Case(
                "row",
                sample(UnitState),
                _unit_row,
                _reader(BOOKS.units.build_select(UNIT), lambda row: parse_unit_rows([row])),
            ),
        ),
    ),
    Structure(
        "rowlock_quarantine",
        (
            Case(
                "row",
                sample(QuarantineEntry),
                lambda it: _inserted(*BOOKS.quarantine.build_insert(UNIT, [it])),
                _reader(BOOKS.quarantine.build_select(UNIT), parse_quarantine_row),
            ),
        ),
    ),
    Structure("rowlock_quarantine_closed", (Case("row", sample(QuarantineEntry), _closed_row, None),)),
    Structure(
        "rowlock_displaced",
        (
            Case("row", ("public.acct", "{}", "{}"), _displaced_row, None),
            Case("displaced_by", 2, _displaced_by, None),
        ),
    ),
    Structure(
        "rowlock_kept",
        (
            Case(
                "row",
                KeptRows("public.acct", ('[7,"north"]',), 4711, "ALTER TABLE acct DROP PARTITION p0"),
                _kept_row,
                None,
            ),
        ),
    ),
    Structure("progress-topic", (Case("unit", _progress(), _pairs, _known),),
     (ProgressRecord, QuarantineEntry)),
    Structure("closed-topic", (Case("entry", sample(ClosedEntry), _closed, None),), (ClosedEntry,)),
    *(Structure(f"topic-{word}", (Case("records", word, _records, None),)) for word in FORMATS),
)  # fmt: skip
