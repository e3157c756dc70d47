"""Classifies DDL and other statements in the log by their effect on captured tables.

A conservative classifier, not an SQL parser.

It must never take a statement as harmless by mistake. Known statements have their own classes
(`TableDdl`, `SchemaDrop`, `TransactionControl`, `HarmlessStatement`, `DmlStatement`). Everything else is
an `UnknownStatement`, which stops every captured table instead of ending the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from producer.binlog_format.statement_text import UNDECODED
from producer.statements.tokens import (
    Token,
    names_at,
    parse_table_names,
    skip_words,
    split_tokens,
)
from schemas.table.names import TableName

_HARMLESS_OBJECTS = frozenset(
    {
        "USER", "ROLE", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "SERVER", "SEQUENCE", "PACKAGE",
        "TABLESPACE", "LOGFILE", "REFERENCE", "UNDO", "LIBRARY", "INSTANCE", "RESOURCE",
    }
)  # fmt: skip
_HARMLESS_VERBS = frozenset(
    {
        "GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM", "SET", "USE", "SHOW",
        "EXPLAIN", "INSTALL", "UNINSTALL", "RESET", "PURGE", "KILL", "CACHE", "SIGNAL", "HELP", "LOCK",
        "UNLOCK",
    }
)  # fmt: skip
_DML_VERBS = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "VALUES", "MERGE", "DO"}
)
_MODIFIERS = frozenset(
    {
        "OR", "REPLACE", "TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "JSON", "RELATIONAL",
        "DUALITY", "ONLINE", "OFFLINE", "IGNORE", "ALGORITHM", "UNDEFINED", "MERGE", "TEMPTABLE", "DEFINER",
        "CURRENT_USER", "CURRENT_ROLE", "SQL", "SECURITY", "INVOKER", "AGGREGATE", "=", "@", "(", ")", ".",
        "%",
    }
)  # fmt: skip
CONTROL_VERBS = frozenset({"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"})
"""The first words of transaction control."""

_BRACKET = Token("[", quoted=False)


@dataclass(frozen=True, slots=True)
class TransactionControl:
    """Transaction control. `xid`: the text after XA COMMIT and the like, without blanks."""

    verb: Literal[
        "begin", "commit", "rollback", "savepoint", "rollback_to",
        "xa_start", "xa_end", "xa_prepare", "xa_commit", "xa_rollback",
    ]  # fmt: skip
    xid: str = ""


TableAction = Literal["create", "alter", "drop", "rename", "truncate", "repair"]


@dataclass(frozen=True, slots=True)
class TableDdl:
    """A statement on named tables. For a rename `tables` has the old and the new names."""

    action: TableAction
    tables: tuple[TableName, ...]
    renames: tuple[tuple[TableName, TableName], ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaDrop:
    db: str


@dataclass(frozen=True, slots=True)
class HarmlessStatement:
    """A statement that cannot change rows or definitions of a table.

    `objects`: it may change views, triggers or routines.
    """

    objects: bool = False


@dataclass(frozen=True, slots=True)
class TriggerCreation(HarmlessStatement):
    """CREATE TRIGGER … AFTER `event` ON `table`, which changes no row by itself.

    `words`: every identifier in it.
    """

    table: TableName = ("", "")
    event: str = ""
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DmlStatement:
    """A change of rows that is logged as a statement, which is legal for temporary tables only.

    `words`: every identifier in it.
    """

    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class UnknownStatement:
    db: str


StatementKind = (
    TransactionControl | TableDdl | SchemaDrop | HarmlessStatement | DmlStatement | UnknownStatement
)


def classify_tokens(tokens: Sequence[Token], default_db: str) -> StatementKind:
    """Return the kind of a statement that was executed with `default_db` as the current database.
    Never raises.
    """
    kind = _classify_by_verb(tokens, default_db)
    return kind if _is_readable(kind, tokens) else UnknownStatement(default_db)


def _is_readable(kind: StatementKind, tokens: Sequence[Token]) -> bool:
    """Return whether the server read the same names: they are decoded, and not in brackets (MariaDB's
    sql_mode MSSQL).
    """
    match kind:
        case TableDdl():
            names = [part for name in kind.tables for part in name]
        case SchemaDrop():
            names = [kind.db]
        case DmlStatement():
            names = []
        case _:
            return True
    return not any(UNDECODED in name for name in names) and _BRACKET not in tokens


def _classify_by_verb(tokens: Sequence[Token], db: str) -> StatementKind:
    verb = tokens[0].upper if tokens else ""
    control = _classify_control(verb, tokens)
    if control is not None:
        return control
    if verb in _DML_VERBS or (verb in ("ANALYZE", "EXPLAIN") and _runs_a_change(tokens)):
        return DmlStatement(frozenset(token.text for token in tokens))
    if verb in ("CREATE", "ALTER", "DROP"):
        return _classify_object_ddl(verb, tokens, db)
    if verb == "RENAME" and len(tokens) > 1:
        return _classify_rename(tokens, db)
    if verb == "TRUNCATE":
        names = parse_table_names(skip_words(tokens[1:], "TABLE"), db)[:1]
        return TableDdl("truncate", tuple(names)) if names else UnknownStatement(db)
    if verb == "REPAIR":
        names = parse_table_names(
            skip_words(tokens[1:], "NO_WRITE_TO_BINLOG", "LOCAL", "TABLE", "TABLES"), db
        )
        return TableDdl("repair", tuple(names)) if names else UnknownStatement(db)
    if not tokens or verb in _HARMLESS_VERBS:
        return HarmlessStatement()
    return UnknownStatement(db)


def _runs_a_change(tokens: Sequence[Token]) -> bool:
    """Return whether ANALYZE or EXPLAIN executes a change.

    MariaDB's ANALYZE <statement> does; ANALYZE TABLE … UPDATE HISTOGRAM (MySQL) does not.
    """
    if tokens[1:] and tokens[1].upper in ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"):
        return False
    return any(token.upper in _DML_VERBS for token in tokens[1:6])


def _classify_control(verb: str, tokens: Sequence[Token]) -> StatementKind | None:
    second = tokens[1].upper if len(tokens) > 1 else ""
    if verb == "BEGIN" or (verb == "START" and second == "TRANSACTION"):
        return TransactionControl("begin")
    if verb == "COMMIT":
        return TransactionControl("commit")
    if verb == "ROLLBACK":
        return TransactionControl(
            "rollback_to" if "TO" in (token.upper for token in tokens[1:3]) else "rollback"
        )
    if verb in ("SAVEPOINT", "RELEASE"):
        return TransactionControl("savepoint")
    if verb == "XA":
        return _classify_xa(second, tokens)
    return None


def _classify_xa(second: str, tokens: Sequence[Token]) -> StatementKind:
    xid = "".join(token.text for token in tokens[2:] if token.upper not in ("ONE", "PHASE"))
    match second:
        case "START" | "BEGIN":
            return TransactionControl("xa_start", xid)
        case "END":
            return TransactionControl("xa_end", xid)
        case "PREPARE":
            return TransactionControl("xa_prepare", xid)
        case "COMMIT":
            return TransactionControl("xa_commit", xid)
        case "ROLLBACK":
            return TransactionControl("xa_rollback", xid)
    return UnknownStatement("")


def _classify_object_ddl(verb: str, tokens: Sequence[Token], db: str) -> StatementKind:
    at = _find_object_word(tokens)
    kind = tokens[at].upper if at < len(tokens) else ""
    rest = tokens[at + 1 :]
    if any(token.upper == "TEMPORARY" for token in tokens[1:at]):
        selects = any(token.upper == "SELECT" for token in rest)  # which also runs the functions in it
        return (
            DmlStatement(frozenset(token.text for token in tokens))
            if verb == "CREATE" and selects
            else HarmlessStatement()
        )
    if kind in ("TABLE", "TABLES"):
        return _classify_table_ddl(verb, rest, db)
    if kind == "INDEX":
        return _classify_index_ddl(rest, db)
    if kind in ("DATABASE", "SCHEMA"):
        names = parse_table_names(rest, "")
        if verb != "DROP":
            return HarmlessStatement()
        return SchemaDrop(names[0][1]) if names else UnknownStatement(db)
    if kind == "TRIGGER" and verb == "CREATE":
        return _classify_trigger(tokens, rest, db)
    if kind in _HARMLESS_OBJECTS:
        return HarmlessStatement(objects=kind in _CODE)
    return UnknownStatement(db)


def _classify_trigger(tokens: Sequence[Token], rest: Sequence[Token], db: str) -> StatementKind:
    """Classify CREATE TRIGGER [IF NOT EXISTS] name AFTER event ON table …; any other form is a trigger
    without details.
    """
    rest = skip_words(rest, "IF", "NOT", "EXISTS")
    name, at = names_at(rest, 0)
    words = [token.upper for token in rest[at : at + 3]]
    table, _ = names_at(rest, at + 3)
    if name is None or table is None or words[:1] != ["AFTER"] or words[2:] != ["ON"]:
        return HarmlessStatement(objects=True)
    of = (table[0] or name[0] or db, table[1])
    return TriggerCreation(
        objects=True, table=of, event=words[1], words=frozenset(token.text for token in tokens)
    )


#: Objects that change the effect of statements on tables.
_CODE = frozenset(["VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "PACKAGE"])


def _find_object_word(tokens: Sequence[Token]) -> int:
    """Return the index of the word that names the kind of object, after the DEFINER clause and
    modifiers.
    """
    at = 1
    while at < len(tokens):
        token = tokens[at]
        passed = token.quoted or token.string or token.upper in _MODIFIERS
        named = tokens[at - 1].text in ("=", "@") or token.text.startswith("@")
        if not passed and not named:
            break
        at += 1
    return at


def _classify_table_ddl(verb: str, rest: Sequence[Token], db: str) -> StatementKind:
    names = parse_table_names(rest, db)
    if not names:
        return UnknownStatement(db)
    if verb == "DROP":
        return TableDdl("drop", tuple(names))
    if verb == "CREATE":
        return TableDdl("create", (names[0],))
    return _classify_alter(names[0], rest, db)


def _classify_alter(table: TableName, rest: Sequence[Token], db: str) -> StatementKind:
    """Classify ALTER TABLE.

    With RENAME [TO|AS] it moves the table; with EXCHANGE and CONVERT PARTITION it affects two tables.

    Its effect on rows is judged in producer/statements/judgement.py.
    """
    words = [token.upper for token in rest]
    for at, word in enumerate(words):
        if word == "RENAME" and at + 1 < len(rest):
            following = words[at + 1]
            if following in ("COLUMN", "INDEX", "KEY"):
                continue
            target = parse_table_names(skip_words(rest[at + 1 :], "TO", "AS", "="), table[0])
            if target:
                return TableDdl("rename", (table, target[0]), ((table, target[0]),))
    if "EXCHANGE" in words and "WITH" in words:
        other = parse_table_names(skip_words(rest[words.index("WITH") + 1 :], "TABLE"), db)
        return TableDdl("alter", (table, *other))
    return TableDdl("alter", (table, *_find_converted_table(rest, words, db)))


def _find_converted_table(rest: Sequence[Token], words: list[str], db: str) -> list[TableName]:
    """Return the other table of MariaDB's CONVERT PARTITION p TO TABLE other, and of CONVERT TABLE other
    TO PARTITION p …
    """
    for at, word in enumerate(words[:-1]):
        if word == "CONVERT" and words[at + 1] == "TABLE":
            return parse_table_names(rest[at + 2 :], db)[:1]
        if word == "CONVERT" and words[at + 1] == "PARTITION":
            to = next((i for i in range(at + 2, len(words) - 1) if words[i : i + 2] == ["TO", "TABLE"]), None)
            return parse_table_names(rest[to + 2 :], db)[:1] if to is not None else []
    return []


def _classify_index_ddl(rest: Sequence[Token], db: str) -> StatementKind:
    for at, token in enumerate(rest):
        if token.upper == "ON":
            names = parse_table_names(rest[at + 1 :], db)
            return TableDdl("alter", (names[0],)) if names else UnknownStatement(db)
    return UnknownStatement(db)


def _classify_rename(tokens: Sequence[Token], db: str) -> StatementKind:
    if tokens[1].upper not in ("TABLE", "TABLES"):
        return HarmlessStatement() if tokens[1].upper == "USER" else UnknownStatement(db)
    pairs = []
    for part in split_tokens(tokens[2:], ","):
        at = next((i for i, token in enumerate(part) if token.upper == "TO"), None)
        old, new = (
            (parse_table_names(part[:at], db), parse_table_names(part[at + 1 :], db))
            if at is not None
            else ([], [])
        )
        if not old or not new:
            return UnknownStatement(db)
        pairs.append((old[0], new[0]))
    return TableDdl("rename", tuple(name for pair in pairs for name in pair), tuple(pairs))
