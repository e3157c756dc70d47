"""A logged statement, parsed once.

`parse_statement` is the only place where a statement of the log is split into tokens. Everything that is
decided about it is a function of the result: the tables that it names (`judgement`), its effect on
columns (`columns`), on values (`conversions`) and on the shadow tables of tools (`shadows`). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.alter import Alter, parse_alter
from producer.statements.ddl import (
    CONTROL_VERBS,
    StatementKind,
    TableDdl,
    TransactionControl,
    UnknownStatement,
    classify_tokens,
)
from producer.statements.tokens import Token, tokenize_sql, yield_tokens


@dataclass(frozen=True, slots=True)
class Statement:
    """A logged statement, parsed."""

    query: LoggedStatement
    """Its text, with the settings of its session."""
    kind: StatementKind
    tokens: tuple[Token, ...] = ()
    """Of SET STATEMENT … FOR: those after FOR. Empty for BEGIN, COMMIT and ROLLBACK, and for a statement
    without a text in the log.
    """
    alter: Alter | None = None
    """The actions of ALTER TABLE; None: it is another statement."""

    @property
    def sql(self) -> str:
        """The text, for messages and events."""
        return self.query.sql


_CONTROL: dict[str, StatementKind] = {
    "BEGIN": TransactionControl("begin"),
    "COMMIT": TransactionControl("commit"),
    "ROLLBACK": TransactionControl("rollback"),
}


def parse_statement(query: LoggedStatement) -> Statement:
    """Parse a statement of the log. Never raises."""
    control = _CONTROL.get(query.sql)
    if control is not None:
        return Statement(query, control)
    whole = tokenize_sql(query.sql, escapes=query.escapes)
    tokens = _skip_set_statement(whole)
    kind = classify_tokens(tokens, query.db)
    if len(tokens) < len(whole) and _is_ambiguous(query, whole):
        kind = UnknownStatement(query.db)
    alters = isinstance(kind, TableDdl) and tokens[0].upper == "ALTER"
    return Statement(query, kind, tokens, parse_alter(tokens) if alters else None)


def may_control_transaction(query: LoggedStatement) -> bool:
    """Return whether a statement may be transaction control. Only its first word is read.

    SET may be the beginning of SET STATEMENT … FOR COMMIT (MariaDB).
    """
    first = next(yield_tokens(query.sql, escapes=query.escapes), None)
    return first is not None and (first.upper in CONTROL_VERBS or first.upper == "SET")


def _skip_set_statement(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    if [token.upper for token in tokens[:2]] == ["SET", "STATEMENT"]:
        return _skip_set_statement(_get_tokens_after_for(tokens))  # MariaDB: SET STATEMENT … FOR <statement>
    return tokens


def _is_ambiguous(query: LoggedStatement, tokens: Sequence[Token]) -> bool:
    """Return whether SET STATEMENT sets an sql_mode, and the text has other tokens where a backslash does
    (or does not) escape.

    MariaDB reads the statement by the sql_mode of its session, and logs the one that it sets.
    """
    if "\\" not in query.sql or "SQL_MODE" not in [token.text.upper() for token in tokens]:
        return False
    other = tokenize_sql(query.sql, escapes=not query.escapes)
    return _list_outside_strings(tokens) != _list_outside_strings(other)


def _list_outside_strings(tokens: Sequence[Token]) -> list[Token | None]:
    """Return tokens, with None in place of each string."""
    return [None if token.string else token for token in tokens]


def _get_tokens_after_for(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Return the statement after SET STATEMENT name=value, … FOR; without a FOR the tokens of an unknown
    statement.
    """
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.upper == "(") - (token.upper == ")")
        if token.upper == "FOR" and depth == 0:
            return tokens[at + 1 :]
    return tokens[1:]
