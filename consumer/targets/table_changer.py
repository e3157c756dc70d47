"""Changes of target tables, common to all dialects. The dialect's `TableAlterer` renders the
statements, and its `ServerLocks` finds who holds a lock.

A change never waits long: while a statement waits for the table's lock, every later reader waits, too.
So it gives up after CHANGE_LOCK_WAIT_S, reports who holds the lock, and is retried with the unit's next
attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic, sleep

from consumer.errors import (
    UNDO,
    ConsumerError,
    LockWaitError,
    NotUniqueError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets.alterations import AddUnique, AlterTable, ChangeKey, DropTable
from consumer.targets.dialect_components import Link, LockHolders, TableAlterer
from consumer.targets.lock_holders import describe_holder
from schemas.table.model import Table

#: Seconds that a statement waits for the lock of its table.
CHANGE_LOCK_WAIT_S = 3.0
#: Seconds after which the lock holders of an unfinished statement are looked up, and the interval from
#: then on.
PATIENCE_S, POLL_S = 0.5, 0.5
#: Seconds that an ended connection may take for its rollback, and the interval of checks.
END_S, END_POLL_S = 20.0, 0.05
#: The remedy where nothing more is known.
_BY_HAND = "alter the target table by hand as the source's is, or remove what prevents the change"


class TableChanger:
    """Carries out changes over `link`.

    `fresh` makes a second connection, which looks up what the first one waits for.
    """

    def __init__(self, link: Link, alterer: TableAlterer, fresh: Callable[[], Link]) -> None:
        self._link = link
        self._alterer = alterer
        self._fresh = fresh

    @property
    def transactional(self) -> bool:
        return self._alterer.transactional

    def apply_change(self, change: AlterTable | DropTable) -> None:
        """Change a table.

        Raises LockWaitError (with the lock's holder), NotUniqueError, TargetConfigError.
        """
        with self._alterer.extend_lock_wait(CHANGE_LOCK_WAIT_S):
            try:
                self._run_watched(change)
            except UniqueViolationError as error:
                raise _explain_not_unique(self._alterer, change, error) from error
            except RefusedError as error:
                if not isinstance(change, DropTable):
                    raise
                raise TargetConfigError(
                    error.problem.what,
                    "drop the foreign keys in the target that refer to the table; the source already "
                    "enforces them",
                ) from error
            except TargetConfigError as error:
                if error.problem.remedy != UNDO:
                    raise
                raise TargetConfigError(error.problem.what, _BY_HAND) from error

    def _run_watched(self, change: AlterTable | DropTable) -> None:
        def work() -> None:
            for text in self._alterer.render_statements(change):
                self._link.execute(text, [])

        waiting_for = self._link.get_connection_id()
        with ThreadPoolExecutor(1, "alter") as pool:
            working = pool.submit(work)
            seen = LockHolders()
            if not wait([working], PATIENCE_S).done:
                seen = self._watch_holders(working, waiting_for, change.table)
            try:
                working.result()
            except LockWaitError as error:
                raise LockWaitError(describe_holders(change.table, seen)) from error

    def _watch_holders(self, working: Future[None], identity: int, table: Table) -> LockHolders:
        """Look up the lock's holders over a second connection until the work ends; return the last ones
        seen.

        A failure of the look-up does not affect the work.
        """
        seen = LockHolders()
        second = self._fresh()
        try:
            second.connect()
            while not working.done():
                seen = second.locks.find_lock_holders(identity, table) or seen
                wait([working], POLL_S)
        except ConsumerError as error:
            return seen or LockHolders(unseen=str(error))
        finally:
            second.close()
        return seen

    def end_connection(self, connection: int) -> None:
        """End a connection and wait until it has rolled back. Raises TransientError if that takes long."""
        self._link.connect()
        if connection == self._link.get_connection_id():
            return
        deadline = monotonic() + END_S
        while self._link.locks.end_connection(connection):
            if monotonic() > deadline:
                raise TransientError(
                    f"connection {connection} of an earlier attempt was ended {END_S:.0f} s ago and still "
                    "rolls back its change of the table: rowlock waits for it"
                )
            sleep(END_POLL_S)


def describe_holders(table: Table, seen: LockHolders) -> str:
    """Return a message about who holds the lock of `table`."""
    place = f"the change of target table {table.db}.{table.name} waits for a lock"
    tried = (
        "nothing was changed, and rowlock retries: end the sessions that hold the lock if they do not end "
        "by themselves"
    )
    if not seen.found:
        reason = f" ({seen.unseen})" if seen.unseen else ""
        return f"{place}, and rowlock cannot see which session holds it{reason}; {tried}"
    held = "that may be held" if seen.guessed else "held"
    listed = ", ".join(map(describe_holder, seen.found))
    unseen = f" ({seen.unseen})" if seen.unseen else ""
    return f"{place} {held} by {listed}{unseen}; {tried}"


def _explain_not_unique(
    alterer: TableAlterer, change: AlterTable | DropTable, error: UniqueViolationError
) -> UniqueViolationError:
    """Return an error that names the index; if several are built, by its name in the server's message."""
    steps = change.steps if isinstance(change, AlterTable) else ()
    added = [step.index for step in steps if isinstance(step, AddUnique)]
    keys = [step.desired for step in steps if isinstance(step, ChangeKey)]
    message, table = str(error), change.table
    named = [index for index in added if alterer.get_index_name(table, index) in message]
    named.sort(key=lambda index: len(index.name), reverse=True)
    guilty = [*named, *keys, *added]
    if not guilty:
        return error
    columns, place = ", ".join(guilty[0].columns), f"{table.db}.{table.name}"
    return NotUniqueError(
        f"rows of target table {place} are equal in ({columns}), so that index {guilty[0].name} "
        f"cannot be built ({message})",
        f"copy the table again, or change those rows, which are shown by SELECT {columns}, COUNT(*) FROM "
        f"{place} GROUP BY {columns} HAVING COUNT(*) > 1",
        guilty[0],
    )
