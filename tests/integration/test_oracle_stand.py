"""Capture of Oracle on its stand (a), a PostgreSQL with triggers: the tests of every source, and what only a
log that is used up can lose."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest

from deploy.embedded.services import Kafka, PostgreSQL
from producer.capture import run_capture
from producer.errors import SupersededError, TransientSourceError
from producer.sources.oracle.sql import SELECT_TIME_PAIR
from schemas.config.model import Config
from schemas.wire.records import format_former_table_topic
from tests.conformance import sources
from tests.kits.capture import events, replay, watermarks
from tests.kits.oracle_site import NUMBER, PREFIX, WIDE, OracleSite, Step, Writers
from tests.kits.sources import captured
from tests.kits.waiting import until
from tests.sim.kafka import Client
from tests.stands.oracle_source import OWNER, KilledError, OracleStand, StandError

#: Oracle shows no difference between a TRUNCATE and another replacement of rows, nor between a new column and
#: another change: both end in a copy (below).
ALL = {name: each for name, each in vars(sources).items() if name.startswith("test_")}
del ALL["test_an_emptied_table_is_empty"], ALL["test_a_definition_stands_before_its_rows"]
globals().update(ALL)


@pytest.fixture
def stand(postgres: PostgreSQL, unique: str) -> Iterator[OracleStand]:
    postgres.create_database(unique)
    stand = OracleStand(lambda **options: postgres.connect(unique, **options))
    yield stand
    stand.close()
    postgres.drop_database(unique)


@pytest.fixture
def site(stand: OracleStand) -> OracleSite:
    return OracleSite(stand)


def rows_of(site: OracleSite, table: str) -> dict[int, int]:
    """What a reader of the topic holds who knows copies: a chunk takes away what has no event since the copy
    began."""
    rows: dict[int, tuple[int, int]] = {}  # id → (version, number of its last event)
    begun, partial = 0, False
    for number, event in enumerate(replay(site.events(table)).accepted):
        if event.copy is not None and event.definition is not None:
            begun, partial = number, event.copy.partial
        if event.before is not None:
            rows.pop(int(str(event.before["id"])), None)
        if event.after is not None:
            rows[int(str(event.after["id"]))] = int(str(event.after["version"])), number
        if event.chunk is not None and event.chunk.repeated and not partial:
            low = int(str(event.chunk.after[0])) if event.chunk.after else -1
            high = int(str(event.chunk.upto[0])) if event.chunk.upto else 1 << 40
            rows = {id_: row for id_, row in rows.items() if not low < id_ <= high or row[1] >= begun}
    return {id_: version for id_, (version, _) in rows.items()}


def stops(site: OracleSite, table: str) -> list[str]:
    return [event.stop.cause for event in site.events(table) if event.stop is not None]


def copied(site: OracleSite, table: str) -> bool:
    state = site.watermarks()[-1].copies.get(f"{OWNER}.{table}")
    return state is not None and state.phase == "done"


def published_twice(site: OracleSite, table: str) -> list[tuple[str, int]]:
    """Return rows of the log that a reader finds in two events."""
    found = [row for event in replay(site.events(table)).accepted if event.log for row in event.log.rows]
    return [row for row, times in Counter(found).items() if times > 1]


def killed_at(number: int) -> Callable[[str], None]:
    """Kill capture at its `number`-th statement; readers of chunks are told by its end."""
    left, capture = [number], threading.get_ident()

    def before(_sql: str) -> None:
        if threading.get_ident() != capture:
            return
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    return before


def keys_only(site: OracleSite) -> None:
    """Give the table a log that says which row was changed, and nothing else."""
    site.stand.drop_log("a")
    site.stand.create_log("a", ["id"], new_values=False)


def with_a_lob(site: OracleSite) -> None:
    """Give the table a column that no log holds; it always says the row's version."""
    site.stand.drop("a")
    site.stand.create("a", {"id": NUMBER, "version": WIDE, "note": ("CLOB", "text")})
    site.stand.do(
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note = 'n' || "
        "NEW.version; RETURN NEW; END $$"
    )
    site.stand.do(
        f'CREATE TRIGGER noted BEFORE INSERT OR UPDATE ON "{OWNER}"."a" FOR EACH ROW EXECUTE FUNCTION noted()'
    )


def by_commit(site: OracleSite) -> None:
    """Give the tables logs WITH COMMIT SCN, and the database a second instance."""
    for table in "ab":
        site.stand.drop_log(table)
        site.stand.create_log(table, commit_scn=True)
    site.stand.open_instance()


LOGS: dict[str, Callable[[OracleSite], None]] = {
    "whole": lambda _: None,
    "keys": keys_only,
    "lob": with_a_lob,
    "commit SCN": by_commit,
}


@pytest.mark.parametrize(
    ("log", "seed"),
    [
        ("whole", 0),
        ("whole", 1),
        ("whole", 2),
        ("whole", 3),
        ("keys", 4),
        ("keys", 5),
        ("lob", 6),
        ("lob", 7),
        ("commit SCN", 8),
        ("commit SCN", 9),
        ("commit SCN", 10),
    ],
)
def test_kills_at_any_statement_lose_nothing_and_publish_nothing_twice(
    stand: OracleStand, log: str, seed: int
) -> None:
    """Writers whose numbers do not follow commits go on all the time; capture is killed at statements of
    every kind, before and after each COMMIT of a delete, while its messages are on their way."""
    instances = ("2", "", "") if log == "commit SCN" else ("", "", "")
    site, rng, writers = OracleSite(stand, seed), random.Random(seed), Writers(stand, seed, instances)
    LOGS[log](site)
    site.put("a", 0, *range(9))
    for _ in range(12):
        site.run(*[writers.go_on] * 12, before=killed_at(rng.randint(12, 160)))
    writers.end()
    site.run()
    assert rows_of(site, "a") == site.rows("a")
    if log == "lob":
        last = {event.after["id"]: event.after for event in site.events("a") if event.after is not None}
        assert {id_: last[id_]["note"] for id_ in site.rows("a")} == {
            id_: f"n{version}" for id_, version in site.rows("a").items()
        }
    assert published_twice(site, "a") == []
    assert stops(site, "a") == []
    assert stand.logged("a") == 0


def between(site: OracleSite, *changes: str) -> Callable[[str], None]:
    """Change the table once, between the reading of its log and that of its rows."""
    waiting = list(changes)

    def before(sql: str) -> None:
        if waiting and f'FROM "{OWNER}"."a" l WHERE' in sql and "ORDER BY" not in sql:
            for change in waiting:
                site.stand.do(re.sub(r"(INTO|FROM|UPDATE) a\b", rf"\1 {OWNER_A}", change))
            waiting.clear()

    return before


OWNER_A = f'"{OWNER}"."a"'
FAR = 10_000_000
"""Seconds of the stand's clock behind the times at which its tables are made."""


def images(site: OracleSite) -> list[tuple[str, dict[str, object] | None, dict[str, object] | None]]:
    return [(event.op, event.before, event.after) for event in site.events("a") if event.op in "cud"]


def test_a_log_with_keys_only_says_the_row_as_it_is(site: OracleSite) -> None:
    """Three changes are one event; what comes between the log and the row is in the event, and again in the
    next poll's."""
    keys_only(site)
    site.run()

    def three() -> None:
        for version in (1, 2, 3):
            site.put("a", version, 1)
        site.put("a", 4, 2)
        site.delete("a", 2)

    site.run(three, lambda: None, before=between(site, "UPDATE a SET version = 9 WHERE id = 1"))
    missing = {"id": 2, "version": None}
    now = {"id": 1, "version": 9}
    assert images(site) == [("u", None, now), ("d", missing, None), ("u", None, now)]
    assert [len(event.log.rows) for event in site.events("a") if event.log] == [3, 2, 1]
    assert site.stand.logged("a") == 0


def test_a_row_that_is_gone_when_it_is_read_is_deleted(site: OracleSite) -> None:
    keys_only(site)
    site.run()
    site.run(lambda: site.put("a", 1, 1), lambda: None, before=between(site, "DELETE FROM a WHERE id = 1"))
    assert [op for op, _, _ in images(site)] == ["d", "d"]
    assert rows_of(site, "a") == {}


MOVES = {
    "shift": "UPDATE {} SET id = id + 1",
    "shift down": "UPDATE {} SET id = id - 1",
    "swap": "UPDATE {} SET id = 3 - id WHERE id < 3",
    "a shift, and one row goes": "UPDATE {0} SET id = id + 1; DELETE FROM {0} WHERE id = 3",
    "there and back": "UPDATE {0} SET id = id + 1; UPDATE {0} SET id = id - 1",
}


@pytest.mark.parametrize("log", ["whole", "keys", "lob"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("poll_rows", [3, 100])
def test_keys_that_one_statement_hands_on(
    stand: OracleStand, log: str, move: str, poll_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle checks keys at the statement's end. Its log, row by row, deletes a key that another row has been
    given already. Polls of three rows cut the transaction. Versions move with their rows, so that those of a
    key may fall."""
    monkeypatch.setattr("tests.kits.oracle_site.row_that_goes_back", lambda _found: None)
    site = OracleSite(stand, poll_rows=poll_rows)
    stand.drop("a")
    lob = {"note": ("CLOB", "text")} if log == "lob" else {}
    stand.create("a", {"id": NUMBER, "version": WIDE, **lob}, when_checked="DEFERRABLE")
    if log == "keys":
        keys_only(site)
    stand.do(f"INSERT INTO {OWNER_A} (id, version) VALUES (1, 10), (2, 10), (3, 10), (4, 10), (6, 10)")
    site.run()

    def moved() -> None:
        with stand.own.transaction():
            stand.do(f"UPDATE {OWNER_A} SET version = 10 + id WHERE id > 2")
            for statement in MOVES[move].format(OWNER_A).split(";"):
                stand.do(statement)

    site.run(moved)
    assert rows_of(site, "a") == site.rows("a")
    assert published_twice(site, "a") == []
    assert stand.logged("a") == 0


def test_a_key_that_moves_is_known_by_keys_alone(site: OracleSite) -> None:
    keys_only(site)
    site.put("a", 1, 1)
    site.run()
    site.run(lambda: site.stand.do(f"UPDATE {OWNER_A} SET id = 5, version = 2"))
    assert [(op, (before or after or {})["id"]) for op, before, after in images(site)] == [("d", 1), ("u", 5)]


def test_a_lob_is_read_from_the_row_as_it_is(site: OracleSite) -> None:
    """Of before none is known; a later value comes with the earlier change, and again with its own."""
    with_a_lob(site)
    site.run()
    site.run(
        lambda: site.put("a", 1, 1),
        lambda: None,
        before=between(site, "UPDATE a SET version = 2 WHERE id = 1"),
    )
    assert images(site) == [
        ("c", None, {"id": 1, "version": 1, "note": "n2"}),
        ("u", {"id": 1, "version": 1, "note": None}, {"id": 1, "version": 2, "note": "n2"}),
    ]  # fmt: skip


@pytest.mark.parametrize("again", [False, True])
def test_a_row_with_a_lob_that_is_gone_when_it_is_read(site: OracleSite, again: bool) -> None:
    with_a_lob(site)
    site.run()
    changes = ["DELETE FROM a WHERE id = 1", *(["INSERT INTO a VALUES (1, 7)"] if again else [])]
    site.run(lambda: site.put("a", 1, 1), lambda: None, before=between(site, *changes))
    assert [(op, (after or {}).get("note")) for op, _, after in images(site)] == (
        [("c", "n7"), ("d", None), ("c", "n7")] if again else [("d", None), ("d", None)]
    )
    assert rows_of(site, "a") == site.rows("a")


def test_check_says_what_is_read_from_the_row_itself(site: OracleSite) -> None:
    with_a_lob(site)
    site.stand.drop_log("b")
    site.stand.create_log("b", ["id"], new_values=False)
    source = site.source(site.config())
    findings, _ = source.check_source()
    source.close()
    assert [(each.level, each.place) for each in findings] == [
        ("warning", "source s, table BANK.a"), ("warning", "source s, table BANK.b"),
    ]  # fmt: skip
    assert findings[0].message.startswith("materialized view logs do not contain note,")
    assert findings[1].message.startswith("its log MLOG$_b has keys only,")
    assert 'SEQUENCE ("version") INCLUDING NEW VALUES' in findings[1].remedy


def test_a_kill_between_the_acknowledgement_and_the_delete(site: OracleSite) -> None:
    """Kafka has all of it, and the log too: at the next start that is deleted, and not published again."""
    site.run()

    def before(sql: str) -> None:
        if sql.startswith("DELETE"):
            raise KilledError

    site.run(lambda: site.put("a", 1, 1, 2), before=before)
    assert site.stand.logged("a") == 2
    site.put("a", 3, 2)
    site.run()
    assert [(event.op, (event.after or {})["version"]) for event in site.events("a") if event.op in "cu"] == [
        ("c", 1), ("c", 1), ("u", 3),
    ]  # fmt: skip
    assert published_twice(site, "a") == []
    assert site.stand.logged("a") == 0


@pytest.mark.parametrize("polls", range(4))
def test_a_delete_that_fails_is_made_up_for_by_the_next_start(site: OracleSite, polls: int) -> None:
    """What capture stores at its end does not pass what it could not delete. `polls`: since the last record,
    or to it."""
    site.run()

    def before(sql: str) -> None:
        if sql.startswith("DELETE"):
            raise StandError(psycopg.OperationalError("the connection is lost"))

    with pytest.raises(TransientSourceError, match="connection is lost"):
        site.run(*[lambda: None] * polls, lambda: site.put("a", 1, 1, 2), lambda: None, before=before)
    assert site.stand.logged("a") == 2
    site.run()
    assert published_twice(site, "a") == []
    assert captured(site, "a") == site.rows("a")


def test_rows_that_were_read_before_a_statement_are_read_again_behind_it(site: OracleSite) -> None:
    """Between reading a log and looking at the catalog a unique index comes, and a row that follows."""
    site.run()
    waiting = [True]

    def before(sql: str) -> None:
        if sql == SELECT_TIME_PAIR and waiting and site.stand.logged("a"):
            waiting.clear()
            site.stand.add_unique("a", "version")
            site.stand.do(f'UPDATE "{OWNER}"."a" SET version = 2 WHERE id = 1')

    site.run(lambda: site.put("a", 1, 1), lambda: None, before=before)
    assert not waiting
    assert stops(site, "a") == []
    found = [event for event in site.events("a") if event.op in "cum"]
    assert [len(event.definition.unique) if event.definition else event.after for event in found[-3:]] == [
        1, {"id": 1, "version": 1}, {"id": 1, "version": 2},
    ]  # fmt: skip


def test_a_grant_stops_nothing(site: OracleSite) -> None:
    site.run(lambda: site.stand.grant("a"), lambda: site.put("a", 1, 1))
    site.stand.grant("a")
    site.run(lambda: None)
    assert stops(site, "a") == []
    assert captured(site, "a") == {1: 1}


def _added(site: OracleSite) -> None:
    """Rows get values of a new column while the log does not have it."""
    meanwhile = f"UPDATE {OWNER_A} SET note = 'x', version = 2 WHERE id = 1"
    site.stand.add_column("a", "note", "VARCHAR2(10)", "varchar(10)", [meanwhile])


def _added_again(site: OracleSite, last: str = "more") -> None:
    """In the end the last column is as it was, and its values are gone."""
    site.stand.drop_column("a", last)
    site.stand.add_column("a", last, "VARCHAR2(10)", "varchar(10)")


def _renamed(site: OracleSite) -> None:
    """One column is gone; it was the other one that was dropped."""
    stand = site.stand
    with stand.own.transaction():
        for each in ("a", "MLOG$_a"):
            stand.do(f'ALTER TABLE "{OWNER}"."{each}" DROP COLUMN "extra"')
            stand.do(f'ALTER TABLE "{OWNER}"."{each}" RENAME COLUMN "more" TO "extra"')
            stand.do("DELETE FROM all_tab_cols WHERE table_name = %s AND column_name = 'more'", (each,))
            stand._ddl(each, columns=True)
        stand._trigger("a")


def _longer(site: OracleSite) -> None:
    """Dropped, and added longer."""
    site.stand.drop_column("a", "more")
    site.stand.add_column("a", "more", "VARCHAR2(20)", "varchar(20)")


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("alter", [_added, _added_again, _renamed, _longer])
def test_an_alter_between_two_looks_publishes_no_wrong_value(
    site: OracleSite, alter: Callable[[OracleSite], None], running: bool
) -> None:
    stand, text = site.stand, ("VARCHAR2(10)", "varchar(10)")
    stand.drop("a")
    stand.create(
        "a",
        {"id": NUMBER, "version": WIDE, "extra": text, "more": text}
        if alter is not _added
        else {"id": NUMBER, "version": WIDE},
    )
    site.put("a", 1, 1, 2)
    if alter is not _added:
        stand.do(f"UPDATE {OWNER_A} SET extra = 'e' || id, more = 'm' || id")
    site.run()

    def altered() -> None:
        stand.do(f"UPDATE {OWNER_A} SET version = 2 WHERE id = 2")
        alter(site)

    if running:
        site.run(altered, lambda: None)
    else:
        altered()
        site.run(lambda: None)
    assert stops(site, "a") == ["definition"]
    seen = [event.after for event in site.events("a") if event.op in "cu"]
    assert [row for row in seen if row and row["version"] == 2] == []
    site.run(lambda: site.copy("a"), lambda: site.put("a", 4, 4), until=lambda: copied(site, "a"))
    last = {event.after["id"]: event.after for event in site.events("a") if event.after is not None}
    names = list(last[1])
    rows = stand.do(f"SELECT {', '.join(names)} FROM {OWNER_A} ORDER BY id")
    assert [list(last[int(row[0])].values()) for row in rows] == [
        [int(row[0]), int(row[1]), *row[2:]] for row in rows
    ]


def test_a_second_alter_in_the_second_of_the_first_is_seen(site: OracleSite) -> None:
    """A copy that begins in the second of an ALTER waits for its end: the next one would leave the same time
    and the same columns."""
    stand, second = site.stand, [FAR]
    stand.drop("a")
    stand.create("a", {"id": NUMBER, "version": WIDE, "extra": ("VARCHAR2(10)", "varchar(10)")})
    stand.do(f"INSERT INTO {OWNER_A} VALUES (1, 1, 'e'), (2, 1, 'e')")
    site.run()

    def a_second_goes(_seconds: float) -> None:
        second[0] += 1
        stand.set_clock(second[0])

    def goes_on() -> bool:
        return f"{OWNER}.a" not in site.watermarks()[-1].stops and copied(site, "a")

    stand.set_clock(second[0])
    site.wait = a_second_goes
    site.run(lambda: _added_again(site, "extra"), lambda: None)
    assert f"{OWNER}.a" in site.watermarks()[-1].stops
    stand.do(f"UPDATE {OWNER_A} SET extra = 'f'")
    site.run(lambda: site.copy("a"), until=goes_on)
    _added_again(site, "extra")
    site.run(lambda: None)
    assert f"{OWNER}.a" in site.watermarks()[-1].stops
    site.run(lambda: site.copy("a"), until=goes_on)
    last = {event.after["id"]: event.after for event in site.events("a") if event.after is not None}
    assert [last[id_]["extra"] for id_ in (1, 2)] == [None, None]


def test_a_table_that_is_altered_every_second_is_left(site: OracleSite) -> None:
    second = [100]

    def altered(_seconds: float) -> None:
        second[0] += 1
        site.stand.set_clock(second[0])
        site.stand.grant("a")

    site.put("b", 1, 1)
    altered(0)
    site.wait = altered
    site.run(until=lambda: bool(site.watermarks()[-1].idle))
    assert second[0] > 160, "a minute by the server's clock"
    assert rows_of(site, "b") == {1: 1}
    assert site.events("a") == []


EXCHANGES: dict[str, Callable[[OracleStand], None]] = {
    "a new partition that is filled": lambda stand: (stand.add_partition("a"),
     stand.exchange_newest_partition("a", (50, 1)))[0],
    "exchanged away and back": lambda stand: stand.exchange_newest_partition("a", (1, 7), back=True),
    "index-organized": lambda stand: stand.truncate("a"),
}  # fmt: skip


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("case", EXCHANGES)
def test_rows_that_come_and_go_with_a_place_stop_the_table(
    site: OracleSite, case: str, running: bool
) -> None:
    stand = site.stand
    stand.set_clock(FAR)
    if case == "index-organized":
        stand.index_organized("a")
    else:
        stand.add_partition("a")
    stand.set_clock(FAR + 1000)
    site.put("a", 1, *range(4))
    site.run()
    if running:
        site.run(lambda: EXCHANGES[case](stand), lambda: None)
    else:
        EXCHANGES[case](stand)
        site.run(lambda: None)
    assert stops(site, "a") == ["rows-replaced"]
    stand.set_clock(FAR + 2000)
    site.run(lambda: site.copy("a"), until=lambda: copied(site, "a"))
    assert rows_of(site, "a") == site.rows("a")


def test_a_new_partition_stops_nothing(site: OracleSite) -> None:
    site.stand.set_clock(FAR)
    site.stand.add_partition("a")
    site.stand.set_clock(FAR + 100)
    site.run()
    site.run(lambda: site.stand.add_partition("a"), lambda: site.put("a", 1, 1), lambda: None)
    site.stand.add_partition("a")
    site.run(lambda: site.put("a", 2, 1))
    assert stops(site, "a") == []
    assert rows_of(site, "a") == {1: 2}


@pytest.mark.parametrize("name", ["SALES_MV", None])
def test_a_view_that_comes_to_use_the_log_stops_the_table(site: OracleSite, name: str | None) -> None:
    """Nothing of its log is deleted then; behind a copy it goes on."""
    site.put("b", 1, 1)
    site.run()

    def come() -> None:
        site.stand.add_view("a", name)
        site.put("a", 1, 1, 2)

    site.run(come, lambda: site.put("b", 2, 1))
    assert stops(site, "a") == ["log"]
    reported = [event.stop.reason for event in site.events("a") if event.stop is not None]
    assert (name or "which is not registered") in reported[0]
    assert site.stand.logged("a") == 2
    assert rows_of(site, "b") == {1: 2}
    site.stand.drop_views()
    site.run(lambda: site.copy("a"), until=lambda: copied(site, "a"))
    site.run(lambda: site.put("a", 3, 2))
    assert rows_of(site, "a") == site.rows("a") == {1: 1, 2: 3}
    assert published_twice(site, "a") == []


def test_a_view_that_came_while_nobody_captured_loses_nothing(site: OracleSite) -> None:
    """Kafka has rows that are to be deleted at the start: they stay."""
    site.run()
    site.run(lambda: site.put("a", 1, 1, 2), before=at_the_first_delete)
    site.stand.add_view("a", "SALES_MV")
    site.run(lambda: None)
    assert stops(site, "a") == ["unfit"]
    assert site.stand.logged("a") == 2


def at_the_first_delete(sql: str) -> None:
    if sql.startswith("DELETE"):
        raise KilledError


def test_a_second_instance_stops_tables_whose_log_does_not_say_the_order(site: OracleSite) -> None:
    site.stand.drop_log("b")
    site.stand.create_log("b", commit_scn=True)
    site.put("a", 1, 1)
    site.run()

    def opens() -> None:
        """Its numbers are higher, and its change is the earlier one."""
        site.stand.open_instance()
        other = site.stand.session("2")
        for version in (2, 3):
            session = other if version == 2 else site.stand.own
            session.execute(f"UPDATE {OWNER_A} SET version = {version}".encode())
            session.commit()
        other.close()

    site.run(opens, lambda: site.put("b", 1, 1))
    assert stops(site, "a") == ["log"]
    assert [event.after for event in site.events("a") if event.op == "u"] == []
    reason, remedy = next((e.stop.reason, e.stop.remedy) for e in site.events("a") if e.stop is not None)
    assert "(RAC)" in reason
    assert remedy.startswith(
        'CREATE MATERIALIZED VIEW LOG ON "BANK"."a" WITH PRIMARY KEY, SEQUENCE, COMMIT SCN ("version")'
    )
    assert rows_of(site, "b") == {1: 1}


def test_commits_put_rows_of_two_instances_in_order(site: OracleSite) -> None:
    """The second instance's numbers are all above the first one's, so that by numbers a row would go back."""
    by_commit(site)
    site.run()

    def in_turn() -> None:
        sessions = [site.stand.session("2"), site.stand.session()]
        for version in range(1, 7):
            session = sessions[version % 2]
            session.execute(
                f"INSERT INTO {OWNER_A} VALUES (1, {version}) ON CONFLICT (id) DO "
                f"UPDATE SET version = {version}".encode()
            )
            session.commit()
        for session in sessions:
            session.close()

    site.run(in_turn)
    assert [(event.after or {})["version"] for event in site.events("a") if event.op in "cu"] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert published_twice(site, "a") == []
    assert site.stand.logged("a") == 0


@pytest.mark.parametrize("last", [2, 7])
def test_rows_wait_for_their_commit_scns(site: OracleSite, last: int) -> None:
    """What follows them waits, too: it may be of the same row, and it may be more than a poll reads (five
    rows)."""
    by_commit(site)
    site.run()
    taken: list[tuple[int, int]] = []

    def takes() -> None:
        site.put("a", 1, 1)
        taken[:] = site.stand.do("DELETE FROM all_summap RETURNING xid, commit_scn")
        for version in range(2, last + 1):
            site.put("a", version, 1)

    def gives() -> None:
        assert [event for event in site.events("a") if event.op in "cu"] == []
        site.stand.do("INSERT INTO all_summap VALUES (%s, %s)", taken[0])

    site.run(takes, lambda: None, lambda: None, gives)
    versions = [(event.after or {})["version"] for event in site.events("a") if event.op in "cu"]
    assert versions == list(range(1, last + 1))
    assert stops(site, "a") == []


def test_rows_whose_commit_scn_never_comes_stop_their_table(site: OracleSite) -> None:
    by_commit(site)
    site.run()

    def takes() -> None:
        site.put("a", 1, 1)
        site.stand.do("DELETE FROM all_summap")

    site.run(takes, lambda: site.put("b", 1, 1))
    assert stops(site, "a") == ["log"]
    assert site.stand.logged("a") == 1
    assert rows_of(site, "b") == {1: 1}


def test_a_start_behind_the_retention_goes_on(site: OracleSite) -> None:
    """Capture had ended in good order: its topics have lost definitions, too, and what the logs got since
    counts."""
    site.put("a", 1, *range(5))
    site.run()
    before = rows_of(site, "a")
    for table in "ab":
        site.broker.expire(format_former_table_topic(PREFIX, "s", OWNER, table))
    kept = len(site.events("a"))
    site.put("a", 2, 1, 7)
    site.delete("a", 2)
    site.run(lambda: site.put("a", 3, 3))
    found = [event for event in site.events("a")[kept:] if event.op in "cud"]
    assert before == dict.fromkeys(range(5), 1)
    assert [(event.op, (event.after or event.before or {})["id"]) for event in found] == [
        ("u", 1), ("c", 7), ("d", 2), ("u", 3),
    ]  # fmt: skip
    assert stops(site, "a") == []
    assert published_twice(site, "a") == []


@pytest.mark.parametrize("deleted", [True, False])
def test_a_start_behind_the_retention_publishes_nothing_twice(site: OracleSite, deleted: bool) -> None:
    """Killed between acknowledgement and delete, and then the topic has not kept the rows that would show it.
    `deleted`: or just after the delete."""
    site.run()
    seen: list[str] = []

    def before(sql: str) -> None:
        seen.append(sql)
        if sql.startswith("DELETE") if not deleted else seen[-2:-1] == ["COMMIT"]:
            raise KilledError

    site.run(lambda: site.put("a", 1, 1, 2), before=before)
    assert site.stand.logged("a") == (0 if deleted else 2)
    assert [event.op for event in site.events("a") if event.op in "cu"] == ["c", "c"]
    for topic in ("a", "b"):
        site.broker.expire(format_former_table_topic(PREFIX, "s", OWNER, topic))
    site.run(lambda: site.put("a", 3, 2), lambda: site.put("b", 1, 1))
    assert published_twice(site, "a") == []
    assert rows_of(site, "b") == {1: 1}
    assert stops(site, "a") == ([] if deleted else ["log"])
    if not deleted:
        assert site.stand.logged("a") == 4, "nothing is deleted either"
        site.run(lambda: site.copy("a"), until=lambda: copied(site, "a"))
    assert rows_of(site, "a") == site.rows("a") == {1: 1, 2: 3}


def test_a_process_that_was_replaced_deletes_nothing(site: OracleSite) -> None:
    """What it publishes is dropped by readers, who have seen its successor: the log is all that has those
    rows."""
    site.run()
    config = site.config()
    old, new = site.source(config), site.source(config)
    loop, _ = site.start(old, config, Client(site.broker, site.rng, lambda: 0.0, lambda: None))
    site.step(loop)
    successor, _ = site.start(new, config, Client(site.broker, site.rng, lambda: 0.0, lambda: None))
    site.put("a", 1, 1, 2)
    with pytest.raises(SupersededError, match="another process has begun to capture"):
        site.step(loop)
    assert site.stand.logged("a") == 2
    for _ in range(2):  # the first one looks at what the tables are
        site.step(successor)
    assert site.stand.logged("a") == 0
    for each in (loop, successor, old, new):
        each.close()
    site.run()
    assert captured(site, "a") == site.rows("a") == {1: 1, 2: 1}


def test_what_a_log_held_before_is_deleted_unread(site: OracleSite) -> None:
    """It tells of rows that a TRUNCATE has removed since: no snapshot would take them away."""
    site.put("a", 1, *range(4))
    site.truncate("a")
    assert site.stand.logged("a") == 4
    site.run()
    assert rows_of(site, "a") == {}
    assert site.stand.logged("a") == 0


@pytest.mark.parametrize("cause", ["truncate", "load", "purge", "definition", "new log"])
def test_what_the_log_does_not_show_stops_its_table_until_it_is_copied(site: OracleSite, cause: str) -> None:
    site.put("a", 1, *range(8))
    site.put("b", 1, 1)
    site.run()
    stand, log = site.stand, f'"{OWNER}"."MLOG$_a"'

    def purge(sql: str) -> None:
        if sql.startswith("DELETE"):
            stand.do(f"DELETE FROM {log} WHERE \"OLD_NEW$$\" = 'U'")

    def another_log() -> None:
        stand.do(f"DROP TABLE {log}")
        stand.do("DELETE FROM all_mview_logs WHERE master = 'a'")
        stand.do("DELETE FROM all_objects WHERE object_name = 'MLOG$_a'")
        stand.do("DELETE FROM all_tab_cols WHERE table_name = 'MLOG$_a'")
        stand.create_log("a")

    does: dict[str, tuple[Step, str]] = {
        "truncate": (lambda: site.truncate("a"), "rows-replaced"),
        "load": (lambda: stand.load_directly("a", (20, 1), (21, 1)), "rows-replaced"),
        "purge": (lambda: site.put("a", 2, 1, 2), "log"),
        "definition": (lambda: site.widen("a"), "definition"),
        "new log": (another_log, "rows-replaced"),
    }
    step, expected = does[cause]
    site.run(step, lambda: site.put("b", 2, 1), before=purge if cause == "purge" else lambda _sql: None)
    assert stops(site, "a") == [expected]
    site.put("a", 3, 3)
    site.put("b", 3, 1)
    site.run()
    assert stops(site, "a")[0] == expected
    assert stand.logged("a") >= 1, "nobody reads it"
    assert rows_of(site, "b") == {1: 3}
    site.run(lambda: site.copy("a"), lambda: site.put("a", 4, 4), until=lambda: copied(site, "a"))
    site.run(lambda: site.put("a", 5, 5))
    assert rows_of(site, "a") == site.rows("a")
    assert stand.logged("a") == 0


def test_a_table_that_changed_while_nobody_looked_stops(site: OracleSite) -> None:
    site.put("a", 1, *range(4))
    site.put("b", 1, 1)
    site.run()
    site.truncate("a")
    site.widen("b")
    site.run(lambda: None)
    assert (stops(site, "a"), stops(site, "b")) == (["rows-replaced"], ["definition"])


def test_a_unique_value_that_is_handed_over_is_given_up_first(site: OracleSite) -> None:
    """Also in later polls, with lower numbers: the lock on the value puts them in order."""
    site.stand.create("u", {"id": NUMBER, "version": WIDE}, unique=["version"])
    site.run()
    table, first, second = f'"{OWNER}"."u"', site.stand.session(), site.stand.session()
    first.execute(f"INSERT INTO {table} VALUES (1, 10)".encode())
    first.commit()
    second.execute(f"INSERT INTO {table} VALUES (3, 30)".encode())  # an early number, committed late
    first.execute(f"UPDATE {table} SET version = 11 WHERE id = 1".encode())
    first.commit()

    def hand_over() -> None:
        second.execute(f"INSERT INTO {table} VALUES (2, 10)".encode())
        second.commit()

    site.run(lambda: None, hand_over)
    for session in (first, second):
        session.close()
    held: dict[int, int] = {}
    for event in site.events("u"):
        if event.after is not None:
            assert event.after["version"] not in [v for id_, v in held.items() if id_ != event.after["id"]]
            held[event.after["id"]] = event.after["version"]
    assert held == {1: 11, 2: 10, 3: 30}


def test_a_table_of_which_a_policy_hides_rows_is_left_out(site: OracleSite) -> None:
    """Unless the user passes policies, or it is one for writers, or switched off."""
    stand = site.stand
    for name, reads, enabled in (("BRANCH", "YES", "YES"), ("WRITERS", "NO", "YES"), ("OLD", "YES", "NO")):
        stand.do("INSERT INTO all_policies VALUES (%s, 'a', %s, %s, %s)", (OWNER, name, reads, enabled))

    def reported() -> list[str]:
        source = site.source(site.config())
        findings, _ = source.check_source()
        source.close()
        return [each.message for each in findings]

    [message] = reported()
    assert "row level policies (BRANCH) may hide rows" in message
    site.put("b", 1, 1)
    site.run(until=lambda: bool(site.events("b")))
    assert site.events("a") == []
    assert rows_of(site, "b") == {1: 1}
    stand.do("INSERT INTO session_privs VALUES ('EXEMPT ACCESS POLICY')")
    assert reported() == []


def test_check_says_what_a_table_lacks(site: OracleSite) -> None:
    stand = site.stand
    stand.do("UPDATE all_mview_logs SET include_new_values = 'NO' WHERE master = 'a'")
    stand.add_view("b", "SALES_MV")
    source = site.source(site.config())
    findings, tables = source.check_source()
    source.close()
    assert tables == [(OWNER, "a"), (OWNER, "b")]
    assert [(each.place, each.message) for each in findings] == [
        ("source s, table BANK.a", "table BANK.a: its log MLOG$_a lacks INCLUDING NEW VALUES"),
        ("source s, table BANK.b",
         ("table BANK.b: other materialized views use its log too (SALES_MV): their refresh purges rows "
             "that capture has not read, and misses rows that capture deletes")),
    ]  # fmt: skip
    assert findings[0].remedy.startswith(
        'CREATE MATERIALIZED VIEW LOG ON "BANK"."a" WITH PRIMARY KEY, SEQUENCE ("version")'
    )


def test_on_a_real_kafka(
    site: OracleSite, kafka: Kafka, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own shell, twice: what was acknowledged is deleted, and a second start goes on."""
    monkeypatch.setattr(
        "producer.sources.oracle.source.load_oracle_driver", lambda _source: site.stand.driver()
    )
    raw = site.config().model_dump()
    raw["kafka"] |= {"bootstrap": kafka.bootstrap, "prefix": unique}
    raw["sources"]["s"]["password"] = "p"
    config = Config.model_validate(raw)
    site.put("a", 1, *range(20))
    for version in (2, 3):
        stop = threading.Event()
        capture = threading.Thread(target=run_capture, args=(config, "s", stop))
        capture.start()
        try:
            until(lambda: watermarks(kafka.bootstrap, unique, "s"), "a start")
            site.put("a", version, *range(0, 20, 3))
            until(lambda: not site.stand.logged("a"), "an empty log")
            until(
                lambda: not watermarks(kafka.bootstrap, unique, "s")[-1].snapshot_pending, "a whole snapshot"
            )
        finally:
            stop.set()
            capture.join()
    found = replay(events(kafka.bootstrap, f"{unique}.s.{OWNER}.a"))
    rows = found.tables[OWNER, "a"].values()
    assert {int(row["id"]): int(row["version"]) for row in rows} == site.rows("a")
    logged = [row for event in found.accepted if event.log for row in event.log.rows]
    assert len(logged) == len(set(logged)) == 2 * 14


def test_a_copy_of_some_rows_takes_the_sources_own_condition(site: OracleSite) -> None:
    site.put("a", 1, *range(8))
    site.run()
    before = len(site.events("a"))
    site.run(lambda: site.copy("a", "id >= 5"), until=lambda: copied(site, "a"))
    read = [event.after for event in site.events("a")[before:] if event.op == "r"]
    assert read == [{"id": id_, "version": 1} for id_ in (5, 6, 7)]
    assert rows_of(site, "a") == site.rows("a")


@pytest.mark.parametrize(
    "where", ["nonsense = 1", "id ==== 1", "1 / (id - id) = 1", r"id > 1 AND 'x\' = 'y'"]
)
def test_a_condition_that_the_source_does_not_take_ends_its_copy(site: OracleSite, where: str) -> None:
    site.put("a", 1, *range(4))
    site.run()

    def refused() -> bool:
        state = site.watermarks()[-1].copies.get(f"{OWNER}.a")
        return state is not None and state.phase == "refused"

    site.run(lambda: site.copy("a", where), lambda: site.put("a", 2, 3), until=refused)
    assert stops(site, "a") == []
    assert rows_of(site, "a") == site.rows("a")
