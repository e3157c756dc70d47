"""What a start knows of the rows of a log whose topic has lost the events that would tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from producer.sources.oracle.following import FollowedTable, FollowedTables
from producer.sources.oracle.purge import LogPurger
from producer.sources.oracle.segments import TableSegments
from producer.sources.protocols import NOTHING_PUBLISHED
from tests.kits.oracle_poll import LOG, NAME


@pytest.mark.parametrize("rows", [[], [("R1", 1)]])
def test_a_table_whose_topic_was_cut_may_go_on_where_its_log_is_empty(rows: list[tuple[str, int]]) -> None:
    server: Any = SimpleNamespace(list_logs=lambda: {NAME: LOG}, fetch_rows=lambda *_: rows)
    table = FollowedTable(TableSegments(1, frozenset(), "", 2, "", ""))
    LogPurger(server, server, FollowedTables({NAME: table})).purge_published(
        NOTHING_PUBLISHED._replace(cut=[NAME])
    )
    assert table.unsure is bool(rows)
