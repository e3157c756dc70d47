"""docs/how-to/add-a-target.md is true: what it names exists, and the target in the tests is made as it
describes."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from consumer.targets import dialect_components
from consumer.targets.batches import BatchTarget
from consumer.targets.sql import Syntax
from tests.kits.pages import defined
from tests.stands import json_folder, sqlite_target

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-target.md"
TEXT = PAGE.read_text()
#: (file, class, what SQLite has for it), of the table.
TABLE = re.findall(r"^\| [^|`]+ \| `([\w/.]+)` \| `(\w+)` \| `(\w+)` \|$", TEXT, re.MULTILINE)
#: Words in backticks that are no names of code.
WORDS = {
    "%s",
    "%%",
    "deletes",
    "replaces",
    "snapshot",
    "updates",
    "displacing",
    "progress",
    "rowlock check",
    "rowlock_progress",
    "rowlock_displaced",
}
WORDS |= {
    "lossless",
    "transactional",
    "commit_every",
    "install_requires",
    "foreachBatch",
    "rowlock verify",
    "rowlock copy",
    "rowlock.targets",
    "word = package.module:KIND",
}


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:consumer|schemas|tests|docs)/[\w/.]+)`", TEXT))
    assert len(named) >= 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_name_is_defined_in_one_of_the_files_that_it_names() -> None:
    files = [ROOT / name for name in re.findall(r"`([\w/]+\.py)`", TEXT)]
    known = set[str]().union(*(defined(path) for path in files)) | {
        path.stem for path in (ROOT / "consumer/targets").rglob("*.py")
    }
    spoken = set(re.findall(r"`([^`\n]+)`", TEXT)) - WORDS
    assert sorted(name for name in spoken if "/" not in name and name not in known) == []


def test_the_table_names_what_is_where_it_says() -> None:
    assert len(TABLE) == 8
    for file, name, own in TABLE:
        assert name in defined(ROOT / file)
        assert hasattr(sqlite_target, own)


@pytest.mark.parametrize(
    ("protocol", "own"), [(name, own) for file, name, own in TABLE if file.endswith("dialect_components.py")]
)
def test_sqlite_has_what_a_protocol_asks(protocol: str, own: str) -> None:
    asked = [name for name in vars(getattr(dialect_components, protocol)) if not name.startswith("_")]
    made: Any = getattr(sqlite_target, own)
    has = {*dir(made), *(["affected", "locks"] if protocol == "Link" else [])}  # set by its __init__
    assert len(asked) >= 2
    assert [name for name in asked if name not in has] == []


def test_the_folder_has_what_a_target_of_whole_batches_is_asked() -> None:
    """The protocol and those that it extends; what of them a session alone must have is not asked."""
    protocols = [each for each in BatchTarget.__mro__ if each.__module__.startswith("consumer.targets")]
    asked = {name for each in protocols for name in vars(each) if not name.startswith("_")}
    assert {"apply_changes", "take_over", "read_table", "read_surroundings", "read_quarantine"} <= asked
    assert [name for name in sorted(asked) if not hasattr(json_folder.JsonFolder, name)] == []
    assert (
        getattr(import_module(json_folder.KIND.module), json_folder.KIND.attribute) is json_folder.JSON_FOLDER
    )


def test_sqlite_is_registered_by_its_entry_alone() -> None:
    kind = sqlite_target.KIND
    assert getattr(import_module(kind.module), kind.attribute) is sqlite_target.SQLITE
    assert isinstance(sqlite_target.SYNTAX, Syntax)
    assert [each.name for each in fields(Syntax) if each.default is not MISSING] == [], "the page says so"
    naming = [
        str(path.relative_to(ROOT))
        for package in ("consumer", "rowlock", "schemas", "coordinator", "producer")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"sqlite", path.read_text(), re.IGNORECASE)
    ]
    assert naming == ["schemas/io/scratch.py"], "a file of one process, and no target"


def test_the_page_is_found() -> None:
    assert "docs/how-to/add-a-target.md" in (ROOT / "README.md").read_text()
    assert "add-a-target.md" in (ROOT / "schemas" / "config" / "kinds" / "targets.py").read_text()
