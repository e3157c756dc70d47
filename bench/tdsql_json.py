"""Messages of TDSQL's JSON subscription per second of processor time: decoded, assembled, their literals
read. python -m bench.tdsql_json. One core, no I/O, no threads.

Transactions of five changes of a table of ten columns (half inserts, 40 % updates, 10 % deletes), of two
sets that are interleaved by message. A message is each of a transaction's seven.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Sequence

from producer.sources.tdsql_json.assembly import AssembledTransaction, SubscriptionAssembler
from producer.sources.tdsql_json.literals import LiteralForm
from producer.sources.tdsql_json.messages import SubscribedEvent, decode_subscribed_event
from producer.sources.tdsql_json.rows import RowReader
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

TRANSACTIONS, CHANGES, ROUNDS = 20_000, 5, 5
SETS = {8810: "set_1", 8811: "set_2"}
FORM = LiteralForm(escapes="backslash", are_floats_exact=True, timestamps="+08:00")
TYPES = (
    ColumnType(kind=Kind.INT, bits=64),
    ColumnType(kind=Kind.INT, bits=32),
    ColumnType(kind=Kind.DECIMAL, precision=20, scale=2),
    *(ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4") for _ in range(4)),
    ColumnType(kind=Kind.CHAR, length=8, charset="utf8mb4"),
    ColumnType(kind=Kind.DATETIME),
    ColumnType(kind=Kind.INT, bits=8),
)


def build_table() -> Table:
    columns = tuple(Column(name=f"c{i}", type=type_) for i, type_ in enumerate(TYPES))
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="c0"),))
    return Table(db="bank", name="acct", columns=columns, key=key)


def draw_image(drawn: random.Random, key: int) -> list[str]:
    texts = [
        f"'{drawn.choice(('lucy', 'weiß', '中文', 'account'))} {drawn.randrange(10**6)}'" for _ in range(3)
    ]
    balance = f"{drawn.randrange(10**8)}.{drawn.randrange(100):02d}"
    moment = f"'2026-11-{drawn.randrange(1, 30):02d} 12:{drawn.randrange(60):02d}:30'"
    return [str(key), str(drawn.randrange(10**6)), balance, *texts, "NULL", "'branch1'", moment, "1"]


def draw_topic() -> list[bytes]:
    """Return the messages of the topic."""
    drawn = random.Random(7)
    streams: list[list[bytes]] = [[], []]
    for number in range(TRANSACTIONS):
        stream, port = streams[number % 2], 8810 + number % 2
        gtid = f"35be190b-d019-11e7-ab7a-a0423f32c22{number % 2}:{number // 2 + 1}"
        changes = [drawn.choices(("insert", "update", "delete"), (50, 40, 10))[0] for _ in range(CHANGES)]
        for index, event in enumerate(("gtid", *changes, "xid"), 1):
            message = {
                "logtype": "mysqlbinlog", "eventtype": 23, "eventtypestr": event, "db": "bank",
                "table": "acct", "localip": "127.0.0.1", "localport": port, "begintime": 1_790_000_000,
                "gtid": gtid, "event_index": str(index),
            }  # fmt: skip
            if event in ("insert", "update", "delete"):
                message["where"] = [] if event == "insert" else draw_image(drawn, number * CHANGES + index)
                message["field"] = [] if event == "delete" else draw_image(drawn, number * CHANGES + index)
            stream.append(json.dumps(message, ensure_ascii=False).encode())
    return [raw for pair in zip(*streams, strict=True) for raw in pair]


def read_topic(topic: Sequence[bytes]) -> int:
    """Return the number of rows in the topic's transactions, all read."""
    assembler, reader, rows = (
        SubscriptionAssembler({}, max_messages=100_000),
        RowReader(build_table(), FORM),
        0,
    )
    for offset, raw in enumerate(topic):
        event = decode_subscribed_event(raw)
        if not isinstance(event, SubscribedEvent):
            raise TypeError(event.problem)
        for item in assembler.push_event(SETS[event.port], event, offset):
            if not isinstance(item, AssembledTransaction):
                raise TypeError(item)
            for row in item.rows:
                if row.event.before:
                    reader.read_row(row.event.before)
                if row.event.after:
                    reader.read_row(row.event.after)
                rows += 1
    return rows


def main() -> None:
    topic = draw_topic()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)  # as capture does
    spent = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        rows = read_topic(topic)
        spent.append(time.process_time() - begin)
        if rows != TRANSACTIONS * CHANGES:
            raise ValueError(f"{rows} rows")
    best, middle = min(spent), sorted(spent)[ROUNDS // 2]
    print(
        f"{len(topic) / best:,.0f} messages per second of processor time at best, {len(topic) / middle:,.0f} "
        f"in the middle of {ROUNDS} rounds; row messages alone: {rows / best:,.0f}"
    )


if __name__ == "__main__":
    main()
