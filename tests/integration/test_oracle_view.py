"""Oracle as the command line asks it, on stand (a): rows by page and key, the end of its logs, and when all
of that is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from deploy.embedded.services import PostgreSQL
from producer.errors import SourceRefusedError
from producer.sources.oracle.view import OracleSourceView
from producer.sources.source_view import SourceView
from rowlock.inspect.observed.polled_sources import PolledStart
from schemas.table.model import Table
from schemas.wire.records import TableStop, Watermark
from tests.kits.oracle_site import NUMBER, OracleSite
from tests.stands.oracle_source import OWNER, OracleStand


@pytest.fixture
def site(postgres: PostgreSQL, unique: str) -> Iterator[OracleSite]:
    postgres.create_database(unique)
    stand = OracleStand(lambda **options: postgres.connect(unique, **options))
    yield OracleSite(stand)
    stand.close()
    postgres.drop_database(unique)


@pytest.fixture
def view(site: OracleSite) -> Iterator[OracleSourceView]:
    with contextlib.closing(OracleSourceView(site.config().sources["s"], site.stand.driver())) as view:
        yield view


def table(view: OracleSourceView, name: str) -> Table:
    found = view.list_tables()[OWNER, name].table
    assert found is not None
    return found


def test_rows_by_page_and_by_key(site: OracleSite, view: OracleSourceView) -> None:
    site.stand.create(
        "k",
        {"one": NUMBER, "two": ("VARCHAR2(5)", "varchar(5)"), "at": ("DATE", "timestamp(0)"),
         "n": ("NUMBER", "numeric")},
        key=("one", "two"),
    )  # fmt: skip
    for row in ((1, "a"), (1, "b"), (2, "a"), (3, "c")):
        site.stand.do(f"INSERT INTO \"{OWNER}\".k VALUES (%s, %s, '2026-11-25 10:00:01', 1.50)", row)
    whole = table(view, "k")
    first = view.fetch_rows(whole, None, 3)
    assert first == [("1", key, "2026-11-25 10:00:01", "1.5") for key in ("a", "b")] + [
        ("2", "a", "2026-11-25 10:00:01", "1.5")
    ]
    assert [row[:2] for row in view.fetch_rows(whole, ("1", "b"), 5)] == [("2", "a"), ("3", "c")]
    many = [(str(n), "a") for n in range(700)]  # several statements
    assert sorted(row[:2] for row in view.fetch_keys(whole, [*many, ("3", "c")])) == [
        ("1", "a"),
        ("2", "a"),
        ("3", "c"),
    ]
    some = Table(db=OWNER, name="k", columns=whole.columns[:2], key=whole.key, unique=())
    assert view.fetch_rows(some, ("2", "a"), 5) == [("3", "c")]


def test_a_table_that_cannot_be_captured_says_why(site: OracleSite, view: OracleSourceView) -> None:
    whole = table(view, "a")
    site.stand.do("DELETE FROM all_mview_logs WHERE master = 'a'")
    with pytest.raises(SourceRefusedError, match="no materialized view log"):
        view.fetch_rows(whole, None, 5)


def test_estimates_and_rows_that_wait(site: OracleSite, view: OracleSourceView) -> None:
    site.stand.do("UPDATE all_tables SET num_rows = 40, avg_row_len = 12 WHERE table_name = 'a'")
    assert view.estimate_sizes([(OWNER, "a"), (OWNER, "b"), (OWNER, "none")]) == {
        (OWNER, "a"): (40, 480), (OWNER, "b"): (0, 0),
    }  # fmt: skip
    site.put("a", 1, 1, 2)
    site.put("b", 1, 1)
    assert view.log_rows() == 3


def mark(position: int, *, gen: int = 1, stops: bool = False, pending: bool = False) -> Watermark:
    stop = TableStop(cause="log", reason="r", remedy="r", at=(0, 0, 0, 0), file="mlog.0", pos=0, since_ms=0)
    return Watermark(
        source="s", gen=gen, position=(0, 0, position, -1), file="mlog.0", commit_ts_ms=0, ts_ms=0, idle=True,
        stops={f"{OWNER}.a": stop} if stops else {}, snapshot_pending=(f"{OWNER}.a",) if pending else (),
    )  # fmt: skip


def test_captured_is_what_the_logs_held_at_the_start(site: OracleSite, view: OracleSourceView) -> None:
    """Then a whole poll, so that a table made before the start is seen; what is written meanwhile counts for
    nothing."""
    site.put("a", 1, 1, 2)
    start = PolledStart(lambda: _kept(view), lambda: 7)
    site.put("a", 2, 3)
    assert not start.is_captured(None)
    assert not start.is_captured((9, mark(100)))
    site.stand.do(f'DELETE FROM "{OWNER}"."MLOG$_a" WHERE version = 1')  # Kafka has it
    assert not start.is_captured((9, mark(100))), "the last watermark may be of before"
    assert not start.is_captured((6, mark(100)))
    assert not start.is_captured((7, mark(200)))
    assert not start.is_captured((8, mark(202))), "that poll may have begun before"
    assert not start.is_captured((9, mark(70_000, gen=2))), "another process numbers as it likes"
    assert not start.is_captured((9, mark(70_004, gen=2, pending=True)))
    assert start.is_captured((9, mark(70_004, gen=2)))


def test_the_log_of_a_table_that_has_stopped_is_nobodys_end(site: OracleSite, view: OracleSourceView) -> None:
    site.put("a", 1, 1)
    start = PolledStart(lambda: _kept(view), lambda: 7)
    for offset, position in ((8, 100), (9, 102), (10, 106)):
        done = start.is_captured((offset, mark(position, stops=True)))
    assert done


@contextlib.contextmanager
def _kept(view: OracleSourceView) -> Iterator[SourceView]:
    yield view
