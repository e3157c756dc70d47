"""Values of `add:` and names of tables that real servers consider equal are never taken for different ones:
the rows of one source would replace those of another."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pymysql
import pytest

from consumer.tables.router import ResolvedRoute
from consumer.tables.shared_tables import find_mixing_index
from deploy.embedded.services import MariaDB
from schemas.table.names import EXACT, NameRules
from tests.kits.targets import KINDS, Target, fresh

pytestmark = pytest.mark.timeout(240)
PAIRS = (
    ("HQ", "hq"), ("hq", "hq "), ("Zürich", "Zurich"), ("north", "south"), ("straße", "strasse"),
    ("branch1", "branch2"), ("北京", "上海"), ("a\u00adb", "ab"), ("ｂ1", "b1"), ("b-1", "b1"), ("07", "7"),
)  # fmt: skip
MYSQL_TYPES = (
    "VARCHAR(40) COLLATE utf8mb4_bin", "VARCHAR(40) COLLATE utf8mb4_general_ci",
    "VARCHAR(40) COLLATE utf8mb4_unicode_ci", "CHAR(40) COLLATE utf8mb4_bin",
    "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
)  # fmt: skip
TYPES = {
    "mysql": (*MYSQL_TYPES, "VARCHAR(40) COLLATE utf8mb4_0900_ai_ci", "VARCHAR(40) COLLATE utf8mb4_0900_bin"),
    "mariadb": (
        *MYSQL_TYPES,
        "VARCHAR(40) COLLATE utf8mb4_uca1400_ai_ci",
        "VARCHAR(40) COLLATE utf8mb4_nopad_bin",
    ),
    "postgres": ("text", "varchar(40)", "char(40)"),
}
FOLDING = "text COLLATE folding"
REFUSED = (psycopg.Error, pymysql.MySQLError)
DIFFERENT = {
    "mysql": "VARCHAR(40) COLLATE utf8mb4_0900_ai_ci", "mariadb": MYSQL_TYPES[1], "postgres": "text",
}  # fmt: skip


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with fresh(request.param, request) as made:
        yield made


def has_folding(target: Target) -> bool:
    """Return whether the server has collations that compare without case; a build without ICU has none."""
    try:
        target.sql(
            "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


def is_one_value(target: Target, table: str, one: str, two: str) -> bool:
    """Return whether the server takes only one row of the two; also if it cannot store a value."""
    name = target.name(table)
    target.sql(f"DELETE FROM {name}")
    target.sql(f"INSERT INTO {name} VALUES (%s, 1)", [one])
    try:
        target.sql(f"INSERT INTO {name} VALUES (%s, 1)", [two])
    except REFUSED:
        return True
    return False


def test_values_that_a_key_considers_equal_are_not_apart(target: Target) -> None:
    session, found = target.open(), 0
    more = (FOLDING,) if target.kind == "postgres" and has_folding(target) else ()
    for at, kind in enumerate((*TYPES[target.kind], *more)):
        table = f"t{at}"
        target.sql(
            f"CREATE TABLE {target.name(table)} (site {kind} NOT NULL, id INT, PRIMARY KEY (site, id))"
        )
        real = session.read_table(target.schema, table)
        assert real is not None
        for one, two in PAIRS:
            routes = [ResolvedRoute(target.schema, table, (("site", value),)) for value in (one, two)]
            mixes = find_mixing_index(real, *routes, session.column_names) is not None
            try:
                equal = is_one_value(target, table, one, two)
            except REFUSED:
                continue  # the column cannot store the first one
            assert mixes or not equal, (kind, one, two)
            found += equal
            if kind == DIFFERENT[target.kind] and (one, two) in {
                ("north", "south"),
                ("branch1", "branch2"),
                ("北京", "上海"),
            }:
                assert not mixes, (kind, one, two)
    assert found


def test_a_part_of_a_value_in_the_index_may_be_equal(target: Target) -> None:
    if target.kind == "postgres":
        return  # it has no such indexes
    name = target.name("cut")
    target.sql(
        f"CREATE TABLE {name} (site VARCHAR(40) COLLATE utf8mb4_bin, id INT, PRIMARY KEY (site(6), id))"
    )
    session = target.open()
    real = session.read_table(target.schema, "cut")
    assert real is not None
    one, two, other = (
        ResolvedRoute("d", "cut", (("site", value),)) for value in ("branch1", "branch2", "office")
    )
    assert find_mixing_index(real, one, two, session.column_names) is not None
    assert is_one_value(target, "cut", "branch1", "branch2")
    assert find_mixing_index(real, one, other, session.column_names) is None


def test_names_of_tables_are_compared_as_the_server_does(target: Target) -> None:
    assert target.open().table_names == EXACT
    for name in ("acct", "ACCT"):
        target.sql(f"CREATE TABLE {target.name(name)} (id INT PRIMARY KEY)")


def test_a_server_that_stores_names_in_lower_case_has_one_table(unique: str) -> None:
    with MariaDB(durable=False, extra=["--lower-case-table-names=1"]) as server:
        server.create_database(unique)
        folding = Target("mariadb", server, unique)
        session = folding.open()
        try:
            assert session.table_names == NameRules(folds=True)
            folding.sql(f"CREATE TABLE {folding.name('acct')} (id INT PRIMARY KEY)")
            assert session.read_table(unique, "ACCT") is not None
        finally:
            session.close()
