"""Statements over a link: as one transaction, and such that make what somebody else may be making."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from consumer.errors import AlreadyExistsError, ConsumerError, TransientError, UniqueViolationError
from consumer.targets.dialect_components import Link
from schemas.backoff import pause_after

#: Attempts at making a table that somebody else makes at the same time.
MAKE_TRIES, MAKE_PAUSE_S = 5, 0.05


@contextmanager
def commit_block(link: Link) -> Iterator[None]:
    """Commit what the block does over `link`; it begins the transaction. Roll back after any error: after a lock time-out some
    databases keep the transaction and its locks."""
    link.connect()
    try:
        yield
        link.commit()
    except BaseException:
        link.roll_back()
        raise


def run_create(link: Link, text: str) -> None:
    """Run a CREATE … IF NOT EXISTS. Where somebody else makes the same thing at the same time, a database may answer with a
    violated index of its catalogue, or that a part of it is there; it is there then, or was given up.

    Raises TransientError if that goes on, and AlreadyExistsError where something of another kind has the name.
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
    raise TransientError(f"somebody else keeps making the same: {last}") from last
