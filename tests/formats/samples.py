"""Instances with a value other than the default in every field, made from the fields' types.

The values follow from the wire names: another name in the program gives the same instance, another name on
the wire does not.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

T = TypeVar("T")
MISSING = object()


class Field(NamedTuple):
    """A field of a structure: its names in the program and on the wire, its type, and its default or
    MISSING."""

    name: str
    wire: str
    type: Any
    default: Any


def is_structure(kind: Any) -> bool:
    """Return whether a type has named fields."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct | BaseModel) or dataclasses.is_dataclass(kind)
    )


def fields(kind: type) -> list[Field]:
    """Return the fields of a msgspec structure, a pydantic model or a dataclass."""
    hints = typing.get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        return [
            Field(each.name, each.encode_name, hints[each.name], _default(each, msgspec.NODEFAULT))
            for each in msgspec.structs.fields(kind)
        ]
    if issubclass(kind, BaseModel):
        return [
            Field(name, each.serialization_alias or name, hints[name], _default(each, PydanticUndefined))
            for name, each in kind.model_fields.items()
        ]
    return [
        Field(each.name, each.name, hints[each.name], _default(each, dataclasses.MISSING))
        for each in dataclasses.fields(kind)
    ]


def _default(field: Any, missing: Any) -> Any:
    if field.default is not missing:
        return field.default
    if field.default_factory is missing or field.default_factory is None:
        return MISSING
    return field.default_factory()


def sample(kind: type[T]) -> T:
    """Return an instance of a structure."""
    values = {each.name: _value(each.type, each.wire, each.default) for each in fields(kind)}
    if issubclass(kind, BaseModel):  # which takes a field under its alias, where it has one
        values = {kind.model_fields[name].alias or name: value for name, value in values.items()}
    return kind(**values)


def _value(kind: Any, wire: str, default: Any = MISSING) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _value(_chosen(args), wire, default)
    if origin is typing.Literal:
        return next(each for each in reversed(args) if each != default)
    if origin is tuple:
        kinds = args[:1] if args[-1] is Ellipsis else args
        return tuple(_value(each, f"{wire}{at}") for at, each in enumerate(kinds))
    if origin is list:
        return [_value(args[0], wire)]
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {f"a name of {wire}": _value(args[1], wire)}
    if is_structure(kind):
        return sample(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(each for each in reversed(kind) if each != default)
    return _plain(kind, wire, default)


def _plain(kind: Any, wire: str, default: Any) -> Any:
    number = 10 + zlib.crc32(wire.encode()) % 900
    found = {int: number, float: number + 0.5, str: wire, bytes: wire.encode(), bool: default is not True}
    return found.get(kind, f"any {wire}")


def _chosen(kinds: tuple[Any, ...]) -> Any:
    """Return the type of a union that has most to show: a structure, else a text, else the first one that is
    not None."""
    some = [each for each in kinds if each is not type(None)]
    return next((each for each in some if is_structure(each)), str if str in some else some[0])


def defaults_in(value: Any, path: str = "") -> Iterator[str]:
    """Yield where fields of an instance have their default, or nothing."""
    if is_structure(type(value)):
        for each in fields(type(value)):
            found = getattr(value, each.name)
            where = f"{path}.{each.wire}"
            if found is None or (each.default is not MISSING and found == each.default):
                yield where
            yield from defaults_in(found, where)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from defaults_in(each, f"{path}[{name!r}]")
    elif isinstance(value, tuple | list):
        for at, each in enumerate(value):
            yield from defaults_in(each, f"{path}[{at}]")


def structures_in(kind: Any) -> set[type]:
    """Return the structures that a type holds, itself included."""
    found: set[type] = set()
    _gather(kind, found)
    return found


def _gather(kind: Any, found: set[type]) -> None:
    if is_structure(kind):
        if kind in found:
            return
        found.add(kind)
        for each in fields(kind):
            _gather(each.type, found)
    for each in typing.get_args(kind):
        _gather(each, found)


def words_in(kind: Any) -> Iterator[Any]:
    """Yield the words of the enumerations in a field's type."""
    if typing.get_origin(kind) is typing.Literal:
        yield from typing.get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield from (each.value for each in kind)
    else:
        for each in typing.get_args(kind):
            yield from words_in(each)
