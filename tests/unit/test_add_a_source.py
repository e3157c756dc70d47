"""docs/how-to/add-a-source.md is true: what it names exists, and the source in the tests is made as it
describes."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from producer.definitions.proof import DefinitionReader
from producer.snapshot.reader import BackgroundChunkReader
from producer.sources import protocols as source
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.binlog_source import BinlogSource, BinlogTables
from producer.sources.binlog.transactions import CapturedRows
from tests.kits.pages import defined
from tests.stands import file_source

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "add-a-source.md").read_text()
#: (protocol or class, file, what the files have for it), of the table.
TABLE = re.findall(r"^\| [^|`]+ \| `(\w+)` \| `([\w/.]+)` \| `(\w+)` \|$", TEXT, re.MULTILINE)
#: Protocol → what the source with a binlog has for it.
BINLOG: dict[str, Any] = {
    "SourceDatabase": BinlogSource, "SourceTables": BinlogTables, "DefinitionProver": DefinitionReader,
    "SourceLog": BinlogLog, "LoggedRows": CapturedRows, "ChunkQueue": BackgroundChunkReader,
}  # fmt: skip
#: Words in backticks that are no names of code.
WORDS = {"[era, file, pos, row]", "row", ".", "mlog.0", "make lint", "verdicts", "captured"}


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:producer|schemas|tests|docs)/[\w/.]+)`", TEXT))
    assert len(named) >= 12
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_name_is_defined_in_one_of_the_files_that_it_names() -> None:
    files = [ROOT / name for name in re.findall(r"`([\w/]+\.py)`", TEXT)]
    known = set[str]().union(*(defined(path) for path in files), {"SOURCE_KINDS"})
    spoken = set(re.findall(r"`([^`\n]+)`", TEXT)) - WORDS
    assert sorted(name for name in spoken if "/" not in name and name not in known) == []


def test_the_table_names_what_is_where_it_says() -> None:
    assert len(TABLE) == 7
    for name, file, own in TABLE:
        assert name in defined(ROOT / file)
        assert hasattr(file_source, own)


def asked(protocol: str) -> set[str]:
    """The public names of a protocol of producer/sources/protocols.py."""
    parts = getattr(source, protocol).__mro__
    found = {name for part in parts if part.__module__ == source.__name__ for name in vars(part)}
    return {name for name in found if not name.startswith("_")}


def offered(kind: Any) -> set[str]:
    """What a class has, also what its objects get only when they are made."""
    made = re.findall(r"^\s+self\.(\w+)\b.*=", inspect.getsource(kind), re.MULTILINE)
    chained = re.findall(r"self\.(\w+) = ", inspect.getsource(kind))
    return {*dir(kind), *inspect.get_annotations(kind), *made, *chained}


@pytest.mark.parametrize(
    ("protocol", "own"), [(name, own) for name, file, own in TABLE if "protocols.py" in file]
)
def test_the_files_have_what_a_protocol_asks(protocol: str, own: str) -> None:
    assert len(asked(protocol)) >= 3
    assert asked(protocol) - offered(getattr(file_source, own)) == set()


@pytest.mark.parametrize("protocol", BINLOG)
def test_the_binlog_has_what_a_protocol_asks(protocol: str) -> None:
    """Of the source itself mypy knows it, too."""
    assert asked(protocol) - offered(BINLOG[protocol]) == set()


def test_the_table_has_every_protocol() -> None:
    assert set(BINLOG) == {name for name, file, _ in TABLE if "protocols.py" in file}


def test_the_files_are_registered_by_their_entry_alone() -> None:
    kind = file_source.KIND
    assert getattr(import_module(kind.module), kind.attribute) is file_source.file_source
    naming = [
        str(path.relative_to(ROOT))
        for package in ("consumer", "rowlock", "schemas", "coordinator", "producer")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"file_source|FileSource|FileLog", path.read_text())
    ]
    assert naming == []


def test_the_page_is_found() -> None:
    assert "docs/how-to/add-a-source.md" in (ROOT / "README.md").read_text()
    for path in (
        ROOT / "schemas" / "config" / "kinds" / "sources.py",
        ROOT / "producer" / "sources" / "protocols.py",
    ):
        assert "add-a-source.md" in path.read_text()
