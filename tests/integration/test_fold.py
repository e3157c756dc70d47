"""What real servers hold equal folds equal: in every collation that they have, over all characters by their
weights, and over strings by comparison; and the fold is fine enough that names of all sorts stay apart."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from consumer.ordering.collations import make_text_fold

Query = Callable[..., list[tuple[Any, ...]]]

SAME_RULES = ("ucs2_", "utf16_", "utf16le_", "utf32_", "utf8mb3_", "utf8_")
"""Character sets whose collations are utf8mb4's: of these only a sample is asked."""
SAMPLE = re.compile(
    r"(?:ucs2|utf16|utf32|utf8mb3)_(?:general_ci|unicode_ci|unicode_520_ci|uca1400_ai_ci|czech_ci)"
)
COMPARED = ("big5_chinese_ci", "big5_chinese_nopad_ci")
"""Collations whose WEIGHT_STRING (strokes) is not what an index compares: asked by a unique index instead."""
_TRICKY = (
    "a A á Ä ae Æ ß ss s y Ü ue u ø o œ oe å aa ę e Ð d þ th ﬁ fi １ 1 ① ² i İ ı I j v Ⅳ K K e\u0301 a\u0308 "
    "a\u030a u\u0308 c\u030c dž ǆ dz lj nj ch ll ñ ij ĳ ŋ ʣ [ \\ ] ~ ` - \u00a0 \u200b \x01 日 ⽇ 😀 𝐀 т Т ё е "  # noqa: E501
    "й и и\u0306 σ ς Σ か カ が ｶ カー カア ア ー ゝ 한 하 ㄴ ١ لا ﻻ ء أ ا เก กเ เ ก ์ ๙ ็ ແກ ກແ"
)
TRICKY = _TRICKY.split(" ")
"""What collations expand, contract, ignore, move or merge; alone, in pairs, and between spaces."""
LATIN = "abcdefghijklmnopqrstuvwxyz"
NAMES = {
    "Chinese": "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢",
    "Russian": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "Japanese": "アカサタナハマヤラワイキシチニヒミリウクスツヌフムユル",
    "Korean": "가나다라마바사아자차카타파하김이박최정강조윤장임",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "Hebrew": "אבגדהוזחטילמנסעפצקרשת",
    "Turkish": "abcçdefgğhıijklmnoöprsştuüvyz",
    "Thai": "กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวศสห",
    "Hindi": "कखगघचछजझटठडढतथदधनपफबभमयरलवशषसह",
}
FINE = (
    ("Chinese",
     ("gbk_chinese_ci gb2312_chinese_ci utf8mb4_general_ci utf8mb4_unicode_ci "
         "utf8mb4_zh_0900_as_cs utf8mb4_0900_ai_ci")),
    ("Chinese",
     "gb18030_chinese_ci big5_chinese_ci utf8mb4_uca1400_ai_ci utf8mb4_turkish_ci utf8mb3_general_ci"),
    ("Russian",
     ("cp1251_general_ci koi8r_general_ci cp866_general_ci utf8mb4_unicode_ci "
         "utf8mb4_ru_0900_ai_ci utf8mb4_general_ci")),
    ("Greek", "greek_general_ci utf8mb4_unicode_520_ci utf8mb4_uca1400_ai_ci utf8mb4_general_ci"),
    ("Japanese",
     "sjis_japanese_ci ujis_japanese_ci cp932_japanese_ci utf8mb4_ja_0900_as_cs utf8mb4_unicode_ci"),
    ("Korean", "euckr_korean_ci utf8mb4_general_ci utf8mb4_0900_ai_ci"),
    ("Arabic", "cp1256_general_ci utf8mb4_unicode_ci utf8mb4_0900_ai_ci"),
    ("Hebrew", "hebrew_general_ci utf8mb4_unicode_ci"),
    ("Turkish", "latin5_turkish_ci utf8mb4_turkish_ci utf8mb4_tr_0900_ai_ci utf8mb4_uca1400_turkish_ai_ci"),
    ("Thai", "tis620_thai_ci utf8mb4_unicode_ci utf8mb4_0900_ai_ci"),
    ("Hindi", "utf8mb4_unicode_ci utf8mb4_0900_ai_ci utf8mb4_uca1400_ai_ci"),
)  # fmt: skip


class Asked:
    """A server, with all characters in a table."""

    def __init__(self, server: Any) -> None:
        self._cursor = server.connect(charset="utf8mb4").cursor()
        self("SET sql_mode = ''")
        self("CREATE DATABASE IF NOT EXISTS folds")
        self(
            "CREATE TEMPORARY TABLE folds.texts (n INT PRIMARY KEY, u VARCHAR(12) CHARACTER SET utf8mb4 "
            "COLLATE utf8mb4_bin, kind INT)"
        )
        self.texts: list[str] = []
        self.kinds: dict[str, range] = {}
        for kind, texts in _texts().items():
            self.kinds[kind] = range(len(self.texts), len(self.texts) + len(texts))
            self.texts += texts
            rows = list(enumerate(texts, self.kinds[kind].start))
            for start in range(0, len(rows), 20_000):
                values = ",".join(
                    f"({n},CONVERT(0x{text.encode().hex()} USING utf8mb4),{len(self.kinds)})"
                    for n, text in rows[start : start + 20_000]
                )
                self(f"INSERT INTO folds.texts VALUES {values}")
        self.collations = self._collations()

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        self._cursor.execute(sql)
        return list(self._cursor.fetchall())

    def _collations(self) -> dict[str, str]:
        """Return collation → character set, of what is not binary."""
        columns = {name.lower() for _, name in self(
            "SELECT 1, column_name FROM information_schema.columns WHERE table_schema = 'information_schema' "
            "AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY'"
        )}  # fmt: skip
        name = "full_collation_name" if "full_collation_name" in columns else "collation_name"
        known = self(
            f"SELECT {name}, character_set_name FROM information_schema.collation_character_set_applicability"
        )
        return {c: s for c, s in sorted(known) if not c.endswith("_bin") and c != "binary"}

    def weights(self, collation: str, kind: str) -> dict[str, str]:
        """Return text → its weights as hex, of the texts of `kind` that the character set holds."""
        root = _root(collation)
        if root == collation or root not in self.collations:
            return self._root_weights(collation, kind)
        return self._root_weights(root, kind) | self._changed_weights(collation, kind)

    def changed(self, collation: str, kind: str) -> Collection[str]:
        """Return the weights that the root collation does not give to these texts; none for a root collation
        itself."""
        root = _root(collation)
        known = root != collation and root in self.collations
        return {*self._changed_weights(collation, kind).values()} - {""} if known else ()

    @cache  # noqa: B019  # as below
    def _changed_weights(self, collation: str, kind: str) -> dict[str, str]:
        ours, theirs = (f"WEIGHT_STRING(u COLLATE {each})" for each in (collation, _root(collation)))
        return self._ask_weights(kind, ours, f"NOT ({ours} <=> {theirs})")

    @cache  # noqa: B019  # lives as long as the module's fixture
    def _root_weights(self, collation: str, kind: str) -> dict[str, str]:
        charset = self.collations[collation]
        text = "u" if charset == "utf8mb4" else f"CONVERT(u USING {charset})"
        holds = "1" if charset == "utf8mb4" else f"CONVERT({text} USING utf8mb4) = u COLLATE utf8mb4_bin"
        return self._ask_weights(kind, f"WEIGHT_STRING({text} COLLATE {collation})", holds)

    def _ask_weights(self, kind: str, weight: str, where: str) -> dict[str, str]:
        span = self.kinds[kind]
        rows = self(
            f"SELECT n, HEX({weight}) FROM folds.texts WHERE n BETWEEN {span.start} AND "
            f"{span.stop - 1} AND {where}"
        )
        return {self.texts[n]: weight or "" for n, weight in rows}

    def apart(self, collation: str, kind: str, fold: Callable[[str], bytes]) -> list[list[str]]:
        """Return groups of texts of `kind` that an index of `collation` holds equal, though they fold
        apart."""
        groups = defaultdict(list)
        for text, weight in self.weights(collation, kind).items():
            groups[weight].append(text)
        return [group for group in groups.values() if len({fold(text) for text in group}) > 1]


def _texts() -> dict[str, list[str]]:
    points = [p for p in range(1, 0x30000) if not 0xD800 <= p < 0xE000 and _known(p)]
    basic = [chr(p) for p in points if p < 0x10000]
    latin = [chr(p) for p in range(0xC0, 0x250)]
    doubled = {f"{x}{y}{z}" for x, y, z in itertools.product(LATIN, repeat=3)}
    doubled |= {
        t
        for x, y in itertools.product(LATIN, repeat=2)
        for t in (x + y, x + x + y, x + y + x + y, x.upper() + y)
    }
    marks = {x + chr(mark) for x in LATIN for mark in range(0x300, 0x345)}
    tricky = {a + b for a, b in itertools.product(["", *TRICKY], repeat=2)} | {
        f"{a} {b}" for a in TRICKY for b in ("a", "z", "ก")
    }
    hungarian = {
        t for a, b, c in itertools.product("cdglnstyz", repeat=3) for t in (a + a + b + c, (a + b + c) * 2)
    }
    return {
        "basic": basic,
        "beyond": [chr(p) for p in points if p >= 0x10000 and (p < 0x20000 or p % 97 == 0)],
        "words": sorted(set(latin) | set(LATIN) | doubled | marks),
        "tricky": sorted((tricky | hungarian) - {""}),
    }  # fmt: skip


def _known(point: int) -> bool:
    return unicodedata.category(chr(point)) != "Cn" or point % 61 == 0


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def asked(request: pytest.FixtureRequest) -> Asked:
    return Asked(request.getfixturevalue(request.param))


def _chosen(asked: Asked) -> Iterator[str]:
    """Every collation but those that only differ by character set (a sample of them), or pad otherwise."""
    for collation in asked.collations:
        if collation.startswith(SAME_RULES) and not SAMPLE.fullmatch(collation):
            continue
        if re.search(r"_uca1400_.*_(?:ai_cs|as_ci)$", collation):
            continue  # between two others that are asked
        if "nopad" in collation and collation.replace("_nopad", "") in asked.collations:
            assert make_text_fold(collation, None)("Ab1-Жя张") == make_text_fold(
                collation.replace("_nopad", ""), None
            )("Ab1-Жя张")
            continue
        if collation not in COMPARED:
            yield collation


def _root(collation: str) -> str:
    """Return the collation of which this one differs in a few letters only, so that only these are sent."""
    for pattern, root in (
        (r"utf8mb4_[a-z_]+?_(0900_.*?)(_ks)?", r"utf8mb4_\1"),
        (r"utf8mb4_uca1400_(?!a[is]_)[a-z0-9]+_(.*)", r"utf8mb4_uca1400_\1"),
        (r"utf8mb4_(?!general|unicode|0900|uca1400|myanmar|thai)[a-z0-9_]+_ci", "utf8mb4_unicode_ci"),
    ):
        if re.fullmatch(pattern, collation):
            return re.sub(f"^{pattern}$", root, collation)
    return collation


def test_characters_of_one_weight_fold_equal_in_every_collation(asked: Asked) -> None:
    wrong: dict[str, object] = {}
    for collation in _chosen(asked):
        weights, changed = asked.weights(collation, "basic"), asked.changed(collation, "basic")
        if _root(collation) == collation and asked.collations[collation] in {"utf8mb4", "gb18030"}:
            weights = weights | asked.weights(collation, "beyond")
        fold = make_text_fold(collation, None)
        classes: dict[str, list[str]] = defaultdict(list)
        for char, weight in weights.items():
            classes[weight].append(char)
        assert len(classes) > 50, collation
        apart = [
            chars
            for weight, chars in classes.items()
            if len(chars) > 1 and weight and len({fold(char) for char in chars}) > 1
        ]
        notified = [char for char in classes.get("", ()) if fold(f"x{char}y") != fold("xy")]
        unicode = asked.collations[collation] == "utf8mb4" and "general" not in collation
        expanded = list(_expansions(classes, changed, fold)) if unicode else []
        if apart or notified or expanded:
            wrong[collation] = (apart[:5], notified[:5], expanded[:5])
    assert wrong == {}


def _expansions(
    classes: dict[str, list[str]], changed: Collection[str], fold: Callable[[str], bytes]
) -> Iterable[tuple[str, str]]:
    """Yield characters that weigh as several others in a row, but fold otherwise.

    Where weights have levels (with zeros between them) nothing is asked: what is equal there is equal by the
    first alone, and that is asked in the _ai_ci collation of the same language.
    """
    single = {weight: chars[0] for weight, chars in classes.items() if len(weight) in {4, 8}}
    for weight in {*changed} if changed else classes:
        char = classes[weight][0]
        for text in _in_a_row(weight, single) if len(weight) > 4 and "0000" not in weight else ():
            if fold(f".{char}.") != fold(f".{text}."):
                yield char, text


def _in_a_row(weight: str, single: dict[str, str], *, whole: bool = True) -> Iterator[str]:
    """Yield texts of two and more characters that weigh `weight`."""
    if not weight:
        yield ""
    for size in (4, 8):
        first = (
            single.get(weight[:size], "")
            if len(weight) >= size and not (whole and len(weight) == size)
            else ""
        )
        for rest in _in_a_row(weight[size:], single, whole=False) if first else ():
            yield first + rest


def test_strings_that_a_server_compares_equal_fold_equal(asked: Asked) -> None:
    wrong = {}
    for collation in _chosen(asked):
        fold = make_text_fold(collation, None)
        tailored = re.search(r"utf8mb4_(?!general)", collation) and not re.search(
            r"1400_.*(?:_cs|as_ci)$", collation
        )
        kinds = ["tricky", "words"] if tailored else ["tricky"]
        if found := [group[:6] for kind in kinds for group in asked.apart(collation, kind, fold)]:
            wrong[collation] = found[:6]
    assert wrong == {}


def test_what_a_unique_index_refuses_folds_equal(asked: Asked) -> None:
    """The same by the index itself, for collations whose weights do not show it; and for one whose weights
    do, so that weights are proof."""
    for collation in ("big5_chinese_ci", "gbk_chinese_ci", "utf8mb4_general_ci"):
        charset = asked.collations[collation]
        asked("DROP TABLE IF EXISTS folds.held")
        asked(f"CREATE TABLE folds.held (u VARCHAR(12) CHARACTER SET {charset} COLLATE {collation} UNIQUE)")
        span = asked.kinds["basic"]
        asked(
            f"INSERT IGNORE INTO folds.held SELECT CONVERT(u USING {charset}) FROM folds.texts WHERE n "
            f"BETWEEN {span.start} AND {span.stop - 1} AND CONVERT(CONVERT(u USING {charset}) USING "
            "utf8mb4) = u COLLATE utf8mb4_bin"
        )
        groups = asked(
            "SELECT HEX(CONVERT(h.u USING utf8mb4)), GROUP_CONCAT(HEX(t.u)) FROM folds.texts t JOIN "
            f"folds.held h ON h.u = CONVERT(t.u USING {charset}) COLLATE {collation} WHERE t.n BETWEEN "
            f"{span.start} AND {span.stop - 1} AND CONVERT(CONVERT(t.u USING {charset}) USING utf8mb4) = "
            "t.u COLLATE utf8mb4_bin GROUP BY 1 HAVING COUNT(*) > 1"
        )
        fold = make_text_fold(collation, None)
        texts = [
            [bytes.fromhex(each).decode() for each in (one, *group.split(","))]
            for one, group in groups
            if one
        ]
        assert texts
        assert [group for group in texts if len({fold(text) for text in group}) > 1] == []


def test_names_of_all_sorts_stay_apart() -> None:
    """The fold is fine: of a thousand names nearly each folds for itself."""
    for script, collations in FINE:
        letters = NAMES[script]
        names = [
            "".join(name) for name in itertools.islice(itertools.permutations(letters, 3), 0, 12_000, 12)
        ]
        assert len(names) == 1_000 or script == "Hebrew"
        for collation in collations.split():
            folds = set(map(make_text_fold(collation, None), names))
            assert len(folds) > 0.95 * len(names) * (0.8 if script == "Turkish" else 1), (script, collation)


def test_numbers_and_padding_the_server_compares_equal_fold_equal(asked: Asked) -> None:
    from consumer.ordering.fold import fold_decimal, fold_float, fold_whole

    for left, right in [
        ("1.50", "1.5"),
        ("-0.00", "0"),
        ("100", "100.000"),
        ("9007199254740993", "9007199254740993.0"),
    ]:
        assert asked(f"SELECT CAST('{left}' AS DECIMAL(40,6)) = CAST('{right}' AS DECIMAL(40,6))")[0][0] == 1
        assert fold_decimal(left) == fold_decimal(right)
    assert asked("SELECT -0e0 = 0e0")[0][0] == 1
    assert fold_float(-0.0) == fold_float(0.0) == fold_float(0)
    assert fold_whole(9007199254740993) == fold_whole("9007199254740993") != fold_whole(9007199254740992)
