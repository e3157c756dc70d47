"""A stored or transmitted structure, and its golden files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "golden" / "stored"


@dataclass(frozen=True)
class Case:
    """An instance in which every field has another value than its default, with the functions that write and
    read it."""

    name: str
    instance: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any] | None
    """None: rowlock only writes this, other programs read it."""


@dataclass(frozen=True)
class Structure:
    """A structure of docs/reference/stored-formats.md."""

    name: str
    cases: tuple[Case, ...]
    types: tuple[type, ...] = ()
    """The types whose fields are members of the JSON. Those that their fields have belong to it as well."""
    forgotten: frozenset[str] = frozenset()
    """Paths of JSON members that a version of rowlock wrote and that the present one reads no longer; each
    needs a line in CHANGELOG.md."""

    def files(self, case: Case) -> list[Path]:
        """Return the golden files of a case, the oldest version first."""
        found = (FOLDER / self.name).glob(f"{case.name}.v*.json")
        return sorted(found, key=lambda path: int(path.suffixes[-2].removeprefix(".v")))

    def write(self, case: Case) -> Path | None:
        """Write the present bytes as a new version. Returns None where the newest version has them
        already."""
        files, data = self.files(case), case.encode(case.instance)
        if files and golden(files[-1]) == data:
            return None
        path = FOLDER / self.name / f"{case.name}.v{len(files) + 1}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data + b"\n")
        return path


class View(NamedTuple):
    """A type that reads a part of documents which another type, or another product, has written."""

    type: type
    documents: tuple[Any, ...]
    """JSON documents that have every member which the type reads."""


def golden(path: Path) -> bytes:
    """Return the bytes that a golden file has, without the line end that closes the file."""
    return path.read_bytes().removesuffix(b"\n")


def members(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every value of a JSON document that has no members itself."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = [(f"{path}.{name}", each) for name, each in value.items()]
    elif isinstance(value, list):
        parts = [(f"{path}[{at}]", each) for at, each in enumerate(value)]
    if not parts:
        yield path, value
    for name, each in parts:
        yield from members(each, name)


def documents(data: bytes) -> list[Any]:
    """Return the JSON documents of bytes that have one in each line."""
    return [json.loads(line) for line in data.split(b"\n")]
