"""One table stops, durably: its topic says so, nothing later of it is published, and the others go on."""

from __future__ import annotations

from tests.capturing import ACCOUNT, Capturing
from tests.kits.capture import position, watermarks


def test_a_row_that_does_not_fit_stops_its_table_only(capturing: Capturing) -> None:
    """Capture is behind an ALTER: before, this ended capture of the whole source, for good."""
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    capturing.change(
        "INSERT INTO a VALUES (2, 'y')", "ALTER TABLE a ADD COLUMN w INT",
        "INSERT INTO a VALUES (3, 'z', 1)", "ALTER TABLE a ADD COLUMN q INT",
    )  # fmt: skip
    capturing.run("INSERT INTO a VALUES (4, 'late', 1, 1)")
    capturing.stopped("a", "definition")
    assert capturing.notified() == {f"{capturing.db}.a"}
    capturing.run("INSERT INTO a VALUES (5, 'later', 1, 1)")
    capturing.run("INSERT INTO a VALUES (6, 'much later', 1, 1)")
    assert capturing.values("a") == {"x", "y"}
    capturing.stopped("a", "definition")


def test_a_table_that_is_gone_at_a_start_is_stopped_until_it_is_made_again(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    capturing.change("DROP TABLE a")
    for _ in range(3):
        capturing.run()
        capturing.stopped("a", "dropped")
    assert capturing.notified() == {f"{capturing.db}.a"}
    assert capturing.values("a") == {"x"}
    capturing.change(ACCOUNT.format(db=capturing.db, name="a"), "INSERT INTO a VALUES (2, 'new')")
    stop = max(event.source.position for event in capturing.events("a") if event.stop is not None)
    while "newest" not in capturing.values("a"):  # it is copied by itself, perhaps over several starts
        capturing.run("REPLACE INTO a VALUES (3, 'newest')")
    behind = [event for event in capturing.events("a") if event.source.position > stop]
    assert behind[0].copy is not None, "the first word behind a stop is a copy's begin"
    assert capturing.values("a") == {"x", "new", "newest"}
    assert capturing.notified() == set()


def test_a_table_that_became_unfit_is_stopped(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    capturing.change("ALTER TABLE a DROP PRIMARY KEY", "INSERT INTO a VALUES (2, 'y')")
    capturing.run()
    capturing.stopped("a", "unfit")
    capturing.change("ALTER TABLE a ADD PRIMARY KEY (id)")
    capturing.run("INSERT INTO a VALUES (3, 'z')")
    assert capturing.values("a") == {"x"}
    capturing.stopped("a", "unfit")


def test_a_deselected_table_is_stopped_and_nobodys_trouble(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    capturing.run("INSERT INTO a VALUES (2, 'y')", patterns=("b",))
    assert capturing.notified() == set()
    capturing.stopped("a", "deselected")
    capturing.run("INSERT INTO a VALUES (3, 'z')")
    capturing.run("INSERT INTO a VALUES (4, 'zz')")
    assert capturing.values("a") == {"x"}
    assert capturing.notified() == {f"{capturing.db}.a"}, "it is to be captured, and is not"
    capturing.stopped("a", "deselected")


def test_a_table_that_was_never_captured_is_left_out_until_it_is_fit(capturing: Capturing) -> None:
    capturing.change("CREATE TABLE c (id INT, v VARCHAR(20))", "INSERT INTO c VALUES (1, 'x')")
    capturing.run()
    assert capturing.notified() == set()
    assert f"{capturing.db}.c" in str(watermarks(capturing.kafka.bootstrap, capturing.db, "s")[-1].error)
    capturing.run("ALTER TABLE c ADD PRIMARY KEY (id)", "INSERT INTO c VALUES (2, 'y')")
    assert capturing.values("c") == {"y"}, "snapshot: never"
    assert capturing.notified() == set()


def test_a_topic_alone_knows_that_its_table_was_captured(capturing: Capturing) -> None:
    """The record does not name the table: capture was killed before it was stored, say."""
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    _forget_anchors(capturing)
    capturing.run("INSERT INTO a VALUES (2, 'y')", patterns=("b",))
    capturing.stopped("a", "deselected")


def _forget_anchors(capturing: Capturing) -> None:
    import msgspec
    from confluent_kafka import Producer

    record = position(capturing.kafka.bootstrap, capturing.db, "s")
    record.anchors = {name: each for name, each in record.anchors.items() if not name.endswith(".a")}
    producer = Producer({"bootstrap.servers": capturing.kafka.bootstrap})
    producer.produce(
        f"{capturing.db}.s.position", key=str(record.gen).encode(), value=msgspec.json.encode(record)
    )
    producer.flush()
