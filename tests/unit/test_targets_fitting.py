"""Which target columns take and hold which source values, and which collations are surely not coarser."""

from __future__ import annotations

import pytest

from consumer.targets.checks.column_fit import accepts_kind, can_hold_all_values, has_room
from schemas.errors import UnsupportedTypeError
from schemas.table.collations import is_not_coarser
from schemas.table.model import ColumnType, Kind
from schemas.table.typemap import convert_postgres_type, render_postgres_type


def col(kind: str, **more: object) -> ColumnType:
    return ColumnType(kind=Kind(kind), **more)  # type: ignore[arg-type]


SAMPLES = [
    *(col("int", bits=bits, unsigned=unsigned) for bits in (8, 16, 24, 32, 64) for unsigned in (False, True)),
    col("decimal", precision=12, scale=3), col("decimal", precision=65, scale=30, unsigned=True),
    col("float"), col("double"), col("bit", length=7), col("year"), col("char", length=3),
    col("varchar", length=300), col("text", length=2**32 - 1), col("binary", length=4),
    col("varbinary", length=9), col("blob", length=65535), col("date"), col("time", fsp=3),
    col("datetime", fsp=6), col("timestamp", fsp=0), col("json"), col("enum", members=("a", "b")),
    col("set", members=("a", "b")), col("geometry"),
]  # fmt: skip


def as_the_server_says(ddl: str) -> str:
    """Return format_type() of a column that was made with the type `ddl`."""
    base, bracket, rest = ddl.partition("(")
    names = {
        "varchar": ("character varying", ""),
        "timestamp": ("timestamp", " without time zone"),
        "timestamptz": ("timestamp", " with time zone"),
    }
    name, tail = names.get(base, (base, ""))
    return name + bracket + rest + tail


@pytest.mark.parametrize("type_", SAMPLES, ids=str)
def test_what_the_type_map_makes_takes_and_holds_every_value(type_: ColumnType) -> None:
    real = convert_postgres_type(as_the_server_says(render_postgres_type(type_)))
    assert accepts_kind(type_, real)
    assert has_room(type_, real)
    assert accepts_kind(type_, type_)
    assert has_room(type_, type_)


@pytest.mark.parametrize(
    ("source", "real"),
    [
        (col("int", bits=32, unsigned=True), col("int", bits=32)),
        (col("int", bits=64), col("decimal", precision=18)),
        (col("decimal", precision=10, scale=2), col("decimal", precision=10, scale=3)),
        (col("varchar", length=10), col("varchar", length=9)),
        (col("enum", members=("long", "a")), col("varchar", length=3)),
        (col("datetime", fsp=6), col("datetime", fsp=3)),
        (col("bit", length=3), col("bit", length=4)),
    ],
    ids=str,
)
def test_too_narrow(source: ColumnType, real: ColumnType) -> None:
    assert accepts_kind(source, real)
    assert not has_room(source, real)


@pytest.mark.parametrize(
    ("source", "real", "fine"),
    [
        (col("char", length=9), col("char", length=9), True),
        (col("enum", members=("a", "b")), col("char", length=1), True),
        (col("set", members=("a", "b")), col("char", length=3), True),
        (col("varchar", length=9), col("char", length=9), False),
        (col("text", length=9), col("char", length=9), False),
        (col("binary", length=9), col("binary", length=9), True),
        (col("binary", length=9), col("binary", length=10), False),
        (col("varbinary", length=9), col("binary", length=9), False),
    ],
    ids=str,
)
def test_a_char_drops_spaces_and_a_binary_is_filled_up(
    source: ColumnType, real: ColumnType, fine: bool
) -> None:
    """Each has room for every value, and takes none of the others as it is."""
    assert accepts_kind(source, real)
    assert can_hold_all_values(source, real) is fine


def test_other_kinds_are_not_taken() -> None:
    assert not accepts_kind(col("varchar", length=5), col("int", bits=32))
    assert not accepts_kind(col("date"), col("datetime"))


@pytest.mark.parametrize(
    ("source", "real", "fine"),
    [
        ("utf8mb4_general_ci", None, True),
        ("utf8mb4_general_ci", "utf8mb4_general_ci", True),
        ("utf8mb4_general_ci", "utf8mb4_bin", True),
        ("utf8mb4_0900_ai_ci", "utf8mb4_0900_ai_ci", True),
        ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci", False),
        ("utf8mb4_0900_ai_ci", "utf8mb4_bin", False),
        ("utf8mb4_0900_ai_ci", "utf8mb4_nopad_bin", True),
        ("utf8mb4_uca1400_ai_ci", "utf8mb4_0900_ai_ci", False),
        ("utf8mb4_uca1400_ai_ci", "utf8mb4_0900_bin", True),
        ("utf8mb4_nopad_bin", "utf8mb4_bin", False),
        ("utf8_general_ci", "utf8mb3_general_ci", True),
        ("utf8mb3_general_ci", "utf8mb4_general_ci", True),
        ("utf8mb4_general_ci", "utf8mb3_general_ci", False),
        ("latin1_swedish_ci", "utf8mb4_bin", True),
        ("utf8mb4_general_ci", "sjis_bin", False),
        ("utf8mb4_general_ci", "my_nondeterministic", False),
        ("utf8mb4_bin", "utf8mb4_general_ci", False),
        ("utf8mb4_0900_as_cs", "utf8mb4_0900_ai_ci", False),
        (None, "utf8mb4_general_ci", False),
    ],
)
def test_collations(source: str | None, real: str | None, fine: bool) -> None:
    assert is_not_coarser(source, real) is fine


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError):
        convert_postgres_type("citext")
