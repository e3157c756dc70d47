"""A log that others are refreshed from, too: when a view of rowlock's own is refreshed, and which rows are
read. Played in tests/sim/test_oracle_shared_log.py."""

from __future__ import annotations

import pytest

from tests.kits import oracle_shared_rules as shared

EARLY, LATE, NOW = "2026-11-25 10:00:00", "2026-11-25 10:00:07", "2026-11-25 10:00:08"


@pytest.mark.parametrize("rows", [[("A", EARLY), ("B", LATE)], [("B", LATE), ("A", EARLY)]])
def test_the_older_view_is_refreshed_next(rows: list[tuple[str, str]]) -> None:
    views = shared.parse_own_views(rows)
    assert views == shared.OwnViews("A", EARLY, LATE)
    assert shared.choose_view_to_refresh(views, NOW) == "A"


def test_no_view_is_refreshed_while_rows_may_still_get_the_time_of_the_last_one() -> None:
    assert shared.choose_view_to_refresh(shared.OwnViews("A", EARLY, LATE), LATE) is None


@pytest.mark.parametrize("rows", [[], [("A", EARLY)]])
def test_a_view_that_is_gone_holds_no_rows(rows: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match=f"{len(rows)} are registered"):
        shared.parse_own_views(rows)


def test_rows_between_the_two_refreshes_are_read() -> None:
    text, binds = shared.select_stamped_log_rows(
        ("BANK", "MLOG$_ACCT"), ['l."ID"'], (), 5, shared.OwnViews("A", EARLY, LATE)
    )
    assert text == (
        'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$", l."DMLTYPE$$", l."OLD_NEW$$", NULL, 0, l."ID" FROM "BANK"."MLOG$_ACCT" l '  # noqa: E501
        "WHERE l.\"SNAPTIME$$\" > TO_DATE(:1, 'YYYY-MM-DD HH24:MI:SS') AND l.\"SNAPTIME$$\" <= TO_DATE(:2, 'YYYY-MM-DD HH24:MI:SS') "  # noqa: E501
        'ORDER BY l."SEQUENCE$$" FETCH FIRST 5 ROWS ONLY'
    )
    assert binds == [EARLY, LATE]
