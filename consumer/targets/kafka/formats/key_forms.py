"""The form in which a format writes the columns of a record's key: everything but the values that its
bytes depend on. Pure.

If two definitions of a column have the same form, every row keeps its bytes: a wider INT is the same
number in JSON. If the forms differ, a row would be under two keys. In doubt they differ, because a
stopped table is noticed, but an old record is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from consumer.targets.kafka.formats.debezium_columns import build_column_field, build_debezium_form
from schemas.table.model import Column, ColumnType, Kind, Table

_LONGEST = 200
_DIGITS = 16
UNSIGNED = ", unsigned"
"""The suffix of forms in which large numbers may be negative; smaller numbers are the same in the form
without it.
"""


class KeyForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of a key's column.

    `labels`: those that are written by order or number; more labels may be appended.
    """

    column: str = msgspec.field(name="column")
    form: str = msgspec.field(name="form")
    labels: tuple[str, ...] = msgspec.field(name="labels", default=())

    def describe_form(self) -> str:
        return f"{self.form} {list(self.labels)}" if self.labels else self.form

    def goes_on_as(self, now: KeyForm) -> bool:
        """Return whether rows that were written in this form have the same bytes in the form `now`."""
        if (self.column, self.form) != (now.column, now.form):
            return False
        return not now.labels or now.labels[: len(self.labels)] == self.labels


class ValueForm(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The form of a column's values.

    `since`: by partition, the offset from which on records have it; empty: all records have it.
    """

    column: str = msgspec.field(name="column")
    form: str = msgspec.field(name="form")
    labels: tuple[str, ...] = msgspec.field(name="labels", default=())
    since: tuple[int, ...] = msgspec.field(name="since", default=())


def build_value_forms(word: str, shown: Table, masked: Mapping[str, str], salt: str) -> tuple[ValueForm, ...]:
    """Return the forms of all columns in the values of format `word`. Values with the same form and
    bytes are equal.

    `shown`: the table as its topic has it; `masked`: column → the description of its mask.
    """
    keys = frozenset(shown.key.columns)
    return tuple(
        ValueForm(each.name, _build_value_form(word, each, each.name in keys), _list_labels(word, each.type))
        if each.name not in masked
        else ValueForm(each.name, f"mask of digest {_compute_digest(f'{masked[each.name]}{chr(0)}{salt}')}")
        for each in shown.columns
    )


def _build_value_form(word: str, column: Column, keyed: bool) -> str:
    """Return the form of a column in values.

    The schema in a record of `debezium-schemas` does not belong to the value. In Debezium's forms a
    BIGINT UNSIGNED is negative from 2^63 on, but a column of the key can hold such a value in no other
    type.
    """
    if not word.startswith("debezium"):
        return _FORMS[word](column)
    type_, form = column.type, _describe_debezium_form(column)
    wide = type_.kind is Kind.INT and type_.unsigned and type_.bits == 64 and not keyed
    return f"{form}{UNSIGNED}" if wide else form


def build_key_forms(
    word: str, shown: Table, names: tuple[str, ...], masked: Mapping[str, Column], salt: str
) -> tuple[KeyForm, ...]:
    """Return the forms of the columns `names` in the keys of format `word`.

    `shown`: the table as its topic has it; `masked`: hashed columns, as they are before the hash;
    `salt`: the hash's salt.
    """
    return tuple(_build_key_form(word, shown.get_column(name), masked.get(name), salt) for name in names)


def _build_key_form(word: str, column: Column, hidden: Column | None, salt: str) -> KeyForm:
    form = _FORMS[word](column)
    if hidden is None:
        labels = _list_labels(word, column.type)
        return KeyForm(column.name, form, labels)
    inner, salted = _describe_text_form(hidden.type), _compute_digest(f"rowlock mask_salt\0{salt}")
    form = f"{form}: sha256 of {inner} with the mask_salt of digest {salted}"
    return KeyForm(column.name, form, _list_labels("", hidden.type))


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _list_labels(word: str, type_: ColumnType) -> tuple[str, ...]:
    """Return the labels that the form depends on by their places.

    A SET's labels are written in the order of its members; numbers of labels depend on their places,
    and Canal writes only numbers.
    """
    return type_.members if type_.kind in _IN_ORDER or word == "canal-json" else ()


_IN_ORDER = frozenset({Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER})


def _describe_json_form(type_: ColumnType) -> str:
    """Return the form of a wire value (see schemas.table.model)."""
    if type_.text_of is not None:
        return f"text of {type_.text_of}"
    match type_.kind:
        case Kind.INT | Kind.YEAR | Kind.BIT:
            return "number"
        case Kind.ENUM_NUMBER | Kind.SET_NUMBER:
            return "number of labels"
        case Kind.DECIMAL:
            return f"decimal with {type_.scale if type_.precision else 'any'} digits after the point"
        case Kind.FLOAT | Kind.DOUBLE:
            return "float"
        case Kind.CHAR | Kind.VARCHAR | Kind.TEXT | Kind.ENUM | Kind.SET | Kind.JSON:
            return "text"
        case Kind.BINARY:
            return f"{type_.length} bytes"
        case Kind.VARBINARY | Kind.BLOB:
            return "bytes"
        case Kind.TIME | Kind.DATETIME | Kind.TIMESTAMP:
            return f"{type_.kind} with {type_.fsp} digits of a second"
        case _:
            return str(type_.kind)


def _describe_text_form(type_: ColumnType) -> str:
    """Return the form of a wire value as text: there a DECIMAL without fraction digits equals an integer."""
    whole = type_.kind is Kind.DECIMAL and type_.precision and not type_.scale
    return "number" if whole else _describe_json_form(type_)


def _describe_canal_form(column: Column) -> str:
    match column.type.kind:
        case Kind.YEAR:
            return "number of four digits"
        case Kind.ENUM | Kind.ENUM_NUMBER:
            return "number of enum labels"
        case Kind.SET | Kind.SET_NUMBER:
            return "number of set labels"
        case _:
            return _describe_text_form(column.type)


def _describe_debezium_form(column: Column) -> str:
    type_ = column.type
    match type_.kind:
        case Kind.BIT:
            return "boolean" if type_.length == 1 else f"bits in {(type_.length + 7) // 8} bytes"
        case Kind.DECIMAL:
            return f"unscaled {_describe_json_form(type_)}"
        case Kind.FLOAT | Kind.DOUBLE:
            return str(type_.kind)
        case Kind.TIME:
            return "time in microseconds"
        case Kind.DATETIME:
            return f"datetime in {'milli' if type_.fsp <= 3 else 'micro'}seconds"
        case _:
            return _describe_json_form(type_)


def _with_schema(column: Column) -> str:
    """Return the form with the schema, which is part of each key: the column's type, default and
    nullability.
    """
    form = build_debezium_form(column.type)
    schema = "" if form is None else msgspec.json.encode(build_column_field(column, form)).decode()
    shown = schema if len(schema) <= _LONGEST else f"of digest {_compute_digest(schema)}"
    return f"{_describe_debezium_form(column)} with the schema {shown}"


_FORMS: dict[str, Callable[[Column], str]] = {
    "rowlock": lambda column: _describe_json_form(column.type),
    "plain": lambda column: _describe_json_form(column.type),
    "canal-json": _describe_canal_form,
    "debezium": _describe_debezium_form,
    "debezium-schemas": _with_schema,
}
