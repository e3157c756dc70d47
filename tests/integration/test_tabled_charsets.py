"""Tables in the character sets that are decoded by tables of the servers, on their whole way from MySQL and
MariaDB into PostgreSQL, MySQL and MariaDB: from a snapshot, from the log, in keys and unique indexes, as
labels,
changed while rowlock runs, and with bytes that are no text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_way import SOURCES, TARGETS, WholeWay, whole_way

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 300
TEXTS = {
    "armscii8": ["Ա", "ա(", "՜ֆ", "«Հայ»", "Երեւան", "բ"],
    "dec8": ["Œ", "ÿ", "[Ÿ]", "Å", "ñ", "µ"],
    "eucjpms": ["亜", "ｱ①", "丂", "\ue000\ue3ac", "髙～", "Ⅳ№"],
    "geostd8": ["ა", "თბილისი", "€ჵ", "‰", "№", "ბ"],
    "hp8": ["À", "Þþ", "ƒ§", "Ÿ", "±", "ß"],
    "keybcs2": ["Č", "šč", "Šš│", "ď", "ě", "≡"],
    "swe7": ["ÅÄÖ", "bår", "Ü", "É", "üa", "né"],
}
PARTS = ("plain", "keyed")


def create_tables(charset: str) -> list[str]:
    """Return the statements that make a table with this default, and one with it in its key alone."""
    first, second, *_ = TEXTS[charset]
    text = f"VARCHAR(9) CHARACTER SET {charset}"
    plain = (
        "id INT PRIMARY KEY, c CHAR(9), v VARCHAR(20), t TEXT, "
        f"e ENUM('{first}', '{second}'), s SET('{second}', '{first}', 'x')"
    )
    keyed = f"k {text}, b {text} COLLATE {charset}_bin, u {text} UNIQUE, n INT, PRIMARY KEY (k, b)"
    return [
        f"CREATE TABLE plain_{charset} ({plain}) DEFAULT CHARSET {charset}",
        f"CREATE TABLE keyed_{charset} ({keyed}) DEFAULT CHARSET utf8mb4",
    ]


def insert_rows(charset: str, numbers: range) -> Iterator[str]:
    texts = TEXTS[charset]
    for n in numbers:
        one, other = texts[n], texts[n - 1]
        label = texts[n % 2]
        yield (
            f"INSERT INTO plain_{charset} VALUES ({n}, '{one} ', '{other} ', '{one}{other}', '{label}', "
            f"'{texts[1]},{'x' if n % 2 else texts[0]}')"
        )
        yield f"INSERT INTO keyed_{charset} VALUES ('{one}', '{other}', '{one}', {n})"


@pytest.fixture
def way(
    tmp_path: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[WholeWay]:
    with whole_way(tmp_path, kafka, mysql, mariadb, postgres) as made:
        for pipeline in made.parts["pipelines"].values():
            pipeline.pop("schema_changes", None)
            pipeline.pop("repair", None)
        made.write_parts()
        yield made


def change_both(way: WholeWay, *statements: str) -> None:
    for source in SOURCES:
        way.change(source, *statements)


def await_equal(way: WholeWay, *tables: str, where: str = "TRUE") -> None:
    """Await that the targets have the rows of each table, as the source shows them."""
    for table in tables:
        for source in SOURCES:
            rows = sorted(map(repr, way.sources[source].execute(f"SELECT * FROM {table}", database=way.db)))
            for target in TARGETS:
                query = f"SELECT * FROM {table}_{source} WHERE {where}"
                way.run.until(
                    lambda target=target, query=query, rows=rows: (  # type: ignore[misc]
                        sorted(map(repr, way.read(target, query) or [])) == rows
                    ),
                    f"{table} of {source} in {target}: {rows}", PATIENCE_S,
                )  # fmt: skip


def test_texts_arrive_in_every_target(way: WholeWay) -> None:
    tables = [f"{part}_{charset}" for charset in TEXTS for part in PARTS]
    for charset in TEXTS:
        change_both(way, *create_tables(charset), *insert_rows(charset, range(3)))
    narrow = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET {})"
    change_both(way, narrow.format("narrow", "utf8mb4"), "INSERT INTO narrow VALUES (1, 'Ä'), (2, 'a[b]')")
    for source in SOURCES:
        way.sources["my"].execute(narrow.format(f"narrow_{source}", "swe7"), database=f"{way.db}_t")
    way.run.start()
    await_equal(way, *tables)
    for charset, texts in TEXTS.items():
        change_both(
            way,
            *insert_rows(charset, range(3, 6)),
            f"UPDATE plain_{charset} SET c = NULL, v = '{texts[0]}', e = '{texts[0]}' WHERE id = 1",
            f"UPDATE keyed_{charset} SET u = NULL WHERE n = 0",
            f"UPDATE keyed_{charset} SET u = '{texts[0]}', k = '{texts[4]}{texts[5][:1]}' WHERE n = 1",
            f"DELETE FROM keyed_{charset} WHERE k = '{texts[2]}'",
        )
    await_equal(way, *tables)
    change_while_running(way)
    refuse_what_is_no_text(way)
    refuse_what_does_not_fit(way)


def change_while_running(way: WholeWay) -> None:
    """Columns are added and dropped, and tables become UTF-8, or of such a set. (None with labels: both
    servers lose the characters of labels when they convert such a table.)"""
    change_both(
        way,
        "ALTER TABLE plain_hp8 DROP COLUMN t, "
        "ADD COLUMN w VARCHAR(9) CHARACTER SET keybcs2 NOT NULL DEFAULT 'č'",
        "INSERT INTO plain_hp8 (id, w) VALUES (90, 'ř')",
        "ALTER TABLE keyed_dec8 CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO keyed_dec8 VALUES ('漢Œ', 'a', '漢', 90)",
        "ALTER TABLE keyed_swe7 CONVERT TO CHARACTER SET hp8",
        "INSERT INTO keyed_swe7 VALUES ('[Ä]', '{', '[', 90)",
        "ALTER TABLE keyed_armscii8 CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO keyed_armscii8 VALUES ('漢', 'Ա', '漢', 90)",
    )
    await_equal(way, "keyed_dec8", "keyed_swe7", "keyed_armscii8")
    for source in SOURCES:
        way.arrives(f"SELECT w FROM plain_hp8_{source} WHERE id IN (1, 90) ORDER BY id", [("č",), ("ř",)])


def refuse_what_is_no_text(way: WholeWay) -> None:
    """The row waits in quarantine, and every other row passes, until the value is corrected."""
    change_both(
        way,
        "CREATE TABLE broken (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET geostd8)",
        "INSERT INTO broken VALUES (1, 'ა'), (2, CONVERT(x'81' USING geostd8)), (3, 'ბ')",
    )
    for source in SOURCES:
        way.arrives(f"SELECT id, v FROM broken_{source} ORDER BY id", [(1, "ა"), (3, "ბ")])
    change_both(way, "UPDATE broken SET v = 'გ' WHERE id = 2")
    await_equal(way, "broken")


def refuse_what_does_not_fit(way: WholeWay) -> None:
    """A target's own column in swe7 has no brackets: no `?` is written in their place."""
    change_both(way, "INSERT INTO narrow VALUES (3, 'Ö'), (4, '[')")
    for source in SOURCES:
        way.arrives(f"SELECT id, v FROM narrow_{source} ORDER BY id", [(1, "Ä"), (3, "Ö")], ("my",))
    change_both(way, "UPDATE narrow SET v = 'ä' WHERE id IN (2, 4)")
    await_equal(way, "narrow")
    found = way.verify()
    assert found
    assert all(each["equal"] for each in found.values()), found
