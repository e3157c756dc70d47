"""A poll of a log: which logs it reads, and what it makes of a key that the log has deleted last, while the
table has it: what the log has after the poll decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from producer.sources.oracle.following import FollowedTable, FollowedTables
from producer.sources.oracle.poll import LogPart, LogReader, PolledLogs
from producer.sources.oracle.segments import TableSegments
from tests.kits.oracle_poll import NAME, logged

#: SET id = id + 1 of (1, 10) and (2, 20): the key 2 is deleted behind its new row.
SHIFT = [
    ("R1", 1, "D", "O", None, 0, "1", "10"), ("R2", 2, "I", "N", None, 0, "2", "10"),
    ("R3", 3, "D", "O", None, 0, "2", "20"), ("R4", 4, "I", "N", None, 0, "3", "20"),
]  # fmt: skip


class Session:
    """Answers with the log, then the table's rows of the keys, then the log's rows of those that are
    there."""

    def __init__(self, *behind: tuple[object, ...]) -> None:
        self.accept_request: list[Sequence[object]] = []
        self._behind = behind

    def fetch_rows(self, sql: str, binds: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if "ORDER BY" in sql:
            return SHIFT
        self.accept_request.append([int(str(each)) for each in binds])
        return [("2", "30")] if "MLOG$_A" not in sql else [*SHIFT[1:3], *self._behind]


def polled(session: Session, *, recorded: bool = True) -> PolledLogs:
    table = FollowedTable(TableSegments(1, frozenset(), "", 2, "", ""), logged(), recorded=recorded)
    reader = LogReader(session, FollowedTables({NAME: table}), 4)  # type: ignore[arg-type]
    return reader.read_logs()[0]


def part(session: Session) -> LogPart:
    found = polled(session)[NAME]
    assert isinstance(found, LogPart)
    return found


def test_a_log_is_read_once_the_record_names_its_table() -> None:
    """Until then it may have rows of before the table was taken up, which are deleted unread."""
    assert list(polled(Session())) == [NAME]
    assert polled(Session(), recorded=False) == {}


def test_a_row_of_which_the_log_has_nothing_more_is_kept() -> None:
    session = Session()
    assert dict(part(session).kept) == {("2",): ("2", "30")}
    assert session.accept_request == [[1, 2], [2]], "keys that are deleted last, then those that are there"


@pytest.mark.parametrize("images", [("U", "O"), ("D", "O")])
def test_a_row_of_which_the_log_has_more_is_left_to_what_comes(images: tuple[str, str]) -> None:
    """Its row in the table is newer than the change that the log has after this poll: published now, it would
    be set back by that change."""
    assert dict(part(Session(("R5", 5, *images, None, 0, "2", "10"))).kept) == {}


def test_a_row_is_known_by_both_of_its_numbers() -> None:
    assert dict(part(Session(("R3", 9, "U", "O", None, 0, "2", "10"))).kept) == {}
