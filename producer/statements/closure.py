"""The tables that a change logged as a statement may affect.

Pure, over the objects that the source's catalog shows.

A statement writes the tables that it names where a table is written. Through these it writes whatever
their triggers write, the tables below a view, the children of cascading keys, and the tables that the
routines write that it calls anywhere in its text. Only the places at which a table is written are
parsed; every name in them counts. If the catalog lacks a necessary object (a body that the user may not
see, dynamic SQL, objects of databases without privileges), the result is unknown:
`ImpactedTables.tables` is None, and every captured table is considered affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from producer.binlog_format.statement_text import UNDECODED
from producer.statements.tokens import Token, names_at, tokenize_sql
from schemas.problems import ProblemError
from schemas.table.names import EXACT, NameRules, TableName

_SEE_SETUP = "see `rowlock docs source-setup`"
_SEE_ROUTINES = f"`rowlock check` prints the GRANT that shows it ({_SEE_SETUP})"


class ProvenVisibility(Protocol):
    """The catalog objects that the user certainly sees (producer.sources.grants.CatalogVisibility)."""

    def can_see_all_tables(self) -> bool: ...
    def can_see_triggers(self, db: str) -> bool: ...
    def can_see_foreign_keys(self, db: str) -> bool: ...
    def can_see_routines(self) -> bool: ...


class CatalogObjects(Protocol):
    """The objects that the catalog shows (producer.sources.source_objects.SourceObjects)."""

    @property
    def visibility(self) -> ProvenVisibility: ...
    @property
    def kinds(self) -> Mapping[TableName, str]: ...
    @property
    def triggers(self) -> Mapping[TableName, tuple[tuple[str, str], ...]]: ...
    @property
    def views(self) -> Mapping[TableName, str | None]: ...
    @property
    def routines(self) -> Mapping[TableName, str | None]: ...
    @property
    def cascades(self) -> Mapping[TableName, frozenset[TableName]]: ...


class ImpactedTables(NamedTuple):
    """The tables that a statement may write.

    `tables`: with everything on the way (views, uncaptured tables); None: unknown. `why`: why it is
    unknown, and the remedy ("what was seen: what to do").
    """

    tables: frozenset[TableName] | None
    why: str = ""


class UnknownImpactError(ProblemError):
    """The affected tables cannot be determined."""


_PASSED = frozenset(["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO", "TABLE"])
#: Words before a verb after which it does not begin a statement.
_NOT_BEFORE: dict[str, frozenset[str]] = {
    "UPDATE": frozenset(["KEY", "FOR", "ON", "OF"]),
    "DELETE": frozenset(["ON"]),
    "REPLACE": frozenset(["OR"]),
}
_ENDS: dict[str, frozenset[str]] = {
    "UPDATE": frozenset(["SET"]),
    "DELETE": frozenset(["WHERE", "ORDER", "LIMIT", "RETURNING"]),
}
_DYNAMIC = frozenset(["PREPARE", "EXECUTE"])
#: Words before "(" that are no stored function, for users who cannot see the routines.
BUILT_IN = frozenset(
    """
    VALUES VALUE IN AND OR NOT XOR ON AS USING KEY INDEX FROM JOIN WHERE HAVING SET INTO EXISTS ANY ALL SOME
    BETWEEN LIKE INTERVAL CASE WHEN THEN ELSE IF IFNULL NULLIF COALESCE CAST CONVERT BINARY CHAR CHARACTER
    VARCHAR DECIMAL NUMERIC INT SIGNED UNSIGNED DATE TIME DATETIME TIMESTAMP YEAR COUNT SUM MIN MAX AVG STD
    GROUP_CONCAT NOW CURRENT_TIMESTAMP CURDATE CURRENT_DATE CURTIME CURRENT_TIME SYSDATE UTC_TIMESTAMP
    UTC_DATE UTC_TIME UNIX_TIMESTAMP FROM_UNIXTIME DATE_ADD DATE_SUB ADDDATE SUBDATE DATEDIFF DATE_FORMAT
    STR_TO_DATE MONTH DAY HOUR MINUTE SECOND MICROSECOND LAST_DAY CONCAT CONCAT_WS LENGTH CHAR_LENGTH
    SUBSTRING SUBSTR LEFT RIGHT TRIM LTRIM RTRIM UPPER LOWER UCASE LCASE REPLACE INSERT LOCATE INSTR POSITION
    LPAD RPAD REPEAT REVERSE SPACE HEX UNHEX MD5 SHA1 SHA2 UUID UUID_SHORT RAND ROUND FLOOR CEIL CEILING ABS
    MOD POW POWER SQRT SIGN GREATEST LEAST TRUNCATE LAST_INSERT_ID ROW_COUNT FOUND_ROWS USER CURRENT_USER
    DATABASE SCHEMA VERSION CONNECTION_ID JSON_OBJECT JSON_ARRAY JSON_EXTRACT JSON_SET JSON_VALUE JSON_UNQUOTE
    NEXTVAL LASTVAL SETVAL ROW PARTITION OVER SELECT UNION LIMIT
    """.split()  # noqa: SIM905 - as a list it would fill two pages
)


class TextWrites(NamedTuple):
    """The tables that a text writes, and the names that it may call: with CALL, or before "(".

    A name is (database or "", name). `dynamic`: the text executes SQL that is built at run time.
    """

    tables: tuple[TableName, ...]
    calls: tuple[TableName, ...]
    dynamic: bool


def find_writes(tokens: Sequence[Token]) -> TextWrites:
    """Return what a statement, or the body of a trigger or routine, writes and calls. Never raises."""
    tables: list[TableName] = []
    calls: list[TableName] = []
    named: set[int] = set()  # the ends of names of written tables: "(" after them begins their columns
    for at, token in enumerate(tokens):
        word = token.upper
        before = tokens[at - 1].upper if at else ""
        if before in _NOT_BEFORE.get(word, ()):
            continue
        match word:
            case "INSERT" | "REPLACE" | "TRUNCATE" if _get_text(tokens, at + 1) != "(":  # else a function
                name, end = _parse_name(tokens, _skip_modifiers(tokens, at + 1))
                tables += [name] if name else []
                named.add(end)
            case "UPDATE" | "DELETE":
                tables += _yield_region_names(tokens, at + 1, _ENDS[word])
            case "LOAD":
                into = next((i for i in range(at, len(tokens)) if tokens[i].upper == "INTO"), len(tokens))
                name, end = _parse_name(tokens, _skip_modifiers(tokens, into))
                tables += [name] if name else []
                named.add(end)
            case "CALL":
                name, end = _parse_name(tokens, at + 1)
                calls += [name] if name else []
                named.add(end)
    calls += [name for name, end in _yield_possible_calls(tokens) if end not in named]
    dynamic = any(token.upper in _DYNAMIC for token in tokens)
    return TextWrites(tuple(dict.fromkeys(tables)), tuple(dict.fromkeys(calls)), dynamic)


def _get_text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) and not tokens[at].quoted and not tokens[at].string else ""


def _skip_modifiers(tokens: Sequence[Token], at: int) -> int:
    while at < len(tokens) and tokens[at].upper in _PASSED:
        at += 1
    return at


def _parse_name(tokens: Sequence[Token], at: int) -> tuple[TableName | None, int]:
    return names_at(tokens, at)


def _yield_region_names(tokens: Sequence[Token], at: int, ends: frozenset[str]) -> Iterator[TableName]:
    """Yield every name up to one of the words `ends`, or the end of the statement: tables, aliases and
    columns alike.
    """
    depth = 0
    while at < len(tokens):
        text = _get_text(tokens, at)
        depth += (text == "(") - (text == ")")
        if text == ";" or (depth <= 0 and tokens[at].upper in ends):
            return
        name, end = names_at(tokens, at)
        if name is not None:
            yield name
        at = max(end, at + 1)


def _yield_possible_calls(tokens: Sequence[Token]) -> Iterator[tuple[TableName, int]]:
    """Yield (name, end) of every name before "(": function calls, and much else.

    A package's name is the first part.
    """
    at = 0
    while at < len(tokens):
        name, end = names_at(tokens, at)
        if name is None:
            at += 1
            continue
        parts = [name]
        if _get_text(tokens, end) == ".":  # database.package.function
            parts.append(("", name[0]))
            end += 2
        if _get_text(tokens, end) == "(":
            for each in parts:
                yield each, end
            if name[0]:
                yield ("", name[0]), end  # package.function
        at = end


def yield_names(tokens: Sequence[Token]) -> Iterator[TableName]:
    """Yield every name of a text; a qualified name is yielded as a whole."""
    at = 0
    while at < len(tokens):
        name, end = names_at(tokens, at)
        if name is not None:
            yield name
        at = max(end, at + 1)


@dataclass(slots=True)
class _ClosureWalk:
    """A computation of affected tables, with those found so far."""

    objects: CatalogObjects
    names: NameRules
    written: set[TableName] = field(default_factory=set)
    routines: set[TableName] = field(default_factory=set)
    views: set[TableName] = field(default_factory=set)

    def walk_text(self, tokens: Sequence[Token], db: str, what: str) -> None:
        """Process a statement, or a body, that runs with `db` as the current database."""
        found = find_writes(tokens)
        if found.dynamic:
            raise UnknownImpactError(
                f"{what} runs SQL that it makes at run time", "exclude it from statement logging"
            )
        if any(UNDECODED in part for name in (*found.tables, *found.calls) for part in name):
            raise UnknownImpactError(
                f"{what} has a name that cannot be decoded from its client's character set",
                "SET NAMES utf8mb4 in that client",
            )
        for table in found.tables:
            self.mark_table_written(self._qualify_name(table, db))
        for routine in found.calls:
            self.walk_call(routine, db, what)
        for name in yield_names(tokens):  # a view that is read calls the functions in its SELECT
            self.walk_view(self._qualify_name(name, db), written=False)

    def walk_body(self, body: str, db: str, what: str) -> None:
        """Process the body of a trigger or routine, with and without backslash escapes if it has a
        backslash: the sql_mode at its creation decides, and is not known here.
        """
        for escapes in (True, False) if "\\" in body else (True,):
            self.walk_text(tokenize_sql(body, escapes=escapes), db, what)

    def _qualify_name(self, name: TableName, db: str) -> TableName:
        return self.names.normalize_table((name[0] or db, name[1]))

    def mark_table_written(self, name: TableName) -> None:
        """Add a table or view that is written, and everything that is written with it."""
        if name in self.written:
            return
        self.written.add(name)
        if not self.objects.visibility.can_see_triggers(name[0]):
            raise UnknownImpactError(
                f"the triggers of {name[0]} are hidden from this user",
                f"GRANT TRIGGER ON *.* TO it ({_SEE_SETUP})",
            )
        for db, body in self.objects.triggers.get(name, ()):
            self.walk_body(body, db, f"a trigger of {name[0]}.{name[1]}")
        for child in self.objects.cascades.get(name, ()):
            self.mark_table_written(self.names.normalize_table(child))
        self.walk_view(name, written=True)

    def walk_view(self, name: TableName, *, written: bool) -> None:
        if name not in self.objects.views or (name in self.views and not written):
            return
        self.views.add(name)
        body = self.objects.views[name]
        if body is None:
            raise UnknownImpactError(
                f"the definition of view {name[0]}.{name[1]} is hidden from this user",
                f"GRANT SHOW VIEW, SELECT ON `{name[0]}`.* TO it",
            )
        tokens = tokenize_sql(body)
        if written:
            for table in yield_names(tokens):
                whole = self._qualify_name(table, name[0])
                if whole in self.objects.kinds:
                    self.mark_table_written(whole)
        self.walk_text(tokens, name[0], f"view {name[0]}.{name[1]}")

    def walk_call(self, name: TableName, db: str, what: str) -> None:
        """Process a call of a routine.

        A name that is not a stored routine is a built-in or loadable function and changes no row.
        """
        whole = ((name[0] or db).lower(), name[1].lower())
        if not self.objects.visibility.can_see_routines():
            if name[0] or name[1].upper() not in BUILT_IN:
                raise UnknownImpactError(
                    f"{what} calls {name[1]}, and the stored routines are hidden from this user",
                    _SEE_ROUTINES,
                )
            return
        for routine, body in self.objects.routines.items():
            if (routine[0].lower(), routine[1].lower()) != whole or routine in self.routines:
                continue
            self.routines.add(routine)
            if body is None:
                raise UnknownImpactError(
                    f"the body of routine {routine[0]}.{routine[1]} is hidden from this user",
                    _SEE_ROUTINES,
                )
            self.walk_body(body, routine[0], f"routine {routine[0]}.{routine[1]}")


def find_impacted_tables(
    tokens: Sequence[Token], db: str, objects: CatalogObjects, names: NameRules = EXACT
) -> ImpactedTables:
    """Return the tables that a statement may write that was executed with `db` as the current database."""
    visibility = objects.visibility
    if not visibility.can_see_all_tables() or not all(
        visibility.can_see_foreign_keys(each) for each in {kind[0] for kind in objects.kinds}
    ):
        return ImpactedTables(
            None,
            "the tables of all databases, their triggers and keys are not visible to this user: GRANT "
            f"TRIGGER ON *.* TO it ({_SEE_SETUP})",
        )
    walk = _ClosureWalk(objects, names)
    try:
        walk.walk_text(tokens, db, "the statement")
    except UnknownImpactError as error:
        return ImpactedTables(None, str(error))
    return ImpactedTables(frozenset(walk.written))
