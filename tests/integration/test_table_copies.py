"""Copying one table again, the side of capture: every cause of a stop is healed, kills at each step, live
changes meanwhile.

The judge folds the table's topic as a reader does (what a copy did not bring is deleted with its chunks, by
`since` alone), compares that with the source's rows, and looks that no row's `version` goes back.
"""

from __future__ import annotations

import pytest

from tests.kits.capture import Unit, size
from tests.kits.copying import PLAIN, Copying, fold
from tests.kits.copying import copying as copying
from tests.kits.waiting import until

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]

PATIENCE = 300
PARTITIONED = (
    "(id INT PRIMARY KEY, version INT, v VARCHAR(20)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS "
    "THAN (5), PARTITION p1 VALUES LESS THAN (1000))"
)
KEYED = (
    "(id INT, version INT, v VARCHAR(20), k VARCHAR(9) CHARACTER SET gbk NOT NULL "
    "DEFAULT 'k', PRIMARY KEY (id, k))"
)
WIDE = "(id INT PRIMARY KEY, version INT, v VARCHAR(20), x MEDIUMTEXT, y MEDIUMTEXT)"
#: Cause → the table's form, and what stops it; by `capture` itself where it is dropped and made again.
CAUSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "dropped": (PLAIN, ("DROP TABLE {t}", f"CREATE TABLE {{t}} {PLAIN}",
     "INSERT INTO {t} VALUES (3, 500, 'new'), (4, 501, 'newer')")),
    "rows-replaced": (PARTITIONED, ("ALTER TABLE {t} REPAIR PARTITION p0",)),
    "statement": (
        PLAIN,
        ("SET SESSION binlog_format = STATEMENT",
         "UPDATE {t} SET v = 'by statement', version = version + 1000", "SET SESSION binlog_format = ROW"),
    ),
    # a user-defined character, which is no text to anybody but the server
    "value": (KEYED, ("UPDATE {t} SET k = X'AAA1', version = 550 WHERE id = 9",
     "DELETE FROM {t} WHERE id = 10")),
    "size": (WIDE,
     ("UPDATE {t} SET version = 560, x = REPEAT('x', 9000000), y = REPEAT('y', 9000000) WHERE id = 9",
      "DELETE FROM {t} WHERE id = 10")),
    "unfit": (PLAIN, ("ALTER TABLE {t} DROP PRIMARY KEY", "DELETE FROM {t} WHERE id = 2")),
    "log": (
        PLAIN,
        ("SET SESSION binlog_row_image = MINIMAL", "UPDATE {t} SET version = 800 WHERE id = 7",
         "SET SESSION binlog_row_image = FULL", "DELETE FROM {t} WHERE id = 8"),
    ),
}  # fmt: skip
#: Cause → what mends the source before its copy.
MENDED = {
    "unfit": ("ALTER TABLE {t} ADD PRIMARY KEY (id)",),
    "value": ("UPDATE {t} SET k = 'text', version = 551 WHERE id = 9",),
    "size": ("UPDATE {t} SET x = 'short', version = 561 WHERE id = 9",),
}
#: See tests.kits.copying_capture.
MOMENTS = ("event", "memory", "record", "low", "select", "high", "rows", "chunk", "last")


def name_of(cause: str) -> str:
    return f"t_{cause.replace('-', '_')}"


def test_every_cause_of_a_stop_is_healed_by_a_copy(copying: Copying) -> None:
    for cause, (form, _) in CAUSES.items():
        copying.make(name_of(cause), form)
    copying.make("t_definition", PLAIN)
    copying.make("t_deselected", PLAIN)
    tables = [*map(name_of, CAUSES), "t_definition", "t_deselected", "live"]
    with copying.running() as unit:
        until(
            lambda: all(copying.equal(each) for each in tables),
            f"the first snapshot: {unit.output()[-3000:]}",
            PATIENCE,
        )
        assert unit.stop() == 0, unit.output()
    copying.change(
        "UPDATE t_definition SET version = 400 WHERE id = 1", "ALTER TABLE t_definition ADD w INT DEFAULT 7",
        "UPDATE t_definition SET version = 401 WHERE id = 2", "ALTER TABLE t_definition ADD q INT",
        "UPDATE t_deselected SET version = 600 WHERE id = 1",
    )  # fmt: skip
    with copying.writing("live"):
        with copying.running("never", "{db}.*", "!{db}.t_deselected") as unit:
            for cause in CAUSES:
                stop(copying, cause, unit)
            for cause, statements in MENDED.items():
                copying.change(*(each.format(t=name_of(cause)) for each in statements))
            expected = {name_of(cause): cause for cause in CAUSES if cause != "dropped"}
            expected |= {"t_definition": "definition", "t_deselected": "deselected"}
            until(
                lambda: expected.items() <= copying.stops().items(),
                f"stops: {expected}; {unit.output()[-3000:]}",
                PATIENCE,
            )
            until(
                lambda: done(copying, "t_dropped"), f"it copies by itself: {unit.output()[-3000:]}", PATIENCE
            )
            copying.change("DELETE FROM t_statement WHERE id = 3")
            assert unit.stop() == 0, unit.output()
        with copying.running() as unit:
            for table in (*expected, "live"):
                copying.request_copy(table)
            until(
                lambda: all(done(copying, each) for each in (*expected, "live")),
                f"{unit.output()[-3000:]}",
                PATIENCE,
            )
            copying.change(
                *(f"REPLACE INTO {each} (id, version, v) VALUES (1, 9000, 'behind')" for each in expected)
            )
    with copying.running() as unit:
        until(lambda: all(copying.equal(each) for each in tables), f"{unit.output()[-3000:]}", PATIENCE)
        assert copying.stops() == {}
        assert unit.stop() == 0, unit.output()
    for table in (*expected, "t_dropped"):
        assert any(each.copy is not None and each.definition is not None for each in copying.events(table)), (
            table
        )


def stop(copying: Copying, cause: str, unit: Unit) -> None:
    """Have a table stop, before the next one does: a statement counts for what is altered behind it, too."""
    table, (_, statements) = name_of(cause), CAUSES[cause]
    copying.change(*(each.format(t=table) for each in statements))
    until(lambda: stopped_or_healed(copying, table, cause), f"{cause}: {unit.output()[-3000:]}", PATIENCE)


def stopped_or_healed(copying: Copying, table: str, cause: str) -> bool:
    return copying.stops().get(table) == cause or (cause == "dropped" and table in copying.states())


def done(copying: Copying, table: str) -> bool:
    state = copying.states().get(table)
    assert state is None or state.phase in ("waiting", "running", "done"), state
    return state is not None and state.phase == "done"


@pytest.mark.parametrize("stopped", [True, False])
def test_a_copy_survives_kills(copying: Copying, *, stopped: bool) -> None:
    """A kill behind each step of a copy, and what follows goes on from there; others write meanwhile."""
    copying.make("a", PARTITIONED)
    with copying.running() as unit:
        until(lambda: copying.equal("a") and copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert unit.stop() == 0, unit.output()
    with copying.writing("live", *(() if stopped else ("a",))):
        for number, when in enumerate(MOMENTS):
            if when in ("event", "memory", "record"):  # it begins, or begins anew
                if stopped:
                    truncated = "ALTER TABLE a TRUNCATE PARTITION p0"
                    copying.change(truncated, f"INSERT INTO a VALUES (2, {300 + number}, 'again')")
                if not stopped or not number:
                    copying.request_copy("a")
            with copying.running(when) as unit:
                assert unit.wait(PATIENCE) == -9, unit.output()[-3000:]
    with copying.running() as unit:
        until(lambda: done(copying, "a"), f"{unit.output()[-3000:]}", PATIENCE)
        until(lambda: copying.equal("a") and copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert copying.stops() == {}
        assert unit.stop() == 0, unit.output()


def test_a_copy_is_taken_back(copying: Copying) -> None:
    with copying.running() as unit:
        until(lambda: copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        copying.request_copy("live", max_rows_per_second=1)
        until(
            lambda: "live" in copying.states() and copying.states()["live"].phase == "running",
            "it runs",
            PATIENCE,
        )
        copying.request_copy("live", cancel=True)
        until(lambda: copying.states()["live"].phase == "cancelled", f"{unit.output()[-3000:]}", PATIENCE)
        copying.change("UPDATE live SET version = 77 WHERE id = 7")
        until(lambda: copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert unit.stop() == 0, unit.output()
    with copying.running() as unit:
        copying.change("UPDATE live SET version = 88 WHERE id = 8")
        until(lambda: copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert sum(event.chunk is not None and event.chunk.last for event in copying.events("live")) == 1, (
            "the first snapshot's"
        )
        assert unit.stop() == 0, unit.output()


def test_a_source_without_snapshots_copies_on_demand(copying: Copying) -> None:
    with copying.running(snapshot="never") as unit:
        until(
            lambda: size(copying.kafka.bootstrap, f"{copying.db}.s.position") > 1,
            f"{unit.output()[-3000:]}",
            PATIENCE,
        )
        copying.request_copy("live", where="v LIKE '%row 1%' AND (id < 100 OR id = 7)")
        until(lambda: done(copying, "live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert sorted(fold(copying.events("live"))) == [1, 10, 11]
        copying.request_copy("live", where="no_such_column = 1")
        until(
            lambda: "no_such_column" in copying.states()["live"].reason, f"{unit.output()[-3000:]}", PATIENCE
        )
        copying.request_copy("live")
        until(lambda: copying.states()["live"].phase == "done", f"{unit.output()[-3000:]}", PATIENCE)
        until(lambda: copying.equal("live"), f"{unit.output()[-3000:]}", PATIENCE)
        assert unit.stop() == 0, unit.output()
