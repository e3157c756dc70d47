"""Values that a collation may hold equal, though their bytes differ: an UPDATE from one to the other leaves
the new ones in every target.

Of each collation of both servers pairs are drawn: another case, another accent, other trailing spaces,
another text after an index's prefix. The server itself shows which of them it holds equal, and what its table
has after the UPDATE; that is what the fold and the targets are judged by. `make test` asks for a part of the
collations, `make test-all` for every one.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from consumer.ordering.fold import make_index_fold, make_key_fold
from consumer.ordering.model import NetChange, RowChange
from consumer.ordering.netchange import NetChangeReducer
from consumer.tables.router import build_target_table
from consumer.targets.session import SqlSession
from deploy.embedded.services import MariaDB, MySQL, PostgreSQL
from schemas.io.mysql_catalog import read_collations
from schemas.table.collations import make_key_collation_chooser
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.values.mysql import connect_mysql
from tests.kits.targets import Lane, Target, rows_of

PARTS = 12
DRAWN = 24
"""Pairs of each kind and collation."""
PREFIX = 3
_SPANS = (
    (0x21, 0x7F), (0xC0, 0x250), (0x370, 0x400), (0x400, 0x500), (0x531, 0x588), (0x5D0, 0x5EB),
    (0x621, 0x653), (0x905, 0x940), (0xE01, 0xE3B), (0xE40, 0xE4F), (0x10D0, 0x10F7), (0x1E00, 0x1F00),
    (0x3041, 0x3097), (0x30A1, 0x30FB), (0x4E00, 0x4E40), (0xAC00, 0xAC40), (0xFF21, 0xFF5B),
    (0xFF66, 0xFF9E),
)  # fmt: skip
CANDIDATES = [
    chr(point) for span in _SPANS for point in range(*span) if unicodedata.category(chr(point)) != "Cn"
]
Kinds = dict[str, list[tuple[str, str]]]


class Pair(NamedTuple):
    """`number`: the row; `prefix`: characters of the index, None: all."""

    number: int
    prefix: int | None
    old: str
    new: str


# --- the pairs


@dataclass
class Letters:
    """What a character set holds. `others`: letter → those that differ from it in an accent."""

    list_streams: list[str]
    cased: list[str] = field(default_factory=list)
    count_other_streams: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Sequence[str]) -> Letters:
        there, groups = set(held), defaultdict[str, list[str]](list)
        for each in held:
            groups[unicodedata.normalize("NFD", each)[0]].append(each)
        others = {
            each: [other for other in group if other != each]
            for group in groups.values()
            if len(group) > 1
            for each in group
        }
        cased = [each for each in held if each.swapcase() != each and each.swapcase() in there]
        return cls([each for each in held if each.isalpha()], cased, others)


def drawn(letters: Letters, seed: str) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, old, new): DRAWN pairs of each kind, the same ones for a seed."""
    for kind, other in (("case", _case), ("accent", _accent), ("spaces", _spaces), ("prefix", _behind)):
        rng, found = random.Random(f"{seed} {kind}"), set[tuple[str, str]]()
        while len(found) < DRAWN:
            pool = letters.list_streams if rng.random() < 0.5 else letters.list_streams[:52]
            word = "".join(rng.choices(pool, k=rng.randint(4, 8)))
            old, new = other(letters, word, rng)
            if old != new:
                found.add((old, new))
        yield from ((kind, *pair) for pair in sorted(found))


def _case(letters: Letters, word: str, rng: random.Random) -> tuple[str, str]:
    word += rng.choice(letters.cased)
    swapped = [each.swapcase() if each in letters.cased and rng.random() < 0.6 else each for each in word]
    return word, "".join(swapped)


def _accent(letters: Letters, word: str, rng: random.Random) -> tuple[str, str]:
    """Where a character set has no letter with an accent, a character that a collation may pass over is put
    in."""
    at = rng.randrange(len(word))
    if not letters.count_other_streams:
        return word, word[:at] + rng.choice("-'`") + word[at:]
    one = rng.choice([*letters.count_other_streams])
    return word[:at] + one + word[at:], word[:at] + rng.choice(letters.count_other_streams[one]) + word[at:]


def _spaces(_: Letters, word: str, rng: random.Random) -> tuple[str, str]:
    return word + " " * rng.randrange(4), word + " " * rng.randrange(4)


def _behind(letters: Letters, word: str, rng: random.Random) -> tuple[str, str]:
    """The first PREFIX characters are the same, but for their case now and then."""
    head = word[:PREFIX]
    other = head.swapcase() if rng.random() < 0.5 and set(head) <= set(letters.cased) else head
    tail = rng.choices(letters.list_streams, k=rng.randint(0, 4))
    return word, other + "".join(tail)


# --- the server that says what is equal


class Judge:
    """A source with its own tables; it is asked in its own words."""

    def __init__(self, service: MariaDB | MySQL, database: str) -> None:
        self.conn = connect_mysql(service.host, service.port, "root", "", database)
        self.known = sorted(read_collations(self.conn) - {"binary"})
        values = ",".join(f"({at}, {self.conn.escape(each)})" for at, each in enumerate(CANDIDATES))
        self.ask("CREATE TABLE candidates (n INT PRIMARY KEY, u VARCHAR(4) CHARACTER SET utf8mb4)")
        self.ask(f"INSERT INTO candidates VALUES {values}")
        self._letters: dict[str, Letters] = {}

    def ask(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.conn.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return list(cursor.fetchall())

    def letters(self, charset: str) -> Letters:
        if charset not in self._letters:
            rows = self.ask(
                f"SELECT n FROM candidates WHERE CONVERT(CONVERT(u USING {charset}) USING utf8mb4) = u "
                "COLLATE utf8mb4_bin ORDER BY n"
            )
            self._letters[charset] = Letters.of([CANDIDATES[n] for (n,) in rows])
        return self._letters[charset]

    def equal(self, collation: str, pairs: Sequence[Pair]) -> set[int]:
        """Return the numbers of the pairs that an index of `collation` holds equal."""
        text = f"VARCHAR(60) CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}"
        self.ask("DROP TEMPORARY TABLE IF EXISTS pairs")
        self.ask(f"CREATE TEMPORARY TABLE pairs (n INT PRIMARY KEY, p INT NULL, a {text}, b {text})")
        rows = ", ".join(["(%s, %s, %s, %s)"] * len(pairs))
        self.ask(f"INSERT INTO pairs VALUES {rows}", *(value for pair in pairs for value in pair))
        found = self.ask("SELECT n FROM pairs WHERE IF(p IS NULL, a = b, LEFT(a, p) = LEFT(b, p))")
        return {n for (n,) in found}

    def updated(self, collation: str, prefix: int | None) -> list[Row]:
        """Return what a table of its own has after an UPDATE of the pairs that are compared by `prefix`: key,
        unique column and another."""
        text = f"VARCHAR(60) CHARACTER SET {collation.partition('_')[0]} COLLATE {collation} NOT NULL"
        cut = f"({prefix})" if prefix else ""
        self.ask("DROP TEMPORARY TABLE IF EXISTS truth")
        self.ask(
            f"CREATE TEMPORARY TABLE truth (n INT, k {text}, u {text}, v {text}, PRIMARY KEY (n, "
            f"k{cut}), UNIQUE KEY (n, u{cut}))"
        )
        self.ask("INSERT INTO truth SELECT n, a, a, a FROM pairs WHERE p <=> %s", prefix)
        self.ask("UPDATE truth JOIN pairs USING (n) SET k = b, u = b, v = b")
        return sorted(self.ask("SELECT n, k, u, v FROM truth"))


# --- the targets


def table(schema: str, name: str, collation: str, prefix: int | None) -> Table:
    type_ = ColumnType(kind=Kind.VARCHAR, length=60, charset=collation.partition("_")[0], collation=collation)
    n = Column(name="n", type=ColumnType(kind=Kind.INT, bits=32), nullable=False)
    texts = [Column(name=each, type=type_, nullable=False) for each in "kuv"]

    def index(name: str, column: str) -> UniqueIndex:
        return UniqueIndex(name=name, parts=(IndexPart(column="n"), IndexPart(column=column, prefix=prefix)))

    return Table(
        db=schema, name=name, columns=(n, *texts), key=index("PRIMARY", "k"), unique=(index("u", "u"),)
    )


class Written:
    """A target with a session and a lane, through which changes go as the product writes them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.session: SqlSession = target.open()
        self.lane = Lane.start(self.session)
        self.choose: Callable[[ColumnType], str | None] = lambda _type: None
        if isinstance(target.service, MariaDB | MySQL):
            conn = connect_mysql(target.service.host, target.service.port, "root", "", target.database)
            self.choose = make_key_collation_chooser(read_collations(conn))
            conn.close()
        self.tables = 0

    def update(self, collation: str, pairs: Sequence[Pair], equal: set[int]) -> list[Row]:
        """Apply an INSERT and an UPDATE of each pair, and return the rows that are there then. What is
        `equal` must fold equal."""
        self.tables += 1
        expected = table(self.target.schema, f"t{self.tables}", collation, pairs[0].prefix)
        self.session.create_table(expected)
        # what the catalog shows of a collation that is kept, test_collations.py checks
        kept = self.choose(expected.get_column("k").type) == collation
        real = expected if kept else self.session.read_table(expected.db, expected.name)
        assert real is not None
        target = build_target_table(expected, real)
        rows = [((n, old, old, old), (n, new, new, new)) for n, _, old, new in pairs]
        folds = (make_key_fold(target.table), make_index_fold(target.table, target.table.unique[0]))
        apart = [
            old for old, new in rows if old[0] in equal and any(fold(old) != fold(new) for fold in folds)
        ]
        assert apart == [], f"{collation}: equal in the target, but for the fold"
        inserts = [RowChange((at, 0), None, old) for at, (old, _) in enumerate(rows)]
        updates = [RowChange((len(rows) + at, 0), old, new) for at, (old, new) in enumerate(rows)]
        for changes in (inserts, updates):
            assert self.lane.apply_net_change(NetChangeReducer(target).reduce(changes)) == 0
        found = rows_of(self.session, target)
        self.session._link.execute(f"DROP TABLE {self.target.name(expected.name)}", [])
        self.session._link.commit()
        return sorted(found, key=lambda row: (row[0], str(row)))


@pytest.fixture
def written(
    mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, mariadb_db: str, mysql_db: str, pg_db: str
) -> Iterator[dict[str, Written]]:
    targets = {
        "mysql": Target("mysql", mysql, mysql_db),
        "mariadb": Target("mariadb", mariadb, mariadb_db),
        "postgres": Target("postgres", postgres, pg_db),
    }
    yield {kind: Written(target) for kind, target in targets.items()}
    for target in targets.values():
        for session in target.sessions:
            session.close()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_an_update_between_values_that_compare_equal_leaves_the_new_ones(
    written: dict[str, Written], server: str, part: int
) -> None:
    own, (other,) = written[server], {"mysql", "mariadb"} - {server}
    judge = Judge(own.target.service, own.target.database)
    assert len(judge.known) > 250
    seen: Counter[str] = Counter()
    elsewhere = Elsewhere()
    number = 0
    for collation in judge.known[part::PARTS]:
        pairs: dict[int | None, list[Pair]] = {None: [], PREFIX: []}
        kinds: dict[int, str] = {}
        for kind, old, new in drawn(judge.letters(collation.partition("_")[0]), collation):
            number += 1
            kinds[number] = kind
            prefix = PREFIX if kind == "prefix" else None
            pairs[prefix].append(Pair(number, prefix, old, new))
        assert set(Counter(kinds.values()).values()) == {DRAWN}
        equal = judge.equal(collation, [*pairs[None], *pairs[PREFIX]])
        seen.update(kinds[n] for n in equal)
        chosen = written[other].choose(table("", "", collation, None).get_column("k").type)
        for prefix, some in pairs.items():
            expected = judge.updated(collation, prefix)
            assert own.update(collation, some, equal) == expected, collation
            elsewhere.note("postgres", "utf8mb4_bin", some, expected)
            if chosen not in (
                None,
                collation,
            ):  # one of the same name is asked for where its own server is the target
                elsewhere.note(other, str(chosen), some, expected)
    for (kind, collation, _), (some, expected) in elsewhere.all.items():
        assert written[kind].update(collation, some, set()) == sorted(expected), f"into {kind} by {collation}"
    assert all(seen[kind] >= DRAWN for kind in ("case", "accent", "spaces", "prefix")), seen
    judge.conn.close()


@dataclass
class Elsewhere:
    """The pairs of all collations for which a target has this one: it distinguishes at least what the source
    does."""

    all: dict[tuple[str, str, int | None], tuple[list[Pair], list[Row]]] = field(default_factory=dict)

    def note(self, kind: str, collation: str, pairs: Sequence[Pair], truth: Sequence[Row]) -> None:
        some, expected = self.all.setdefault((kind, collation, pairs[0].prefix), ([], []))
        some += pairs
        expected += truth


def test_a_snapshot_heals_rows_whose_bytes_differ(written: dict[str, Written]) -> None:
    """Rows that an earlier version left with the other bytes: a copy writes its rows in place, the columns of
    the key included."""
    pairs = [("a", "A"), ("é", "e"), ("x  ", "x")]
    for kind in ("mysql", "mariadb"):
        end = written[kind]
        expected = table(end.target.schema, "healed", "utf8mb4_general_ci", None)
        end.session.create_table(expected)
        real = end.session.read_table(expected.db, expected.name)
        assert real is not None
        target = build_target_table(expected, real)
        old: list[Row] = [(at, there, there, there) for at, (there, _) in enumerate(pairs)]
        new: list[Row] = [(at, read, read, read) for at, (_, read) in enumerate(pairs)]
        end.lane.apply_net_change(NetChange(target, replaces=old))
        end.lane.apply_net_change(NetChange(target, snapshot=new))
        assert sorted(rows_of(end.session, target)) == new
        end.lane.apply_net_change(NetChange(target, updates=old))
        assert sorted(rows_of(end.session, target)) == old
