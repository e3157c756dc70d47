"""What capture makes of a source, of whatever kind: these tests run on the real ones, and on any that a test
puts beside them.

A source (`SourceSite`) has tables of rows (id, version), where each change of a row has a higher version.
"""

from __future__ import annotations

import random

import pytest

from tests.kits.capture import (
    replay,
    transactions_are_whole,
)
from tests.kits.sources import SourceSite, captured, stopped

# --- the tests


def test_rows_and_changes_replay_to_the_source(site: SourceSite) -> None:
    site.put("a", 1, *range(7))
    site.run(lambda: site.put("a", 2, 3, 4, 11), lambda: site.delete("a", 5, 6), lambda: site.put("b", 1, 1))
    assert captured(site, "a") == site.rows("a")
    assert captured(site, "b") == site.rows("b") == {1: 1}
    read = [replay(site.events(table)) for table in "ab"]
    assert transactions_are_whole(read)
    assert {event.op for event in read[0].accepted} >= {"m", "r", "c", "u", "d"}


def test_it_goes_on_at_the_stored_position(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1, 2), snapshot="never")
    first = site.position()
    site.put("a", 2, 2, 3)
    site.run(lambda: site.put("a", 3, 3), snapshot="never")
    rows = [event for event in site.events("a") if event.op in "cud"]
    assert [event.source.gen for event in rows] == [first.gen] * 2 + [first.gen + 1] * 3, "nothing again"
    assert [event.source.prev for event in rows[3:]] == [event.source.position for event in rows[2:-1]]
    assert captured(site, "a") == site.rows("a")


def test_nothing_is_missing_behind_a_kill(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, *range(9)), kill=True)
    for round_ in range(2, 5):
        site.put("a", round_, *range(round_, 9))
        site.run(lambda v=round_: site.delete("a", v - 2), kill=round_ < 4)
    assert captured(site, "a") == site.rows("a")


def test_no_row_goes_back_while_a_snapshot_is_under_way(site: SourceSite) -> None:
    """Each row is touched once: nothing overwrites what a chunk brings back."""
    keys = list(range(site.chunk_rows * 4))
    site.put("a", 1, *keys)
    random.Random(7).shuffle(keys)
    size = max(len(keys) // 40, 2)
    touched = [keys[at : at + size] for at in range(0, len(keys), size)]
    site.run(*(lambda ids=ids: site.put("a", 2, *ids) for ids in touched))
    assert captured(site, "a") == site.rows("a") == dict.fromkeys(range(len(keys)), 2)


def test_a_snapshot_goes_on_after_a_kill(site: SourceSite) -> None:
    site.put("a", 1, *range(site.chunk_rows * 3))
    site.run(*[lambda: site.put("b", 1, 1)] * 4, kill=True)
    site.put("a", 2, 0, site.chunk_rows)
    site.run(lambda: site.put("a", 3, 1))
    assert captured(site, "a") == site.rows("a")
    chunks = [event.chunk.number for event in site.events("a") if event.chunk]
    assert chunks == [1, 2, 3, 4], "none again"
    assert site.position().snapshot_done == (f"{site.db}.a", f"{site.db}.b")


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_table_that_is_dropped_stops_alone(site: SourceSite, while_it_runs: bool) -> None:
    site.put("a", 1, 1)
    site.put("b", 1, 1)
    site.run()
    # Where no log of statements shows the DROP, the table may only be hidden.
    causes = ["dropped", "unseen"]
    if while_it_runs:
        site.run(lambda: site.drop("a"), lambda: site.put("b", 2, 1, 2))
    else:
        site.drop("a")
        site.run(lambda: site.put("b", 2, 1, 2))
    stopped(site, "a", *causes)
    site.run(lambda: site.put("b", 3, 1))
    stopped(site, "a", *causes)
    assert captured(site, "b") == site.rows("b") == {1: 3, 2: 2}
    assert list(site.watermarks()[-1].stops) == [f"{site.db}.a"]


def test_a_table_that_is_taken_out_stops(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1))
    site.run(lambda: site.put("a", 2, 1), lambda: site.put("b", 1, 1), tables="b")
    site.run(lambda: site.put("a", 3, 1))
    stopped(site, "a", "deselected")
    assert captured(site, "a") == {1: 1}
    assert captured(site, "b") == site.rows("b")


def test_an_emptied_table_is_empty(site: SourceSite) -> None:
    site.put("a", 1, *range(5))
    site.run(lambda: site.truncate("a"), lambda: site.put("a", 2, 3))
    assert captured(site, "a") == site.rows("a") == {3: 2}
    assert "t" in {event.op for event in site.events("a")}


def test_a_definition_stands_before_its_rows(site: SourceSite) -> None:
    site.run(
        lambda: site.put("a", 1, 1), lambda: site.widen("a"), lambda: site.put("a", 2, 1, 2), snapshot="never"
    )
    columns: tuple[str, ...] = ()
    seen = []
    for event in site.events("a"):
        columns = event.definition.column_names if event.definition else columns
        if event.op in "cu":
            assert tuple(event.after or ()) == columns
            seen.append(len(columns))
    assert seen == [2, 3, 3]


def test_another_source_is_refused(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1))
    before = site.position()
    site.become_another()
    assert "another server" in site.refused()
    assert site.position().pos == before.pos
    assert len(site.events("a")) == len(replay(site.events("a")).accepted)


# --- the real ones
