"""Cuts SQL text into statements, picks those that a case may run, and finds the databases that they name.
Pure.

What a peer's file calls a database becomes a mark, `⟦name⟧`; the runner fills in a database of the case's
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MARK = re.compile("⟦([^⟧]*)⟧")
_TOKEN = re.compile(
    r"""(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<tick>`(?:[^`]|``)*`)
      | (?P<comment>--[ \t][^\n]*|--(?=\n|$)|\#[^\n]*|/\*(?![!M]).*?\*/)
      | (?P<word>[\w$@]+)
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_DELIMITER = re.compile(r"delimiter[ \t]+(\S+)[ \t]*(?:\n|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text. `kind`: string | tick (an identifier in backticks) | comment | word | space |
    other."""

    kind: str
    text: str

    @property
    def name(self) -> str:
        """What it says as an identifier; empty if it can be none."""
        if self.kind == "tick":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else ""


def tokens(text: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(text):
        assert found.lastgroup is not None
        yield Token(found.lastgroup, found.group())


def statements(text: str) -> list[str]:
    """Cut a file of statements, as the servers' own clients do (`DELIMITER` included). Comments are
    dropped."""
    found: list[str] = []
    at, end, part = 0, ";", ""
    while at < len(text):
        notified = _DELIMITER.match(text, at) if not part.strip() else None
        if notified:
            end, at, part = notified.group(1), notified.end(), ""
            continue
        if text.startswith(end, at):
            found.append(part)
            at, part = at + len(end), ""
            continue
        token = _TOKEN.match(text, at)
        assert token is not None
        at = token.end()
        part += " " if token.lastgroup == "comment" else token.group()
    return [each.strip() for each in [*found, part] if each.strip()]


# --- what may run

_CHANGES = r"""alter\s+(?:online\s+|offline\s+|ignore\s+)*(?:table|database|schema|view|sequence)
    | create\s+(?:or\s+replace\s+)?(?:definer\s*=\s*\S+\s+)?(?:algorithm\s*=\s*\w+\s+)?(?:sql\s+security\s+\w+\s+)?
      (?:temporary\s+|unique\s+|fulltext\s+|spatial\s+|online\s+|offline\s+)*
      (?:table|index|database|schema|view|trigger|procedure|function|sequence)
    | drop\s+(?:temporary\s+|online\s+|offline\s+)*(?:table|tables|index|database|schema|view|trigger|procedure|function|sequence)
    | rename\s+tables? | truncate | insert | replace | update | delete | with
    | begin | start\s+transaction | commit | rollback | savepoint | release\s+savepoint | xa
    | use | call | (?:optimize|analyze|repair|check)\s+(?:local\s+|no_write_to_binlog\s+)?tables?
    | set"""  # noqa: E501
_TAKEN = re.compile(rf"(?:/\*[!M]+\d*\s*)?(?:{_CHANGES})\b", re.IGNORECASE | re.VERBOSE)
#: What concerns the server and not a case's tables, or waits, or puts what the log must say out of it.
_REFUSED = re.compile(
    r"""\bset\s+(?:global|persist\w*|password|default\s+role|role)\b | @@(?:global|persist\w*)\b | \bsql_log_bin\b | \bbinlog_format\b
      | \bpseudo_\w+ | \bgtid_next\b | \bserver_id\b | \bsleep\s*\( | \bbenchmark\s*\( | \bget_lock\s*\( | \bload_file\s*\(
      | \binto\s+(?:outfile|dumpfile)\b | \bdata\s+directory\b | \bindex\s+directory\b | \btablespace\b
      | \b(?:mysql|information_schema|performance_schema|sys)`?\s*\.
      | \bset\s+(?:session\s+)?(?:autocommit|transaction|debug\w*|max_\w+|wait_timeout|tidb_\w+|@@\w*\.?tidb_\w+)""",  # noqa: E501
    re.IGNORECASE | re.VERBOSE,
)


def runnable(statement: str) -> bool:
    """Tell whether a case may run it: it changes tables or rows, or the session that does."""
    return bool(_TAKEN.match(statement)) and not _REFUSED.search(statement)


def makes_table(statement: str) -> bool:
    return bool(re.match(r"create\s+(?:or\s+replace\s+)?table\b", statement, re.IGNORECASE))


def changes_rows(statement: str) -> bool:
    return bool(re.match(r"(?:insert|replace|update|call|with)\b", statement, re.IGNORECASE))


def defined(statement: str) -> str | None:
    """Return the name, as it is written, of the table that a CREATE TABLE or ALTER TABLE defines; None:
    another statement."""
    found = re.match(
        r"(?:create\s+(?:or\s+replace\s+)?|alter\s+(?:ignore\s+|online\s+|offline\s+)*)table\s+(?:if\s+(?:not\s+)?exists\s+)?"
        r"((?:`(?:[^`]|``)+`|[\w$]+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|[\w$]+))?)",
        statement,
        re.IGNORECASE,
    )
    return found.group(1) if found else None


# --- databases


def _solid(statement: str) -> list[Token]:
    return [each for each in tokens(statement) if each.kind not in ("space", "comment")]


def databases(statement: str) -> set[str]:
    """Return the databases that a statement names: where it makes, drops or uses one, and before a table's
    name."""
    found: set[str] = set()
    solid = _solid(statement)
    words = [each.text.lower() if each.kind == "word" else "" for each in solid]
    if words[:1] == ["use"] and len(solid) > 1:
        return {solid[1].name} - {""}
    for at, word in enumerate(words):
        if word in ("database", "schema") and words[0] in ("create", "drop", "alter"):
            found.add(_behind(solid, words, at))
        if word in ("table", "into", "update", "from", "to", "like", "on", "view", "truncate", "join"):
            found |= _qualifier(solid, words, at)
    return found - {""}


def _behind(solid: list[Token], words: list[str], at: int) -> str:
    """Return the name behind a keyword, and behind IF [NOT] EXISTS."""
    at += 1
    while at < len(solid) and words[at] in ("if", "not", "exists", "only", "ignore"):
        at += 1
    return solid[at].name if at < len(solid) else ""


def _qualifier(solid: list[Token], words: list[str], at: int) -> set[str]:
    at += 1
    while at < len(solid) and words[at] in ("if", "not", "exists", "only", "ignore", "table"):
        at += 1
    if at + 2 < len(solid) and solid[at + 1].text == "." and solid[at + 2].name:
        return {solid[at].name}
    return set()


def marked(statement: str, known: Iterable[str]) -> str:
    """Put a mark for every name of a database of `known` (compared as they are written)."""
    names = set(known)
    parts = list(tokens(statement))
    solid = [i for i, each in enumerate(parts) if each.kind not in ("space", "comment")]
    out = [each.text for each in parts]
    words = [parts[i].text.lower() if parts[i].kind == "word" else "" for i in solid]
    for place, i in enumerate(solid):
        if parts[i].name in names and _is_database(parts, solid, words, place):
            out[i] = f"⟦{parts[i].name}⟧"
    return "".join(out)


def _is_database(parts: list[Token], solid: list[int], words: list[str], place: int) -> bool:
    def text(at: int) -> str:
        return parts[solid[at]].text if 0 <= at < len(solid) else ""

    if text(place + 1) == "." and text(place - 1) != ".":
        return True
    before = place - 1
    while before > 0 and words[before] in ("if", "not", "exists"):
        before -= 1
    return before >= 0 and words[before] in ("use", "database", "schema")


def filled(statement: str, name: dict[str, str]) -> str:
    """Replace every mark by the database's name of the case, in backticks."""
    return MARK.sub(lambda found: f"`{name[found.group(1)]}`", statement)
