"""Every text of SQL in the code of Oracle's dialect, and whether H2 has executed it. What H2 got is in a
record (tests.stands.oracle_on_h2.RECORD).

A text is a string of the code that has a word of SQL in it: a whole statement, or a part that is put into
one. The text of an error, a remark or a docstring is none. So a new statement is judged here, without a list
to be kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kits.apply import ROOT

#: Where the dialect's SQL is written: its own modules, and what all dialects share, with its syntax put in.
OWN, BOOKS = "consumer/targets/oracle", "consumer/targets/bookkeeping.py"
FILES = (f"{OWN}/*.py", BOOKS, "consumer/targets/sql.py", "consumer/targets/session.py")
#: Modules whose texts are for people, or no SQL.
NO_SQL = ("errors.py", "rights.py", "values.py")
#: Texts that H2 never gets, and why. What stands here and is executed after all is a failure, too.
EXEMPT = {
    "GRANT SELECT ON SYS.GV_$SESSION TO {user};": "for a person",
    "GRANT ALTER SYSTEM TO {user};": "for a person",
}
#: Functions that render statements on tables of rowlock's own as well as on others.
_SHARED = frozenset({
    "render_create", "build_create", "render_insert", "build_insert", "render_locking_select", "render_page",
    "_render_milliseconds", "",
})  # fmt: skip
_WORDS = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|MERGE|ALTER|CREATE|DROP|SAVEPOINT|ROLLBACK|WHERE|FETCH|NULL|DEFAULT|MODIFY|ADD|PRIMARY|CASE|WHEN|AND|OR"
    r"|IN|ORDER|RENAME|HEXTORAW|TIMESTAMP|DATE|NUMTODSINTERVAL|TRUNC|ROUND|CAST|EXTRACT|SYSTIMESTAMP|NUMBER|VARCHAR2|CLOB|GRANT|DESC)\b"
)
#: Calls whose texts are for people, or are patterns.
_SAID = re.compile(r"(Error|Remark|MissingRight|_refused|compile|fullmatch|split|startswith|partition)$")
_ANY, _MARK = "\0", "\1"
Strings = Iterator[tuple[ast.expr, str]]


class Text(NamedTuple):
    """`where`: "file:line"; `shown`: as it is in the code, with "{…}" for what is put in; `books`: it is
    on rowlock's own tables (None: on others, too)."""

    where: str
    shown: str
    pattern: re.Pattern[str]
    books: bool | None

    def is_in(self, statement: str) -> bool:
        return (self.books is None or self.books == ('."ROWLOCK_' in statement)) and bool(
            self.pattern.search(statement)
        )


def texts() -> list[Text]:
    """Return every text of SQL, once for each place."""
    paths = sorted(path for pattern in FILES for path in ROOT.glob(pattern) if path.name not in NO_SQL)
    return [text for path in paths for text in _texts(path)]


def never_executed(executed: Iterable[str]) -> list[Text]:
    """Return the texts that are in none of the statements that were `executed`, and those of EXEMPT that
    are."""
    statements = list(executed)
    return [each for each in texts() if any(map(each.is_in, statements)) == (each.shown in EXEMPT)]


def read(record: Path) -> list[str]:
    return record.read_text().split("\0")[:-1]


def _texts(path: Path) -> Iterator[Text]:
    place = path.relative_to(ROOT)
    for function, tree in _functions(ast.parse(path.read_text())):
        for node, text in _strings(tree):
            shown = re.sub(rf"{_ANY}(\w*)", r"{…\1}", text)
            if _WORDS.search(shown):
                books = None if function in _SHARED else place.is_relative_to(BOOKS)
                books = books if place.is_relative_to(OWN) or books else None
                pattern = _pattern(f"DEFAULT {text}" if function == "render_literal" else text)
                yield Text(f"{place}:{node.lineno}", shown, pattern, books)


def _functions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield functions with their names, and what stands outside of them as ""."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node)
        elif isinstance(node, ast.FunctionDef):
            yield node.name, node
        else:
            yield "", ast.Module([node], [])  # type: ignore[list-item]


def _strings(tree: ast.AST) -> Strings:
    for node in ast.iter_child_nodes(tree):
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or _is_said(node):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node, "".join(map(_part, node.values))
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield from _strings(part)
        else:
            yield from _strings(node)


def _part(part: ast.expr) -> str:
    """What an f-string says, or puts in: a table of rowlock's own by its name."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    match part:
        case ast.FormattedValue(ast.Call(ast.Attribute(attr="qualify_name"), [ast.Constant(str(name))])):
            return f"{_ANY}{name}"
    return _ANY


def _is_said(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return bool(_SAID.search(getattr(node.func, "id", getattr(node.func, "attr", ""))))
    return isinstance(node, ast.Raise)


def _pattern(text: str) -> re.Pattern[str]:
    """Match a statement as the driver got it: a mark is a number, and what is put in is anything, also
    nothing."""
    text = re.sub(rf"{_ANY}(rowlock_\w+)", lambda found: f'{_ANY}."{found[1].upper()}"', text)
    text = re.sub(r"\{\w+\}", _ANY, text).replace("%s", _MARK).replace("%%", "%")
    return re.compile(
        re.escape(text).replace(re.escape(_ANY), ".*?").replace(re.escape(_MARK), r":\d+"), re.S
    )
