"""What the segments of an Oracle's table tell of it, and its record keeps of them."""

from __future__ import annotations

import msgspec
import pytest

from producer.sources.oracle.catalog import _build_segments
from producer.sources.oracle.following import FollowedTables, build_segments_proof, parse_segments_proofs
from producer.sources.oracle.mlog import LogPlace
from producer.sources.oracle.segments import (
    TableSegments,
    explain_replaced_rows,
    is_over,
    may_have_other_columns,
)
from tests.kits.oracle_poll import logged

NAME = ("BANK", "ACCT")
HERE = TableSegments(7, frozenset([7, 8]), "2026-01-01T00:00:00", 9, "", "2025:1/2025:1")


@pytest.mark.parametrize(("now", "output"), [
    (HERE, None), (HERE._replace(ddl="2027-01-01T00:00:00"), None), (HERE._replace(data=frozenset([7, 8, 12])), None),  # noqa: E501
    (HERE._replace(data=frozenset([7, 12])), "truncated or moved"), (HERE._replace(id=10), "created again"),
    (HERE._replace(log_id=10), "another log"), (HERE._replace(load="55"), "direct path"),
])  # fmt: skip
def test_segments_tell_what_no_log_shows(now: TableSegments, output: str | None) -> None:
    found = explain_replaced_rows(HERE, now)
    assert found is None if output is None else output in str(found)


@pytest.mark.parametrize(("before", "now", "output"), [
    (HERE, HERE._replace(ddl="2027-01-01T00:00:00"), False),  # a grant, an index, a partition
    (HERE, HERE._replace(altered="2026:1/2025:1"), True),
    (HERE, HERE._replace(altered="2025:1/2026:1"), True),  # of the log
    (HERE._replace(altered=""), HERE, False),
    (HERE._replace(altered=""), HERE._replace(ddl="2027-01-01T00:00:00"), True),
])  # fmt: skip
def test_a_statement_that_may_have_changed_columns_shows_in_the_time_of_the_specification(
    before: TableSegments, now: TableSegments, output: bool
) -> None:
    assert may_have_other_columns(before, now) is output


def test_segments_are_those_of_the_table_and_its_partitions_that_hold_rows() -> None:
    """A partitioned table has no segment of its own. The log's statements count as the table's."""
    day = "2026-01-0{}T00:00:00".format
    table = ("BANK", "ACCT", "TABLE", 7, None, day(1), "2025:1")
    parts = [
        ("BANK", "ACCT", "TABLE PARTITION", 8, 8, day(2)),
        ("BANK", "ACCT", "TABLE PARTITION", 9, 12, day(4)),
    ]
    log = ("BANK", "MLOG$_ACCT", "TABLE", 10, 10, day(3), "2025:2")
    found = _build_segments([table, *parts], table, log, "")
    assert (found.id, found.data, found.ddl, found.log_id) == (7, frozenset({8, 12}), day(4), 10)
    assert (found.altered, found.came) == ("2025:1/2025:2", frozenset({12}))
    assert found.parts == frozenset({(8, day(2)), (12, day(4))})


def test_a_record_keeps_what_was_seen_of_a_table() -> None:
    proof = build_segments_proof(NAME, HERE)
    assert parse_segments_proofs([proof]) == {NAME: HERE}
    older = msgspec.structs.replace(proof, digest=proof.digest.rpartition(";")[0])
    assert parse_segments_proofs([older]) == {NAME: HERE}
    oldest = msgspec.structs.replace(proof, digest=older.digest.rpartition(";")[0])
    assert parse_segments_proofs([oldest]) == {NAME: HERE._replace(altered="")}
    parted = HERE._replace(parts=frozenset([(7, "2026-01-01T00:00:00"), (8, "2026-01-02T00:00:00")]))
    assert (
        parse_segments_proofs([build_segments_proof(NAME, parted)])[NAME].last_part == "2026-01-02T00:00:00"
    )


def test_an_older_record_does_not_name_a_table_whose_log_has_rows_of_before() -> None:
    """Its log would be read, and these rows published."""
    following = FollowedTables()
    following.take_up(NAME, logged(), HERE, [LogPlace("R1", 1)])
    following.confirm_proofs([build_segments_proof(NAME, HERE)])
    assert not following.tables[NAME].recorded
    following.tables[NAME].forget_old_rows()
    following.confirm_proofs([build_segments_proof(NAME, HERE)])
    assert following.tables[NAME].recorded


PARTED = HERE._replace(parts=frozenset([(7, "2026-01-01T00:00:00"), (8, "2026-01-02T00:00:00")]))


@pytest.mark.parametrize(("now", "output"), [
    (PARTED._replace(data=frozenset([7, 8, 12]), parts=PARTED.parts | {(12, "2026-02-01T00:00:00")}), None),  # a new one  # noqa: E501
    (PARTED._replace(data=frozenset([7, 8, 12]), came=frozenset([12])), "EXCHANGE"),  # new, and filled by a statement  # noqa: E501
    (PARTED._replace(came=frozenset([8])), None),  # was so before
    (PARTED._replace(parts=frozenset([(7, "2026-02-01T00:00:00"), (8, "2026-01-02T00:00:00")])), "exchanged away and back"),  # noqa: E501
    (PARTED._replace(parts=frozenset([(7, "2026-01-01T00:00:01"), (8, "2026-01-02T00:00:00")])), None),  # older than what was known by then  # noqa: E501
])  # fmt: skip
def test_partitions_tell_of_rows_that_came_with_them(now: TableSegments, output: str | None) -> None:
    for before in (PARTED, *parse_segments_proofs([build_segments_proof(NAME, PARTED)]).values()):
        found = explain_replaced_rows(before, now)
        assert found is None if output is None else output in str(found)


def test_a_table_without_a_segment_of_its_own_may_have_been_emptied_by_any_statement() -> None:
    organized = HERE._replace(data=frozenset())
    assert explain_replaced_rows(organized, organized) is None
    assert "index-organized" in str(
        explain_replaced_rows(organized, organized._replace(ddl="2027-01-01T00:00:00"))
    )


@pytest.mark.parametrize(("ddl", "over"), [
    ("2026-11-25T11:59:57", True), ("2026-11-25T11:59:58", False), ("2026-11-25T12:00:00", False),
    ("2026-11-25T12:01:00", False),  # another instance's clock is ahead
    ("2026-11-25T12:59:59", True),  # of before the clocks were set back
])  # fmt: skip
def test_a_second_is_over_when_two_more_have_gone(ddl: str, over: bool) -> None:
    now = HERE._replace(times=frozenset(["2026-01-01T00:00:00", ddl, "2026-11-25T13:30:00"]))
    assert is_over(now, "2026-11-25T11:59:58") is over
