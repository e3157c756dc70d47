"""Collations of MySQL and MariaDB: which of them may be used at a target for which of the source.

A key or a unique index requires: **two values that are equal at the target are equal at the source.**
Otherwise rows with two keys silently become one row. So a column of a key keeps its collation if the
target server has exactly the same one, and gets a binary NO PAD one otherwise. No other collation is
known to be fine enough, however similar its name: characters that are new in a later version of Unicode
compare by their number in the older one, and as equal to others, or as ignorable, in the newer one.
(PAD SPACE, which ignores trailing spaces, may become NO PAD, never the reverse.) A column in no key
loses nothing by its collation, and gets the nearest, so that it sorts as people expect.

A name means the same on both servers, except for those with `0900`: MySQL's own, which MariaDB (from
11.4.5) accepts as further names of its `uca1400` ones, and `utf8mb4_0900_bin` even of `utf8mb4_bin`,
which is PAD SPACE. `own_name` returns the meaning of a name on MariaDB. Catalogs are read through it
(schemas.io.mysql_catalog), so everywhere else `0900` is MySQL's.

tests/integration/test_collations.py verifies all of this on both real servers, for each collation and
each character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from schemas.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from schemas.table.model import ColumnType

Choose = Callable[["ColumnType"], str | None]
"""Column type → the collation for it on one server; None for types without text."""

#: Language of MySQL's `utf8mb4_…_0900_…` → language of MariaDB's `uca1400_…` and of both servers' older
#: collations.
COLLATION_LANGUAGES: dict[str, str] = {
    "cs": "czech", "da": "danish", "de_pb": "german2", "eo": "esperanto", "es": "spanish",
    "es_trad": "spanish2", "et": "estonian", "hr": "croatian", "hu": "hungarian", "is": "icelandic",
    "la": "roman", "lt": "lithuanian", "lv": "latvian", "pl": "polish", "ro": "romanian", "sk": "slovak",
    "sl": "slovenian", "sv": "swedish", "tr": "turkish", "vi": "vietnamese",
}  # fmt: skip
_CODES = {language: code for code, language in COLLATION_LANGUAGES.items()}
#: Character sets that contain every character of all others.
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_0900 = re.compile(r"utf8mb4_(?:(?P<code>[a-z_]+)_)?0900_(?P<strength>a[is]_c[is])(?:_ks)?")
_UCA1400 = re.compile(
    r"(?P<charset>[a-z0-9]+)_uca1400_(?:(?P<language>[a-z0-9]+)_)?(?:nopad_)?(?P<strength>a[is]_c[is])"
)


def own_name(name: str) -> str:
    """Return the name that MariaDB means by `name`, which may be one of its aliases for users of MySQL."""
    if name == "utf8mb4_0900_bin":
        return "utf8mb4_bin"
    match = _0900.fullmatch(name)
    if match is None or (match["code"] and match["code"] not in COLLATION_LANGUAGES):
        return name
    language = f"{COLLATION_LANGUAGES[match['code']]}_" if match["code"] else ""
    return f"utf8mb4_uca1400_{language}nopad_{match['strength']}"


def ignores_trailing_spaces(name: str) -> bool:
    """Return whether the collation is PAD SPACE."""
    return "_nopad_" not in name and "_0900_" not in name and name != "binary"


def is_not_coarser(source: str | None, real: str | None) -> bool:
    """Return whether the collation `real` certainly distinguishes all values that `source`
    distinguishes.

    None is exact comparison (PostgreSQL's deterministic collations, binary kinds).
    """
    if real is None:
        return True
    if source is None:
        return False
    source, real = _normalize_collation_name(source), _normalize_collation_name(real)
    charset, there = _get_charset(source), _get_charset(real)
    if real.endswith("_bin") and there in {charset, *_UNICODE}:
        return not ignores_trailing_spaces(real) or ignores_trailing_spaces(source)
    # utf8mb4 contains all of utf8mb3, and compares it alike
    widened = source.replace("utf8mb3_", "utf8mb4_", 1)
    return real in (source, widened)


def describe_key_collations(source: str) -> str:
    """Return, for a message, the collations that a key may have instead of `source`."""
    charset = _get_charset(_normalize_collation_name(source))
    own = [f"{charset}_bin"] if ignores_trailing_spaces(source) and charset != "utf8mb4" else []
    return " or ".join(
        [*own, f"{_convert_mariadb_charset(charset)}_nopad_bin (MariaDB)", "utf8mb4_0900_bin (MySQL)"]
    )


def make_key_collation_chooser(available: Collection[str]) -> Choose:
    """Return the function that chooses collations for columns of keys and unique indexes.

    It also serves for ENUM and SET, for which labels must differ. `available`: the collations of the
    server (mysql_catalog.read_collations). The function raises UnsupportedTypeError if the server has
    none that is fine enough.
    """
    known = _group_by_name(available)

    def choose(type_: ColumnType) -> str | None:
        if type_.collation is None:
            return None
        name = _normalize_collation_name(type_.collation)
        for candidate in (name, *_yield_binary_collations(name)):
            if candidate in known:
                return known[candidate]
        raise UnsupportedTypeError(
            f"this server has no collation that distinguishes the same values as {name} of the source: it "
            f"needs {describe_key_collations(name)}, which MariaDB has from 10.2 and MySQL from 8.0.17"
        )

    return choose


def make_collation_chooser(available: Collection[str]) -> Choose:
    """Return the function that chooses the nearest collation, for columns that are in no key and no
    unique index.

    It also returns None if the server has nothing near; the server's default is then used.
    """
    known = _group_by_name(available)

    def choose(type_: ColumnType) -> str | None:
        if type_.collation is None:
            return None
        name = _normalize_collation_name(type_.collation)
        candidates = (
            name,
            *_yield_nearest_collations(name),
            *_yield_binary_collations(name),
            f"{_get_charset(name)}_bin",
            "utf8mb4_bin",
        )
        return next((known[each] for each in candidates if each in known), None)

    return choose


def _group_by_name(available: Collection[str]) -> dict[str, str]:
    return {_normalize_collation_name(name): name for name in available}


def _normalize_collation_name(name: str) -> str:
    """Return the name with utf8mb3, which older servers call utf8."""
    return name.replace("utf8_", "utf8mb3_", 1) if name.startswith("utf8_") else name


def _get_charset(name: str) -> str:
    return name.partition("_")[0]


def _convert_mariadb_charset(charset: str) -> str:
    return "utf8mb4" if charset == "gb18030" else charset


def _yield_binary_collations(name: str) -> Iterator[str]:
    """Yield the binary collations that distinguish all that `name` does: of its character set if there
    is one, else utf8mb4.
    """
    for charset in dict.fromkeys((_get_charset(name), "utf8mb4")):
        yield f"{charset}_nopad_bin"
        yield f"{charset}_0900_bin"
        if ignores_trailing_spaces(name):
            yield f"{charset}_bin"


def _yield_nearest_collations(name: str) -> Iterator[str]:
    """Yield collations that sort nearly as `name` does, best first."""
    charset = _get_charset(name)
    if name.endswith("_bin"):
        yield from (f"{charset}_{end}" for end in ("nopad_bin", "0900_bin", "bin"))
        return
    if match := _0900.fullmatch(name):
        language = COLLATION_LANGUAGES.get(match["code"] or "")
        if language:
            yield f"utf8mb4_uca1400_{language}_nopad_{match['strength']}"
            yield f"utf8mb4_{language}_ci"
        yield f"utf8mb4_uca1400_nopad_{match['strength']}"
    elif match := _UCA1400.fullmatch(name):
        language = match["language"]
        if language:
            yield f"utf8mb4_{_CODES.get(language, language)}_0900_{match['strength']}"
            yield f"{charset}_{language}_ci"
        else:
            yield f"{charset}_0900_{match['strength']}"
    yield name.replace("_nopad_", "_")
    yield name.replace("_mysql561_", "_")
    if charset == "gb18030":
        charset = "utf8mb4"
    yield f"{charset}_unicode_520_ci"
    yield f"{charset}_unicode_ci"
