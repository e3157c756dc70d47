"""The code of the first version, taken from the repository's history, reads what this one writes: it stops
where it would misread it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.tables.stored import StoredDefinition
from producer.decoders.envelope import SourceContext, TopicTail, TransactionContext
from producer.kafka.control_events import encode_definition
from schemas.table.model import Column, ColumnType, Kind, Table
from tests.kits.apply import account_table

FIRST = "6eed109d"
"""The commit before envelope version 2.0."""
ROOT = Path(__file__).parents[2]
_ASK = """
import json, sys
from consumer.tables.stored import decode_stored
from producer.resume.topic_recovery import TopicTails
from schemas.wire.codec import decode_event

READERS = {
    "event": lambda text: decode_event(text.encode()),
    "stored": decode_stored,
    "tail": lambda text: TopicTails().add(0, text.encode()),
}
answers = []
for reader, text in json.load(sys.stdin):
    try:
        READERS[reader](text)
        answers.append("read")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def first_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's code as of FIRST, without its dependencies: they are the present ones."""
    if subprocess.run(
        ["git", "cat-file", "-e", f"{FIRST}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        pytest.skip(f"the repository's history does not reach back to {FIRST}")
    folder = tmp_path_factory.mktemp("first")
    archive = subprocess.run(
        ["git", "archive", FIRST, "consumer", "producer", "schemas"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder


def asked(folder: Path, *texts: tuple[str, str]) -> list[str]:
    """Return what the readers in `folder` answer: (reader, text) each."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        cwd=folder,
        input=json.dumps(texts).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers: list[str] = json.loads(done.stdout)
    return answers


def with_labels(kind: Kind) -> Table:
    type_ = ColumnType(kind=kind, members=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin")
    return replace(account_table(), columns=(*account_table().columns, Column(name="s", type=type_)))


def texts_of(table: Table) -> list[tuple[str, str]]:
    """Return the table's definition as each reader meets it: in its topic, in the target, and at a start of
    capture."""
    source = SourceContext(connector="mysql", name="north", epoch=0, gen=5)
    moment: dict[str, Any] = {"file": "binlog.000001", "file_number": 1, "pos": 4, "ts_ms": 1, "made_ms": 2}
    transaction = TransactionContext(id="t", gtid=None, server_id=7, **moment)
    event = encode_definition(table, source, TopicTail(), transaction, row=0)[1].decode()
    return [("event", event), ("stored", StoredDefinition(table).encode()), ("tail", event)]


@pytest.mark.parametrize("kind", [Kind.ENUM_NUMBER, Kind.SET_NUMBER])
def test_the_first_version_stops_at_a_definition_with_numbers(first_version: Path, kind: Kind) -> None:
    event, stored, tail = asked(first_version, *texts_of(with_labels(kind)))
    assert event.startswith("EnvelopeError: the event was written in envelope version 2.0")
    assert "upgrade the reading side" in event
    assert stored.startswith("EnvelopeError")
    assert str(kind) in stored
    assert tail.startswith("ValidationError")


@pytest.mark.parametrize("kind", [Kind.ENUM, Kind.SET])
def test_the_first_version_reads_other_definitions(first_version: Path, kind: Kind) -> None:
    assert asked(first_version, *texts_of(with_labels(kind))) == ["read"] * 3
