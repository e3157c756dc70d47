"""A table of accounts that is changed without a pause, and the judgement of what capture made of it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

from deploy.embedded.services import Kafka
from tests.kits.capture import (
    Replay,
    events,
    replay,
    source_rows,
    topic_rows,
    transactions_are_whole,
    watermarks,
)

DDL = "CREATE TABLE {db}.acct (id INT PRIMARY KEY, version BIGINT NOT NULL, owner VARCHAR(20) NULL UNIQUE)"


class Load(threading.Thread):
    """Changes 40 keys over and over, three statements a transaction, each with a higher version.

    After an error of `survives` it connects again; any other ends it. `count`: transactions that were
    committed.
    """

    def __init__(self, database: Any, db: str, *, survives: tuple[type[Exception], ...] = ()) -> None:
        super().__init__(name="load", daemon=True)
        self._database, self._db, self._survives = database, db, survives
        self._random = random.Random(7)
        self._ending = threading.Event()
        self.version = self.count = 0

    def run(self) -> None:
        while not self._ending.is_set():
            with (
                contextlib.suppress(*self._survives),
                contextlib.closing(self._database.connect(self._db)) as connection,
            ):
                self._write(connection)
            self._ending.wait(0.1)

    def _write(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            while not self._ending.wait(0.001):
                connection.begin()
                for _ in range(3):
                    self._change(cursor)
                connection.commit()
                self.count += 1

    def _change(self, cursor: Any) -> None:
        self.version += 1
        key, owner = self._random.randrange(40), f"o{self._random.randrange(30)}"
        match self._random.randrange(4):
            case 0:
                cursor.execute("DELETE FROM acct WHERE id = %s", (key,))
            case 1:
                cursor.execute(
                    "UPDATE acct SET version = %s, owner = NULL WHERE owner = %s", (self.version, owner)
                )
            case _:
                cursor.execute("REPLACE INTO acct VALUES (%s, %s, %s)", (key, self.version, owner))

    def finish(self) -> None:
        self._ending.set()
        self.join(600)
        assert not self.is_alive()


@contextlib.contextmanager
def load(database: Any, db: str, *, survives: tuple[type[Exception], ...] = ()) -> Iterator[Load]:
    writer = Load(database, db, survives=survives)
    writer.start()
    try:
        yield writer
    finally:
        writer.finish()


def topic_of(db: str) -> str:
    return f"{db}.s.{db}.acct"


def judge(kafka: Kafka, database: Any, db: str) -> Replay:
    """The topic replays to the source, every row, transaction by transaction; `events` judges that no version
    goes back."""
    result = replay(events(kafka.bootstrap, topic_of(db)))
    assert topic_rows(result, db, "acct", ["id", "version", "owner"]) == source_rows(database, db, "acct")
    assert transactions_are_whole([result])
    return result


def copied(kafka: Kafka, db: str) -> bool:
    """The snapshot is over."""
    found = watermarks(kafka.bootstrap, db, "s")
    return bool(found and not found[-1].snapshot_pending)


def caught_up(kafka: Kafka, database: Any, db: str) -> bool:
    """The snapshot is over, and the watermark is past the end of the log as it is now."""
    end = database.execute(database.log_status)[0]
    found = watermarks(kafka.bootstrap, db, "s")
    if not found or found[-1].snapshot_pending:
        return False
    return (found[-1].file, found[-1].position[2]) >= (end[0], int(end[1]))
