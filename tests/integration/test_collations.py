"""The collations of keys: what a target holds equal, the source holds equal, asked of both real servers for
every collation.

Characters and strings are stored once, in tables of both servers. Then a statement for each collation shows
how it compares them all: by their weights, and by grouping.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.embedded.services import MariaDB, MySQL
from schemas.io import mysql_catalog
from schemas.table.collations import (
    COLLATION_LANGUAGES,
    ignores_trailing_spaces,
    is_not_coarser,
    make_key_collation_chooser,
    own_name,
)
from schemas.table.model import ColumnType, Kind
from schemas.table.typemap import render_mysql_type

DATABASE = "collation_proof"
FAMILIES = ("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_unicode_520_ci")
BLOCK = 64  # characters in a row, where they do not stand alone

#: What the languages' collations are about: letters that they hold equal, contract, or put behind others.
TAILORED = ("a", "ä", "å", "æ", "c", "č", "ch", "d", "đ", "ð", "dz", "dž", "e", "g", "h", "i", "ı", "İ", "y",
"j", "k", "l", "lj", "ll",
            "ł", "n", "nj", "ñ", "o", "ö", "ő", "ø", "œ", "s", "sz", "š", "ş", "ß", "ss", "t", "th", "þ", "u",
            "ü", "ű", "v", "w", "z",
            "zs", "ž", "C", "H", "S", "Ä", "Ö")  # fmt: skip
TRIPLES = ("c", "h", "C", "d", "z", "ž", "s", "l", "n", "j", "g", "y")
#: Scripts whose letters contract: vowels that stand before, marks that join.
JOINED = (("เ", "แ", "โ"), ("ก", "ข", "ฤ")), (("ເ", "ແ"), ("ກ", "ຂ")), (("က", "ခ"),
 ("\u1031", "\u1039", "\u103a", "\u103e")), (
    ("\u0dd9", "\u0ddc"), ("\u0dca", "\u0dcf", "\u0ddf")), (("か", "カ", "ｶ"),
     ("\u3099", "ー", "\uff9e")), (("ა", "Ა"), ("ა", "Ა"))  # fmt: skip
IGNORED = (
    "\0",
    "\x01",
    "\u00ad",
    "\u200b",
    "\u0301",
    "\u034f",
    "\ufeff",
    "\ue000",
    "\U00013430",
    "\U000e0041",
)
SPACES = ("a\t", "a\u00a0", "a\u200b", " a", "  a", "", "a b", "a  b", "A b")


#: Other forms of Unicode than utf8mb4: their collations' weights are asked in rows of many characters, for
#: there are so many.
OTHER_FORMS = ("utf8mb3", "ucs2", "utf16", "utf32")


@dataclass
class CollationSamples:
    """A server with the samples. `known`: the collations that are names of its own."""

    conn: Any
    known: frozenset[str]

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with self.conn.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def fill(self, table: str, texts: Iterable[tuple[int, str]]) -> None:
        self.ask(
            f"CREATE TABLE {table} (p INT PRIMARY KEY, u VARCHAR({BLOCK}) CHARACTER SET utf8mb4 COLLATE "
            "utf8mb4_bin NOT NULL) ENGINE=MyISAM"
        )
        with self.conn.cursor() as cursor:
            for batch in _batches(texts):
                cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", batch)

    def fitting(self, table: str, charset: str) -> str:
        """Return the table of those samples that a character set holds, made when first asked for."""
        if charset == "utf8mb4":
            return table
        name = f"{table}_{charset}"
        if not self.ask(f"SHOW TABLES LIKE '{name}'"):
            back = f"CONVERT(CONVERT(u USING {charset}) USING utf8mb4)"
            self.ask(f"CREATE TABLE {name} LIKE {table}")
            self.ask(f"INSERT INTO {name} SELECT p, u FROM {table} WHERE {back} = u COLLATE utf8mb4_bin")
        return name

    def weights(self, collation: str, table: str) -> tuple[Any, ...]:
        """Return a fingerprint of the weights of all samples of a table."""
        charset = collation.partition("_")[0]
        weight = f"HEX(WEIGHT_STRING(CONVERT(u USING {charset}) COLLATE {collation}))"
        return self.ask(
            f"SELECT COUNT(*), SUM(CRC32(CONCAT(p, ':', {weight}))) FROM {self.fitting(table, charset)}"
        )[0]

    def groups(self, collation: str, table: str = "words") -> tuple[Any, ...]:
        """Return a fingerprint of which strings are equal: how many groups there are, and what they are."""
        charset = collation.partition("_")[0]
        grouped = (
            f"SELECT GROUP_CONCAT(p ORDER BY p) AS g FROM {self.fitting(table, charset)} "
            f"GROUP BY CONVERT(u USING {charset}) COLLATE {collation}"
        )
        return self.ask(f"SELECT COUNT(*), SUM(CRC32(g)) FROM ({grouped}) AS grouped")[0]

    def samples(self, collation: str, table: str) -> int:
        return int(self.ask(f"SELECT COUNT(*) FROM {self.fitting(table, collation.partition('_')[0])}")[0][0])

    def padding(self) -> dict[str, bool]:
        """Return whether each collation ignores trailing spaces."""
        found: dict[str, bool] = {}
        for names in _batches(sorted(self.known - {"binary"}), 100):
            texts = [
                [
                    f"CONVERT('{each}' USING {name.partition('_')[0]}) COLLATE {name}"
                    for each in ("a", "a ", "", "  ")
                ]
                for name in names
            ]
            for at in (0, 2):
                answers = self.ask("SELECT " + ", ".join(f"{four[at]} = {four[at + 1]}" for four in texts))[0]
                both = {name: bool(answer) for name, answer in zip(names, answers, strict=True)}
                assert all(found.get(name, answer) == answer for name, answer in both.items())
                found |= both
        return found


def _batches(items: Iterable[Any], size: int = 8192) -> Iterator[list[Any]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


def _characters(points: Iterable[int]) -> list[str]:
    return [chr(point) for point in points if not 0xD800 <= point < 0xE000]


def _words() -> list[str]:
    words = ["".join(parts) for parts in itertools.product(TAILORED, repeat=2)]
    words += ["".join(parts) for parts in itertools.product(TRIPLES, repeat=3)]
    words += [
        one + two + three
        for ones, twos in JOINED
        for one in (*ones, *twos)
        for two in (*ones, *twos)
        for three in ("", *ones, *twos)
    ]
    words += [text for char in IGNORED for text in (char, f"a{char}", f"{char}a", f"a{char}b")]
    words += SPACES
    letters = [
        *_characters(range(0xA0, 0x3100)),
        *_characters(range(0xAC00, 0xD7A4, 97)),
        *_characters(range(0xF900, 0x10000, 9)),
    ]
    for letter in letters:
        words += [
            form
            for name in ("NFD", "NFKD")
            if (form := unicodedata.normalize(name, letter)) != letter and len(form) < 9
        ]  # type: ignore[arg-type]
    # no space at the end: MariaDB groups some of those apart that it compares equal; padding() asks for them
    return list(dict.fromkeys(word for word in words if not word.endswith(" ")))


def _prepared(service: MariaDB | MySQL) -> CollationSamples:
    conn = service.connect()
    server = CollationSamples(conn, mysql_catalog.read_collations(conn))
    server.ask("SET NAMES utf8mb4")
    server.ask("SET SESSION sql_log_bin = 0, sql_mode = '', group_concat_max_len = 16000000")
    server.ask(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    server.ask(f"USE {DATABASE}")
    far = _characters(range(0x10000, 0x110000))
    near = _characters(
        range(1, 0x10000)
    )  # U+0000 is among the words: MySQL shows the weight of a space for it in tis620
    server.fill("near", enumerate(near))
    server.fill("strips", enumerate("".join(line) for line in _batches(near, BLOCK)))
    server.fill("blocks", enumerate("".join(block) for block in _batches(far, BLOCK)))
    server.fill("words", enumerate(_words()))
    return server


@pytest.fixture(scope="module")
def servers(mariadb: MariaDB, mysql: MySQL) -> Iterator[dict[str, CollationSamples]]:
    with ThreadPoolExecutor(2) as pool:
        made = dict(zip(("mariadb", "mysql"), pool.map(_prepared, (mariadb, mysql)), strict=True))
    yield made
    for server in made.values():
        server.ask(f"DROP DATABASE {DATABASE}")
        server.conn.close()


def of_both(servers: dict[str, CollationSamples], ask: Callable[[CollationSamples], Any]) -> list[Any]:
    """Ask both servers at once; MariaDB's answer comes first."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(ask, (servers["mariadb"], servers["mysql"])))


def fingerprints(server: CollationSamples, names: Sequence[str]) -> dict[str, Any]:
    return {name: _fingerprint(server, name) for name in names}


def _fingerprint(server: CollationSamples, name: str) -> list[Any]:
    if name.startswith(OTHER_FORMS):
        return [server.weights(name, table) for table in ("strips", "blocks", "words")]
    tables = ("near", "blocks") if name.startswith("utf8mb4") else ("near",)
    return [*(server.weights(name, table) for table in tables), server.groups(name)]


def text(collation: str) -> ColumnType:
    return ColumnType(kind=Kind.VARCHAR, length=9, charset=collation.partition("_")[0], collation=collation)


def test_a_name_means_the_same_on_both_servers(servers: dict[str, CollationSamples]) -> None:
    common = sorted((servers["mariadb"].known & servers["mysql"].known) - {"binary"})
    assert len(common) > 200
    assert set(FAMILIES) < set(common)
    ours, theirs = of_both(servers, lambda server: fingerprints(server, common))
    assert [name for name in common if ours[name] != theirs[name]] == []
    assert len({str(ours[name]) for name in common if name.startswith("utf8mb4")}) > 20


@pytest.mark.parametrize("collation", FAMILIES)
def test_every_single_character_of_all_planes_weighs_the_same(
    servers: dict[str, CollationSamples], collation: str
) -> None:
    for server in servers.values():
        if not server.ask("SHOW TABLES LIKE 'far'"):
            numbers = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(1, BLOCK + 1))
            server.ask("CREATE TABLE far LIKE blocks")
            server.ask(
                f"INSERT INTO far SELECT p * {BLOCK} + n, SUBSTRING(u, n, 1) FROM "
                f"blocks, ({numbers}) AS numbers"
            )
    ours, theirs = of_both(servers, lambda server: server.weights(collation, "far"))
    assert ours == theirs
    assert ours[0] == 0x100000


def test_what_a_server_means_by_a_name(servers: dict[str, CollationSamples]) -> None:
    """MariaDB says itself which of its names are other names."""
    rows = servers["mariadb"].ask(
        "SELECT collation_name, comment FROM information_schema.collations WHERE comment LIKE 'Alias for %'"
    )
    aliases = {name: comment.removeprefix("Alias for ") for name, comment in rows}
    assert len(aliases) > 2 * len(COLLATION_LANGUAGES)
    assert {name: own_name(name) for name in aliases} == aliases
    assert not any("0900" in name for name in servers["mariadb"].known)
    assert {name for name in servers["mariadb"].known if own_name(name) != name} == set()


def test_which_collations_ignore_trailing_spaces(servers: dict[str, CollationSamples]) -> None:
    for found in of_both(servers, CollationSamples.padding):
        assert {name: ignores_trailing_spaces(name) for name in found} == found
        assert set(found.values()) == {True, False}


@pytest.mark.parametrize(("source", "target"), [("mysql", "mariadb"), ("mariadb", "mysql"), ("mysql", "mysql"), ("mariadb", "mariadb")])  # fmt: skip  # noqa: E501
def test_a_key_keeps_apart_what_the_source_does(
    servers: dict[str, CollationSamples], source: str, target: str
) -> None:
    """Each gets the very same collation (proven above), or a binary one, of which no trailing space is lost
    that counted."""
    there = servers[target]
    choose = make_key_collation_chooser(there.known)
    chosen = {name: choose(text(name)) or "" for name in servers[source].known - {"binary"}}
    padding = servers[source].padding(), there.padding()
    others = {name: new for name, new in chosen.items() if new != name}
    assert (source == target) is (others == {})
    for name, new in chosen.items():
        assert padding[0][name] or not padding[1][new], (name, new)
        assert is_not_coarser(name, new)
    for new in set(others.values()):
        for table in ("near", "blocks"):
            weight = f"HEX(WEIGHT_STRING(CONVERT(u USING {new.partition('_')[0]}) COLLATE {new}))"
            [(distinct,)] = there.ask(
                f"SELECT COUNT(DISTINCT {weight}) FROM {there.fitting(table, new.partition('_')[0])}"
            )
            assert distinct == there.samples(new, table)
        if not padding[1][new]:
            assert there.groups(new)[0] == there.samples(new, "words")
    for charset, names in itertools.groupby(sorted(chosen), key=lambda name: name.partition("_")[0]):
        for batch in _batches(names, 200):  # and the server takes them
            columns = ", ".join(
                f"c{at} {render_mysql_type(text(name), choose)}" for at, name in enumerate(batch)
            )
            there.ask(f"CREATE TEMPORARY TABLE takes_{charset} ({columns})")
            there.ask(f"DROP TEMPORARY TABLE takes_{charset}")


def test_utf8mb4_compares_what_utf8mb3_holds_alike(servers: dict[str, CollationSamples]) -> None:
    for server in servers.values():
        for name in server.known:
            wider = name.replace("utf8mb3_", "utf8mb4_")
            if wider == name or wider not in server.known or name.endswith("_bin"):
                continue
            if "uca1400" not in name or name.endswith(("turkish_ai_ci", "uca1400_ai_ci")):
                assert is_not_coarser(name, wider)
                assert server.weights(name, "strips") == server.weights(wider, "strips_utf8mb3"), name


def test_what_is_near_is_not_fine_enough(servers: dict[str, CollationSamples]) -> None:
    """That the proof would see it: characters that only the near collation of the other server holds
    equal."""
    for source, target, one, other in (
        ("mysql", "mariadb", "utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci"),
        ("mysql", "mariadb", "utf8mb4_0900_as_cs", "utf8mb4_uca1400_nopad_as_cs"),
        ("mariadb", "mysql", "utf8mb4_uca1400_ai_ci", "utf8mb4_0900_ai_ci"),
        ("mariadb", "mysql", "utf8mb4_uca1400_as_cs", "utf8mb4_0900_as_cs"),
    ):
        before, after = classes(servers[source], one), classes(servers[target], other)
        lost = [p for p, first in after.items() if before[p] != before[first]]
        assert lost, (one, other)
        assert not is_not_coarser(one, other)


def classes(server: CollationSamples, collation: str) -> dict[int, int]:
    """Return for each character of the first plane the first one of its weight."""
    weight = f"HEX(WEIGHT_STRING(u COLLATE {collation}))"
    return {
        int(p): int(first)
        for p, first in server.ask(f"SELECT p, MIN(p) OVER (PARTITION BY {weight}) FROM near")
    }
