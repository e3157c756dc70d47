"""What real servers hold equal folds equal: over all characters by their weights, and over strings by comparison."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from consumer.collations import text_fold

COLLATIONS = (
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_0900_ai_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_bin",
    "utf8mb4_turkish_ci",
    "utf8mb4_swedish_ci",
    "latin1_swedish_ci",
    "latin1_german2_ci",
    "latin1_german1_ci",
    "gbk_chinese_ci",
)
UNITS = [
    "a",
    "A",
    "á",
    "Ä",
    "ae",
    "AE",
    "Æ",
    "ß",
    "ss",
    "s",
    "SS",
    "ẞ",
    "y",
    "Ü",
    "ue",
    "u",
    "ø",
    "o",
    "Ð",
    "d",
    "ﬁ",
    "fi",
    "１",
    "1",
]
UNITS += [
    "①",
    "²",
    "2",
    " ",
    "  ",
    "\u00a0",
    "e\u0301",
    "é",
    "\u200b",
    "\x01",
    "[",
    "Å",
    "\\",
    "i",
    "İ",
    "ı",
    "I",
    "K",
    "K",
    "日",
    "⽇",
    "😀",
    "𝐀",
]
UNITS += [
    "",
    "-",
    "~",
    "ĳ",
    "ij",
    "ŋ",
    "ʣ",
    "dz",
    "т",
    "Т",
    "ё",
    "е",
    "σ",
    "ς",
    "Σ",
    "か",
    "カ",
    "が",
    "ｶ",
    "한",
    "١",
]


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def query(server: Any) -> Callable[..., list[tuple[Any, ...]]]:
    """Ask the server; characters are kept in a table, so that each collation needs one statement."""
    connection = server.connect()
    cursor = connection.cursor()

    def ask(sql: str, args: Any = ()) -> list[tuple[Any, ...]]:
        cursor.execute(sql, args)
        return list(cursor.fetchall())

    ask("SET NAMES utf8mb4")
    ask("SET sql_mode = ''")
    ask("CREATE DATABASE IF NOT EXISTS folds")
    ask(
        "CREATE TEMPORARY TABLE folds.chars (p INT PRIMARY KEY, u VARCHAR(2) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)"
    )
    points = [
        p
        for p in (*range(1, 0x10000), *range(0x1D400, 0x1D800), *range(0x1F100, 0x1F700))
        if not 0xD800 <= p < 0xE000
    ]
    for batch in _batches(points, 8000):
        cursor.executemany("INSERT INTO folds.chars VALUES (%s, %s)", [(p, chr(p)) for p in batch])
    return ask


def _batches(points: list[int], size: int) -> list[list[int]]:
    return [points[i : i + size] for i in range(0, len(points), size)]


def _charset(query: Callable[..., list[tuple[Any, ...]]], collation: str) -> str:
    known = query(
        "SELECT CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE %s IN (COLLATION_NAME"
        + (", FULL_COLLATION_NAME" if query("SELECT VERSION()")[0][0].find("MariaDB") > 0 else "")
        + ") AND CHARACTER_SET_NAME = SUBSTRING_INDEX(%s, '_', 1)",
        (collation, collation),
    )
    if not known:
        pytest.skip(f"this server does not know {collation}")
    return str(known[0][0])


@pytest.mark.parametrize("collation", COLLATIONS)
def test_characters_of_one_weight_fold_equal(
    query: Callable[..., list[tuple[Any, ...]]], collation: str
) -> None:
    charset = _charset(query, collation)
    rows = query(
        f"SELECT p, HEX(WEIGHT_STRING(CONVERT(u USING {charset}) COLLATE {collation})) FROM folds.chars "
        f"WHERE CONVERT(CONVERT(u USING {charset}) USING utf8mb4) = u COLLATE utf8mb4_bin"
    )
    fold = text_fold(frozenset([collation]), None)
    classes: dict[str, list[str]] = defaultdict(list)
    for point, weight in rows:
        classes[weight or ""].append(chr(point))
    assert len(classes) > 100
    apart = {w: chars for w, chars in classes.items() if w and len({fold(char) for char in chars}) > 1}
    assert apart == {}
    if not collation.endswith("_bin"):
        assert [
            char for char in classes[""] if fold(f"x{char}y") != fold("xy")
        ] == []  # no weight: as if not there
    if collation.startswith("utf8mb4") and not collation.endswith("_bin"):
        _expansions(classes, fold)


def _expansions(classes: dict[str, list[str]], fold: Callable[[str], bytes]) -> None:
    """A character of several weights folds as the characters of these weights in a row."""
    single = {weight: chars[0] for weight, chars in classes.items() if len(weight) == 4}
    for weight, chars in classes.items():
        parts = [single.get(part, "") for part in re.findall("....", weight)]
        if len(parts) > 1 and all(parts):
            assert fold("." + chars[0] + ".") == fold("." + "".join(parts) + "."), (chars, parts)


@pytest.mark.parametrize("collation", COLLATIONS)
def test_strings_the_server_compares_equal_fold_equal(
    query: Callable[..., list[tuple[Any, ...]]], collation: str
) -> None:
    charset = _charset(query, collation)
    query("DROP TEMPORARY TABLE IF EXISTS folds.words")
    query(
        f"CREATE TEMPORARY TABLE folds.words (w VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}, KEY (w))"
    )
    words = sorted({"".join(parts) for n in (1, 2) for parts in itertools.product(UNITS, repeat=n)})
    words = [word for word in words if _fits(word, charset)]
    for start in range(0, len(words), 500):
        batch = words[start : start + 500]
        query("INSERT INTO folds.words VALUES " + ", ".join(["(%s)"] * len(batch)), batch)
    groups = query(
        "SELECT GROUP_CONCAT(HEX(CONVERT(w USING utf8mb4)) SEPARATOR ',') FROM folds.words GROUP BY w"
    )
    fold = text_fold(frozenset([collation]), None)
    equal = [[bytes.fromhex(word).decode() for word in group.split(",")] for (group,) in groups]
    assert collation == "gbk_chinese_ci" or any(len(group) > 1 for group in equal)
    assert [group for group in equal if len({fold(word) for word in group}) > 1] == []


def _fits(word: str, charset: str) -> bool:
    try:
        word.encode({"latin1": "cp1252", "gbk": "gbk"}.get(charset, "utf-8"))
    except UnicodeEncodeError:
        return False
    return True


def test_numbers_and_padding_the_server_compares_equal_fold_equal(
    query: Callable[..., list[tuple[Any, ...]]],
) -> None:
    from consumer.fold import fold_decimal, fold_float, fold_whole

    for left, right in [
        ("1.50", "1.5"),
        ("-0.00", "0"),
        ("100", "100.000"),
        ("9007199254740993", "9007199254740993.0"),
    ]:
        assert query(f"SELECT CAST('{left}' AS DECIMAL(40,6)) = CAST('{right}' AS DECIMAL(40,6))")[0][0] == 1
        assert fold_decimal(left) == fold_decimal(right)
    assert query("SELECT -0e0 = 0e0")[0][0] == 1
    assert fold_float(-0.0) == fold_float(0.0) == fold_float(0)
    assert fold_whole(9007199254740993) == fold_whole("9007199254740993") != fold_whole(9007199254740992)
