"""The components that a dialect brings to a session: a connection, a catalogue, an applier, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.alterations import AlterTable, DropTable
from consumer.targets.bookkeeping.books import Bookkeeping
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.sql import Fragment, Params
from schemas.table.model import Key, Row, Table, UniqueIndex
from schemas.table.names import NameRules

Rows = list[tuple[object, ...]]


class Link(Protocol):
    """One connection. Every method raises errors of consumer.errors only; a lost connection is TransientError.

    Texts have the marks of consumer.targets.sql; the link gives its driver what that takes.
    """

    def connect(self) -> None:
        """Connect when there is no usable connection; otherwise do nothing."""

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        """Begin READ COMMITTED with `text` as first statement and return its rows. None: the session's lock wait."""

    def begin_all(self, fragments: Sequence[Fragment]) -> list[Rows]:
        """Begin READ COMMITTED and run `fragments` in turn, in as few round trips as the driver allows; rows of each."""

    def execute(self, text: str, params: Params) -> Rows:
        """Run a statement; without rows returns []. `affected` is then the number of rows it matched."""

    @property
    def affected(self) -> int: ...

    def commit(self) -> None:
        """Commit. Raises CommitUnknownError when the connection breaks inside."""

    def roll_back(self) -> None:
        """Roll back; never raises: a connection that cannot is closed."""

    def get_connection_id(self) -> int:
        """The server's number for this connection."""

    @property
    def locks(self) -> ServerLocks: ...

    def ping(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A connection that has a lock; `seconds`: for how long it has been at it. None: this user may not see it."""

    connection: int
    user: str
    seconds: int | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class LockHolders:
    """`guessed`: the server does not say who has the lock, and `found` are those that may. `unseen`: what this user cannot see,
    with the statement that shows it."""

    found: tuple[LockHolder, ...] = ()
    guessed: bool = False
    unseen: str = ""

    def __bool__(self) -> bool:
        return bool(self.found or self.unseen)


class ServerLocks(Protocol):
    """The locks of the server, as its link sees them: who holds what *another* connection waits for, and how a connection is ended.

    Connections are named by their `Link.identity`.
    """

    def end_blockers_of(self, waiting: int) -> list[int]:
        """End the connections that hold a lock for which connection `waiting` waits. Returns their numbers."""

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        """Return who holds the lock of `table` that connection `waiting` waits for; nobody: it does not wait."""

    def end_connection(self, connection: int) -> bool:
        """End a connection; tell whether it was still there."""


class TargetCatalog(Protocol):
    """Definitions and plain reads of a dialect's tables, and what checks read of its server. `column_names`: how it compares names of columns."""

    column_names: NameRules

    def read_table(self, schema: str, name: str) -> Table | None: ...

    def quote_table_name(self, table: TargetTable) -> str:
        """Return the quoted, qualified name."""

    def read_table_facts(self, schema: str, name: str) -> TableFacts: ...

    def find_missing_rights(self, wanted: RequiredRights) -> list[MissingRight]:
        """Return what the user lacks for `wanted`; only what is certain."""

    def find_durability_risk(self) -> Remark | None:
        """Say why a crash of the server may take back commits that readers have seen; None: it may not."""

    def create_statements(self, table: Table) -> list[str]: ...

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        """Return "SELECT … FROM …" for the columns of `table`, and what makes wire values of a row."""

    def build_key_params(self, table: TargetTable, key: Key) -> list[object]: ...

    def list_key_columns(self, table: TargetTable) -> tuple[str, ...]: ...

    def build_filter(self, table: TargetTable, values: dict[str, str] | None) -> list[Fragment]: ...

    def build_page_conditions(
        self, table: TargetTable, after: Key | None, upto: Key | None = None
    ) -> list[Fragment]:
        """Return the conditions for the rows behind key `after`, and up to `upto`, in the order of `page_order`."""

    def build_page_order(self, table: TargetTable) -> str: ...


class NetChangeApplier(Protocol):
    """Applies net changes in the link's open transaction."""

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        """Returns how many rows were written to `rowlock_displaced`."""

    def on_transaction_end(self, *, committed: bool) -> None:
        """The transaction ended: what it created is there, or not."""

    def forget_table(self, schema: str, name: str) -> None:
        """The table was changed: what was made for its earlier form is of no use."""


class TableAlterer(Protocol):
    """Changes of tables in a dialect's own statements, and how long they wait for the table's lock.

    `transactional`: such a statement commits with the transaction that it stands in; else each commits by itself.
    """

    transactional: bool

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        """Yield the statements. Each has been run when the next one is asked for: what a later one must know of the real table is
        read once an earlier one has its lock. Raises TargetConfigError."""

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        """Return what the server calls a unique index that was added."""

    def extend_lock_wait(self, lock_wait_s: float) -> AbstractContextManager[None]:
        """Within, a lock is waited for this long, and a statement may take as long as it takes. All is as before afterwards."""


@dataclass(frozen=True)
class DialectComponents:
    """The components of one session, put together by its dialect. `fresh` makes a second connection to the same target."""

    link: Link
    books: Bookkeeping
    catalogue: TargetCatalog
    applier: NetChangeApplier
    alterer: TableAlterer
    fresh: Callable[[], Link]
