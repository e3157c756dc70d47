"""Judges whether source and target order a table's key alike. Only then may a part of the key's range be
compared alone.

A chunk of a copy is a range in the *source's* order. If the target orders the key differently, the same
two bounds enclose other rows there, and a deletion by them would delete rows that other chunks wrote. So
only types with the same order everywhere are accepted: exact numbers, dates and times, and bytes. Text,
labels, bits and floats are always refused. Without I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.table.model import ColumnType, Kind, Table, UniqueIndex

_INTEGERS = {Kind.INT, Kind.YEAR}
_NUMBERS = {Kind.INT, Kind.YEAR, Kind.DECIMAL}
_BYTES = {Kind.BINARY, Kind.VARBINARY, Kind.BLOB}


def are_ranges_alike(source: Table, real: Table, added: tuple[str, ...] = ()) -> bool:
    """Return whether a range of `source`'s key contains the same keys in the target table `real`.

    `added`: columns with one value in all rows of the source; they may be anywhere in the target's key.
    """
    if _get_whole_columns(source.key) is None or (theirs := _get_whole_columns(real.key)) is None:
        return False
    if tuple(name for name in theirs if name not in added) != source.key.columns:
        return False
    return all(
        _are_ordered_alike(source.get_column(name).type, real.get_column(name).type)
        for name in source.key.columns
    )


def are_keys_shown_alike(source: Table, real: Table) -> bool:
    """Return whether the target `real` shows each key of `source` exactly as the source does, if their ranges
    are alike: then two keys are one row's only if they are equal.
    """
    return all(
        _is_shown_alike(source.get_column(name).type, real.get_column(name).type)
        for name in source.key.columns
    )


def _is_shown_alike(source: ColumnType, real: ColumnType) -> bool:
    if source.kind in _INTEGERS:
        return real.kind in _INTEGERS
    is_same = (real.kind, real.precision, real.scale, real.fsp) == (
        source.kind,
        source.precision,
        source.scale,
        source.fsp,
    )
    return is_same and source.kind in {Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}


def has_form(of: ColumnType, value: object) -> bool:
    """Return whether `value`, which the target shows in a key, may be a value of the source's type `of`,
    one of those that a target can show alike. If the column was altered since, it may be none: 5.00 of an
    integer.
    """
    if of.kind in _INTEGERS:
        return isinstance(value, int)
    fraction = len(str(value).removesuffix("Z").partition(".")[2])
    if of.kind is Kind.DECIMAL:
        return fraction == of.scale or not (of.precision or of.scale)
    return fraction == of.fsp and (of.kind is not Kind.DATE or ":" not in str(value))


def _get_whole_columns(key: UniqueIndex) -> tuple[str, ...] | None:
    """Return the columns of a key; None if it contains only a prefix of a value."""
    return None if any(part.prefix for part in key.parts) else key.columns


def _are_ordered_alike(source: ColumnType, real: ColumnType) -> bool:
    rule = _RULES.get(source.kind)
    return rule is not None and rule(source, real)


def _are_numbers_alike(source: ColumnType, real: ColumnType) -> bool:
    """Return whether the target holds the numbers exactly; if it rounds, two of the source's values
    could be equal.
    """
    scale = source.scale if source.kind is Kind.DECIMAL else 0
    exact = real.kind is not Kind.DECIMAL or not real.precision or real.scale >= scale
    if source.kind is Kind.DECIMAL and not source.precision:  # of any scale
        exact = real.kind is Kind.DECIMAL and not real.precision
    return real.kind in _NUMBERS and exact and (not scale or real.kind is Kind.DECIMAL)


def _are_times_alike(source: ColumnType, real: ColumnType) -> bool:
    return real.kind is source.kind and real.fsp >= source.fsp


def _are_bytes_alike(source: ColumnType, real: ColumnType) -> bool:
    """Return whether all values have one length, so that no rule of padding applies."""
    return real.kind in _BYTES and (real.kind is not Kind.BINARY or real.length == source.length)


def _free_bytes(_source: ColumnType, real: ColumnType) -> bool:
    return real.kind in {Kind.VARBINARY, Kind.BLOB}


_RULES: dict[Kind, Callable[[ColumnType, ColumnType], bool]] = {
    **dict.fromkeys(_NUMBERS, _are_numbers_alike),
    **dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), _are_times_alike),
    Kind.BINARY: _are_bytes_alike,
    Kind.VARBINARY: _free_bytes,
}
