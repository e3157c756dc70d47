"""Statements in the log as words, names and strings, without comments and long lists of values.

Not an SQL parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.table.names import TableName


def _compile_token_pattern(escapes: bool) -> re.Pattern[str]:
    """Return the pattern of a token.

    Quantifiers are possessive: a literal of many MB takes no memory for backtracking. `rows`: the rows
    of VALUES, if they are literals alone; a statement may have millions.
    """
    double = r'[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+' if escapes else r'[^"]*+(?:""[^"]*+)*+'
    single = r"[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+" if escapes else r"[^']*+(?:''[^']*+)*+"
    number = r"[-+]?(?:0x[0-9a-fA-F]++|\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?)"
    value = rf"\s*+(?:{number}|(?i:NULL|DEFAULT|TRUE|FALSE)|(?:_?[A-Za-z]\w*+\s*+)?'{single}')\s*+"
    row = rf"\({value}(?:,{value})*+\)"
    return re.compile(
        rf"""
        \s+ | \#[^\n]* | --(?=[\s\x00-\x1f]|$)[^\n]*      # blanks and line comments
      | /\*(?!M?!).*?(?:\*/|$)                            # plain comments
      | /\*M?!\d*                                         # versioned comment: its content is code
      | \*/
      | (?P<rows>{row}(?:\s*+,\s*+{row})++)
      | `(?P<back>[^`]*+(?:``[^`]*+)*+)`
      | "(?P<double>{double})"
      | '(?P<single>{single})'
      | (?P<word>[\w$@\u0080-\uffff]+)
      | (?P<other>.)
        """,
        re.VERBOSE | re.DOTALL,
    )


_TOKEN, _TOKEN_NO_ESCAPES = _compile_token_pattern(escapes=True), _compile_token_pattern(escapes=False)


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    quoted: bool  # an identifier in quotes: never a keyword
    string: bool = False

    @property
    def upper(self) -> str:
        return "" if self.quoted or self.string else self.text.upper()


_ROWS = (Token("(", quoted=False), Token(")", quoted=False))


_LITERAL = re.compile(
    r"""'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+(?:'|\\?$)|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+(?:"|\\?$)|\b0x[0-9a-fA-F]+|\b\d[\d.]*(?:[eE][-+]?\d+)?\b""",
    re.DOTALL,
)


def cut_row_values(sql: str) -> str:
    """Return the beginning of a change of rows without its values, for messages and logs, which have
    other readers than the tables.
    """
    return _LITERAL.sub("…", sql[:_SHOWN])


_SHOWN = 10_000  # characters


def tokenize_sql(sql: str, *, escapes: bool = True) -> tuple[Token, ...]:
    """Return words, quoted identifiers, strings and single characters.

    Comments are removed; versioned ones stay as code.

    Consecutive rows of literals become "(" and ")". `escapes`: a backslash in a string escapes the next
    character (it does not under NO_BACKSLASH_ESCAPES).
    """
    return tuple(yield_tokens(sql, escapes=escapes))


def yield_tokens(sql: str, *, escapes: bool = True) -> Iterator[Token]:
    """Yield the tokens of `tokenize_sql`, and read the text only as far as they are taken."""
    for match in (_TOKEN if escapes else _TOKEN_NO_ESCAPES).finditer(sql):
        kind = match.lastgroup
        if kind == "back":
            yield Token(match["back"].replace("``", "`"), quoted=True)
        elif kind == "double":
            yield Token(match["double"].replace('""', '"'), quoted=True)
        elif kind == "single":
            yield Token(match["single"], quoted=False, string=True)
        elif kind == "rows":
            yield from _ROWS
        elif kind is not None:
            yield Token(match[0], quoted=False)


def split_tokens(tokens: Sequence[Token], separator: str) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == separator and not token.quoted:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def skip_words(tokens: Sequence[Token], *words: str) -> Sequence[Token]:
    at = 0
    while at < len(tokens) and (
        tokens[at].upper in words or (tokens[at].text in words and not tokens[at].quoted)
    ):
        at += 1
    return tokens[at:]


def parse_table_names(tokens: Sequence[Token], db: str) -> list[TableName]:
    """Return the comma-separated, perhaps qualified names at the beginning, after IF [NOT] EXISTS and
    the like.
    """
    tokens = skip_words(tokens, "IF", "NOT", "EXISTS")
    names: list[TableName] = []
    at = 0
    while at < len(tokens) and _is_name(tokens[at]):
        name, at = _parse_qualified_name(tokens, at, db)
        names.append(name)
        if at < len(tokens) and tokens[at].text == "," and not tokens[at].quoted:
            at += 1
        else:
            break
    return names


def _parse_qualified_name(tokens: Sequence[Token], at: int, db: str) -> tuple[TableName, int]:
    first = tokens[at].text
    dotted = at + 2 < len(tokens) and tokens[at + 1].text == "." and not tokens[at + 1].quoted
    if dotted and _is_name(tokens[at + 2]):
        return (first, tokens[at + 2].text), at + 3
    return (db, first), at + 1


def names_at(tokens: Sequence[Token], at: int) -> tuple[TableName | None, int]:
    """Return the name at `at`, ("", name) if it is not qualified, and the index after it.

    None: there is no name.
    """
    if at >= len(tokens) or not _is_name(tokens[at]):
        return None, at
    return _parse_qualified_name(tokens, at, "")


def _is_name(token: Token) -> bool:
    return token.quoted or (not token.string and bool(re.fullmatch(r"[\w$\u0080-\uffff]+", token.text)))
