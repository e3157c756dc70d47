"""What a statement on tables does to the rows and to the definition of each of them: pure.

An allow-list. `ACTIONS` names what is known; an action, option or form that is not in it counts as one that may have
changed any row. The list is the judgement, the table in the docs, and the cases of the test that counts rows on real servers.

Two things cannot be told from the text. Whether a column's new definition changed stored values: what the definitions before
and after say decides (`definition` "changed"). And by what a table is partitioned: REORGANIZE says it in its own clauses
(only RANGE has VALUES LESS THAN), for the others the catalogue must prove it (`needs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from producer.statements import ddl
from producer.statements.ddl import TableDdl, TableName, Token

Rows = Literal["kept", "emptied", "replaced", "gone", "unknown"]
Definition = Literal["kept", "changed"]
Needs = Literal["", "no list", "same definition", "other definition"]
"""What must be proven besides. "no list": the table is not partitioned by LIST (or by anything unknown). "same definition": rows
and values are kept if the definition comes out as it was. "other definition": nobody knows of the values if it does."""

_RANK: dict[Rows, int] = {"kept": 0, "unknown": 1, "emptied": 2, "replaced": 3, "gone": 4}


class Action(NamedTuple):
    """An action of ALTER TABLE: the words it begins with ("A|B": either), and what it does. `example`: for the test and the docs."""

    words: str
    rows: Rows
    definition: Definition = "kept"
    needs: Needs = ""
    example: str = ""
    servers: str = "both"


@dataclass(frozen=True, slots=True)
class StatementVerdict:
    """What a statement does to one table. `logged`: it changes rows and is logged as a statement; `why`: what leaves its reach
    unknown.
    """

    table: TableName
    rows: Rows
    definition: Definition = "kept"
    needs: Needs = ""
    logged: bool = False
    why: str = ""

    @property
    def keeps_definition(self) -> bool:
        """Whether the table's definition is surely the same behind it."""
        return self.definition == "kept" and self.rows in ("kept", "emptied")

    def effect(self, *, same_definition: bool) -> str | None:
        """Return "kept" if rows and values are known to be as they were."""
        return (
            "kept" if self.rows == "kept" or (self.needs == "same definition" and same_definition) else None
        )

    def stops(self, *, same_definition: bool) -> bool:
        """Whether the table cannot be followed: its rows are others now, or may be, and no new definition says so."""
        if self.rows == "unknown" and self.needs in ("same definition", "other definition"):
            return same_definition and self.needs == "other definition"
        return self.rows != "kept"


#: The first that fits counts. COLUMN and IF [NOT] EXISTS are passed over before the words behind the verb.
ACTIONS: tuple[Action, ...] = (
    Action("ADD INDEX|KEY|FULLTEXT|SPATIAL|VECTOR", "kept", example="ADD INDEX i (v)"),
    Action("ADD UNIQUE|PRIMARY", "kept", "changed", example="ADD UNIQUE u (id, v)"),
    Action("ADD CONSTRAINT|FOREIGN|CHECK", "kept", "changed", example="ADD CONSTRAINT positive CHECK (id > 0)"),
    Action("ADD PARTITION", "kept", example="ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))"),
    Action("ADD PERIOD|SYSTEM", "unknown"),
    Action("ADD", "unknown", "changed", "other definition", "ADD COLUMN w INT DEFAULT 7"),
    Action("ALTER INDEX|KEY|CHECK|CONSTRAINT", "kept", example="ALTER INDEX v_index INVISIBLE", servers="mysql"),
    Action("ALTER", "kept", "changed", example="ALTER COLUMN v SET DEFAULT 'x'"),
    Action("ANALYZE PARTITION", "kept", needs="no list", example="ANALYZE PARTITION p0"),
    Action("CHECK PARTITION", "kept", needs="no list", example="CHECK PARTITION p0"),
    Action("OPTIMIZE PARTITION", "kept", needs="no list", example="OPTIMIZE PARTITION p0"),
    Action("REBUILD PARTITION", "kept", needs="no list", example="REBUILD PARTITION p0"),
    Action("COALESCE PARTITION", "kept", example="COALESCE PARTITION 1"),
    Action("REMOVE PARTITIONING", "kept", example="REMOVE PARTITIONING"),
    Action("PARTITION BY", "kept", example="PARTITION BY HASH (id) PARTITIONS 3"),
    Action("UPGRADE PARTITIONING", "kept"),
    Action("REPAIR PARTITION", "unknown", example="REPAIR PARTITION p0"),
    Action("CHANGE", "unknown", "changed", "other definition", "CHANGE v w VARCHAR(20)"),
    Action("MODIFY", "unknown", "changed", "other definition", "MODIFY v VARCHAR(30)"),
    Action("CONVERT TO", "unknown", "changed", "same definition", "CONVERT TO CHARACTER SET utf8mb4"),
    Action("CONVERT PARTITION|TABLE", "replaced", example="CONVERT PARTITION p0 TO TABLE {other}", servers="mariadb"),
    Action("DEFAULT|CHARACTER|CHARSET|COLLATE", "kept", "changed", example="DEFAULT CHARACTER SET latin1"),
    Action("DISABLE|ENABLE KEYS", "kept", example="DISABLE KEYS"),
    Action("DISCARD", "emptied", example="DISCARD TABLESPACE"),
    Action("IMPORT", "replaced", example="IMPORT TABLESPACE"),
    Action("DROP INDEX|KEY|PRIMARY|FOREIGN|CHECK|CONSTRAINT", "kept", "changed", example="DROP INDEX v_index"),
    Action("DROP PARTITION", "emptied", example="DROP PARTITION p0"),
    Action("DROP PERIOD|SYSTEM", "unknown"),
    Action("DROP", "unknown", "changed", "other definition", "DROP COLUMN v"),
    Action("TRUNCATE PARTITION", "emptied", example="TRUNCATE PARTITION p0"),
    Action("EXCHANGE PARTITION", "replaced", example="EXCHANGE PARTITION p0 WITH TABLE {other}"),
    Action("FORCE", "kept", example="FORCE"),
    Action("ORDER BY", "kept", example="ORDER BY v, id"),
    Action("RENAME INDEX|KEY", "kept", "changed", example="RENAME INDEX v_index TO v_other"),
    Action("RENAME COLUMN", "unknown", "changed", "other definition", "RENAME COLUMN v TO w"),
    Action("WITH|WITHOUT VALIDATION", "kept"),
    Action("SECONDARY_LOAD|SECONDARY_UNLOAD", "kept"),
    Action("WAIT|NOWAIT", "kept", servers="mariadb", example="WAIT 5 FORCE"),
)  # fmt: skip

#: Table options that change no row. ENGINE only where it names InnoDB: another engine may keep no row at all.
OPTIONS: frozenset[str] = frozenset(
    {
        "ALGORITHM", "LOCK", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT",
        "COMPRESSION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "IETF_QUOTES", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS",
        "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "STATS_AUTO_RECALC",
        "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "TRANSACTIONAL",
    }
)  # fmt: skip
#: Types of which the definition says all that values depend on: MODIFY to an equal definition changes no value then.
_WHOLE_TYPES = frozenset(
    {
        "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC", "DEC", "BIT", "BOOL",
        "BOOLEAN", "CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "BINARY", "VARBINARY",
        "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR", "JSON",
    }
)  # fmt: skip
_GENERATED = frozenset(["AS", "GENERATED", "VIRTUAL", "STORED", "PERSISTENT"])


def judge(sql: str, db: str, *, escapes: bool = True) -> tuple[StatementVerdict, ...]:
    """Return what `sql`, executed with `db` as the current database, does to each table it names. Empty: it names none.

    Only for statements that `ddl.classify` takes for `TableDdl`. `escapes`: see `ddl.tokenize`.
    """
    return _judge(*ddl.read(sql, db, escapes=escapes))


def _worse(one: StatementVerdict, other: StatementVerdict) -> StatementVerdict:
    """Join what two actions of a statement do, or what two readings of it say."""
    changed: Definition = "changed" if "changed" in (one.definition, other.definition) else "kept"
    first, second = sorted((one, other), key=lambda each: (_RANK[each.rows], _STRICT.index(each.needs)))
    if second.rows == "unknown":  # without a need it is worse than any
        needs = (
            "" if any(each.rows == "unknown" and not each.needs for each in (one, other)) else second.needs
        )
        if first.rows == "kept" and first.needs == "no list":
            needs = ""
        return StatementVerdict(second.table, "unknown", changed, needs)
    return StatementVerdict(second.table, second.rows, changed, second.needs or first.needs)


_STRICT: tuple[Needs, ...] = ("", "no list", "same definition", "other definition")


def _judge(statement: ddl.Statement, tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    if not isinstance(statement, TableDdl):
        return ()
    names = tuple(dict.fromkeys(statement.tables))
    match statement.action:
        case "truncate":
            return tuple(StatementVerdict(name, "emptied") for name in names)
        case "drop":
            return tuple(StatementVerdict(name, "gone", "changed") for name in names)
        case "create":
            return _create(names[0], tokens)
        case "rename":
            return _rename(statement.renames, tokens)
        case "repair":
            return tuple(StatementVerdict(name, "unknown") for name in names)
    return _alter(names, tokens)


def _create(name: TableName, tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    words = [token.upper for token in tokens[:6]]
    if words[:3] == ["CREATE", "OR", "REPLACE"]:
        return (StatementVerdict(name, "replaced", "changed"),)
    return (StatementVerdict(name, "kept", "kept" if "EXISTS" in words else "changed"),)


def _rename(
    pairs: tuple[tuple[TableName, TableName], ...], tokens: list[Token]
) -> tuple[StatementVerdict, ...]:
    """A name that is only left is gone; one that is only taken has rows nobody has seen (`changed`); both: replaced."""
    left, taken = {old for old, _ in pairs}, {new for _, new in pairs}
    verdicts = []
    for name in dict.fromkeys(each for pair in pairs for each in pair):
        rows: Rows = "replaced" if name in left and name in taken else "gone" if name in left else "kept"
        verdicts.append(StatementVerdict(name, rows, "changed"))
    if tokens and tokens[0].upper == "ALTER" and _ignores(tokens):
        return tuple(StatementVerdict(each.table, "replaced", "changed") for each in verdicts)
    return tuple(verdicts)


def _ignores(tokens: list[Token]) -> bool:
    """Whether it is ALTER IGNORE TABLE, which removes rows that are in the way."""
    table = next((at for at, token in enumerate(tokens) if token.upper == "TABLE"), len(tokens))
    return any(token.upper == "IGNORE" for token in tokens[:table])


def _alter(names: tuple[TableName, ...], tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    verb = tokens[0].upper
    if verb in ("CREATE", "DROP"):  # an index
        plain = verb == "CREATE" and "UNIQUE" not in [token.upper for token in tokens[:5]]
        return tuple(StatementVerdict(name, "kept", "kept" if plain else "changed") for name in names)
    if _ignores(tokens):
        return tuple(StatementVerdict(name, "unknown") for name in names)
    found = [_action(piece) for piece in _pieces(_behind_name(tokens))]
    if not found:
        return tuple(StatementVerdict(name, "unknown") for name in names)
    verdict = StatementVerdict(names[0], found[0].rows, found[0].definition, found[0].needs)
    for each in found[1:]:
        verdict = _worse(verdict, StatementVerdict(names[0], each.rows, each.definition, each.needs))
    columns = {each.words for each in found if each.needs in ("same definition", "other definition")}
    if verdict.needs and len(columns) > 1:  # DROP a, ADD a: an equal definition, and every value another
        verdict = StatementVerdict(names[0], verdict.rows, "changed", "other definition")
    return tuple(StatementVerdict(name, verdict.rows, verdict.definition, verdict.needs) for name in names)


def _behind_name(tokens: list[Token]) -> list[Token]:
    """Return what follows the table's name in ALTER … TABLE [IF EXISTS] name."""
    at = next(at for at, token in enumerate(tokens) if token.upper == "TABLE") + 1
    while at < len(tokens) and tokens[at].upper in ("IF", "EXISTS"):
        at += 1
    at += 3 if at + 1 < len(tokens) and tokens[at + 1].text == "." and not tokens[at + 1].quoted else 1
    return tokens[at:]


def _pieces(tokens: list[Token]) -> Iterator[list[Token]]:
    """Divide at commas outside of parentheses; the columns that ORDER BY lists are no actions."""
    depth, pieces = 0, [[]] if tokens else []  # type: tuple[int, list[list[Token]]]
    for token in tokens:
        plain = not token.quoted and not token.string
        depth += (plain and token.text == "(") - (plain and token.text == ")")
        if plain and token.text == "," and depth == 0:
            pieces.append([])
        else:
            pieces[-1].append(token)
    yield from _joined(pieces)


def _joined(pieces: list[list[Token]]) -> Iterator[list[Token]]:
    """Put the columns that ORDER BY lists, and the partitions that a partition statement lists, back to their action."""
    whole: list[Token] | None = None
    for piece in pieces:
        words = [token.upper for token in piece[:2]]
        listed = len(piece) == 1 or words[1:] in (["ASC"], ["DESC"], ["INTO"])
        if whole is not None and listed and _lists([token.upper for token in whole[:2]]):
            whole += piece
            continue
        if whole is not None:
            yield whole
        whole = list(piece)
    if whole is not None:
        yield whole


def _lists(words: list[str]) -> bool:
    return words == ["ORDER", "BY"] or words[1:] == ["PARTITION"]


_UNKNOWN = Action("", "unknown")


def _action(piece: list[Token]) -> Action:
    """Return what a piece of ALTER TABLE does."""
    words = [token.upper for token in piece]
    if not words:
        return _UNKNOWN
    if words[0] in ("WAIT", "NOWAIT"):
        return _action(piece[2 if words[0] == "WAIT" else 1 :])
    if words[0] in OPTIONS or words[0] in _FIRST_OF_OPTIONS:
        return _options(piece)
    if words[:2] == ["REORGANIZE", "PARTITION"]:
        return _reorganize(words)
    conditional = "EXISTS" in words[:5]
    if words[0] != "RENAME":
        piece = [token for at, token in enumerate(piece) if not (0 < at < 5 and token.upper in _PASSED)]
        words = [token.upper for token in piece]
    found = next((action for action in ACTIONS if _fits(action.words, words)), _UNKNOWN)
    same = len(piece) > 2 and piece[1].text == piece[2].text  # CHANGE v v … is MODIFY v …
    stays = (found.words == "MODIFY" and _values_stay(words)) or (
        found.words == "CHANGE" and same and _values_stay(words[1:])
    )
    if stays or (found.words in ("ADD", "DROP") and conditional):
        return found._replace(needs="same definition")
    return found


_PASSED = ("COLUMN", "IF", "NOT", "EXISTS")
_FIRST_OF_OPTIONS = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "DATA", "INDEX", "ENGINE", "START")


def _fits(pattern: str, words: list[str]) -> bool:
    wanted = pattern.split()
    return len(words) >= len(wanted) and all(
        word in each.split("|") for each, word in zip(wanted, words, strict=False)
    )


def _values_stay(words: list[str]) -> bool:
    """Whether MODIFY leaves every value as it is if the definition stays the same. `words`: … name TYPE …"""
    return len(words) > 2 and words[2] in _WHOLE_TYPES and _GENERATED.isdisjoint(words)


def _reorganize(words: list[str]) -> Action:
    """By its own clauses: VALUES LESS THAN is RANGE, none at all HASH or KEY; VALUES IN and DEFAULT are LIST."""
    kinds = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "VALUES"}
    list_like = not {"DEFAULT", "HISTORY", "CURRENT"}.isdisjoint(words)
    known = kinds <= {"LESS"} and not list_like
    return Action("REORGANIZE PARTITION", "kept" if known else "unknown")


def _options(piece: list[Token]) -> Action:
    """Table options behind each other, perhaps with PARTITION BY or REMOVE PARTITIONING at the end."""
    at, definition = 0, "kept"
    while at < len(piece):
        word = piece[at].upper
        following = piece[at + 1].upper if at + 1 < len(piece) else ""
        if (word, following) in (("PARTITION", "BY"), ("REMOVE", "PARTITIONING")):
            break
        if word == "DEFAULT" and following in ("CHARACTER", "CHARSET", "COLLATE"):
            at += 1
            continue
        if word in ("CHARACTER", "CHARSET", "COLLATE"):
            definition = "changed"
            at += 2 if word == "CHARACTER" else 1
        elif word in ("DATA", "INDEX") and following == "DIRECTORY":
            at += 2
        elif (word, following) == ("START", "TRANSACTION"):
            at += 2
            continue
        elif word in OPTIONS or word == "ENGINE":
            at += 1
        else:
            return _UNKNOWN
        at += 1 if at < len(piece) and piece[at].text == "=" else 0
        if at >= len(piece) or (word == "ENGINE" and piece[at].text.upper() != "INNODB"):
            return _UNKNOWN
        at += 1
    return Action("", "kept", "changed" if definition == "changed" else "kept")
