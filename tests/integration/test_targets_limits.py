"""The suite of the servers' limits, on every kind of target, and what they mean to a unit."""

from __future__ import annotations

import re

from msgspec import structs

from schemas.problems import decode_problem
from schemas.table.model import Column, ColumnType, Kind
from schemas.wire.event import ColumnChanges
from tests.conformance import targets_limits
from tests.conformance.suite import suite
from tests.conformance.targets_limits import long_text
from tests.kits.apply import TEXT, FakeSource, account_table
from tests.kits.attempts import Real, RealUnit, reals, route_of, rows_of
from tests.kits.targets import Target, index
from tests.kits.targets import target as target

globals().update(suite(targets_limits))
real = reals("postgres", "mariadb", "mysql")


def test_a_key_beyond_the_limit_stops_its_unit_and_rejects_no_row(real: Real) -> None:
    """The key of several sources has one column more than the source's."""
    wide = ColumnType(kind=Kind.VARCHAR, length=760, **TEXT)
    table = account_table()
    columns = (*table.columns, Column(name="code", type=wide, nullable=False))
    source = FakeSource(
        structs.replace(table, columns=columns, key=index("PRIMARY", "code", "id")), name="north"
    )
    unit = RealUnit(real, source, route_of(real, branch="{source}"))
    unit.write([source.put({**source.row(1, "1@x", 1), "code": "c"})])
    report = unit.apply()
    if real.target.kind == "postgres":
        assert (report.state, report.held) == ("ok", 0)
        return
    assert (report.state, report.held) == ("stopped", 0)
    problem = decode_problem(report.message)
    assert "its key may take 3304 bytes (branch 256, code 3040, id 8), and the limit is 3072" in problem.what
    assert "shorter columns" in problem.remedy
    assert real.session.read_quarantine(unit.unit) == []


def test_a_column_beyond_the_limit_stops_its_unit_with_its_rows_kept(real: Real) -> None:
    if real.target.kind == "postgres":
        return  # a row has no limit there before it is written
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    unit.write(source.put(source.row(n, f"{n}@x", 1)) for n in range(5))
    assert unit.apply().state == "ok"
    wide = Column(name="wide", type=ColumnType(kind=Kind.VARCHAR, length=16_300, **TEXT))
    table = structs.replace(source.table, columns=(*source.table.columns, wide))
    altered = structs.replace(
        source.definition("ALTER TABLE acct ADD wide VARCHAR(16300)", table),
        columns=ColumnChanges(added=("wide",)),
        effect="kept",
    )
    unit.write([altered])
    unit.write([source.put({**source.row(9, "9@x", 1), "wide": "w"})])
    report = unit.apply(6)
    assert (report.state, report.held) == ("stopped", 0), report
    problem = decode_problem(report.message)
    assert "(wide 65202, the longest), and the limit is 65535" in problem.what
    assert "TEXT or BLOB by hand" in problem.remedy
    assert [row[0] for row in real.execute("SELECT id FROM acct ORDER BY id")] == [0, 1, 2, 3, 4]


def test_a_row_beyond_a_limit_is_quarantined_alone(real: Real) -> None:
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"
    if real.target.kind == "postgres":
        real.execute("ALTER TABLE acct ALTER owner TYPE text")
        real.execute("CREATE INDEX of_owner ON acct (owner)")
    else:
        real.execute("DROP TABLE acct")
        fill_page(real.target)
    owner = long_text(9000 if real.target.kind == "postgres" else 40)
    unit.write(source.put(source.row(n, f"{n}@x", 1)) for n in range(10))
    unit.write([source.put({**source.row(50, "50@x".rjust(60), 1), "owner": owner})])
    unit.write(source.put(source.row(n, f"{n}@x", 1)) for n in range(10, 20))
    report = unit.apply(1)
    assert (report.state, report.held) == ("ok", 1), report
    del source.rows[50]
    assert unit.rows() == rows_of(source)
    [entry] = real.session.read_quarantine(unit.unit)
    assert entry.key == "[50]"
    longest = {"owner": len(owner), "email": 60}
    first, second = sorted(longest, key=longest.__getitem__, reverse=True)
    named = f"{first} {longest[first]} bytes, {second} {longest[second]} bytes, "
    limit = "maximum size is 8191" if real.target.kind == "postgres" else "> 8126"
    assert re.search(rf"{limit}.*; longest columns of the row: {named}", entry.error), entry.error
    assert owner not in entry.error
    assert "rowlock quarantine retry" in entry.error


def fill_page(target: Target) -> None:
    """Create a table whose rows fill almost all that InnoDB takes of one."""
    session = target.open()
    session.create_table(structs.replace(account_table(), db=target.schema))
    lengths = [255] * 31 + [80]
    pads = [
        f"ADD pad{at} varchar(255) CHARACTER SET latin1 DEFAULT '{'x' * length}'"
        for at, length in enumerate(lengths)
    ]
    statements = ("SET SESSION innodb_strict_mode = OFF", f"ALTER TABLE acct {', '.join(pads)}")
    connection = target.service.connect(target.database, autocommit=True)
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()
