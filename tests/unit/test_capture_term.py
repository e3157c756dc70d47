"""Who may capture a source: the process of the latest assignment, however often it or another one
restarts."""

from __future__ import annotations

import msgspec
import pytest

from producer.errors import SupersededError
from producer.start.positions import CaptureAssignment
from schemas.wire.records import Identity, StoredPosition

STORED = StoredPosition(
    source="b1", gen=103, epoch=0, file="binlog.000001", pos=4, ts_ms=0, assigned=100,
    identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("term", "stored"),
    [
        (CaptureAssignment(), STORED),  # without a coordinator a person decides
        (CaptureAssignment(100), None),
        (CaptureAssignment(100), msgspec.structs.replace(STORED, assigned=0, gen=7)),
        (CaptureAssignment(101), STORED),  # above 100 and below its gen: three restarts came between
        (CaptureAssignment(100, claimed=103), STORED),
        (CaptureAssignment(100), STORED),  # a restart of the process within the assignment
    ],
)
def test_the_latest_assignment_captures(term: CaptureAssignment, stored: StoredPosition | None) -> None:
    term.check_not_superseded("b1", stored)


@pytest.mark.parametrize(
    "term", [CaptureAssignment(99), CaptureAssignment(99, claimed=99), CaptureAssignment(100, claimed=102)]
)
def test_an_earlier_one_ends_also_when_it_has_claimed_nothing_yet(term: CaptureAssignment) -> None:
    with pytest.raises(SupersededError, match=r"captured by another process now \(assignment 100"):
        term.check_not_superseded("b1", STORED)


def test_records_from_before_assignments_are_read() -> None:
    old = msgspec.json.decode(
        msgspec.json.encode(STORED).replace(b',"assigned":100', b""), type=StoredPosition
    )
    assert old.assigned == 0
