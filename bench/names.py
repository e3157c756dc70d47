"""A table with a unique name, applied to MySQL: names in Chinese against names in ASCII: python -m
bench.names.

In gbk_chinese_ci, of which a fold that does not know Chinese takes all names for equal.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.attempts import measure_apply
from consumer.tables.router import TableRoute
from deploy.embedded.services import MariaDB
from schemas.config.model import TargetConfig
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.apply import FakeSource

EVENTS, LANES, RUNS = 20_000, 4, 3
CHINESE = "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜"
ASCII = "abcdefghijklmnopqrstuvwxyz123456"


def named(letters: str, number: int) -> str:
    """Return a name of four letters; a name for each number."""
    return "".join(letters[number >> shift & 31] for shift in (15, 10, 5, 0))


def table(name: str) -> Table:
    text = ColumnType(kind=Kind.VARCHAR, length=40, charset="gbk", collation="gbk_chinese_ci")
    return Table(
        db="bank",
        name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
            Column(name="holder", type=text, nullable=False),
            Column(name="version", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        unique=(UniqueIndex(name="holder", parts=(IndexPart(column="holder"),)),),
    )


def measured(server: Any, letters: str, run: int) -> float:
    """Return the events a second of a topic of inserts, each of which takes a name."""
    source = FakeSource(table=table(f"{'a' if letters is ASCII else 'c'}{run}"))
    events = [source.definition()]
    for number in range(EVENTS):
        row = {"id": number, "holder": named(letters, number), "version": 1}
        events.append(source.event("c", None, row))
    config = TargetConfig(
        type="mariadb",
        host="127.0.0.1",
        port=server.port,
        user=server.user,
        password=server.password,
        database="bank",
    )  # type: ignore[arg-type]
    return measure_apply(config, TableRoute("bank.*", "bank.{table}"), source, events, LANES)


def main() -> None:
    with MariaDB(durable=False) as server:
        server.create_database("bank")
        measured(server, ASCII, RUNS)
        rates: dict[str, list[float]] = {ASCII: [], CHINESE: []}
        for run in range(RUNS):
            for letters, found in rates.items():
                found.append(measured(server, letters, run))
    ascii_, chinese = (statistics.median(found) for found in rates.values())
    for what, found in zip(("ASCII", "Chinese"), rates.values(), strict=True):
        print(
            f"unique names in {what}: {statistics.median(found):,.0f} events/s of "
            f"{', '.join(f'{each:,.0f}' for each in found)}"
        )
    print(f"Chinese : ASCII {chinese / ascii_:.2f}")


if __name__ == "__main__":
    main()
