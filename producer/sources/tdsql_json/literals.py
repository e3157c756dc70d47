"""SQL literals of TDSQL's JSON subscription: what kind of literal a text is, and what it means. Pure.

The vendor's page shows two literals, an integer and a text in quotation marks; their rules are not
documented (docs/adr/0049-tdsql-json-subscription.md). So a literal is read only where every writer of SQL
literals, and a writer that escapes nothing, would mean the same by it. Where they differ, the literal is
doubtful: the user has to declare the rule (`LiteralForm`), or the table stops.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from producer.errors import CaptureError

NULL = "NULL"
_LONGEST_SHOWN = 60
_MASKED = re.compile(r"\\.|[0-9]|[^\W\d_]", re.DOTALL)
_HEX = re.compile(r"0x([0-9a-fA-F]+)|[xX]'([0-9a-fA-F]*)'")
_BITS = re.compile(r"0b([01]+)|[bB]'([01]+)'")
_ESCAPE = re.compile(r"\\(.)|''|'|\\", re.DOTALL)
_ESCAPED = {
    "0": "\0",
    "'": "'",
    '"': '"',
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "\\": "\\",
}
"""The escapes that a writer of SQL literals needs. Others have no effect, so no writer has them."""
_LOST_CHARACTER = "\ufffd"


class LiteralForm(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of the subscription's literals that no document states and no literal shows, as far as the
    user has declared them.
    """

    escapes: Literal["backslash", "none"] | None = None
    """Whether texts in quotation marks have MySQL's escapes, or none; None: not declared."""
    is_text_converted: bool = False
    """Whether text of every character set is declared to be converted to UTF-8."""
    are_floats_exact: bool = False
    """Whether FLOAT and DOUBLE are declared to have enough digits to be read back exactly."""
    timestamps: str | None = None
    """The declared form of TIMESTAMP: "epoch" (seconds since 1970), or the offset of the time zone of the
    texts, "+08:00"; None: not declared.
    """


class MisfitError(ValueError):
    """A literal that no value of the column's type has."""


class DoubtError(ValueError):
    """A literal that two values of the column's type may have. Its text: both values, and what to declare."""


class LiteralError(CaptureError):
    """A literal of a row that cannot be read: its table stops.

    `column`: its name. `value`: the literal as the message has it; the text of the error has it masked.
    """

    def __init__(self, column: str, literal: str | None, why: str, remedy: str) -> None:
        super().__init__(f"the literal {mask_literal(literal)} of column {column} {why}", remedy)
        self.column = column
        self.value = literal


def mask_literal(literal: str | None) -> str:
    """Return the form of a literal without its value: letters become "a", digits "9"; escapes are kept."""
    if literal is None:
        return "null"
    shown = _MASKED.sub(_mask_character, literal[:_LONGEST_SHOWN])
    return shown if len(literal) <= _LONGEST_SHOWN else f"{shown}… ({len(literal)} characters)"


def _mask_character(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith("\\") else "9" if text.isdigit() else "a"


def unquote_text(literal: str, escapes: str | None) -> str:
    """Return the text of a literal in single quotation marks.

    Raises MisfitError for another literal, and DoubtError for a text whose escapes may be none.
    """
    if len(literal) < 2 or literal[0] != "'" or literal[-1] != "'":
        raise MisfitError("is not a text in quotation marks")
    text = literal[1:-1]
    if escapes != "none" and ("\\" in text or "'" in text):
        if escapes is None:
            raise DoubtError(
                "has a backslash or a quotation mark within it, which may be an escape or a character of the "
                "value: declare `escapes`"
            )
        text = _ESCAPE.sub(_replace_escape, text)
    if _LOST_CHARACTER in text:
        raise DoubtError("has the character U+FFFD, which is in the value or replaces one that was lost")
    return text


def _replace_escape(found: re.Match[str]) -> str:
    if found[0] == "''":
        return "'"
    character = _ESCAPED.get(found[1] or "")
    if character is None:
        raise MisfitError("has a backslash or a quotation mark within it that is no escape")
    return character


def parse_hex(literal: str) -> bytes | None:
    """Return the bytes of 0x4D or X'4D'; None: it is another literal. Raises MisfitError."""
    found = _HEX.fullmatch(literal)
    if found is None:
        return None
    digits = found[1] or found[2] or ""
    if len(digits) % 2:
        raise MisfitError("has an odd number of hexadecimal digits")
    return bytes.fromhex(digits)


def parse_bits(literal: str) -> int | None:
    """Return the number of b'101' or 0b101; None: it is another literal."""
    found = _BITS.fullmatch(literal)
    return None if found is None else int(found[1] or found[2], 2)
