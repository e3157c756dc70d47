"""The differences between the active configuration and a new one: changed keys, and the units they
concern. Pure.

The comparison walks the fields of the models, so it includes new keys automatically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from schemas.config.changes.parts import (
    collect_config_parts,
    format_pipeline_part,
    format_source_part,
)
from schemas.config.model import Config

#: Sections that a running process depends on: connections, folders, addresses, the Spark session.
FIXED = ("kafka", "state_dir", "coordination", "spark")
#: Keys of these sections that running processes use all the same (schemas/io/kafka_passwords.py).
USED_AT_ONCE = frozenset({"kafka.options.sasl.password"})
HIDDEN_VALUE = "(hidden)"


@dataclass(frozen=True, slots=True, order=True)
class ConfigChange:
    """A change of one key."""

    place: str
    """The key's path with dots."""
    before: str | None
    """The old value as text; None: the key did not exist. Secrets are hidden."""
    after: str | None
    """The new value as text; None: the key no longer exists. Secrets are hidden."""

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.place}: new"
        if self.after is None:
            return f"{self.place}: removed"
        if self.before == self.after:
            return f"{self.place}: another value"
        return f"{self.place}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """The changes of a configuration and their consequences."""

    changes: tuple[ConfigChange, ...] = ()
    """In the order of their keys' paths."""
    parts: frozenset[str] = frozenset()
    """The kept or new parts that the changes concern (schemas.config.changes.parts)."""
    removed: frozenset[str] = frozenset()
    """Parts that no longer exist."""
    refused: tuple[str, ...] = ()
    """Why a running system cannot adopt the configuration, one line each."""


def plan_config_change(old: Config, new: Config) -> ConfigPlan:
    """Return the changes from `old` to `new`."""
    changes = tuple(sorted(_yield_changes("", old, new)))
    fixed = [each for each in changes if _is_fixed(each.place)]
    before, after = collect_config_parts(old), collect_config_parts(new)
    concerned = {part for part, sections in after.items() if before.get(part) != sections}
    refused = (f"{new.path}: {each}; this cannot change while rowlock runs: restart it" for each in fixed)
    return ConfigPlan(changes, frozenset(concerned), frozenset(set(before) - set(after)), tuple(refused))


def find_judged_pipelines(config: Config, parts: Collection[str]) -> list[str]:
    """Return the pipelines whose tables and routes a change of `parts` concerns: it is about their own part
    or that of a source.
    """
    return [
        name
        for name, pipeline in config.pipelines.items()
        if format_pipeline_part(name) in parts
        or not {format_source_part(source) for source in pipeline.sources}.isdisjoint(parts)
    ]


def _is_fixed(place: str) -> bool:
    """Return whether a running process depends on a key."""
    return place.partition(".")[0] in FIXED and place not in USED_AT_ONCE


def _yield_changes(place: str, old: Any, new: Any, *, hidden: bool = False) -> Iterator[ConfigChange]:
    if old == new:
        return
    if isinstance(old, BaseModel) and type(old) is type(new):
        for name, field in type(old).model_fields.items():
            inner = _join_place(place, field.alias or name)
            yield from _yield_changes(
                inner, getattr(old, name), getattr(new, name), hidden=field.repr is False
            )
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in _merge_keys(old, new):
            if key not in old or key not in new:
                there = _show_value(old[key] if key in old else new[key], hidden=hidden)
                yield ConfigChange(_join_place(place, key), *((there, None) if key in old else (None, there)))
            else:
                yield from _yield_changes(_join_place(place, key), old[key], new[key], hidden=hidden)
    else:
        yield ConfigChange(place, _show_value(old, hidden=hidden), _show_value(new, hidden=hidden))


def _merge_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    return dict.fromkeys([*old, *new])


def _join_place(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _show_value(value: Any, *, hidden: bool) -> str:
    if hidden or isinstance(value, SecretStr):
        return HIDDEN_VALUE
    if isinstance(value, BaseModel):
        set_by_hand = {field.alias or name: getattr(value, name) for name, field in _set_fields(value)}
        return (
            "{"
            + ", ".join(f"{name}: {_show_value(each, hidden=False)}" for name, each in set_by_hand.items())
            + "}"
        )
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{key}: {_show_value(each, hidden=False)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_show_value(each, hidden=False) for each in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        str(value)
        if isinstance(value, str | int | float | Path)
        else "default"
        if value is None
        else repr(value)
    )


def _set_fields(model: BaseModel) -> Iterator[tuple[str, Any]]:
    return (
        (name, field) for name, field in type(model).model_fields.items() if name in model.model_fields_set
    )
