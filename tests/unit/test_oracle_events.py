"""Whole events with `connector: oracle`: the extremes of every type, as bytes on the wire, from a golden
file.

`python -m tests.unit.test_oracle_events > tests/golden/oracle_events.jsonl` writes it; the values themselves
are judged in tests/golden/oracle_types.jsonl.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from producer.decoders.envelope import SourceContext, TopicTail, TransactionContext
from producer.sources.changes import TransactionHeader
from producer.sources.oracle.forms import make_key_extractor, make_log_row_converter
from producer.sources.oracle.mlog import parse_log_rows
from producer.sources.oracle.rows import FILE, OracleRows
from producer.sources.oracle.table_checks import Constraint, MlogOptions, judge_oracle_table
from producer.sources.oracle.types import OracleColumn
from producer.tables import TableState, TopicState
from schemas.wire.codec import decode_event

_GOLDEN = Path(__file__).parents[1] / "golden"
NAME = ("BANK", "ENDS")
LOG = MlogOptions(NAME, "MLOG$_ENDS", True, True, True, False, False)
_NUMBERS: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _given(case: dict[str, Any]) -> Any:
    given = case["given"]
    if case["type"] in ("RAW", "BLOB"):
        return bytes.fromhex(given)
    return _NUMBERS.get(given, given) if case["type"].startswith("BINARY") else given


def lines() -> list[str]:
    """Return key and value of the events of a table with a column for each case: a row that comes, changes to
    NULLs, and goes."""
    cases = [json.loads(line) for line in (_GOLDEN / "oracle_types.jsonl").read_text().splitlines()]
    columns = [OracleColumn("ID", "NUMBER", 22, 0, 10, 0, False, False, False)]
    columns += [
        OracleColumn(f"C{i}", case["type"], size := case.get("size", 0), size, case.get("precision"),
        case.get("scale"), True, False, False)
        for i, case in enumerate(cases)
    ]  # fmt: skip
    own = [columns[0]._replace(name=name) for name in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")]
    constraints = [Constraint("ENDS_PK", "P", ("ID",))]
    survey, logged = judge_oracle_table(NAME, {NAME: columns, LOG.log: [*columns, *own]}, constraints, LOG)
    assert logged is not None, survey
    full, empty = ["7", *map(_given, cases)], ["7", *[None] * len(cases)]
    made = make_log_row_converter(logged)
    rows = [
        made([f"AAAR3sAAEAAAACXAA{number}", number, dml, kind, "281474976710657", 0, *image])
        for number, (dml, kind,
         image) in enumerate((("I", "N", full), ("U", "U", full), ("U", "N", empty), ("D", "O", empty)), 1)
    ]  # fmt: skip
    changes = OracleRows(logged.table, parse_log_rows(rows, make_key_extractor(logged), whole=True).changes)
    changes.set_position(TransactionHeader(FILE, 43, 1, 4711, None), 0)
    table = TableState(NAME, TopicState("t", TopicTail()), logged.table, (1, 0, 2, 0))
    at = TransactionContext(
        id="mlog.0:43", gtid=None, file=FILE, file_number=0, pos=43, ts_ms=1_790_000_000_000, server_id=4711,
        made_ms=1_790_000_000_012
    )  # fmt: skip
    records = changes.build_records(
        table, SourceContext(connector="oracle", name="core", epoch=1, gen=12), at
    )
    return [part.decode() for record in records for part in record]


def test_events_are_as_the_golden_file_has_them() -> None:
    assert lines() == (_GOLDEN / "oracle_events.jsonl").read_text().splitlines()


def test_they_are_read_as_the_types_say() -> None:
    cases = [json.loads(line) for line in (_GOLDEN / "oracle_types.jsonl").read_text().splitlines()]
    events = [decode_event(line.encode()) for line in lines()[1::2]]
    assert [event.op for event in events] == ["c", "u", "d"]
    assert {event.source.connector for event in events} == {"oracle"}
    image = events[0].after or {}
    assert [image[f"C{i}"] for i in range(len(cases))] == [case["wire"] for case in cases]
    assert [event.log.rows for event in events if event.log] == [
        (("AAAR3sAAEAAAACXAA1", 1),), (("AAAR3sAAEAAAACXAA2", 2), ("AAAR3sAAEAAAACXAA3", 3)),
        (("AAAR3sAAEAAAACXAA4", 4),),
    ]  # fmt: skip


if __name__ == "__main__":
    print("\n".join(lines()))
