"""Character sets that are decoded by tables of the servers: every code, codes without a character, and
characters with several codes, which no key or unique index may have."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from producer.binlog_format.charsets import find_code_check, find_decoder
from producer.binlog_format.statement_text import UNDECODED, decode_statement_text
from producer.binlog_format.tabled_charsets import TABLED_CHARSETS, make_table_decoder
from producer.errors import TableStoppedError
from producer.snapshot.text import make_snapshot_row_decoder
from producer.sources.survey import explain_undecodable_columns
from schemas.errors import UnsupportedTypeError
from schemas.table.charsets import compute_text_bytes, keeps_characters
from schemas.table.keys import require_comparable_keys
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.charset_tables import CODES

#: Character set → codes, their text.
KNOWN = {
    "armscii8": (b"a\xb2\xb3", "aԱա"),
    "dec8": (b"\xd7\xf7\xdd", "ŒœŸ"),
    "geostd8": (b"\xc0\x80", "ა€"),
    "hp8": (b"\xa1\xf0", "ÀÞ"),
    "keybcs2": (b"\x80\x87", "Čč"),
    "swe7": (b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü"),
    "eucjpms": (b"a\x8e\xb1\xb0\xa1\xad\xa1\x8f\xb0\xa1\x8f\xf5\xa1", "aｱ亜①丂\ue3ac"),
}
#: Character set → bytes that are no text in it.
UNDEFINED = {
    "dec8": [b"\xa4", b"a\xff"],
    "geostd8": [b"\x81", b"\xff"],
    "hp8": [b"\xff"],
    "swe7": [b"\x7f", b"\x80", b"\xff"],
    "eucjpms": [
        b"\x80",
        b"\xa1",
        b"a\x8e",
        b"\x8f\xb0",
        b"\xa9\xa1",
        b"\x8f\xa1\xa1",
        b"\x8e\xe0",
        b"\xff\xa1",
    ],
}


def decode(charset: str, data: bytes) -> str:
    found = find_decoder(charset)
    assert found is not None
    return found(data).encode("latin-1").decode()


def table(charset: str, *, key: str = "id", unique: bool = False) -> Table:
    text = ColumnType(kind=Kind.VARCHAR, length=9, charset=charset, collation=f"{charset}_bin")
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="name", type=text),
    )
    indexes = (UniqueIndex(name="u", parts=(IndexPart(column="name"),)),) if unique else ()
    first = UniqueIndex(name="PRIMARY", parts=(IndexPart(column=key),))
    return Table(db="d", name="t", columns=columns, key=first, unique=indexes)


def test_every_set_has_a_known_text() -> None:
    assert {*KNOWN} == TABLED_CHARSETS == {*CODES}
    for charset, (data, text) in KNOWN.items():
        assert decode(charset, data) == text
        assert explain_undecodable_columns(table(charset)) is None


@pytest.mark.parametrize(
    ("charset", "data"), [(name, each) for name in UNDEFINED for each in UNDEFINED[name]]
)
def test_bytes_without_a_character_are_refused(charset: str, data: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode(charset, data)


@given(st.sampled_from(sorted(TABLED_CHARSETS)), st.data())
def test_a_text_is_that_of_its_codes(charset: str, data: st.DataObject) -> None:
    whole = make_table_decoder(charset)
    codes = data.draw(st.lists(st.sampled_from(CODES[charset]), max_size=5))
    try:
        texts = [whole(code) for code in codes]
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            whole(b"".join(codes))
    else:
        assert whole(b"".join(codes)) == "".join(texts)


def list_codes(charset: str) -> list[bytes]:
    lead = [*range(0x81, 0xA0), *range(0xE0, 0xFD)]
    pairs = [bytes(pair) for pair in itertools.product(lead, range(0x40, 0xFD))]
    return CODES.get(charset) or [*(bytes([code]) for code in range(256)), *pairs]


@pytest.mark.parametrize("charset", [*sorted(TABLED_CHARSETS), "cp932", "sjis"])
def test_in_an_index_a_character_has_one_code(charset: str) -> None:
    check, seen = find_code_check(charset), dict[str, bytes]()
    every = set()
    for code in list_codes(charset):
        try:
            text = decode(charset, code)
        except UnicodeDecodeError:
            continue
        every.add(text)
        try:
            if check is not None:
                check(code)
        except UnicodeError:
            continue
        assert text not in seen, (code, seen)
        seen[text] = code
    assert {*seen} == every


def test_a_code_begins_where_the_one_before_it_ends() -> None:
    for charset in ("sjis", "cp932"):
        check = find_code_check(charset)
        assert check is not None
        for accepted in (b"\x83\x81\x5f\x5c", b"a\xfb\xfc", b"\x83\xed@", b"\xb1\xb2"):
            check(accepted)
        for refused in {"sjis": [b"a\x81\x5f"], "cp932": [b"\x82\xa0\xed@", b"a\x87\x90b"]}[charset]:
            with pytest.raises(UnicodeError):
                check(refused)


def test_sets_without_repeated_codes_have_no_check() -> None:
    assert find_code_check("dec8") is None
    assert find_code_check("latin1") is None
    assert find_code_check(None) is None


def test_a_snapshot_stops_at_a_repeated_code_in_the_key_and_marks_one_in_a_unique_index() -> None:
    plain = make_snapshot_row_decoder(table("armscii8"))
    assert plain((1, b"\xa5\xb2")) == (1, "(Ա")
    marked = make_snapshot_row_decoder(table("armscii8", unique=True))
    assert marked((1, b"\x28\xb2")) == (1, "(Ա")
    assert marked((1, b"\xa5\xb2")) == (1, {"undecodable": "pbI="})
    keyed = make_snapshot_row_decoder(table("armscii8", key="name"))
    assert keyed((1, b"\x28")) == (1, "(")
    with pytest.raises(TableStoppedError, match="another code"):
        keyed((1, b"\xa5"))


def test_labels_of_a_key_differ_in_their_text() -> None:
    labels = ColumnType(kind=Kind.ENUM, members=("(", "("), charset="armscii8")
    whole = table("armscii8")
    other = replace(whole, columns=(whole.columns[0], Column(name="name", type=labels)))
    require_comparable_keys(other)
    with pytest.raises(UnsupportedTypeError, match=r"two of its labels have one text \(\(, \(\)"):
        require_comparable_keys(replace(other, key=table("armscii8", key="name").key))


def test_texts_fit_where_their_characters_do() -> None:
    def text(charset: str) -> ColumnType:
        return ColumnType(kind=Kind.VARCHAR, length=9, charset=charset)

    assert keeps_characters(text("swe7"), text("utf8mb3"))
    assert keeps_characters(text("eucjpms"), text("utf8mb4"))
    assert keeps_characters(text("ascii"), text("armscii8"))
    assert not keeps_characters(text("ascii"), text("swe7"))
    assert not keeps_characters(text("hp8"), text("latin1"))
    assert compute_text_bytes(text("utf8mb4"), text("keybcs2")) == 9


def test_a_statement_in_such_a_set_is_read() -> None:
    assert decode_statement_text(b"DROP TABLE \xd7", 3) == "DROP TABLE Œ"
    assert decode_statement_text(b"DROP TABLE \x8f\xb0\xa1", 97) == "DROP TABLE 丂"
    assert decode_statement_text(b"DROP TABLE `a\xa5`", 32) == f"DROP TABLE `a{UNDECODED}`"
