"""Statements over a link: in one transaction, or to create what another process may be creating."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from consumer.errors import AlreadyExistsError, ConsumerError, TransientError, UniqueViolationError
from consumer.targets.dialect_components import Link
from schemas.backoff import pause_after

#: Attempts at creating a table that another process creates at the same time, and seconds between them.
MAKE_TRIES, MAKE_PAUSE_S = 5, 0.05


@contextmanager
def commit_block(link: Link) -> Iterator[None]:
    """Commit what the block does over `link`; the block begins the transaction.

    Roll back after any error: after a lock time-out some databases keep the transaction and its locks.
    """
    link.connect()
    try:
        yield
        link.commit()
    except BaseException:
        link.roll_back()
        raise


def run_create(link: Link, text: str) -> None:
    """Run a CREATE … IF NOT EXISTS.

    If another process creates the same object at the same time, a database may report a violated index
    of its catalog, or that a part of the object exists. The object then exists, or its creation was
    given up, so the statement is retried.

    Raises TransientError if that continues, and AlreadyExistsError if an object of another kind has the
    name.
    """
    last: ConsumerError | None = None
    for tries in range(1, MAKE_TRIES + 1):
        try:
            link.connect()
            link.execute(text, [])
        except (UniqueViolationError, AlreadyExistsError) as error:
            last = error
            time.sleep(pause_after(tries, MAKE_PAUSE_S))
        else:
            return
    if isinstance(last, AlreadyExistsError):
        raise last
    raise TransientError(f"another session of the target keeps creating the same object: {last}") from last
