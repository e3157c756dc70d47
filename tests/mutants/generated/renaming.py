"""Carries the keys of stored mutants through a rename: functions and classes get new names, files move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from tests.mutants.generated.places import Key
from tests.mutants.generated.sample import Reason

K = TypeVar("K", Key, Reason)


class Renames(NamedTuple):
    """What has which new name. Both are keyed by the paths and names from before the rename."""

    names: dict[tuple[str, str], str]
    """(path, qualified name of a function or class) → new name: its last part, all of it, or `path:all of
    it`.
    """
    moves: dict[str, str]
    """Path of a file or folder → new path."""


def read_renames(lines: Iterable[str]) -> Renames:
    """Read lines `path<TAB>qualname<TAB>newname` and `path<TAB><TAB>newpath`.

    A new name without dots replaces the last part of the old one, another one all of it; `newpath:newname`
    moves a function or class to another file. Raises ValueError for any other line.
    """
    renames = Renames({}, {})
    for line in lines:
        if not line.strip():
            continue
        parts = line.rstrip("\n").split("\t")
        if len(parts) != 3 or not parts[0] or not parts[2]:
            raise ValueError(f"not a rename: {line!r}")
        path, name, new = parts
        if name:
            renames.names[path, name] = new
        else:
            renames.moves[path] = new
    return renames


def rename(key: K, renames: Renames) -> K:
    """Return the key as it is after the rename. A class and its method may both have new names."""
    file = _move(key.file, renames.moves)
    parts = key.function.split(".")
    renamed: list[str] = []
    for length, part in enumerate(parts, 1):
        new = renames.names.get((key.file, ".".join(parts[:length])), part)
        path, colon, name = new.rpartition(":")
        file = path if colon else file
        renamed = name.split(".") if colon or "." in name else [*renamed, name]
    return key._replace(file=file, function=".".join(renamed))


def _move(path: str, moves: dict[str, str]) -> str:
    """Return a file's new path; the longest path that moves decides."""
    if path in moves:
        return moves[path]
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        if folder in moves:
            return "/".join([moves[folder], *parts[length:]])
    return path
