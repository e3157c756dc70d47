"""Collations of MySQL and MariaDB: which may stand at a target for which of the source.

What must hold for a key or a unique index: **two values that are equal at the target are equal at the source.** Else rows
with two keys become one row, without a word. So a column of a key keeps its collation where the target server has the
very same one, and gets a binary NO PAD one where it has not. No other collation is known to be fine enough, however near
its name: characters that are new in a later version of Unicode compare by their number in the older one, and as equal to
others, or as nothing at all, in the newer one. (PAD SPACE, which ignores trailing spaces, may become NO PAD, never the reverse.)
A column in no key loses nothing by its collation, and gets the nearest, so that it sorts as people expect.

A name means the same on both servers, but for those with `0900` in them: MySQL's own, which MariaDB (from 11.4.5) takes as
further names of its `uca1400` ones, and `utf8mb4_0900_bin` even of `utf8mb4_bin`, which is PAD SPACE. `own_name` gives what a
MariaDB server means by a name. Catalogues are read through it (schemas.io.mysql_catalog), so everywhere else `0900` is MySQL's.

tests/integration/test_collations.py asks both real servers for all of this: each collation, each character.
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

#: Language of MySQL's `utf8mb4_…_0900_…` → language of MariaDB's `uca1400_…` and of the older collations of both.
COLLATION_LANGUAGES: dict[str, str] = {
    "cs": "czech", "da": "danish", "de_pb": "german2", "eo": "esperanto", "es": "spanish", "es_trad": "spanish2",
    "et": "estonian", "hr": "croatian", "hu": "hungarian", "is": "icelandic", "la": "roman", "lt": "lithuanian",
    "lv": "latvian", "pl": "polish", "ro": "romanian", "sk": "slovak", "sl": "slovenian", "sv": "swedish", "tr": "turkish",
    "vi": "vietnamese",
}  # fmt: skip
_CODES = {language: code for code, language in COLLATION_LANGUAGES.items()}
#: Character sets that hold every character of every other one.
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_0900 = re.compile(r"utf8mb4_(?:(?P<code>[a-z_]+)_)?0900_(?P<strength>a[is]_c[is])(?:_ks)?")
_UCA1400 = re.compile(
    r"(?P<charset>[a-z0-9]+)_uca1400_(?:(?P<language>[a-z0-9]+)_)?(?:nopad_)?(?P<strength>a[is]_c[is])"
)


def own_name(name: str) -> str:
    """Return the name that MariaDB means by `name`, where that is another: its names for users of MySQL."""
    if name == "utf8mb4_0900_bin":
        return "utf8mb4_bin"
    match = _0900.fullmatch(name)
    if match is None or (match["code"] and match["code"] not in COLLATION_LANGUAGES):
        return name
    language = f"{COLLATION_LANGUAGES[match['code']]}_" if match["code"] else ""
    return f"utf8mb4_uca1400_{language}nopad_{match['strength']}"


def ignores_trailing_spaces(name: str) -> bool:
    """Tell whether the collation is PAD SPACE."""
    return "_nopad_" not in name and "_0900_" not in name and name != "binary"


def is_not_coarser(source: str | None, real: str | None) -> bool:
    """Tell whether the collation `real` is known to hold no two values equal that `source` holds different.

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
    widened = source.replace("utf8mb3_", "utf8mb4_", 1)  # it holds all of these, and compares them alike
    return real in (source, widened)


def describe_key_collations(source: str) -> str:
    """Return for people which collations a key may have instead of `source`."""
    charset = _get_charset(_normalize_collation_name(source))
    own = [f"{charset}_bin"] if ignores_trailing_spaces(source) and charset != "utf8mb4" else []
    return " or ".join(
        [*own, f"{_convert_mariadb_charset(charset)}_nopad_bin (MariaDB)", "utf8mb4_0900_bin (MySQL)"]
    )


def make_key_collation_chooser(available: Collection[str]) -> Choose:
    """Return the function that chooses for columns of keys and unique indexes (and for ENUM and SET, whose labels must differ).

    `available`: the collations of the server (mysql_catalog.collations). The function raises UnsupportedTypeError where the
    server has none that is fine enough.
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
            f"this server has no collation that tells apart what {name} of the source does: it needs {describe_key_collations(name)}, "
            "which MariaDB has from 10.2 and MySQL from 8.0.17"
        )

    return choose


def make_collation_chooser(available: Collection[str]) -> Choose:
    """Return the function that chooses the nearest collation, for columns that are in no key and no unique index.

    It gives None, too, where the server has nothing that is near: its default then serves.
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
    """Older servers call utf8mb3 utf8."""
    return name.replace("utf8_", "utf8mb3_", 1) if name.startswith("utf8_") else name


def _get_charset(name: str) -> str:
    return name.partition("_")[0]


def _convert_mariadb_charset(charset: str) -> str:
    return "utf8mb4" if charset == "gb18030" else charset


def _yield_binary_collations(name: str) -> Iterator[str]:
    """Yield the binary collations that tell apart what `name` does: of its own character set if there is one, else of utf8mb4."""
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
