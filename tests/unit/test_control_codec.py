"""The control topic's messages and what their sequence means: round trip, size, terms, snapshots,
strangers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.control.codec import (
    Beat,
    Candidate,
    Changes,
    Claim,
    Message,
    NewerVersionError,
    Resigned,
    Snapshot,
    UndecodableError,
    decode_message,
    encode_batches,
    encode_control_snapshot,
    encode_message,
)
from coordinator.control.fold import ControlFold, is_snapshot_due
from coordinator.core.progress import PipelineProgress
from coordinator.core.records import (
    AgentRecord,
    CounterRecord,
    DurableRecord,
    PausedRecord,
    PipelineRecord,
    UnitRecord,
    build_record_key,
)

names = st.text(min_size=1, max_size=12)
numbers = st.integers(0, 2**62)
progress = st.builds(
    PipelineProgress,
    st.none() | numbers,
    st.none() | numbers,
    st.dictionaries(names, numbers, max_size=3),
    st.lists(names, max_size=3).map(tuple),
)
holders = st.lists(st.tuples(names, numbers, numbers), max_size=3).map(tuple)
records: st.SearchStrategy[DurableRecord] = st.one_of(
    st.builds(CounterRecord, numbers),
    st.builds(AgentRecord, names, names, numbers, st.booleans()),
    st.builds(UnitRecord, names, names, holders),
    st.builds(PausedRecord, names),
    st.builds(PipelineRecord, names, progress),
)
changes = records.flatmap(lambda r: st.sampled_from([(build_record_key(r), r), (build_record_key(r), None)]))
candidates = st.builds(Candidate, names, names, names)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Claim, candidates, names),
    st.builds(Snapshot, numbers, candidates, names),
    st.builds(Changes, numbers, st.lists(changes, max_size=5).map(tuple)),
    st.builds(Beat, numbers),
    st.builds(Resigned, numbers),
)
ME = Candidate("me", "127.0.0.1:1", "127.0.0.1:2")


@given(messages)
def test_every_message_comes_back(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_the_bytes_are_pinned() -> None:
    """An older coordinator reads these: a change here needs a new version."""
    unit = UnitRecord("apply/p/t", "7", (("a", 3, 9),))
    assert encode_message(Changes(5, ((build_record_key(unit), unit), ("paused/x", None)))) == (
        b'{"v":"1.1","kind":"records","rev":5,"records":'
        b'[["unit/apply/p/t",{"unit":"apply/p/t","uid":"7","holders":[["a",3,9]]}],["paused/x",null]]}'
    )
    assert encode_message(Claim(ME, "n")) == (
        b'{"v":"1.1","kind":"claim","nonce":"n","candidate":'
        b'{"name":"me","address":"127.0.0.1:1","rest":"127.0.0.1:2"}}'
    )


def test_a_later_minor_version_is_read_as_far_as_it_is_known() -> None:
    known = [["counter", {"epoch": 4, "colour": "blue"}], ["colour/x", {"colour": "red"}]]
    data = json.dumps({"v": "1.9", "kind": "records", "rev": 2, "mood": "good", "records": known})
    assert decode_message(data.encode()) == Changes(2, (("counter", CounterRecord(4)),))


@pytest.mark.parametrize("version", ["2.0", "17.3"])
def test_a_later_major_version_is_refused(version: str) -> None:
    with pytest.raises(NewerVersionError, match=version.replace(".", r"\.")):
        decode_message(json.dumps({"v": version, "kind": "beat", "rev": 1}).encode())


@pytest.mark.parametrize(
    "data",
    [None, b"", b"x", b"[]", b"{}", b'{"v":"a","kind":"beat"}', b'{"v":"1.0","kind":"tea"}',
     b'{"v":"1.0","kind":"claim"}'],
)  # fmt: skip
def test_foreign_bytes_are_told_apart(data: bytes | None) -> None:
    with pytest.raises(UndecodableError):
        decode_message(data)


@given(st.lists(changes, max_size=30), st.integers(50, 400))
def test_batches_carry_all_changes_in_order_and_stay_small(
    given_changes: list[tuple[str, DurableRecord | None]], limit: int
) -> None:
    found: list[tuple[str, DurableRecord | None]] = []
    for payload in encode_batches(3, given_changes, limit):
        message = decode_message(payload)
        assert isinstance(message, Changes)
        assert message.rev == 3
        assert message.changes
        assert (
            len(message.changes) == 1 or len(payload) <= limit * 2 + 100
        )  # escapes may double a text's length
        found.extend(message.changes)
    assert found == given_changes


# the fold


def folded(*reported: Message, fold: ControlFold | None = None) -> ControlFold:
    fold = fold or ControlFold()
    for message in reported:
        fold.fold_message(fold.end, message)
    return fold


def counter(rev: int, epoch: int) -> Changes:
    return Changes(rev, (("counter", CounterRecord(epoch)),))


def test_only_the_present_leader_s_messages_are_signs_of_its_life() -> None:
    """Those of an earlier one would hold the next election off."""
    fold = folded(Claim(Candidate("a", "a:1"), "1"), Claim(Candidate("b", "b:1"), "2"))
    for message in (Beat(0), Changes(0, ()), Resigned(0)):
        assert not fold.fold_message(fold.end, message)
    for message in (Beat(1), Changes(1, ()), Resigned(1)):
        assert fold.fold_message(fold.end, message)


def test_only_the_newest_claim_before_it_lets_a_record_count() -> None:
    fold = folded(
        Beat(0), Claim(ME, "a"), counter(1, 5), Claim(ME, "b"), counter(1, 99), Beat(1), counter(3, 6)
    )
    assert fold.rev == 3
    assert fold.records == {"counter": CounterRecord(6)}
    assert fold.ignored == {"other term": 2}


def test_a_resignation_counts_for_its_own_term_only() -> None:
    fold = folded(Beat(0), Claim(ME, "a"), Claim(ME, "b"), Resigned(1))
    assert not fold.resigned
    assert folded(Resigned(2), fold=fold).resigned
    assert not folded(Claim(ME, "c"), fold=fold).resigned


def test_a_deleted_record_is_gone() -> None:
    paused = PausedRecord("u")
    fold = folded(
        Beat(0), Claim(ME, "a"), Changes(1, (("paused/u", paused),)), Changes(1, (("paused/u", None),))
    )
    assert fold.records == {}


@given(
    st.lists(st.lists(changes, max_size=4), max_size=6), st.lists(st.lists(changes, max_size=4), max_size=3)
)
def test_reading_from_a_snapshot_gives_what_reading_from_the_beginning_gives(
    before: list[list[tuple[str, DurableRecord | None]]], after: list[list[tuple[str, DurableRecord | None]]]
) -> None:
    """The owner may delete everything before its snapshot, its own claim too."""
    whole = folded(Beat(0), Claim(ME, "a"), *(Changes(1, tuple(some)) for some in before))
    written = [decode_message(payload) for payload in encode_control_snapshot(1, ME, "a", whole.records)]
    written += [Changes(1, tuple(some)) for some in after]
    start = whole.end
    folded(*written, fold=whole)
    late = folded(*written, fold=ControlFold(end=start))
    assert (late.rev, late.candidate, late.records, late.base) == (1, ME, whole.records, start)
    assert late.records == whole.records
    assert whole.base == start
    assert not whole.ignored


def test_a_snapshot_replaces_what_a_reader_missed_the_end_of() -> None:
    """It stood still while the deletion of a record, and then the place where that stood, were deleted."""
    fold = folded(Beat(0), Claim(ME, "a"), Changes(1, (("paused/u", PausedRecord("u")),)))
    fold.end = 50
    assert folded(Snapshot(1, ME, "a"), counter(1, 7), fold=fold).records == {"counter": CounterRecord(7)}


def test_a_snapshot_of_an_earlier_term_is_ignored() -> None:
    fold = folded(Beat(0), Claim(ME, "a"), Claim(ME, "b"), counter(2, 8), Snapshot(1, ME, "a"), counter(1, 3))
    assert fold.rev == 2
    assert fold.records == {"counter": CounterRecord(8)}


def test_a_newer_version_makes_the_topic_unreadable_until_a_snapshot_that_is_not() -> None:
    fold = folded(Beat(0), Claim(ME, "a"))
    fold.record_foreign_message(2, newer=False)
    assert not fold.unreadable
    fold.record_foreign_message(3, newer=True)
    assert fold.unreadable
    assert fold.end == 4
    assert not folded(Claim(ME, "b"), Snapshot(4, ME, "b"), fold=fold).unreadable


@pytest.mark.parametrize(
    ("length", "size", "last", "expected"),
    [
        (9, 0, 0, False),
        (10, 0, 0, True),
        (0, 99, 0, False),
        (0, 100, 0, True),
        (0, 199, 50, False),
        (0, 200, 50, True),
    ],
)
def test_a_snapshot_is_due_by_number_or_by_size(length: int, size: int, last: int, expected: bool) -> None:
    assert is_snapshot_due(length, size, last, most=10, most_bytes=100) is expected
