"""Mutants of ENUM and SET with an empty label, which are carried as numbers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NUMBERS = ("tests/unit/test_label_numbers.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _NUMBERS) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of(
        "schemas/table/model.py",
        ('return type_ if kind is None or "" not in type_.members else', "return type_ if kind is None else"),
        ('return type_ if kind is None or "" not in type_.members else', "return type_ if True else"),
    ),
    *_of(
        "schemas/wire/event.py",
        ("return NUMBERS_VERSION if any(", "return NUMBERS_VERSION if not any("),
        tests=_NUMBERS,
    ),
    *_of("schemas/wire/event.py", ('NUMBERS_VERSION = "2.0"', 'NUMBERS_VERSION = "1.1"'), tests=_NUMBERS),
    *_of(
        "schemas/wire/debezium_values.py",
        ("        if chosen[0] > empty:\n", "        if False:\n"),
        ("        if chosen[0] > empty:\n", "        if chosen[0] >= empty:\n"),
        ("        number(_require_text(value))\n", ""),
    ),
    *_of(
        "schemas/values/converter.py",
        (" and str(int(text)) == text else text", " else text"),
        ("if text.isascii() and text.isdecimal() and", "if"),
    ),
    *_of(
        "schemas/io/mysql_catalog.py",
        ("len(type_.members) > _COMPARED_EXACTLY:", "False:"),
        ("for index in (table.key, *table.unique) for name", "for index in (table.key,) for name"),
    ),
    *_of(
        "rowlock/inspect/checks/label_check.py",
        ("if place in debezium else again", "if place not in debezium else again"),
    ),
    *_of(
        "producer/resume/former_stops.py",
        ("for table in (state.table, *later))", "for table in (state.table,))"),
        ("if at > state.defined_at] if tail", "] if tail"),
        tests=("tests/unit/test_capture_start.py",),
    ),
    *_of(
        "producer/decoders/columns.py",
        ("range(len(column.members) + 1)))", "range(300)))"),
        tests=("tests/unit/test_decoder_bounds.py",),
    ),
    *_of(
        "consumer/targets/kafka/shaping.py",
        (
            "            value is None or value.isdecimal() for value in values\n",
            "            True for value in values\n",
        ),
        tests=("tests/unit/test_shaping.py",),
    ),
    *_of(
        "consumer/targets/kafka/formats/key_forms.py",
        (
            "_IN_ORDER = frozenset({Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER})",
            "_IN_ORDER = frozenset({Kind.SET})",
        ),
        tests=("tests/unit/test_kafka_key_forms.py",),
    ),
    *_of(
        "consumer/targets/checks/column_fit.py",
        ("return source.members[:shared] != real.members[:shared]", "return False"),
    ),
    *_of(
        "consumer/targets/checks/column_fit.py",
        ('and source.kind is Kind.ENUM and "" not in source.members:', "and False:"),
        tests=("tests/unit/test_lossy_columns.py",),
    ),
    *_of(
        "consumer/targets/mysql/sql.py",
        (
            'return f"CAST(VALUES({column}) AS UNSIGNED)" if column in by_number else',
            'return f"CAST(VALUES({column}) AS UNSIGNED)" if False else',
        ),
        (
            'return f"CAST({column} AS UNSIGNED)" if column in by_number else',
            'return f"CAST({column} AS UNSIGNED)" if False else',
        ),
        tests=("tests/unit/test_targets_sql.py",),
    ),
]
